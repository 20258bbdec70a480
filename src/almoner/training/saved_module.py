"""Save a trained PyTorch module in a folder with its card, and load it again.

The folder holds no pickle of code, and nothing that the guarantee does not cover:

    model.json      the parameters' names, shapes and types, and how it was trained; public
    weights.pt      parameters and buffers, tensors alone; public
    card.json       the guarantee, in fields
    card.md         the guarantee, in words
    card.html       the same as a page
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from almoner import __version__, _extras
from almoner._disk import whole_folder
from almoner.errors import ArgumentError, DataError, Unsupported
from almoner.training._card import Card
from almoner.training._linear.model_folder import check_free, write_card
from almoner.training._linear.personal_accounts import PersonalAccounts, accounts_file, named_accounts

with _extras.need("torch", extra="torch"):
    import torch
    from torch import Tensor, nn

    from almoner.individual import Filter
    from almoner.training._stream import Stream
    from almoner.training._trainer import Trainer

__all__ = ["KIND", "Saved", "load", "save"]

KIND = "PyTorch module"
"""The kind of folder that ``model.json`` names."""

_FORMAT = 1
_NAMED = 6  # of names that differ, so many are listed


@dataclass(frozen=True, slots=True)
class Saved:
    """The facts that a folder states about its module. Every field is public."""

    card: Card
    """The promise about the module."""
    settings: dict[str, Any]
    """Settings of the training: class of the module and of the optimizer, its options, steps, versions."""


def save(
    trained: Trainer | Stream,
    folder: str | Path,
    *,
    delta: float | None = None,
    keep_accounts: bool = False,
    force: bool = False,
) -> Path:
    """Write the module of a finished training, its card and its settings into a folder, whole or not at all.

    Args:
        trained: a ``Trainer`` after ``fit``, or a ``Stream``.
        folder: the folder to write; it may be given away.
        delta: public, in (0, 1), for budgets that have none of their own.
        keep_accounts: also write what each person may be told to ``FOLDER.accounts``, PRIVATE, a file beside the folder
            that its owner alone can read; ``models.statement(folder, person)`` reads it. Nothing can be charged to it.
        force: overwrite a model that is there already.

    Returns:
        The folder.

    Raises:
        ArgumentError: nothing was trained, or the folder cannot be written.
        Unsupported: the module's state is not all tensors, or there are no accounts per person to keep.

    Guarantee: that of the card: all that is in the folder was released in the training, or is public.
    Source: theory 2.1.
    """
    folder = Path(folder)
    if not isinstance(trained, Trainer | Stream):
        raise ArgumentError(f"trained={type(trained).__name__} must be a training.Trainer or a training.Stream")
    card, tensors, beside = trained.card(delta=delta), _tensors(trained.module), accounts_file(folder.resolve())
    check_free(folder, force=force)
    if keep_accounts and card.record:
        raise Unsupported("keep_accounts: the accounts of this training are the ledger's; see `almoner statement`")
    accounts = _accounts(trained, card.delta) if keep_accounts else None
    if beside.exists() and not (keep_accounts and force):
        raise ArgumentError(f"{beside} exists already: the accounts of another model; choose another folder")
    with whole_folder(folder, mode=0o755) as fresh:
        torch.save(tensors, fresh / "weights.pt")
        described = {
            "format": _FORMAT,
            "kind": KIND,
            "state": _shapes(tensors),
            "settings": _settings(trained),
            "weights": _digest(fresh / "weights.pt"),
        }
        (fresh / "model.json").write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
        write_card(fresh, card)
    if accounts is not None:
        accounts.save(beside)
    return folder


def load(folder: str | Path, module: nn.Module) -> Saved:
    """Set a module to the state in a folder that ``save`` wrote.

    Args:
        folder: it is read without running anything that is in it.
        module: of the same architecture; it is changed only if all names, shapes and types are those of the folder.

    Returns:
        The card and the settings.

    Raises:
        ArgumentError: the module is another one; the message names what differs.
        DataError: the folder holds no such module, or is damaged.
    """
    folder = Path(folder)
    try:
        described = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        kind, written, settings = described["kind"], described["format"], described["settings"]
        card = Card.from_dict(json.loads((folder / "card.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder} does not hold a module that almoner saved") from error
    if kind != KIND:
        raise DataError(f"{folder} holds {kind!r}, not a {KIND}: load it with training.saved_model.load")
    if written != _FORMAT:
        raise DataError(f"{folder}: format {written!r} is not {_FORMAT}, the one this version reads")
    tensors = _read(folder, described)
    _refuse_another(module, tensors)
    module.load_state_dict(tensors)
    return Saved(card, settings)


def _read(folder: Path, described: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors in a folder, which are those that it describes."""
    try:
        sound = _digest(folder / "weights.pt") == described["weights"]
        tensors = torch.load(folder / "weights.pt", weights_only=True, map_location="cpu") if sound else {}
        sound = sound and _shapes(tensors) == described["state"]
    except Exception as error:  # torch raises many kinds for a broken file
        raise DataError(f"{folder / 'weights.pt'} cannot be read as tensors") from error
    if not sound:
        raise DataError(f"{folder / 'weights.pt'} is damaged: it is not what model.json describes")
    return tensors


def _refuse_another(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Refuse a module whose state has other names, shapes or types than these tensors."""
    own, saved = _shapes(_tensors(module)), _shapes(tensors)
    differ = [
        f"{name!r} is {_words(own[name])}, and {_words(saved[name])} in the folder"
        for name in saved
        if name in own and own[name] != saved[name]
    ]
    reasons = [
        *_listed("it lacks", [repr(name) for name in saved if name not in own]),
        *_listed("the folder lacks", [repr(name) for name in own if name not in saved]),
        *_listed("", differ),
    ]
    if reasons:
        raise ArgumentError(f"module={type(module).__name__} is not the one that was saved: {'; '.join(reasons)}")


def _listed(what: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = [f"and {len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return [f"{what} {', '.join([*names[:_NAMED], *more])}".strip()]


def _words(described: Mapping[str, Any]) -> str:
    return f"{described['dtype']} {tuple(described['shape'])}"


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """A module's state, each tensor apart from the module."""
    state = module.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise Unsupported(f"module: its state {name!r} is no tensor, and nothing else is saved")
    return {name: value.detach().cpu().contiguous().clone() for name, value in state.items()}


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Any]]:
    return {
        name: {"shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
        for name, value in tensors.items()
    }


def _settings(trained: Trainer | Stream) -> dict[str, Any]:
    """The public settings of a training that are not on the card."""
    optimizer, card_of = trained._optimizer, "Stream" if isinstance(trained, Stream) else "Trainer"
    plain = {
        name: value
        for name, value in optimizer.param_groups[0].items()
        if name != "params" and (value is None or isinstance(value, bool | int | float | str))
    }
    return {
        "trained_by": card_of,
        "module": type(trained.module).__name__,
        "optimizer": {"name": type(optimizer).__name__, **plain},
        "versions": {"library": __version__, "torch": torch.__version__},
    }


def _accounts(trained: Trainer | Stream, delta: float) -> PersonalAccounts:
    """The statements of all people."""
    people = trained.accounts
    if not isinstance(people, Filter):
        raise Unsupported("keep_accounts needs accounts per person: else all are charged the same, as the card says")
    ids = people.state()["ids"] if isinstance(trained, Stream) else trained._people_of.ids
    return named_accounts(people, ids, delta)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
