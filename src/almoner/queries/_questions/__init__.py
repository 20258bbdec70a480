"""Questions: what each asks, what it costs, and how wrong its answer may be."""
