"""Finished runs in a file, one JSON line each, so that a program that was killed goes on where it was."""

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any


def _whole_lines(path: Path) -> str:
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return text[: text.rfind("\n") + 1]


def recorded(path: Path) -> list[dict[str, Any]]:
    """The runs in a file, which need not be there; what a kill left of a last line is no run."""
    return [json.loads(line) for line in _whole_lines(path).splitlines()]


def record(path: Path, run: dict[str, Any]) -> None:
    """Add a run, in place of what a kill left of a last line."""
    whole = _whole_lines(path)
    if path.is_file() and len(whole.encode()) != path.stat().st_size:
        path.write_text(whole, encoding="utf-8")
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(run) + "\n")


def resuming(work: Path | None, seed: int) -> dict[str, Any]:
    """Folder and seed of a run that goes on from its private folder, with other noise than before a kill; or none."""
    from almoner.training import RunFolder

    if work is None:
        return {"folder": None, "seed": seed}
    announced = _whole_lines(work / "journal.jsonl").count("\n")
    return {"folder": RunFolder(work, every=1, resume=True), "seed": seed + 1000 * announced}


def machine(device: str | None = None) -> dict[str, str]:
    """What numbers may depend on beside the settings: device (a GPU, if there is one) and versions."""
    import torch

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    name = "processor" if device == "cpu" else torch.cuda.get_device_name(device)
    return {"device": name, "python": platform.python_version()} | {each: version(each) for each in ("numpy", "torch")}
