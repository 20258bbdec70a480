"""The interface of engines, for whoever writes one for another warehouse: see docs/engines.md.

A ``Plugin`` says which data are its own and opens an ``Engine`` over them, whose SQL is that of its ``Dialect``.
``almoner.queries.spark`` is one; ``almoner.queries.testing`` compares another one with DuckDB.
"""

from almoner._workspace import Query
from almoner.queries._engines.engine import Engine, Plugin
from almoner.queries._sql.compiler import Compiled, Compiler
from almoner.queries._sql.dialects import Dialect, double, duckdb_dialect, like_regex
from almoner.queries._sql.functions import case_tables, functions
from almoner.queries._sql.keys import Keys

__all__ = [
    "Compiled",
    "Compiler",
    "Dialect",
    "Engine",
    "Keys",
    "Plugin",
    "Query",
    "case_tables",
    "double",
    "duckdb_dialect",
    "functions",
    "like_regex",
]
