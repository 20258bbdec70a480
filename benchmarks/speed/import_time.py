"""Measure how long `import almoner` takes in a fresh process.

python benchmarks/speed/import_time.py [--json] [--beside PROGRAM]

Prints the median seconds of a process that imports nothing, and of processes that import NumPy, Almoner, or its rooms.
With --beside, a program such as sqlite-utils: the median processor time of its `--help`, and of ours, in turns.
"""

import argparse
import json
import os
import subprocess
import sys
from statistics import median
from time import perf_counter

RUNS = 15


def seconds(code: str) -> float:
    """Seconds that one fresh process takes."""
    start = perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return perf_counter() - start


def processor_seconds(command: list[str]) -> float:
    """Processor seconds that one fresh process takes, of the user and of the system."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime


def helps(program: str) -> dict[str, float]:
    """Median processor seconds of two helps, which take turns, and their ratio."""
    commands = {"beside": [program, "--help"], "help": [sys.executable, "-m", "almoner", "--help"]}
    times = {name: [] for name in commands}
    for _ in range(RUNS):
        for name, command in commands.items():
            times[name].append(processor_seconds(command))
    row = {f"{name}_cpu_s": median(each) for name, each in times.items()}
    return row | {"help_ratio": row["help_cpu_s"] / row["beside_cpu_s"]}


def main() -> None:
    """Print the medians over interleaved runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--beside", help="a program whose --help is measured, too")
    arguments = parser.parse_args()
    codes = {
        "nothing": "pass",
        "almoner": "import almoner",
        "numpy": "import numpy",
        "accounting": "from almoner import filters, odometers, individual",
    }
    times = {name: [] for name in codes}
    for _ in range(RUNS):
        for name, code in codes.items():
            times[name].append(seconds(code))
    row = {f"{name}_s": median(each) for name, each in times.items()}
    if arguments.beside is not None:
        row |= helps(arguments.beside)
    print(json.dumps(row) if arguments.json else ", ".join(f"{name} {value:.3f}" for name, value in row.items()))


if __name__ == "__main__":
    main()
