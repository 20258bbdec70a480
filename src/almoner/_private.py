"""The mark of views for the data holder, and the quantiles over people that they show."""

MARK = "private: for the data holder"  # stands on every table, picture and report that belongs to the data holder alone
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95, 1.0)  # quantiles over people in private reports; the last is the largest value
