"""Results of short runs through every door are frozen: parameters, accounts, bounds, releases, answers and cards.

``python tests/training/test_frozen.py --write`` writes ``frozen.json`` anew. Machines differ in their kernels, so
numbers are compared with a relative tolerance; with ALMONER_EXACT=1 digests of everything are compared too, to the bit,
on the machine that wrote the file.
"""

import dataclasses
import hashlib
import json
import os
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from torch import nn

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1] / "helpers"))

import his_policies
from almoner import filters, individual, mechanisms, odometers, training
from almoner.ledger import Ledger, Terms
from almoner.training import FixedBatches, callbacks, stopping
from almoner.training._run.models import Processes
from almoner.training.correlated import Banded, BandedInverse
from almoner.training.gradients.augmentations import Views
from training_runs import BY_RECORD, dies

FILE = Path(__file__).with_name("frozen.json")
TOLERANCE = 1e-6
MOST = 400
"""An array with more entries is stored by some of them and their sum; its digest is of all."""

PEOPLE, RECORDS = 40, 80
IDS = [f"p{number}" for number in range(PEOPLE)]
RUNS = {}


# The doors: a later face is put in here alone.


SAMPLINGS = {"pace", "spend_remainder", "spread", "extra_steps"}
COMPUTES = {"views", "memory", "group"}


def taken(options, names):
    """Some of the options, which are left out of the others from here on."""
    return {name: options.pop(name) for name in names & options.keys()}


def face(options):
    """The options of a door, with the objects that some of them stand for."""
    options, budget = dict(options), {}
    if "epsilon" in options:
        budget = {"budget": training.Target(options.pop("epsilon"), options.pop("delta"))}
    if (rate := options.pop("sample_rate", None)) is not None:
        sampling = training.Poisson(rate, **taken(options, {"refresh_every", "slack", "extra_steps"}))
    elif (batches := options.pop("batches", None)) is not None:
        own = {"noise": options.pop("noise", None)} | taken(options, {"pace", "spend_remainder"})
        sampling = dataclasses.replace(batches, **own)
    else:
        sampling = training.FullBatch(**taken(options, SAMPLINGS))
    compute = training.Compute(**taken(options, COMPUTES))
    return options | budget | {"sampling": sampling, "compute": compute}


def kept(options):
    """The folder that some options name."""
    names = {"checkpoint": "path", "checkpoint_every": "every", "resume": "resume"}
    found = {names[name]: value for name, value in taken(options, set(names)).items()}
    return {"folder": training.RunFolder(**found)} if found.get("path") else {}


class Made:
    """A trainer that is made when it trains: with a ledger it is told so then."""

    def __init__(self, module, optimizer, budget, options):
        self.module, self.optimizer, self.given, self.options = module, optimizer, budget, face(options)
        self.watch = [self.options.pop("odometer")] if "odometer" in self.options else []
        if self.given is None and self.watch:
            self.given, self.watch = self.watch[0], []

    def fit(self, inputs, targets, people, *, ledger=None, ids=None, **options):
        budget = self.options.pop("budget", self.given)
        if ledger is not None:
            budget, people = dataclasses.replace(ledger, at_most=budget), [ids[number] for number in people]
        watch = [*self.watch, *(each for each in taken(options, {"losses", "counting"}).values() if each is not None)]
        self.made = training.Trainer(self.module, BY_RECORD, self.optimizer, budget, **self.options)
        return self.made.fit(inputs, targets, people, watch=watch, **kept(options), **options)

    def __getattr__(self, name):
        return getattr(self.made, name)


def trainer(module, optimizer, budget, **options):
    settings = {"max_grad_norm": 2.0, "divisor": PEOPLE, "steps": 20, "noise_multiplier": 8.0, "seed": 7} | options
    return Made(module, optimizer, budget, settings)


def fit(made, inputs, targets, people, **options):
    return made.fit(inputs, targets, people, **options)


def stream(module, optimizer, budget=None, *, ledger=None, **options):
    settings = face({"max_grad_norm": 2.0, "noise_multiplier": 6.0, "seed": 3} | options)
    watch = settings.pop("odometer", None)
    budget = ledger or settings.pop("budget", budget)
    if budget is None:
        budget, watch = watch, None
    return training.Stream(module, BY_RECORD, optimizer, budget, watch=watch, **kept(settings), **settings)


def logistic(**options):
    settings = {
        "max_grad_norm": 1.0,
        "epsilon": 1.0,
        "steps": 20,
        "learning_rate": 2.0,
        "n_people": PEOPLE,
        "classes": [0, 1],
        "seed": 11,
    }
    names = {"average", "momentum", "decay", "pace", "extra_steps", "stop_when_inactive"}
    chosen = taken(options, names)
    return training.LogisticRegression(**(settings | options), descent=training.Descent(**{"momentum": 0.0} | chosen))


def fit_logistic(model, inputs, targets, groups, **options):
    return model.fit(inputs, targets, groups, **options)


# Where a run is killed, and what takes the place of noise that no seed decides.

PLACES = {
    "before the charge": (individual.Filter, "charge"),
    "after the charge": (Processes, "noisy_total"),
    "after the release": (torch.optim.AdamW, "step"),
}


class Crash(Exception):
    """What ends a run in the middle of a step."""


@contextmanager
def crash(place, at, *, killed=False):
    """Within, the call of this number raises; or the run is killed there: nothing is written to its folder any more."""
    owner, name = PLACES[place]
    original, seen = getattr(owner, name), Counter()

    def counted(*given, **named):
        seen["calls"] += 1
        if seen["calls"] == at:
            raise Crash
        return original(*given, **named)

    with mock.patch.object(owner, name, counted), dies(Crash) if killed else pytest.raises(Crash):
        yield


@contextmanager
def known():
    """Noise without a seed is known too, and one thread does the sums."""
    made, threads = np.random.default_rng, torch.get_num_threads()
    with ExitStack() as stack:
        stack.enter_context(
            mock.patch("numpy.random.default_rng", lambda seed=None: made([9, 1] if seed is None else seed))
        )
        stack.enter_context(mock.patch("secrets.randbits", lambda bits: 12345 % 2**bits))
        torch.set_num_threads(1)
        stack.callback(torch.set_num_threads, threads)
        stack.enter_context(torch.random.fork_rng(devices=[]))
        torch.manual_seed(0)
        yield


# The problem.


def data():
    """(inputs, targets, people): two records of each person, of very different lengths."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(RECORDS, 4)) * np.geomspace(0.05, 2.0, RECORDS)[:, None]
    y = (x[:, 0] + 0.3 * rng.normal(size=RECORDS) > 0).astype(np.int64)
    return torch.from_numpy(x), torch.from_numpy(y), np.repeat(np.arange(PEOPLE), RECORDS // PEOPLE)


def network():
    """A network in double precision, always the same."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)).double()


def sgd(module, **options):
    return torch.optim.SGD(module.parameters(), **({"lr": 1.0} | options))


def adam(module):
    return torch.optim.AdamW(module.parameters(), lr=0.05)


def gaussian():
    return filters.Gaussian(epsilon=1.0, delta=1e-5)


def large():
    return filters.Gaussian(epsilon=4.0, delta=1e-5)


def renyi_order():
    return filters.RenyiOrder(epsilon=2.0, delta=1e-5, alpha=8)


def opened(folder):
    """The ledger of a folder, made where there is none."""
    path, budget = folder / "l", filters.Zcdp(epsilon=2.0, delta=1e-6)
    return Ledger.open(path, Terms(budget, person="VARCHAR"), create=not path.exists())


def flat(module):
    return torch.cat([each.detach().reshape(-1) for each in module.parameters()]).tolist()


# What is told about a run: lists and numbers.


def of_accounts(accounts):
    """Units where there are any, else what was spent."""
    state = accounts.state() if hasattr(accounts, "state") else None
    return np.asarray(accounts.spent() if state is None else state["spent"]).ravel().tolist()


def of_card(card):
    """All numbers of a card, and what was released."""
    told = card.to_dict()
    numbers = {k: v for k, v in told.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    return numbers | {"released": told["released"]}


def of_answer(answer):
    """The last answer of who counts drops; None: nobody counts."""
    if answer is None:
        return None
    fields = {each.name: getattr(answer, each.name) for each in dataclasses.fields(answer)}
    return fields | {"price": mechanisms.to_fields(answer.price)}


def of_losses(losses):
    return {name: np.asarray(part).astype(float).ravel().tolist() for name, part in losses.state().items()}


def of_ledger(book):
    kinds = Counter(entry.kind for entry in book.entries())
    return {"spent": [book.spent(person) for person in IDS], "entries": dict(sorted(kinds.items()))}


def of_trainer(made, run, *, budget=True, bounds=False, losses=None):
    """All that a run of a trainer tells."""
    told = {
        "parameters": flat(made.module),
        "step": run.step,
        "reason": run.reason,
        "answers": [list(each) for each in run.answers],
        "now": [run.max_grad_norm, run.noise_multiplier, run.sample_rate or 1.0],
    }
    if budget:
        told["spent"] = of_accounts(made.accounts)
    told["card"] = of_card(made.card())
    if bounds:
        told["bounds"] = np.asarray(made.odometer.epsilon(delta=1e-5)).ravel().tolist()
    if losses is not None:
        told["losses"] = of_losses(losses)
    if run.counting is not None:
        told["counting"] = of_answer(run.counting)
    return told


def of_stream(made, *, budget=True, bounds=False):
    """All that a stream tells."""
    told = {"parameters": flat(made.module), "number": made.number, "card": of_card(made.card())}
    if budget:
        told["spent"] = of_accounts(made.accounts)
    if bounds:
        told["bounds"] = np.asarray(made.odometer.epsilon(delta=1e-5)).tolist()
    return told


def of_model(model, *, accounts=True):
    """All that an estimator tells."""
    told = {
        "parameters": [*model.coef_.ravel().tolist(), *model.intercept_.ravel().tolist()],
        "steps": int(model.n_iter_),
        "card": of_card(model.card_),
        "counting": of_answer(model.counting_),
    }
    if accounts:
        told["spent"] = of_accounts(model.accounts_.people)
    return told


# The runs.


def run(name):
    """Keep a function without parameters under this name."""

    def keep(function):
        RUNS[name] = function
        return function

    return keep


def trained(budget=gaussian, *, optimizer=sgd, fitted=None, losses=None, budgeted=True, **options):
    """A run of a trainer on the problem, told."""
    module = network()
    made = trainer(module, optimizer(module), budget and budget(), **options)
    done = fit(made, *data(), **({} if losses is None else {"losses": losses}), **(fitted or {}))
    return of_trainer(made, done, budget=budgeted, bounds="odometer" in options, losses=losses)


def planned():
    """A budget for a plan of fifteen sampled steps, of twenty that are taken."""
    return filters.Planned(
        epsilon=3.0, delta=1e-5, plan=mechanisms.Repeated(mechanisms.SampledGaussian(4 * 3.0, 3.0, 0.2), 15)
    )


def bound():
    return odometers.Gaussian(delta=1e-5)


def fresh_losses():
    return individual.Losses(PEOPLE, least=1.0, most=1000.0)


POISSON = {"noise_multiplier": 4.0, "sample_rate": 0.2}
SHARES = np.linspace(0.1, 1.0, PEOPLE)

RUNS |= {
    "full batch": trained,
    "full batch, pace 0": lambda: trained(pace=0.0),
    "full batch, pace 0.5": lambda: trained(pace=0.5),
    "full batch, people without budget are left out": lambda: trained(spend_remainder=False),
    "full batch, worst case until the budget is spent": lambda: trained(individual=False, steps=None),
    "full batch, extra steps": lambda: trained(extra_steps=8, noise_multiplier=None),
    "full batch, epsilon and delta": lambda: trained(None, epsilon=1.0, delta=1e-5, noise_multiplier=None),
    "full batch, zcdp": lambda: trained(lambda: filters.Zcdp(epsilon=1.0, delta=1e-5)),
    "Poisson, planned": lambda: trained(planned, max_grad_norm=3.0, **POISSON),
    "Poisson, own samples": lambda: trained(renyi_order, **POISSON),
    "Poisson, refresh every 3": lambda: trained(renyi_order, refresh_every=3, **POISSON),
    "Poisson, slack 1.5": lambda: trained(renyi_order, slack=1.5, **POISSON),
    "Poisson, extra steps": lambda: trained(renyi_order, extra_steps=5, **POISSON),
    "Poisson, worst case": lambda: trained(renyi_order, individual=False, **POISSON),
    "Poisson, losses": lambda: trained(renyi_order, losses=fresh_losses(), **POISSON),
    "full batch, Renyi at many orders": lambda: trained(lambda: filters.Renyi(epsilon=1.0, delta=1e-5)),
    "fixed batches, banded": lambda: trained(batches=FixedBatches(size=8), noise=Banded(3), steps=15),
    "fixed batches, inverse banded": lambda: trained(batches=FixedBatches(size=8), noise=BandedInverse(3), steps=15),
    "fixed batches, independent noise": lambda: trained(
        batches=FixedBatches(size=8), noise=Banded(1), steps=15, noise_multiplier=4.0, pace=0.0
    ),
    "odometer beside a budget": lambda: trained(odometer=bound()),
    "odometer alone": lambda: trained(None, odometer=bound(), budgeted=False),
    "odometer alone, worst case": lambda: trained(None, odometer=bound(), individual=False, budgeted=False),
    "losses": lambda: trained(losses=fresh_losses()),
    "shares": lambda: trained(fitted={"shares": SHARES}),
    "AdamW": lambda: trained(optimizer=adam),
    "momentum": lambda: trained(optimizer=lambda module: sgd(module, lr=0.3, momentum=0.9, nesterov=True)),
    "views": lambda: trained(views=Views(shaken, count=3, seed=5), steps=10),
}


def shaken(x, generator):
    """Records with noise of the generator."""
    return x + 0.1 * torch.randn(x.shape, generator=generator, dtype=x.dtype)


@run("counts of drops")
def drops():
    def count(people):
        return stopping.Dropouts(people, stopping.Tree(steps=20, sigma=6.0), noise=np.random.default_rng(4))

    return trained(large, pace=0.0, noise_multiplier=2.0, losses=fresh_losses(), fitted={"counting": count})


@run("still active")
def still_active():
    def count(people):
        return stopping.StillActive(people, at_least=25.0, epsilon=0.2, noise=np.random.default_rng(4))

    budget = filters.Zcdp(epsilon=1.0, delta=1e-5)
    return trained(lambda: budget, pace=0.0, noise_multiplier=14.0, fitted={"counting": count})


@run("callback: the clip follows a quantile")
def adaptive_clip():
    return trained(fitted={"callbacks": [callbacks.AdaptiveClip(every=3)]})


@run("callback: adaptive noise")
def adaptive_noise():
    callback = his_policies.AdaptiveNoise(by=1.0, every=1, epoch=3, sigma=20.0, epochs_left=1)
    return trained(fitted={"callbacks": [callback]})


@run("callback: adaptive batch")
def adaptive_batch():
    callback = his_policies.AdaptiveBatch(by=0.02, least=0.1, every=1, epoch=3, sigma=20.0, epochs_left=1)
    return trained(renyi_order, fitted={"callbacks": [callback]}, **POISSON)


@run("callbacks: noise falls, and falls on a plateau")
def falling_noise():
    both = [
        his_policies.ReduceNoiseOnPlateau(by=0.5, least=4.0, epoch=4, sigma=20.0),
        callbacks.DecreasingNoise(factor=0.9, every=3, least=4.0),
    ]
    return trained(fitted={"callbacks": both})


@run("callback: early stopping")
def early_stopping():
    callback = callbacks.EarlyStopping(patience=2, every=2, odometer=bound(), sigma=20.0)
    told = trained(individual=False, noise_multiplier=20.0, fitted={"callbacks": [callback]})
    return told | {"cost": callback.odometer.ex_post_epsilon()}


@run("people with ids and several records each")
def people_with_ids():
    module, (x, y, _) = network(), data()
    made = trainer(module, sgd(module), gaussian())
    who = [f"person {(number * number) % 23}" for number in range(RECORDS)]
    return of_trainer(made, fit(made, x, y, who))


@run("embedding and LSTM")
def recurrent():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.inner, self.out = nn.Embedding(7, 3), nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 2)

        def forward(self, words):
            return self.out(self.inner(self.words(words))[0].mean(1))

    torch.manual_seed(1)
    module = Recurrent().double()
    words = torch.from_numpy(np.random.default_rng(2).integers(0, 7, (RECORDS, 5)))
    made = trainer(module, sgd(module), gaussian(), steps=8)
    return of_trainer(made, fit(made, words, *data()[1:]))


@run("accounts of the caller's, used before")
def callers_accounts():
    accounts, module = individual.Filter(PEOPLE, gaussian()), network()
    accounts.charge(mechanisms.Gaussian(20.0, 1.0), np.linspace(0.0, 1.0, PEOPLE))
    made = trainer(module, sgd(module), accounts)
    return of_trainer(made, fit(made, *data()))


@run("a caller's question")
def question():
    def ask(run):
        if run.step % 5 == 0:
            run.noisy_sum(lambda outputs, _: outputs.softmax(1)[:, 0], sigma=20.0, name="first")
        if run.step == 12:
            run.stop("enough")

    return trained(fitted={"callbacks": [ask]})


@run("the parameters explode")
def exploded():
    return trained(optimizer=lambda module: sgd(module, lr=1e16))


@run("checkpoint, worst case, error after the charge")
def worst_case_resumed():
    with tempfile.TemporaryDirectory() as folder:
        saved = {"checkpoint": Path(folder) / "kept", "checkpoint_every": 3}
        options = {"optimizer": adam, "individual": False, "steps": None, "noise_multiplier": 4.0}
        with crash("after the charge", 8):
            trained(large, fitted=saved, **options)
        return trained(large, fitted=saved | {"resume": True}, **options)


@run("checkpoint, shares, a clip that moves, error after the release")
def shares_resumed():
    with tempfile.TemporaryDirectory() as folder:
        saved = {"checkpoint": Path(folder) / "kept", "checkpoint_every": 3}
        for resume in (False, True):
            fitted = saved | {"resume": resume, "shares": SHARES, "callbacks": [callbacks.AdaptiveClip(every=3)]}
            if not resume:
                with crash("after the release", 8):
                    trained(large, optimizer=adam, fitted=fitted)
        return trained(large, optimizer=adam, fitted=fitted)


KINDS = {
    "full batch": (lambda: filters.Gaussian(epsilon=2.0, delta=1e-5), {}),
    "Poisson": (renyi_order, POISSON),
    "fixed batches": (gaussian, {"batches": FixedBatches(size=8), "noise": Banded(3)}),
}


def resumed(kind, place, killed, folder):
    """A run that ends in its eighth step, and goes on from its folder."""
    (budget, options), watched = KINDS[kind], kind == "full batch"
    for resume in (False, True):
        module, losses = network(), fresh_losses() if watched else None
        extra = {"odometer": bound()} if watched else {}
        made = trainer(module, adam(module), budget(), **options, **extra)
        saved = {"checkpoint": folder, "checkpoint_every": 3, "resume": resume, "losses": losses}
        if not resume:
            with crash(place, 8, killed=killed):
                fit(made, *data(), **saved)
    done = fit(made, *data(), **saved)
    return of_trainer(made, done, bounds=watched, losses=losses)


def in_folder(function, *given):
    """The function with a folder of its own as the last argument."""

    def ran():
        with tempfile.TemporaryDirectory() as folder:
            return function(*given, Path(folder) / "kept")

    return ran


RUNS |= {
    f"checkpoint, {kind}, error {place}": in_folder(resumed, kind, place, False) for kind in KINDS for place in PLACES
}
RUNS |= {f"checkpoint, {kind}, killed": in_folder(resumed, kind, "after the charge", True) for kind in KINDS}


def held(place, folder):
    """A run on a ledger, which an error ends in its eighth step or not."""
    folder.mkdir()
    with opened(folder) as book:
        on = training.OnLedger(book, key="k")
        for resume in (False, True) if place else (False,):
            module = network()
            made = trainer(module, adam(module), gaussian(), seed=None, steps=12)
            saved = {"checkpoint": folder / "run", "checkpoint_every": 3, "resume": resume} if place else {}
            if place and not resume:
                with crash(place, 8):
                    fit(made, *data(), ledger=on, ids=IDS, **saved)
        done = fit(made, *data(), ledger=on, ids=IDS, **saved)
        return of_trainer(made, done) | {"ledger": of_ledger(book)}


RUNS["trainer on a ledger"] = in_folder(held, None)
RUNS |= {f"trainer on a ledger, error {place}": in_folder(held, place) for place in PLACES}


def updates(start=0):
    """Updates of some people: twelve of forty in each, with ids."""
    rng, (x, y, _) = np.random.default_rng(1), data()
    drawn = [(rng.choice(PEOPLE, 12), rng.choice(RECORDS, 12)) for _ in range(12)]
    for who, rows in drawn[start:]:
        yield x[rows], y[rows], [IDS[number] for number in who]


def streamed(budget=gaussian, *, optimizer=sgd, budgeted=True, bounds=False, **options):
    """A stream of all updates, told."""
    module = network()
    with stream(module, optimizer(module), budget and budget(), **options) as made:
        for each in updates():
            made.update(*each, divisor=12)
        return of_stream(made, budget=budgeted, bounds=bounds)


RUNS |= {
    "stream": streamed,
    "stream, odometer beside": lambda: streamed(odometer=bound(), bounds=True),
    "stream, odometer alone": lambda: streamed(None, odometer=bound(), budgeted=False, bounds=True),
    "stream, people without budget are left out": lambda: streamed(spend_remainder=False, noise_multiplier=3.0),
    "stream, spread": lambda: streamed(spread=4, noise_multiplier=3.0),
    "stream, number of updates": lambda: streamed(
        None, epsilon=1.0, delta=1e-5, updates=3, noise_multiplier=None, optimizer=adam
    ),
}


def stream_resumed(place, folder):
    """A stream that an error ends in its eighth update, and goes on from its folder."""
    for resume in (False, True):
        module = network()
        options = {"odometer": bound(), "checkpoint": folder, "resume": resume}
        made = stream(module, adam(module), gaussian(), **options)
        with made:
            if not resume:
                with crash(place, 8):
                    for each in updates():
                        made.update(*each, divisor=12)
            else:
                for each in updates(made.number):
                    made.update(*each, divisor=12)
                return of_stream(made, bounds=True)
    raise AssertionError


def stream_on_ledger(place, folder):
    """A stream on a ledger, which an error ends in its eighth update or not; the ledger is opened anew then."""
    folder.mkdir()
    for resume in (False, True) if place else (False,):
        with opened(folder) as book:
            module, kept = network(), {"checkpoint": folder / "s", "resume": resume} if place else {}
            on = training.OnLedger(book, key="k")
            with stream(module, adam(module), ledger=on, seed=None, noise_multiplier=8.0, **kept) as made:
                if place and not resume:
                    with crash(place, 8):
                        for each in updates():
                            made.update(*each, divisor=12)
                    continue
                for each in updates(made.number):
                    made.update(*each, divisor=12)
                return of_stream(made, budget=False) | {"ledger": of_ledger(book)}
    raise AssertionError


RUNS |= {f"stream, error {place}": in_folder(stream_resumed, place) for place in PLACES}
RUNS["stream on a ledger"] = in_folder(stream_on_ledger, None)
RUNS |= {
    f"stream on a ledger, error {place}": in_folder(stream_on_ledger, place)
    for place in ("after the charge", "after the release")
}


def descended(**options):
    """Plain descent with accounts per person, told."""
    chosen = taken(options, {"average", "momentum", "decay", "pace"})
    x, y, _ = data()
    gradients = training.LogisticGradients(x.numpy(), y.numpy(), 2, intercept=True)
    accounts, seen = individual.Filter(RECORDS, gaussian()), []
    found = training.descend(
        gradients,
        gradients.start,
        accounts,
        mechanisms.Gaussian(8.0, 1.0),
        steps=20,
        learning_rate=3.0,
        divisor=80.0,
        noise=np.random.default_rng(5),
        observe=lambda number, _: seen.append(number),
        descent=training.Descent(**{"momentum": 0.0} | chosen) if chosen else None,
        **options,
    )
    return {"parameters": found.ravel().tolist(), "spent": of_accounts(accounts), "steps": len(seen)}


RUNS |= {
    "descend": descended,
    "descend, momentum, decay and average": lambda: descended(momentum=0.9, decay=0.5, average=0.5),
    "descend, pace 0, stopped": lambda: descended(pace=0.0, average=0.5, stop=lambda step: step >= 15, planned=10),
}


def fitted(*, classes=2, accounts=True, **options):
    """An estimator on the problem, told."""
    x, y, groups = (np.asarray(each) for each in data())
    if classes > 2:
        y = np.digitize(x[:, 0], [-0.3, 0.3])
    return of_model(fit_logistic(logistic(classes=range(classes), **options), x, y, groups), accounts=accounts)


INACTIVE = {"stop_when_inactive": 0.3, "extra_steps": 10, "pace": 0.0, "steps": 10}

RUNS |= {
    "logistic regression": fitted,
    "logistic regression, three classes": lambda: fitted(classes=3, extra_steps=5),
    "logistic regression, worst case": lambda: fitted(individual=False, accounts=False),
    "logistic regression, stopped": lambda: fitted(**INACTIVE, epsilon=2.0),
    "logistic regression, people counted": lambda: fitted(n_people=None, learning_rate=None),
    "logistic regression, momentum, decay, no intercept": lambda: fitted(
        momentum=0.5, decay=0.5, average=0.3, fit_intercept=False, pace=0.0
    ),
}


@run("logistic regression on a ledger")
def logistic_on_ledger():
    x, y, groups = (np.asarray(each) for each in data())
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder)) as book:
        on = training.OnLedger(book, key="k")
        model = fit_logistic(logistic(seed=None), x, y, [IDS[number] for number in groups], ledger=on)
        return of_model(model) | {"ledger": of_ledger(book)}


def called(folder, *, ledger=False, kept=False):
    """Eight calls of partial_fit, with the model read from its folder before the fifth; told."""
    folder.mkdir()
    with ExitStack() as stack:
        options, on = {}, None
        if kept:
            options["folder"] = folder / "m"
        if ledger:
            book = stack.enter_context(opened(folder))
            on = options["ledger"] = training.OnLedger(book, key="k")
        own = {"epsilon": None, "seed": None} if ledger else {}
        model = logistic(**({"steps": 3, "n_people": 12, "learning_rate": 1.0} | own))
        for number, (x, y, who) in enumerate(updates(4)):
            if kept and number == 4:
                model = training.LogisticRegression.resume(folder / "m", **({"ledger": on} if ledger else {}))
                options = {}
            model.partial_fit(x.numpy(), y.numpy(), who, **(options if number == 0 else {}))
        told = of_model(model, accounts=not ledger)
        return told | ({"ledger": of_ledger(book)} if ledger else {})


RUNS |= {
    "partial_fit": in_folder(called),
    "partial_fit from a folder": in_folder(lambda folder: called(folder, kept=True)),
    "partial_fit on a ledger": in_folder(lambda folder: called(folder, ledger=True)),
    "partial_fit on a ledger, from a folder": in_folder(lambda folder: called(folder, ledger=True, kept=True)),
}


@run("search")
def searched():
    one = logistic(steps=10, epsilon=1.0, seed=None, learning_rate=None)
    search = training.PrivateSearch(one, {"learning_rate": [0.1, 2.0]}, epsilon=1.0, runs=3, seed=1)
    x, y, groups = (np.asarray(each) for each in data())
    search.fit(x, y, groups)
    return of_model(search.best_estimator_, accounts=False) | {
        "score": search.best_score_,
        "chosen": search.best_params_,
        "card": of_card(search.card_),
    }


# Storing and comparing.


def results(name):
    """What is frozen of a run: everything told, long lists shortened, and the digest of everything."""
    with known():
        told = RUNS[name]()
    text = json.dumps(told, sort_keys=True)  # numbers by repr: to the bit
    return {**_shortened(json.loads(text)), "digest": hashlib.sha256(text.encode()).hexdigest()}


def _shortened(told):
    if isinstance(told, dict):
        return {name: _shortened(part) for name, part in told.items()}
    if isinstance(told, list) and len(told) > MOST:
        return {"entries": len(told), "sum": float(np.sum(told)), "some": told[:: len(told) // 100]}
    return told


def differences(found, frozen, where=""):
    """Where two results differ by more than rounding on another machine."""
    if isinstance(frozen, dict) and isinstance(found, dict):
        keys = sorted((found.keys() | frozen.keys()) - {"digest"})
        return [each for key in keys for each in differences(found.get(key), frozen.get(key), f"{where}/{key}")]
    if isinstance(frozen, list) and isinstance(found, list):
        try:
            a, b = np.asarray(found, dtype=np.float64), np.asarray(frozen, dtype=np.float64)
        except (TypeError, ValueError):
            pairs = enumerate(zip(found, frozen, strict=False))
            nested = [each for number, (x, y) in pairs for each in differences(x, y, f"{where}/{number}")]
            return nested + ([] if len(found) == len(frozen) else [f"{where}: {len(found)}, not {len(frozen)}"])
        limit = TOLERANCE * np.abs(b).max(initial=0.0, where=np.isfinite(b))
        same = a.shape == b.shape and np.allclose(a, b, rtol=TOLERANCE, atol=limit, equal_nan=True)
        return [] if same else [where]
    if isinstance(frozen, int | float) and isinstance(found, int | float):
        return [] if found == pytest.approx(frozen, rel=TOLERANCE, abs=0.0) else [f"{where}: {found}, not {frozen}"]
    return [] if found == frozen else [f"{where}: {found!r}, not {frozen!r}"]


def stored():
    return json.loads(FILE.read_text(encoding="utf-8"))


def test_each_run_is_frozen():
    """The file has each run and no other."""
    assert sorted(stored()) == sorted(RUNS)


@pytest.mark.filterwarnings("ignore:Secure RNG", "ignore:Full backward hook is firing", "ignore:Expected mean of")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if "ledger" in name or "error" in name else name for name in RUNS],
)
def test_results_are_the_frozen_ones(name):
    """Everything that a run tells is as it was, whatever was changed inside."""
    found, frozen = results(name), stored()[name]
    assert differences(found, frozen) == []
    if os.environ.get("ALMONER_EXACT") == "1":
        assert found["digest"] == frozen["digest"], f"{name}: equal up to rounding, not to the bit"


def test_controls_differ():
    """Another seed, and another refresh interval, are told apart: in parameters and in accounts."""
    with known():
        seed, refresh = trained(seed=8), trained(renyi_order, refresh_every=4, **POISSON)
    frozen = stored()
    for found, name in ((seed, "full batch"), (refresh, "Poisson, refresh every 3")):
        places = {place.partition(":")[0] for place in differences(_shortened(found), frozen[name])}
        assert {"/parameters", "/spent"} <= places, name


def write(names):
    """Write the file anew: all runs, or those that are named, in place of what it has of them."""
    kept = {name: each for name, each in stored().items() if name in RUNS} if names else {}
    made = kept | {name: results(name) for name in (names or RUNS)}
    lines = (f"{json.dumps(name)}: {json.dumps(made[name], sort_keys=True)}" for name in sorted(made))
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] != ["--write"]:
        raise SystemExit("usage: python tests/training/test_frozen.py --write [run ...]")
    write(sys.argv[2:])
