"""Ask our accountant every question that the accounting tests of JAX-Privacy ask dp_accounting.

    python benchmarks/suites/jax_privacy_suite.py CHECKOUT

CHECKOUT is a clone of github.com/google-deepmind/jax_privacy. Neither its package nor JAX is loaded, but the two
modules that describe its runs as events.
"""

import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

package = ModuleType("jax_privacy")
package.__path__ = [str(Path(sys.argv[1]) / "jax_privacy")]
sys.modules |= {"jax_privacy": package, "jax": MagicMock(), "jax.numpy": MagicMock()}
sys.path.insert(0, str(Path(sys.argv[1]) / "tests"))

import accounting_test  # noqa: E402 - of the suite
from asked import ask_all, log_tests  # noqa: E402

del sys.modules["jax"], sys.modules["jax.numpy"]  # others ask whether it is loaded

if __name__ == "__main__":
    log_tests((accounting_test.__name__,))
    ask_all("JAX-Privacy, accounting")
