"""A question that does not certainly fit is refused, unless it says that it is asked anyway: at every door."""

import pyarrow as pa
import pytest

from almoner import filters
from almoner.errors import ArgumentError, BudgetExceeded
from almoner.queries import Count, People, Sum
from almoner.queries._questions.kinds_of import described, question
from almoner.queries.plans import Plan
from plan_files import PLAN, plan_folder
from services import service, service_folder
from sessions import opened

ROWS = pa.table({"who": list(range(500)), "n": [1.0] * 500})
LIGHT = pa.table({"who": [0, 0, 0, 1], "n": [1.0] * 4})


@pytest.mark.parametrize("budget", [filters.Zcdp(rho=0.1), filters.Gaussian(mu=0.2**0.5), filters.Basic(epsilon=0.1)])
def test_nobody_is_charged_for_an_answer_that_may_lack_everybody(path, budget):
    """Two questions at the price of the whole budget: the second is refused, then asked anyway, and is almost empty."""
    with opened(path, ROWS, budget=budget.fresh()) as session:
        ann = session.analyst("ann")
        asked = People(**{session.ledger.symbol: session.ledger.budget})
        assert ann.ask(asked, key="first").value == pytest.approx(500, abs=90)
        before = session.ledger.spent(7)
        assert ann.quote(asked).fits == 0
        with pytest.raises(BudgetExceeded, match=r"ask with anyway=True") as refused:
            ann.ask(asked, key="second")
        assert refused.value.left < 1e-9
        assert session.ledger.find("second") is None
        told = ann.ask(asked, key="second", anyway=True)
        assert told.complete_clip < 1e-3
        assert told.value == pytest.approx(0, abs=90)
        assert session.ledger.spent(7) - before <= 1
        assert ann.ask(asked, key="second") == told  # the same question, with or without the word
        assert ann.ask(asked, key="first", anyway=True).value == ann.ask(asked, key="first").value
        assert all(finding.holds for finding in session.verify(replay=True))


def test_it_depends_on_public_facts_alone(tmp_path):
    """On other rows, where nobody has paid anything, the same questions are refused with the same words."""
    words = []
    for name, rows in (("all", ROWS), ("few", ROWS.slice(0, 1)), ("light", LIGHT)):
        with opened(tmp_path / name, rows, budget=filters.Zcdp(rho=0.1)) as session:
            ann = session.analyst("ann")
            ann.ask(Count(clip=3, where="n > 2", rho=0.06), key="nobody's")
            with pytest.raises(BudgetExceeded) as refused:
                ann.ask(Count(clip=3, rho=0.06), key="a")
            words.append(str(refused.value))
            assert ann.ask(Count(clip=3, rho=0.06, anyway=True), key="a").values
    assert len(set(words)) == 1


def test_a_pace_a_watch_and_a_spare_amount_need_no_word(path):
    """They say themselves that people are shrunk, tell when too many are missing, or ask who can still pay."""
    with opened(path, ROWS, budget=filters.Zcdp(rho=1.0)) as session:
        ann = session.analyst("ann")
        ann.ask(Count(clip=1, rho=0.7), key="most")
        assert ann.ask(Count(clip=1, rho=0.7, pace=2), key="paced").complete_clip > 0
        assert ann.ask(People(rho=0.1, spare=0.5), key="spare").values
        with pytest.raises(BudgetExceeded, match="anyway"):
            ann.ask(Count(clip=1, rho=0.7, pace=1), key="all that is left")
        with pytest.raises(BudgetExceeded, match="anyway"):
            ann.ask(Count(clip=1, rho=0.7, pace=None), key="in full or not at all")
    with opened(path.with_name("watched"), ROWS, budget=filters.Zcdp(rho=1.0)) as session:
        session.watch(people=100, epsilon=0.5)
        for number in range(3):
            answer = session.analyst("ann").ask(Count(clip=1, rho=0.7), key=str(number))
        assert answer.complete is not None


def test_nothing_is_paid_for_a_clip_that_will_not_be_used(path):
    """A question with "auto" that does not certainly fit is refused before its clip is chosen."""
    with opened(path, ROWS, budget=filters.Zcdp(rho=1.0)) as session:
        ann = session.analyst("ann")
        ann.ask(Count(clip=1, rho=0.5), key="half")
        entries = len(session.ledger.entries())
        for asked in (Count(clip="auto", rho=0.8), Sum("n", 0, "auto", clip=1, rho=0.8)):
            with pytest.raises(BudgetExceeded, match="anyway"):
                ann.ask(asked, key="auto")
            assert len(session.ledger.entries()) == entries
        assert ann.ask(Count(clip="auto", rho=0.8, anyway=True), key="auto").values


def test_the_word_is_kept_with_the_question():
    """As a plain value only where it is said; what is no truth value is refused."""
    assert "anyway" not in described(Count(clip=1, rho=0.1))
    said = Count(clip=1, rho=0.1, anyway=True)
    assert question(described(said)) == said
    with pytest.raises(ArgumentError, match="anyway='yes' must be true or false"):
        Count(clip=1, rho=0.1, anyway="yes")


def test_files_of_questions_say_it(tmp_path):
    """Without the word the error names the question; with it the file is answered."""
    folder = plan_folder(tmp_path)
    dear = PLAN.replace("sigma = 20", "rho = 0.9").replace("sigma = 2\n", "rho = 0.9\n")
    (folder / "plan.toml").write_text(dear)
    plan = Plan.read(folder / "plan.toml")
    with (
        plan.open(create=True) as session,
        pytest.raises(BudgetExceeded, match=r"^question 'middle': .* \(in TOML and JSON: true\)"),
    ):
        plan.ask(session)
    (folder / "plan.toml").write_text(dear.replace("where = \"place = 'x'\"", "where = \"place = 'x'\"\nanyway = true"))
    plan = Plan.read(folder / "plan.toml")
    with plan.open() as session:
        assert list(plan.ask(session)) == ["rows", "middle"]


def test_the_service_refuses_and_takes_the_word(tmp_path):
    """A request is refused with the code "budget", whose text says the word; with it there is an answer."""
    with service(service_folder(tmp_path)) as running:
        dear = {"ask": "people", "rho": running.api.session.ledger.budget * 0.3}  # of a limit of half the budget
        assert running.ann.ask("first", dear).status_code == 201
        refused = running.ann.ask("second", dear)
        assert (refused.status_code, refused.json()["code"]) == (403, "budget")
        assert '"anyway": true' in refused.json()["detail"]
        assert running.ann.ask("second", {**dear, "anyway": True}).status_code == 201
