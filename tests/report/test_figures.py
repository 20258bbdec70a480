"""Pictures without a display."""

import builtins

import pytest

from almoner.errors import MissingExtra
from almoner.report.figures import INK, PALETTE, figure, one_two_five, save, save_private, styled, thousands


def test_a_figure_is_saved_without_a_display(tmp_path, monkeypatch):
    """Every format that the command line names can be written where there is no display and no chosen backend."""
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("MPLBACKEND", raising=False)
    for name, start in (("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")):
        picture = figure(2, 1)
        picture.subplots(1, 1).plot([1, 2], [3, 4])
        save(picture, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)


def test_an_svg_is_readable_on_light_and_dark_pages(tmp_path):
    """It has no background; ink and the darkest colour have lighter ones for devices that prefer dark pages."""
    with styled():
        picture = figure(2, 1)
        panel = picture.subplots()
        panel.plot([1, 2], [3, 4], color="C0")
        panel.set_title("title")
    save(picture, tmp_path / "a.svg")
    svg = (tmp_path / "a.svg").read_text(encoding="utf-8")
    style, drawn = svg.split("</style>", 1)
    assert "prefers-color-scheme: dark" in style
    assert drawn.count(f": {INK}") > 5
    assert f"stroke: {PALETTE[0].lower()}" in drawn
    for colour in (INK, PALETTE[0].lower()):
        assert f'[style*="stroke: {colour}"]' in style
    assert "fill: #ffffff" not in drawn


def test_the_same_picture_is_the_same_file(tmp_path):
    """No date and no random names, so that a picture changes only where its numbers do."""
    for name in "ab":
        with styled():
            picture = figure(2, 1)
            picture.subplots().hist([1.0, 2.0, 2.0])
        save(picture, tmp_path / f"{name}.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_the_style_ends_with_the_block():
    """Settings of whoever draws beside it are as before."""
    import matplotlib as mpl

    names = ("axes.spines.top", "font.size", "text.color", "figure.facecolor")
    before = [mpl.rcParams[name] for name in names]
    with styled():
        assert mpl.rcParams["axes.spines.top"] is False
    assert [mpl.rcParams[name] for name in names] == before


def test_axes_have_plain_numbers():
    """1, 2 and 5 times powers of ten on logarithmic axes, and commas in thousands."""
    panel = figure(12, 6).subplots()
    panel.set(xscale="log", xlim=(0.5, 2000), ylim=(0, 20_000))
    one_two_five(panel.xaxis)
    thousands(panel.yaxis)
    assert [each for each in panel.get_xticks() if 0.5 <= each <= 50] == pytest.approx([0.5, 1, 2, 5, 10, 20, 50])
    assert panel.xaxis.get_major_formatter()(1000, 0) == "1,000"
    assert panel.xaxis.get_major_formatter()(0.05, 0) == "0.05"
    assert panel.yaxis.get_major_formatter()(12_000, 0) == "12,000"


def test_private_pictures_are_marked_and_for_their_owner_alone(tmp_path):
    """The mark stands under the title, or alone; nobody else may read the file."""
    titled, bare = figure(2, 1), figure(2, 1)
    save_private(titled, "delta = 1e-05", tmp_path / "titled.png")
    save_private(bare, "", tmp_path / "bare.svg")
    assert [oct(each.stat().st_mode & 0o777) for each in tmp_path.iterdir()] == ["0o600", "0o600"]
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
    with pytest.raises(MissingExtra, match=r"install '\.\[plots\]'"):
        figure(2, 1)
