"""Pictures and tables of accounts. What shows single people is private, and says so."""
