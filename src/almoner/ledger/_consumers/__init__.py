"""Trainings and streams that charge a ledger: reservations, updates, and the people they name."""
