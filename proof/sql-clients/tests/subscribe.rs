//! Live queries over PostgreSQL's protocol with psycopg, also while the broker is killed.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kafka_clients::is_skipped;
use random::Random;
use sql_clients::{Fixture, python};
use system::{Broker, Tool, free_address, product, wait_for};

const PROGRAMS: &[&str] = &["kcat", "python3"];
const CLIENT_TIME_LIMIT: Duration = Duration::from_secs(240);

/// Number of kills.
const KILL_COUNT: usize = 8;

/// Maximum number of rows of live queries before the next kill.
const ROWS_BETWEEN_KILLS_MAX: u64 = 100;
const ROWS_TIME_LIMIT: Duration = Duration::from_secs(60);

fn check(scenario: &str) -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::shared()?;
    let table = fixture.filled_topic("filled")?;
    let [host, port] = [fixture.sql().ip().to_string(), fixture.sql().port().to_string()];
    fixture.broker().check(python()?.scenario(scenario).args([host, port, table]))?;
    Ok(())
}

#[test]
fn rows_come_as_they_are_published() -> Result<()> {
    check("with_subscribe.rows_as_they_come")
}

#[test]
fn copies_have_all_formats() -> Result<()> {
    check("with_subscribe.copies")
}

#[test]
fn cursors_wait_for_rows() -> Result<()> {
    check("with_subscribe.cursors")
}

#[test]
fn views_give_the_columns_of_their_queries() -> Result<()> {
    check("with_subscribe.views")
}

/// Merged objects count as current values in queries, live queries and definitions.
#[test]
fn merged_objects_are_followed_and_derived_from() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::shared()?;
    let topic = fixture.topic("merged");
    let create = product("memlane").args(["topic", "create", &topic, "--partitions", "1"]);
    let create = create.args(["--config", "memlane.values=merge"]);
    fixture.broker().check(create.env("MEMLANE_BROKER", &fixture.broker().address()))?;
    let insert = |value: &str| {
        fixture.query(&format!("INSERT INTO {topic} (key, value) VALUES ('k', '{value}')"))
    };
    insert("{\"a\": 1, \"b\": 2}")?;
    let current = format!("SELECT value->>'a', value->>'b' FROM \"{topic}$current\"");
    // The topic of merged objects is created once the broker sees the setting.
    let is_there = || Ok(fixture.query(&current).is_ok_and(|it| it == "1|2"));
    wait_for("the first object", CLIENT_TIME_LIMIT, is_there)?;
    fixture.query(&format!(
        "CREATE MATERIALIZED VIEW {topic}_sums AS SELECT sum((value->>'a')::bigint) AS a, \
         sum((value->>'b')::bigint) AS b FROM \"{topic}$current\""
    ))?;
    insert("{\"b\": 5}")?;
    wait_for("the second object", CLIENT_TIME_LIMIT, || Ok(fixture.query(&current)? == "1|5"))?;
    let view = format!("SELECT a, b FROM {topic}_sums");
    wait_for("the view", CLIENT_TIME_LIMIT, || Ok(fixture.query(&view)? == "1|5"))?;
    let script = format!(
        "BEGIN; DECLARE c CURSOR FOR SUBSCRIBE TO (SELECT value->>'a' AS a, value->>'b' AS b \
         FROM \"{topic}$current\"); FETCH 1 FROM c WITH (TIMEOUT = '20 s'); COMMIT"
    );
    let row = fixture.query(&script)?;
    ensure!(row.ends_with("|1|1|5"), "{row}");
    Ok(())
}

/// Goal: a subscriber that resumes at a position misses nothing and gets nothing twice.
/// Method: publish; kill the broker after live queries returned some rows; compare with the ledger
/// of published records.
#[test]
fn subscribers_go_on_at_their_positions_after_the_broker_was_killed() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let folder = tempfile::Builder::new().prefix("memlane-sql-").tempdir_in("/dev/shm")?;
    let (pool, sql) = (folder.path().join("pool"), free_address()?);
    let flags = format!(
        "--embedded 256M --pool-file {} --partitions 3 --topic-default memlane.values=latest \
         --sql {sql}",
        pool.display()
    );
    let mut broker = Broker::start(&flags)?;
    let kcat = Tool::new("kcat -m 10 -b").arg(broker.address());
    let kcat = kcat.args(["-P", "-t", "killed", "-p", "0"]);
    kcat.input(sql_clients::file_of(&["first".to_owned()])?).check()?;
    let (host, port) = (sql.ip().to_string(), sql.port().to_string());
    let program = python()?.scenario("with_subscribe.through_kills").args([host, port]);
    // The client runs until its input ends, and counts kills by it.
    let (input, mut end) = std::io::pipe().context("no pipe")?;
    let client = program.arg("killed").input(File::from(OwnedFd::from(input)));
    let client = thread::spawn(move || client.time_limit(CLIENT_TIME_LIMIT).check());
    let mut random = Random::new(14);
    let killed = (0..KILL_COUNT).try_for_each(|_| {
        let row_count = 1 + random.below(ROWS_BETWEEN_KILLS_MAX);
        wait_for("rows of two live queries", ROWS_TIME_LIMIT, || {
            ensure!(!client.is_finished(), "the client has ended");
            let metrics = broker.ask("/metrics")?;
            let number = |name: &str| {
                let line = metrics.lines().find_map(|line| line.strip_prefix(name));
                line.and_then(|it| it.trim().parse::<u64>().ok())
            };
            Ok(number("memlane_broker_live_queries ") == Some(2)
                && number("memlane_broker_live_rows_total ") >= Some(row_count))
        })?;
        broker.kill()?;
        end.write_all(b"k")?;
        broker.start_again().map(drop)
    });
    drop(end);
    // The client's error explains missing rows, so it is checked first.
    let said = client.join().expect("it does not panic")?;
    killed?;
    ensure!(!broker.log().contains("panicked"), "the broker panicked: {}", broker.log());
    eprintln!("{KILL_COUNT} kills; {said}");
    Ok(())
}
