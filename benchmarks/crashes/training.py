"""Kill trainings at any moment, and let them go on: nobody is undercharged, and no noise is used again.

    python benchmarks/crashes/training.py [--kills 500] [--seed S] [--out FILE] [--doors full,stream] [--quick]

Every door (``Trainer`` with all people, Poisson samples and fixed batches, ``Stream`` and ``partial_fit``) with and
without a ledger. A parent that has loaded everything forks the processes that train. They are ended by SIGKILL, by
SIGTERM or by the system after some time of the processor (SIGPROF, which no process here sees coming either), then go
on from their folder; after some of that a run is let go on to its end and judged. A witness has written down every
release before anybody had it; see tests/helpers/training_killed.py and training_judged.py.

--out keeps one JSON line for each kill and for each run, and goes on from there when the program itself is killed;
--broken breaks the journal or the noise, which must be found. Prints one JSON object; 1 is the status if something was
found.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))
from training_judged import judged, read, repeated
from training_killed import BROKEN, DOORS, started, warm_up

ENDS = {"SIGKILL": 0.65, "SIGPROF": 0.25, "SIGTERM": 0.1}
"""Signals that end a process, and the share of each."""
LONG = 120.0
"""Seconds that no process of these takes, however busy the machine."""

Line = dict[str, object]


class Campaign:
    """Kills of trainings, one run after another.

    Args:
        out: the file of results, and beside it the folder with the runs.
        seed: of the moments.
        broken: a control, of BROKEN.
    """

    def __init__(self, out: Path, seed: int, broken: str | None = None) -> None:
        self._out, self._seed, self._broken = out, seed, broken
        self._work = out.with_name(out.name + ".runs")
        self._work.mkdir(exist_ok=True)
        text = out.read_bytes() if out.exists() else b""
        out.touch()
        os.truncate(out, text.rfind(b"\n") + 1)
        self.lines: list[Line] = read(out)

    def go(self, kills: int, doors: list[str], ends: list[str]) -> None:
        """Kill so many processes, a few for each run, and judge each run at its end."""
        each = max(1, min(5, kills // len(doors)))
        number = sum("problems" in line for line in self.lines)
        while self._kills() < kills:
            self._run(number, doors[number % len(doors)], ends, each, kills)
            number += 1

    def result(self) -> Line:
        """All runs together."""
        ends = [line for line in self.lines if "ended" in line]
        runs = [line for line in self.lines if "problems" in line]
        kept = sorted(self._work.glob("*.jsonl"))
        kept += [path for run in runs if (path := self._work / str(run["run"]) / "released.jsonl").exists()]
        draws = [draw for path in kept for draw in read(path) if "told" not in draw]
        twice = len(repeated(draws)) if draws else 0
        problems = Counter(problem for run in runs for problem in run["problems"])
        return {
            "kills": len(ends),
            "by signal": dict(Counter(line["ended"] for line in ends)),
            "by door": dict(Counter(line["door"] for line in ends)),
            "runs": len(runs),
            "releases": sum(run["releases"] for run in runs),
            "steps taken again": sum(run["again"] for run in runs),
            "steps lost": sum(run.get("lost") or 0 for run in runs),
            "numbers of noise": sum(len(draw["noise"]) for draw in draws),
            "used again": twice,
            "problems": dict(problems),
        }

    def _kills(self) -> int:
        return sum("ended" in line for line in self.lines)

    def _run(self, number: int, name: str, ends: list[str], each: int, kills: int) -> None:
        """One run: a few kills, then to its end."""
        folder = self._work / str(number)
        folder.mkdir(exist_ok=True)
        mine = [line for line in self.lines if line.get("run") == number]
        found, clean, chance = {}, self._clean(name), random.Random(f"{self._seed} {number}")
        told = "SIGTERM" in ends and chance.random() < 0.1  # nothing else ends this one
        while len(mine) < each and self._kills() < kills:
            chance = random.Random(f"{self._seed} {number} {len(mine)}")
            how = "SIGTERM" if told else chance.choices(ends, [ENDS[end] for end in ends])[0]
            after = moment(clean, chance) * (clean["processor"] / clean["seconds"] if how == "SIGPROF" else 1.0)
            line = {"run": number, "door": name, "with": how, "after": round(after, 4)}
            found = self._process(name, folder, how, after)
            if "ended" not in found:  # it has come to its end before
                break
            mine.append(line | found)
            self._write(mine[-1])
        if "status" not in found:
            found = self._process(name, folder, None, LONG)
        if found.get("status") != 0:
            self._write({"run": number, "door": name, "releases": 0, "again": 0, "problems": [f"it ended by {found}"]})
            return
        verdict = judged(DOORS[name], folder, [str(line["ended"]) for line in mine])
        self._write({"run": number, "door": name, "kills": len(mine), **verdict})
        (folder / "released.jsonl").rename(self._work / f"{number:05}.jsonl")
        if not verdict["problems"]:
            shutil.rmtree(folder)
        if not mine:  # the machine may be faster than it was
            self._clean(name, again=True)

    def _clean(self, name: str, *, again: bool = False) -> dict[str, float]:
        """Time of a run that nobody kills, by the clock and of the processor, and the moments of its releases.

        It is judged too. Measured once, or again.
        """
        for line in () if again else reversed(self.lines):
            if line["door"] == name and "processor" in line:
                return line
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(dir=self._work) as folder:
            found = self._process(name, Path(folder), None, LONG)
            verdict = judged(DOORS[name], Path(folder), [])
            times = [each["time"] - begun for each in read(Path(folder) / "released.jsonl")]
        line = {"door": name, **found, "first": round(times[0], 4), "last": round(times[-1], 4)}
        if verdict["problems"] and self._broken is None:
            raise SystemExit(f"{name}, without any kill: {verdict['problems']}")
        self._write(line)
        return line

    def _process(self, name: str, folder: Path, how: str | None, after: float) -> Line:
        """One process that trains, ended so many seconds after its start; how it ended."""
        attempt, begun = time.time_ns(), time.perf_counter()
        processor = after if how == "SIGPROF" else 0.0
        child = started(DOORS[name], folder, attempt, processor=processor, broken=self._broken)
        if how in ("SIGKILL", "SIGTERM"):
            time.sleep(after)
            os.kill(child, getattr(signal, how))
        status, used = waited(child, LONG)
        seconds = {"seconds": round(time.perf_counter() - begun, 4), "processor": round(used, 4)}
        if os.WIFSIGNALED(status) and how is not None:
            return {"ended": signal.Signals(os.WTERMSIG(status)).name}
        return {"status": os.waitstatus_to_exitcode(status)} | seconds

    def _write(self, line: Line) -> None:
        self.lines.append(line)
        with self._out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())


def moment(clean: dict[str, float], chance: random.Random) -> float:
    """Seconds after the start of a process when it is ended: mostly among the first half of its releases."""
    if chance.random() < 0.2:
        return chance.uniform(0.0, clean["seconds"])
    return chance.uniform(0.9 * clean["first"], (clean["first"] + clean["last"]) / 2)


def waited(child: int, most: float) -> tuple[int, float]:
    """The status of a process that has ended, and its processor time; after so many seconds it is killed."""
    until = time.monotonic() + most
    while True:
        found, status, used = os.wait4(child, os.WNOHANG)
        if found:
            return status, used.ru_utime + used.ru_stime
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.002)


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--quick", action="store_true", help="12 kills, one for each door")
    parser.add_argument("--doors", default=";".join(DOORS), help="names, separated by semicolons")
    parser.add_argument("--signals", default=",".join(ENDS))
    parser.add_argument("--broken", choices=BROKEN, default=None)
    return parser.parse_args()


def main() -> int:
    """Run, and print."""
    given = options()
    doors, ends = given.doors.split(";"), given.signals.split(",")
    warm_up()
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(given.out or Path(folder) / "kills", given.seed, given.broken)
        campaign.go(12 if given.quick else given.kills, doors, ends)
        result = campaign.result()
    print(json.dumps(result, indent=1))
    return int(bool(result["problems"]) or result["used again"] > 0)


if __name__ == "__main__":
    sys.exit(main())
