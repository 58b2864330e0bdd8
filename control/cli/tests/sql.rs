//! Tests of SQL, subscriptions and running queries with a real broker.

mod broker;

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout};

use broker::{Broker, finished};
use serde_json::{Value, json};

/// Starts a broker with a topic that keeps current values.
fn with_orders() -> Broker {
    let broker = Broker::new();
    broker.text("topic create orders --config memlane.values=latest", 0);
    broker
}

fn run(broker: &Broker, statement: &str, exit_code: i32) -> String {
    broker.feed("sql", statement, exit_code)
}

fn insert(broker: &Broker, key: &str, value: &str) {
    run(broker, &format!("INSERT INTO orders (key, value) VALUES ('{key}', '{value}')"), 0);
}

#[test]
fn rows_are_a_table_for_people_and_objects_for_programs() {
    let broker = with_orders();
    assert_eq!(
        run(&broker, "INSERT INTO orders (key, value) VALUES ('a', '{\"n\": 5}'), ('b', 'x')", 0),
        "done: 2 rows\n"
    );
    let query = "SELECT key, (value->>'n')::bigint AS n FROM orders ORDER BY key";
    assert_eq!(run(&broker, query, 0), "key  n\na    5\nb    NULL\n(2 rows)\n");
    assert_eq!(
        run(&broker, "SELECT 1 AS a; SELECT 2 AS b WHERE false;", 0),
        "a\n1\n(1 row)\nb\n(0 rows)\n"
    );
    let lines = broker.feed("sql --json", query, 0);
    let rows: Vec<Value> =
        lines.lines().map(|it| serde_json::from_str(it).expect("JSON")).collect();
    assert_eq!(rows, [json!({"key": "a", "n": 5}), json!({"key": "b", "n": null})]);
}

#[test]
fn drop_says_what_else_has_the_name_and_how_to_delete_it() {
    let broker = with_orders();
    run(&broker, "CREATE TOPIC big AS SELECT key, value FROM orders", 0);
    let topic = "\"orders\" is a topic that no SQL statement defined (42809); Delete the topic and \
                 its records by: memlane topic delete orders";
    let table = "\"orders$current\" is a table of topic \"orders\" (42809)";
    for (statement, expected) in [
        ("DROP TABLE orders", topic),
        ("DROP TOPIC IF EXISTS orders", topic),
        ("DROP TOPIC \"orders$current\"", table),
        ("DROP TABLE big", "\"big\" is not a table but a topic (42809); Use DROP TOPIC \"big\"."),
        ("DROP TOPIC nothing", "topic \"nothing\" does not exist (42P01)"),
    ] {
        let told = broker.complaint("sql", statement);
        assert!(told.contains(expected), "{statement}: {told}");
    }
    run(&broker, "DROP TOPIC big; SELECT count(*) FROM orders", 0);
}

#[test]
fn long_values_are_printed_whole() {
    let broker = Broker::new();
    let query = "SELECT repeat('x', 70000) AS a, 1 AS b UNION ALL SELECT 'y', 2 ORDER BY b";
    let lines = run(&broker, query, 0);
    let cells: Vec<Vec<&str>> = lines.lines().map(|it| it.split_whitespace().collect()).collect();
    let long = "x".repeat(70_000);
    assert_eq!(cells[1..3], [[&long[..], "1"], ["y", "2"]]);
}

#[test]
fn copy_takes_rows_of_standard_input_and_gives_rows_to_standard_output() {
    let broker = with_orders();
    let copy = |statement: &str, rows: &str| {
        let mut child = broker.spawn_with(&["sql", "-c", statement]);
        let mut input = child.stdin.take().expect("it is piped");
        // A command that fails early does not read its input.
        let _ = input.write_all(rows.as_bytes());
        drop(input);
        child.wait_with_output().expect("it ends")
    };
    let from = "COPY orders (key, value) FROM STDIN WITH (FORMAT csv)";
    assert_eq!(finished(from, copy(from, "a,x\nb,\"y, z\"\n"), 0), "done: 2 rows\n");
    let to = "COPY (SELECT key, value FROM orders ORDER BY key) TO STDOUT WITH (FORMAT csv);";
    assert_eq!(finished(to, copy(to, ""), 0), "a,x\nb,\"y, z\"\n");
    assert_eq!(run(&broker, to, 0), "a,x\nb,\"y, z\"\n");
    // One invalid row causes all rows to be refused.
    let refused = copy(from, "c,d\ne\n");
    let told = String::from_utf8(refused.stderr).expect("text");
    assert!(!refused.status.success() && told.contains("22P04"), "{told}");
    for (text, told) in [
        (format!("{from};"), "give the statement by -c"),
        (format!("SELECT 1; {to}"), "COPY cannot be combined"),
    ] {
        let complaint = broker.complaint("sql", &text);
        assert!(complaint.contains(told), "{complaint}");
    }
    assert_eq!(run(&broker, "SELECT count(*) AS n FROM orders", 0), "n\n2\n(1 row)\n");
}

#[test]
fn a_statement_that_fails_says_why_and_with_which_state() {
    let broker = with_orders();
    let error = broker.feed("sql --json", "SELECT * FROM nothing", 3);
    let error: Value = serde_json::from_str(&error).expect("JSON");
    assert_eq!(error["error"]["kind"], "not_found");
    let message = error["error"]["message"].as_str().expect("text");
    assert!(message.contains("nothing") && message.contains("42P01"), "{message}");
    run(&broker, "SELEC 1", 1);
}

#[test]
fn what_a_topic_takes_of_no_producer_is_not_inserted() {
    let broker = Broker::new();
    broker.text("topic create compacted --config cleanup.policy=compact", 0);
    broker.text("topic create plain --config max.message.bytes=100000", 0);
    let long = "x".repeat(100_000);
    let check = |statement: &str, state: &str| {
        let told = broker.feed("sql --json", statement, 1);
        assert!(told.contains(state), "{statement}: {told}");
    };
    let without_key = "INSERT INTO compacted (key, value) VALUES ('a', '1'), (NULL, '2')";
    check(without_key, "23502");
    check(
        "INSERT INTO plain (value, time) VALUES ('1', now()), ('2', timestamptz '2099-01-01')",
        "23514",
    );
    check(&format!("INSERT INTO plain (value) VALUES ('1'), ('{long}')"), "54000");
    // Neither topic gets a record, because the transaction fails as a whole.
    let both = format!("BEGIN; INSERT INTO plain (value) VALUES ('1'); {without_key}; COMMIT");
    run(&broker, &both, 1);
    for topic in ["compacted", "plain"] {
        let count = run(&broker, &format!("SELECT count(*) AS n FROM {topic}"), 0);
        assert_eq!(count, "n\n0\n(1 row)\n", "{topic}");
    }
    run(&broker, "INSERT INTO compacted (key, value) VALUES ('a', '1')", 0);
}

/// A running subscription, and its output lines.
struct Subscription {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Subscription {
    fn new(broker: &Broker, words: &str) -> Self {
        let mut process = broker.spawn(words);
        let lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        Self { process, lines }
    }

    fn next(&mut self) -> Value {
        let line = self.lines.next().expect("there is one more row").expect("text");
        serde_json::from_str(&line).expect("JSON")
    }
}

#[test]
fn a_subscription_prints_what_is_there_and_then_each_change() {
    let broker = with_orders();
    insert(&broker, "a", "1");
    let mut rows = Subscription::new(&broker, "subscribe orders$current --json --count 3");
    let row = rows.next();
    assert_eq!(
        (&row["mz_diff"], &row["key"], &row["value"]),
        (&json!(1), &json!("a"), &json!("1"))
    );
    insert(&broker, "a", "2");
    let mut changes = [rows.next(), rows.next()];
    changes.sort_by_key(|row| row["mz_diff"].as_i64());
    assert_eq!((&changes[0]["mz_diff"], &changes[0]["value"]), (&json!(-1), &json!("1")));
    assert_eq!((&changes[1]["mz_diff"], &changes[1]["value"]), (&json!(1), &json!("2")));
    let output = rows.process.wait_with_output().expect("it ends");
    finished("subscribe", output, 0);
}

#[test]
fn a_query_that_runs_is_listed_and_can_be_cancelled() {
    let broker = with_orders();
    insert(&broker, "a", "1");
    let mut rows = Subscription::new(&broker, "subscribe orders --json");
    rows.next();
    let queries = broker.json("query list", 0);
    let queries = queries.as_array().expect("a list");
    let own =
        queries.iter().find(|it| it["query"].as_str().is_some_and(|it| it.contains("SUBSCRIBE")));
    let pid = own.expect("it is listed")["pid"].as_i64().expect("a number");
    assert_eq!(broker.json(&format!("query cancel {pid}"), 0), json!({"cancelled": pid}));
    let error: String = rows.lines.map(|it| it.expect("text")).collect();
    assert!(error.contains("57014"), "{error}");
    assert_eq!(rows.process.wait().expect("it ends").code(), Some(1));
    assert_eq!(broker.json("query cancel 2147483647", 3)["error"]["kind"], "not_found");
}
