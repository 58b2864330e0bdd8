//! Numerics of several scales in one column: each value has the digits that PostgreSQL shows,
//! including trailing zeros.

use anyhow::{Result, ensure};
use kafka_clients::is_skipped;
use model::for_each_seed_at_once;
use sql_clients::{Answer, Fixture, Numerics, Reference, Script};

const PROGRAMS: &[&str] = &["psql", "setpriv"];

/// Number of queries of each seed.
const QUERY_COUNT: usize = 700;

const SEED_COUNT: u64 = 2;
const REPLAY: &str = "make test FILTER=sql-clients/numerics";
const REFUSED: &str = "0A000";

/// Maximum share of the drawn queries that the broker may reject: quotients with many digits.
const REFUSED_PERCENT_MAX: usize = 10;

const FAILURES_SHOWN: usize = 20;

/// Queries whose zeros once differed from PostgreSQL's, one a line.
const QUERIES: &str = include_str!("numerics.txt");

#[test]
fn numerics_have_the_digits_of_postgresql() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (fixture, reference) = (Fixture::shared()?, Reference::start()?);
    let mut script = Script::default();
    QUERIES.lines().for_each(|it| script.add(it));
    compare(&script, &fixture, &reference, 0)
}

#[test]
fn drawn_queries_with_numerics_are_answered_to_the_digit_or_refused() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (fixture, reference) = (Fixture::shared()?, Reference::start()?);
    for_each_seed_at_once(REPLAY, SEED_COUNT, |seed| {
        let (mut drawn, mut script) = (Numerics::new(seed), Script::default());
        (0..QUERY_COUNT).for_each(|_| script.add(drawn.query()));
        let compared = compare(&script, &fixture, &reference, REFUSED_PERCENT_MAX);
        compared.unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
    });
    Ok(())
}

/// Compares answers by their letters, and column types.
fn compare(
    script: &Script,
    fixture: &Fixture,
    reference: &Reference,
    refused_percent_max: usize,
) -> Result<()> {
    let (ours, theirs) = (script.run(fixture.psql())?, script.run(reference.psql())?);
    let our_types = script.column_types(fixture.psql())?;
    let their_types = script.column_types(reference.psql())?;
    let (mut failed_count, mut refusals) = (0, Vec::new());
    for (index, query) in script.queries().iter().enumerate() {
        let is_right = match (&ours[index], &theirs[index]) {
            (Answer::Error { sql_state, message }, _) if sql_state == REFUSED => {
                refusals.push(format!("{query}: {message}"));
                true
            }
            (Answer::Error { sql_state: ours, .. }, Answer::Error { sql_state: theirs, .. }) => {
                ours == theirs
            }
            (ours, theirs) => ours == theirs && our_types[index] == their_types[index],
        };
        if !is_right {
            failed_count += 1;
            if failed_count <= FAILURES_SHOWN {
                eprintln!(
                    "{query};\n  {:.600?}\n  instead of {:.600?}\n",
                    ours[index], theirs[index]
                );
            }
        }
    }
    ensure!(failed_count == 0, "{failed_count} of {} queries differ", ours.len());
    let percent = refusals.len() * 100 / ours.len();
    eprintln!("{} of {} queries are refused", refusals.len(), ours.len());
    ensure!(percent <= refused_percent_max, "{percent} % are refused: {refusals:#?}");
    Ok(())
}
