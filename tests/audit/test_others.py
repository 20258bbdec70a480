"""Pipelines of other libraries, by recipes of docs/audit/pipelines.md: right ones hold, planted errors are found."""

import numpy as np
import pytest
import torch

from almoner import audit, filters, individual, mechanisms
from almoner.mechanisms import SampledGaussian
from pipelines import audited, log_loss, logistic_module, parameters, tensors

SIGMA, CLIP = 4.0, 1.0


def opacus_pipeline(*, clip=CLIP, noise=SIGMA, claimed=None):
    """Full-batch descent with an optimizer of Opacus, and gradients per record that are the caller's."""
    optimizers = pytest.importorskip("opacus.optimizers")

    def pipeline(data):
        module = logistic_module()
        optimizer = optimizers.DPOptimizer(
            torch.optim.SGD(module.parameters(), lr=0.5),
            noise_multiplier=noise / clip,
            max_grad_norm=clip,
            expected_batch_size=200,
        )
        step, account = mechanisms.Gaussian(SIGMA, CLIP), filters.Gaussian(mu=2.0)

        def add_noise():
            sums = [each.summed_grad.clone() for each in optimizer.params]

            def release():
                optimizers.DPOptimizer.add_noise(optimizer)
                return [each.grad.clone() for each in optimizer.params]

            for each, noisy in zip(optimizer.params, audit.released(release, exact=sums, mechanism=step), strict=True):
                each.grad = noisy

        optimizer.add_noise = add_noise
        x, y, _ = tensors(data)
        for _ in range(3):
            account.charge(step)
            for parameter in module.parameters():
                parameter.grad_sample = torch.zeros((len(x), *parameter.shape))
            for row in range(len(x)):
                grads = torch.autograd.grad(
                    log_loss(module(x[row : row + 1]), y[row : row + 1]).sum(), module.parameters()
                )
                for parameter, grad in zip(module.parameters(), grads, strict=True):
                    parameter.grad_sample[row] = grad
            optimizer.step()
            optimizer.zero_grad()
        return audit.Outcome(parameters(module), account)

    return pipeline


def one_record_each():
    """Twenty people of one record each."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(20, 3)) * 3
    return {"x": x, "y": (x[:, 0] > 0).astype(np.int64), "who": np.arange(20)}


@pytest.mark.parametrize(
    ("options", "rules"),
    [({}, set()), ({"clip": 3.0}, {"sensitivity", "account"}), ({"noise": 0.4}, {"noise"})],
)
def test_an_optimizer_of_opacus(options, rules):
    """Right; with a clip that is larger than stated; with a tenth of the stated noise."""
    report = audited(opacus_pipeline(**options), [2], one_record_each(), replaced=None, fresh=False)
    assert report.rules == rules, str(report)


@pytest.mark.parametrize("flaw", ["", "no coins", "paid by coin", "nobody is sampled", "no coins, nobody sampled"])
def test_samples_of_a_program_of_ones_own(flaw):
    """Coins go through the audit and decide; else samples change with the person, or all are in what few pay for."""

    def pipeline(data):
        people, rng, public = individual.Filter(30, filters.RenyiOrder(alpha=8, rho=0.3)), np.random.default_rng(), []
        step = SampledGaussian(5.0, 1.0, 0.5)
        values = np.array([data.get(person, 0.0) for person in range(30)])
        for _ in range(3):
            draw = lambda: rng.random(30)  # noqa: E731
            sampled = (draw() if "no coins" in flaw else audit.coins(draw)) < step.sample_rate
            sampled |= "nobody" in flaw  # all are in every step
            people.charge(step, values * sampled if flaw == "paid by coin" else values)
            exact = float(values[sampled].sum())
            public.append(audit.released(lambda exact=exact: exact + rng.normal(0, 5), exact=exact, mechanism=step))
        return audit.Outcome(public, people)

    data = {person: 0.5 + person / 60 for person in range(30)}
    report = audit.replay(pipeline, data, people=[3, 29], without=without_one)
    assert report.holds == (not flaw)
    if flaw:
        assert report.rules & {"sensitivity", "account"}


def test_people_who_are_not_sampled_must_not_show():
    """A number of those whom the coins leave out, such as the error of a validation, is made public without noise."""

    def pipeline(data):
        step, public = SampledGaussian(5.0, 1.0, 0.5), []
        for _ in range(3):
            sampled = audit.coins(lambda: np.random.default_rng().random(30)) < step.sample_rate
            exact = sum(data[person] for person in data if sampled[person])
            noisy = exact + np.random.default_rng().normal(0, 5)
            public.append(audit.released(lambda noisy=noisy: noisy, exact=exact, mechanism=step))
            public.append(sum(data[person] for person in data if not sampled[person]))
        return audit.Outcome(public)

    report = audit.replay(pipeline, dict.fromkeys(range(30), 1), people=[3, 29], without=without_one)
    assert report.rules == {"public"}


def test_a_replay_that_ends_with_an_error_is_a_finding():
    """Nothing would be compared with the accounts where every replay of a sampled run fails after its releases."""

    def pipeline(data):
        step = SampledGaussian(5.0, 1.0, 0.5)
        runs.append(1)
        sampled = audit.coins(lambda: np.random.default_rng().random(30)) < step.sample_rate
        exact = sum(data[person] for person in data if sampled[person])
        noisy = exact + np.random.default_rng().normal(0, 5)
        seen = audit.released(lambda: noisy, exact=exact, mechanism=step)
        if len(runs) > 1:
            raise FileExistsError("out.csv")
        return audit.Outcome(seen, filters.RenyiOrder(alpha=8, rho=0.3))  # nobody has paid

    runs = []
    data = dict.fromkeys(range(30), 1)
    report = audit.replay(pipeline, data, people=[3], without=without_one, fresh=False)
    assert report.rules == {"control flow"}
    assert "FileExistsError: out.csv" in str(report)


def without_one(data, person):
    return {k: v for k, v in data.items() if k != person}
