//! Queries on whole tables: answered as in PostgreSQL, or rejected with SQLSTATE 0A000 and a hint.

use anyhow::{Result, ensure};
use kafka_clients::is_skipped;
use model::for_each_seed_at_once;
use sql_clients::{Answer, Fixture, Reference, Relations, Script};

const PROGRAMS: &[&str] = &["psql", "setpriv"];

/// Number of queries of each seed.
const QUERY_COUNT: usize = 1400;

/// Number of additional queries that PostgreSQL rejects.
const WRONG_COUNT: usize = 100;

const SEED_COUNT: u64 = 2;
const REPLAY: &str = "make test FILTER=sql-clients/relations";

/// Rows of each table. The last one is empty.
const ROW_COUNTS: [usize; 3] = [24, 14, 0];
const PARTITION_COUNT: usize = 3;

/// Number of rows of a result of several batches.
const MANY: usize = 30_000;

const REFUSED: &str = "0A000";

/// Maximum share of the queries answered by PostgreSQL that the broker may reject.
const REFUSED_PERCENT_MAX: usize = 20;

const FAILURES_SHOWN: usize = 20;

#[test]
fn drawn_queries_of_relations_are_answered_as_by_postgresql_or_refused() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (fixture, reference) = (Fixture::shared()?, Reference::start()?);
    for_each_seed_at_once(REPLAY, SEED_COUNT, |seed| {
        let compared = compare(&fixture, &reference, seed);
        compared.unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
    });
    Ok(())
}

/// Results of several batches, where the engine deals batches to its threads.
#[test]
fn results_of_many_rows_are_in_the_order_of_order_by() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (fixture, reference) = (Fixture::shared()?, Reference::start()?);
    let name = fixture.topic("many");
    let (topic, columns) = (format!("{name}_topic"), "id int, n numeric, t text");
    fixture.create_topic(&topic, PARTITION_COUNT)?;
    // 7919 and the number of rows have no common divisor, so the ids are all of them in another
    // order.
    let insert = format!(
        "INSERT INTO {name} (id, n, t) SELECT i * 7919 % {MANY}, round(i % 1000 / 8.0, i % 4), \
         i::text FROM generate_series(1, {MANY}) i"
    );
    let mut ours = Script::default();
    let mut theirs = Script::default();
    ours.add(format!("CREATE TABLE {name} ({columns}) WITH (topic = '{topic}', format = 'json')"));
    theirs.add(format!("CREATE TABLE {name} ({columns})"));
    let mut queries = Script::default();
    for query in [
        "SELECT id, n FROM r ORDER BY id",
        "SELECT n, n / 3, n * 2 FROM r ORDER BY id DESC",
        "SELECT id, n FROM r ORDER BY n, id LIMIT 20000 OFFSET 10",
        "SELECT id, sum(n) OVER (ORDER BY id), lag(n) OVER (ORDER BY id) FROM r ORDER BY id",
        "SELECT id, sum(n) OVER (ORDER BY id ROWS 1 PRECEDING) FROM r WHERE id < 40 ORDER BY id",
        "SELECT id, coalesce(n, 0), CASE WHEN id > 5 THEN n ELSE 0.0 END FROM r ORDER BY t",
        "SELECT a.id, a.n + b.n FROM r a JOIN r b ON a.id = b.id ORDER BY a.id",
        "SELECT id, n FROM (SELECT id, n FROM r ORDER BY id LIMIT 20000) x ORDER BY id",
        "SELECT id, (SELECT max(n) FROM r) FROM r ORDER BY id",
        "SELECT id, n FROM r UNION ALL SELECT id + 1, n FROM r ORDER BY id, n",
        "SELECT t, id FROM r ORDER BY t",
    ] {
        queries
            .add(query.replace(" r ", &format!(" {name} ")).replace(" r)", &format!(" {name})")));
    }
    let mut answers = Vec::new();
    for (mut script, psql) in [(ours, fixture.psql()), (theirs, reference.psql())] {
        script.add(insert.as_str());
        queries.queries().iter().for_each(|it| script.add(it.as_str()));
        answers.push(script.run(psql)?);
    }
    let types = queries.column_types(reference.psql())?;
    let compared = answers[0].iter().zip(&answers[1]).skip(2).zip(&types);
    for (query, ((ours, theirs), types)) in queries.queries().iter().zip(compared) {
        ensure!(matches!(theirs, Answer::Rows(_)), "{query}: {theirs:.400?}");
        ensure!(ours.agrees_with(theirs, types), "{query}: {ours:.400?} is not {theirs:.400?}");
    }
    Ok(())
}

fn compare(fixture: &Fixture, reference: &Reference, seed: u64) -> Result<()> {
    let names = ["r", "s", "e"].map(|it| fixture.topic(it));
    let mut drawn = Relations::new(seed, names.clone());
    for (name, row_count) in names.iter().zip(ROW_COUNTS) {
        let rows: Vec<_> = (0..row_count).map(|id| format!("({id}, {})", drawn.row())).collect();
        fill(fixture, reference, name, &rows)?;
    }
    let mut script = Script::default();
    (0..QUERY_COUNT).for_each(|_| script.add(drawn.query()));
    (0..WRONG_COUNT).for_each(|_| script.add(drawn.wrong()));
    let (ours, theirs) = (script.run(fixture.psql())?, script.run(reference.psql())?);
    let types = script.column_types(reference.psql())?;
    let (mut failed_count, mut refused_count) = (0, 0);
    for (index, query) in script.queries().iter().enumerate() {
        let (ours, theirs) = (&ours[index], &theirs[index]);
        let is_right = match (ours, theirs) {
            (Answer::Error { sql_state, .. }, Answer::Rows(_)) if sql_state == REFUSED => {
                refused_count += 1;
                true
            }
            (Answer::Error { .. }, Answer::Error { .. }) => true,
            (ours, theirs) => ours.agrees_with(theirs, &types[index]),
        };
        let is_drawn_right = matches!(theirs, Answer::Error { .. }) || index < QUERY_COUNT;
        ensure!(is_drawn_right, "PostgreSQL does not refuse {query}");
        if !is_right {
            failed_count += 1;
            if failed_count <= FAILURES_SHOWN {
                eprintln!("{query};\n  {ours:.400?}\n  instead of {theirs:.400?}\n");
            }
        }
    }
    ensure!(failed_count == 0, "{failed_count} of {} queries differ", ours.len());
    let percent = refused_count * 100 / QUERY_COUNT;
    eprintln!("{refused_count} of {QUERY_COUNT} queries of seed {seed} are refused");
    ensure!(percent <= REFUSED_PERCENT_MAX, "{percent} % of the queries are refused");
    Ok(())
}

/// Stores the same rows in both servers.
fn fill(fixture: &Fixture, reference: &Reference, table: &str, rows: &[String]) -> Result<()> {
    let (topic, columns) = (format!("{table}_topic"), "id int, a int, b int, c text");
    fixture.create_topic(&topic, PARTITION_COUNT)?;
    let mut ours = Script::default();
    let mut theirs = Script::default();
    ours.add(format!("CREATE TABLE {table} ({columns}) WITH (topic = '{topic}', format = 'json')"));
    theirs.add(format!("CREATE TABLE {table} ({columns})"));
    if !rows.is_empty() {
        let insert = format!("INSERT INTO {table} (id, a, b, c) VALUES {}", rows.join(", "));
        ours.add(insert.as_str());
        theirs.add(insert);
    }
    for (script, psql) in [(ours, fixture.psql()), (theirs, reference.psql())] {
        for (query, answer) in script.queries().iter().zip(script.run(psql)?) {
            ensure!(matches!(answer, Answer::Rows(_)), "{query}: {answer:?}");
        }
    }
    Ok(())
}
