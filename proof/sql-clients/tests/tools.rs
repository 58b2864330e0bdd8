//! Catalog queries of tools, compared with a PostgreSQL server that has the same tables.

use std::collections::HashSet;

use anyhow::{Context, Result, bail, ensure};
use kafka_clients::is_skipped;
use sql_clients::{Answer, Fixture, Reference, Script};

const PROGRAMS: &[&str] = &["psql", "pg_dump", "setpriv"];

/// Cases, each as `# tool: purpose`, the comparison and the statement, followed by an empty line.
const STATEMENTS: &str = include_str!("tools.txt");

/// Comparison of an answer with PostgreSQL's.
#[derive(Clone, Copy, Debug)]
enum Comparison<'a> {
    /// Equal rows in the same order.
    Equal,
    /// Rows that PostgreSQL returns too, among others.
    Among,
    /// Any rows, with the same columns: OIDs differ.
    Columns,
    /// Error with this SQLSTATE, whatever PostgreSQL returns.
    Refused(&'a str),
}

struct Case<'a> {
    title: &'a str,
    comparison: Comparison<'a>,
    statement: &'a str,
}

fn cases() -> Result<Vec<Case<'static>>> {
    let blocks = STATEMENTS.trim_end().split("\n\n");
    let cases = blocks.map(|block| {
        let lines: Vec<_> = block.lines().collect();
        let [title, comparison, statement] = lines.as_slice() else { bail!("no case: {block}") };
        let comparison = match *comparison {
            "=" => Comparison::Equal,
            "~" => Comparison::Among,
            "?" => Comparison::Columns,
            state => Comparison::Refused(state),
        };
        Ok(Case { title, comparison, statement })
    });
    cases.collect()
}

/// Starts both servers with the same tables.
fn servers() -> Result<(Fixture, Reference)> {
    let (fixture, reference) =
        (Fixture::with_options(&["--anonymous", "loopback"])?, Reference::start()?);
    for topic in ["orders", "Odd.Name"] {
        fixture.create_topic(topic, 1)?;
    }
    let declared = "symbol text, qty bigint, bid double precision, at timestamptz, note json, \
                    price numeric, live boolean, n integer";
    fixture.query(&format!("CREATE TABLE trades ({declared}) WITH (topic = 'orders')"))?;
    let record = "partition int NOT NULL, \"offset\" bigint NOT NULL, time timestamptz, key text";
    for (name, columns) in [
        ("orders", format!("{record}, value text, headers json")),
        ("\"Odd.Name\"", format!("{record}, value text, headers json")),
        ("trades", format!("{declared}, {record}, headers json")),
    ] {
        reference.psql().args(["-c", &format!("CREATE TABLE {name} ({columns})")]).check()?;
    }
    Ok((fixture, reference))
}

/// Returns a column as `name|type`, with types that clients treat alike unified.
fn plain(column: &str) -> String {
    let (name, kind) = column.rsplit_once('|').unwrap_or((column, ""));
    let kind = match kind {
        "name"
        | "regproc"
        | "regtype"
        | "\"char\""
        | "character varying"
        | "information_schema.sql_identifier"
        | "information_schema.character_data"
        | "information_schema.yes_or_no" => "text",
        "information_schema.cardinal_number" => "integer",
        "aclitem[]" => "text[]",
        other => other,
    };
    format!("{name}|{kind}")
}

fn check(case: &Case<'_>, ours: &Answer, theirs: &Answer) -> Result<()> {
    let (ours, theirs) = match (case.comparison, ours, theirs) {
        (Comparison::Refused(state), Answer::Error { sql_state, message }, _) => {
            ensure!(sql_state == state, "it is refused with {sql_state}: {message}");
            return Ok(());
        }
        (_, Answer::Rows(ours), Answer::Rows(theirs)) => (ours, theirs),
        _ => bail!("it is {ours:?} and in PostgreSQL {theirs:?}"),
    };
    match case.comparison {
        Comparison::Equal => ensure!(ours == theirs, "{ours:#?} is {theirs:#?} in PostgreSQL"),
        Comparison::Among => {
            let known: HashSet<_> = theirs.iter().collect();
            let others: Vec<_> = ours.iter().filter(|it| !known.contains(it)).collect();
            ensure!(others.is_empty() && ours.len() > 10, "not in PostgreSQL: {others:#?}");
        }
        Comparison::Columns => ensure!(!ours.is_empty(), "there are no rows"),
        Comparison::Refused(state) => bail!("it is not refused with {state}: {ours:?}"),
    }
    Ok(())
}

#[test]
fn tools_are_told_of_tables_as_postgresql_tells_them_or_are_refused() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let ((fixture, reference), cases) = (servers()?, cases()?);
    let mut script = Script::default();
    cases.iter().for_each(|it| script.add(it.statement));
    let (ours, theirs) = (script.run(fixture.psql())?, script.run(reference.psql())?);
    let (our_columns, their_columns) =
        (script.columns(fixture.psql())?, script.columns(reference.psql())?);
    let mut failures = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        let plain = |columns: &[String]| columns.iter().map(|it| plain(it)).collect::<Vec<_>>();
        let (our_columns, their_columns) =
            (plain(&our_columns[index]), plain(&their_columns[index]));
        // Columns of tables that are always empty have type text.
        let has_rows = matches!(&ours[index], Answer::Rows(rows) if !rows.is_empty());
        if let Err(error) = check(case, &ours[index], &theirs[index]) {
            failures.push(format!("{}: {error}", case.title));
        } else if has_rows && our_columns != their_columns {
            let what = format!("{our_columns:?} is {their_columns:?} in PostgreSQL");
            failures.push(format!("{}: {what}", case.title));
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

#[test]
fn pg_dump_is_told_that_it_is_not_served() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::shared()?;
    let output = fixture.client("pg_dump").run()?;
    ensure!(output.exit_code != Some(0), "it is not refused");
    let error = output.stderr.lines().find(|line| line.contains("ERROR"));
    let error = error.with_context(|| output.stderr.clone())?;
    ensure!(error.contains("acldefault is not supported"), "{error}");
    ensure!(output.stderr.contains("HINT:"), "{}", output.stderr);
    Ok(())
}
