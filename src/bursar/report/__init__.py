"""Accounts in, tables and pictures out."""
