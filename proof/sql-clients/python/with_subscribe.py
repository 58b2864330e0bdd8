"""Live queries, by psycopg 3."""

import collections
import datetime
import decimal
import json
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
            published = collections.defaultdict(list, {f"n{qty}": [qty] for qty in range(30)})
            for number in range(60):
                # Numbers that add up to more than 64 bits hold.
                qty = draw.choice([-5, 0, 7, 2**63 - 1])
                name = draw.choice(["n1", "n2", "new", None])
                value = json.dumps({"name": name, "qty": qty})
                insert(two, table, f"v{number}", value)
                published[name].append(qty)
            wanted = collections.Counter(
                (name, decimal.Decimal(sum(all_of)), len(all_of))
                for (name, all_of) in published.items()
            )
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
        # Of each connection.
        self.histories = []
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
            self.histories.append([])
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
            self.histories[-1].append((diff, tuple(columns)))
            return
        add(self.there, self.since)
        self.count += len(self.since)
        self.since, self.position = [], position

    def state(self):
        with self.lock:
            state = dict(self.there)
            add(state, self.since)
        return sorted(state)

    def expect(self, expected, break_count):
        """Waits until its rows add up to these."""
        deadline = time.monotonic() + WAIT
        while self.state() != expected:
            if self.failure is not None:
                raise self.failure
            if time.monotonic() > deadline:
                found = self.state()
                raise AssertionError(
                    f"{self.query}: missing {sorted(set(expected) - set(found))[:5]}, "
                    f"too many {sorted(set(found) - set(expected))[:5]}"
                )
            time.sleep(0.05)
        print(f"{len(expected)} rows, {self.count} changes, {self.breaks} breaks")
        if not expected or self.breaks < break_count:
            raise AssertionError(f"{self.query}: nothing happened")

    def expect_histories(self, changes, group_columns):
        """That each connection gave a part of these changes of each group without a gap."""
        for history in self.histories:
            groups = collections.defaultdict(list)
            for (diff, columns) in history:
                groups[columns[:group_columns]].append((diff, columns))
            for (group, found) in groups.items():
                at = changes[group].index(found[0])
                equal(found, changes[group][at:at + len(found)], f"changes of {group}")


def add(there, changes):
    for diff, columns in changes:
        count = there.get(columns, 0) + diff
        if count not in (0, 1):
            raise AssertionError(f"{columns} is there {count} times")
        if count:
            there[columns] = count
        else:
            del there[columns]


class Ledger:
    """What was published, in order, and whether the broker said that it has it."""

    def __init__(self, address, table):
        self.address, self.table = address, table
        self.begun = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
        self.entries, self.failure = [], None
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.stopped.is_set():
            try:
                with connect(*self.address, autocommit=True) as connection:
                    while not self.stopped.is_set():
                        self.publish(connection)
            except psycopg.OperationalError:
                # Of the broker that was killed; another is started.
                time.sleep(0.05)
            except BaseException as error:
                self.failure = error
                return

    def publish(self, connection):
        number = len(self.entries)
        key = f"k{random.randrange(40)}"
        value = None if random.random() < 0.2 else '{"n": %d}' % number
        # A time of its own tells each record.
        at = self.begun + datetime.timedelta(milliseconds=number)
        entry = {"place": (sum(key.encode()) % 3,), "row": (key, value, at), "is_acked": False}
        self.entries.append(entry)
        query = f'INSERT INTO "{self.table}" (partition, key, value, time) VALUES (%s, %s, %s, %s)'
        connection.execute(query, entry["place"] + entry["row"])
        entry["is_acked"] = True

    def rows(self, connection):
        """Partition, offset, key, value and time of all that is there: what was acknowledged,
        and of the rest what the log has. Partition 0 had a record before."""
        self.stopped.set()
        self.thread.join()
        if self.failure is not None:
            raise self.failure
        found = connection.execute(
            f'SELECT partition, "offset", key, value, time FROM "{self.table}" '
            "WHERE key IS NOT NULL ORDER BY 1, 2"
        ).fetchall()
        times = {row[-1] for row in found}
        ends, rows = [1, 0, 0], []
        for entry in self.entries:
            if entry["is_acked"] or entry["row"][-1] in times:
                (partition,) = entry["place"]
                rows.append((partition, ends[partition], *entry["row"]))
                ends[partition] += 1
        equal(found, sorted(rows, key=lambda row: row[:2]), "the log")
        return rows


def through_kills(host, port, table):
    """The broker is killed and started again until the input ends, a letter of it each time."""
    address = (host, port)
    log = f'SELECT partition, "offset", key, value FROM "{table}" WHERE key < \'k3\''
    current = f'SELECT partition, key, value FROM "{table}$current" WHERE key < \'k3\''
    subscribers = [Subscriber(address, query) for query in [log, current]]
    ledger = Ledger(address, table)
    kill_count = len(sys.stdin.read())
    with connect(*address, autocommit=True) as connection:
        rows = [row for row in ledger.rows(connection) if row[2] < "k3"]
    there, log_changes, changes = {}, collections.defaultdict(list), collections.defaultdict(list)
    for (partition, offset, key, value, _) in rows:
        group = (partition, key)
        log_changes[(partition,)].append((1, (partition, offset, key, value)))
        if (before := there.pop(group, None)) is not None:
            changes[group].append((-1, (*group, before)))
        if value is not None:
            there[group] = value
            changes[group].append((1, (*group, value)))
    for (subscriber, expected, histories, group_columns) in [
        (subscribers[0], [row[:4] for row in rows], log_changes, 1),
        (subscribers[1], [(*group, value) for (group, value) in there.items()], changes, 2),
    ]:
        subscriber.expect(sorted(expected), kill_count)
        subscriber.expect_histories(histories, group_columns)
    acked = sum(entry["is_acked"] for entry in ledger.entries)
    print(f"{acked} records published, {len(ledger.entries) - acked} without an answer")
