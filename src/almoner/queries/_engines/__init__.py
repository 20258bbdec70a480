"""What reads the rows and charges for them: DuckDB or Spark; the SQL that both run."""
