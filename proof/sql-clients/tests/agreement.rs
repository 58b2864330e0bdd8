//! The same query as a SELECT, as a live query and as a materialized view, and INSERTs with
//! thousands of rows.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kafka_clients::is_skipped;
use sql_clients::{Fixture, file_of};
use system::wait_for;

const PROGRAMS: &[&str] = &["psql", "kcat"];

const WAIT_MAX: Duration = Duration::from_secs(60);

/// Queries. `$t` stands for the source.
const TEXTS: &[&str] = &[
    "SELECT count(*) AS n FROM $t",
    "SELECT value->>'s' AS s, count(*) AS n, sum((value->>'q')::bigint) AS q FROM $t GROUP BY 1",
    "SELECT value->>'s' AS s, min((value->>'q')::bigint) AS low, max((value->>'q')::bigint) AS top \
     FROM $t WHERE (value->>'q')::bigint > 1 GROUP BY 1",
    "SELECT coalesce(value->>'s', 'none') AS s, count(value->>'q') AS n FROM $t GROUP BY 1",
    "SELECT CASE WHEN (value->>'q')::bigint > 5 THEN 'much' ELSE 'little' END AS size, \
     count(*) AS n FROM $t WHERE value->>'s' IS NOT NULL GROUP BY 1",
    "SELECT upper(value->>'s') AS s, max(key) AS last, min(value->>'s') AS first FROM $t \
     WHERE key <> 'k3' GROUP BY 1",
    "SELECT (value->>'q')::bigint % 3 AS rest, sum((value->>'p')::float8) AS p, count(*) AS n \
     FROM $t GROUP BY 1",
    "SELECT value->>'s' AS s, bool_and((value->>'q')::bigint > 2) AS all_more, \
     count(DISTINCT value->>'q') AS n FROM $t GROUP BY 1",
    "SELECT (value->>'q')::int / 2 AS half, sum(7 / 2) / 2 AS s, count(*) / 2 AS n FROM $t \
     GROUP BY 1",
    "SELECT value->>'s' AS s, sum((value->>'q')::int) / 2 AS q, sum(3) / 2 AS t, \
     sum(3::bigint) AS u FROM $t GROUP BY 1",
    "SELECT CASE WHEN (value->>'q')::int > 5 THEN 1 ELSE 2 END AS size, \
     sum(coalesce((value->>'q')::int, 1)) / 2 AS q, sum(2147483648) AS large FROM $t GROUP BY 1",
    "SELECT value->>'s' AS s, sum((value->>'q')::bigint) AS q FROM $t WHERE value->>'s' LIKE 'a%' \
     AND NOT (value->>'q') IS NULL GROUP BY value->>'s'",
    "SELECT (value->>'q')::int BETWEEN SYMMETRIC 5 AND 2 AS is_between, count(*) AS n FROM $t \
     GROUP BY 1",
    "SELECT count(*) AS n FROM $t WHERE value->>'s' IS DISTINCT FROM 'a' \
     AND (value->>'q')::int > 5",
    "SELECT lower(value->>'s') AS s, count(*) AS n FROM $t WHERE value->>'s' ILIKE 's' \
     OR value->>'s' ILIKE 'ας' OR upper(value->>'s') LIKE '%S' GROUP BY 1",
];

fn records() -> Vec<String> {
    let values = ["a", "ab", "b", "", "A", "ä", "ſ", "S", "ß", "ΑΣ"];
    let mut records: Vec<_> = (0..60)
        .map(|it| {
            let (key, s) = (it % 23, values[it % values.len()]);
            format!("k{key}:{{\"s\": \"{s}\", \"q\": {}, \"p\": \"{}.5\"}}", it % 9, it % 4)
        })
        .collect();
    records.push("n1:{\"s\": null, \"q\": 7}".to_owned());
    records.push("n2:{\"s\": \"a\"}".to_owned());
    records.push("n3:{\"q\": null, \"s\": \"b\"}".to_owned());
    records
}

fn sorted(rows: &str) -> Vec<String> {
    let mut rows: Vec<_> = rows.lines().map(str::to_owned).collect();
    rows.sort();
    rows
}

/// Returns the initial rows of a live query, or `None` if it is rejected.
fn live(fixture: &Fixture, text: &str, count: usize) -> Result<Option<Vec<String>>> {
    let lines = [
        format!("BEGIN; DECLARE c CURSOR FOR SUBSCRIBE TO ({text});"),
        "\\echo @@ :SQLSTATE".to_owned(),
        format!("FETCH {count} FROM c WITH (TIMEOUT = '60 s'); COMMIT;"),
    ];
    let printed = fixture.psql().args(["--file", "-"]).input(file_of(&lines)?).check()?;
    let printed = printed.strip_prefix("@@ ").context("psql says how it went")?;
    let (state, rows) = printed.split_once('\n').unwrap_or((printed, ""));
    if state.trim() == "0A000" {
        return Ok(None);
    }
    ensure!(state.trim() == "00000", "{text}: {state}");
    // Skips mz_timestamp and mz_diff.
    let columns = |row: &str| row.splitn(3, '|').nth(2).unwrap_or_default().to_owned();
    let mut rows: Vec<_> = rows.lines().map(columns).collect();
    rows.sort();
    Ok(Some(rows))
}

#[test]
fn a_select_a_live_query_and_a_view_of_one_text_agree() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::with_options(&["--anonymous", "loopback"])?;
    let create = system::product("memlane").args(["topic", "create", "records"]);
    let create = create.args(["--config", "memlane.values=latest"]);
    fixture.broker().check(create.env("MEMLANE_BROKER", &fixture.broker().address()))?;
    fixture.produce("records", &records())?;
    let (mut answered, mut number) = (0, 0);
    for source in ["records", "\"records$current\""] {
        for text in TEXTS {
            let text = text.replace("$t", source);
            let selected = sorted(&fixture.query(&text)?);
            let Some(followed) = live(&fixture, &text, selected.len())? else { continue };
            assert_eq!(followed, selected, "SUBSCRIBE TO ({text})");
            number += 1;
            fixture.query(&format!("CREATE MATERIALIZED VIEW view{number} AS {text}"))?;
            let kept = format!("SELECT * FROM view{number}");
            let is_same = || Ok(sorted(&fixture.query(&kept)?) == selected);
            wait_for("the view to have the rows of its query", WAIT_MAX, is_same)
                .with_context(|| format!("{text}: {selected:?} {:?}", fixture.query(&kept)))?;
            let again = live(&fixture, &kept, selected.len())?;
            assert_eq!(again, Some(selected), "SUBSCRIBE TO ({kept}) of {text}");
            answered += 1;
        }
    }
    ensure!(answered >= TEXTS.len(), "only {answered} were answered in all three ways");
    Ok(())
}

#[test]
fn thousands_of_rows_are_inserted_by_one_statement() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    const COUNT: usize = 20_000;
    let fixture = Fixture::shared()?;
    let topic = fixture.topic("many");
    fixture.create_topic(&topic, 3)?;
    let mut insert = format!("INSERT INTO {topic} (partition, key, value) VALUES ");
    for number in 0..COUNT {
        let comma = if number > 0 { "," } else { "" };
        write!(insert, "{comma}({}, 'k{number}', '{{\"n\": {number}}}')", number % 3)?;
    }
    let run = |text: String| -> Result<()> {
        fixture.broker().check(fixture.psql().args(["--file", "-"]).input(file_of(&[text])?))?;
        Ok(())
    };
    run(format!("{insert};"))?;
    let found = format!(
        "SELECT count(*), count(DISTINCT key), sum((value->>'n')::bigint) FROM {topic} \
         WHERE partition = substr(key, 2)::int % 3"
    );
    let sum = COUNT * (COUNT - 1) / 2;
    assert_eq!(fixture.query(&found)?, format!("{COUNT}|{COUNT}|{sum}"));
    // The last row is invalid: no row is inserted.
    run(format!("{insert}, (7, 'bad', NULL);"))?;
    assert_eq!(fixture.query(&found)?, format!("{COUNT}|{COUNT}|{sum}"));
    Ok(())
}
