"""The picture of a step is drawn from the code, and from nothing else."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
RECORD, PUBLISH = "        self.record(step, opened)\n", "        self.before()\n"
CONTRIBUTE = "            sums = contribute(opened)\n"
MODEL, COUNTED = "        self.model.step(noisy, divisor, rate)\n", "        self.sampling.released()\n"


@pytest.fixture
def step():
    spec = importlib.util.spec_from_file_location("step", DOCS / "step.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def changed(step, *replaced):
    """A reader of sources in which some text is another one."""
    counts = dict.fromkeys(replaced, 0)

    def read(module):
        text = step.read(module)
        for old, new in replaced:
            counts[old, new] += old in text
            text = text.replace(old, new)
        return text

    picture = step.svg(read)
    assert all(counts.values())
    return picture


def test_the_picture_is_that_of_the_code(step):
    """docs/training/step.svg is what docs/step.py draws now."""
    assert step.svg() == (DOCS / "training" / "step.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "replaced",
    [
        [(MODEL, ""), (COUNTED, COUNTED + MODEL)],
        [(CONTRIBUTE, "            sums = []\n"), (PUBLISH + RECORD, PUBLISH + RECORD + CONTRIBUTE[4:])],
        [("            self.folder.announce(step, ids)\n", "            pass\n")],
        [
            ("                        after()\n", ""),
            ("self.take(turnout, step())", "after(); self.take(turnout, step())"),
        ],
        [("            keep(self._stream.number + 1, noisy)\n", "")],
    ],
    ids=["model", "charged after it is told", "announced", "callbacks", "kept"],
)
def test_another_order_is_another_picture(step, replaced):
    """Where the order of calls is another one, or one is missing, the picture is another one."""
    assert changed(step, *replaced) != step.svg()


def test_an_unknown_call_is_refused(step):
    """A call of a book that the picture does not know must be drawn, or left out by name."""
    with pytest.raises(ValueError, match="tell_everybody: draw it"):
        changed(step, (RECORD, f"{RECORD}        self.tell_everybody(sums)\n"))
