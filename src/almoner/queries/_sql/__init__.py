"""Questions compiled to SQL with exact sums."""
