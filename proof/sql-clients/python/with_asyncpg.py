"""asyncpg, which speaks the extended protocol and binary values alone."""

import asyncio
import datetime
import io
from decimal import Decimal
from uuid import UUID

import asyncpg

from scenarios import equal


def run(work):
    """Makes a scenario of a coroutine that takes a connection and the table."""
    async def connected(host, port, table):
        connection = await asyncpg.connect(
            host=host, port=port, user="tester", database="memlane", timeout=10, ssl=False
        )
        try:
            await asyncio.wait_for(work(connection, table), 60)
        finally:
            await connection.close(timeout=10)

    return lambda host, port, table: asyncio.run(connected(host, port, table))


def pools(host, port, table):
    """A pool resets each connection that it takes back, and gives it to the next user."""
    async def pooled():
        pool = await asyncpg.create_pool(
            host=host, port=port, user="tester", database="memlane", min_size=1, max_size=1
        )
        for number in range(3):
            async with pool.acquire() as connection:
                equal(await connection.fetchval("SHOW application_name"), "", "a fresh session")
                await connection.execute(f"SET application_name = 'a{number}'")
                count = await connection.fetchval(f"SELECT count(*) FROM {table}")
                equal(count, 30, "count")
        await pool.close()

    asyncio.run(asyncio.wait_for(pooled(), 60))


@run
async def binary_values(connection, table):
    row = await connection.fetchrow(
        f"""SELECT partition, "offset", time, key, (value->>'qty')::int AS qty,
            (value->>'price')::float8 AS price, (value->>'price')::numeric AS exact,
            (value->>'qty')::int > 3 AS large, value->>'no' AS missing, time::date AS day
            FROM {table} WHERE key = $1""", "k7")
    equal((row["partition"], row["offset"], row["key"]), (1, 2, "k7"), "place")
    equal((row["qty"], row["price"], float(row["exact"])), (7, 7.5, 7.5), "numbers")
    equal((row["large"], row["missing"]), (True, None), "truth and nothing")
    equal(row["day"], row["time"].date(), "date")
    if not isinstance(row["time"], datetime.datetime):
        raise AssertionError(f"{row['time']!r} is no time")


@run
async def inferred_parameters(connection, table):
    """Parameters without a declared type have the type of their place."""
    number = Decimal("2.123456789012345")
    row = await connection.fetchrow(
        "SELECT coalesce($1, 1.5), CASE WHEN true THEN $2 ELSE 1.5 END, "
        "$3 IN (1.5, 2.123456789012345), greatest($4::numeric, $5), $6 + 1.5",
        number, number, number, number, Decimal(1), number)
    equal(tuple(row), (number, number, True, number, number + Decimal("1.5")), "numerics")
    last = datetime.datetime(9999, 12, 31, tzinfo=datetime.timezone.utc)
    row = await connection.fetchrow(
        "SELECT $1::timestamptz, $2::date, $3::uuid, $4::text = ANY($5::uuid[])",
        last, datetime.date(9999, 12, 30), UUID(int=10), str(UUID(int=1)), [UUID(int=1)])
    expected = (last, datetime.date(9999, 12, 30), UUID(int=10), True)
    equal(tuple(row), expected, "times and uuids")


@run
async def prepared_statements(connection, table):
    statement = await connection.prepare(
        f"SELECT count(*) FROM {table} WHERE partition = $1 AND \"offset\" < $2"
    )
    for partition in range(3):
        equal(await statement.fetchval(partition, 4), 4, "count")
    await connection.executemany(
        f"INSERT INTO {table} (key, value) VALUES ($1, $2)", [("many", "1"), ("many", "2")]
    )
    found = await connection.fetch(f"SELECT value FROM {table} WHERE key = 'many' ORDER BY 1")
    equal([row["value"] for row in found], ["1", "2"], "inserted values")


@run
async def casts_type_parameters(connection, table):
    """The driver refuses an int for a text parameter, and looks up the types of arrays."""
    now = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.timezone.utc)
    for cast, value in [
        ("bigint", 5), ("varchar", "a"), ("boolean", True), ("date", now.date()),
        ("timestamptz", now), ("interval", datetime.timedelta(hours=1)), ("bytea", b"a"),
        ("float8", 1.5), ("int[]", [1, None]), ("bigint[]", [1]), ("text[]", ["a"]),
        ("varchar[]", ["a", None]), ("float8[]", [1.5]), ("timestamptz[]", [now]),
    ]:
        equal(await connection.fetchval(f"SELECT $1::{cast}", value), value, cast)
    found = await connection.fetch(
        f"SELECT key FROM {table} WHERE key = ANY($1::varchar[]) ORDER BY 1", ["k1", "k2"]
    )
    equal([row["key"] for row in found], ["k1", "k2"], "keys")
    await connection.execute(
        f"INSERT INTO {table} (key, value) SELECT * FROM unnest($1::text[], $2::text[])",
        ['of "arrays"', "u2"], ["a\\b", None]
    )
    found = await connection.fetch(f"SELECT value FROM {table} WHERE key = $1", 'of "arrays"')
    equal([row["value"] for row in found], ["a\\b"], "inserted")


@run
async def cursors(connection, table):
    async with connection.transaction():
        found = []
        query = f"SELECT key FROM {table} WHERE key LIKE $1 ORDER BY (value->>'qty')::int"
        async for row in connection.cursor(query, "k%", prefetch=4):
            found.append(row["key"])
        equal(found, [f"k{number}" for number in range(30)], "rows")


@run
async def errors_have_states(connection, table):
    for query, state in [
        ("SELEC 1", "42601"),
        (f"SELECT no_such FROM {table}", "42703"),
        (f"SELECT 1 / (partition - partition) FROM {table}", "22012"),
    ]:
        try:
            await connection.fetch(query)
        except asyncpg.PostgresError as error:
            equal(error.sqlstate, state, query)
        else:
            raise AssertionError(f"{query} did not fail")


@run
async def a_timeout_cancels(connection, table):
    endless = " CROSS JOIN ".join(f"{table} t{number}" for number in range(12))
    try:
        await connection.fetch(f"SELECT count(*) FROM {endless}", timeout=0.5)
    except asyncio.TimeoutError:
        pass
    else:
        raise AssertionError("the query ended")
    equal(await connection.fetchval("SELECT 1"), 1, "value after the cancellation")


@run
async def copies(connection, table):
    time = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.timezone.utc)
    records = [(0, time, "a1", "x"), (1, None, "a2", None)]
    columns = ["partition", "time", "key", "value"]
    copied = await connection.copy_records_to_table(table, records=records, columns=columns)
    equal(copied, "COPY 2", "tag")
    found = await connection.fetch(
        f"SELECT partition, time, key, value FROM {table} WHERE key LIKE 'a_' ORDER BY key"
    )
    equal(tuple(found[0]), records[0], "first record")
    equal((found[1]["partition"], found[1]["value"]), (1, None), "second record")
    out = io.BytesIO()
    query = f"SELECT key, value FROM {table} WHERE key = 'a1'"
    await connection.copy_from_query(query, output=out, format="csv", header=True)
    equal(out.getvalue(), b"key,value\na1,x\n", "rows as CSV")
    csv = io.BytesIO(b"key,value\na3,y\n")
    await connection.copy_to_table(
        table, source=csv, columns=["key", "value"], format="csv", header=True
    )
    equal(await connection.fetchval(f"SELECT value FROM {table} WHERE key = 'a3'"), "y", "value")
