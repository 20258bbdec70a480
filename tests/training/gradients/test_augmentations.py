"""Several views of each record: the mean of their gradients is what is clipped, drawn anew in each step."""

import pytest
import torch
from torch import nn

from almoner import errors, filters
from almoner.training import Compute
from almoner.training.gradients import Gradients
from almoner.training.gradients.augmentations import Views, shifted_and_flipped
from gradient_modules import BY_RECORD, naive, setting
from training_runs import records, trainer


class Listed:
    """A transform that adds what it draws, and keeps it."""

    def __init__(self):
        self.drawn = []

    def __call__(self, x, generator):
        self.drawn.append(torch.randn(x.shape, generator=generator))
        return x + self.drawn[-1]


def mean_rows(module, x, y, drawn, count):
    """(records, parameters) the mean of the gradients of the views of each record, by a loop over all views."""
    views = x.repeat_interleave(count, 0) + drawn
    parts = naive(module, BY_RECORD, views, y.repeat_interleave(count, 0))
    rows = torch.stack([torch.cat([part.reshape(-1) for part in each]) for each in parts]).double()
    return rows.view(len(x), count, -1).mean(1)


@pytest.mark.quick(9)
@pytest.mark.parametrize(
    "name", ["linear", "convolution 2d", "group norm", "lstm", "parameters with a leading axis of 1"]
)
@pytest.mark.parametrize("of_people", [False, True])
@pytest.mark.parametrize("count", [3, 1])
def test_the_mean_over_views_is_clipped(name, of_people, count):
    """Norms and clipped sums are those of a naive loop over all views; a person's records come together after."""
    module, x, y = setting(name)
    transform = Listed()
    engine = Gradients(module, BY_RECORD, views=Views(transform, count=count, seed=1))
    engine.prepare(x, y)
    transform.drawn.clear()
    engine._records_at_once = 50
    people = torch.tensor([0, 1, 1, 2, 0, 2]) if of_people else None
    sums, norms = engine.sums(x, y, 0.05, people=people)
    order = torch.argsort(people, stable=True) if of_people else torch.arange(len(x))
    (drawn,) = transform.drawn
    rows = mean_rows(module, x[order], y[order], drawn, count)
    if of_people:
        rows = torch.zeros(3, rows.shape[1], dtype=torch.float64).index_add_(0, people[order], rows)
    assert torch.allclose(norms, rows.norm(dim=1), rtol=1e-4)
    expected = (rows * (0.05 / rows.norm(dim=1).clamp(min=0.05))[:, None]).sum(0)
    flat = torch.cat([part.reshape(-1) for part in sums])
    assert (flat - expected).norm() <= 1e-4 * expected.norm()


def test_each_step_draws_anew_and_a_seed_makes_it_reproducible():
    """Two passes differ; two runs of the same seeds do not."""
    module, x, y = setting("linear")
    engine = Gradients(module, BY_RECORD, views=Views(Listed(), count=2))
    assert not torch.equal(engine.norms(x, y), engine.norms(x, y))
    x, y = records()
    ends = []
    for _ in range(2):
        made = trainer(
            filters.Gaussian(mu=1.0), steps=3, seed=1, compute=Compute(views=Views(Listed(), count=2, seed=5))
        )
        made.fit(x, y)
        ends.append(torch.cat([each.detach().reshape(-1) for each in made.module.parameters()]))
    assert torch.equal(*ends)


@pytest.mark.parametrize(
    ("transform", "words"),
    [
        (lambda x, generator: x - x.mean(0), "depend on other records"),
        (lambda x, generator: x.flip(0), "depend on other records"),
        (lambda x, generator: x - x[:1], "depend on other records"),
        (lambda x, generator: x / 255 if x.max() > 9 else x, "depend on other records"),
        (
            lambda x, generator: (x + x.flip(0)) / 2 if torch.rand((), generator=generator) < 0.02 else x,
            "depend on other records",
        ),
        (lambda x, generator: x + torch.randn(x.shape), "coins that are not the generator's"),
        (lambda x, generator: x[:1], "as many records of the same shape"),
    ],
)
def test_views_that_mix_records_are_refused(transform, words):
    """Before anything is charged."""
    module, x, y = setting("linear")
    with pytest.raises(errors.AlmonerError, match=words):
        Gradients(module, BY_RECORD, views=Views(transform, count=2)).norms(x, y)


def test_images_are_moved_and_flipped_each_by_itself():
    """Every view is one of the 25 shifts of the mirrored image, or their mirror image, and all of them occur."""
    x = torch.arange(2 * 9.0).view(2, 1, 3, 3)
    views = shifted_and_flipped(2)(x.repeat_interleave(2000, 0), torch.Generator().manual_seed(0))
    wide = nn.functional.pad(x, (2, 2, 2, 2), mode="reflect")
    for number in (0, 1):
        shifts = [wide[number, :, a : a + 3, b : b + 3] for a in range(5) for b in range(5)]
        allowed = {tuple(each.flatten().tolist()) for one in shifts for each in (one, one.flip(-1))}
        seen = {tuple(each.flatten().tolist()) for each in views[2000 * number : 2000 * (number + 1)]}
        assert seen == allowed
    assert torch.equal(shifted_and_flipped(0, flip=False)(x, torch.Generator()), x)


def test_wrong_views_are_refused_by_name():
    """A count of 0, a transform that is none, an input that is not there."""
    with pytest.raises(errors.ArgumentError, match="count=0"):
        Views(Listed(), count=0)
    with pytest.raises(errors.ArgumentError, match="transform=3"):
        Views(3, count=2)
    module, x, y = setting("linear")
    with pytest.raises(errors.ArgumentError, match="part='pixels'"):
        Gradients(module, BY_RECORD, views=Views(Listed(), count=2, part="pixels")).norms(x, y)
