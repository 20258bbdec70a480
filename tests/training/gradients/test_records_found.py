"""Records that are not on the first axis: found on other axes, many on one, in rows that are chosen, or one by one."""

import warnings

import pytest
import torch
from torch import nn

from almoner import errors
from almoner.training import gradients
from almoner.training.gradients import Gradients, _layers, _recorder
from gradient_modules import naive

BY_RECORD = nn.CrossEntropyLoss(reduction="none")
WIDE, CLIP = 6, 0.5


class Module(nn.Module):
    """Some layers, and a function of them and of (records, 5, 6) that gives (records, 3)."""

    def __init__(self, forward, **layers):
        super().__init__()
        self.layers, self.function = nn.ModuleDict(layers), forward

    def forward(self, x):
        return self.function(self.layers, x)


def linear(out=WIDE):
    return nn.Linear(WIDE, out)


def experts(layers, x):
    """Each place goes to the expert that its gate says, and comes back with a weight."""
    flat = x.reshape(-1, WIDE)
    weights, chosen = layers["gate"](flat).softmax(1).max(1)
    out = torch.zeros_like(flat)
    for number in range(2):
        rows = (chosen == number).nonzero()[:, 0]
        out = out.index_add(0, rows, layers[str(number)](flat[rows]) * weights[rows, None])
    return layers["out"](out.view(x.shape).mean(1))


def picked(layers, x):
    """Only places whose first number is positive go through the layer."""
    mask = x[..., 0] > 0
    out = torch.zeros_like(x).masked_scatter(mask[..., None], layers["in"](x[mask]))
    return layers["out"](out.sum(1))


def sorted_rows(layers, x):
    """The layer takes the records in the order of a number of theirs."""
    order = torch.argsort(x[:, 0, 0])
    return layers["out"](torch.tanh(layers["in"](x[order]))[torch.argsort(order)].sum(1))


def halves(layers, x):
    one, other = layers["out"](torch.cat([x[:, 0], x[:, 1]])).chunk(2)
    return one * other


def frames(layers, x, *, first):
    """Each place is an image of its own, in a batch of records * places, or of places * records."""
    n, t = x.shape[:2]
    batch = (x if first else x.transpose(0, 1)).reshape(n * t, 1, 2, 3)
    found = torch.tanh(layers["norm"](layers["image"](batch)).mean((2, 3)))
    return layers["out"](found.view(n, t, -1).sum(1) if first else found.view(t, n, -1).sum(0))


def recurrent(layers, x):
    return layers["out"](layers["in"](x.transpose(0, 1))[0].mean(0))


def attention(layers, x):
    return layers["out"](layers["in"](x.transpose(0, 1)).mean(0))


class Scaled(nn.Module):
    """Has a parameter of its own, and gives two tensors of which one is made from the other."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDE, WIDE))

    def forward(self, x):
        scores = x.reshape(-1, WIDE) @ self.weight
        return scores, scores.softmax(-1)


def both(layers, x):
    scores, shares = layers["in"](x.transpose(0, 1))
    return layers["out"]((scores * 0.1 + shares).view(x.shape[1], len(x), WIDE).sum(0))


def images():
    return {"image": nn.Conv2d(1, 4, 2), "norm": nn.GroupNorm(2, 4), "out": nn.Linear(4, 3)}


ONE_PASS = {
    "places first": lambda: Module(lambda m, x: m["out"](x.transpose(0, 1)).sum(0), out=linear(3)),
    "flat": lambda: Module(
        lambda m, x: m["out"](m["in"](x.reshape(-1, WIDE)).tanh().view(-1, 5, WIDE).sum(1)),
        **{"in": nn.Sequential(nn.LayerNorm(WIDE), linear())},
        out=linear(3),
    ),
    "experts": lambda: Module(experts, gate=linear(2), **{"0": linear(), "1": linear()}, out=linear(3)),
    "rows picked": lambda: Module(picked, **{"in": linear()}, out=linear(3)),
    "rows sorted": lambda: Module(sorted_rows, **{"in": linear()}, out=linear(3)),
    "two halves": lambda: Module(halves, out=linear(3)),
    "frames": lambda: Module(lambda m, x: frames(m, x, first=True), **images()),
    "frames, places first": lambda: Module(lambda m, x: frames(m, x, first=False), **images()),
    "lstm, places first": lambda: Module(recurrent, **{"in": nn.LSTM(WIDE, 4)}, out=nn.Linear(4, 3)),
    "transformer, places first": lambda: Module(
        attention, **{"in": nn.TransformerEncoderLayer(WIDE, 2, 12)}, out=linear(3)
    ),
    "own parameters, one output made from the other": lambda: Module(both, **{"in": Scaled()}, out=linear(3)),
}


def table(layers, x):
    """Attention with a table of relative positions, which knows no records, and is turned around before it is used."""
    places = torch.arange(x.shape[1])
    bias = layers["table"]((places[:, None] - places) % 5).permute(2, 0, 1).mean(0)
    return layers["out"](((x @ x.mT + bias).softmax(-1) @ x).sum(1))


ONE_BY_ONE = {
    "a table that is turned around": lambda: Module(table, table=nn.Embedding(5, 2), out=linear(3)),
    "a weight outside its layer": lambda: Module(
        lambda m, x: m["out"](torch.tanh(m["in"](x)) @ m["in"].weight).sum(1), **{"in": linear()}, out=linear(3)
    ),
    "weight norm of a recurrent layer": lambda: Module(
        recurrent,
        **{"in": nn.utils.parametrizations.weight_norm(nn.LSTM(WIDE, 4), "weight_hh_l0")},
        out=nn.Linear(4, 3),
    ),
}


def data(records=23):
    return torch.randn(records, 5, WIDE), torch.randint(3, (records,))


def expected_of(module, x, y, clip=CLIP):
    """The sum of clipped gradients and the norms, from a backward pass for each record."""
    parts = naive(module, BY_RECORD, (x,), y)
    rows = torch.stack([torch.cat([part.reshape(-1) for part in each]) for each in parts]).double()
    norms = rows.norm(dim=1)
    return (rows * (clip / norms.clamp(min=clip))[:, None]).sum(0), norms


def differs(engine, module, x, y):
    """True where norms or the clipped sum are not those of the naive loop."""
    expected, norms = expected_of(module, x, y)
    sums, found = engine.sums(x, y, CLIP)
    apart = (torch.cat([part.reshape(-1) for part in sums]) - expected).norm()
    return not (torch.allclose(found, norms, rtol=1e-4) and bool((found >= norms).all()) and apart <= 1e-5 * len(x))


@pytest.mark.parametrize("name", ONE_PASS)
def test_one_pass_finds_the_records(name):
    """Norms and clipped sums are those of a naive loop, to 1e-5, without a warning, in chunks and in other batches."""
    torch.manual_seed(0)
    module = ONE_PASS[name]().eval()
    engine = Gradients(module, BY_RECORD)
    for records, at_once in ((23, 9), (11, 50)):
        x, y = data(records)
        assert not differs(engine, module, x, y)
        engine._records_at_once = at_once
        assert not differs(engine, module, x, y)
        assert not engine._recorder.slow


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["experts", "rows picked"])
def test_more_records_than_powers_of_two_are_told_apart(name):
    """Two digits for each record, in one pass that is not given up."""
    torch.manual_seed(0)
    module = ONE_PASS[name]().eval()
    x, y = data(150)
    engine = Gradients(module, BY_RECORD)
    engine.prepare(x, y)
    engine._records_at_once, engine._recorder._one_by_one = 150, None
    assert not differs(engine, module, x, y)


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_what_one_pass_cannot_do_is_done_record_by_record_with_a_warning(name):
    """Slow and right; the warning says why, once, before anything is summed."""
    torch.manual_seed(0)
    module = ONE_BY_ONE[name]().eval()
    x, y = data()
    engine = Gradients(module, BY_RECORD)
    with pytest.warns(UserWarning, match="made record by record, which is right and much slower"):
        engine.prepare(x, y)
    seen = []
    assert not differs(engine, module, x, y)
    engine.sums(x, y, CLIP, observe=lambda rows, output, losses: seen.append((output, losses)))
    assert torch.allclose(torch.cat([output for output, _ in seen]), module(x), atol=1e-6)
    assert torch.allclose(torch.cat([losses for _, losses in seen]), BY_RECORD(module(x), y), atol=1e-6)


def chosen_once(records):
    """Records with exactly one place that is picked; then as many in all, but two of one record and none of another."""
    x = torch.randn(records, 5, WIDE)
    x[..., 0] = -1.0
    x[:, 2, 0] = 1.0
    other = x.clone()
    other[0, 3, 0], other[-1, 2, 0] = 1.0, -1.0
    return x, other


def test_rows_that_are_chosen_are_looked_for_in_every_batch(monkeypatch):
    """A batch with one row a record says nothing of the next. Wrong variant: the first batch is believed."""
    torch.manual_seed(0)
    module = ONE_PASS["rows picked"]().eval()
    x, other = chosen_once(12)
    y = torch.randint(3, (12,))
    engine = Gradients(module, BY_RECORD)
    assert not differs(engine, module, x, y)
    assert not differs(engine, module, other, y)
    monkeypatch.setattr(_recorder.Choices, "seen", property(lambda _: False, lambda *_: None))
    assert not differs(engine, module, other, y)
    monkeypatch.setattr(_recorder, "_moves", lambda _: False)
    assert differs(engine, module, other, y)


def in_order(layers, x, order):
    """The layer takes the records in this order, a list of their numbers, and they come back to their places."""
    found = torch.tanh(layers["in"](torch.stack([x[number] for number in order])))
    return layers["out"](torch.stack([found[order.index(number)] for number in range(len(x))]).sum(1))


def last(x):
    """(records,) the place of each record where the rare ones come last, made of sums alone."""
    rare = (x[:, 0, 0] < 0).long()
    return torch.where(rare > 0, (1 - rare).sum() + rare.cumsum(0) - 1, (1 - rare).cumsum(0) - 1)


def by_sums(layers, x, take=torch.Tensor.__getitem__):
    order = torch.zeros(len(x), dtype=torch.long).scatter(0, last(x), torch.arange(len(x)))
    return layers["out"](take(torch.tanh(layers["in"](take(x, order))), last(x)).sum(1))


def by_slices(layers, x):
    """The rare ones are so many; the layer takes the records from there on, and then the first ones."""
    count = (x[:, 0, 0] < 0).sum()
    found = torch.tanh(layers["in"](torch.cat([x[count:], x[:count]])))
    return layers["out"](torch.cat([found[len(x) - count :], found[: len(x) - count]]).sum(1))


def by_list(layers, x, move):
    """As by slices, with the number of rare ones in a list."""
    count = (x[:, 0, 0] < 0).sum()
    found = torch.tanh(layers["in"](move(x, count)))
    return layers["out"](move(found, len(x) - count).sum(1))


def parted(x, count):
    one, other = x.split([count, len(x) - count])
    return torch.cat([other, one])


def sliced(x, count):
    return torch.cat([x[count[None] :], x[: count[None]]])


def by_question(layers, x):
    """All are turned around where one is rare."""
    turned = bool((x[:, 0, 0] < 0).any())
    found = torch.tanh(layers["in"](x.flip(0) if turned else x))
    return layers["out"]((found.flip(0) if turned else found).sum(1))


def buffers(layers, x):
    """Two experts, one for rare records, each with a buffer that has room for all."""
    x, chosen = x.sum(1), (x[:, 0, 0] < 0).long()
    place = (nn.functional.one_hot(chosen, 2).cumsum(0) - 1).gather(1, chosen[:, None])[:, 0]
    room = x.new_zeros(2, len(x), WIDE).index_put((chosen, place), x)
    return layers["out"](torch.stack([torch.tanh(layers["in"](room[0])), layers["other"](room[1])])[chosen, place])


def swapped(layers, x):
    """A rare record changes places with its neighbour."""
    even = len(x) // 2 * 2
    both = (x[:even, 0, 0] < 0).view(-1, 2).any(1)[:, None, None, None]

    def swap(part):
        pairs = part[:even].view(-1, 2, 5, WIDE)
        return torch.cat([torch.where(both, pairs.flip(1), pairs).flatten(0, 1), part[even:]])

    return layers["out"](swap(torch.tanh(layers["in"](swap(x)))).sum(1))


MOVED = {
    "numbers": lambda m, x: in_order(
        m, x, sorted(range(len(x)), key=[float(each) < 0 for each in x[:, 0, 0]].__getitem__)
    ),
    "answers": lambda m, x: in_order(m, x, sorted(range(len(x)), key=lambda number: bool(x[number, 0, 0] < 0))),
    "sums": by_sums,
    "a table": lambda m, x: by_sums(m, x, lambda part, at: nn.functional.embedding(at, part.flatten(1)).view_as(part)),
    "slices": by_slices,
    "slices by one number": lambda m, x: by_list(m, x, sliced),
    "a list": lambda m, x: by_list(m, x, lambda part, count: part.roll(shifts=(-count,), dims=(0,))),
    "sizes": lambda m, x: by_list(m, x, parted),
    "a question": by_question,
    "buffers": buffers,
    "neighbours": swapped,
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", MOVED)
def test_rows_that_move_in_later_batches_only_are_found(name):
    """No record of the first batch is rare, so nothing moves; then some are, and norms are those of a naive loop."""
    torch.manual_seed(0)
    module = Module(MOVED[name], out=linear(3), other=linear(), **{"in": linear()}).eval()
    x, y = data(24)
    engine = Gradients(module, BY_RECORD)
    assert not differs(engine, module, x.abs(), y)
    x[:, 0, 0] = torch.where(torch.arange(24) % 7 == 3, -1.0, 1.0)
    assert not differs(engine, module, x, y)
    assert not engine._recorder.slow


def test_a_place_of_each_record_is_no_choice_among_them():
    """The last place of each record is taken, wherever it is: one backward pass is enough."""
    module = Module(lambda m, x: m["out"](m["in"](x)[torch.arange(len(x)), (x[..., 0] > 0).sum(1) - 1]), out=linear(3))
    module.layers["in"] = linear()
    losses = BY_RECORD(module(data()[0]), data()[1])
    assert not _recorder._moves(losses)
    assert _recorder._moves(losses[torch.argsort(losses)])


def test_a_record_that_is_not_finite_is_left_out_where_rows_are_chosen():
    """Whose a row of NaN is cannot be told from its gradient: the batch is then gone through record by record."""
    torch.manual_seed(0)
    module = ONE_PASS["experts"]().eval()
    x, y = data(12)
    engine = Gradients(module, BY_RECORD)
    engine.prepare(x, y)
    expected, _ = engine.sums(x[1:], y[1:], CLIP)
    x[0] = torch.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a warning would be a fact about these records
        sums, norms = engine.sums(x, y, CLIP)
    assert torch.isnan(norms).tolist() == [True] + [False] * 11
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(sums, expected, strict=True))


@pytest.mark.parametrize("kind", ["mean", "running"])
def test_records_that_are_mixed_are_refused_and_not_done_one_by_one(kind):
    """Each by itself would be another model than among others."""

    def forward(layers, x):
        seen = x.transpose(0, 1) - x.mean((0, 1))
        return layers["out"](seen @ layers["out"].weight.T @ layers["out"].weight).mean(0)

    layers = {"out": linear(3)} if kind == "mean" else {"out": linear(3), "norm": nn.BatchNorm1d(5)}
    module = Module(forward, **layers)
    with pytest.raises(errors.Unsupported, match=r"records depend on|normalises each record with the others"):
        Gradients(module, BY_RECORD).sums(*data(), CLIP)


def test_rows_that_several_records_share_are_seen():
    """Powers of two are told exactly; a row of two records, or one that is not a number, is nobody's."""
    old = torch.tensor([[1.0, 2.0], [0.0, 0.0], [3.0, -5.0]])
    assert _recorder._powers(old, old * torch.tensor([[1.0], [4.0], [8.0]])).tolist() == [0, -1, 3]
    for new in (old * 3, old + torch.tensor([0.0, 1.0]), old * torch.nan, old * 0, old / 2, old * 2.0**64):
        with pytest.raises(errors.Unsupported, match="losses of several records"):
            _recorder._powers(old, new)


def test_places_are_split_as_the_records_are():
    """Side by side, or in turns; the number of each row says the same."""
    part = torch.arange(24).view(2, 6, 2)
    for many, expected in ((1, [0, 0, 0, 1, 1, 1]), (2, [0, 1] * 3)):
        place = _layers.Place(1, many)
        assert place.numbers((2, 6), 2).tolist() == expected * 2
        for record in range(2):
            rows = [at for at, number in enumerate(expected) if number == record]
            assert torch.equal(place.split(part, 2)[record], part[:, rows])


class Bent(nn.Module):
    """Does not say by itself how it is differentiated, person by person."""

    def __init__(self):
        super().__init__()
        self.bend = nn.Parameter(torch.ones(WIDE))

    def forward(self, x):
        assert not bool(x.detach().abs().sum() < 0)
        return x * self.bend


@pytest.fixture
def _own_rules():
    before = dict(_layers.RULES)
    yield
    _layers.RULES.clear()
    _layers.RULES.update(before)


@pytest.mark.usefixtures("_own_rules")
def test_a_rule_of_ones_own():
    """It is compared as everything is: a wrong one is not used, and one that gives other shapes isn't either."""
    torch.manual_seed(0)
    module = nn.Sequential(Bent(), nn.Flatten(), nn.Linear(5 * WIDE, 3))
    x, y = data()
    with pytest.warns(UserWarning, match=r"layer '0' .Bent. .*write a rule for it"):
        Gradients(module, BY_RECORD).prepare(x, y)
    gradients.register_rule(Bent, lambda _layer, x, b: {"bend": (x * b).sum(1)})
    engine = Gradients(module, BY_RECORD)
    assert not differs(engine, module, x, y)
    assert not engine._recorder.slow
    for wrong in (lambda _layer, x, b: {"bend": b.sum(1)}, lambda _layer, x, b: {"bend": x * b}):
        gradients.register_rule(Bent, wrong)
        engine = Gradients(module, BY_RECORD)
        with pytest.warns(UserWarning, match=r"differ from those of each record|the rule of Bent must give"):
            assert not differs(engine, module, x, y)
    with pytest.raises(errors.ArgumentError, match="a class of layers and a function"):
        gradients.register_rule(Bent(), wrong)


def owned(owner, parts):
    """Losses of 150 records that rows count in: each row in the losses of its owners, by its parts (rows, owners)."""
    torch.manual_seed(0)
    rows = torch.randn(len(owner), 4, requires_grad=True) * 1
    values = (rows.square().sum(1, keepdim=True) * parts).reshape(-1)
    losses = torch.zeros(150).index_add(0, owner.reshape(-1), values)
    edges = [torch.autograd.graph.get_gradient_edge(rows)]
    gradients = torch.autograd.grad(losses.sum(), edges, retain_graph=True)
    return _recorder._owners(losses, edges, gradients, [1])[0]


def test_the_theorem_on_powers_of_two(monkeypatch):
    """Each row is found to be of its own record. Wrong variants: one digit only; weights that are no powers."""
    owner = torch.randint(150, (400, 1), generator=torch.Generator().manual_seed(1))
    once = (torch.arange(400) % 7 > 0).float()[:, None]
    expected = torch.where(once > 0, owner, -1)[:, 0]
    assert torch.equal(owned(owner, once), expected)
    monkeypatch.setattr(_recorder, "POWERS", 128)  # beyond what float32 holds: refused, not wrong
    with pytest.raises(errors.Unsupported, match="losses of several records"):
        owned(owner, once * 100)
    monkeypatch.undo()
    monkeypatch.setattr(torch, "exp2", lambda numbers: 1.0 + numbers)
    with pytest.raises(errors.Unsupported, match="losses of several records"):
        owned(owner, once)
    monkeypatch.undo()
    monkeypatch.setattr(torch, "arange", lambda count, **_: torch.tensor(range(count)) % _recorder.POWERS)
    assert not torch.equal(owned(owner, once), expected)


@pytest.mark.parametrize("other", [0, 63, 64, 149])
@pytest.mark.parametrize("parts", [[1.0, 1.0], [1.0, 1 / 40_000], [1 / 40_000, 1.0], [-2.0, 3.0]])
def test_a_row_of_two_records_is_refused(other, parts):
    """From one part in 40,000 on, in either of the losses."""
    with pytest.raises(errors.Unsupported, match="losses of several records"):
        owned(torch.tensor([[70, other]]), torch.tensor([parts]))


def test_the_limit_of_the_theorem_on_powers_of_two():
    """A row of two records whose parts are parallel, in one proportion, is taken for a third one's."""
    assert owned(torch.tensor([[0, 2]]), torch.tensor([[2.0, 1.0]])).tolist() == [1]
    with pytest.raises(errors.Unsupported, match="losses of several records"):
        owned(torch.tensor([[0, 2]]), torch.tensor([[2.0, 1.001]]))
