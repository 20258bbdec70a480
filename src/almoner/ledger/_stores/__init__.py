"""Stores of a ledger, with one set of methods: one DuckDB file, or a schema of a PostgreSQL database."""

from almoner.ledger._stores.file import File
from almoner.ledger._stores.postgres import Postgres

__all__ = ["File", "Postgres", "Store"]

Store = File | Postgres
"""A place for one ledger. SQL that goes through it speaks of ``ledger.record`` and has ? for parameters."""
