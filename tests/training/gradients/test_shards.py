"""Modules that are sharded over two processes: the same sums, norms, accounts and noise as in one process."""

from pathlib import Path

import numpy as np
import pytest

import training_sharded
from almoner import filters
from almoner.ledger import Ledger, Terms
from training_sharded import together, told

SCRIPT = Path(__file__).parents[2] / "helpers" / "training_sharded.py"


def compared(folder, case, tolerance):
    """Compare what two processes of a case found with what one process finds."""
    first, second = (np.load(folder / f"{case}-{rank}.npz") for rank in range(2))
    alone = training_sharded.go(0, 1, case)
    for name in ("sums", "weights", "answers"):
        assert np.array_equal(first[name], second[name])
        assert np.allclose(first[name], alone[name], rtol=0, atol=tolerance)
    for name in ("norms", "spent"):
        assert np.allclose(np.concatenate([first[name], second[name]]), alone[name], rtol=max(tolerance, 1e-5))


def test_a_sharded_module_is_trained_as_a_whole_one(tmp_path):
    """Uneven shards, tied and frozen weights, a person of many records: with the same noise the same model follows,
    and the same accounts."""
    together(SCRIPT, tmp_path, "sharded")
    compared(tmp_path, "sharded", 1e-6)


@pytest.mark.slow
def test_parts_adapters_and_whole_modules(tmp_path):
    """Parameters outside the shards, low-rank adapters beside frozen ones, and a whole module in two processes."""
    together(SCRIPT, tmp_path, "part", "adapters", "whole", "sampled")
    for case in ("part", "adapters", "whole"):
        compared(tmp_path, case, 1e-6)
    first, second = (np.load(tmp_path / f"sampled-{rank}.npz") for rank in range(2))  # the samples are other ones
    assert np.array_equal(first["weights"], second["weights"])
    assert min(first["spent"].min(), second["spent"].min()) > 0


@pytest.mark.slow
def test_noise_comes_once_and_errors_of_one_are_errors_of_all(tmp_path):
    """Noise of the system: each entry once, the same in both processes; who has no norm pays nothing. What can't be
    done is refused in both processes, with the line to write, before anything is charged."""
    together(SCRIPT, tmp_path, "unseeded", "refusals")
    first, second = told(tmp_path, "unseeded")
    moved = np.array(first["moved"])
    assert first["moved"] == second["moved"]
    assert np.all(moved != 0)
    for part in (moved[:164], moved[164:]):  # sharded, and whole in each process
        assert np.std(part) == pytest.approx(1.0, abs=4 / len(part) ** 0.5)
    assert min(first["spent"]) > 0 == max(second["spent"])
    first, second = told(tmp_path, "refusals")
    wanted = {
        "devices": "group: device=",
        "public": "public: they must come with one process",
        "alone": "compute=training.Compute(group=True)",
        "chooses": "can't be done record by record",
        "elsewhere": "used outside that layer",
        "shape": "as many records",
        "steps": "group: steps=",
        "frozen": "group: parameter 0.weight=",
        "learning": "group: learning=",
        "ids": "a person has records in two processes",
        "replicas": "fully_shard(module) alone",
        "half": "computes in half precision",
        "fixed": "takes no fixed batches",
        "mixes": "depend on the other records",
        "budgets": "group: budget=",
        "file": "OnLedger('postgresql://server/database', 'model')",
    }
    assert set(first) == set(second) == set(wanted)
    for name, text in wanted.items():
        assert text in first[name]
        assert text in second[name]
    assert "process 1 can't go on, so nobody does" in first["shape"]


@pytest.mark.slow
def test_processes_go_on_from_their_own_folders_and_end_together(tmp_path):
    """Shards of the other process are refused; a step that one process announced counts for the budget in both."""
    together(SCRIPT, tmp_path, "swapped", "announced")
    for rank in told(tmp_path, "swapped"):
        assert "process=" in rank["other"]
        assert rank["own"] == "nothing"
    assert told(tmp_path, "announced") == 2 * [{"step": 2, "reason": "the budget is spent"}]


@pytest.mark.slow
def test_two_processes_charge_one_ledger(server, tmp_path):
    """Each reserves for its own people and settles what they spent; the ledger's record holds."""
    place, budget = server.place(), filters.Gaussian(epsilon=2.0, delta=1e-6)
    Ledger.open(place, Terms(budget, person="VARCHAR", keys_delta=1e-6), create=True).close()
    together(SCRIPT, tmp_path, str(place))
    for found in told(tmp_path, str(place).partition("://")[0]):
        assert found["found"] == []
        assert np.all(np.array(found["charged"]) >= np.array(found["spent"]))
        assert min(found["spent"]) > 0
        assert found["keys"] == ["model, process 0 of 2", "model, process 1 of 2"]
