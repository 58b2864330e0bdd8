"""Live queries, by psycopg 3."""

import collections
import random
import sys
import threading
import time

import psycopg

from scenarios import equal
from with_psycopg import connect

WAIT = 60


def insert(connection, table, key, value):
    query = f'INSERT INTO "{table}" (partition, key, value) VALUES (%s, %s, %s)'
    connection.execute(query, (sum(key.encode()) % 3, key, value))


def rows_as_they_come(host, port, table):
    with connect(host, port, autocommit=True) as one, connect(host, port, autocommit=True) as two:
        query = f"""SUBSCRIBE TO (SELECT key, (value->>'qty')::int AS qty FROM {table}
                    WHERE value->>'name' = %s) WITH (PROGRESS)"""
        with one.cursor() as cursor:
            rows = cursor.stream(query, ("n7",))
            first = next(rows)
            equal([column.name for column in cursor.description],
                  ["mz_timestamp", "mz_progressed", "mz_diff", "key", "qty"], "columns")
            equal(first[1:], (False, 1, "k7", 7), "the row that is there")
            for number in range(100):
                insert(two, table, f"new{number}", '{"name": "n7", "qty": %d}' % number)
                row = next(row for row in rows if not row[1])
                equal(row[2:], (1, f"new{number}", number), "a row that comes")
            one.cancel_safe()
            try:
                list(rows)
                raise AssertionError("it was cancelled")
            except psycopg.errors.QueryCanceled:
                pass
        equal(one.execute("SELECT 1").fetchone(), (1,), "the connection after it")


def copies(host, port, table):
    with connect(host, port, autocommit=True) as connection:
        query = f"""SUBSCRIBE TO (SELECT key, value->>'name' AS "a, b" FROM {table}
                    WHERE key IN ('k1', 'k2')) WITH (SNAPSHOT) UP TO OFFSET 10"""
        expected = [("1", "k1", "n1"), ("1", "k2", "n2")]
        for options, sign in [("", "\t"), ("WITH (FORMAT csv)", ",")]:
            with connection.cursor().copy(f"COPY ({query}) TO STDOUT {options}") as copy:
                lines = b"".join(bytes(part) for part in copy).decode().splitlines()
            equal(sorted(tuple(line.split(sign)[1:]) for line in lines), expected, options)
        with connection.cursor().copy(f"COPY ({query}) TO STDOUT (FORMAT binary)") as copy:
            copy.set_types(["int8", "int8", "text", "text"])
            equal(sorted(row[1:] for row in copy.rows()),
                  [(1, "k1", "n1"), (1, "k2", "n2")], "binary")


def cursors(host, port, table):
    with connect(host, port) as one, connect(host, port, autocommit=True) as two:
        one.execute(f"DECLARE c CURSOR FOR SUBSCRIBE TO (SELECT key FROM {table})")
        found = []
        while len(found) < 30:
            found += [key for (_, _, key) in one.execute("FETCH 7 c").fetchall()]
        equal(sorted(found), sorted(f"k{number}" for number in range(30)), "the snapshot")
        equal(one.execute("FETCH ALL c WITH (TIMEOUT = '0 s')").fetchall(), [], "nothing more")
        begun = time.monotonic()
        equal(one.execute("FETCH ALL c WITH (TIMEOUT = '300 ms')").fetchall(), [], "nothing")
        if time.monotonic() - begun < 0.3:
            raise AssertionError("it did not wait")
        for count in ["1", "ALL"]:
            timer = threading.Timer(0.2, insert, (two, table, "later", "{}"))
            timer.start()
            rows = one.execute(f"FETCH {count} c").fetchall()
            equal([row[1:] for row in rows], [(1, "later")], "FETCH waits for a row")
            timer.join()
        one.execute("SET statement_timeout = '200ms'")
        try:
            one.execute("FETCH 1 c")
            raise AssertionError("its time was over")
        except psycopg.errors.QueryCanceled:
            pass


def views(host, port, table):
    view, draw = f"{table}_sums", random.Random(7)
    query = f"""SELECT value->>'name' AS name, sum((value->>'qty')::bigint) AS qty, count(*) AS n
                FROM {table} GROUP BY 1"""
    with connect(host, port, autocommit=True) as one, connect(host, port, autocommit=True) as two:
        two.execute(f"CREATE MATERIALIZED VIEW {view} AS {query}")
        with one.cursor() as cursor:
            rows = cursor.stream(f"SUBSCRIBE TO {view}")
            there = collections.Counter()
            for number in range(60):
                # Numbers that add up to more than 64 bits hold.
                qty = draw.choice([-5, 0, 7, 2**63 - 1])
                name = draw.choice(['"n1"', '"n2"', '"new"', "null"])
                insert(two, table, f"v{number}", '{"name": %s, "qty": %d}' % (name, qty))
            wanted = collections.Counter(two.execute(query).fetchall())
            while there != wanted:
                (_, diff, *row) = next(rows)
                there[tuple(row)] += diff
                if there[tuple(row)] == 0:
                    del there[tuple(row)]
            equal([(column.name, column.type_code) for column in cursor.description][2:],
                  [("name", 25), ("qty", 1700), ("n", 20)], "columns and their types")
            rows.close()
        found = two.execute(f"SELECT name, qty, n FROM {view}").fetchall()
        equal(collections.Counter(found), wanted, "the view")
        few = f"SELECT name, qty FROM {view} WHERE qty > %s OR name IS NULL"
        with one.cursor() as cursor:
            rows = cursor.stream(f"SUBSCRIBE TO ({few}) ENVELOPE UPSERT (KEY (name))", (2**63,))
            expected = {name: qty for (name, qty, _) in wanted if qty > 2**63 or name is None}
            found = [next(rows)[1:] for _ in expected]
            equal(sorted(found, key=str),
                  sorted((("upsert", *it) for it in expected.items()), key=str), "rows by keys")
            rows.close()


class Subscriber:
    """Adds up rows, and goes on after a break where the last row of progress says."""

    def __init__(self, address, query):
        self.address, self.query = address, query
        self.there, self.since, self.position = {}, [], None
        self.count, self.breaks, self.failure = 0, 0, None
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while self.failure is None:
            try:
                self.follow()
            except psycopg.OperationalError as error:
                # Of the broker that was killed; another is started.
                if error.sqlstate not in (None, "57P01", "40001", "08006"):
                    self.failure = error
                self.breaks += 1
                time.sleep(0.05)
            except BaseException as error:
                self.failure = error

    def follow(self):
        options, point = "PROGRESS, POSITION", ""
        with self.lock:
            self.since = []
            if self.position is not None:
                options += ", SNAPSHOT = false"
                point = f"AS OF '{self.position}'"
        with connect(*self.address, autocommit=True) as connection:
            query = f"SUBSCRIBE TO ({self.query}) WITH ({options}) {point}"
            for row in connection.cursor().stream(query):
                with self.lock:
                    self.take(row)

    def take(self, row):
        _, is_progress, position, diff, *columns = row
        if not is_progress:
            self.since.append((diff, tuple(columns)))
            return
        add(self.there, self.since)
        self.count += len(self.since)
        self.since, self.position = [], position

    def state(self):
        with self.lock:
            state = dict(self.there)
            add(state, self.since)
        return sorted(state)


def add(there, changes):
    for diff, columns in changes:
        count = there.get(columns, 0) + diff
        if count not in (0, 1):
            raise AssertionError(f"{columns} is there {count} times")
        if count:
            there[columns] = count
        else:
            del there[columns]


def published(address, table, stopped):
    """Publishes until the input ends, whatever becomes of the broker. Returns how often."""
    count = 0
    while not stopped.is_set():
        try:
            with connect(*address, autocommit=True) as connection:
                while not stopped.is_set():
                    key = f"k{random.randrange(40)}"
                    number = random.randrange(1000)
                    value = None if random.random() < 0.2 else '{"n": %d}' % number
                    insert(connection, table, key, value)
                    count += 1
        except psycopg.OperationalError:
            time.sleep(0.05)
    return count


def through_kills(host, port, table):
    """The broker is killed and started again until the input ends."""
    address, stopped = (host, port), threading.Event()
    log = f'SELECT partition, "offset", key FROM "{table}" WHERE key < \'k3\''
    current = f'SELECT partition, key, value FROM "{table}$current" WHERE key < \'k3\''
    subscribers = [Subscriber(address, query) for query in [log, current]]
    counts = []
    thread = threading.Thread(target=lambda: counts.append(published(address, table, stopped)))
    thread.start()
    sys.stdin.read()
    stopped.set()
    thread.join()
    with connect(*address, autocommit=True) as connection:
        for subscriber, query in zip(subscribers, [log, current]):
            deadline = time.monotonic() + WAIT
            expected = sorted(connection.execute(query).fetchall())
            while subscriber.state() != expected:
                if subscriber.failure is not None:
                    raise subscriber.failure
                if time.monotonic() > deadline:
                    found = subscriber.state()
                    raise AssertionError(
                        f"{query}: missing {sorted(set(expected) - set(found))[:5]}, "
                        f"too many {sorted(set(found) - set(expected))[:5]}"
                    )
                time.sleep(0.05)
            print(f"{len(expected)} rows, {subscriber.count} changes, {subscriber.breaks} breaks")
    print(f"{counts[0]} records published")
