"""A service for analysts who are not in the data holder's process: `almoner serve` (extra ``service``).

Analysts reach it over HTTP with a token. They see public facts and their own answers; the data holder has another port.
``policies`` says what a data holder allows; docs/service/security.md says what it protects against, and what not.
"""

from almoner._tokens import hash_of, new_token
from almoner.service._explained import explain, preview
from almoner.service._server import OpenService, opened, prepare, serve
from almoner.service._trail import check_trail

__all__ = ["OpenService", "check_trail", "explain", "hash_of", "new_token", "opened", "prepare", "preview", "serve"]
