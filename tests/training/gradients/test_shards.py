"""Modules that are sharded over two processes: the same sums, norms, accounts and noise as in one process."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import training_sharded
from almoner import errors, filters, training
from almoner.training._run.models import Processes
from almoner.training.gradients._shards import Shards

SCRIPT = Path(__file__).parents[2] / "helpers" / "training_sharded.py"


def together(folder, *words):
    """The status of two processes and what they printed."""
    command = [sys.executable, "-W", "ignore", SCRIPT]
    jobs = [
        subprocess.Popen([*command, str(rank), "2", folder, *words], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    told = [job.communicate(timeout=120)[0] for job in jobs]
    return [job.returncode for job in jobs], told


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
    and the same accounts, from all people and from fixed batches with correlated noise."""
    assert together(tmp_path, "sharded", "batches")[0] == [0, 0]
    for case in ("sharded", "batches"):
        compared(tmp_path, case, 1e-6)


@pytest.mark.slow
def test_parts_adapters_and_replicas(tmp_path):
    """Parameters outside the shards, low-rank adapters beside frozen ones, and several copies of each shard."""
    assert together(tmp_path, "part", "adapters", "replicas", "whole", "half")[0] == [0, 0]
    for case in ("part", "adapters", "replicas", "whole"):
        compared(tmp_path, case, 1e-6)
    compared(tmp_path, "half", 5e-2)  # FSDP computes in bfloat16 there, and one process in single precision
