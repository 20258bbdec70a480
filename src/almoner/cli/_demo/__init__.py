"""The command `almoner demo`."""
