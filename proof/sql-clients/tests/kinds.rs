//! Casts and operators between values of all types: combinations that PostgreSQL lacks are
//! rejected. Also names and types of columns.

use anyhow::{Result, ensure};
use kafka_clients::is_skipped;
use sql_clients::{Answer, Fixture, Reference, Script};

const PROGRAMS: &[&str] = &["psql", "setpriv"];

const TEXT: &str = "'a'::text";

/// A value of each type, with the type's name.
const VALUES: &[(&str, &str)] = &[
    ("3::int", "int"),
    ("3.5::numeric", "numeric"),
    ("2.5::float8", "float8"),
    (TEXT, "text"),
    ("true", "boolean"),
    ("date '2026-01-02'", "date"),
    ("timestamp '2026-01-02 03:04:05'", "timestamp"),
    ("time '03:04:05'", "time"),
    ("interval '1 day'", "interval"),
    ("jsonb '[3]'", "jsonb"),
    (r"'\x03'::bytea", "bytea"),
    ("ARRAY[3,4]::int[]", "int[]"),
    ("ARRAY['3','4']::text[]", "text[]"),
];

const OPERATORS: &[&str] = &[
    "+",
    "-",
    "*",
    "/",
    "%",
    "=",
    "<",
    "||",
    "&",
    "|",
    "#",
    "<<",
    "~",
    "~~",
    "->",
    "->>",
    "#>",
    "?",
    "IN",
    "IS DISTINCT FROM",
];

/// Operators that parse texts as JSON here, as they do topic values. JSON operands do so too.
const OF_JSON: &[&str] = &["->", "->>", "#>", "?"];

/// Queries whose columns are named after their expressions, one a line.
const NAMES: &str = include_str!("names.txt");

const FAILURES_SHOWN: usize = 20;

fn statements() -> Vec<String> {
    let mut all = Vec::new();
    for (value, _) in VALUES {
        // Excluded: a text that is not JSON becomes NULL as JSON.
        let casts = VALUES.iter().filter(|(_, name)| !(*value == TEXT && *name == "jsonb"));
        all.extend(casts.map(|(_, name)| format!("SELECT ({value})::{name}")));
        for operator in OPERATORS {
            let is_read = OF_JSON.contains(operator) && *value == TEXT;
            let others = VALUES.iter().filter(|_| !is_read);
            all.extend(others.map(|(other, _)| format!("SELECT ({value}) {operator} ({other})")));
        }
    }
    all
}

#[test]
fn casts_and_operators_that_postgresql_has_not_are_refused() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (fixture, reference) = (Fixture::shared()?, Reference::start()?);
    let mut script = Script::default();
    statements().into_iter().for_each(|it| script.add(it));
    let (ours, theirs) = (script.run(fixture.psql())?, script.run(reference.psql())?);
    let answers = ours.iter().zip(&theirs);
    let wrong: Vec<_> = script
        .queries()
        .iter()
        .zip(answers)
        .filter(|(_, answers)| match answers {
            (Answer::Rows(_), Answer::Error { .. }) => true,
            (Answer::Error { sql_state, .. }, _) => sql_state == "XX000",
            (Answer::Rows(_), Answer::Rows(_)) => false,
        })
        .collect();
    for (query, (ours, theirs)) in wrong.iter().take(FAILURES_SHOWN) {
        eprintln!("{query};\n  {ours:?}\n  {theirs:?}");
    }
    ensure!(wrong.is_empty(), "{} of {} statements", wrong.len(), ours.len());
    Ok(())
}

#[test]
fn columns_have_the_names_and_types_of_postgresql() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (fixture, reference) = (Fixture::shared()?, Reference::start()?);
    let mut script = Script::default();
    NAMES.lines().for_each(|it| script.add(it));
    let told = |columns: Vec<String>| columns.join(", ");
    let ours = script.columns(fixture.psql())?.into_iter().map(told);
    let theirs = script.columns(reference.psql())?.into_iter().map(told);
    let wrong: Vec<_> = script
        .queries()
        .iter()
        .zip(ours.zip(theirs))
        .filter(|(_, (ours, theirs))| ours != theirs || ours.is_empty())
        .collect();
    ensure!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}
