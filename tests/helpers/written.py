"""Numbers as they were written, for tests that judge sums exactly."""

from fractions import Fraction


def written(value):
    """The decimal that a float of at most 15 digits shows; a longer one itself, to 20 digits."""
    digits = repr(float(value)).split("e")[0].replace(".", "").replace("-", "").strip("0")
    return Fraction(repr(float(value))) if len(digits) <= 15 else Fraction(f"{float(value):.19e}")
