"""Prices of rounds for an account that has a number of planned rounds left; see README.md.

Source: theory 4.11; docs/proofs/planned-filter.md
"""

from almoner.curves.planned._prices import ERRORS, LEAST_SLACK, MOST_ROUNDS, SLACK, Plan, Prices, level, rounds_at

__all__ = ["ERRORS", "LEAST_SLACK", "MOST_ROUNDS", "SLACK", "Plan", "Prices", "level", "rounds_at"]
