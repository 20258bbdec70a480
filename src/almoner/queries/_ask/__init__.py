"""One question on its way: completed with prices, charged and answered in one transaction."""
