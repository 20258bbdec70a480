"""Mechanisms from and to other libraries."""
