//! Excessive queries fail within their limits and affect nothing else.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use kafka_clients::is_skipped;
use sql_clients::{Fixture, Script, file_of};

const PROGRAMS: &[&str] = &["psql", "kcat"];

/// Memory limits of one query, and of all queries.
const QUERY_MIB: u64 = 32;
const TOTAL_MIB: u64 = 64;
const STATEMENT_SECONDS: &str = "5";

/// Memory that functions may take for a batch of rows. Each thread may hold two batches: a
/// function's arguments and its results.
const BATCH_MIB: u64 = 32;
const BATCHES_OF_THREAD: u64 = 2;

/// Additional memory that the broker may take: the allocator's caches and the program.
const SLACK_MIB: u64 = 64;

const ROW_COUNT: usize = 20_000;

/// Length of a long list, whose values are keys of rows.
const LISTED_COUNT: usize = 2_000;

/// Starts a broker with small query limits and a topic with some rows.
fn limited() -> Result<(Fixture, &'static str)> {
    let (query, total) = (format!("{QUERY_MIB}M"), format!("{TOTAL_MIB}M"));
    let fixture = Fixture::with_options(&[
        "--anonymous",
        "loopback",
        "--sql-query-memory",
        &query,
        "--sql-memory",
        &total,
        "--sql-statement-time",
        STATEMENT_SECONDS,
    ])?;
    let row = |number: usize| format!("k{number}:{{\"n\": {number}, \"pad\": \"{:0100}\"}}", 7);
    fixture.produce("rows", &(0..ROW_COUNT).map(row).collect::<Vec<_>>())?;
    Ok((fixture, "rows"))
}

/// Excessive queries, each with the SQLSTATE of its error.
fn queries() -> Vec<(String, &'static str)> {
    const COMPLEX: &str = "54001";
    const LONG: &str = "54000";
    const ENDLESS: &str = "57014";
    let many = |unit: &str, count: usize| unit.repeat(count);
    vec![
        (format!("SELECT {}1{}", many("(", 20_000), many(")", 20_000)), COMPLEX),
        (format!("SELECT 1{}", many(" + 1", 100_000)), COMPLEX),
        (format!("SELECT {} TRUE", many("NOT ", 50_000)), COMPLEX),
        (format!("SELECT 1 {}", many("UNION ALL SELECT 1 ", 20_000)), COMPLEX),
        (format!("SELECT {}1{}", many("abs(", 5_000), many(")", 5_000)), COMPLEX),
        (
            format!("SELECT {}1{}", many("CASE WHEN true THEN ", 5_000), many(" END", 5_000)),
            COMPLEX,
        ),
        (format!("SELECT '{}'", many("x", 2 << 20)), LONG),
        ("SELECT count(*) FROM rows a CROSS JOIN rows b CROSS JOIN rows c".to_owned(), ENDLESS),
        ("SELECT count(*) FROM rows a JOIN rows b ON a.key <> b.key".to_owned(), ENDLESS),
        ("SELECT repeat(value, 10000) AS v FROM rows ORDER BY v".to_owned(), LONG),
        ("SELECT lpad(value, 1000000) AS v FROM rows ORDER BY v".to_owned(), LONG),
        ("SELECT replace(value, '0', lpad('', 10000, 'x')) AS v FROM rows".to_owned(), LONG),
        ("SELECT regexp_replace(value, '', lpad('', 10000), 'g') AS v FROM rows".to_owned(), LONG),
    ]
}

#[test]
fn each_query_of_death_dies_alone() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (fixture, table) = limited()?;
    let count = format!("SELECT count(*) FROM {table}");
    assert_eq!(fixture.query(&count)?, ROW_COUNT.to_string());
    fixture.forget_memory_peak()?;
    let first = fixture.memory_peak_mib()?;
    let thread_count = u64::try_from(thread::available_parallelism()?.get())?;
    let growth_mib_max = TOTAL_MIB + thread_count * BATCHES_OF_THREAD * BATCH_MIB + SLACK_MIB;
    for (query, state) in queries() {
        // Measures each query alone: the allocator's thread caches keep memory of earlier queries.
        fixture.forget_memory_peak()?;
        let before = fixture.memory_peak_mib()?;
        let shown: String = query.chars().take(80).collect();
        let psql = fixture.psql().args(["-v", "VERBOSITY=sqlstate", "--file", "-"]);
        let psql = psql.args(["-v", "ON_ERROR_STOP=1"]).time_limit(Duration::from_secs(60));
        let died = psql.input(file_of(&[format!("{query};")])?).run()?;
        let has_state = died.stderr.trim_end().ends_with(&format!("ERROR:  {state}"));
        ensure!(
            died.exit_code == Some(3) && has_state,
            "{shown}: {:.300} {:.500}",
            died.stdout,
            died.stderr
        );
        assert_eq!(fixture.query(&count)?, ROW_COUNT.to_string(), "after {shown}");
        let grown = fixture.memory_peak_mib()?.saturating_sub(before);
        eprintln!("{grown} MiB, {state}: {shown}");
        ensure!(grown <= growth_mib_max, "the broker grew by {grown} MiB by {shown}");
    }
    fixture.forget_memory_peak()?;
    let kept = fixture.memory_peak_mib()?.saturating_sub(first);
    eprintln!("{kept} MiB are kept");
    ensure!(kept <= growth_mib_max, "the broker keeps {kept} MiB after all queries");
    Ok(())
}

#[test]
fn a_long_list_is_searched() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (fixture, table) = limited()?;
    let list: Vec<_> = (0..LISTED_COUNT).map(|it| format!("'k{}'", it * 2)).collect();
    let mut script = Script::default();
    script.add(format!("SELECT count(*) FROM {table} WHERE key IN ({})", list.join(",")));
    let answers = script.run(fixture.psql())?;
    assert_eq!(answers[0].value()?, LISTED_COUNT.to_string());
    Ok(())
}

#[test]
fn others_are_served_while_queries_die() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (fixture, table) = limited()?;
    let deadly =
        format!("SELECT count(*) FROM {table} a, {table} b, {table} c WHERE a.key < b.key");
    thread::scope(|scope| -> Result<()> {
        let dying: Vec<_> = (0..3).map(|_| scope.spawn(|| fixture.sql_state(&deadly))).collect();
        let mut served = 0;
        while dying.iter().any(|it| !it.is_finished()) {
            fixture.query(&format!(
                "SELECT value FROM {table} WHERE partition = 0 AND \"offset\" = 9"
            ))?;
            fixture.produce("others", &["k:v".to_owned()])?;
            served += 1;
        }
        for query in dying {
            assert_eq!(query.join().expect("a client returns its errors")?, "57014");
        }
        ensure!(served > 1, "others were served {served} times");
        Ok(())
    })
}
