"""`almoner serve`: a service for analysts, from one policy file."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

import almoner
from almoner.cli._shown import console
from almoner.errors import ArgumentError

if TYPE_CHECKING:
    from almoner.service.policies import Policy


def serve(
    policy: Annotated[Path | None, Argument(help="A TOML file: data, budget, analysts, limits, prices.")] = None,
    check: Annotated[bool, Option("--check", help="Explain the policy in words, and serve nothing.")] = False,
    preview: Annotated[bool, Option("--preview", help="Say what each analyst could ask; open no data.")] = False,
    prepare: Annotated[
        bool, Option("--prepare", help="Make the ledger if there is none, and its witness; explain; serve nothing.")
    ] = False,
    owner: Annotated[
        str | None, Option(help="On PostgreSQL, for --prepare: the role that makes the tables and owns them.")
    ] = None,
    new_token: Annotated[bool, Option("--new-token", help="Print a new token, and its line of the policy.")] = False,
    host: Annotated[str | None, Option(help="Where analysts come to, in place of the policy's.")] = None,
    port: Annotated[int | None, Option(help="The port of analysts, in place of the policy's.")] = None,
    holder_port: Annotated[int | None, Option(help="Your own port, in place of the policy's.")] = None,
) -> None:
    """Serve statistics to analysts over HTTP, from one policy file. Stops at SIGINT or SIGTERM.

    The data holder has a port of their own. Give analysts their tokens; the policy holds the hashes. At SIGHUP the
    policy is read again: analysts, tokens, limits and prices change, or the one before stays in force.
    """
    if (policy is None) != new_token:
        raise ArgumentError("give either a policy file or --new-token")
    if owner is not None and not prepare:
        raise ArgumentError("--owner is for --prepare")
    if policy is None:
        from almoner import _tokens

        made = _tokens.new_token()
        told = f"token, for its owner alone: {made}", f'token = "{_tokens.hash_of(made)}"'
        console().print(*told, sep="\n", soft_wrap=True)
        return
    given = _read(policy, host, port, holder_port)
    if prepare:
        made = "made" if almoner.service.prepare(given, owner=owner) else "is there already: nothing was made anew"
        console().print(f"ledger: {made}", highlight=False)
    if check or prepare or preview:
        for line in almoner.service.preview(given) if preview else almoner.service.explain(given):
            console().print(line, soft_wrap=True, highlight=False)
        if prepare:
            console().print(f"next: almoner serve {policy}", soft_wrap=True, highlight=False)
        return
    almoner.service.serve(given, ready=_ready, again=lambda: _read(policy, host, port, holder_port))


def _read(path: Path, host: str | None, port: int | None, holder_port: int | None) -> "Policy":
    from almoner._reading import read
    from almoner.service.policies import Policy, ServiceSettings

    given = Policy.read(path)
    wanted = {"host": host, "port": port, "holder_port": holder_port}
    places: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    places |= {"socket": None} if {"host", "port"} & places.keys() else {}
    places |= {"holder_socket": None} if "holder_port" in places else {}
    service = read(ServiceSettings, given.file.service.model_dump() | places, where="service")
    return replace(given, file=given.file.model_copy(update={"service": service}))


def _ready(analysts: str, holder: str) -> None:
    console().print(f"analysts: {analysts}", f"data holder: {holder}", "stop with Ctrl+C", sep="\n", highlight=False)
