"""The pages of the four papers and their index, from papers.toml and the recorded numbers.

    python experiments/papers.py              # docs/papers/*.md and docs/experiments/index.md: a second
    python experiments/papers.py --pages      # first the pages of all experiments of the papers, from their records
    python experiments/papers.py --quick      # the figures that the pages quote; writes nothing
    python experiments/papers.py --run quick  # every program in its quick form; --run full: whole, where it left off

A page says what a paper claims, the paper's number, ours, and a verdict; its figures are computed from what was
recorded, so that they follow it. Tables are those of the experiments' own pages.
"""

import argparse
import json
import re
import subprocess
import sys
import tomllib
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

sys.path.append(str(Path(__file__).parent))
import pages
from journal import recorded

HERE = Path(__file__).parent
DOCS = pages.DOCS.parent

PROGRAMS = sorted(
    path.relative_to(HERE).as_posix()
    for path in HERE.glob("*_20[0-9][0-9]/*.py")
    if "\ndef main(" in path.read_text("utf-8") and not path.stem.endswith("_page")
)
"""The papers' programs, by their folders."""

FAST = ("koskela_2023/figures.py",)
"""Those that compute their page in seconds, from nothing that is recorded."""

MORE = {
    "feldman_zrnic_2021/daily.py": [[], ["--retail"]],
    "feldman_zrnic_2021/mnist.py": [
        ["--seeds", "10", "--epsilon", "0.3", "0.5"],
        ["--seeds", "10", "--epsilon", "0.3", "0.5", "--control"],
        ["--seeds", "3", "--epsilon", "1.2", "3.0"],
    ],
    "feldman_zrnic_2021/stopping.py": [["--seeds", "10"], ["--seeds", "1", "--mnist"]],
    "koskela_2023/mimic.py": [],
    "koskela_2023/section6.py": [[], ["--paper-size"]],
    "lecuyer_2021/finetune.py": [
        [],
        ["--part", "last layer on moved images"],
        ["--part", "whole network", "--seeds", "1", "--work", "finetune-checkpoints"],
    ],
}
"""The calls of a whole run, where they are not one without options: mimic.py is for those who have the data."""


# Figures that the pages quote


def figures() -> dict[str, str]:
    """Name -> figure as text, each from what was recorded."""
    return {**_filters_and_odometers(), **_feldman_zrnic(), **_koskela(), **_lecuyer()}


def saved(name: str) -> Any:
    """The numbers beside a page."""
    return json.loads((pages.DOCS / f"{name}.json").read_text(encoding="utf-8"))


def spread(values: Any, form: str) -> str:
    """The least and the largest of some numbers."""
    low, high = (format(each, form) for each in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def paired(plain: Any, filtered: Any) -> str:
    """The mean of paired differences with its 95 % interval."""
    return pages.interval(np.subtract(filtered, plain))


def unpaired(plain: Any, other: Any) -> str:
    """The difference of the means of runs that are no pairs, with its 95 % interval (Welch)."""
    interval = stats.ttest_ind(other, plain, equal_var=False).confidence_interval()
    return f"{np.mean(other) - np.mean(plain):+.2f} [{interval.low:+.2f}, {interval.high:+.2f}]"


def decided(interval: str) -> str:
    """What an interval of a gain says."""
    found = re.search(r"\[(\S+), (\S+)\]", interval)
    if found is None:
        return "one run: not decided"
    low, high = map(float, found.groups())
    if low * high == 0:  # to the digits that are shown
        return "not decided: the interval ends at 0"
    return "holds" if low > 0 else "does not hold" if high < 0 else "not decided: the interval holds 0"


def _filters_and_odometers() -> dict[str, str]:
    tasks, found = saved("whitehouse"), {}
    for task, numbers in tasks.items():
        place = numbers["budgets"].index(3.0)
        found |= {f"{task}, {name}, at 3": str(counts[place]) for name, counts in numbers["filters"].items()}
        bounds = {bound["name"]: bound["epsilons"] for bound in numbers["bounds"]}
        found |= {f"{task}, {name}, after 100": f"{values[99]:.3f}" for name, values in bounds.items()}
        ratio = [np.divide(bounds[f"{way}, with drift"], bounds["Rogers et al."]) for way in ("mixture", "stitched")]
        found[f"{task}, part of Rogers"] = spread(np.concatenate(ratio)[[*range(9, 100), *range(109, 200)]], ".2f")
        found |= {
            f"{task}, {way} of Rogers after 1": f"{parts[0]:.2f}"
            for way, parts in zip(("mixture", "stitched"), ratio, strict=True)
        }
    return found


def _feldman_zrnic() -> dict[str, str]:
    found = {}
    runs = [one for one in recorded(pages.RESULTS / "mnist.jsonl") if one["people"] == 60_000]
    for epsilon in (0.3, 0.5, 1.2, 3.0):
        mine = [one for one in runs if one["kind"] == "printed" and one["epsilon"] == epsilon]
        gains = {device: _gain(mine, device) for device in sorted({one["device"] for one in mine})}
        plain, filtered = ([one[name] for one in mine] for name in ("at_steps", "accuracy"))
        gain = paired(plain, filtered)
        found |= {
            f"mnist {epsilon} plain": f"{np.mean(plain):.2f}",
            f"mnist {epsilon} filtered": f"{np.mean(filtered):.2f}",
            f"mnist {epsilon} gain": gain,
            f"mnist {epsilon} runs": str(len(mine)),
            f"mnist {epsilon} devices": ", ".join(gains.values()),
            f"mnist {epsilon} verdict": decided(gain),
        }
        known = {(one["seed"], one["device"]): one["accuracy"] for one in mine}  # a seed repeats on one device only
        control = [one for one in runs if (one["kind"], one["epsilon"]) == ("control", epsilon)]
        ends = [(one["accuracy"], known.get((one["seed"], one["device"]))) for one in control]
        pairs = [pair for pair in ends if pair[1] is not None]
        over = paired(*zip(*pairs, strict=True)) if pairs else ""
        found[f"mnist {epsilon} controls"] = str(len(pairs))
        beside = f"; against plain descent planned for as many steps {over} over {len(pairs)}"
        found[f"mnist {epsilon} control"] = beside if pairs else ""
        found[f"mnist {epsilon} control verdict"] = f"; against the control: {decided(over)}" if pairs else ""
    looked = [one["odometers"][-1][1] for one in runs if one["kind"] == "printed" and one.get("odometers")]
    found["largest odometer"] = spread([0.00109 * (len(counts) - 1) for counts in looked], ".3f")
    found |= _adult() | _counted() | _descents()
    for name in ("daily", "daily_retail"):
        days = json.loads((pages.RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        found[f"{name} times"] = f"{days['times, three weeks']:g}"
    return found


def _gain(runs: list[dict[str, Any]], device: str) -> str:
    """The runs on one device, and their gain."""
    mine = [one for one in runs if one["device"] == device]
    where = "a GPU" if "NVIDIA" in device else "a processor"
    gain = paired([one["at_steps"] for one in mine], [one["accuracy"] for one in mine])
    return f"{len(mine)} on {where} {gain}"


def _adult() -> dict[str, str]:
    """The four rows of Adult as printed, with either iterate: gains over both rivals, and in how many rows they are."""
    found = {}
    printed = {f"as printed, {epsilon}" for epsilon in (0.3, 0.5, 1.0, 1.2)}
    rows = [one for one in saved("adult") if one["row"] in printed]
    for iterate in ("last", "averaged"):
        for name, part in {"gain": "difference", "control": "control"}.items():
            overs = {one["row"].split()[-1]: one[iterate][part] for one in rows}
            found[f"adult {iterate} {name}"] = spread([over["mean"] for over in overs.values()], "+.2f")
            ahead = [epsilon for epsilon, over in overs.items() if over["low"] > 0]
            where = "in all four rows" if len(ahead) == len(rows) else f"at {' and '.join(ahead)} alone"
            if any(over["high"] < 0 for over in overs.values()):
                raise ValueError(f"the verdict on Adult has no word for a loss: {overs}")
            found[f"adult {iterate} {name} ahead"] = f"above zero {where}" if ahead else "not decided in any row"
    return found


def _counted() -> dict[str, str]:
    """Where the counts of Adult as printed say that 10 % are out: the step, and the gains there."""
    runs = [one for one in saved("stopping-counts") if one["setting"] == "as printed"]
    counted = {one["seed"]: one["noted"] for one in runs if one["way"] == "square root"}
    planned = {one["seed"]: one["noted"]["planned"]["averaged"] for one in runs if one["way"] == "plain, planned"}
    ends = {seed: noted["0.1"]["averaged"] for seed, noted in counted.items()}
    return {
        "counted step": f"{np.mean([noted['0.1']['step'] for noted in counted.values()]):,.0f}",
        "counted gain": paired([noted["k"]["averaged"] for noted in counted.values()], [*ends.values()]),
        "counted control": paired([*planned.values()], [ends[seed] for seed in planned]),
    }


def _descents() -> dict[str, str]:
    """Gradient descent and DP-SGD with the paper's network, at each epsilon."""
    found = {}
    for row in saved("descent"):
        if "network" in row["task"]:
            name, full, sampled = f"descent network {row['epsilon']:g}", row["GD"]["test"], row["SGD"]["test"]
            gap = paired(sampled, full)
            found |= {f"{name} GD": f"{np.mean(full):.2f}", f"{name} SGD": f"{np.mean(sampled):.2f}"}
            found |= {f"{name} gap": gap, f"{name} verdict": decided(gap)}
    return found


def _koskela() -> dict[str, str]:
    figure_1, rounds = saved("koskela"), saved("koskela-figures")["rounds"]
    exact = np.array(figure_1["people"]["privacy loss distributions"])
    least = {name: f"{values[0]:.3f}" for name, values in figure_1["quantiles"].items()}
    found = {f"least {name}": value for name, value in least.items()} | {
        "below 0.1": f"{100 * np.mean(exact < 0.1):.0f}",
        "420 renyi": f"{rounds['Rényi, 420']:.4f}",
        "420 gaussian": f"{rounds['Gaussian, 420']:.4f}",
        "rounds": f"{rounds['rounds']:.0f}",
        "rounds epsilon": f"{rounds['Gaussian, rounds']:.4f}",
        "gaussian at 0.8": f"{rounds['Gaussian at 0.8']:.0f}",
        "renyi at 0.8": f"{rounds['Rényi at 0.8']:.0f}",
        "less": f"{100 * (1 - rounds['Gaussian, 420'] / rounds['Rényi, 420']):.1f}",
    }
    for name in ("koskela-groups", "koskela-paper"):
        runs = recorded(pages.RESULTS / f"{name}.jsonl")
        found |= {f"{name} {key}": value for key, value in _groups(runs).items()}
    return found


def _groups(runs: list[dict[str, Any]]) -> dict[str, str]:
    found = {}
    filtered = [run for run in runs if run["kind"] == "filtered"]
    for run in filtered[:1]:
        found["people"] = f"{run['active'][0]:,}"
    main = [run for run in filtered if (run["epsilon"], run["multiple"]) == (2.75, 1.0)]
    for group in ("no condition", "pneumonia", "heart attack") if main else ():
        moments = [np.mean([run["test"][group][k] for run in main]) for k in (len(main[0]["epoch"]) // 2 - 1, -1)]
        found[group] = " → ".join(f"{value:.3f}" for value in moments)
    control = [run["test"] for run in runs if (run["kind"], run["epsilon"]) == ("nobody left out", 2.75)]
    if control:
        change = [[values[-1] - values[len(values) // 2 - 1] for values in run.values()] for run in control]
        found["nobody left out"] = f"{np.abs(np.mean(change, axis=0)).max():.3f}"
    for epsilon, multiple in sorted({(run["epsilon"], run["multiple"]) for run in filtered}):
        mine = [run for run in filtered if (run["epsilon"], run["multiple"]) == (epsilon, multiple)]
        gains = [[100 * run["auc"][k] for run in mine] for k in (len(mine[0]["epoch"]) // 2 - 1, -1)]
        found[f"{epsilon:g} x {multiple:g}"] = paired(*gains)
        found[f"{epsilon:g} x {multiple:g} verdict"] = decided(found[f"{epsilon:g} x {multiple:g}"])
        controls = {
            run["seed"]: 100 * run["auc"]
            for run in runs
            if (run["kind"], run["epsilon"], run.get("multiple")) == ("planned", epsilon, multiple)
        }
        if controls:
            ends = [100 * run["auc"][-1] for run in mine]
            over = paired([controls[run["seed"]] for run in mine], ends)
            found[f"{epsilon:g} x {multiple:g} control"] = over
            found[f"{epsilon:g} x {multiple:g} control verdict"] = decided(over)
    return found


def _lecuyer() -> dict[str, str]:
    found, noise_1 = {}, saved("odometer")["noise 1"]
    for epoch in (20, 50):
        for name in ("filter", "Lécuyer, his code", "Rényi, planned, pathwise", "Rényi, planned, ex-post"):
            found[f"{name} at {epoch}"] = f"{noise_1[name][epoch - 1]:.2f}"
    plans = {"his": noise_1["filter"][49], "ex-post": noise_1["Rényi, planned, ex-post"][49]}
    runs = saved("replay")
    for kind, mine in runs["fine-tuning"].items():
        good = sorted(run["80 % at"] for run in mine)
        found |= {f"{kind} 80 at": ", ".join(map(str, good)), f"{kind} under 8": str(sum(at < 8 for at in good))}
        found[f"{kind} under 9"] = str(sum(at < 9 for at in good))
        for printed in (1.45, 3.24):
            values = sorted({value for run in mine for value in run["his"]})
            place = np.searchsorted(values, printed)
            found[f"{kind} around {printed}"] = " to ".join(f"{each:.2f}" for each in values[place - 1 : place + 1])
        stops = [(run, run["stops at"] - 1) for run in mine]
        for name, plan in plans.items():
            mean = np.mean([run[name][at] for run, at in stops])
            found[f"{kind} 80 {name}"] = spread([run[name][run["80 % at"] - 1] for run in mine], ".2f")
            found |= {f"{kind} stop {name}": f"{mean:.2f}", f"{kind} saved {name}": f"{100 * (1 - mean / plan):.0f}"}
        there, ends = ([100 * run["accuracy"][at] for run, at in each] for each in (stops, [(run, -1) for run in mine]))
        found |= {f"{kind} stop accuracy": f"{np.mean(there):.1f}", f"{kind} end accuracy": f"{np.mean(ends):.1f}"}
        found[f"{kind} stop gain"] = paired(ends, there)
    return found | _policies(runs["policies"]) | _fine_tuned() | _tuning()


def _fine_tuned() -> dict[str, str]:
    """Our networks, by part and noise: the first epoch with 80 % of the test images, where runs stop, and the last."""
    found, moments, rows = {}, {}, recorded(pages.RESULTS / "finetune.jsonl")
    last = {(row["part"], row["noise"], row["seed"]): row for row in rows}  # one that went on is recorded again
    for row in last.values():
        looks, kind = row["looks"], f"our {row['part']}, {row['noise']}"
        known = {"80": next(look for look in looks if look[5] >= 80), "end": looks[-1]}
        if row["stopped"]:
            known["stop"] = looks[row["stopped"] - 1]
        for moment, look in known.items():
            moments.setdefault(f"{kind} {moment}", []).append(look)
    for name, looks in moments.items():
        for place, (what, form) in {0: ("epoch", ".0f"), 3: ("ex-post", ".2f"), 5: ("accuracy", ".1f")}.items():
            found[f"{name} {what}"] = spread([look[place] for look in looks], form)
    return found


def _policies(his: dict[str, list[dict[str, Any]]]) -> dict[str, str]:
    """His policies against the fixed run: in his runs, which are no pairs, and in ours with a linear model."""
    found, ends = {}, {kind: [100 * run["accuracy"] for run in mine] for kind, mine in his.items()}
    rows = [row for row in recorded(pages.RESULTS / "policies.jsonl") if row["size"]["model"] == "linear"]
    ours = {(row["policy"], row["seed"]): row["accuracy"] for row in rows}
    for kind, values in ends.items():
        found |= {f"{kind} end": f"{np.mean(values):.2f}", f"{kind} runs": str(len(values))}
    for kind in ("adaptive noise", "adaptive batch"):
        found[f"{kind} gain"] = unpaired(ends["noise 1, batch 512"], ends[kind])
        found[f"{kind} verdict"] = decided(found[f"{kind} gain"])
        pairs = [(ours["fixed", seed], ours[kind, seed]) for seed in sorted({row["seed"] for row in rows})]
        found[f"{kind} linear"] = paired(*zip(*pairs, strict=True))
    return found


def _tuning() -> dict[str, str]:
    """Gains of tuned settings over settings fixed in advance, paired over the seeds, for each kind of candidate."""
    found, rows = {}, saved("tuning")
    for kind, names in {"rates": ("4", "16"), "networks": ("linear",)}.items():
        for epsilon in (1.0, 0.3):
            mine = [row for row in rows if (row["kind"], row["epsilon"]) == (kind, epsilon)]
            scores = {(row["how"], row["seed"]): row["accuracy"] for row in mine}
            for name in names:
                pairs = [(scores[name, seed], scores["tuned", seed]) for how, seed in scores if how == name]
                found[f"tuned against {name} at {epsilon:g}"] = paired(*zip(*pairs, strict=True))
    return found


# Pages


def read() -> dict[str, Any]:
    """What papers.toml says."""
    return tomllib.loads((HERE / "papers.toml").read_text(encoding="utf-8"))


def filled(text: str, known: dict[str, str]) -> str:
    """A text with its {figures}.

    Raises:
        KeyError: a figure has no record.
    """
    return re.sub(r"\{([^{}]+)\}", lambda found: known[found[1]], text)


def table_of(place: str, only: str) -> str:
    """The first table between marks of an experiment's page, named PAGE.md#MARK: the rows that match a pattern."""
    page, mark = place.split("#")
    text = (pages.DOCS / page).read_text(encoding="utf-8")
    within = text.split(f"<!-- {mark}: begin -->\n")[1].split(f"<!-- {mark}: end -->")[0]
    first, second, *rest = re.search(r"(^\|.*\n)+", within, re.M)[0].splitlines(keepends=True)
    return "".join([first, second, *(line for line in rest if re.search(only, line))])


def paper_page(paper: dict[str, Any], claims: list[dict[str, Any]], known: dict[str, str]) -> str:
    """One paper's page: the claims in a table, then a section for each that has a picture or a table."""
    lines = [f"# {paper['title']}", "", paper["cited"].strip(), "", filled(paper["says"].strip(), known), ""]
    lines += ["| | the paper says | the paper's number | here | verdict |", "|---|---|---|---|---|"]
    for number, claim in enumerate(claims, 1):
        name = f"[{number}](#{_anchor(number, claim['name'])})" if _has_section(claim) else str(number)
        cells = [name, claim["says"], claim.get("number", ""), claim["here"], f"**{claim['verdict']}**"]
        lines.append(f"| {' | '.join(filled(' '.join(cell.split()), known) for cell in cells)} |")
    lines.append("")
    for number, claim in enumerate(claims, 1):
        if _has_section(claim):
            lines += _section(number, claim, known)
    lines += [
        REPEATS,
        "",
        f"[Every statement of the papers, a line each](../experiments/index.md#{paper['anchor']}).",
        "",
    ]
    return "\n".join(lines)


REPEATS = (
    "**Seeds** repeat a run on the same machine with the same versions of the libraries only; another machine rounds "
    "differently,\nand its numbers differ from the recorded ones within the spread of the seeds. `make papers` makes "
    "this page from the record."
)


def _has_section(claim: dict[str, Any]) -> bool:
    return any(key in claim for key in ("picture", "table", "more", "command"))


def _anchor(number: int, name: str) -> str:
    """The anchor of a section's heading, as the site makes it."""
    plain = unicodedata.normalize("NFKD", f"claim {number} {name}").encode("ascii", "ignore").decode().lower()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip())


def _section(number: int, claim: dict[str, Any], known: dict[str, str]) -> Iterator[str]:
    yield from (f"## Claim {number}: {claim['name']}", "")
    if "picture" in claim:
        yield from (f"![{claim['alt']}](../experiments/{claim['picture']})", "")
    if "more" in claim:
        yield from (filled(claim["more"].strip(), known), "")
    if "table" in claim:
        yield from (table_of(claim["table"], claim.get("only", "")).rstrip(), "")
    if "command" in claim:
        yield from ("```", claim["command"].strip(), "```", "")


def index(known: dict[str, Any], numbers: dict[str, str]) -> str:
    """The page of all statements: a line each."""
    lines = [known["index"]["says"].strip(), ""]
    for key, paper in known["paper"].items():
        lines += [f"## {paper['heading']}", "", f"[The paper's page](../papers/{key}.md): {paper['short']}", ""]
        lines += ["| | in the paper | in Almoner | verdict | shown by |", "|---|---|---|---|---|"]
        for row in known["row"]:
            if row["paper"] == key:
                cells = [str(row["number"]), *(row[name] for name in ("says", "where", "verdict", "shown"))]
                lines.append(filled(f"| {' | '.join(cells)} |", numbers))
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def made() -> dict[Path, str]:
    """Every page that this program makes, with its text."""
    known, numbers = read(), figures()
    found = {pages.DOCS / "index.md": index(known, numbers)}
    for key, paper in known["paper"].items():
        claims = [claim for claim in known["claim"] if claim["paper"] == key]
        found[DOCS / "papers" / f"{key}.md"] = paper_page(paper, claims, numbers)
    return found


# Programs


def calls(how: str) -> Iterator[list[str]]:
    """The commands of all programs of the papers: "quick", "full" or "pages"; a page that has no option is kept."""
    for name in PROGRAMS:
        text = (HERE / name).read_text(encoding="utf-8")
        options = [each for each in ("--page", "--draw") if f'"{each}"' in text]
        if how == "quick":
            yield [name, "--quick"]
        elif how == "full":
            yield from ([name, *more] for more in MORE.get(name, [[]]))
        elif options or name in FAST:
            yield [name, *options[:1]]
    if how != "quick":
        yield ["feldman_zrnic_2021/mnist_page.py"]
    if how == "pages" and (pages.RESULTS / "koskela-paper.jsonl").is_file():
        yield ["koskela_2023/section6.py", "--page", "--paper-size"]


def main() -> None:
    """Run programs if asked to, then write the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="print the figures; writes nothing")
    parser.add_argument("--pages", action="store_true", help="the pages of the experiments, too, from their records")
    parser.add_argument("--run", choices=("quick", "full"), help="run every program of the papers first")
    given = parser.parse_args()
    if given.quick:
        print(json.dumps(figures(), indent=1, ensure_ascii=False))
        return
    failed = []
    for how in (given.run, "pages" if given.pages else None):
        for name, *options in calls(how) if how else ():
            print("python", f"experiments/{name}", *options, flush=True)
            if subprocess.run([sys.executable, HERE / name, *options], stdout=subprocess.DEVNULL).returncode:
                failed.append(" ".join([name, *options]))
    for path, text in made().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if failed:
        sys.exit(f"these failed, the others ran: {', '.join(failed)}")


if __name__ == "__main__":
    main()
