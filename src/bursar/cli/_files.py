"""Where a command may write: asked before anything is worked out, so that nothing is done in vain and nothing lost."""

from pathlib import Path

from bursar.errors import ArgumentError

__all__ = ["kept", "new_file", "picture"]

PICTURES = (".png", ".svg", ".pdf")


def new_file(path: Path, *, force: bool, read: tuple[Path | str, ...] = ()) -> None:
    """Refuse a folder that is not there, a file that the command reads, and, without --force, one that is there."""
    if not path.parent.is_dir():
        raise ArgumentError(f"{path}: its folder is not there")
    if any(path.resolve() == Path(other).resolve() or _same(path, Path(other)) for other in read):
        raise ArgumentError(f"{path} is what is read here; choose another name")
    kept(path, force=force and not path.is_dir())


def kept(path: Path, *, force: bool) -> None:
    """Refuse to write over what is there, without --force."""
    if path.exists() and not force:
        raise ArgumentError(f"{path} exists already; choose another name, or overwrite it with --force")


def _same(path: Path, other: Path) -> bool:
    """Whether two names are of one file that is there."""
    return path.exists() and other.exists() and path.samefile(other)


def picture(path: Path | None, *, makes_folder: bool = False) -> None:
    """Refuse a picture of a kind that cannot be drawn, or in a folder that is not there and will not be made."""
    if path is None:
        return
    if path.suffix.lower() not in PICTURES:
        raise ArgumentError(f"{path} must end in {', '.join(PICTURES[:-1])} or {PICTURES[-1]}")
    if not makes_folder and not path.parent.is_dir():
        raise ArgumentError(f"{path}: its folder is not there")
