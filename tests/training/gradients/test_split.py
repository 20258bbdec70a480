"""Modules whose layers are split between two processes: one training, as one process would do it."""

from pathlib import Path

import numpy as np
import pytest

import training_parallel
from training_sharded import together, told

SCRIPT = Path(__file__).parents[2] / "helpers" / "training_parallel.py"


def both(folder, case):
    """What the processes of a case found, which is equal in all bits."""
    first, second = (np.load(folder / f"{case}-{rank}.npz") for rank in range(2))
    for name in first:
        assert np.array_equal(first[name], second[name])
    return first


def compared(folder, case):
    """Compare what two processes of a case found with what one process finds."""
    found, alone = both(folder, case), training_parallel.go(case)
    for name, wanted in alone.items():
        assert np.allclose(found[name], wanted, rtol=1e-6, atol=1e-6)


def test_a_split_module_is_trained_as_a_whole_one(tmp_path):
    """Layers split by columns and rows, samples of people with many records: the same norms, sums, accounts and model.
    Norms of a process's own part, or with what both have counted twice, would be other ones."""
    together(SCRIPT, tmp_path, "layers-sampled", "wrong")
    compared(tmp_path, "layers-sampled")
    norms = training_parallel.go("layers")["norms"]
    first, second = told(tmp_path, "wrong")
    assert first["right"] == second["right"]
    assert np.allclose(first["right"], norms, rtol=1e-5)
    for rank in (first, second):
        assert np.all(np.array(rank["own"]) < 0.999 * norms)
        assert np.all(np.array(rank["twice"]) > 1.01 * norms)


@pytest.mark.slow
def test_attention_and_other_forms_of_split_modules(tmp_path):
    """A block with its heads in two processes, an embedding, parts that stay whole or frozen, a person's records a few
    at a time, distributed tensors between layers; with dropout both processes go on alike."""
    cases = ("words", "words-sampled", "layers-few", "layers-frozen", "layers-inside")
    together(SCRIPT, tmp_path, *cases, "layers-dropout")
    for case in cases:
        compared(tmp_path, case)
    assert both(tmp_path, "layers-dropout")["spent"].min() > 0  # each draws for its own part: other coins than alone


@pytest.mark.slow
def test_noise_of_a_split_module_comes_once_and_a_killed_run_goes_on(tmp_path):
    """Noise of the system: each entry once, the same in both processes. One process lost its last step: both go on
    from the step before with the accounts that have seen it."""
    together(SCRIPT, tmp_path, "unseeded", "resumed")
    first, second = told(tmp_path, "unseeded")
    assert first == second
    moved = np.array(first["moved"])
    for part in (moved[:240], moved[240:732], moved[732:]):  # by columns, by rows, whole
        assert np.all(part != 0)
        assert np.std(part) == pytest.approx(1.0, abs=4 / len(part) ** 0.5)
    first, second = told(tmp_path, "resumed")
    assert "process=" in first.pop("swapped")
    assert "process=" in second.pop("swapped")
    assert first == second
    assert (first["steps"], first["released"]) == (3, 4)


@pytest.mark.slow
def test_split_modules_that_cannot_be_trained_are_refused_in_both_processes(tmp_path):
    """Other people, settings or coins in one of them, and gradients that nobody has: refused, by name, in both."""
    together(SCRIPT, tmp_path, "refusals")
    first, second = told(tmp_path, "refusals")
    wanted = {
        **dict.fromkeys(("records", "people", "ids", "coins"), "group: records, people, shares or coins differ"),
        **dict.fromkeys(("sequence", "uneven", "rows"), "split evenly over all processes, nn.Linear by Colwise"),
        **dict.fromkeys(("own", "watch"), "give a fresh filter"),
        **dict.fromkeys(("mixes", "mixes inside"), "depend on the other records"),
        "group": "group: leave it out",
        "length": "as many records",
        "budget": "group: budget=",
        "learning": "group: learning=",
        "clip": "weights or coins differ",
        "ledger": "parallelize_module has split is not done together with ledger=",
        "fixed": "takes no fixed batches",
        "public": "they must come with one process",
        "stream": "a stream is trained by one process",
        "inside": "fully_shard(module) alone",
        "parts": "gradients differ in another process",
        "last": "losses differ in another process: ColwiseParallel(output_layouts=Replicate())",
        "plain": "can't be done record by record",
    }
    assert set(first) == set(second) == set(wanted)
    for name, text in wanted.items():
        assert text in first[name]
        assert text in second[name]
