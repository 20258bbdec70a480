"""Text and tables that commands print."""
