"""Ask our accountant every question that the tests of Google's dp_accounting ask theirs.

    python benchmarks/suites/dp_accounting_suite.py CHECKOUT

CHECKOUT is a clone of github.com/google/differential-privacy. Its tests of Rényi, privacy loss and calibration run with
a logger of every epsilon and delta that they ask for. A question about a delta becomes one about the epsilon at it. The
judge of Gaussian, sampled Gaussian and Laplace runs is their own optimistic distribution, which is below the truth.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(sys.argv[1]) / "python" / "dp_accounting"))

from asked import ask_all, log_tests

if __name__ == "__main__":
    tests = ("rdp.rdp_privacy_accountant_test", "pld.pld_privacy_accountant_test", "mechanism_calibration_test")
    log_tests(tuple(f"dp_accounting.{name}" for name in tests))
    ask_all("dp_accounting")
