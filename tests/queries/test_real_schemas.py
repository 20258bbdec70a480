"""Questions along keys over public data sets: what plain SQL over the same files gives."""

import pytest

from almoner import filters
from almoner._workspace import duckdb
from almoner.queries import Count, Histogram, Lookup, Mean, People, Session, Sum, Table
from data_folders import DATA, needs
from sessions import CHEAP, without_noise

pytestmark = pytest.mark.slow

EICU, MIMIC, SHOP = DATA / "eicu_demo", DATA / "mimic3_demo", DATA / "online_retail"
FILMS = DATA / "movielens_latest_small"
MONTHS = ["2010-12-01", "2011-02-01"]
CLIP = {"clip": 100_000, "sigma": 1e6}


def session(path, tables, person, public=None):
    """A session over these tables, each a file or a ``Table``."""
    budget = filters.Zcdp(rho=1.0)
    return Session.open(tables=tables, person=person, public=public, budget=budget, ledger=path, create=True)


def plain(sql, **files):
    """What plain SQL gives; each name in it is a file."""
    with duckdb().connect() as connection:
        for name, file in files.items():
            read = f"read_csv('{file}', header = true, sample_size = -1)" if str(file).endswith("gz") else f"'{file}'"
            connection.execute(f"CREATE VIEW {name} AS FROM {read}")
        return connection.execute(sql).fetchall()


def close(found, wanted):
    """True for equal values, but for the steps in which contributions are counted."""
    return found == pytest.approx(wanted, rel=1e-4)


_STAYS = "JOIN stays s USING (patientunitstayid) JOIN hospital h USING (hospitalid)"
ON_EICU = [
    (Count(table="medication", **CLIP), "SELECT count(*) FROM medication JOIN stays USING (patientunitstayid)"),
    (
        Count(table="medication", where="drugname like 'HEPARIN%' and stays.gender = 'Female'", **CLIP),
        f"SELECT count(*) FROM medication {_STAYS} WHERE drugname LIKE 'HEPARIN%' AND s.gender = 'Female'",
    ),
    (
        People(table="medication", by={"hospital.region": ["South", "West"]}, **CHEAP),
        f"SELECT count(DISTINCT uniquepid) FILTER (region = r) FROM medication {_STAYS}, (VALUES ('South'), ('West')) "
        "v(r) GROUP BY r ORDER BY r",
    ),
    (
        Sum("noninvasivemean", 0, 200, table="vitals", where="stays.unittype = 'Med-Surg ICU'", **CLIP),
        "SELECT sum(CASE WHEN noninvasivemean > 200 THEN 200 ELSE noninvasivemean END) "
        f"FROM vitals {_STAYS} WHERE unittype = 'Med-Surg ICU'",
    ),
    (
        Mean("noninvasivesystolic", 0, 300, per="row", table="vitals", where="hospital.region = 'Midwest'", **CLIP),
        f"SELECT avg(noninvasivesystolic) FROM vitals {_STAYS} WHERE region = 'Midwest'",
    ),
    (
        Count(table="medication", each_person={"n": "count()", "dead": "max(stays.hospitaldischargestatus)"}, **CHEAP),
        "SELECT count(DISTINCT uniquepid) FROM medication JOIN stays USING (patientunitstayid)",
    ),
]
ON_MIMIC = [
    (
        Count(table="given", where="stays.first_careunit = 'MICU' and ordercategoryname = '01-Drips'", **CLIP),
        "SELECT count(*) FROM given g JOIN stays s USING (icustay_id) JOIN admissions a ON a.hadm_id = s.hadm_id "
        "WHERE first_careunit = 'MICU' AND ordercategoryname = '01-Drips'",
    ),
    (
        Sum("amount", 0, 1000, table="given", by={"admissions.admission_type": ["EMERGENCY", "ELECTIVE"]}, **CLIP),
        "SELECT sum(CASE WHEN amount > 1000 THEN 1000 WHEN amount < 0 THEN 0 ELSE amount END) "
        "FROM (VALUES (1, 'EMERGENCY'), (2, 'ELECTIVE')) "
        "v(place, t) LEFT JOIN admissions a ON a.admission_type = t LEFT JOIN stays s ON a.hadm_id = s.hadm_id "
        "LEFT JOIN given g USING (icustay_id) GROUP BY place ORDER BY place",
    ),
    (
        People(table="labs", where="patients.gender = 'F' and items.category = 'BLOOD GAS'", **CHEAP),
        "SELECT count(DISTINCT p.subject_id) FROM labs JOIN admissions a USING (hadm_id) "
        "JOIN patients p ON p.subject_id = a.subject_id JOIN items USING (itemid) "
        "WHERE gender = 'F' AND category = 'BLOOD GAS'",
    ),
    (
        Count(table="labs", where="items.label = 'Glucose' and admissions.hospital_expire_flag = 1", **CLIP),
        "SELECT count(*) FROM labs JOIN admissions a USING (hadm_id) JOIN items USING (itemid) "
        "WHERE label = 'Glucose' AND hospital_expire_flag = 1",
    ),
    (
        Sum("los", 0, 50, table="stays", where="patients.gender = 'M'", **CLIP),
        "SELECT sum(least(los, 50)) FROM stays s JOIN admissions a ON a.hadm_id = s.hadm_id "
        "JOIN patients p ON p.subject_id = a.subject_id WHERE gender = 'M'",
    ),
]


@needs("eicu_demo")
def test_intensive_care_units_are_asked_along_the_stay(path):
    """Medication and vital signs name the stay alone; hospitals are public."""
    files = {"medication": "medication", "vitals": "vitalaperiodic", "stays": "patient", "hospital": "hospital"}
    files = {name: EICU / f"{file}.csv.gz" for name, file in files.items()}
    tables = {name: file for name, file in files.items() if name != "hospital"}
    person = {"medication": "patientunitstayid -> stays", "vitals": "patientunitstayid -> stays", "stays": "uniquepid"}
    public = {"hospital": Lookup(files["hospital"], "hospitalid", on="stays.hospitalid")}
    with session(path, tables, person, public) as opened:
        for asked, sql in ON_EICU:
            assert close(without_noise(opened, asked), [value for (value,) in plain(sql, **files)]), sql


@needs("mimic3_demo")
def test_admissions_and_stays_are_a_path_of_three_steps(path):
    """From an infusion to the stay, the admission and the patient; items of laboratories are public."""
    files = {"given": "INPUTEVENTS_MV", "stays": "ICUSTAYS", "admissions": "ADMISSIONS", "patients": "PATIENTS"}
    files |= {"labs": "LABEVENTS", "items": "D_LABITEMS"}
    files = {name: MIMIC / f"{file}.csv.gz" for name, file in files.items()}
    tables = {name: file for name, file in files.items() if name != "items"}
    person = {
        "given": "icustay_id -> stays",
        "stays": "hadm_id -> admissions",
        "admissions": "subject_id -> patients",
        "patients": "subject_id",
        "labs": "hadm_id -> admissions",
    }
    public = {"items": Lookup(files["items"], "itemid")}
    with session(path, tables, person, public) as opened:
        for asked, sql in ON_MIMIC:
            assert close(without_noise(opened, asked), [value for (value,) in plain(sql, **files)]), sql


SMALL = "CASE WHEN sum(amount) > 300 THEN 300 WHEN sum(amount) < 0 THEN 0 ELSE sum(amount) END AS total"
BASKETS = "GROUP BY CustomerID, InvoiceNo"
ON_SHOP = [
    (
        Count(each={"InvoiceNo": {"total": "sum(amount)"}}, where="total > 100", **CLIP),
        f"SELECT count(*) FROM (SELECT sum(amount) AS total FROM rows {BASKETS}) WHERE total > 100",
    ),
    (
        Mean("total", 0, 300, per="row", each={"InvoiceNo": {"total": "sum(amount)"}}, **CLIP),
        f"SELECT avg(total) FROM (SELECT {SMALL} FROM rows {BASKETS})",
    ),
    (
        Count(each={"InvoiceNo": {"n": "count()"}}, each_person={"most": "max(n)"}, where="most >= 50", **CHEAP),
        f"SELECT count(DISTINCT CustomerID) FROM (SELECT CustomerID, count(*) AS n FROM rows {BASKETS}) WHERE n >= 50",
    ),
    (
        Count(beside={"first": "min(month(day))"}, where="month(day) = '2011-03-01'", by={"first": MONTHS}, **CLIP),
        "SELECT count(day) FROM (VALUES (DATE '2010-12-01'), (DATE '2011-02-01')) v(m) LEFT JOIN (SELECT day, "
        "min(date_trunc('month', day)) OVER (PARTITION BY CustomerID) AS first FROM rows) r ON first = m "
        "AND date_trunc('month', day) = DATE '2011-03-01' GROUP BY m ORDER BY m",
    ),
]


@needs("online_retail")
def test_baskets_and_first_months_are_asked_of_one_table_of_lines(path):
    """The lines of a shop: one row for each invoice of a customer, and the month of the first one beside each line."""
    columns = "*, Quantity * UnitPrice AS amount, CAST(InvoiceDate AS DATE) AS day"
    rows = f"SELECT {columns} FROM data WHERE CustomerID IS NOT NULL"
    file = SHOP / "online_retail.csv.gz"
    budget = filters.Zcdp(rho=1.0)
    table = Table(file, view=rows)
    with Session.open(table, person="CustomerID", budget=budget, ledger=path, create=True) as opened:
        for asked, sql in ON_SHOP:
            wanted = plain(f"WITH rows AS ({rows}) {sql}", data=file)
            assert close(without_noise(opened, asked), [value for (value,) in wanted]), sql


_RATED = "FROM ratings r JOIN movies m USING (movieId)"
ON_FILMS = [
    (
        Count(where="contains(movies.genres, 'Comedy')", **CLIP),
        f"SELECT count(*) {_RATED} WHERE genres LIKE '%Comedy%'",
    ),
    (
        Mean("rating", 0, 5, per="row", where="movies.genres like 'Drama%'", **CLIP),
        f"SELECT avg(rating) {_RATED} WHERE genres LIKE 'Drama%'",
    ),
    (
        People(where="contains(movies.title, 'Star Wars')", **CHEAP),
        f"SELECT count(DISTINCT userId) {_RATED} WHERE title LIKE '%Star Wars%'",
    ),
    (
        Mean("rating >= 4", 0, 1, per="row", where="contains(movies.genres, 'Horror')", **CLIP),
        f"SELECT avg((rating >= 4)::INT) {_RATED} WHERE genres LIKE '%Horror%'",
    ),
    (
        Sum("rating", 0, 5, by={"substring(movies.title, 1, 1)": ["A", "T"]}, **CLIP),
        f"SELECT sum(rating) {_RATED} WHERE title[1] IN ('A', 'T') GROUP BY title[1] ORDER BY title[1]",
    ),
    (
        Count(by={"bucket(timestamp, 100000000)": [900_000_000, 1_400_000_000]}, **CLIP),
        "SELECT count(*) FROM ratings WHERE timestamp // 100000000 IN (9, 14) GROUP BY timestamp // 100000000 "
        "ORDER BY timestamp // 100000000",
    ),
    (
        Count(beside={"n": "count()"}, where="n >= 500 and contains(movies.genres, 'Action')", **CLIP),
        f"SELECT count(*) {_RATED} JOIN (SELECT userId, count(*) AS n FROM ratings GROUP BY 1) USING (userId) "
        "WHERE n >= 500 AND genres LIKE '%Action%'",
    ),
    (
        Count(each={"movies.genres": {"n": "count()"}}, where="n >= 10", **CLIP),
        f"SELECT count(*) FROM (SELECT userId, genres, count(*) AS n {_RATED} GROUP BY ALL) WHERE n >= 10",
    ),
    (
        Count(each_person={"rated": "count()", "tagged": "count(tags)"}, where="tagged > 0 and rated < 100", **CHEAP),
        "SELECT count(*) FROM (SELECT userId FROM ratings GROUP BY 1 HAVING count(*) < 100) "
        "WHERE userId IN (SELECT userId FROM tags)",
    ),
    (
        Count(table="tags", where="contains(lower(tag), 'funny') and contains(movies.genres, 'Comedy')", **CLIP),
        "SELECT count(*) FROM tags JOIN movies USING (movieId) "
        "WHERE lower(tag) LIKE '%funny%' AND genres LIKE '%Comedy%'",
    ),
    (
        Histogram("rating", [0, 2, 4, 5.5], where="movies.title like '%(1994)%'", **CLIP),
        f"SELECT unnest([count(*) FILTER (rating < 2), count(*) FILTER (rating BETWEEN 2 AND 3.5), "
        f"count(*) FILTER (rating >= 4)]) {_RATED} WHERE title LIKE '%(1994)%'",
    ),
]


@needs("movielens_latest_small")
def test_films_are_found_by_the_key_of_a_rating(path):
    """Ratings and tags name the person, films are public; nothing else is declared, and no view is written."""
    files = {name: FILMS / f"{name}.csv.gz" for name in ("ratings", "tags", "movies")}
    tables = {name: files[name] for name in ("ratings", "tags")}
    with session(
        path, tables, dict.fromkeys(tables, "userId"), {"movies": Lookup(files["movies"], "movieId")}
    ) as opened:
        for asked, sql in ON_FILMS:
            found = without_noise(opened, asked)
            found = found[0] if isinstance(asked, Histogram) else found
            assert close(found, [value for (value,) in plain(sql, **files)]), sql
