"""Commands that train private models, and that use them."""
