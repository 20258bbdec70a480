"""Pictures without a display."""

import builtins

import pytest

from bursar.errors import MissingExtra
from bursar.report.figures import figure, private_title


def test_a_figure_is_saved_without_a_display(tmp_path, monkeypatch):
    """Every format that the command line names can be written where there is no display and no chosen backend."""
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("MPLBACKEND", raising=False)
    for name, start in (("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")):
        picture = figure(2, 1)
        picture.subplots(1, 1).plot([1, 2], [3, 4])
        picture.savefig(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)


def test_private_pictures_are_marked():
    """The mark stands under the title, or alone."""
    titled, bare = figure(2, 1), figure(2, 1)
    private_title(titled, "delta = 1e-05")
    private_title(bare, "")
    assert titled.get_suptitle() == "delta = 1e-05\nprivate: for the data holder"
    assert bare.get_suptitle() == "private: for the data holder"


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    """The error says what to install."""
    original = builtins.__import__

    def missing(name, *arguments, **more):
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return original(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(MissingExtra, match=r"bursar\[plots\]"):
        figure(2, 1)
