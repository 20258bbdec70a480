"""Answers: values, intervals, and what they are about."""
