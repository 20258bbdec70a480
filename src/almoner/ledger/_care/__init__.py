"""Upkeep of a ledger: checks, compaction, erasure, backups, protection, summaries."""
