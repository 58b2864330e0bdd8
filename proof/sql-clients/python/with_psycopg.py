"""psycopg 3."""

import datetime
import threading
import uuid
from decimal import Decimal

import psycopg
from psycopg.types import TypeInfo
from psycopg.types.json import Jsonb

from scenarios import equal


def connect(host, port, **options):
    return psycopg.connect(
        host=host, port=port, user="tester", dbname="memlane", connect_timeout=10, **options
    )


def parameters(host, port, table):
    with connect(host, port, autocommit=True) as connection:
        query = f"""SELECT key, value->>'name', (value->>'qty')::int, (value->>'price')::float8, time
                    FROM {table} WHERE (value->>'qty')::int > %s AND key <> %s ORDER BY 3 LIMIT %s"""
        for binary in [False, True]:
            with connection.cursor(binary=binary) as cursor:
                rows = cursor.execute(query, (10, "k12", 3)).fetchall()
                equal([row[:4] for row in rows], [
                    ("k11", "n11", 11, 11.5), ("k13", "n13", 13, 13.5), ("k14", "n14", 14, 14.5),
                ], f"rows, binary {binary}")
                if not isinstance(rows[0][4], datetime.datetime):
                    raise AssertionError(f"{rows[0][4]!r} is no time")
        rows = connection.execute(f"SELECT count(*) FROM {table} WHERE value->>'no' IS NULL")
        equal(rows.fetchall(), [(30,)], "count")
        found = connection.execute(f"SELECT \"offset\" FROM {table} WHERE key = %s", (None,))
        equal(found.fetchall(), [], "nothing is equal to NULL")


def exact_parameters(host, port, table):
    """Numerics keep their digits and scales in both formats. What is not supported is refused."""
    numbers = ["1.50", "0.12345678901234567890123456789", "1E+3", "0.00", "-12.340",
               "12345678901234567890123456789012345678.5"]
    with connect(host, port, autocommit=True) as connection:
        for number in map(Decimal, numbers):
            for holder in ["%t", "%b"]:
                query = f"""SELECT {holder}::numeric, {holder} - 0, coalesce({holder}, 1.5),
                            {holder}::numeric::text, {holder}::numeric = {number:f}"""
                found = connection.execute(query, (number,) * 5, prepare=True).fetchone()
                shown = format(number, "f")
                expected = (shown, shown, shown, shown, "True")
                equal(tuple(map(str, found)), expected, f"{number} as {holder}")
        for holder in ["%t", "%b"]:
            for refused in ["NaN", "1E+80"]:
                try:
                    connection.execute(f"SELECT {holder}::numeric", (Decimal(refused),))
                except psycopg.errors.FeatureNotSupported:
                    continue
                raise AssertionError(f"{refused} was not refused")
        texts = "SELECT %t::numeric, %t::date, %t::timestamptz, %t::uuid"
        written = ("1e3", "epoch", " 9999-12-31 ", "{0A0B0C0D-0e0f-1011-1213-141516171819}")
        days = datetime.date(1970, 1, 1), datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC)
        identifier = uuid.UUID("0a0b0c0d-0e0f-1011-1213-141516171819")
        for binary in [False, True]:
            with connection.cursor(binary=binary) as cursor:
                found = cursor.execute(texts, written).fetchone()
                equal(found, (Decimal(1000), *days, identifier), f"texts, binary {binary}")
        found = connection.execute("SELECT lower(%t)::uuid = %t", (str(identifier), written[3]))
        equal(found.fetchone(), (True,), "a parameter beside a uuid")
        for holder in ["%t", "%b"]:
            found = connection.execute(
                f"SELECT {holder}::uuid, 1.5 = ANY({holder}), 'a'::varchar = ANY({holder})",
                (identifier, [Decimal("1.5"), Decimal("2.25")], ["a"]),
            )
            equal(found.fetchone(), (identifier, True, True), f"uuid and arrays as {holder}")


def jsonb_columns(host, port, table):
    """Columns of jsonb are of that type, as Django's JSONField needs."""
    with connect(host, port, autocommit=True) as connection:
        typed = f"{table}_typed"
        connection.execute(
            f"CREATE TABLE {typed} (more jsonb, note json) WITH (topic = '{table}', key = 'note')"
        )
        more = {"b": 1, "aa": [1, 2.5], "a": None}
        insert = f"INSERT INTO {typed} (more, note) VALUES (%s, '[1,2]')"
        connection.execute(insert, (Jsonb(more),))
        for binary in [False, True]:
            with connection.cursor(binary=binary) as cursor:
                query = f"""SELECT more, note, more->'aa', more::text FROM {typed}
                            WHERE more = %s AND more @> %s AND more->>'b' = %s"""
                cursor.execute(query, (Jsonb(more), Jsonb({"aa": [1]}), "1"))
                oids = [column.type_code for column in cursor.description]
                equal(oids, [3802, 114, 3802, 25], f"types, binary {binary}")
                text = '{"a": null, "b": 1, "aa": [1, 2.5]}'
                equal(cursor.fetchall(), [(more, [1, 2], [1, 2.5], text)], f"binary {binary}")
        types = connection.execute(
            "SELECT column_name, data_type FROM information_schema.columns "
            "WHERE table_name = %s AND data_type LIKE 'json%%' ORDER BY 1", (typed,))
        equal(types.fetchall()[-2:], [("more", "jsonb"), ("note", "json")], "described types")
        connection.execute(f"DROP TABLE {typed}")


def prepared_again(host, port, table):
    with connect(host, port, autocommit=True) as connection:
        query = f"SELECT value->>'name' FROM {table} WHERE key = %s"
        for number in range(30):
            row = connection.execute(query, (f"k{number}",), prepare=True).fetchone()
            equal(row, (f"n{number}",), "row of a prepared statement")


def cursor_of_the_server(host, port, table):
    with connect(host, port) as connection:
        query = f"SELECT key FROM {table} ORDER BY (value->>'qty')::int"
        connection.execute(f"DECLARE by_number CURSOR FOR {query}")
        found = []
        while rows := connection.execute("FETCH 7 FROM by_number").fetchall():
            found.extend(key for (key,) in rows)
        equal(found, [f"k{number}" for number in range(30)], "rows")


def named_cursors(host, port, table):
    with connect(host, port) as connection:
        query = f"SELECT key, \"offset\" FROM {table} ORDER BY (value->>'qty')::int"
        with connection.cursor("by number") as cursor:
            cursor.itersize = 7
            cursor.execute(query)
            equal([it.name for it in cursor.description], ["key", "offset"], "columns")
            equal([row[0] for row in cursor], [f"k{number}" for number in range(30)], "rows")
        filtered = f"SELECT key FROM {table} WHERE \"offset\" >= %s ORDER BY 1"
        with connection.cursor("filtered", binary=True) as cursor:
            cursor.execute(filtered, (9,))
            equal(cursor.fetchone(), ("k27",), "first row")
            equal(cursor.fetchmany(9), [("k28",), ("k29",)], "other rows")
            equal(cursor.fetchall(), [], "end")


def types(host, port, table):
    with connect(host, port, autocommit=True) as connection:
        for name, oid, array_oid in [("text", 25, 1009), ("int4", 23, 1007), ("json", 114, 199)]:
            found = TypeInfo.fetch(connection, name)
            equal((found.name, found.oid, found.array_oid), (name, oid, array_oid), name)
        equal(TypeInfo.fetch(connection, "timestamptz").regtype, "timestamp with time zone", "name")
        equal(TypeInfo.fetch(connection, "hstore"), None, "a type that is not there")


def many_rows_in_and_out(host, port, table):
    with connect(host, port) as connection:
        with connection.cursor() as cursor:
            rows = [(f"new{number}", f"value {number}") for number in range(50)]
            cursor.executemany(f"INSERT INTO {table} (key, value) VALUES (%s, %s)", rows)
            equal(cursor.rowcount, 50, "count of inserted rows")
        connection.commit()
        found = connection.execute(
            f"SELECT key, value FROM {table} WHERE key LIKE 'new%' ORDER BY length(key), key"
        )
        equal(found.fetchall(), rows, "inserted rows")
        connection.execute(f"INSERT INTO {table} (key, value) VALUES ('never', 'x')")
        connection.rollback()
        found = connection.execute(f"SELECT count(*) FROM {table} WHERE key = 'never'")
        equal(found.fetchone(), (0,), "rows that were rolled back")


def errors_have_states(host, port, table):
    with connect(host, port, autocommit=True) as connection:
        for query, state in [
            ("SELEC 1", "42601"),
            (f"SELECT no_such FROM {table}", "42703"),
            ("SELECT * FROM no_such_topic", "42P01"),
            ("SELECT no_such_function(1)", "42883"),
            (f"SELECT 1 / (partition - partition) FROM {table}", "22012"),
            ("SELECT 'x'::int", "22P02"),
            (f"DROP TABLE {table}", "42809"),
        ]:
            try:
                connection.execute(query).fetchall()
            except psycopg.Error as error:
                equal(error.sqlstate, state, query)
            else:
                raise AssertionError(f"{query} did not fail")
            equal(connection.execute("SELECT 1").fetchone(), (1,), "the connection goes on")


def transactions_fail_whole(host, port, table):
    with connect(host, port) as connection:
        try:
            connection.execute("SELECT no_such")
        except psycopg.Error:
            pass
        try:
            connection.execute("SELECT 1")
        except psycopg.errors.InFailedSqlTransaction:
            connection.rollback()
        else:
            raise AssertionError("a failed transaction went on")
        equal(connection.execute("SELECT 1").fetchone(), (1,), "row after ROLLBACK")


def cancel(host, port, table):
    with connect(host, port, autocommit=True) as connection:
        # Far more rows than any machine counts in the time of a test.
        endless = " CROSS JOIN ".join(f"{table} t{number}" for number in range(12))
        timer = threading.Timer(1, connection.cancel_safe)
        timer.start()
        try:
            connection.execute(f"SELECT count(*) FROM {endless}")
        except psycopg.errors.QueryCanceled as error:
            equal(error.sqlstate, "57014", "state")
        else:
            raise AssertionError("the query was not cancelled")
        timer.join()
        equal(connection.execute("SELECT 1").fetchone(), (1,), "row after the cancellation")
        connection.execute("SET statement_timeout = '300ms'")
        try:
            connection.execute(f"SELECT count(*) FROM {endless}")
        except psycopg.errors.QueryCanceled:
            pass
        else:
            raise AssertionError("the statement has no time limit")


def copy_out(host, port, table):
    with connect(host, port, autocommit=True) as connection:
        query = f"COPY (SELECT key, value->>'no' FROM {table} ORDER BY (value->>'qty')::int LIMIT 2) TO STDOUT"
        with connection.cursor().copy(query) as copy:
            equal(list(copy.rows()), [("k0", None), ("k1", None)], "copied rows")


def copy_in(host, port, table):
    rows = [("c1", "a\tb"), ("c2", None), ("c3", ""), ("c4", "\\N\n\"ä\"")]
    with connect(host, port) as connection:
        for options in ["", "(FORMAT binary)"]:
            with connection.cursor() as cursor:
                with cursor.copy(f"COPY {table} (key, value) FROM STDIN {options}") as copy:
                    copy.set_types(["text", "text"])
                    for row in rows:
                        copy.write_row(row)
                equal(cursor.rowcount, 4, "count of copied rows")
            connection.commit()
        found = connection.execute(
            f"SELECT key, value FROM {table} WHERE key LIKE 'c_' ORDER BY key"
        )
        equal(found.fetchall(), [row for row in rows for _ in range(2)], "rows that were copied in")
        # Given up by the client, nothing is left, and the connection goes on.
        try:
            with connection.cursor().copy(f"COPY {table} (key) FROM STDIN") as copy:
                copy.write_row(("never",))
                raise KeyError("given up")
        except KeyError:
            connection.rollback()
        # Refused by the server while rows come.
        try:
            with connection.cursor().copy(f"COPY {table} (partition) FROM STDIN") as copy:
                for _ in range(100_000):
                    copy.write_row(("x",))
        except psycopg.Error as error:
            equal(error.sqlstate, "22P02", "state")
            connection.rollback()
        else:
            raise AssertionError("a partition of x was taken")
        found = connection.execute(f"SELECT count(*) FROM {table} WHERE key = 'never'")
        equal(found.fetchone(), (0,), "rows of a copy that was given up")
