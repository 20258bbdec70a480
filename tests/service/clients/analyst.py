"""An analyst in Python: quotes, asks, reads the answer and is refused, with the client that a generator made."""

import json
import sys


def main(address, token):
    """Print what is read. Imported when it runs: the client is in an environment of its own."""
    from almoner_client import AuthenticatedClient, Client
    from almoner_client.api.default import answer, ask, me, quote
    from almoner_client.models import Answer, Count, Mean, Problem, Quote

    client = AuthenticatedClient(base_url=address, token=token, raise_on_unexpected_status=True)
    question = Count.from_dict({"ask": "count", "by": {"country": ["FR", "ES"]}, "clip": 5, "sigma": 60})
    quoted = quote.sync(client=client, body=question)
    assert isinstance(quoted, Quote)
    asked = ask.sync_detailed(client=client, body=question, idempotency_key="python")
    read = answer.sync(client=client, key="python")
    assert isinstance(asked.parsed, Answer)
    assert isinstance(read, Answer)
    refused = quote.sync(client=client, body=Mean(ask="mean", column="diagnosis", low=0.0, high=1.0, rho=0.01))
    unknown = me.sync(client=Client(base_url=address))
    assert isinstance(refused, Problem)
    assert isinstance(unknown, Problem)
    told = {
        "quoted": quoted.rho,
        "asked": asked.parsed.values,
        "status": asked.status_code,
        "read": read.values,
        "total": sum(read.values),
        "refused": [refused.status, refused.code, refused.detail],
        "unknown": [unknown.status, unknown.code],
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
