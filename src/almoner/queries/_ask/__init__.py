"""One question: closed, charged and answered in one transaction."""
