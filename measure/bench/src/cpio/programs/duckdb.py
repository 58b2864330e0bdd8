"""Sales in DuckDB: made from a seed, asked with little memory, and checked by other ways.

fill COUNT SEED | work CORES MEBIBYTES | check
"""

import sys

import duckdb

QUESTIONS = {
    "month": "SELECT day // 30 AS month, sum(cents * quantity) AS earned FROM sale GROUP BY month",
    "best": """SELECT category, product, earned FROM (
            SELECT product % 20 AS category, product, sum(cents * quantity) AS earned,
                row_number() OVER (PARTITION BY product % 20
                    ORDER BY sum(cents * quantity) DESC, product) AS place
            FROM sale GROUP BY product)
        WHERE place <= 10""",
    "again": """SELECT times, count(*) AS customers FROM (
            SELECT customer, count(*) AS times FROM sale GROUP BY customer)
        GROUP BY times""",
    "reach": "SELECT store, count(DISTINCT customer) AS customers FROM sale GROUP BY store",
    "sorted": "SELECT * FROM sale ORDER BY cents, customer, id",
}


def fill(database, count, seed):
    database.execute(
        f"""CREATE TABLE sale AS
        SELECT i AS id, h % 730 AS day, h // 730 % 100 AS store, h // 73000 % 2000 AS product,
            h // 146000000 % 20000 AS customer, 1 + i % 9 AS quantity, 100 + h % 9900 AS cents
        FROM (SELECT i, (hash(i + {seed}) // 2)::BIGINT AS h FROM range({count}) AS rows(i))"""
    )


def work(database, cores, mebibytes):
    database.execute(f"SET threads = {cores}")
    database.execute(f"SET memory_limit = '{mebibytes}MiB'")
    database.execute("SET temp_directory = 'spill'")
    for name, question in QUESTIONS.items():
        database.execute(f"CREATE TABLE {name} AS {question}")


def check(database):
    def number(query):
        return database.execute(f"SELECT {query}").fetchone()[0]

    sales = number("count(*) FROM sale")
    earned = number("sum(cents * quantity) FROM sale")
    assert number("sum(earned) FROM month") == earned, "the months earned something else"
    assert number("sum(times * customers) FROM again") == sales, "customers bought something else"
    assert number("count(*) FROM best") == 200, "not ten best products of twenty categories"
    assert number("count(*) FROM reach") == 100, "not a hundred stores"
    assert number("count(*) FROM sorted") == sales, "sales were lost when they were sorted"
    falls = """count(*) FROM (SELECT cents, lag(cents) OVER (ORDER BY rowid) AS last FROM sorted)
        WHERE last > cents"""
    assert number(falls) == 0, "what was sorted is not in order"
    print(f"{sales} sales")


def main():
    task, numbers = sys.argv[1], [int(number) for number in sys.argv[2:]]
    database = duckdb.connect("sales.duckdb")
    database.execute("SET enable_progress_bar = false")
    {"fill": fill, "work": work, "check": check}[task](database, *numbers)
    database.close()


main()
