"""The guarantee of a trained model, as data and as a page."""
