//! The same data and queries for the broker and for PostgreSQL. The answers agree, except for the
//! differences listed here.

use anyhow::{Result, bail, ensure};
use kafka_clients::is_skipped;
use model::for_each_seed_at_once;
use sql_clients::{Answer, Fixture, Generator, Reference, Script};
use system::Tool;

use Outcome::{Fails, Gives};

const PROGRAMS: &[&str] = &["psql", "setpriv"];

const QUERY_COUNT: usize = 500;

/// Number of additional queries that fail.
const FAILING_COUNT: usize = 100;

/// Number of seeds. Each draws the full number of queries.
const SEED_COUNT: u64 = 2;
const REPLAY: &str = "make test FILTER=sql-clients/differential";

const ORDER_COUNT: usize = 300;
const QUOTE_COUNT: usize = 40;
const PARTITION_COUNT: usize = 3;

/// Unix seconds of the first record, and seconds between two records.
const FIRST_TIME_S: usize = 1_767_225_600;
const TIME_STEP_S: usize = 20_011;

const FAILURES_SHOWN: usize = 12;

/// Outcome of a query on one of the two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Gives(&'static str),
    /// Fails with this SQLSTATE.
    Fails(&'static str),
}

/// Queries with differing outcomes: the broker's, and PostgreSQL's.
const DIFFERENCES: &[(&str, Outcome, Outcome)] = &[
    // Invalid JSON is NULL, except in a literal.
    ("SELECT j::json->>'a' FROM (VALUES ('x')) t(j)", Gives("<null>"), Fails("22P02")),
    // A column of these mixed types would become numeric.
    ("SELECT a FROM (VALUES (1e20::float8), (0.5)) t(a)", Fails("0A000"), Gives("1e+20\n0.5")),
    (
        "SELECT a FROM (VALUES (CASE WHEN true THEN 1 ELSE 2.5 END), (3)) t(a)",
        Fails("0A000"),
        Gives("1\n3"),
    ),
    ("SELECT 1 WHERE 1.5::float8 IN (SELECT 1.5)", Fails("0A000"), Gives("1")),
    ("SELECT array_agg(ARRAY[1])", Fails("0A000"), Gives("{{1}}")),
    // Types decide whether both columns are the same one.
    ("SELECT a, a::int FROM (VALUES (1)) t(a) ORDER BY a", Fails("0A000"), Gives("1|1")),
    ("SELECT a, a::text FROM (VALUES (1)) t(a) ORDER BY a", Fails("0A000"), Fails("42702")),
    ("SELECT to_timestamp('infinity'::float8)", Fails("0A000"), Gives("infinity")),
    ("SELECT to_timestamp(9000000000000)", Fails("0A000"), Gives("287168-08-24 16:00:00+00")),
    ("SELECT timestamp 'infinity'", Fails("0A000"), Gives("infinity")),
    ("SELECT 'NaN'::numeric", Fails("0A000"), Gives("NaN")),
    (
        "SELECT sum(1) OVER (ORDER BY 1 ROWS UNBOUNDED PRECEDING EXCLUDE TIES)",
        Fails("0A000"),
        Gives("1"),
    ),
    ("SELECT sqrt(avg(a)) FROM (VALUES (4)) t(a)", Fails("0A000"), Gives("2.0000000000000000")),
    ("SELECT array_remove(ARRAY[1.5::float8], 1.5)", Fails("0A000"), Gives("{}")),
    // Unsupported features.
    ("SELECT 1 WHERE (1, 2) = (SELECT 1, 2)", Fails("0A000"), Gives("1")),
    ("SELECT (a, 1) FROM (VALUES (1)) x(a)", Fails("0A000"), Gives("(1,1)")),
    ("SELECT a + 1 + 1 FROM (VALUES (1)) x(a) GROUP BY a + 1", Fails("0A000"), Gives("3")),
    ("SELECT (SELECT max(a)) FROM (VALUES (1), (2)) x(a)", Fails("0A000"), Gives("2")),
    ("SELECT -a AS a FROM (VALUES (1), (2)) x(a) ORDER BY a + 0", Fails("0A000"), Gives("-1\n-2")),
    ("SELECT 'a' SIMILAR TO lower('A')", Fails("0A000"), Gives("t")),
    ("SELECT to_date('2026-1-2', 'YYYY-MM-DD')", Fails("0A000"), Gives("2026-01-02")),
    ("SELECT json_agg(DISTINCT a) FROM (VALUES (1)) t(a)", Fails("0A000"), Gives("[1]")),
    ("SELECT width_bucket(5, 0, 10, 5)", Fails("0A000"), Gives("3")),
    // Numerics have few digits and accept no exponents.
    ("SELECT '1e-12'::numeric", Fails("0A000"), Gives("0.000000000001")),
    // Short time zone names are ambiguous.
    (
        "SELECT timestamp '2026-01-01 12:00' AT TIME ZONE 'CET'",
        Fails("0A000"),
        Gives("2026-01-01 11:00:00+00"),
    ),
    // Capture groups of the longest alternative.
    ("SELECT regexp_replace('ab', '(a|ab)', '<\\1>')", Fails("0A000"), Gives("<ab>")),
    (
        "SELECT mode() WITHIN GROUP (ORDER BY x) FROM (VALUES (interval '1 day')) t(x)",
        Fails("0A000"),
        Gives("1 day"),
    ),
    (
        "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY x) FROM (VALUES ('1'::jsonb)) t(x)",
        Fails("0A000"),
        Gives("1"),
    ),
    (
        "SELECT max(s) FROM (SELECT sum(x::float8) OVER (ORDER BY x ROWS 9000 PRECEDING) \
         FROM generate_series(1, 10000) x) t(s)",
        Fails("0A000"),
        Gives("49505500"),
    ),
    ("SELECT time '1020'", Fails("0A000"), Gives("10:20:00")),
    ("SELECT 'aa' ~ '(a)\\1'", Fails("0A000"), Gives("t")),
    (
        "SELECT max(i) FROM (VALUES (interval '1 month'), ('30 days')) t(i)",
        Fails("0A000"),
        Gives("30 days"),
    ),
    (
        "SELECT array_agg(a) FROM (SELECT a FROM (VALUES (1, interval '1 day')) t(a, i) \
         ORDER BY i) s",
        Fails("0A000"),
        Gives("{1}"),
    ),
    (
        "SELECT array_agg(a) FROM (SELECT a FROM (SELECT a, row_number() OVER (ORDER BY a DESC) \
         AS n FROM (VALUES (1), (2), (3)) v(a)) s) t",
        Fails("0A000"),
        Gives("{1,2,3}"),
    ),
    (
        "SELECT e FROM (SELECT l FROM (VALUES (ARRAY[1, 2], 2), (ARRAY[3], 1)) v(l, o) \
         ORDER BY o) t, unnest(t.l) e LIMIT 1",
        Fails("0A000"),
        Gives("3"),
    ),
    (
        "SELECT n - e FROM (SELECT e, row_number() OVER () AS n FROM (SELECT ARRAY[1, 2] AS l \
         FROM (VALUES (1)) v(o) ORDER BY o) t, unnest(t.l) e) s",
        Fails("0A000"),
        Gives("0\n0"),
    ),
    ("SELECT 'pg_class'::regclass UNION ALL SELECT 1", Gives("1259\n1"), Gives("pg_class\n1")),
    (
        "SELECT c::regclass AS x FROM (VALUES (1259), (1247)) v(c) ORDER BY x",
        Gives("pg_class\npg_type"),
        Gives("pg_type\npg_class"),
    ),
    (
        "SELECT 'pg_type'::regclass AS x UNION SELECT 'pg_class'::regclass ORDER BY x",
        Gives("1247\n1259"),
        Gives("pg_type\npg_class"),
    ),
    (
        "SELECT coalesce(j->'a', value) FROM (VALUES ('{}'::json, '1'::text)) t(j, value)",
        Gives("1"),
        Fails("42804"),
    ),
    (
        "SELECT a, row_number() OVER () FROM (SELECT a FROM (VALUES (1,interval '2 \
         h'),(2,interval '1 h')) v(a,i) ORDER BY i) t ORDER BY a",
        Fails("0A000"),
        Gives("1|2\n2|1"),
    ),
    (
        "SELECT array_agg(n) FROM (SELECT row_number() OVER () - e AS n FROM (SELECT l \
         FROM (SELECT array_agg(g) AS l, 1 AS o FROM generate_series(1,50) g) v ORDER BY \
         o) t, unnest(t.l) e) s",
        Fails("0A000"),
        Gives(
            "{0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0\
             ,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}",
        ),
    ),
    (
        "SELECT array_agg(n) FROM (SELECT row_number() OVER () - e AS n FROM (SELECT \
         unnest(l) AS e FROM (SELECT l FROM (SELECT array_agg(g) AS l, 1 AS o FROM \
         generate_series(1,50) g) v ORDER BY o) t) s) u",
        Fails("0A000"),
        Gives(
            "{0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0\
             ,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}",
        ),
    ),
    (
        "SELECT array_agg(n) FROM (SELECT row_number() OVER () - e AS n FROM (SELECT a \
         FROM (VALUES (1)) v(a) ORDER BY a) t, LATERAL (SELECT t.a * g AS e FROM \
         generate_series(1,50) g) u) s",
        Fails("0A000"),
        Gives(
            "{0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0\
             ,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}",
        ),
    ),
    (
        "SELECT e, sum(e) OVER (ROWS UNBOUNDED PRECEDING) FROM (SELECT l FROM (VALUES \
         (ARRAY[1,2],2),(ARRAY[3,4],1)) v(l,o) ORDER BY o) t, unnest(t.l) e ORDER BY e",
        Fails("0A000"),
        Gives("1|8\n2|10\n3|3\n4|7"),
    ),
    (
        "SELECT e FROM (SELECT l FROM (VALUES (ARRAY[1,2],2),(ARRAY[3,4],1)) v(l,o) ORDER \
         BY o) t, unnest(t.l) e LIMIT 2",
        Fails("0A000"),
        Gives("3\n4"),
    ),
    (
        "SELECT unnest(l) FROM (SELECT l FROM (VALUES (ARRAY[1,2],2),(ARRAY[3,4],1)) \
         v(l,o) ORDER BY o) t LIMIT 2",
        Fails("0A000"),
        Gives("3\n4"),
    ),
    (
        "SELECT u.e FROM (SELECT a FROM (VALUES (2),(1)) v(a) ORDER BY a) t, LATERAL \
         (SELECT t.a + g AS e FROM generate_series(1,2) g) u LIMIT 2",
        Fails("0A000"),
        Gives("2\n3"),
    ),
    (
        "SELECT DISTINCT ON (o) o, e FROM (SELECT l, o FROM (VALUES \
         (ARRAY[1,2],2),(ARRAY[3,4],1)) v(l,o) ORDER BY o) t, unnest(t.l) e",
        Fails("0A000"),
        Gives("1|3\n2|1"),
    ),
    (
        "SELECT array_agg(e) FROM (SELECT e FROM (SELECT l FROM (VALUES \
         (ARRAY[1,2],2),(ARRAY[3,4],1)) v(l,o) ORDER BY o) t, unnest(t.l) e UNION ALL \
         SELECT 9) s",
        Fails("0A000"),
        Gives("{3,4,1,2,9}"),
    ),
    ("SELECT t FROM (VALUES (1, 2)) t(a, b)", Fails("0A000"), Gives("(1,2)")),
    (
        "SELECT 'Jan 5, 2026'::date, '01/05/2026'::date",
        Fails("0A000"),
        Gives("2026-01-05|2026-01-05"),
    ),
    ("SELECT coalesce(a, '{1}') FROM (VALUES (ARRAY[2])) t(a)", Fails("0A000"), Gives("{2}")),
    (
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x) \
         FROM (VALUES (interval '1 day')) t(x)",
        Fails("0A000"),
        Gives("1 day"),
    ),
    ("SELECT time '24:00'", Fails("0A000"), Gives("24:00:00")),
    ("SELECT '{{1,2},{3,4}}'::int[]", Fails("0A000"), Gives("{{1,2},{3,4}}")),
    ("SELECT x FROM (SELECT 'pg_type'::regclass AS x) t", Gives("1247"), Gives("pg_type")),
    ("SELECT ARRAY['1'::jsonb]", Fails("0A000"), Gives("{1}")),
    ("SELECT array_agg(j) FROM (VALUES ('1'::jsonb)) t(j)", Fails("0A000"), Gives("{1}")),
    ("SELECT DISTINCT j FROM (VALUES ('1.0'::jsonb)) t(j)", Fails("0A000"), Gives("1.0")),
    ("SELECT nullif('1'::jsonb, '1')", Fails("0A000"), Gives("<null>")),
    ("SELECT pg_typeof('a'::varchar)", Fails("0A000"), Gives("character varying")),
    ("SELECT concat(pg_typeof(1))", Fails("0A000"), Gives("integer")),
    ("SELECT to_char(5, 'RN')", Fails("0A000"), Gives("              V")),
    ("SELECT to_char(interval '1 day', 'DDD')", Fails("0A000"), Gives("001")),
    ("SELECT generate_series(1, '3')", Fails("0A000"), Gives("1\n2\n3")),
    (
        "SELECT array_agg(x) FROM (SELECT x, rank() OVER (ORDER BY x DESC) FROM \
         (VALUES (1), (2)) t(x)) s",
        Fails("0A000"),
        Gives("{1,2}"),
    ),
    ("SELECT a FROM (VALUES (to_json(1)), ('2')) t(a)", Fails("0A000"), Gives("1\n2")),
    ("SELECT '{\"a\": 1}'::json #>> lower('{A}')::text[]", Fails("0A000"), Gives("1")),
    // A CASE that begins with a quoted literal is a text to the expression around it.
    ("SELECT CASE WHEN true THEN '1' ELSE 2 END + 1", Fails("42883"), Gives("2")),
    ("SELECT '{1}' UNION SELECT ARRAY[3]", Fails("42804"), Gives("{1}\n{3}")),
    ("SELECT '1' EXCEPT ALL SELECT 1", Fails("42804"), Gives("")),
    ("SELECT NULL EXCEPT ALL SELECT 2", Fails("0A000"), Gives("<null>")),
    // The scale of the value is not known.
    (
        "SELECT variance(a)::text FROM (VALUES (1), (3)) t(a)",
        Fails("0A000"),
        Gives("2.0000000000000000"),
    ),
    ("SELECT 1 FROM (VALUES (2)) t(x) HAVING EXISTS (SELECT 1)", Fails("0A000"), Gives("1")),
    ("SELECT greatest(ARRAY[1], ARRAY[2])", Fails("0A000"), Gives("{2}")),
    ("SELECT (SELECT count(*) WHERE false)", Fails("0A000"), Gives("0")),
    (
        "SELECT b, (SELECT 'x' FROM (VALUES (1)) t(a) WHERE a = b HAVING count(*) = 0) \
         FROM (VALUES (1), (2)) s(b) ORDER BY 1",
        Fails("0A000"),
        Gives("1|<null>\n2|x"),
    ),
    ("SELECT date '0044-03-15 BC'", Fails("0A000"), Gives("0044-03-15 BC")),
    ("SELECT timestamp '12345-01-01 10:00'", Fails("0A000"), Gives("12345-01-01 10:00:00")),
    ("SELECT d::date FROM (VALUES ('J2451187')) t(d)", Fails("0A000"), Gives("1999-01-08")),
    ("SELECT substring('\\x0102'::bytea from 2)", Fails("0A000"), Gives("\\x02")),
    ("SELECT 'pg_class'::regclass || ''", Fails("0A000"), Gives("pg_class")),
];

/// Expressions whose types are others: the broker's, and PostgreSQL's.
const TYPES: &[(&str, &str, &str)] =
    &[("(SELECT 'a'::varchar(2))", "text", "character varying(2)")];

/// Queries that the engine alone would answer differently from PostgreSQL.
const LIKE_POSTGRESQL: &[&str] = &[
    "SELECT avg(x::float8) FILTER (WHERE k LIKE 'b%' IS NOT FALSE) \
     FROM (VALUES ('a', 1.5), (NULL, 2.5)) t(k, x)",
    "SELECT 1e300::float8, 1e30::float8, 10 / 3.0",
    "SELECT t, t LIKE p ESCAPE '!', t NOT ILIKE p ESCAPE '%', t LIKE 'a%%' ESCAPE '%', \
     t LIKE p ESCAPE '' FROM (VALUES ('a%', 'a!%%'), ('ab', 'a%%'), ('a\\', 'a\\'), (NULL, 'a')) \
     t(t, p)",
    "SELECT to_timestamp(10000000000), to_timestamp(-10000000000), to_timestamp(1e12::float8), \
     to_timestamp(1234567890.123456), to_timestamp(-1.25::float8), to_timestamp(NULL::int)",
    "SELECT to_timestamp(extract(epoch FROM timestamp '2300-05-01')) - to_timestamp(0.0000015)",
    "SELECT to_timestamp('nan'::float8)",
    "SELECT to_timestamp(1e300::float8)",
    "SELECT a, (a) FROM (VALUES (2), (1)) t(a) ORDER BY a",
    "SELECT t LIKE p ESCAPE '!' FROM (VALUES ('ab', 'a!')) t(t, p)",
    "SELECT t LIKE p ESCAPE '!!' FROM (VALUES ('a', 'a')) t(t, p)",
    "SELECT '1e300'::float8 * 1e10",
    "SELECT ln(0::float8)",
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
    "SELECT 0::float8 / 3, '1e300'::float8 / '1e10'::float8",
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
    "SELECT count(*) FROM (VALUES (1), (2)) t(a) WHERE a / 0 = 1",
    "SELECT sqrt(a) FROM (VALUES (-1::float8)) t(a)",
    "SELECT (SELECT a FROM (VALUES (1), (2)) t(a))",
    "SELECT a ~ ('(' || a) FROM (VALUES ('x')) t(a)",
    "SELECT a, count(*) FROM (VALUES (1)) t(a)",
    "SELECT count(*) FROM (VALUES (1)) t(a) HAVING a > 1",
    "SELECT a FROM (VALUES (1)) t(a) WHERE max(a) > 1",
    "SELECT a FROM (VALUES (1)) t(a) GROUP BY 2",
    "SELECT 1 ORDER BY 2",
    "SELECT 1 LIMIT -1",
    "SELECT 1 WHERE 1",
    "SELECT NOT 1",
    "SELECT -'a'::text",
    "SELECT 'a'::text + 1",
    "SELECT avg('a'::text)",
    "SELECT upper('a', 'b')",
    "SELECT 'x'::timestamptz",
    "SELECT interval 'x'",
];

/// Expressions with PostgreSQL's value or SQLSTATE.
const EXPRESSIONS: &str = include_str!("expressions.txt");

/// Queries with PostgreSQL's answer or SQLSTATE.
const QUERIES: &str = include_str!("queries.txt");
/// Expressions or whole statements, one a line. Many are unsupported on purpose.
const CHAPTERS: &str = include_str!("chapters.txt");
const CHAPTERS_REFUSED_PERCENT_MAX: usize = 25;

/// Internal names of the engine: types, error kinds, its own columns and tables.
const INTERNAL_NAMES: &[&str] = &[
    "Arrow",
    "DataFusion",
    "Date32",
    "Decimal1",
    "Error during",
    "Execution error",
    "Float64",
    "Int32",
    "Int64",
    "Internal error",
    "List(",
    "LogicalPlan",
    "ScalarFunction",
    "Schema",
    "Some(",
    "Timestamp(",
    "UDF",
    "Utf8",
    "__",
    "memlane.public",
    "datafusion",
    "int32",
    "int64",
    "coerce",
    "to value of",
];

/// Common mistakes, with PostgreSQL's SQLSTATE and message. `{t}` is a topic.
const MISTAKES: &[&str] = &[
    "SELECT * FROM nothing",
    "SELECT * FROM nothing.{t}",
    "SELECT * FROM pg_catalog.nothing",
    "SELECT * FROM other.public.{t}",
    "WITH q AS (SELECT 1) SELECT * FROM q2",
    "SELECT x.key FROM {t}",
    "SELECT x.* FROM {t}",
    "SELECT 'abc'::int",
    "SELECT 'abc'::boolean",
    "SELECT 'abc'::date",
    "SELECT 'abc'::uuid",
    "SELECT '99999999999'::int",
    "SELECT '2026-13-01'::date",
    "SELECT 'a'::nothing",
    "SELECT 123.4::numeric(3, 1)",
    "SELECT key + partition FROM {t}",
    "SELECT partition = key FROM {t}",
    "SELECT key LIKE partition FROM {t}",
    "SELECT NOT partition FROM {t}",
    "SELECT now() + now()",
    "SELECT 1 = ANY(1)",
    "SELECT * FROM {t} WHERE partition",
    "SELECT partition, count(*) FROM {t}",
    "SELECT sum(count(*)) FROM {t}",
    "SELECT partition FROM {t} WHERE count(*) > 1",
    "SELECT DISTINCT partition FROM {t} ORDER BY key",
    "SELECT * FROM {t} LIMIT -1",
    "SELECT * FROM {t} OFFSET -1",
    "SELECT (SELECT partition, key FROM {t})",
    "SELECT 1 UNION SELECT 1, 2",
    "SELECT 1 UNION SELECT true",
];

#[test]
fn mistakes_have_the_messages_of_postgresql() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (fixture, reference) = (Fixture::shared()?, Reference::start()?);
    let table = fixture.topic("mistaken");
    fill(&fixture, &reference, &table, &[("'k'".to_owned(), "'1'".to_owned())])?;
    let mut script = Script::default();
    MISTAKES.iter().for_each(|it| script.add(it.replace("{t}", &table)));
    let (ours, theirs) = (script.run(fixture.psql())?, script.run(reference.psql())?);
    for ((query, ours), theirs) in script.queries().iter().zip(ours).zip(theirs) {
        ensure!(matches!(theirs, Answer::Error { .. }), "{query} is not refused: {theirs:?}");
        ensure!(ours == theirs, "{query}: {ours:?} instead of {theirs:?}");
    }
    Ok(())
}

/// Invalid statements about a topic.
const WRONG: &[&str] = &[
    "SELECT nothing FROM {t}",
    "SELECT {t}.nothing FROM {t}",
    "SELECT a.key FROM {t} b",
    "SELECT key FROM {t} a, {t} b",
    "SELECT key, count(*) FROM {t}",
    "SELECT value->>'name', count(*) FROM {t} GROUP BY value->>'qty'",
    "SELECT (value->>'name')::int FROM {t}",
    "SELECT (value->>'name')::int + 1 FROM {t} WHERE (value->>'qty')::int > 3",
    "SELECT sum((value->>'name')::bigint) FROM {t}",
    "SELECT max(value->>'name' + 1) FROM {t}",
    "SELECT (value->>'qty') + 1 FROM {t}",
    "SELECT value->>'qty' * 2 FROM {t}",
    "SELECT count(*) FROM {t} WHERE value->>'qty' > 3",
    "SELECT count(*) FROM {t} WHERE value->>'qty'",
    "SELECT count(*) FROM {t} WHERE key",
    "SELECT 10 / ((value->>'qty')::int - 3) FROM {t}",
    "SELECT upper(partition) FROM {t}",
    "SELECT upper(key, value) FROM {t}",
    "SELECT nothing(key) FROM {t}",
    "SELECT sum(key) FROM {t}",
    "SELECT avg(time) FROM {t}",
    "SELECT sum(value) OVER (ORDER BY nothing) FROM {t}",
    "SELECT lag(partition, 'x') OVER (ORDER BY time) FROM {t}",
    "SELECT date_trunc('nothing', time) FROM {t}",
    "SELECT date_trunc('day', key) FROM {t}",
    "SELECT extract(year FROM key) FROM {t}",
    "SELECT time + 1 FROM {t}",
    "SELECT time + key FROM {t}",
    "SELECT time - partition FROM {t}",
    "SELECT NOT key FROM {t}",
    "SELECT -key FROM {t}",
    "SELECT key AND true FROM {t}",
    "SELECT CASE WHEN key THEN 1 END FROM {t}",
    "SELECT CASE WHEN true THEN partition ELSE key END FROM {t}",
    "SELECT coalesce(partition, key) FROM {t}",
    "SELECT greatest(time, key) FROM {t}",
    "SELECT key IN (1, 2) FROM {t}",
    "SELECT partition IN ('a') FROM {t}",
    "SELECT key BETWEEN 1 AND 2 FROM {t}",
    "SELECT ARRAY[key, partition] FROM {t}",
    "SELECT key[1] FROM {t}",
    "SELECT headers = headers FROM {t}",
    "SELECT DISTINCT headers FROM {t}",
    "SELECT key FROM {t} UNION SELECT partition FROM {t}",
    "SELECT key FROM {t} UNION SELECT key, value FROM {t}",
    "SELECT key FROM {t} ORDER BY 2",
    "SELECT key FROM {t} ORDER BY nothing",
    "SELECT key FROM {t} GROUP BY nothing",
    "SELECT key FROM {t} LIMIT 'x'",
    "SELECT key FROM {t} HAVING count(*) > 1",
    "SELECT key FROM {t} WHERE count(*) > 1",
    "SELECT key FROM {t} WHERE (SELECT key, value FROM {t}) = 'a'",
    "SELECT key FROM {t} WHERE key = (SELECT key FROM {t})",
    "SELECT key FROM {t} WHERE key IN (SELECT key, value FROM {t})",
    "SELECT * FROM {t} JOIN {t} USING (key)",
    "SELECT * FROM {t} a JOIN {t} b USING (nothing)",
    "SELECT * FROM {t} a JOIN {t} b ON a.key = b.partition",
    "SELECT * FROM nothing",
    "SELECT * FROM nothing.{t}",
    "SELECT * FROM {t} FOR SYSTEM_TIME AS OF 'nothing'",
    "SELECT * FROM {t} FOR SYSTEM_TIME AS OF '0:1'",
    "SELECT * FROM unnest(1)",
    "SELECT * FROM generate_series('a', 'b')",
    "SELECT * FROM (VALUES (1, 2), (3)) v",
    "SELECT * FROM (VALUES (1), (true)) v",
    "WITH r AS (SELECT nothing FROM {t}) SELECT * FROM r",
    "INSERT INTO {t} (nothing) VALUES (1)",
    "INSERT INTO {t} (key) VALUES (1, 2)",
    "INSERT INTO {t} (partition) VALUES ('x')",
];

/// JSON objects, some with a number as `x` and some with a nonzero `n`.
const MIXED: &[&str] = &[
    r#"{"x": "1", "n": 0}"#,
    r#"{"x": "abc", "n": 2}"#,
    r#"{"x": "7", "n": 5}"#,
    r#"{"n": 3}"#,
    r#"{"x": "12", "n": 10}"#,
    r#"{"x": "zz", "n": 0}"#,
    r#"{"x": null, "n": null}"#,
    r#"{"x": "", "n": -1}"#,
];

/// Queries on these objects in which the first condition guards the next ones.
const GUARDED: &[&str] = &[
    "SELECT value->>'x' FROM {t} WHERE value->>'x' ~ '^[0-9]+$' AND (value->>'x')::int > 3 \
     ORDER BY partition, \"offset\"",
    "SELECT value->>'x' FROM {t} WHERE value->>'x' ~ '^[0-9]+$' AND ((value->>'x')::int > 3 OR \
     (value->>'n')::int = 0) ORDER BY partition, \"offset\"",
    "SELECT CASE WHEN (value->>'n')::int <> 0 THEN 10 / (value->>'n')::int > 1 ELSE false END \
     FROM {t} ORDER BY partition, \"offset\"",
    "SELECT CASE (value->>'n')::int WHEN 0 THEN NULL ELSE 10 / (value->>'n')::int END \
     FROM {t} ORDER BY partition, \"offset\"",
    "SELECT n FROM (SELECT (value->>'x')::int AS n FROM {t} WHERE value->>'x' ~ '^[0-9]+$') s \
     WHERE n > 3 ORDER BY n",
    "SELECT (value->>'n')::int <> 0 AND 10 / (value->>'n')::int > 1 FROM {t} \
     ORDER BY partition, \"offset\"",
    "SELECT (value->>'n')::int = 0 OR 10 / (value->>'n')::int > 1 FROM {t} \
     ORDER BY partition, \"offset\"",
    "SELECT NOT ((value->>'n')::int = 0 OR 10 / (value->>'n')::int > 1) FROM {t} \
     ORDER BY partition, \"offset\"",
    "SELECT count(*) FROM {t} WHERE (value->>'n')::int = 0 OR 10 / (value->>'n')::int > 1",
    "SELECT count(*) FROM {t} WHERE NOT ((value->>'n')::int = 0 OR 10 / (value->>'n')::int > 1)",
    "SELECT count(*) FROM {t} WHERE CASE WHEN (value->>'n')::int <> 0 \
     THEN 10 / (value->>'n')::int > 1 ELSE false END",
    "SELECT sum(CASE WHEN value->>'x' ~ '^[0-9]+$' THEN (value->>'x')::int END) FROM {t}",
    "SELECT count(*) FILTER (WHERE value->>'x' ~ '^[0-9]+$' AND (value->>'x')::int > 3) FROM {t}",
    "SELECT coalesce(nullif(value->>'n', '0')::int, 10 / (value->>'n')::int) FROM {t} \
     WHERE value->>'n' <> '0' ORDER BY partition, \"offset\"",
    "SELECT count(*) FROM {t} WHERE length(value->>'x') BETWEEN 1 AND 2 AND value->>'x' <> 'zz' \
     AND (value->>'x')::int > 0",
    "SELECT value->>'n', count(*) FROM {t} WHERE value->>'x' ~ '^[0-9]+$' GROUP BY value->>'n' \
     HAVING count(*) > 0 AND 10 / count(*) > 1 ORDER BY 1",
    "SELECT count(*) FROM {t} WHERE extract(year FROM time) = 2026",
    "SELECT count(*) FROM {t} WHERE extract(year FROM time AT TIME ZONE 'UTC') <> 2026",
    "SELECT count(*) FROM {t} WHERE extract(month FROM time) >= 1 AND value->>'x' = 'zz'",
    "SELECT count(*) FROM {t} WHERE value->>'x' = ANY ('{1,7,NULL}')",
    "SELECT count(*) FROM {t} WHERE (value->>'x')::int > 3",
];

/// Queries on these objects that combine whole values with JSON fields.
const UNWRAPPED: &[&str] = &[
    "SELECT coalesce(value->'x', value), coalesce(value, value->'n') FROM {t} \
     ORDER BY partition, \"offset\"",
    "SELECT CASE WHEN value->>'n' = '0' THEN value->'x' ELSE value END FROM {t} \
     ORDER BY partition, \"offset\"",
    "SELECT coalesce(t.value->'y', t.value)->>'n' FROM {t} t ORDER BY partition, \"offset\"",
    "SELECT value FROM {t} WHERE \"offset\" = 0 AND partition = 0 UNION ALL \
     SELECT value->'x' FROM {t} WHERE \"offset\" = 0 AND partition = 0",
    "SELECT count(*) FROM (SELECT value->'x' FROM {t} UNION ALL SELECT value FROM {t}) s",
    "SELECT coalesce(value->'x', key) FROM {t}",
    "SELECT value->'x' FROM {t} UNION ALL SELECT key FROM {t}",
];

/// Queries on these objects with sorted subqueries.
const SORTED: &[&str] = &[
    "SELECT string_agg(value->>'x', ',') FROM (SELECT value FROM {t} ORDER BY \"offset\" DESC, \
     partition) s",
    "WITH s AS (SELECT * FROM {t} ORDER BY value->>'x' NULLS FIRST, time) \
     SELECT array_agg(\"offset\" * 10 + partition), json_agg(value->'n') FROM s",
    "SELECT value->>'n' IS NULL, array_agg(x) FROM (SELECT value, value->>'x' AS x FROM {t} \
     ORDER BY time DESC) s GROUP BY 1 ORDER BY 1",
    "SELECT array_agg(x) FROM (SELECT value->>'x' AS x FROM {t} ORDER BY time LIMIT 5 OFFSET 1) s",
    "SELECT x, row_number() OVER () FROM (SELECT value->>'x' AS x FROM {t} ORDER BY time DESC) s \
     ORDER BY 2",
    "SELECT partition, first_value(x) OVER (PARTITION BY partition) FROM (SELECT partition, \
     value->>'x' AS x FROM {t} ORDER BY partition, time DESC) s ORDER BY 1",
    "SELECT DISTINCT ON (partition) partition, x FROM (SELECT partition, value->>'x' AS x \
     FROM {t} ORDER BY partition, time DESC) s ORDER BY partition",
    "SELECT ARRAY(SELECT x FROM (SELECT value->>'x' AS x FROM {t} ORDER BY time) s)",
    "(SELECT value->>'x' FROM {t} ORDER BY time) UNION ALL \
     (SELECT value->>'n' FROM {t} ORDER BY time DESC)",
    "SELECT 'all' UNION ALL SELECT x FROM (SELECT value->>'x' AS x FROM {t} ORDER BY time) s",
    "SELECT * FROM (SELECT value->>'x' FROM {t} ORDER BY time DESC) s",
    "SELECT * FROM (SELECT value->>'x' AS x FROM {t} ORDER BY time DESC) s WHERE x > '1' LIMIT 2",
];

/// Queries whose column names PostgreSQL chooses.
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
    let (fixture, reference) = (Fixture::shared()?, Reference::start()?);
    run_both(&script, &fixture, &reference)?;
    let header = |psql: Tool| psql.args(["--pset", "tuples_only=off", "-c", UNNAMED]).check();
    let (ours, theirs) = (header(fixture.psql())?, header(reference.psql())?);
    assert_eq!(ours.lines().next(), theirs.lines().next());
    Ok(())
}

#[test]
fn differences_are_those_that_are_listed() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (fixture, reference) = (Fixture::shared()?, Reference::start()?);
    let mut script = Script::default();
    DIFFERENCES.iter().for_each(|(query, ..)| script.add(*query));
    let (ours, theirs) = (script.run(fixture.psql())?, script.run(reference.psql())?);
    let is = |outcome: &Outcome, answer: &Answer| match (*outcome, answer) {
        (Gives(listed), Answer::Rows(rows)) => listed == rows.join("\n"),
        (Fails(listed), Answer::Error { sql_state, .. }) => listed == sql_state,
        _ => false,
    };
    let found = DIFFERENCES.iter().zip(ours.iter().zip(&theirs));
    let wrong: Vec<_> =
        found.filter(|((_, a, b), (ours, theirs))| !is(a, ours) || !is(b, theirs)).collect();
    ensure!(wrong.is_empty(), "listed, and found: {wrong:#?}");
    let mut script = Script::default();
    TYPES.iter().for_each(|(expression, ..)| script.add(format!("SELECT {expression}")));
    let both = (script.column_types(fixture.psql())?, script.column_types(reference.psql())?);
    let found: Vec<_> = both.0.into_iter().flatten().zip(both.1.into_iter().flatten()).collect();
    let listed = TYPES.iter().map(|(_, ours, theirs)| ((*ours).to_owned(), (*theirs).to_owned()));
    assert_eq!(found, listed.collect::<Vec<_>>());
    Ok(())
}

/// Stores the same rows in both servers. The broker assigns the offsets.
fn fill(
    fixture: &Fixture,
    reference: &Reference,
    table: &str,
    rows: &[(String, String)],
) -> Result<()> {
    fixture.create_topic(table, PARTITION_COUNT)?;
    let mut ours = Script::default();
    let mut theirs = Script::default();
    theirs.add(format!(
        "CREATE TABLE {table} (partition int, \"offset\" bigint, time timestamptz, key text, \
         value json)"
    ));
    let rows = rows.iter().enumerate().map(|(index, (key, value))| {
        let (partition, offset) = (index % PARTITION_COUNT, index / PARTITION_COUNT);
        let time = format!("to_timestamp({})", FIRST_TIME_S + index * TIME_STEP_S);
        let rest = format!("{time}, {key}, {value})");
        (format!("({partition}, {rest}"), format!("({partition}, {offset}, {rest}"))
    });
    let (our_rows, their_rows): (Vec<_>, Vec<_>) = rows.unzip();
    let our_rows = our_rows.join(", ");
    ours.add(format!("INSERT INTO {table} (partition, time, key, value) VALUES {our_rows}"));
    theirs.add(format!("INSERT INTO {table} VALUES {}", their_rows.join(", ")));
    for (script, psql) in [(ours, fixture.psql()), (theirs, reference.psql())] {
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
    let (fixture, reference) = (Fixture::shared()?, Reference::start()?);
    for_each_seed_at_once(REPLAY, SEED_COUNT, |seed| {
        let compared = compare(&fixture, &reference, seed);
        compared.unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
    });
    Ok(())
}

fn compare(fixture: &Fixture, reference: &Reference, seed: u64) -> Result<()> {
    let (orders, quotes) = (fixture.topic("orders"), fixture.topic("quotes"));
    let mut generator = Generator::new(seed, &orders, &quotes);
    let rows: Vec<_> = (0..ORDER_COUNT).map(|_| generator.order()).collect();
    fill(fixture, reference, &orders, &rows)?;
    let rows: Vec<_> = (0..QUOTE_COUNT).map(|_| generator.quote()).collect();
    fill(fixture, reference, &quotes, &rows)?;
    let mut script = Script::default();
    (0..QUERY_COUNT).for_each(|_| script.add(generator.query()));
    (0..FAILING_COUNT).for_each(|_| script.add(generator.failing()));
    let answers = run_both(&script, fixture, reference)?;
    // Checks that exactly the queries drawn to fail failed.
    let is_error = |it: &&Answer| matches!(it, Answer::Error { .. });
    let error_counts = [&answers[..QUERY_COUNT], &answers[QUERY_COUNT..]]
        .map(|answers| answers.iter().filter(is_error).count());
    assert_eq!(error_counts, [0, FAILING_COUNT], "errors of good queries, and of others");
    Ok(())
}

#[test]
fn expressions_have_the_values_of_postgresql() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (fixture, reference) = (Fixture::shared()?, Reference::start()?);
    let mut script = Script::default();
    EXPRESSIONS.lines().for_each(|it| script.add(format!("SELECT {it}")));
    run_both(&script, &fixture, &reference)?;
    Ok(())
}

/// Statements by the chapters of PostgreSQL's documentation: the broker answers as PostgreSQL does
/// or rejects the statement, and never answers one that PostgreSQL rejects.
#[test]
fn chapters_are_answered_as_by_postgresql_or_refused() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (fixture, reference) = (Fixture::shared()?, Reference::start()?);
    let mut script = Script::default();
    for line in CHAPTERS.lines().filter(|it| !it.starts_with('#')) {
        let is_statement = ["SELECT ", "WITH ", "VALUES "].iter().any(|it| line.starts_with(it));
        script.add(if is_statement { line.to_owned() } else { format!("SELECT {line}") });
    }
    let (ours, theirs) = (script.run(fixture.psql())?, script.run(reference.psql())?);
    let types = script.column_types(reference.psql())?;
    let (mut failed_count, mut refused_count) = (0, 0);
    for (index, query) in script.queries().iter().enumerate() {
        let (ours, theirs) = (&ours[index], &theirs[index]);
        let is_right = match (ours, theirs) {
            (Answer::Error { .. }, Answer::Rows(_)) => {
                refused_count += 1;
                true
            }
            (Answer::Error { .. }, Answer::Error { .. }) => true,
            (ours, theirs) => ours.agrees_with(theirs, &types[index]),
        };
        if !is_right || internal_name(ours).is_some() {
            failed_count += 1;
            eprintln!("{query};\n  {}\n", difference(ours, theirs));
        }
    }
    ensure!(failed_count == 0, "{failed_count} of {} statements differ", ours.len());
    let percent = refused_count * 100 / ours.len();
    eprintln!("{refused_count} of {} statements are refused", ours.len());
    ensure!(percent <= CHAPTERS_REFUSED_PERCENT_MAX, "{percent} % are refused");
    Ok(())
}

/// Returns an internal name of the broker that an error message contains.
fn internal_name(answer: &Answer) -> Option<&'static str> {
    let Answer::Error { message, .. } = answer else { return None };
    INTERNAL_NAMES.iter().find(|it| message.contains(**it)).copied()
}

#[test]
fn errors_name_nothing_that_is_internal() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::shared()?;
    let topic = fixture.filled_topic("named")?;
    let mut script = Script::default();
    WRONG.iter().for_each(|it| script.add(it.replace("{t}", &topic)));
    for (query, answer) in script.queries().iter().zip(script.run(fixture.psql())?) {
        ensure!(matches!(answer, Answer::Error { .. }), "{query} is not refused: {answer:?}");
        let name = internal_name(&answer);
        ensure!(name.is_none(), "{query} is refused with {name:?}: {answer:?}");
    }
    Ok(())
}

/// PostgreSQL functions that the broker does not have.
const NOT_THERE: &[&str] = &[
    "xmlcomment('a')",
    "lo_creat(1)",
    "pg_stat_reset()",
    "numrange(1, 2)",
    "int4range(1, 2)",
    "ts_headline('a', 'b')",
    "host('127.0.0.1')",
    "jsonb_exists('{}', 'a')",
    "row(1, 2)",
];

#[test]
fn functions_that_are_not_there_are_refused_by_their_names() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::shared()?;
    let mut script = Script::default();
    NOT_THERE.iter().for_each(|it| script.add(format!("SELECT {it}")));
    for (call, answer) in NOT_THERE.iter().zip(script.run(fixture.psql())?) {
        let name = call.split('(').next().unwrap_or_default();
        let is_named = matches!(
            &answer,
            Answer::Error { sql_state, message } if sql_state == "0A000" && message.contains(name)
        );
        ensure!(is_named, "{call}: {answer:?}");
    }
    Ok(())
}

#[test]
fn functions_and_subqueries_have_the_answers_of_postgresql() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (fixture, reference) = (Fixture::shared()?, Reference::start()?);
    let mut script = Script::default();
    QUERIES.lines().for_each(|it| script.add(it));
    run_both(&script, &fixture, &reference)?;
    Ok(())
}

#[test]
fn parameters_that_no_session_can_set_are_those_of_postgresql() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (fixture, reference) = (Fixture::shared()?, Reference::start()?);
    let mut listed = Script::default();
    listed.add("SELECT name FROM pg_settings WHERE context NOT IN ('user', 'superuser')");
    let mut script = Script::default();
    for answer in listed.run(reference.psql())? {
        let Answer::Rows(names) = answer else { bail!("no names: {answer:?}") };
        names.iter().for_each(|it| script.add(format!("SET {it} TO DEFAULT")));
    }
    let answers = run_both(&script, &fixture, &reference)?;
    let is_fixed =
        |it: &Answer| matches!(it, Answer::Error { sql_state, .. } if sql_state == "55P02");
    ensure!(answers.len() > 100 && answers.iter().all(is_fixed), "PostgreSQL: {answers:?}");
    Ok(())
}

#[test]
fn what_stands_first_guards_what_follows() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (fixture, reference) = (Fixture::shared()?, Reference::start()?);
    let table = fixture.topic("mixed");
    let rows: Vec<_> = MIXED.iter().map(|value| ("'k'".to_owned(), format!("'{value}'"))).collect();
    fill(&fixture, &reference, &table, &rows)?;
    let mut script = Script::default();
    GUARDED.iter().for_each(|it| script.add(it.replace("{t}", &table)));
    run_both(&script, &fixture, &reference)?;
    Ok(())
}

#[test]
fn sorted_subqueries_keep_their_order() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (fixture, reference) = (Fixture::shared()?, Reference::start()?);
    let table = fixture.topic("sorted");
    let rows: Vec<_> = MIXED.iter().map(|value| ("'k'".to_owned(), format!("'{value}'"))).collect();
    fill(&fixture, &reference, &table, &rows)?;
    let mut script = Script::default();
    SORTED.iter().for_each(|it| script.add(it.replace("{t}", &table)));
    run_both(&script, &fixture, &reference)?;
    Ok(())
}

#[test]
fn values_beside_json_are_json() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (fixture, reference) = (Fixture::shared()?, Reference::start()?);
    let table = fixture.topic("unwrapped");
    let rows: Vec<_> = MIXED.iter().map(|value| ("'k'".to_owned(), format!("'{value}'"))).collect();
    fill(&fixture, &reference, &table, &rows)?;
    let mut script = Script::default();
    UNWRAPPED.iter().for_each(|it| script.add(it.replace("{t}", &table)));
    run_both(&script, &fixture, &reference)?;
    Ok(())
}

/// Runs the script on both servers and checks that the answers agree.
fn run_both(script: &Script, fixture: &Fixture, reference: &Reference) -> Result<Vec<Answer>> {
    let (ours, theirs) = (script.run(fixture.psql())?, script.run(reference.psql())?);
    let types = script.column_types(reference.psql())?;
    let mut failed_count = 0;
    for (index, query) in script.queries().iter().enumerate() {
        if !ours[index].agrees_with(&theirs[index], &types[index]) {
            failed_count += 1;
            if failed_count <= FAILURES_SHOWN {
                eprintln!("{query};\n  {}\n", difference(&ours[index], &theirs[index]));
            }
        }
    }
    ensure!(failed_count == 0, "{failed_count} of {} queries differ", ours.len());
    Ok(theirs)
}

/// Describes the difference of two answers in one line.
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
