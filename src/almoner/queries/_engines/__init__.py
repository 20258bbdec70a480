"""Engines that read the rows and work out the charges: DuckDB, and those of plugins."""
