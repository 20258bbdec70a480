"""Accounts of what each person has spent: in tables of DuckDB or PostgreSQL, or in Parquet files; one interface."""
