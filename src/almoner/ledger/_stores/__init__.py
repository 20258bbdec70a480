"""Stores of a ledger: one DuckDB file, or a schema of a PostgreSQL database; one interface."""
