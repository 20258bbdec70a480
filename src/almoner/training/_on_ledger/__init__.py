"""Trainings that charge the accounts of a ledger."""
