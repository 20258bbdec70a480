"""Does something in a forked process."""

import os
from collections.abc import Callable

import pytest

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


def raises_in_fork(error: type[BaseException], work: Callable[[], object]) -> bool:
    """Whether `work`, done in a process that is forked now, raises this error."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except error:
            os._exit(7)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
