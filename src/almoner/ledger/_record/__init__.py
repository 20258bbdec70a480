"""The record: its entries, and what they say about people, periods, tables and limits."""
