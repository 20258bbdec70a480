"""Small pipelines of every door for replay audits: fifty people, several records each, and budgets that run out."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import nn

from almoner import audit, filters, training
from almoner.audit._calls import account_of
from almoner.queries import Count, Histogram, Keys, Mean, People, Session, Sum
from almoner.training import FixedBatches
from almoner.training.callbacks import AdaptiveClip
from almoner.training.correlated import Banded, BandedInverse
from almoner.training.stopping import Dropouts, StillActive, Tree
from terms import grouped

PEOPLE = 50
RECORDS = 200


def records(seed=1):
    """{name: array} of RECORDS records of PEOPLE people: x of three numbers, a label y, and whose each is."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(RECORDS, 3)) * rng.gamma(1.0, 2.0, size=(RECORDS, 1))
    who = np.concatenate([np.arange(PEOPLE), rng.integers(0, PEOPLE, RECORDS - PEOPLE)])
    return {"x": x, "y": (x[:, 0] + rng.normal(size=RECORDS) > 0).astype(np.int64), "who": who}


def without(data, person):
    """The records of all others; the last person's number stays known."""
    stay = data["who"] != person
    return {name: part[stay] for name, part in data.items()}


def replaced(data, person):
    """Other records of the same person."""
    own = data["who"] == person
    other = {name: part.copy() for name, part in data.items()}
    other["x"][own] = -3 * other["x"][own] + 1
    other["y"][own] = 1 - other["y"][own]
    return other


def audited(pipeline, people=range(0, PEOPLE, 10), data=None, **options):
    """The report of a pipeline on records."""
    given = {"without": without, "replaced": replaced, **options}
    return audit.replay(pipeline, records() if data is None else data, people=people, **given)


def logistic_module():
    """A linear model with one output."""
    module = nn.Linear(3, 1)
    with torch.no_grad():
        module.weight.zero_()
        module.bias.zero_()
    return module


def log_loss(output, targets):
    """The logistic loss of each record."""
    return nn.functional.binary_cross_entropy_with_logits(output[:, 0], targets.float(), reduction="none")


def tensors(data):
    """Inputs, targets and people, where every person has a number whether or not they have records."""
    return torch.from_numpy(data["x"]).float(), torch.from_numpy(data["y"]), torch.from_numpy(data["who"])


def parameters(module):
    """What is public of a module."""
    return [each.detach().clone() for each in module.parameters()]


def trainer(budget=None, *, ask=False, counting=None, policy=None, **options):
    """A pipeline that trains with ``Trainer``."""

    def pipeline(data):
        module = logistic_module()
        own = {"max_grad_norm": 1.0, "divisor": 50, "steps": 6, "noise_multiplier": 5.0} | options
        given = filters.Gaussian(mu=0.4) if budget is None else budget()
        run = training.Trainer(module, log_loss, torch.optim.SGD(module.parameters(), lr=1.0), given, **own)
        seen = []

        def look(state):
            seen.append(parameters(module))
            if ask and state.step == 3:
                seen.append(state.noisy_sum(right, sigma=20.0))

        done = run.fit(*tensors(data), callbacks=[look, *([] if policy is None else [policy])], watch=counting)
        accounts = run.accounts if own.get("odometer") is None else None
        return audit.Outcome([seen, done.reason, list(done.released.items())], accounts)

    return pipeline


def right(output, targets):
    """Which answers are right."""
    return ((output[:, 0] > 0) == (targets > 0)).float()


def stream(data):
    """A pipeline of five updates, each of the people who came."""
    module, seen = logistic_module(), []
    own = {"max_grad_norm": 1.0, "noise_multiplier": 5.0}
    job = training.Stream(
        module, log_loss, torch.optim.SGD(module.parameters(), lr=1.0), filters.Gaussian(mu=0.3), **own
    )
    x, y, who = tensors(data)
    for day in range(5):
        here = (who + day) % 5 < 3
        job.update(x[here], y[here], who[here].tolist(), divisor=20)
        seen.append(parameters(module))
    return audit.Outcome([seen, job.number], job.accounts)


def logistic(**options):
    """A pipeline of ``LogisticRegression``; the accounts of the people who are there."""
    own = {"epsilon": 1.0, "delta": 1e-5, "steps": 5, "classes": [0, 1]} | options

    def pipeline(data):
        model = training.LogisticRegression(**own).fit(data["x"], data["y"], groups=data["who"])
        there = {person: row for row, person in enumerate(np.unique(data["who"]))}
        kept = getattr(model, "accounts_", None)

        def account(person):
            return None if kept is None or person not in there else account_of(kept.people, there[person])

        return audit.Outcome([model.coef_, model.intercept_, model.card_.divisor, model.n_iter_], account)

    return pipeline


def table(data):
    """The records as a table about people."""
    x = data["x"]
    columns = {"who": [f"p{person}" for person in data["who"]], "a": 20 + 5 * x[:, 0], "b": x[:, 1].astype(int)}
    return pa.table(columns | {"kind": ["even" if label else "odd" for label in data["y"]]})


def table_without(rows, person):
    """The rows of all others."""
    return rows.filter(pc.not_equal(rows["who"], person))


def table_replaced(rows, person):
    """Other rows of the same person."""
    other = [
        30.0 - a if who == person else a for who, a in zip(rows["who"].to_pylist(), rows["a"].to_pylist(), strict=True)
    ]
    return rows.set_column(rows.column_names.index("a"), "a", pa.array(other))


def session(budget=None, *, questions=8, rho=0.02, asked=None, watch=True, place=None, **options):
    """A pipeline that asks so many questions, each chosen by the answer before; ``place`` gives new ledgers' places."""

    def where(folder):
        return Path(folder) / "ledger" if place is None else place()

    def pipeline(rows):
        own = {"person": "who", "keys_delta": 1e-6, "threads": 1} | options
        given = filters.Gaussian(epsilon=4.0, delta=1e-6) if budget is None else budget()
        with (
            tempfile.TemporaryDirectory() as folder,
            Session.open(
                **grouped({"data": rows, "budget": given, "ledger": where(folder), "create": True} | own)
            ) as held,
        ):
            if watch:
                held.watch(people=5, epsilon=0.3)
            analyst, told = held.analyst("ann"), []
            for number in range(questions):
                kinds = (
                    kinds_of(rho, 10 + (told[-1].released or [5])[0] % 17 if told else 15) if not asked else asked(told)
                )
                told.append(analyst.ask(kinds[number % len(kinds)], key=str(number), anyway=True))
            yield audit.Outcome([told, held.ledger.measure], held)

    return pipeline


def kinds_of(rho, threshold):
    """A question of each kind."""
    where = f"a > {threshold}"
    return [
        Count(clip=4, rho=rho, where=where),
        Sum("a", 0, 40, clip=3, rho=rho),
        Mean("a", 0, 40, clip=1, rho=rho, by={"kind": ["even", "odd"]}),
        Histogram("a", [0, 10, 20, 30, 40], clip=1, rho=rho),
        People(rho=rho, where=where),
        Keys("b", most=2, rho=rho, delta=1e-7),
    ]


def asked_of(rows, pipeline, people=5, **options):
    """The report of a pipeline on a table."""
    given = {"without": table_without, "replaced": table_replaced, **options}
    named = [f"p{number}" for number in range(people)] if isinstance(people, int) else people
    return audit.replay(pipeline, rows, people=named, **given)


def _trained(**options):
    """An audit of a trainer by how many people are removed."""
    return lambda people, **more: audited(trainer(**options), range(1, 1 + people), **more)


UNPACED = training.FullBatch(pace=0.0)
LAPLACE = {"budget": lambda: filters.Basic(epsilon=3.0), "keys_delta": None}

DOORS = {
    "Trainer": _trained(ask=True),
    "Trainer, adaptive clip": _trained(policy=AdaptiveClip(rate=1.0, sigma=8.0)),
    "Trainer, worst case": _trained(budget=lambda: filters.Gaussian(mu=1.0), individual=False),
    "Trainer, Residue": _trained(budget=lambda: filters.Residue(epsilon=1.0, delta=1e-6), noise_multiplier=8.0),
    "Trainer, sampled": _trained(budget=lambda: filters.RenyiOrder(alpha=8, rho=0.2), sampling=training.Poisson(0.3)),
    "Trainer, Banded": _trained(sampling=FixedBatches(10, noise=Banded(3)), steps=12),
    "Trainer, BandedInverse": _trained(sampling=FixedBatches(10, noise=BandedInverse(3)), steps=12),
    "Trainer, drop-outs": _trained(sampling=UNPACED, counting=lambda each: Dropouts(each, Tree(6, 20.0))),
    "Trainer, still active": _trained(
        budget=lambda: filters.Zcdp(rho=0.1),
        sampling=UNPACED,
        counting=lambda each: StillActive(each, at_least=25, epsilon=0.1),
    ),
    "Stream": lambda people, **more: audited(stream, range(1, 1 + people), **more),
    "LogisticRegression": lambda people, **more: audited(logistic(), range(1, 1 + people), **more),
    "LogisticRegression, worst case": lambda people, **more: audited(
        logistic(individual=False, n_people=PEOPLE), range(1, 1 + people), **more
    ),
    "LogisticRegression, stopping": lambda people, **more: audited(
        logistic(descent=training.Descent(extra_steps=4, pace=0.5, stop_when_inactive=0.3)),
        range(1, 1 + people),
        **more,
    ),
    "Session": lambda people, **more: asked_of(table(records()), session(), people, **more),
    "Session, Laplace": lambda people, **more: asked_of(
        table(records()),
        session(asked=lambda told: [Count(clip=2, epsilon=0.3), Sum("a", 0, 40, clip=2, epsilon=0.4)], **LAPLACE),
        people,
        **more,
    ),
    "Session, zCDP": lambda people, **more: asked_of(
        table(records()), session(lambda: filters.Zcdp(rho=0.2), questions=6), people, **more
    ),
}
"""Each door, as an audit with so many people removed."""
