"""Save a trained PyTorch module in a folder with its card, and load it again.

The folder holds no pickle, and nothing that the guarantee does not cover: parameters and buffers, the card, and how the
module was trained; no state of the optimizer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from almoner import __version__, _extras
from almoner.errors import ArgumentError, DataError, Unsupported
from almoner.training._card import Card
from almoner.training._linear.model_folder import MODULE, ModelFolder, PersonalAccounts, check_places

with _extras.need("torch", extra="torch"):
    import torch
    from torch import Tensor, nn

    from almoner.individual import Filter
    from almoner.training._stream import Stream
    from almoner.training._trainer import Trainer

__all__ = ["load", "save"]

_NAMED = 6  # of names that differ, so many are listed
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}  # of so many bytes, for types that NumPy lacks


@dataclass(frozen=True, slots=True)
class Saved:
    """The facts that a folder states about its module. Every field is public."""

    card: Card  # the promise about the module
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
    held = _held(trained.module, trained.card(delta=delta), {"settings": _settings(trained)})
    check_places(folder, force=force, keep_accounts=keep_accounts)
    if keep_accounts and held.card.record:
        raise Unsupported("keep_accounts: the accounts of this training are the ledger's; see `almoner statement`")
    accounts = _accounts(trained, held.card.delta) if keep_accounts else None
    return held.write(folder, force=force, accounts=accounts)


def load(folder: str | Path, module: nn.Module) -> Saved:
    """Set a module to the state in a folder that ``save`` wrote; gives its card and its settings.

    Nothing in the folder is run. The module is changed only if all names, shapes and types are those of the folder.

    Raises:
        ArgumentError: the module is another one; the message names what differs.
        DataError: the folder holds no such module, or is damaged.
    """
    held = ModelFolder.read(Path(folder), MODULE)
    try:
        tensors = {name: torch.from_numpy(array) for name, array in held.arrays.items()}
        tensors |= {name: tensors[name].view(getattr(torch, kind)) for name, kind in held.torch_types.items()}
        saved = Saved(held.card, held.fields["settings"])
    except (AttributeError, TypeError, ValueError, KeyError, RuntimeError) as error:
        raise DataError(f"{folder} does not hold a module that almoner saved") from error
    _refuse_another(module, tensors)
    module.load_state_dict(tensors)
    return saved


def _refuse_another(module: nn.Module, saved: Mapping[str, Tensor]) -> None:
    own = _state(module)
    found = {
        "it lacks ": [repr(name) for name in saved if name not in own],
        "the folder lacks ": [repr(name) for name in own if name not in saved],
        "": [
            f"{name!r} is {_words(own[name])}, and {_words(saved[name])} in the folder"
            for name in saved
            if name in own and _words(own[name]) != _words(saved[name])
        ],
    }
    for names in found.values():
        names[_NAMED:] = [f"and {len(names) - _NAMED} more"] if len(names) > _NAMED else []
    if reasons := [what + ", ".join(names) for what, names in found.items() if names]:
        raise ArgumentError(f"module={type(module).__name__} is not the one that was saved: {'; '.join(reasons)}")


def _words(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _state(module: nn.Module) -> dict[str, Tensor]:
    state = module.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise Unsupported(f"module: its state {name!r} is no tensor, and nothing else is saved")
    return state


def _held(module: nn.Module, card: Card, fields: Mapping[str, Any]) -> ModelFolder:
    arrays, types = {}, {}
    for name, value in _state(module).items():
        try:
            dense = value.detach().cpu().contiguous().clone()
            try:
                arrays[name] = dense.numpy()
            except TypeError:
                arrays[name] = dense.view(_WORDS[dense.element_size()]).numpy()
                types[name] = str(dense.dtype).removeprefix("torch.")
        except (TypeError, KeyError, RuntimeError) as error:
            raise Unsupported(f"module: its state {name!r} is no dense tensor that an array holds") from error
    return ModelFolder(MODULE, fields, arrays, card, types)


def _settings(trained: Trainer | Stream) -> dict[str, Any]:
    optimizer = trained._optimizer
    options = {
        name: value
        for name, value in optimizer.param_groups[0].items()
        if name != "params" and (value is None or isinstance(value, bool | int | float | str))
    }
    return {
        "trained_by": "Stream" if isinstance(trained, Stream) else "Trainer",
        "module": type(trained.module).__name__,
        "optimizer": {"name": type(optimizer).__name__, **options},
        "versions": {"library": __version__, "torch": torch.__version__},
    }


def _accounts(trained: Trainer | Stream, delta: float) -> PersonalAccounts:
    people = trained.accounts
    if not isinstance(people, Filter):
        raise Unsupported("keep_accounts needs accounts per person: else all are charged the same, as the card says")
    return PersonalAccounts(people, delta, ids=None if isinstance(trained, Stream) else trained._people_of.ids)
