//! Integer literals and parsed texts: types, values and errors as in PostgreSQL.

use anyhow::{Result, ensure};
use kafka_clients::is_skipped;
use model::for_each_seed_at_once;
use sql_clients::{Answer, Fixture, Integers, Reference, Script, Texts};

const PROGRAMS: &[&str] = &["psql", "setpriv"];

/// Number of queries of each seed.
const QUERY_COUNT: usize = 700;

const SEED_COUNT: u64 = 2;
const REPLAY: &str = "make test FILTER=sql-clients/integers";

const ROW_COUNT: usize = 8;
const REFUSED: &str = "0A000";

/// Maximum share of the queries answered by PostgreSQL that the broker may reject.
const REFUSED_PERCENT_MAX: usize = 5;

/// Same share for texts: capture groups in alternations, and fractions of units that floats round.
const TEXTS_REFUSED_PERCENT_MAX: usize = 30;

const FAILURES_SHOWN: usize = 20;

/// Errors that depend on values. Which one occurs first depends on the order of evaluation.
const OF_VALUES: &[&str] = &["22003", "22012"];

/// Queries whose types once differed from PostgreSQL's.
const TYPED: &[&str] = &[
    "SELECT 1, -1, 2147483647, 2147483648, -2147483648, 9223372036854775808",
    "SELECT sum(a) / 2, avg(a), min(a), count(*) FROM (VALUES (8), (3)) t(a)",
    "SELECT 2147483647 + 1",
    "SELECT (-2147483648)::int / -1",
    "SELECT - (-2147483647 - 1)",
    "SELECT g, g / 2 FROM generate_series(1, 3) g(g)",
    "SELECT g FROM generate_series(1, 3000000000, 1500000000) g(g)",
    "SELECT g FROM generate_series(2147483646, 2147483647) g(g)",
    "SELECT count(g) FROM generate_series(1, NULL) g(g)",
    "SELECT ARRAY[1, 2], ARRAY[1, 3000000000], ARRAY[1.5, 2.5], ARRAY[1]::bigint[], \
     '{1,2}'::bigint[]",
    "SELECT unnest(ARRAY[1, 2]), (ARRAY[5, 6])[2], array_append(ARRAY[1], 2), array_agg(1)",
    "SELECT CASE WHEN true THEN 1 ELSE 3000000000 END, coalesce(NULL, 1), nullif(1, 2)",
    "SELECT greatest(1, 2), greatest(1, 2::bigint), least(1, 2.5)",
    "SELECT row_number() OVER (), rank() OVER (ORDER BY 1), dense_rank() OVER (ORDER BY 1)",
    "SELECT ntile(2) OVER (), lag(1) OVER (), first_value(1) OVER (), sum(1) OVER ()",
    "SELECT 1::smallint + 1, 1::bigint + 1, 1 + 1.5, 1 + 1::float8, 7 / 2, 7 % 2::bigint",
    "SELECT 1 UNION SELECT 2::bigint ORDER BY 1",
    "SELECT a FROM (VALUES (1), (3000000000)) t(a)",
    "SELECT abs(-1), round(1), round(5) / 2, ceil(1), mod(7, 3), factorial(3), -(2147483648)",
    "SELECT power(2, 3), 2 ^ 3, sqrt(4), trunc(5), floor(5)",
    "SELECT 1 << 33, 1::bigint << 33, (-8) >> 1, ~1, 5 & 3, 5 # 3, to_hex(-1), to_hex(-1::bigint)",
    "SELECT 1 << 2::bigint",
    "SELECT -a FROM (VALUES (-2147483647 - 1)) t(a)",
    "SELECT -a FROM (VALUES (-9223372036854775807 - 1)) t(a)",
    "SELECT -(-2147483648), -(-9223372036854775808), -9223372036854775808, 18446744073709551615",
    "SELECT nullif(1, 2::bigint), nullif(2::bigint, 2), nullif(1, 2.5), nullif(a, 3000000000) \
     FROM (VALUES (1)) t(a)",
    "SELECT gcd(12, 18), gcd(12::bigint, 18), lcm(4, 6), gcd(12.5, 5), lcm(4, 6::smallint), \
     lcm(0.5, 3)",
    "SELECT lcm(2147483647, 2)",
    "SELECT gcd(-2147483648, 0)",
    "SELECT lcm(9223372036854775807, 2)",
    "SELECT sign(-3), sign(2.5), sign(0::float8), sign(3::bigint)",
    "SELECT round(15, -1), round(5::bigint, 2), trunc(15, -1), trunc(5::bigint, 2), round(5) / 2",
    "SELECT date '2026-01-01' + 1::bigint",
    "SELECT 2::bigint::boolean",
    "SELECT bit_and(a), bit_or(a), max(a) FROM (VALUES (6), (3)) t(a)",
    "SELECT length('abc'), strpos('abc', 'b'), ascii('a'), cardinality(ARRAY[1]), \
     array_length(ARRAY[1], 1)",
    "SELECT octet_length('abc'), bit_length('abc'), position('b' in 'abc'), \
     array_position(ARRAY[1], 1)",
    "SELECT regexp_count('aa', 'a'), regexp_instr('aa', 'a'), regr_count(1, 2)",
    "SELECT date '2026-01-01' + 1, date '2026-01-03' - date '2026-01-01', \
     extract(year FROM date '2026-01-01')",
    "SELECT make_date(2026, 1, 2), date '2026-01-03' - 1",
    "SELECT (SELECT 1), EXISTS (SELECT 1), 1 IN (SELECT 1), ARRAY(SELECT 1)",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 4) \
     SELECT n, n / 2 FROM r ORDER BY 1",
    "SELECT 1 AS a, 2 AS b GROUP BY 1, 2 ORDER BY 2, 1 LIMIT 1 OFFSET 0",
    "SELECT json_build_array(1, 2), to_json(1), ('[1,2]'::jsonb->0)::int, '[1,2]'::json->> -1",
    "SELECT repeat('a', 3), substr('abc', 2, 1), left('abc', 2), lpad('a', 3), \
     split_part('a,b', ',', 2)",
    "SELECT round(2.345, 2), trunc(2.345, 1), chr(65), concat(1, 2), 1 || 'a', format('%s', 1)",
    "SELECT 134217740 / (CASE WHEN g > 0 THEN 1 ELSE 11.5 END) / 7 FROM (VALUES (0), (1)) v(g)",
    "SELECT 7 / x, x / 7 / 3, -x, x % 2 FROM (SELECT NULL UNION ALL SELECT 11.5) u(x) ORDER BY 1",
    "SELECT 1 / x / 7, x / 3 + 0.5::float8 FROM (SELECT 3 UNION ALL SELECT 11.5) u(x) ORDER BY 1",
    "SELECT (CASE WHEN g > 0 THEN 1 ELSE 0.1 END + 2.5::float8) / 3 FROM (VALUES (0), (1)) v(g)",
    "SELECT CASE WHEN g > 0 THEN 1.5 ELSE 1e300::float8 END / 7 FROM (VALUES (0), (1)) v(g)",
    "SELECT g FROM (VALUES (0), (1)) v(g) WHERE CASE g WHEN 0.5::float8 THEN 2 ELSE 1.5 END > 1 \
     ORDER BY 1",
    "SELECT (CASE WHEN g > 0 THEN 1 ELSE 2.5::float8 END) % 2 FROM (VALUES (0), (1)) v(g)",
    "SELECT 0.12345678901234567 = 0.12345678901234567::float8, 1e22 < 1e22::float8",
    "SELECT 1 INTERSECT SELECT 1.0",
    "SELECT x / 7 FROM (SELECT 1 EXCEPT SELECT 2.5) u(x)",
    "SELECT 1::smallint INTERSECT SELECT 1::bigint",
    "SELECT g FROM (SELECT 1 UNION ALL SELECT 2.5) v(g) \
     WHERE EXISTS (SELECT 1 FROM (VALUES (0.5), (0.1)) w(y) WHERE y < g / 7) ORDER BY 1",
    "SELECT (CASE WHEN g > 0 THEN 1 ELSE 2.5 END) & 1 FROM (VALUES (0), (1)) v(g)",
    "SELECT b # b, b & b, b | b, b # 3::smallint, 0 & b, ~b, b # b # b \
     FROM (VALUES (NULL::int), (6)) v(b) ORDER BY b",
    "SELECT 1::smallint & 3::smallint, 1 | 2::bigint, NULL & 1, 5 # NULL::bigint",
    "SELECT ~(CASE WHEN g > 0 THEN 1 ELSE 2.5 END) FROM (VALUES (0), (1)) v(g)",
    // Conditions that the engine alone would merge or drop.
    "SELECT a, a IN (1, 2) AND a IN (3, 4), a NOT IN (1, 2) OR a NOT IN (3, 4), \
     a IN (1, 2) AND a NOT IN (1, 2, 3), (a = 1 OR a = 2) AND (a = 3 OR a = 4), \
     a + 1 IN (1, 2) AND a + 1 IN (3, 4), NOT (a IN (1, 2) AND a IN (3, 4)) \
     FROM (VALUES (0), (1), (NULL), (3)) v(a) ORDER BY a",
    "SELECT a FROM (VALUES (0), (1), (NULL)) v(a) \
     WHERE a NOT IN (1, 2) OR a NOT IN (3, 4) ORDER BY 1",
    "SELECT a FROM (VALUES (0), (1), (NULL)) v(a) WHERE NOT (a IN (1, 2) AND a IN (3, 4)) \
     ORDER BY 1",
    "SELECT a FROM (VALUES (0), (1), (NULL)) v(a) GROUP BY a \
     HAVING a NOT IN (1, 2) OR a NOT IN (3, 4) ORDER BY 1",
    "SELECT count(*) FILTER (WHERE a NOT IN (1, 2) OR a NOT IN (3, 4)), \
     bool_and(a IN (1, 2) AND a IN (3, 4)) FROM (VALUES (0), (NULL)) v(a)",
    "SELECT a, CASE WHEN a = 0 THEN false WHEN 10 / a > 4 THEN true ELSE false END, \
     CASE WHEN a = 0 THEN NULL WHEN 10 / a > 4 THEN true END, \
     CASE WHEN a = 0 THEN 'z' WHEN 10 / a > 4 THEN 'p' ELSE 'n' END = 'p', \
     CASE WHEN a = 0 THEN 'z' WHEN 10 / a > 4 THEN 'p' ELSE 'n' END <> 'p' \
     FROM (VALUES (0), (1), (NULL), (3)) v(a) ORDER BY a",
    "SELECT a FROM (VALUES (0), (1), (NULL)) v(a) \
     WHERE CASE WHEN a = 0 THEN true WHEN 10 / a > 4 THEN false ELSE true END ORDER BY a",
    "SELECT count(*) FROM (VALUES (0), (1)) v(a) \
     GROUP BY CASE WHEN a = 0 THEN false WHEN 10 / a > 4 THEN true ELSE false END",
    "SELECT a, a <> 0 AND (a > 5 OR 10 / a > 1), a = 0 OR (a > 0 AND 10 / a > 1), \
     a <> 0 AND NOT (a > 5 AND a < 9 OR 10 / a > 1) FROM (VALUES (0), (1), (NULL)) v(a) ORDER BY a",
    "SELECT a, a IN (0, 10 / a), a NOT IN (0, 10 / a), a IN (10 / a, 0, 7), a IN (0, NULL, 10 / a) \
     FROM (VALUES (0), (1), (NULL)) v(a) ORDER BY a",
    "SELECT a IN (10 / a, 0) FROM (VALUES (0), (1)) v(a)",
    "SELECT a FROM (VALUES (0), (1), (NULL)) v(a) WHERE a NOT IN (0, 10 / a)",
    "SELECT coalesce(10 / a, 1) IS NULL FROM (VALUES (0), (1)) v(a)",
    "SELECT coalesce(10 / a, 1) IS NOT NULL FROM (VALUES (0), (1)) v(a)",
    "SELECT CASE WHEN 10 / a > 1 THEN 1 ELSE 2 END IS NULL FROM (VALUES (0), (1)) v(a)",
    "SELECT (10 / a IS NULL) = (10 / a IS NULL) FROM (VALUES (0), (1)) v(a)",
    "SELECT a FROM (VALUES (0), (1)) v(a) WHERE NOT (10 / a = 10 / a)",
    "SELECT (a + 1) * NULL::int, NULL % (a + 1), (a + 1) & NULL, a + 1 + NULL, NULL >> (a + 1) \
     FROM (VALUES (2147483647), (1)) v(a)",
    "SELECT (a + 1) * NULL::int, 2147483647 + 1 + NULL FROM (VALUES (2147483647), (1)) v(a)",
    "SELECT a + NULL * (1 / 0) FROM (VALUES (2147483647), (1)) v(a)",
    "SELECT a / b, NULL::float8 / 0 FROM (VALUES (NULL, 0::float8), (6, 3)) v(a, b) ORDER BY 1",
    "SELECT a / b FROM (VALUES (1, 0::float8), (6, 3)) v(a, b)",
    "SELECT 1 = ANY (SELECT 1 WHERE false), 1 > ALL (SELECT 1 WHERE false)",
    "SELECT 9223372036854775807 / (1.5 / 5), x / (1.5 / 5), x / (7.0 / 3), avg(x) / (2.0 / 3) \
     FROM (VALUES (9223372036854775807)) v(x) GROUP BY x",
    "SELECT 16777217 = 16777216::real, 16777217 IN (16777216::real), greatest(1.5, 2.5::real)",
    "SELECT a.x FROM (VALUES (16777217)) a(x) JOIN (VALUES (16777216::real)) b(y) ON a.x = b.y",
    "SELECT x - date '2026-01-01', x + interval '1 day' \
     FROM (SELECT NULL UNION ALL SELECT date '2026-01-05') u(x) ORDER BY 1",
    "SELECT (CASE WHEN g > 0 THEN date '2026-01-01' ELSE timestamp '2026-01-02 03:04' END) \
     - date '2026-01-01' FROM (VALUES (0), (1)) v(g) ORDER BY 1",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1.5 FROM r WHERE n < 4) SELECT n FROM r",
    "SELECT 1 = 1::bigint, 1 = 1.0, 1 < 3000000000, 1 BETWEEN 0 AND 2, 1 IN (1, 3000000000)",
];

/// Queries with NULLs and quoted literals whose types come from their context, one a line.
const UNTYPED: &str = include_str!("untyped.txt");

#[test]
fn literals_without_a_type_take_that_of_what_stands_beside_them() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (fixture, reference) = (Fixture::shared()?, Reference::start()?);
    let mut script = Script::default();
    UNTYPED.lines().for_each(|it| script.add(it));
    compare(&script, &fixture, &reference, 0)
}

#[test]
fn integers_have_the_types_of_postgresql() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (fixture, reference) = (Fixture::shared()?, Reference::start()?);
    let mut script = Script::default();
    TYPED.iter().for_each(|it| script.add(*it));
    compare(&script, &fixture, &reference, 0)
}

#[test]
fn drawn_patterns_intervals_and_zones_are_read_as_by_postgresql_or_refused() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (fixture, reference) = (Fixture::shared()?, Reference::start()?);
    for_each_seed_at_once(REPLAY, SEED_COUNT, |seed| {
        let (mut drawn, mut script) = (Texts::new(seed), Script::default());
        (0..QUERY_COUNT).for_each(|_| script.add(drawn.query()));
        let compared = compare(&script, &fixture, &reference, TEXTS_REFUSED_PERCENT_MAX);
        compared.unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
    });
    Ok(())
}

#[test]
fn drawn_queries_with_integers_are_answered_as_by_postgresql_or_refused() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (fixture, reference) = (Fixture::shared()?, Reference::start()?);
    for_each_seed_at_once(REPLAY, SEED_COUNT, |seed| {
        let compared = compare_drawn(&fixture, &reference, seed);
        compared.unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
    });
    Ok(())
}

fn compare_drawn(fixture: &Fixture, reference: &Reference, seed: u64) -> Result<()> {
    let table = fixture.topic("integers");
    let mut drawn = Integers::new(seed, table.clone());
    let rows: Vec<_> = (0..ROW_COUNT).map(|id| format!("({id}, {})", drawn.row())).collect();
    let (topic, columns) = (format!("{table}_topic"), "id int, a int, b bigint");
    fixture.create_topic(&topic, 1)?;
    let insert = format!("INSERT INTO {table} (id, a, b) VALUES {}", rows.join(", "));
    let with = format!(" WITH (topic = '{topic}', format = 'json')");
    for (psql, with) in [(fixture.psql(), with.as_str()), (reference.psql(), "")] {
        let mut script = Script::default();
        script.add(format!("CREATE TABLE {table} ({columns}){with}"));
        script.add(insert.as_str());
        for (query, answer) in script.queries().iter().zip(script.run(psql)?) {
            ensure!(matches!(answer, Answer::Rows(_)), "{query}: {answer:?}");
        }
    }
    let mut script = Script::default();
    (0..QUERY_COUNT).for_each(|_| script.add(drawn.query()));
    compare(&script, fixture, reference, REFUSED_PERCENT_MAX)
}

/// Compares answers, reported column types and SQLSTATEs.
fn compare(
    script: &Script,
    fixture: &Fixture,
    reference: &Reference,
    refused_percent_max: usize,
) -> Result<()> {
    let (ours, theirs) = (script.run(fixture.psql())?, script.run(reference.psql())?);
    let our_types = script.column_types(fixture.psql())?;
    let their_types = script.column_types(reference.psql())?;
    let (mut failed_count, mut answered_count, mut refusals) = (0, 0, Vec::new());
    for (index, query) in script.queries().iter().enumerate() {
        let answers = (&ours[index], &theirs[index]);
        let types = (&our_types[index], &their_types[index]);
        let is_right = match answers {
            (Answer::Error { sql_state, message }, _) if sql_state == REFUSED => {
                refusals.push(format!("{query}: {message}"));
                true
            }
            (Answer::Error { sql_state: ours, .. }, Answer::Error { sql_state: theirs, .. })
                if [ours, theirs].iter().all(|it| OF_VALUES.contains(&it.as_str())) =>
            {
                true
            }
            (ours, theirs) => {
                let is_rows = matches!(theirs, Answer::Rows(_));
                answered_count += usize::from(is_rows);
                ours.agrees_with(theirs, types.1) && (!is_rows || types.0 == types.1)
            }
        };
        if !is_right {
            failed_count += 1;
            if failed_count <= FAILURES_SHOWN {
                eprintln!("{query};\n  {answers:.500?}\n  {types:?}\n");
            }
        }
    }
    ensure!(failed_count == 0, "{failed_count} of {} queries differ", ours.len());
    let refused_count = refusals.len();
    eprintln!("{answered_count} of {} queries are answered, {refused_count} refused", ours.len());
    let percent = refused_count * 100 / (answered_count + refused_count).max(1);
    ensure!(percent <= refused_percent_max, "{percent} % are refused: {refusals:#?}");
    Ok(())
}
