"""The pictures of odometers: the numbers saved beside them are what the programs compute, and what the papers say."""

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from almoner import mechanisms
from data_folders import DATA, needs

ROOT = Path(__file__).parents[2]
GOLDEN = json.loads((ROOT / "tests" / "golden" / "accounting.json").read_text(encoding="utf-8"))["numbers"]


def program(name):
    spec = importlib.util.spec_from_file_location(Path(name).stem, ROOT / "experiments" / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def saved(name):
    return json.loads((ROOT / "docs" / "experiments" / f"{name}.json").read_text(encoding="utf-8"))


def page(name):
    return (ROOT / "docs" / "experiments" / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("entry", [e for e in GOLDEN if e["id"].startswith("fig5_k")], ids=lambda e: e["id"])
def test_figure_5_of_koskela(entry):
    """The number of rounds at each epsilon, as independent tools count them."""
    figure = saved("koskela-figures")["figure 5"]
    name = {
        "gdp": "Gaussian DP",
        "rdp_canonne_opt": "Rényi, all orders",
        "rdp_canonne_2_32": "Rényi, orders 2 to 32",
        "rdp_mironov": "Rényi, Mironov's conversion",
    }[entry["inputs"]["method"]]
    assert figure[name][figure["epsilon"].index(entry["inputs"]["eps"])] == entry["value"]


@pytest.mark.slow
def test_the_saved_numbers_are_computed():
    """Each program again, against what is saved."""
    koskela, before = program("koskela_2023/figures.py"), saved("koskela-figures")
    for name, figure in (("figure 3", koskela.figure_3()), ("figure 5", koskela.figure_5())):
        for label, values in figure.items():
            np.testing.assert_allclose(values, before[name][label], rtol=1e-9)
    assert koskela.table(before) in page("koskela-figures")
    assert koskela.rounds_table(koskela.printed_rounds()) in page("koskela-figures")
    whitehouse, before = program("whitehouse_2023/odometers.py"), saved("whitehouse")
    for table in whitehouse.tables(before).values():
        assert table in page("whitehouse")
    for task, step in whitehouse.TASKS.items():
        now = whitehouse.stops(step, whitehouse.BUDGETS)
        places = [before[task]["budgets"].index(epsilon) for epsilon in whitehouse.BUDGETS]
        assert now == {name: [counts[k] for k in places] for name, counts in before[task]["filters"].items()}
        for new, old in zip(whitehouse.running(step, 30), before[task]["bounds"], strict=True):
            assert (new["name"], new["promise"]) == (old["name"], old["promise"])
            np.testing.assert_allclose(new["epsilons"], old["epsilons"][:30], rtol=1e-6)  # some are searched


def test_only_what_is_not_valid_is_below_the_optimum():
    """No odometer that holds at any time, and no filter, is better than rounds fixed in advance can be."""
    for task in saved("whitehouse").values():
        bounds = {bound["name"]: bound for bound in task["bounds"]}
        optimum = np.array(bounds["optimum, rounds fixed in advance"]["epsilons"])
        for bound in bounds.values():
            if bound["promise"] in ("pathwise", "ex-post"):
                assert np.all(np.array(bound["epsilons"]) >= optimum * (1 - 1e-9)), bound["name"]
        most = np.array(task["filters"]["optimum, rounds fixed in advance"])
        for name, counts in task["filters"].items():
            assert np.all(np.array(counts) <= most), name
    printed = {bound["name"]: bound["epsilons"][-1] for bound in saved("whitehouse")["pure"]["bounds"]}
    assert printed["stitched, as printed"] == pytest.approx(6.082, abs=5e-4)
    assert printed["stitched, with drift"] == pytest.approx(6.582, abs=5e-4)


def test_the_gaussian_that_dominates_a_pure_round():
    """Its trade-off function is nowhere above that of the round, meets it in the middle, and less mu is too little."""
    mu = 1 / program("whitehouse_2023/odometers.py").as_gaussian(mechanisms.Pure(0.1)).sigma
    alpha = np.linspace(1e-9, 1 - 1e-9, 100_001)
    pure = np.maximum(1 - np.exp(0.1) * alpha, np.exp(-0.1) * (1 - alpha))

    def normal(mu):
        return special.ndtr(-special.ndtri(alpha) - mu)

    assert np.all(normal(mu) <= pure + 1e-12)
    assert np.min(np.abs(normal(mu) - pure)) < 1e-9
    assert np.any(normal(0.999 * mu) > pure)


@pytest.mark.slow
def test_lecuyers_figures_are_computed_and_on_the_page():
    """The saved curves again, the table of the page from them, and the numbers that the paper prints."""
    module, before = program("lecuyer_2021/odometer.py"), saved("odometer")
    assert module.table(before) in page("odometer")
    for name, noises in module.runs().items():
        for label, values in module.curves(noises[:12]).items():
            np.testing.assert_allclose(values, before[name][label][:12], rtol=1e-6)  # searched, to a tolerance
    plain, falling = before["noise 1"], before["falling noise"]
    assert round(plain["filter"][49], 2) == 5.76
    assert module.result(before) in page("odometer")
    assert plain["Rényi, planned, ex-post"][19] < 0.75 * plain["filter"][49]
    assert falling["Rényi, planned, pathwise"][7] < falling["Lécuyer"][7]


def test_his_code_is_run_with_his_orders():
    """The recorded column of his code is what his program says: 2.7326, 3.4683, 4.7398 and 7.289 at four epochs."""
    column = saved("odometer")["noise 1"]["Lécuyer, his code"]
    for epochs, printed in ((1, 2.7326), (8, 3.4683), (20, 4.7398), (50, 7.289)):
        assert column[epochs - 1] == pytest.approx(printed, abs=5e-4), epochs
    assert len(program("lecuyer_2021/odometer.py").CODE) == 34


def test_the_rounds_that_koskela_et_al_print():
    """Epsilon of 420 rounds by Rényi DP is 0.8156, within which 495 fit by Gaussian DP; 420 cost 8.6 % less by it."""
    found = program("koskela_2023/figures.py").printed_rounds()
    assert (round(found["Rényi, 420"], 4), round(found["Gaussian, rounds"], 4), found["rounds"]) == (
        0.8156,
        0.8152,
        495,
    )
    assert found["Gaussian, one more"] > found["Rényi, 420"] > found["Gaussian, rounds"]
    assert round(100 * (1 - found["Gaussian, 420"] / found["Rényi, 420"]), 1) == 8.6
    assert (found["Gaussian at 0.8"], found["Rényi at 0.8"]) == (478, 405)


def test_odometers_of_the_poster_are_half_of_the_original_from_ten_rounds_on():
    """And not before: the mixture is at 0.87 and 0.61 of it after one round and three."""
    bounds = {bound["name"]: np.array(bound["epsilons"]) for bound in saved("whitehouse")["pure"]["bounds"]}
    parts = {name: bounds[f"{name}, with drift"] / bounds["Rogers et al."] for name in ("mixture", "stitched")}
    assert [round(parts["mixture"][k - 1], 2) for k in (1, 3)] == [0.87, 0.61]
    for values in parts.values():
        assert np.all(np.abs(values[9:] - 0.49) <= 0.03)


@pytest.mark.parametrize("entry", [e for e in GOLDEN if e["id"].startswith("fig3_delta")], ids=lambda e: e["id"])
def test_figure_3_of_koskela(entry):
    """Delta at each epsilon, between the neighbouring points of the saved curve."""
    figure = saved("koskela-figures")["figure 3"]
    method = re.sub(r"_opt$", "", entry["inputs"]["method"])
    name = {
        "gdp": "Gaussian DP",
        "canonne": "Rényi, all orders",
        "canonne_2_32": "Rényi, orders 2 to 32",
        "mironov": "Rényi, Mironov's conversion",
    }[method]
    at = np.interp(entry["inputs"]["eps"], figure["epsilon"], np.log(figure[name]))
    assert np.exp(at) == pytest.approx(entry["value"], rel=1e-6)


@needs("lecuyer_runs")
@pytest.mark.slow
def test_his_recorded_runs_are_read_as_the_page_says():
    """All runs again, against what is saved; and what the page is there to show."""
    found, before = program("lecuyer_2021/replay.py").replay(DATA / "lecuyer_runs"), saved("replay")
    assert found["policies"] == before["policies"]
    for kind, runs in found["fine-tuning"].items():
        for now, then in zip(runs, before["fine-tuning"][kind], strict=True):
            assert (now["80 % at"], now["stops at"], now["accuracy"]) == (
                then["80 % at"],
                then["stops at"],
                then["accuracy"],
            )
            for name in ("his", "pathwise", "ex-post"):
                np.testing.assert_allclose(now[name], then[name], rtol=1e-4)
                assert now["ex-post"][-1] <= now["pathwise"][-1] <= now["his"][-1]
    whole = found["fine-tuning"]["whole network, noise 1"]
    ends = [run["stops at"] - 1 for run in whole]
    assert np.mean([run["accuracy"][end] for run, end in zip(whole, ends, strict=True)]) == pytest.approx(
        0.848, abs=1e-3
    )
    assert np.mean([run["ex-post"][end] for run, end in zip(whole, ends, strict=True)]) == pytest.approx(3.26, abs=0.01)
    assert all(run["accuracy"][end] > run["accuracy"][-1] for run, end in zip(whole, ends, strict=True))
    falling = found["fine-tuning"]["whole network, falling noise"]
    assert all(run["ex-post"][run["80 % at"] - 1] < 1.35 for run in falling)
