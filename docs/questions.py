"""Questions of a shop's analyst: the one source of docs/questions.md and of the test that asks them of the real data.

Each has the question in words, the line that asks it, and what plain SQL over the customers' lines (``rows``) says;
None for lines about the budget. Those that cannot be asked have a reason in place of a line.
"""

CONSTANTS = """
COUNTRIES = ["United Kingdom", "Germany", "France", "EIRE"]
PRODUCTS = ["22423", "85123A", "47566", "84879", "22720", "85099B", "21212", "22086"]
MONTHS = ["2010-12-01", *(f"2011-{month:02d}-01" for month in range(1, 13))]
DAYS = pandas.date_range("2010-12-01", "2011-12-09")
MONEY = "amount", -170_000, 170_000
ORDER = {"InvoiceNo": {"total": "sum(amount)", "n": "count()", "day": "min(day)", "country": "max(Country)"}}
"""
"""Public knowledge that the lines name: keys, bounds of a line, and one row for each order."""

_ORDERS = """(SELECT CustomerID, InvoiceNo, sum(amount) AS total, count(*) AS n, min(day) AS day,
max(Country) AS country FROM rows GROUP BY ALL)"""
_EACH = "(SELECT CustomerID, {} FROM rows GROUP BY CustomerID)"
_MONTHS = "(SELECT DATE '2010-12-01' + to_months(i::INT) AS m FROM range(13) t(i))"
_MONEY = f"(SELECT m, (SELECT sum(amount) FROM rows WHERE date_trunc('month', day) = m) AS s FROM {_MONTHS})"
_COUNTRIES = "(VALUES (1, 'United Kingdom'), (2, 'Germany'), (3, 'France'), (4, 'EIRE')) k(i, c)"
_BY_COUNTRY = f"SELECT {{}} FROM {_COUNTRIES} JOIN rows ON Country = c GROUP BY i, c ORDER BY i"
_PRODUCTS = "('22423', '85123A', '47566', '84879', '22720', '85099B', '21212', '22086')"
_BOTH = _EACH.format("bool_or(StockCode = '85123A') AS a, bool_or(StockCode = '22423') AS b")
_BASKETS = """(SELECT bool_or(StockCode = '85123A') AS a, bool_or(StockCode = '22423') AS b
FROM rows GROUP BY CustomerID, InvoiceNo)"""
_STEP = "each={'InvoiceNo': {'a': \"any(StockCode = '85123A')\", 'b': \"any(StockCode = '22423')\"}}"

SIZES = [
    ("How many order lines are there?", "ask(Count(clip=8000))", "SELECT count(*) FROM rows"),
    ("How many customers?", "ask(People())", "SELECT count(DISTINCT CustomerID) FROM rows"),
    ("How many orders?", "ask(Count(each=ORDER, clip=250))", f"SELECT count(*) FROM {_ORDERS}"),
    (
        "How many lines were cancelled?",
        "sql(\"SELECT count(*) AS n FROM data WHERE InvoiceNo LIKE 'C%'\", clip=8000)",
        "SELECT count(*) FROM rows WHERE InvoiceNo LIKE 'C%'",
    ),
    (
        "How many customers ever cancelled?",
        "ask(People(where=\"InvoiceNo like 'C%'\"))",
        "SELECT count(DISTINCT CustomerID) FROM rows WHERE InvoiceNo LIKE 'C%'",
    ),
    (
        "How many lines go to each of the main countries?",
        'ask(Count(by={"Country": COUNTRIES}, clip=8000))',
        _BY_COUNTRY.format("count(*)"),
    ),
    (
        "How many different products are bought?",
        'ask(Distinct("StockCode", most=1800))',
        "SELECT count(DISTINCT StockCode) FROM rows",
    ),
    (
        "To how many countries do we sell?",
        'ask(Distinct("Country", most=2))',
        "SELECT count(DISTINCT Country) FROM rows",
    ),
]
MONEY = [
    ("What did we take, after refunds?", "ask(Sum(*MONEY, clip=3))", "SELECT sum(amount) FROM rows"),
    (
        "What in each month?",
        'ask(Sum(*MONEY, by={"month(day)": MONTHS}, clip=3))',
        f"SELECT s FROM {_MONEY} ORDER BY m",
    ),
    (
        "What share of it comes from each main country?",
        'ask(Sum(*MONEY, by={"Country": COUNTRIES}, clip=3)).shares()',
        f"SELECT s / sum(s) OVER () FROM ({_BY_COUNTRY.format('i, sum(amount) AS s')}) ORDER BY i",
    ),
    (
        "How much was paid back?",
        'ask(Sum("-amount", 0, 170_000, where="amount < 0", clip=3))',
        "SELECT -sum(amount) FROM rows WHERE amount < 0",
    ),
    (
        "What is a line worth on average?",
        'ask(Mean(*MONEY, per="row", clip=8000))',
        "SELECT avg(amount) FROM rows",
    ),
    (
        "What does an article cost on average?",
        'sql("SELECT avg(UnitPrice) AS price FROM data", bounds={"UnitPrice": (0, 40_000)}, clip=8000)',
        "SELECT avg(UnitPrice) FROM rows",
    ),
    (
        "By how much do prices vary (standard deviation)?",
        'ask(Variance("UnitPrice", 0, 100, per="row", clip=8000)).roots()',
        "SELECT stddev_pop(least(UnitPrice, 100)) FROM rows",
    ),
    (
        "The same in SQL, by country?",
        "sql(\"SELECT Country, stddev_pop(UnitPrice) AS s FROM data WHERE Country IN ('France', 'Spain') "
        'GROUP BY Country ORDER BY Country", bounds={"UnitPrice": (0, 100)}, clip=8000)',
        "SELECT Country, stddev_pop(least(UnitPrice, 100)) FROM rows WHERE Country IN ('France', 'Spain') "
        "GROUP BY 1 ORDER BY 1",
    ),
    (
        "How many articles were sold?",
        'ask(Sum("Quantity", 0, 81_000, where="Quantity > 0", clip=3))',
        "SELECT sum(Quantity) FROM rows WHERE Quantity > 0",
    ),
    (
        "What do we take for each article sold?",
        'ask(Ratio("amount", "Quantity", numerator_bounds=(0, 170_000), denominator_bounds=(0, 81_000), '
        'where="Quantity > 0", clip=3))',
        "SELECT sum(amount) / sum(Quantity) FROM rows WHERE Quantity > 0",
    ),
    (
        "What part of the lines is cancelled?",
        "ask(Ratio(numerator_where=\"InvoiceNo like 'C%'\", clip=8000))",
        "SELECT avg((InvoiceNo LIKE 'C%')::INT) FROM rows",
    ),
    (
        "What do lines above 100 pounds bring?",
        'ask(Sum(*MONEY, where="amount > 100", clip=3))',
        "SELECT sum(amount) FROM rows WHERE amount > 100",
    ),
    (
        "How many lines are there in steps of ten pounds?",
        'ask(Count(by={"bucket(amount, 10)": [0, 10, 20, 30, 40]}, clip=8000))',
        "SELECT count(*) FROM rows WHERE amount >= 0 AND amount < 50 GROUP BY floor(amount / 10) ORDER BY "
        "floor(amount / 10)",
    ),
]
TIME = [
    (
        "How many lines come in on each day of the year?",
        'ask(Count(by={"day": DAYS}, clip=8000))',
        "SELECT count(day) FROM range(DATE '2010-12-01', DATE '2011-12-10', INTERVAL 1 DAY) t(d) "
        "LEFT JOIN rows ON day = d GROUP BY d ORDER BY d",
    ),
    (
        "And as a mean of seven days?",
        'ask(Count(by={"day": DAYS}, clip=8000)).moving(7)',
        "SELECT avg(n) OVER (ORDER BY d ROWS 6 PRECEDING) FROM (SELECT d, count(day) AS n FROM range(DATE "
        "'2010-12-01', "
        "DATE '2011-12-10', INTERVAL 1 DAY) t(d) LEFT JOIN rows ON day = d GROUP BY d) ORDER BY d",
    ),
    (
        "On which day of the week do customers order (1 is Monday)?",
        'ask(Count(each=ORDER, by={"weekday(day)": range(1, 8)}, clip=250))',
        f"SELECT (SELECT count(*) FROM {_ORDERS} WHERE isodow(day) = w) FROM range(1, 8) t(w) ORDER BY w",
    ),
    (
        "At which hour?",
        'sql("SELECT hour(InvoiceDate) AS hour, count(*) AS n FROM data GROUP BY hour ORDER BY hour", '
        'by={"hour": range(8, 18)}, clip=8000)',
        "SELECT hour(InvoiceDate) AS h, count(*) FROM rows WHERE h BETWEEN 8 AND 17 GROUP BY h ORDER BY h",
    ),
    (
        "What did we take since the beginning, month by month?",
        'ask(Sum(*MONEY, by={"month(day)": MONTHS}, clip=3)).running()',
        f"SELECT sum(s) OVER (ORDER BY m) FROM {_MONEY} ORDER BY m",
    ),
    (
        "Which were the three best months?",
        'ask(Sum(*MONEY, by={"month(day)": MONTHS}, clip=3)).largest(3)',
        f"SELECT s FROM {_MONEY} ORDER BY s DESC LIMIT 3",
    ),
    (
        "How much more was November than October?",
        'ask(Sum(*MONEY, by={"month(day)": MONTHS}, clip=3)).difference("2011-11-01", "2011-10-01")',
        f"SELECT sum(CASE m WHEN DATE '2011-11-01' THEN s WHEN DATE '2011-10-01' THEN -s END) FROM {_MONEY}",
    ),
    (
        "What did each quarter bring?",
        'ask(Sum(*MONEY, by={"quarter(day)": ["2011-01-01", "2011-04-01", "2011-07-01"]}, clip=3))',
        "SELECT sum(amount) FROM rows WHERE day BETWEEN '2011-01-01' AND '2011-09-30' GROUP BY quarter(day) "
        "ORDER BY quarter(day)",
    ),
    (
        "How many customers are active in each month?",
        'ask(People(by={"month(day)": MONTHS}))',
        "SELECT count(DISTINCT CustomerID) FROM rows GROUP BY date_trunc('month', day) ORDER BY "
        "date_trunc('month', day)",
    ),
    (
        "What part of the lines is written before noon?",
        'ask(Mean("hour(InvoiceDate) < 12", 0, 1, per="row", clip=8000))',
        "SELECT avg((hour(InvoiceDate) < 12)::INT) FROM rows",
    ),
]
CUSTOMERS = [
    (
        "How many lines does a customer order?",
        'ask(Mean("n", 0, 8000, each_person={"n": "count()"}))',
        f"SELECT avg(n) FROM {_EACH.format('count(*) AS n')}",
    ),
    (
        "What does a customer spend?",
        'ask(Mean("amount", -170_000, 300_000, per="total"))',
        f"SELECT avg(s) FROM {_EACH.format('sum(amount) AS s')}",
    ),
    (
        "How many spent more than 1,000 pounds?",
        'ask(Count(each_person={"spent": "sum(amount)"}, where="spent > 1000"))',
        f"SELECT count(*) FROM {_EACH.format('sum(amount) AS s')} WHERE s > 1000",
    ),
    (
        "How many customers are there in each main country?",
        "sql(\"SELECT Country, count(DISTINCT CustomerID) AS people FROM data WHERE Country IN ('France', 'Germany') "
        'GROUP BY Country ORDER BY Country")',
        "SELECT Country, count(DISTINCT CustomerID) FROM rows WHERE Country IN ('France', 'Germany') GROUP BY 1 "
        "ORDER BY 1",
    ),
    (
        "How many bought in more than one country?",
        'ask(Count(each_person={"n": "distinct(Country)"}, where="n > 1"))',
        f"SELECT count(*) FROM {_EACH.format('count(DISTINCT Country) AS n')} WHERE n > 1",
    ),
    (
        "Who has nothing but cancelled orders: how many?",
        'ask(Count(each_person={"gone": "all(InvoiceNo like \'C%\')"}, where="gone"))',
        "SELECT count(*) FROM " + _EACH.format("bool_and(InvoiceNo LIKE 'C%') AS gone") + " WHERE gone",
    ),
    (
        "What do customers with ten orders or more bring?",
        'ask(Sum(*MONEY, beside={"orders": "distinct(InvoiceNo)"}, where="orders >= 10", clip=3))',
        f"SELECT sum(amount) FROM rows JOIN {_EACH.format('count(DISTINCT InvoiceNo) AS n')} USING (CustomerID) "
        "WHERE n >= 10",
    ),
    (
        "How many days lie between the first and the last order?",
        'ask(Mean("days(first, last)", 0, 400, each_person={"first": "min(day)", "last": "max(day)"}))',
        f"SELECT avg(d) FROM {_EACH.format('max(day) - min(day) AS d')}",
    ),
]
BASKETS = [
    (
        "What is an order worth?",
        'ask(Mean("total", -170_000, 170_000, per="row", each=ORDER, clip=250))',
        f"SELECT avg(total) FROM {_ORDERS}",
    ),
    (
        "How many orders are above 500 pounds?",
        'ask(Count(each=ORDER, where="total > 500", clip=250))',
        f"SELECT count(*) FROM {_ORDERS} WHERE total > 500",
    ),
    (
        "How many lines has an order?",
        'ask(Mean("n", 0, 600, per="row", each=ORDER, clip=250))',
        f"SELECT avg(n) FROM {_ORDERS}",
    ),
    (
        "How many orders hold both 85123A and 22423?",
        f'ask(Count({_STEP}, where="a and b", clip=250))',
        f"SELECT count(*) FROM {_BASKETS} WHERE a AND b",
    ),
    (
        "Of the orders with 85123A, how many have 22423?",
        f'ask(Ratio(numerator_where="b", where="a", {_STEP}, clip=250))',
        f"SELECT avg(b::INT) FROM {_BASKETS} WHERE a",
    ),
    (
        "How many customers ever filled an order of 50 lines?",
        'ask(Count(each=ORDER, each_person={"most": "max(n)"}, where="most >= 50"))',
        f"SELECT count(DISTINCT CustomerID) FROM {_ORDERS} WHERE n >= 50",
    ),
    (
        "How large are orders?",
        'ask(Histogram("n", [1, 2, 5, 10, 20, 50, 600], each=ORDER, clip=250))',
        "SELECT count(*) FROM (SELECT (n >= 2)::INT + (n >= 5)::INT + (n >= 10)::INT + (n >= 20)::INT + (n >= "
        "50)::INT AS b "
        f"FROM {_ORDERS}) GROUP BY b ORDER BY b",
    ),
    (
        "How large is a customer's largest order, on average?",
        'ask(Mean("most", 0, 170_000, each=ORDER, each_person={"most": "max(total)"}))',
        f"SELECT avg(greatest(most, 0)) FROM (SELECT max(total) AS most FROM {_ORDERS} GROUP BY CustomerID)",
    ),
]
PRODUCTS = [
    (
        "Which five of these products have the most customers?",
        'ask(Top(5, "StockCode", among=PRODUCTS, clip=3))',
        f"SELECT StockCode, count(DISTINCT CustomerID) AS n FROM rows WHERE StockCode IN {_PRODUCTS} GROUP BY 1 "
        "ORDER BY n DESC LIMIT 5",
    ),
    (
        "Which three of them bring the most money?",
        'ask(Sum(*MONEY, by={"StockCode": PRODUCTS}, clip=3)).largest(3)',
        f"SELECT sum(amount) AS s FROM rows WHERE StockCode IN {_PRODUCTS} GROUP BY StockCode ORDER BY s DESC LIMIT 3",
    ),
    (
        "Which one has the most customers, of all, though nobody listed them?",
        'ask(Keys("StockCode", delta=1e-9, most=1800, top=1)).keys',
        "SELECT StockCode FROM rows GROUP BY 1 ORDER BY count(DISTINCT CustomerID) DESC LIMIT 1",
    ),
    (
        "How many lines have a heart in the name?",
        "ask(Count(where=\"contains(Description, 'HEART')\", clip=8000))",
        "SELECT count(*) FROM rows WHERE contains(Description, 'HEART')",
    ),
    (
        "What do red articles bring?",
        "ask(Sum(*MONEY, where=\"Description like 'RED %'\", clip=3))",
        "SELECT sum(amount) FROM rows WHERE Description LIKE 'RED %'",
    ),
    (
        "How many bought 85123A and 22423?",
        'ask(Count(each_person={"a": "any(StockCode = \'85123A\')", "b": "any(StockCode = \'22423\')"}, where="a '
        'and b"))',
        f"SELECT count(*) FROM {_BOTH} WHERE a AND b",
    ),
    (
        "How many bought the first and never the second?",
        'ask(Count(each_person={"a": "any(StockCode = \'85123A\')", "b": "any(StockCode = \'22423\')"}, '
        'where="a and not b"))',
        f"SELECT count(*) FROM {_BOTH} WHERE a AND NOT b",
    ),
    (
        "What part of the money is postage?",
        'ask(Ratio("amount", "amount", numerator_bounds=(0, 9000), denominator_bounds=(0, 170_000), '
        'numerator_where="StockCode = \'POST\'", where="amount > 0", clip=3))',
        "SELECT sum(amount) FILTER (StockCode = 'POST') / sum(amount) FROM rows WHERE amount > 0",
    ),
]
RETENTION = [
    (
        "Customers whose first month was this one: what do they order in later months (cohorts)?",
        'ask(Count(beside={"first": "min(month(day))"}, by={"first": MONTHS[:2], "month(day)": MONTHS[:3]}, '
        "clip=8000))",
        "SELECT count(*) FILTER (first = f AND date_trunc('month', day) = m) FROM (VALUES (DATE '2010-12-01'), "
        "(DATE '2011-01-01')) a(f), (VALUES (DATE '2010-12-01'), (DATE '2011-01-01'), (DATE '2011-02-01')) b(m), "
        "(SELECT day, min(date_trunc('month', day)) OVER (PARTITION BY CustomerID) AS first FROM rows) "
        "GROUP BY f, m ORDER BY f, m",
    ),
    (
        "How many of December's customers came back in 2011?",
        'ask(Count(each_person={"before": "any(day < \'2011-01-01\')", "after": "any(day >= \'2011-01-01\')"}, '
        'where="before and after"))',
        "SELECT count(*) FROM (SELECT min(day) AS a, max(day) AS b FROM rows GROUP BY CustomerID) "
        "WHERE a < '2011-01-01' AND b >= '2011-01-01'",
    ),
    (
        "How many new customers come in each month?",
        'ask(Count(each_person={"first": "min(month(day))"}, by={"first": MONTHS}))',
        "SELECT count(*) FROM (SELECT min(date_trunc('month', day)) AS f FROM rows GROUP BY CustomerID) GROUP BY "
        "f ORDER BY f",
    ),
    (
        "How many have not ordered since June?",
        'ask(Count(each_person={"last": "max(day)"}, where="last < \'2011-07-01\'"))',
        f"SELECT count(*) FROM {_EACH.format('max(day) AS last')} WHERE last < '2011-07-01'",
    ),
    (
        "How many ordered in three months or more?",
        'ask(Count(each_person={"n": "distinct(month(day))"}, where="n >= 3"))',
        "SELECT count(*) FROM (SELECT count(DISTINCT date_trunc('month', day)) AS n FROM rows GROUP BY "
        "CustomerID) WHERE n >= 3",
    ),
    (
        "What part of the customers ordered again?",
        'ask(Mean("n >= 2", 0, 1, each_person={"n": "distinct(InvoiceNo)"}))',
        f"SELECT avg((n >= 2)::INT) FROM {_EACH.format('count(DISTINCT InvoiceNo) AS n')}",
    ),
]
COMPARISONS = [
    (
        "Are British orders larger than German ones?",
        'ask(Mean("total", -170_000, 170_000, per="row", each=ORDER, by={"country": COUNTRIES}, clip=250))'
        '.difference("United Kingdom", "Germany")',
        "SELECT avg(total) FILTER (country = 'United Kingdom') - avg(total) FILTER (country = 'Germany') "
        f"FROM {_ORDERS}",
    ),
    (
        "What share of the lines has each main country?",
        'ask(Count(by={"Country": COUNTRIES}, clip=8000)).shares()',
        f"SELECT n / sum(n) OVER () FROM ({_BY_COUNTRY.format('i, count(*) AS n')}) ORDER BY i",
    ),
    (
        "Where do most customers live?",
        'ask(People(by={"Country": COUNTRIES}, clip=2)).largest(2)',
        "SELECT count(DISTINCT CustomerID) AS n FROM rows GROUP BY Country ORDER BY n DESC LIMIT 2",
    ),
    (
        "Did prices rise from spring to summer?",
        'ask(Mean("UnitPrice", 0, 100, per="row", by={"quarter(day)": ["2011-04-01", "2011-07-01"]}, clip=8000))'
        '.difference("2011-07-01", "2011-04-01")',
        "SELECT avg(least(UnitPrice, 100)) FILTER (day BETWEEN '2011-07-01' AND '2011-09-30') "
        "- avg(least(UnitPrice, 100)) FILTER (day BETWEEN '2011-04-01' AND '2011-06-30') FROM rows",
    ),
    (
        "Lines, money and price of two countries, side by side?",
        'sql("SELECT Country, count(*) AS n, sum(amount) AS money, avg(UnitPrice) AS price FROM data '
        "WHERE Country IN ('France', 'Germany') GROUP BY Country ORDER BY Country\", "
        'bounds={"amount": (-1000, 9000), "UnitPrice": (0, 100)}, clip=8000)',
        "SELECT Country, count(*), sum(greatest(least(amount, 9000), -1000)), avg(least(UnitPrice, 100)) FROM rows "
        "WHERE Country IN ('France', 'Germany') GROUP BY 1 ORDER BY 1",
    ),
]
DISTRIBUTIONS = [
    (
        "What is the median price of a line?",
        'sql("SELECT median(UnitPrice) AS m FROM data", bounds={"UnitPrice": (0, 20)}, quantile_bins=2000, clip=8000)',
        "SELECT quantile_cont(UnitPrice, 0.5) FROM rows",
    ),
    (
        "What do the middle half of the customers spend?",
        'ask(Quantiles("amount", spaced_edges(0, 300_000, smallest=1, bins=2000), levels=[0.25, 0.5, 0.75], '
        'per="total"))',
        f"SELECT unnest(quantile_cont(s, [0.25, 0.5, 0.75])) FROM {_EACH.format('sum(amount) AS s')}",
    ),
    (
        "Which order is larger than 99 % of all?",
        'ask(Quantiles("total", spaced_edges(0, 170_000, smallest=1, bins=2000), levels=[0.99], per="row", each=ORDER, '
        "clip=250))",
        f"SELECT quantile_cont(total, 0.99) FROM {_ORDERS}",
    ),
    (
        "How many customers spend how much?",
        'ask(Histogram("amount", [0, 100, 500, 1000, 5000, 300_000], per="total"))',
        "SELECT count(*) FROM (SELECT CASE WHEN s < 100 THEN 0 WHEN s < 500 THEN 1 WHEN s < 1000 THEN 2 WHEN s < "
        "5000 THEN 3 "
        f"ELSE 4 END AS b FROM {_EACH.format('sum(amount) AS s')}) GROUP BY b ORDER BY b",
    ),
    (
        "What share of the customers spends less than each of these?",
        'ask(Histogram("spent > 1000", [0, 0.5, 1], each_person={"spent": "sum(amount)"}, clip=1)).shares()',
        f"SELECT unnest([avg((s <= 1000)::INT), avg((s > 1000)::INT)]) FROM {_EACH.format('sum(amount) AS s')}",
    ),
    (
        "What is the geometric mean of a line?",
        'ask(Mean("ln(amount)", -7, 13, where="amount > 0", per="row", clip=8000))',
        "SELECT avg(ln(amount)) FROM rows WHERE amount > 0",
    ),
]
MODELS = [
    (
        "Do larger quantities have lower prices (covariance)?",
        'ask(Covariance({"Quantity": (0, 1000), "UnitPrice": (0, 100)}, where="Quantity > 0", clip=8000))',
        "SELECT unnest([var_pop(q), covar_pop(q, p), covar_pop(q, p), var_pop(p)]) FROM (SELECT least(Quantity, "
        "1000) AS q, "
        "least(UnitPrice, 100) AS p FROM rows WHERE Quantity > 0)",
    ),
    (
        "How much does each further line add to an order?",
        'ask(Regression("total", {"total": (0, 2000), "n": (0, 100)}, where="total > 0", each=ORDER, clip=250))',
        "SELECT unnest([regr_intercept(t, n), regr_slope(t, n)]) FROM (SELECT least(total, 2000) AS t, least(n, "
        "100) AS n "
        f"FROM {_ORDERS} WHERE total > 0)",
    ),
]
BUDGET = [
    ("What would this question cost, and how exact would it be?", "ann.quote(Count(clip=100, rho=0.001))", None),
    ("How much is left to me?", "ann.left", None),
    ("The number of lines, give or take 5,000?", "ann.quote(Count(clip=8000, error=5000))", None),
    ("Which answers do I have already?", "ann.answers()", None),
]
CANNOT = [
    (
        "What was the largest order?",
        "It is one customer's. Ask for a high quantile (0.99 above): it rests on many people.",
    ),
    ("Who are our ten best customers?", "An answer about a person is what is protected; ask how many spend how much."),
    (
        "How long does it take from the first to the second order?",
        "Steps have a person's first and last entries, and no order among the rows between.",
    ),
    (
        "How many products were bought by fewer than ten customers?",
        "A property of a product depends on many people. `Keys` tells the products of many, not the number of "
        "the others.",
    ),
]
GROUPS = {
    "Sizes": SIZES, "Money": MONEY, "Time": TIME, "Customers": CUSTOMERS, "Baskets": BASKETS, "Products": PRODUCTS,
    "Retention": RETENTION, "Comparisons": COMPARISONS, "Distributions": DISTRIBUTIONS,
    "Models": MODELS, "Budget": BUDGET,
}  # fmt: skip

_HEAD = """# Questions that a shop asks

Here are NUMBER questions about [Online Retail](https://archive.ics.uci.edu/dataset/352/online+retail), 406,829 order
lines of 4,372 customers in a year; ASKED can be asked. A test asks each line of the real data, and compares it with
plain SQL. The data holder opens the shop:

```python
session = queries.Session.open(
    queries.Table(
        "online_retail.csv.gz",
        view="SELECT *, Quantity * UnitPrice AS amount, CAST(InvoiceDate AS DATE) AS day FROM data",
    ),
    person="CustomerID",
    budget=filters.Zcdp(epsilon=1, delta=1e-6),
    ledger="shop.ledger",
    create=True,
)
ann = session.analyst("ann")
```

`ask(x)` stands for `ann.ask(x, key=...)`, and `sql(x)` for `ann.sql(x, key=...)`, with a key of your own. Each question
takes a price besides, such as `rho=0.001` or `epsilon=0.05`. These are public knowledge of the shop:

```python
CONSTANTS
```

Here `clip` is so large that nobody is clipped, so that answers can be compared with SQL: choose
[a smaller one](queries/which-question.md#questions), or `clip="auto"`. `.shares()`, `.largest(3)`, `.difference()` and
others [cost nothing](queries/answers.md#what-follows-from-an-answer).

| question | line |
|---|---|
"""


def page() -> str:
    """Make docs/questions.md."""
    lines, asked = [], 0
    for name, listed in GROUPS.items():
        lines.append(f"| **{name}** | |")
        for words, line, _ in listed:
            lines.append(f"| {words} | `{line.replace('|', chr(92) + '|')}` |")
            asked += 1
    lines.append("| **Cannot be asked** | |")
    lines += [f"| {words} | {reason} |" for words, reason in CANNOT]
    head = _HEAD.replace("NUMBER", f"{asked + len(CANNOT)}").replace("ASKED", f"{asked}")
    head = head.replace("CONSTANTS", CONSTANTS.strip())
    return head + "\n".join(lines) + "\n"
