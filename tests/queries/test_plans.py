"""Files of questions: what they must say, and the check of a ledger against the rows."""

import datetime

import pytest

from almoner.errors import ArgumentError, DataError, LedgerError
from almoner.queries.plans import Plan
from plan_files import PLAN, plan_folder
from sessions import without_noise


@pytest.fixture
def folder(tmp_path):
    return plan_folder(tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('person = "who"', ""),
        ('person = "who"', "person = 3"),
        ("rho = 1.0", "rho = 1.0\nseed = 1"),
        ("rho = 1.0", "rho = true"),
        ("rho = 1.0", "rho = 1.0\ncreate = true"),
        ("rho = 1.0", "rho = 1.0\nwitness = true"),
        ("rho = 1.0", 'rho = 1.0\ntypes = "number"'),
        ("rho = 1.0", 'view = "x"\nrho = "much"'),
        ('key = "middle"', 'key = "rows"'),
        ('key = "middle"', ""),
        ('ask = "count"', 'ask = "drop"'),
        ("sigma = 20", ""),
        ("[[questions]]", "[[[questions"),
    ],
)
def test_plans_that_make_no_sense(folder, old, new):
    """Each is refused by name before any data are touched."""
    (folder / "plan.toml").write_text(PLAN.replace(old, new, 1))
    with pytest.raises((ArgumentError, DataError)):
        Plan.read(folder / "plan.toml")
    with pytest.raises(DataError):
        Plan.read(folder / "none.toml")


def test_a_plan_shows_no_password(folder):
    """Its repr may end in a log."""
    plan = folder / "plan.toml"
    plan.write_text(PLAN.replace("people.ledger", "postgresql://u:SECRET@h/db"))
    assert "SECRET" not in repr(Plan.read(plan))


def test_a_ledger_is_checked_against_the_rows(folder):
    """Every charge is computed again; another ledger and a lost one are refused, and none is made."""
    plan = Plan.read(folder / "plan.toml")
    with pytest.raises(LedgerError):
        plan.verify(folder / "people.ledger")
    assert not (folder / "people.ledger").exists()
    with plan.open(create=True) as session:
        plan.ask(session)
        head = session.ledger.head
    assert all(finding.holds for finding in plan.verify(folder / "people.ledger", head=head))
    assert all(finding.holds for finding in plan.verify(folder / "." / "people.ledger"))
    assert not all(finding.holds for finding in plan.verify(folder / "people.ledger", head="2:wrong"))
    with pytest.raises(ArgumentError, match="another ledger"):
        plan.verify(folder / "other.ledger")


TEMPLATE = """
[[questions]]
every = "day"
from = 2011-12-07
key = "{day}: {place}, clip {clip}"
ask = "count"
for = { place = ["x", "O'Neill"], clip = [2, 3.5] }
where = "place = '{place}' and day < '{until}'"
by = { day = ["{day}"] }
clip = "{clip}"
sigma = 200
"""
HEAD = PLAN[: PLAN.index("[[questions]]")]


def template(folder, text, today=datetime.date(2011, 12, 10)):
    (folder / "plan.toml").write_text(HEAD + text)
    return Plan.read(folder / "plan.toml", today=today)


def test_templates_stand_for_a_question_of_each_day_and_name(folder):
    """Days that have ended, each combination of names, quotes doubled in filters, numbers as numbers."""
    plan = template(folder, TEMPLATE)
    asked = dict(plan.questions)
    assert len(asked) == 3 * 4
    assert list(asked)[:2] == ["2011-12-07: x, clip 2", "2011-12-07: x, clip 3.5"]
    last = asked["2011-12-09: O'Neill, clip 3.5"]
    assert last.where == "place = 'O''Neill' and day < '2011-12-10'"
    assert (last.clip, last.keys) == (3.5, (("day", ("2011-12-09",)),))
    assert len(template(folder, TEMPLATE, datetime.date(2011, 12, 11)).questions) == 4 * 4
    assert template(folder, TEMPLATE, datetime.date(2011, 12, 7)).questions == ()


@pytest.mark.parametrize(
    ("every", "to", "keys"),
    [
        (
            "week",
            "2011-12-19",
            ["2011-W49 2011-12-05 2011-12-12", "2011-W50 2011-12-12 2011-12-19", "2011-W51 2011-12-19 2011-12-26"],
        ),
        ("week", None, ["2011-W49 2011-12-05 2011-12-12"]),
        ("month", "2012-01-01", ["2011-12 2011-12-01 2012-01-01", "2012-01 2012-01-01 2012-02-01"]),
    ],
)
def test_weeks_and_months(folder, every, to, keys):
    """Weeks begin on Monday; a period is asked for once it has ended, or where it begins until the last day given."""
    until = "" if to is None else f"to = {to}"
    text = f"""
[[questions]]
every = "{every}"
from = "2011-12-07"
{until}
key = "{{{every}}} {{from}} {{until}}"
ask = "count"
clip = 1
sigma = 9
"""
    assert [key for key, _ in template(folder, text, datetime.date(2011, 12, 18)).questions] == keys


@pytest.mark.quick(9)
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('every = "day"', 'every = "hour"', "every must be one of"),
        ('every = "day"', "", "need every"),
        ("2011-12-07", '"yesterday"', "from must be a date"),
        ("2011-12-07", "0001-12-07", "years"),
        ("from = 2011-12-07", "from = 2011-12-07\nto = 2011-12-06", "to must not be before from"),
        ("{day}: {place}", "{day} {week}: {place}", "{week} is not known"),
        ("{day}: ", "", "a key of its own"),
        ("[2, 3.5]", "[]", "table of lists"),
        ("place = [", "until = [", "no name of a period"),
        ("2011-12-07", "1011-12-07", "at most"),
    ],
)
def test_templates_that_make_no_sense(folder, old, new, message):
    """Each is refused by name before any data are touched."""
    with pytest.raises(ArgumentError, match=message):
        template(folder, TEMPLATE.replace(old, new, 1))


def test_a_template_asks_what_is_new(folder):
    """The next day's run gives the answers that are there and asks for the day that has ended since."""
    text = """
[[questions]]
every = "day"
from = 2011-12-07
key = "{{rows}} {day}"
ask = "count"
clip = 1
by = { place = ["x", "{day}"] }
sigma = 200
"""
    plan = template(folder, text)
    with plan.open(create=True) as session:
        first = plan.ask(session)
        plan = template(folder, text, datetime.date(2011, 12, 11))
        second = plan.ask(session)
        assert len(session.ledger.entries("answered")) == 4
    assert list(first) == ["{rows} 2011-12-07", "{rows} 2011-12-08", "{rows} 2011-12-09"]
    assert {key: second[key] for key in first} == first
    assert second["{rows} 2011-12-10"].groups == [("x",), ("2011-12-10",)]


SHOP = """
ledger = "people.ledger"
rho = 1.0
analyst = "ann"
person = "who"

[tables.orders]
data = "events.parquet"

[tables.customers]
data = "customers.csv"
person = "id"
one_row = true
types = { id = "whole", age = "whole" }

[public.places]
data = "places.csv"
key = "code"
on = "place"

[[questions]]
key = "by region"
ask = "count"
by = { "places.region" = ["north", "south"] }
where = "customers.age >= 50"
clip = 5
sigma = 1000

[[questions]]
key = "customers"
ask = "count"
table = "customers"
each_person = { orders = "count(orders)" }
where = "orders >= 5"
sigma = 1000
"""


def test_a_plan_over_several_tables(folder):
    """Each is read as its own part of the file says; questions name them, and the ledger is checked against all."""
    (folder / "customers.csv").write_text("id,age\n" + "".join(f"{k},{k}\n" for k in range(120)))
    (folder / "places.csv").write_text("code,region\nx,north\ny,south\n")
    (folder / "plan.toml").write_text(SHOP)
    plan = Plan.read(folder / "plan.toml")
    assert [path.name for path in plan.files] == ["events.parquet", "customers.csv", "places.csv"]
    with plan.look() as session:
        assert {each.table for each in plan.quote(session).values()} == {"orders", "customers"}
    with plan.open(create=True) as session:
        assert [without_noise(session, asked) for _, asked in plan.questions] == [[125, 125], [100]]
        assert [answer.question.table for answer in plan.ask(session).values()] == ["orders", "customers"]
    assert all(finding.holds for finding in plan.verify(folder / "people.ledger"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[tables.orders]", 'data = "x"\n[tables.orders]', "data stands in"),
        ('data = "customers.csv"', "", "tables.customers.data is missing"),
        ('key = "code"', "", "public.places.key is missing"),
        ('on = "place"', 'of = "place"', "public.places.of is not known"),
        ("one_row = true", "one_row = 1", "must be true or false"),
        ('person = "who"\n', "", "person is missing"),
        ("[tables.orders]", "[tables]\norders = 3\n[other]", "tables.orders must be a table|other is not known"),
    ],
)
def test_tables_of_a_plan_that_make_no_sense(folder, old, new, message):
    """Each is refused by name before any data are touched."""
    (folder / "plan.toml").write_text(SHOP.replace(old, new, 1))
    with pytest.raises(ArgumentError, match=message):
        Plan.read(folder / "plan.toml")


def test_a_statement_in_a_file_is_a_question(folder):
    """It asks what it means, and its answer is that of the question; all is checked before any question is charged."""
    statement = """SELECT place, count(*) AS n FROM data WHERE place IN ('x', 'y') GROUP BY place"""
    question = f'''[[questions]]\nkey = "sql"\nask = "sql"\nsql = "{statement}"\nclip = 2\nrho = 0.1\n'''
    (folder / "plan.toml").write_text(PLAN.split("[[questions]]")[0] + question)
    plan = Plan.read(folder / "plan.toml")
    with plan.open(create=True) as session:
        answer = plan.ask(session)["sql"]
    assert answer.columns(wide=True).keys() == {"place", "n", "n_low", "n_high"}
    (folder / "plan.toml").write_text(PLAN.split("[[questions]]")[0] + question.replace("count(*) AS n", "max(n)"))
    plan = Plan.read(folder / "plan.toml")
    with plan.open() as session, pytest.raises(ArgumentError, match="sql: 'max' is not known here"):
        plan.check(session)


def test_keys_that_are_none_are_refused_in_words_that_name_no_value(folder):
    """A file's refusals quote nothing of it, and still read as a sentence."""
    (folder / "plan.toml").write_text(PLAN.replace('["x", "y"]', "[]"))
    with pytest.raises(ArgumentError, match=r"^question 1: by: a column needs keys, each of them once$"):
        Plan.read(folder / "plan.toml")
