"""Accounts of a training: per person, for everybody, by id, with counts beside them."""
