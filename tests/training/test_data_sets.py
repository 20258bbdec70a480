"""Records as people have them: data sets and loaders, arrays, tables, ids of every kind."""

import tracemalloc

import numpy as np
import pandas
import pytest
import torch
from torch import nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

from almoner import errors, filters, individual, training
from almoner.training import FixedBatches
from training_runs import BY_RECORD, N, network, records, trainer

BUDGET = filters.Gaussian(epsilon=1.0, delta=1e-5)
SAMPLED = filters.RenyiOrder(alpha=8, rho=0.2)


class Files(Dataset):
    """Records that are read one at a time, and counted."""

    def __init__(self, form="pair", size=N):
        self.x, self.y = records()
        self.form, self.size, self.read = form, size, 0

    def __len__(self):
        return self.size

    def __getitem__(self, number):
        self.read += 1
        x, y = self.x[number % N], self.y[number % N]
        return {"input": x, "labels": y} if self.form == "dict" else (x, y)


def fitted(*data, seed=3, **options):
    """The parameters after three steps, and the trainer."""
    fit = {name: options.pop(name) for name in ("people", "callbacks") if name in options}
    made = trainer(
        (SAMPLED if isinstance(options.get("sampling"), training.Poisson) else BUDGET).fresh(),
        steps=3,
        seed=seed,
        **options,
    )
    made.fit(*data, **fit)
    return torch.cat([each.detach().reshape(-1) for each in made.module.parameters()]), made


@pytest.mark.quick(4)
@pytest.mark.parametrize("rate", [None, 0.3])
@pytest.mark.parametrize("form", ["pair", "dict", "loader", "tensors"])
def test_a_data_set_trains_as_its_tensors_do(form, rate):
    """The same parameters to the last digit, in full steps and with Poisson samples, whose refreshes read all."""
    x, y = records()
    people = torch.arange(N) // 2
    data = {
        "pair": lambda: Files(),
        "dict": lambda: Files("dict"),
        "loader": lambda: DataLoader(Files(), batch_size=17, shuffle=True),
        "tensors": lambda: TensorDataset(x, y),
    }[form]()
    sampling = training.FullBatch() if rate is None else training.Poisson(rate, refresh_every=2)
    options = {"sampling": sampling, "people": people}
    assert torch.equal(fitted(x, y, **options)[0], fitted(data, **options)[0])


def test_a_data_set_larger_than_memory_is_never_held():
    """Two hundred thousand records of which a chunk is in memory at a time; only those sampled are read in a step."""

    class Large(Files):
        def __getitem__(self, number):
            self.read += 1
            return torch.full((5,), float(number % 7)), torch.tensor(number % 2)

    data = Large(size=30_000)
    fitted(*records(), sampling=training.Poisson(0.3))  # imports what is imported then
    tracemalloc.start()
    made = trainer(
        SAMPLED.fresh(),
        steps=2,
        sampling=training.Poisson(0.01),
        compute=training.Compute(memory=2**16),
        individual=False,
        divisor=30_000,
    )
    made.fit(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert data.read < 2_000
    assert peak < 20e6


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: DataLoader(Files(), batch_size=8, drop_last=True), "drops records"),
        (lambda: DataLoader(Files(), sampler=WeightedRandomSampler([1.0] * N, N)), "WeightedRandomSampler.*may repeat"),
        (lambda: DataLoader(Files(), batch_sampler=[[0, 1], [0, 2]]), "may repeat or leave out"),
        (lambda: type("Endless", (IterableDataset,), {"__iter__": lambda self: iter(())})(), "map-style Dataset"),
        (lambda: Subset(Files(), []), "at least one record"),
        (lambda: [1, 2, 3], "inputs must be a tensor"),
        (lambda: TensorDataset(torch.ones(4, 5)), "input, ..., target"),
    ],
)
def test_data_that_repeat_or_drop_people_are_refused_before_anything_is_charged(make, words):
    """The message says what to give."""
    accounts = individual.Filter(N, BUDGET)
    made = trainer(accounts)
    with pytest.raises(errors.AlmonerError, match=words):
        made.fit(make()) if words != "inputs must be a tensor" else made.fit(make(), torch.zeros(3))
    assert not accounts.spent().any()


class Names(Dataset):
    """Sequences of different lengths, the first of which is short."""

    def __len__(self):
        return 8

    def __getitem__(self, number):
        return torch.ones(2 + number), torch.tensor(number % 2)


def longest(items):
    """Pads to the longest sequence of the batch, as collate functions do."""
    return nn.utils.rnn.pad_sequence([x for x, _ in items], batch_first=True), torch.stack([y for _, y in items])


def shortest_first(items):
    """In another order than they came."""
    return default_collate(sorted(items, key=lambda item: float(item[0].sum())))


def from_the_first(items):
    """Where the first record of the batch is the zero of the others."""
    x, y = default_collate(items)
    return x - x[:1] + 1.0 * (len(x) == 1) * x, y


def of_rising_size():
    """Records in order of size."""
    return TensorDataset(torch.arange(8.0)[:, None].repeat(1, 3), torch.arange(8) % 2)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (lambda: DataLoader(of_rising_size(), collate_fn=shortest_first), "depends on the others of its batch"),
        (lambda: DataLoader(of_rising_size(), collate_fn=from_the_first), "depends on the others of its batch"),
        (
            lambda: DataLoader(Names(), collate_fn=longest),
            "depends on the others of its batch, by collate_fn.*public length",
        ),
        (lambda: Names(), "can't be put together.*public length"),
    ],
)
def test_sequences_that_are_padded_to_the_longest_beside_them_are_refused(data, words):
    """A record's gradient would depend on the length of somebody else's."""
    with pytest.raises(errors.AlmonerError, match=words):
        trainer(BUDGET.fresh()).fit(data())


def test_targets_are_given_once():
    """Beside tensors, and within a data set."""
    x, y = records()
    with pytest.raises(errors.ArgumentError, match="targets must be given"):
        trainer(BUDGET.fresh()).fit(x)
    with pytest.raises(errors.ArgumentError, match="leave them out"):
        trainer(BUDGET.fresh()).fit(Files(), y)
    with pytest.raises(errors.ArgumentError, match="people must have an id for each record"):
        trainer(BUDGET.fresh()).fit(Files(), people=["a"])


def test_arrays_and_tables_train_as_tensors_do():
    """Numbers take the precision of the module."""
    x, y = records()
    expected = fitted(x, y)[0]
    assert torch.equal(fitted(x.double().numpy(), y.numpy())[0], expected)
    assert torch.equal(fitted(pandas.DataFrame(x.numpy()), pandas.Series(y.numpy()))[0], expected)
    with pytest.raises(errors.ArgumentError, match="numbers only"):
        trainer(BUDGET.fresh()).fit(pandas.DataFrame({"a": ["x"] * N}), y)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["huge", "texts", "series", "tuples"])
def test_ids_of_any_kind_cost_what_their_number_of_people_costs(kind):
    """As many accounts as people, in the order in which they appear, and statements by id."""
    x, y = records()
    rows = torch.arange(N) // 4
    ids = {
        "huge": lambda: rows * 10**15,
        "texts": lambda: [f"patient {row}" for row in rows.tolist()],
        "series": lambda: pandas.Series([f"patient {row}" for row in rows.tolist()]),
        "tuples": lambda: [("clinic", row) for row in rows.tolist()],
    }[kind]()
    found, made = fitted(x, y, people=ids)
    assert torch.equal(found, fitted(x, y, people=rows)[0])
    assert len(made.shares()) == N // 4
    first = {"huge": 0, "tuples": ("clinic", 0)}.get(kind, "patient 0")
    assert str(made.statement(first)) == str(fitted(x, y, people=rows)[1].statement(0))
    with pytest.raises(errors.UnknownPerson):
        made.statement("nobody")


def test_ids_where_accounts_are_rows_are_refused():
    """An account of the caller's is a row."""
    x, y = records()
    with pytest.raises(errors.ArgumentError, match="accounts and shares are of rows"):
        trainer(individual.Filter(N, BUDGET)).fit(x, y, people=["a"] * N)


def test_fixed_batches_of_a_data_set_go_by_ids():
    """Records that are not in memory are not hashed."""
    options = {"steps": 4, "sampling": FixedBatches(100), "divisor": N}
    with pytest.raises(errors.Unsupported, match="go by people's ids"):
        trainer(BUDGET.fresh(), **options).fit(Files())
    made = trainer(BUDGET.fresh(), **options)
    assert made.fit(Files(), people=[f"p{number}" for number in range(N)]).step == 4


def test_a_run_on_a_data_set_resumes_with_the_same_records_only(tmp_path):
    """The digest is of all records, a part at a time, and of the ids."""
    x, y = records()
    ids = [f"p{number}" for number in range(N)]

    def stop(run):
        if run.step == 2:
            run.stop()

    trainer(BUDGET.fresh(), steps=4).fit(Files(), people=ids, folder=tmp_path, callbacks=[stop])
    with pytest.raises(errors.AlmonerError):
        trainer(BUDGET.fresh(), steps=4).fit(x, y, people=ids[::-1], folder=training.RunFolder(tmp_path, resume=True))
    assert trainer(BUDGET.fresh(), steps=4).fit(
        x, y, people=ids, folder=training.RunFolder(tmp_path, resume=True)
    ).step in (2, 4)


def test_a_stream_takes_data_sets_too():
    """An update from a data set is that from its tensors."""
    x, y = records()
    found = []
    for data in ((x, y), (Files(), None)):
        module = network()
        stream = training.Stream(
            module, BY_RECORD, torch.optim.SGD(module.parameters(), lr=1.0), BUDGET.fresh(),
            max_grad_norm=1.0, updates=2, seed=1,
        )  # fmt: skip
        stream.update(*data, people=np.arange(N), divisor=N)
        found.append(torch.cat([each.detach().reshape(-1) for each in module.parameters()]))
    assert torch.equal(*found)
