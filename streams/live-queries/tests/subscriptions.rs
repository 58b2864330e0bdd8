//! Subscriptions send existing rows and then each change: after any number of changes, the client's
//! rows must equal the query's result on the current values.

use std::collections::BTreeMap;
use std::sync::Arc;

use live_queries::{
    Change, Event, Fields, GroupLimits, OutputRow, Paths, Query, QueueLimits, Record, Row,
    Statement, Subscribe, Subscription, SubscriptionStep as Step, Table, Value, parse_statement,
};
use model::{Random, for_each_seed};

const WIDE: QueueLimits = QueueLimits { rows_max: 1_000_000, bytes_max: 1 << 30 };
const GROUPS: GroupLimits = GroupLimits { groups_max: 1_000, kept_values_max: 10_000 };
const START_MS: i64 = 1_000_000;

type Rows = BTreeMap<Vec<String>, i64>;

/// Current values of one partition, a subscription to them, and its client's rows.
struct Bench {
    query: Arc<Query>,
    paths: Paths,
    subscription: Subscription,
    values: BTreeMap<String, (i64, String)>,
    next_offset: i64,
    now_ms: i64,
    rows: Rows,
    taken: Vec<OutputRow<'static>>,
}

fn subscribe(sql: &str) -> Subscribe {
    match parse_statement(sql).expect("the statement is valid") {
        Some(Statement::Subscribe(subscribe)) => subscribe,
        other => panic!("{sql} is {other:?}"),
    }
}

fn record<'a>(key: &'a str, value: &'a str, offset: i64) -> Record<'a> {
    Record {
        partition: 0,
        offset,
        timestamp_ms: offset,
        key: Some(key.as_bytes()),
        value: Some(value.as_bytes()),
        headers: &[],
    }
}

/// Takes all queued rows.
fn taken(subscription: &mut Subscription) -> Vec<OutputRow<'static>> {
    let mut taken = Vec::new();
    loop {
        let rows = subscription.take();
        let (mut reader, mut row, mut count) = (rows.reader(), OutputRow::default(), 0);
        while reader.read(&mut row) {
            let columns = row.columns.iter().cloned().map(Value::into_owned).collect();
            taken.push(OutputRow { columns, positions: row.positions.clone(), ..row });
            count += 1;
        }
        assert_eq!(count, rows.len());
        if count == 0 {
            return taken;
        }
    }
}

impl Bench {
    fn new(sql: &str, limits: QueueLimits) -> Self {
        let subscribe = subscribe(sql);
        let mut paths = Paths::new();
        let table = Table::values("t");
        let query = Query::compile(&subscribe.query, &table, &mut paths).expect("it compiles");
        let query = Arc::new(query);
        let subscription = Subscription::new(query.clone(), &subscribe, limits, GROUPS);
        Self {
            query,
            paths,
            subscription: subscription.expect("it is what the query gives"),
            values: BTreeMap::new(),
            next_offset: 0,
            now_ms: START_MS,
            rows: Rows::new(),
            taken: Vec::new(),
        }
    }

    fn fill(&mut self) {
        self.subscription.begin_snapshot(self.now_ms, &[(0, self.next_offset)]);
        for (key, (offset, value)) in self.values.clone() {
            let mut fields = Fields::default();
            let row = Row::read(record(&key, &value, offset), &self.paths, &mut fields);
            if self.query.filter().passes(&row) == Ok(true) {
                while self.subscription.snapshot_row(&row) == Step::Full {
                    self.drain();
                }
            }
        }
        self.subscription.end_snapshot();
    }

    /// Sets or deletes the value of `key`.
    fn put(&mut self, key: &str, value: Option<&str>) -> Step {
        let offset = self.next_offset;
        self.next_offset += 1;
        self.now_ms += 1;
        let old = match value {
            Some(value) => self.values.insert(key.to_owned(), (offset, value.to_owned())),
            None => self.values.remove(key),
        };
        let (mut old_fields, mut new_fields) = (Fields::default(), Fields::default());
        let old = old.as_ref().map(|(offset, value)| {
            Row::read(record(key, value, *offset), &self.paths, &mut old_fields)
        });
        let new = value.map(|it| Row::read(record(key, it, offset), &self.paths, &mut new_fields));
        let passes = |row: &Row<'_>| self.query.filter().passes(row) == Ok(true);
        let change = Change {
            partition: 0,
            offset: Some(offset),
            time_ms: self.now_ms,
            key: Some(key.as_bytes()),
            old: old.as_ref().filter(|it| passes(it)),
            new: new.as_ref().filter(|it| passes(it)),
        };
        let step = self.subscription.apply(&change);
        if step == Step::RereadNeeded {
            self.fill();
        }
        step
    }

    /// Takes all queued rows and applies them to the client's rows.
    fn drain(&mut self) {
        for row in taken(&mut self.subscription) {
            let columns: Vec<String> = row.columns.iter().map(text).collect();
            match row.event {
                Event::Diff(diff) => {
                    let count = self.rows.entry(columns.clone()).or_default();
                    *count += i64::from(diff);
                    assert!(*count >= 0, "{columns:?} is taken away more often than it was given");
                    if *count == 0 {
                        self.rows.remove(&columns);
                    }
                }
                Event::Upsert => {
                    self.rows.retain(|it, _| it[0] != columns[0]);
                    self.rows.insert(columns, 1);
                }
                Event::Delete => {
                    let count = self.rows.len();
                    self.rows.retain(|it, _| it[0] != columns[0]);
                    assert_eq!(
                        self.rows.len() + 1,
                        count,
                        "{columns:?} is deleted and was not there"
                    );
                }
                Event::Progress => {}
            }
            self.taken.push(row);
        }
    }

    /// Returns the rows of a client that subscribes now.
    fn fresh(&self, sql: &str) -> Rows {
        let mut other = Self::new(sql, WIDE);
        other.values.clone_from(&self.values);
        other.next_offset = self.next_offset;
        other.fill();
        other.drain();
        other.rows
    }
}

fn text(value: &Value<'_>) -> String {
    if value.is_null() { "NULL".to_owned() } else { value.to_string() }
}

fn value(random: &mut Random) -> String {
    let symbol = random.pick(&["\"A\"", "\"B\"", "\"C\"", "null"]);
    let quantity = random.pick(&["1", "2", "3", "40", "-5", "0", "\"x\"", "null"]);
    let price = random.pick(&["1.5", "0.1", "0.2", "1e16", "7", "-2.25"]);
    match random.below(12) {
        0 => "no json".to_owned(),
        1 => "{\"symbol\":\"A\"".to_owned(),
        _ => format!("{{\"symbol\":{symbol},\"qty\":{quantity},\"price\":{price}}}"),
    }
}

/// Applies random changes, and checks the client's rows after some of them.
fn run(sql: &str, limits: QueueLimits, random: &mut Random, count: u64) {
    let mut bench = Bench::new(sql, limits);
    for _ in 0..random.below(30) {
        let (key, value) = (format!("k{}", random.below(12)), value(random));
        bench.values.insert(key, (bench.next_offset, value));
        bench.next_offset += 1;
    }
    bench.fill();
    for _ in 0..count {
        let key = format!("k{}", random.below(12));
        let value = (!random.one_in(4)).then(|| value(random));
        let step = bench.put(&key, value.as_deref());
        if step == Step::Full {
            // The change would be repeated after rows were taken: here, by a new subscription at
            // that position.
            bench.drain();
            return;
        }
        if random.one_in(3) {
            bench.now_ms += 1_000;
            bench.subscription.tick(bench.now_ms);
            bench.drain();
            assert_eq!(bench.rows, bench.fresh(sql), "{sql}");
        }
    }
}

const QUERIES: &[&str] = &[
    "SUBSCRIBE TO t",
    "SUBSCRIBE (SELECT key, value->>'symbol' AS s FROM t WHERE value->>'symbol' IN ('A', 'B'))",
    "SUBSCRIBE (SELECT value->>'symbol' FROM t WHERE (value->>'qty')::bigint > 1)",
    "SUBSCRIBE (SELECT key, value->>'price' FROM t) ENVELOPE UPSERT (KEY (key))",
    "SUBSCRIBE (SELECT key, value->>'price' FROM t) WITH (EVERY = '100 ms')",
    "SUBSCRIBE (SELECT key, value->>'price' FROM t) \
       ENVELOPE UPSERT (KEY (key)) WITH (EVERY = '5 ms')",
    "SUBSCRIBE (SELECT 10 / (value->>'qty')::bigint FROM t)",
    "SUBSCRIBE (SELECT key, (value->>'price')::numeric AS p FROM t ORDER BY p DESC LIMIT 3)",
    "SUBSCRIBE (SELECT key FROM t WHERE value->>'symbol' = 'A' \
       ORDER BY (value->>'price')::float8, key LIMIT 1)",
    "SUBSCRIBE (SELECT key FROM t ORDER BY value->>'qty' LIMIT 2) WITH (EVERY = '10 ms')",
    "SUBSCRIBE (SELECT value->>'symbol' AS s, count(*), sum((value->>'qty')::bigint), \
       avg((value->>'price')::numeric), min((value->>'price')::float8), max(key), \
       sum((value->>'price')::float8) FROM t GROUP BY s)",
    "SUBSCRIBE (SELECT value->>'symbol' AS s, count(*) AS n FROM t GROUP BY s HAVING count(*) > 1) \
       ENVELOPE UPSERT (KEY (s))",
    "SUBSCRIBE (SELECT count(*), count(value->>'qty'), \
       count(*) FILTER (WHERE value->>'symbol' = 'A') FROM t)",
    "SUBSCRIBE (SELECT value->>'symbol' AS s, count(*) AS n FROM t GROUP BY s \
       ORDER BY n DESC, s LIMIT 2)",
];

#[test]
fn the_rows_of_a_client_are_those_of_the_current_values() {
    for_each_seed("cargo test -p live-queries --test subscriptions", 60, |seed| {
        let mut random = Random::new(seed);
        for sql in QUERIES {
            run(sql, WIDE, &mut random, 60);
        }
    });
}

#[test]
fn a_slow_client_that_conflates_ends_with_the_current_values() {
    let narrow = QueueLimits { rows_max: 8, bytes_max: 1 << 20 };
    for_each_seed("cargo test -p live-queries --test subscriptions", 40, |seed| {
        let mut random = Random::new(seed);
        let sql = "SUBSCRIBE (SELECT key, value->>'price' FROM t) WITH (BACKPRESSURE = conflate)";
        let mut bench = Bench::new(sql, narrow);
        bench.fill();
        for _ in 0..300 {
            let key = format!("k{}", random.below(6));
            bench.put(&key, Some(&value(&mut random)));
            if random.one_in(20) {
                bench.drain();
                assert_eq!(bench.rows, bench.fresh(sql));
            }
        }
        assert!(bench.taken.len() < 500, "300 changes are 600 rows unless some are conflated");
    });
}

#[test]
fn conflation_sends_the_last_state_of_an_interval() {
    let mut bench =
        Bench::new("SUBSCRIBE (SELECT key, value FROM t) WITH (EVERY = '100 ms')", WIDE);
    bench.fill();
    bench.put("a", Some("1"));
    bench.put("a", Some("2"));
    bench.put("b", Some("1"));
    bench.put("b", None);
    bench.drain();
    assert_eq!(bench.taken, Vec::new(), "nothing before the interval ends");
    let due_ms = bench.subscription.due_ms().expect("something waits");
    bench.subscription.tick(due_ms);
    bench.drain();
    assert_eq!(bench.taken.len(), 1);
    assert_eq!(bench.rows, Rows::from([(vec!["a".to_owned(), "2".to_owned()], 1)]));
}

/// Appends records to a log and returns the rows of its client.
fn follow_log(sql: &str, records: &[(&str, &str)]) -> Vec<(Event, Vec<String>)> {
    let subscribe = subscribe(sql);
    let mut paths = Paths::new();
    let query = Query::compile(&subscribe.query, &Table::log("t"), &mut paths);
    let query = Arc::new(query.expect("it compiles"));
    let mut subscription = Subscription::new(query.clone(), &subscribe, WIDE, GROUPS)
        .expect("it can be subscribed to");
    subscription.begin_snapshot(START_MS, &[(0, 0)]);
    subscription.end_snapshot();
    for (offset, (key, value)) in (0..).zip(records) {
        let mut fields = Fields::default();
        let row = Row::read(record(key, value, offset), &paths, &mut fields);
        let new = Some(&row).filter(|it| query.filter().passes(it) == Ok(true));
        let key = Some(key.as_bytes());
        let time_ms = START_MS + offset;
        let change = Change { partition: 0, offset: Some(offset), time_ms, key, old: None, new };
        assert_eq!(subscription.apply(&change), Step::Applied);
        assert_eq!(subscription.apply(&change), Step::Passed, "each record counts once");
    }
    subscription.tick(START_MS + 10_000);
    let rows = taken(&mut subscription).into_iter();
    rows.map(|it| (it.event, it.columns.iter().map(text).collect())).collect()
}

const LOG: &[(&str, &str)] = &[("a", "5"), ("b", "1"), ("a", "2"), ("c", "9"), ("a", "3")];

#[test]
fn a_log_gives_each_record_that_passes_and_takes_none_back() {
    let rows = follow_log("SUBSCRIBE (SELECT key, value FROM t WHERE value < '5')", LOG);
    let row = |key: &str, value: &str| (Event::Diff(1), vec![key.to_owned(), value.to_owned()]);
    assert_eq!(rows, [row("b", "1"), row("a", "2"), row("a", "3")]);
}

#[test]
fn a_log_is_conflated_to_the_last_record_of_each_key() {
    let rows = follow_log("SUBSCRIBE (SELECT key, value FROM t) WITH (EVERY = '1 s')", LOG);
    let row = |key: &str, value: &str| (Event::Diff(1), vec![key.to_owned(), value.to_owned()]);
    assert_eq!(rows, [row("a", "3"), row("b", "1"), row("c", "9")]);
}

#[test]
fn the_first_rows_of_a_log_are_kept_in_order() {
    let rows = follow_log("SUBSCRIBE (SELECT value FROM t ORDER BY value LIMIT 2)", LOG);
    let mut sums = BTreeMap::new();
    for (event, columns) in rows {
        let Event::Diff(diff) = event else { panic!("{event:?} in an envelope of diffs") };
        *sums.entry(columns.concat()).or_insert(0) += diff;
    }
    sums.retain(|_, sum| *sum != 0);
    assert_eq!(sums, BTreeMap::from([("1".to_owned(), 1), ("2".to_owned(), 1)]));
}

#[test]
fn aggregates_of_a_log_keep_the_best_value_alone() {
    let sql = "SUBSCRIBE (SELECT min(value), max(value), count(*) FROM t WHERE value > '1')";
    let rows = follow_log(sql, LOG);
    let last = rows.last().expect("there are rows");
    let expected = ["2", "9", "4"].map(str::to_owned).to_vec();
    assert_eq!(*last, (Event::Diff(1), expected));
}

#[test]
fn a_client_that_wants_all_is_waited_for() {
    let narrow = QueueLimits { rows_max: 2, bytes_max: 1 << 20 };
    let mut bench = Bench::new("SUBSCRIBE TO t", narrow);
    bench.fill();
    assert_eq!(bench.put("a", Some("1")), Step::Applied);
    assert_eq!(bench.put("b", Some("1")), Step::Applied);
    assert_eq!(bench.put("c", Some("1")), Step::Full);
    bench.drain();
    assert_eq!(bench.subscription.positions(), [(0, 2)], "the third change is still to come");
}

#[test]
fn groups_begin_though_they_are_more_than_wait_for_a_client() {
    let narrow = QueueLimits { rows_max: 2, bytes_max: 1 << 20 };
    let mut bench = Bench::new("SUBSCRIBE (SELECT key, count(*) FROM t GROUP BY key)", narrow);
    for key in ["a", "b", "c", "d", "e"] {
        bench.values.insert(key.to_owned(), (0, "1".to_owned()));
    }
    bench.fill();
    bench.drain();
    assert_eq!(bench.rows.len(), 5);
}

#[test]
fn what_waits_for_its_time_is_sent_before_it_is_too_much() {
    let narrow = QueueLimits { rows_max: 3, bytes_max: 1 << 20 };
    for backpressure in ["wait", "conflate", "disconnect"] {
        let sql = format!("SUBSCRIBE TO t WITH (EVERY = '1 hour', BACKPRESSURE = {backpressure})");
        let mut bench = Bench::new(&sql, narrow);
        bench.fill();
        for number in 0..50 {
            assert_eq!(bench.put(&format!("k{number}"), Some("1")), Step::Applied, "{sql}");
            bench.drain();
        }
        assert!((47..=50).contains(&bench.rows.len()), "{sql}: {} rows", bench.rows.len());
    }
}

#[test]
fn a_client_that_is_behind_and_stops_reading_is_ended() {
    let narrow = QueueLimits { rows_max: 3, bytes_max: 1 << 20 };
    let mut bench = Bench::new("SUBSCRIBE TO t WITH (BACKPRESSURE = conflate)", narrow);
    bench.fill();
    let put = |bench: &mut Bench, number: u64| bench.put(&format!("k{number}"), Some("1"));
    (0..3).for_each(|it| assert_eq!(put(&mut bench, it), Step::Applied));
    // Rows are taken while some are queued, and not afterwards.
    assert_eq!(bench.subscription.take().len(), 3);
    let ended = (3..30).find(|it| put(&mut bench, *it) == Step::Ended);
    assert!(ended.is_some(), "more waits than there is room for");
}

#[test]
fn a_client_that_must_keep_up_is_disconnected() {
    let narrow = QueueLimits { rows_max: 2, bytes_max: 1 << 20 };
    let mut bench = Bench::new("SUBSCRIBE TO t WITH (BACKPRESSURE = disconnect)", narrow);
    bench.fill();
    bench.put("a", Some("1"));
    assert_eq!(bench.put("b", Some("1")), Step::Ended);
    assert_eq!(bench.subscription.end(), None, "what was sent before comes first");
    bench.drain();
    let end = bench.subscription.end().expect("it has ended").clone();
    assert_eq!(end.map_err(|it| it.state.0), Err("53400"));
}

#[test]
fn a_change_of_before_the_snapshot_is_passed_over() {
    let mut bench = Bench::new("SUBSCRIBE TO t", WIDE);
    bench.put_before_snapshot();
    bench.fill();
    bench.next_offset = 0;
    assert_eq!(bench.put("a", Some("1")), Step::Passed);
    assert_eq!(bench.put("a", Some("2")), Step::Applied);
}

impl Bench {
    fn put_before_snapshot(&mut self) {
        self.values.insert("a".to_owned(), (0, "1".to_owned()));
        self.next_offset = 1;
    }
}

#[test]
fn up_to_ends_before_the_first_change_there() {
    let mut bench = Bench::new("SUBSCRIBE TO t UP TO OFFSET 2", WIDE);
    bench.fill();
    assert_eq!(bench.put("a", Some("1")), Step::Applied);
    assert_eq!(bench.put("b", Some("1")), Step::Applied);
    assert_eq!(bench.put("c", Some("1")), Step::Ended);
    bench.drain();
    assert_eq!(bench.rows.len(), 2);
    assert_eq!(bench.subscription.end(), Some(&Ok(())));
}

#[test]
fn a_record_that_fails_ends_a_subscription_only_if_asked() {
    for (option, expected) in [("skip", Step::Applied), ("fail", Step::Ended)] {
        let sql = format!(
            "SUBSCRIBE (SELECT 1 / (value->>'qty')::bigint FROM t) WITH (ON_ERROR = {option})"
        );
        let mut bench = Bench::new(&sql, WIDE);
        bench.fill();
        assert_eq!(bench.put("a", Some("{\"qty\":0}")), expected, "{option}");
        assert_eq!(bench.subscription.failed_count(), 1);
    }
}

#[test]
fn progress_tells_the_position_to_go_on_from() {
    let mut bench = Bench::new("SUBSCRIBE TO t WITH (PROGRESS, POSITION, SNAPSHOT = false)", WIDE);
    bench.put_before_snapshot();
    bench.fill();
    bench.put("b", Some("1"));
    bench.subscription.progress(bench.now_ms);
    bench.drain();
    let events: Vec<Event> = bench.taken.iter().map(|it| it.event).collect();
    assert_eq!(events, [Event::Progress, Event::Diff(1), Event::Progress]);
    let mut last = bench.taken.pop().expect("there are three");
    let mut values = Vec::new();
    bench.subscription.layout().values(&mut last, &mut values);
    assert_eq!(values[1..4], [Value::Bool(true), Value::Text("0:2".into()), Value::Null]);
    assert_eq!(values.len(), bench.subscription.columns().len());
}

#[test]
fn a_view_with_too_many_groups_ends_with_an_error() {
    let mut bench = Bench::new("SUBSCRIBE (SELECT key, count(*) FROM t GROUP BY key)", WIDE);
    bench.fill();
    let mut step = Step::Applied;
    for index in 0..=GROUPS.groups_max {
        assert_eq!(step, Step::Applied);
        step = bench.put(&format!("k{index}"), Some("1"));
    }
    assert_eq!(step, Step::Ended);
}
