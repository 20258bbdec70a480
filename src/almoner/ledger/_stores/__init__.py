"""Where a ledger lives: one DuckDB file, or a schema of a PostgreSQL database; one interface."""
