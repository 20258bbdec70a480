"""The tree of errors: one root, Python's own kinds beside it, and what the errors carry survives pickling."""

import inspect
import pickle

import pytest

from almoner import errors

KINDS = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not issubclass(kind, Warning)])
def test_every_error_has_one_root(kind):
    """Catching AlmonerError catches all of them."""
    assert issubclass(kind, errors.AlmonerError)


@pytest.mark.parametrize(
    ("kind", "also"),
    [
        (errors.ArgumentError, ValueError),
        (errors.DataError, ValueError),
        (errors.Unsupported, TypeError),
        (errors.CopyRefused, TypeError),
        (errors.UnknownPerson, KeyError),
        (errors.MissingExtra, ImportError),
    ],
)
def test_errors_are_also_the_kind_that_python_would_raise(kind, also):
    """Code that catches ValueError, TypeError, KeyError or ImportError catches them as well."""
    with pytest.raises(also, match="why"):
        raise kind("why")


def test_the_tree_in_the_docstring_names_every_error():
    """The drawing at the head of the module is complete."""
    drawing = inspect.getdoc(errors)
    assert all(kind.__name__ in drawing for kind in KINDS)


def test_a_refusal_carries_its_numbers_through_pickling():
    """Asked, spent and left come back with the message."""
    refusal = errors.BudgetExceeded("too much", asked=2.0, spent=0.5, left=0.25)
    again = pickle.loads(pickle.dumps(refusal))
    assert (str(again), again.asked, again.spent, again.left) == ("too much", 2.0, 0.5, 0.25)


def test_a_ledgers_error_carries_its_reason_through_pickling():
    """A service can tell "busy" from "damaged" without reading prose."""
    again = pickle.loads(pickle.dumps(errors.LedgerError("in use", reason="busy")))
    assert (str(again), again.reason) == ("in use", "busy")
    assert errors.LedgerError("of some kind").reason == "unavailable"


def test_an_error_about_data_carries_its_reason_through_pickling():
    """A service can tell a file that is away from one that does not fit without reading prose."""
    again = pickle.loads(pickle.dumps(errors.DataError("not there", reason="away")))
    assert (str(again), again.reason) == ("not there", "away")
    assert errors.DataError("of some kind").reason == "unfit"


def test_an_unknown_person_is_told_in_plain_words():
    """KeyError would show the repr of the message, in quotes."""
    assert str(errors.UnknownPerson("no such account")) == "no such account"
