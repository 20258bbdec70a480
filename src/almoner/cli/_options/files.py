"""Check where a command may write before anything is computed, so that no work and no file is lost."""

from pathlib import Path

from almoner._disk import whole_file
from almoner._private import MARK
from almoner.errors import ArgumentError

__all__ = ["check_free", "check_new_file", "check_page", "check_picture", "write_page"]

PICTURES = (".png", ".svg", ".pdf")


def check_new_file(path: Path, *, force: bool, read: tuple[Path | str, ...] = ()) -> None:
    """Refuse a folder that is not there, a file that the command reads, and, without --force, an existing file."""
    if not path.parent.is_dir():
        raise ArgumentError(f"{path}: its folder is not there")
    if any(path.resolve() == Path(other).resolve() or _same_file(path, Path(other)) for other in read):
        raise ArgumentError(f"{path} is what is read here; choose another name")
    check_free(path, force=force and not path.is_dir())


def check_free(path: Path, *, force: bool) -> None:
    """Refuse to overwrite what exists, without --force."""
    if path.exists() and not force:
        raise ArgumentError(f"{path} exists already; choose another name, or overwrite it with --force")


def check_page(path: Path | None, *, force: bool, read: tuple[Path | str, ...]) -> None:
    """Refuse a page that must not be written, before anything is read."""
    if path is None:
        return
    if path.suffix.lower() != ".html":
        raise ArgumentError(f"{path} must end in .html")
    check_new_file(path, force=force, read=read)


def write_page(path: Path, page: str, *, whose: str = "") -> None:
    """Write a private page, which only its owner can read, and say so."""
    with whole_file(path) as file:
        file.write(page.encode("utf-8"))
    print(f"{MARK}{whose}: written to {path}")


def check_picture(path: Path | None, *, makes_folder: bool = False) -> None:
    """Refuse a picture of a format that cannot be drawn, or in a folder that is not there and will not be made."""
    if path is None:
        return
    if path.suffix.lower() not in PICTURES:
        raise ArgumentError(f"{path} must end in {', '.join(PICTURES[:-1])} or {PICTURES[-1]}")
    if not makes_folder and not path.parent.is_dir():
        raise ArgumentError(f"{path}: its folder is not there")


def _same_file(path: Path, other: Path) -> bool:
    return path.exists() and other.exists() and path.samefile(other)
