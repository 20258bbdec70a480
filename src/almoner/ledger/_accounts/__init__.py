"""What each person has spent: tables of DuckDB or PostgreSQL, or Parquet files; one interface."""
