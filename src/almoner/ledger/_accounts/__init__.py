"""Accounts of what each person has spent: in tables of DuckDB or of PostgreSQL."""
