"""Cards: what was promised and released, as data; words only in Markdown."""

import dataclasses
import html
import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

import training_cards
from almoner import errors, filters, individual, mechanisms, training
from almoner.training import stopping
from training_runs import N, trainer


def test_the_card_says_what_was_promised_and_released(data):
    """Epsilon, delta, theorem, noise, and every mechanism with its count; nothing about single people."""
    x, y = data
    job = trainer(filters.RenyiOrder(alpha=8.0, rho=0.3), sampling=training.Poisson(0.1), noise_multiplier=2.0)
    job.fit(x, y)
    with pytest.raises(errors.ArgumentError, match="delta=None"):
        job.card()
    card = job.card(delta=1e-5)
    assert card.epsilon == pytest.approx(0.3 + np.log(7 / 8) - np.log(8e-5) / 7)
    assert "20 times SampledGaussian(sigma=2.0" in card.to_markdown()
    assert "Rényi" in card.to_markdown() or "Renyi" in card.to_markdown()
    assert card.divisor == 40.0
    assert trainer_repr_is_public(job)


def trainer_repr_is_public(job):
    return "spent" not in repr(job.holder_report) and "0." not in repr(job.holder_report)


def test_the_card_s_page_says_what_its_markdown_says(data):
    """Each point of the card is on the page, escaped, with the odds as a bar; a seed is warned of first."""
    x, y = data
    job = trainer(filters.Gaussian(epsilon=1.0, delta=1e-5), steps=2, seed=1)
    job.fit(x, y)
    card = dataclasses.replace(job.card(), record="training '<img src=x>', entry 1")
    page, points = card.to_html(), re.findall(r"^- \*\*(.*?)\*\*: (.*)$", card.to_markdown(), re.M)
    assert len(points) > 10
    for name, said in points:
        assert html.escape(said) in page, name
    assert "<img" not in page
    assert "://" not in page
    assert page.index("This model is not private") < page.index("differential privacy")
    assert f'class="used" x="0" y="0" width="{100 * card.guess:.3f}"' in page


def test_the_card_says_who_counts_as_a_person(data):
    """Without numbers of people the promise is about one record; the card must not speak of all of a person's."""
    x, y = data
    job = trainer(filters.Gaussian(epsilon=1.0, delta=1e-5), steps=2)
    job.fit(x, y)
    assert "each record is treated as a different person; the caller declared this" in job.card().to_markdown()
    assert job.card().people_from == "record"
    job = trainer(filters.Gaussian(epsilon=1.0, delta=1e-5), steps=2)
    job.fit(x, y, torch.arange(N) // 2)
    assert "all records of one person together" in job.card().to_markdown()
    assert job.card().people_from == "group"


def test_the_card_of_a_run_that_changed_its_noise_does_not_speak_of_every_step(data):
    """It lists what was released; with samples nobody's remainder is spent."""
    x, y = data
    job = trainer(filters.RenyiOrder(alpha=8.0, rho=1.0), sampling=training.Poisson(0.5), noise_multiplier=8.0, steps=4)

    def louder(run):
        run.noise_multiplier = 8.0 if run.step < 2 else 16.0

    job.fit(x, y, callbacks=[louder])
    words = job.card(delta=1e-5).to_markdown()
    assert "every step" not in words
    assert "spends the remainder" not in words
    assert "theory 5.6 for Poisson samples" in words
    assert "2 times SampledGaussian(sigma=16.0, sensitivity=1.0, sample_rate=0.5)" in words


def test_the_card_and_the_accounts_keep_the_budget_they_were_made_with(data):
    """What ``budget`` of the accounts shows may be charged elsewhere: neither card nor accounts look at it."""
    budget = filters.Zcdp(rho=0.1)
    job = trainer(budget)
    accounts = individual.Filter(3, budget)
    job.fit(*data)
    before = job.card(delta=1e-5).epsilon
    accounts.budget.charge(mechanisms.Zcdp(0.09))
    assert job.card(delta=1e-5).epsilon == before
    assert individual.Filter.from_state(accounts.state()).budget.left == pytest.approx(0.1)


def test_a_seed_of_the_counts_is_on_the_card(data):
    """Noise from a generator of the caller's is reproducible as far as anybody can tell."""
    for noise, words in ((np.random.default_rng(0), "not private"), (None, "operating system")):
        job = trainer(filters.Zcdp(rho=1.0))
        tree = stopping.Tree(steps=20, sigma=50.0)
        job.fit(*data, watch=lambda people, n=noise, t=tree: stopping.Dropouts(people, t, noise=n))
        assert words in job.card(delta=1e-5).to_markdown()


def test_a_card_is_stated_at_the_budgets_own_delta(data):
    """Another delta is refused, not ignored."""
    job = trainer(filters.Gaussian(epsilon=1.0, delta=1e-5))
    job.fit(*data)
    with pytest.raises(errors.ArgumentError, match="its own delta=1e-05"):
        job.card(delta=1e-9)


def test_the_card_s_page_has_a_place_for_each_fact():
    """Whatever a card says stands once on its page, below one of its headings, with what nobody can check."""
    (_, card), *_ = training_cards.cards()
    every = dataclasses.replace(
        card, why="It fits.", tuned="one of two runs", record="training 'a'", batches="Batches()", pace=0.5, decay=0.1,
        released=((mechanisms.Gaussian(2.0, 1.0), 2), (mechanisms.Gaussian(3.0, 1.0), 1)),
    )  # fmt: skip
    page = every.to_html()
    for name, said in every._facts():
        assert page.count(f"<dt>{html.escape(name)}</dt>") == (name != "In other words"), name
        assert html.escape(f"{said}.") in page
    assert "That each row is a different person. The caller said so." in page
    assert "That all rows of a person" in dataclasses.replace(every, people_from="group").to_html()
    assert page.index("How well it predicts.") > page.index("What this card cannot show")
    assert "<dd><bdi>2</bdi></dd>" in page  # the noise, in clips


@pytest.mark.parametrize(("budget", "card"), training_cards.cards(), ids=repr)
def test_a_card_names_its_theorem_and_measure_for_every_budget(budget, card):
    """Whatever accounts per person can be made of, the card says why its promise holds, and what adds up."""
    assert card.notion == type(budget).__name__
    assert "theory 4." in card.theorem
    assert card.measure
    assert card.theorem in card.to_markdown()
    assert json.loads(card.to_json())["reproducible"] is False


def test_a_card_of_a_weak_promise_does_not_call_it_strong():
    """At an epsilon of 20 a reader may learn nearly all about a person: that it is almost the same is not so."""
    x, y = np.repeat([[-1.0], [1.0]], 50, axis=0), np.repeat([0, 1], 50)
    card = training.LogisticRegression(epsilon=20.0, classes=[0, 1], n_people=100, steps=2).fit(x, y).card_
    assert "95.8 times in 100" in card.to_markdown()
    for page in (card.to_markdown(), card.to_html()):
        assert "almost the same" not in page
        assert "these numbers limit how much more a reader of the model learns about you" in page


@pytest.mark.slow
def test_cards_are_complete_without_docstrings():
    """Under ``python -OO``, which drops docstrings and assertions, cards are the same to the letter."""
    printed = [
        subprocess.run([sys.executable, *flags, training_cards.__file__], capture_output=True, text=True, check=True)
        for flags in ((), ("-OO",))
    ]
    assert printed[0].stdout == printed[1].stdout
    assert printed[0].stdout.count("theory 4.") == 2 * len(training_cards.BUDGETS)
