"""The tables of a session: declared, checked when it opens, and bound to data sets."""
