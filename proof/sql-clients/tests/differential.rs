//! The same data and the same queries for the broker and for PostgreSQL: the answers agree, but for
//! what is listed here.

use anyhow::{Result, ensure};
use kafka_clients::is_skipped;
use model::for_each_seed;
use sql_clients::{Answer, Generator, Reference, Script, Site};
use system::Tool;

const PROGRAMS: &[&str] = &["psql", "setpriv"];

const QUERY_COUNT: usize = 1_000;

/// Each draws as many queries.
const SEED_COUNT: u64 = 2;
const REPLAY: &str = "make test FILTER=sql-clients/differential";

const ORDER_COUNT: usize = 300;
const QUOTE_COUNT: usize = 40;
const PARTITION_COUNT: usize = 3;

/// Unix seconds of the first record, and the seconds between two of them.
const FIRST_TIME_S: usize = 1_767_225_600;
const TIME_STEP_S: usize = 20_011;

const FAILURES_SHOWN: usize = 12;

/// What an error is in the list of differences.
const ERROR: &str = "error";

/// Queries that the engine answers in its own way: what the broker says, and what PostgreSQL does.
const DIFFERENCES: &[(&str, &str, &str)] = &[
    // Literals are of 64 bits.
    ("SELECT 2147483647 + 1", "2147483648", ERROR),
    // What is no JSON is NULL.
    ("SELECT 'x'::json->>'a'", "<null>", ERROR),
    // A column of both is numeric, with 15 digits before the point.
    ("SELECT a FROM (VALUES (1e20::float8), (0.5)) t(a)", ERROR, "1e+20\n0.5"),
    // Not there.
    ("SELECT to_char(1234.5, '9,999.9')", ERROR, " 1,234.5"),
    ("SELECT '{\"a\": 1}'::jsonb @> '{\"a\": 1}'::jsonb", ERROR, "t"),
    ("SELECT 'a' SIMILAR TO lower('A')", ERROR, "t"),
    ("SELECT EXISTS (SELECT 1), count(*)", ERROR, "t|1"),
    ("SELECT j FROM (VALUES (1)) l(i), LATERAL (SELECT l.i * 2 AS j) x", ERROR, "2"),
];

/// Queries that the engine by itself answers in another way.
const LIKE_POSTGRESQL: &[&str] = &[
    "SELECT 9223372036854775807 + 1",
    "SELECT (-9223372036854775807 - 1) / -1",
    "SELECT 4000000000 * 4000000000",
    "SELECT sum(a) FROM (VALUES (9223372036854775807), (1)) t(a)",
    "SELECT sum(a), sum(a) / 2, sum(a::int) / 2 FROM (VALUES (8::bigint), (3), (NULL)) t(a)",
    "SELECT b, sum(DISTINCT a), sum(a), count(*) FROM (VALUES (5::bigint, 1), (5, 1)) t(a, b) \
     GROUP BY b",
    "SELECT sum(a) OVER (ORDER BY a ROWS 1 PRECEDING) FROM (VALUES (1::bigint), (2), (4)) t(a)",
    "SELECT sum(a) FROM (VALUES ('x')) t(a)",
    "SELECT sum(a::int) / 2, sum(a::int) + sum(a) FROM (VALUES (8::bigint), (3), (NULL)) t(a)",
    "SELECT b, sum(a::int), count(DISTINCT c) FROM (VALUES (5, 1, 2), (6, 1, 3)) t(a, b, c) \
     GROUP BY b HAVING sum(a::int) > 1",
    "SELECT sum(DISTINCT a::int), sum(a::smallint) OVER (ORDER BY a ROWS 1 PRECEDING) \
     FROM (VALUES (5)) t(a) GROUP BY a",
    "SELECT i + 1 FROM (VALUES (9223372036854775806), (9223372036854775807)) t(i)",
    "SELECT 7 / 2, -7 / 2, 7 % 4, -7 % 4, 7.5 / 2",
    "SELECT 1 / 0",
    "SELECT 2.5::int, 3.5::int, -2.5::int, 2.5::float8::int, 3.5::float8::bigint",
    "SELECT 3000000000::int",
    "SELECT 1e30::float8::bigint",
    "SELECT '12'::int, ' 12 '::int, true::int",
    "SELECT 'x'::int",
    "SELECT '1e5'::numeric, '-1.25E-2'::numeric, ' 7 '::numeric",
    "SELECT '1e'::numeric",
    "SELECT 1::float8 / 0",
    "SELECT 1e18::float8 > 1.5, 1e-20::float8 > 0.0, 1e18::float8 BETWEEN 0.5 AND 2.5",
    "SELECT a IN (1.5, 1e20), coalesce(a, 0.5), least(a, 0.25) \
     FROM (VALUES (1e20::float8), (0.1::float8), (NULL)) t(a)",
    "SELECT count(*), b FROM (VALUES (1e17::float8, 1), (0.5::float8, 1)) t(a, b) \
     WHERE a >= 0.5 GROUP BY b HAVING sum(a) > 1.5",
    "SELECT 0::float8 / 3, 1e300::float8 * 1e10",
    "SELECT -2^2, 2^(-2), -2^2^3",
    "SELECT extract(second from timestamp '2026-05-06 10:20:30.5')",
    "SELECT extract(epoch from timestamptz '2026-05-06 10:20:30.5+00')",
    "SELECT extract(milliseconds from time '10:20:30.25'), extract(epoch from interval '1 day')",
    "SELECT extract(year from date '2026-05-06'), extract(hour from time '10:20:30')",
    "SELECT to_char(timestamp '2026-05-06 10:20:30', 'YYYY-MM-DD HH24:MI:SS.US')",
    "SELECT to_char(timestamptz '1999-12-31 23:59:59.5+00', 'Dy, DDth FMMonth IYYY-IW Q MS TZ am')",
    "SELECT timestamp '2026-01-01 12:00', '2026-01-01 12:00+01'::timestamptz",
    "SELECT 'abc'::varchar(2), 'äöü'::varchar(2)",
    "SELECT 'abc' SIMILAR TO 'a%', 'abc' SIMILAR TO '%(b|d)%', 'a.c' SIMILAR TO 'a_c'",
    "SELECT 'abc' SIMILAR TO 'b', 'abc' NOT SIMILAR TO 'a', 'a+' SIMILAR TO 'a\\+'",
    "SELECT sign(-3), sign(2.5), sign(0)",
    "SELECT ~7, ~(-1)",
    "SELECT 1 AS a, 2 AS a",
    "SELECT a, a, b AS a FROM (VALUES (1, 2)) t(a, b)",
    "SELECT *, a FROM (VALUES (1, 2)) t(a, b)",
    "SELECT 1, 2, 1 + 1, 1 + 1",
    "SELECT interval '1 year 2 months 3 days 04:05:06.5', interval '-1 day', interval '0'",
    "SELECT timestamp '2026-01-03 12:00:00' - timestamp '2026-01-01 13:00:00'",
    "SELECT x IN (a, b) AND x IN (b, c) FROM (VALUES (1, 1, NULL::int, 1)) t(x, a, b, c)",
    "SELECT x NOT IN (a, NULL), x IN (NULL, 1) FROM (VALUES (1, 2)) t(x, a)",
    "SELECT NOT (x IN ('a', NULL) AND x NOT IN ('a')) FROM (VALUES ('a'), ('b')) t(x)",
    "SELECT count(*) FROM (VALUES (1), (2)) t(a) GROUP BY a + 1 ORDER BY a + 1",
    "SELECT DISTINCT a + 1 FROM (VALUES (1), (1)) t(a) ORDER BY a + 1",
    "SELECT upper(a) FROM (VALUES ('b'), ('a')) t(a) ORDER BY upper(a)",
    "SELECT rank() OVER (ORDER BY abs(length(a)), a) FROM (VALUES ('b'), ('aa')) t(a)",
    "SELECT row_number() OVER (ORDER BY abs(a * 2), a::numeric + 1) FROM (VALUES (1), (2)) t(a)",
    "SELECT max(a), max(a::text), min(a::text::bigint), max(upper(a::text)), \
     count(DISTINCT a::text) FROM (VALUES (9), (10)) t(a)",
    "SELECT b, sum(a), sum(a::float8), sum(a::numeric) OVER (), sum(a) OVER () \
     FROM (VALUES (9, 1), (10, 1)) t(a, b) GROUP BY b, a HAVING sum(a::float8) > 1 ORDER BY a",
    "SELECT max FROM (SELECT max(a) FROM (VALUES (1)) t(a)) s",
];

/// Queries whose columns PostgreSQL gives names to.
const UNNAMED: &str = "SELECT 1, upper('a'), 1::int, 2::numeric(5, 1), now() IS NULL, \
    CASE WHEN true THEN 1 END, extract(day FROM now()) > 0, \
    trim(' a '), coalesce(1, 2), count(*), sum(1), timestamptz '2026-01-01', -1, 1 = 1";

#[test]
fn what_is_not_listed_is_as_in_postgresql() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let mut script = Script::default();
    LIKE_POSTGRESQL.iter().for_each(|query| script.add(*query));
    let (site, reference) = (Site::shared()?, Reference::start()?);
    let (ours, theirs) = (script.run(site.psql())?, script.run(reference.psql())?);
    let answers = LIKE_POSTGRESQL.iter().zip(ours.iter().zip(&theirs));
    let failed: Vec<_> = answers.filter(|(_, (ours, theirs))| !ours.agrees_with(theirs)).collect();
    ensure!(failed.is_empty(), "queries, our answers and PostgreSQL's: {failed:#?}");
    let header = |psql: Tool| psql.args(["--pset", "tuples_only=off", "-c", UNNAMED]).check();
    let (ours, theirs) = (header(site.psql())?, header(reference.psql())?);
    assert_eq!(ours.lines().next(), theirs.lines().next());
    Ok(())
}

#[test]
fn differences_are_those_that_are_listed() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let mut script = Script::default();
    DIFFERENCES.iter().for_each(|(query, ..)| script.add(*query));
    let ours = script.run(Site::shared()?.psql())?;
    let theirs = script.run(Reference::start()?.psql())?;
    let shown = |answer: &Answer| match answer {
        Answer::Rows(rows) => rows.join("\n"),
        Answer::Error { .. } => ERROR.to_owned(),
    };
    let found: Vec<_> = ours.iter().map(shown).zip(theirs.iter().map(shown)).collect();
    let wrong = DIFFERENCES.iter().zip(&found);
    let wrong: Vec<_> = wrong.filter(|((_, a, b), (c, d))| a != c || b != d).collect();
    ensure!(wrong.is_empty(), "listed, and found: {wrong:#?}");
    Ok(())
}

/// Has both servers keep the same rows; the broker gives the offsets.
fn fill(site: &Site, reference: &Reference, table: &str, rows: &[(String, String)]) -> Result<()> {
    let mut ours = Script::default();
    let mut theirs = Script::default();
    theirs.add(format!(
        "CREATE TABLE {table} (partition int, \"offset\" bigint, time timestamptz, key text, \
         value json)"
    ));
    let mut ends = [0; PARTITION_COUNT];
    for (index, (key, value)) in rows.iter().enumerate() {
        let partition = index % PARTITION_COUNT;
        let time = format!("to_timestamp({})", FIRST_TIME_S + index * TIME_STEP_S);
        ours.add(format!(
            "INSERT INTO {table} (partition, time, key, value) \
             VALUES ({partition}, {time}, {key}, {value})"
        ));
        theirs.add(format!(
            "INSERT INTO {table} VALUES ({partition}, {}, {time}, {key}, {value})",
            ends[partition]
        ));
        ends[partition] += 1;
    }
    for (script, psql) in [(ours, site.psql()), (theirs, reference.psql())] {
        for (query, answer) in script.queries().iter().zip(script.run(psql)?) {
            ensure!(matches!(answer, Answer::Rows(_)), "{query}: {answer:?}");
        }
    }
    Ok(())
}

#[test]
fn generated_queries_have_the_answers_of_postgresql() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (site, reference) = (Site::shared()?, Reference::start()?);
    for_each_seed(REPLAY, SEED_COUNT, |seed| {
        let compared = compare(site, &reference, seed);
        compared.unwrap_or_else(|error| panic!("{error:#}"));
    });
    Ok(())
}

fn compare(site: &Site, reference: &Reference, seed: u64) -> Result<()> {
    let (orders, quotes) = (site.topic("orders"), site.topic("quotes"));
    for topic in [&orders, &quotes] {
        site.create_topic(topic, PARTITION_COUNT)?;
    }
    let mut generator = Generator::new(seed, &orders, &quotes);
    let rows: Vec<_> = (0..ORDER_COUNT).map(|_| generator.order()).collect();
    fill(site, reference, &orders, &rows)?;
    let rows: Vec<_> = (0..QUOTE_COUNT).map(|_| generator.quote()).collect();
    fill(site, reference, &quotes, &rows)?;
    let mut script = Script::default();
    (0..QUERY_COUNT).for_each(|_| script.add(generator.query()));
    let (ours, theirs) = (script.run(site.psql())?, script.run(reference.psql())?);
    let answers = script.queries().iter().zip(ours.iter().zip(&theirs));
    let failed: Vec<_> = answers.filter(|(_, (ours, theirs))| !ours.agrees_with(theirs)).collect();
    for (query, (ours, theirs)) in failed.iter().take(FAILURES_SHOWN) {
        eprintln!("{query};\n  {}\n", difference(ours, theirs));
    }
    let is_error = |it: &&Answer| matches!(it, Answer::Error { .. });
    let error_count = theirs.iter().filter(is_error).count();
    ensure!(error_count < QUERY_COUNT / 10, "PostgreSQL refuses {error_count} queries");
    ensure!(failed.is_empty(), "{} of {QUERY_COUNT} queries differ", failed.len());
    Ok(())
}

/// Where two answers part, in one line.
fn difference(ours: &Answer, theirs: &Answer) -> String {
    let (Answer::Rows(our_rows), Answer::Rows(their_rows)) = (ours, theirs) else {
        return format!("{ours:.300?} instead of {theirs:.300?}");
    };
    let counts = format!("{} rows instead of {}", our_rows.len(), their_rows.len());
    let mut pairs = our_rows.iter().zip(their_rows);
    match pairs.find(|(ours, theirs)| ours != theirs) {
        Some((ours, theirs)) => format!("{ours} instead of {theirs} ({counts})"),
        None => counts,
    }
}
