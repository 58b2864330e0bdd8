//! Descriptions of columns and parameters sent to clients, and the values sent.

#[expect(dead_code, reason = "other suites use more of it")]
mod support;

use std::error::Error;

use record_batch::{BatchOptions, NewRecord};
use sql::Limits;
use support::{Running, append, failure, run, texts};
use tokio_postgres::types::{Format, FromSql, IsNull, ToSql, Type, to_sql_checked};

/// Expressions whose types are inferred in various ways.
const EXPRESSIONS: &[&str] = &[
    "1 UNION SELECT 2.5",
    "a FROM (VALUES (1), (2.5)) t(a)",
    "a FROM (VALUES (NULL), (2.5::float8)) t(a)",
    "a FROM (VALUES (1::smallint), (2::bigint)) t(a)",
    "CASE WHEN true THEN 1 ELSE 2.5 END",
    "coalesce(NULL, 1, 2.5)",
    "greatest(1, 2.5::float8), least(1::smallint, 2)",
    "nullif(1, 2.0)",
    "(json '{\"live\": true}'->'live')::text::boolean",
    "(json '{\"a\": 5}'->'a')::text::int, (json '{\"a\": 5}'->>'a')::numeric",
    "json '{\"a\": [1]}'->'a', json '{\"a\": 1}'->>'a', json '{\"a\": 1}'::text",
    "upper((json '{\"a\": \"x\"}'->'a')::text), length((json '[1]')::text)",
    "7.5 / 2, 1 / 3.0, avg(a), sum(a), count(a) FROM (VALUES (1), (2)) t(a)",
    "avg(a), sum(a), min(a), max(a) FROM (VALUES (1.5::float8), (2)) t(a)",
    "avg(a), sum(a) FROM (VALUES (1::bigint), (2)) t(a)",
    "sum(a) OVER (), row_number() OVER (), rank() OVER (ORDER BY a) FROM (VALUES (1)) t(a)",
    "extract(epoch FROM now()), extract(year FROM now()), date_trunc('day', now())",
    "now() - now(), interval '1 day', now() + interval '1 day', current_date",
    "date '2026-01-01' + interval '1 hour', now() AT TIME ZONE 'UTC'",
    "ARRAY[1, 2], ARRAY['a'], '{1,2}'::int[], string_to_array('a,b', ',')",
    "1::smallint, 1::int, 1::bigint, 1::real, 1::float8, 1::numeric, 1::text, true",
    "round(2.5), round(2.5::float8), abs(-1), sign(-2.5), sqrt(2.0), 2 ^ 3, power(2, 3)",
    "NULL, NULL::int, NULL::numeric, NULL::timestamptz, 'x'::bytea, ''",
    "a FROM (SELECT 1 AS a UNION ALL SELECT NULL UNION ALL SELECT 2.25::float8) t",
    "(SELECT 1.5) FROM (VALUES (1)) t(a) WHERE a = 1",
];

/// A value whose encoding matches its declared type.
struct Checked;

impl FromSql<'_> for Checked {
    fn from_sql(ty: &Type, raw: &[u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let is_good = match *ty {
            Type::BOOL => raw.len() == 1 && raw[0] <= 1,
            Type::INT2 => raw.len() == 2,
            Type::INT4 | Type::OID | Type::FLOAT4 | Type::DATE => raw.len() == 4,
            Type::INT8 | Type::FLOAT8 | Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::TIME => {
                raw.len() == 8
            }
            Type::INTERVAL => raw.len() == 16,
            Type::NUMERIC => {
                let groups = raw.first_chunk().map(|it| i16::from_be_bytes(*it));
                groups.and_then(|it| usize::try_from(it).ok()).map(|it| 8 + 2 * it)
                    == Some(raw.len())
            }
            Type::TEXT | Type::JSON => std::str::from_utf8(raw).is_ok(),
            Type::BYTEA => true,
            _ => raw.len() >= 12,
        };
        if is_good { Ok(Self) } else { Err(format!("{raw:?} is no {ty}").into()) }
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

#[test]
fn what_is_described_is_what_is_sent() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let client = running.client().await;
        for expression in EXPRESSIONS {
            let query = format!("SELECT {expression}");
            let statement = client.prepare(&query).await;
            let statement = statement.unwrap_or_else(|error| panic!("{query}: {error:?}"));
            let rows = client.query(&statement, &[]).await;
            let rows = rows.unwrap_or_else(|error| panic!("{query}: {error:?}"));
            for (index, column) in statement.columns().iter().enumerate() {
                for row in &rows {
                    let value = row.try_get::<_, Option<Checked>>(index);
                    let (name, of) = (column.name(), column.type_());
                    assert!(value.is_ok(), "{query}: {name} of type {of}: {:?}", value.err());
                }
            }
        }
        let types = |query: &'static str| {
            let client = &client;
            async move {
                let statement = client.prepare(query).await.expect(query);
                statement.columns().iter().map(|it| it.type_().clone()).collect::<Vec<_>>()
            }
        };
        assert_eq!(types("SELECT 1 UNION SELECT 2.5").await, [Type::NUMERIC]);
        let live = "SELECT (json '{\"live\": true}'->'live')::text::boolean";
        assert_eq!(types(live).await, [Type::BOOL]);
        running.stop().await;
    });
}

/// Raw bytes as a parameter of any type.
#[derive(Debug)]
struct Raw(Vec<u8>);

impl ToSql for Raw {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut bytes::BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

#[test]
fn parameters_are_read_as_what_clients_say_that_they_are() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let topic = running.topics.create("orders", 1);
        let record = |key: &str| NewRecord {
            key: Some(key.to_owned().into()),
            value: Some("{}".into()),
            timestamp_ms: 0,
            headers: Vec::new(),
        };
        append(&topic, 0, &["a", "b", "c"].map(record), &BatchOptions::default());
        let client = running.client().await;
        let query = "SELECT key FROM orders WHERE key = ANY ($1) ORDER BY key";
        let keys: Vec<&str> = vec!["c", "a", "x"];
        let rows = client.query(query, &[&keys]).await.expect("texts");
        let found: Vec<String> = rows.iter().map(|it| it.get(0)).collect();
        assert_eq!(found, ["a", "c"]);
        let none: Vec<&str> = Vec::new();
        assert!(client.query(query, &[&none]).await.expect("none").is_empty());
        let query = "SELECT key FROM orders WHERE \"offset\" = ANY ($1)";
        let rows = client.query(query, &[&vec![1_i64, 7]]).await.expect("numbers");
        assert_eq!(rows.iter().map(|it| it.get(0)).collect::<Vec<&str>>(), ["b"]);

        let typed = |query: &'static str, of: Type| client_typed(&client, query, of);
        let statement = typed("SELECT $1::text", Type::JSONB).await.expect("jsonb");
        let jsonb = Raw(b"\x01{\"a\": 1}".to_vec());
        let row = client.query_one(&statement, &[&jsonb]).await.expect("jsonb");
        assert_eq!(row.get::<_, &str>(0), "{\"a\": 1}");
        let statement =
            typed("SELECT extract(epoch FROM $1)::text", Type::INTERVAL).await.expect("interval");
        let mut span = 1_500_000_i64.to_be_bytes().to_vec();
        span.extend(2_i32.to_be_bytes());
        span.extend(0_i32.to_be_bytes());
        let row = client.query_one(&statement, &[&Raw(span)]).await.expect("an interval");
        assert_eq!(row.get::<_, &str>(0), "172801.500000");
        let statement = typed("SELECT $1::text", Type::UUID).await.expect("uuid");
        let row = client.query_one(&statement, &[&Raw(vec![0xAB; 16])]).await.expect("a uuid");
        assert_eq!(row.get::<_, &str>(0), "abababab-abab-abab-abab-abababababab");
        let query = "SELECT coalesce(value->'x', $1)::text FROM orders LIMIT 1";
        let code = |error: tokio_postgres::Error| error.code().map(|it| it.code().to_owned());
        let row = &client.query(query, &[&InText("{\"a\": 1}")]).await.expect("JSON")[0];
        assert_eq!(row.get::<_, Option<&str>>(0), Some("{\"a\": 1}"));
        let refused = client.query(query, &[&InText("x")]).await.expect_err("no JSON");
        assert_eq!(code(refused).as_deref(), Some("22P02"));
        let query = "SELECT value->'x' FROM orders UNION ALL SELECT $1";
        let refused = client.query(query, &[&InText("x")]).await.expect_err("no JSON");
        assert_eq!(code(refused).as_deref(), Some("22P02"));
        let refused = typed(query, Type::TEXT).await.expect_err("a text beside JSON");
        assert_eq!(code(refused).as_deref(), Some("42804"));
        // Unknown types are not misinterpreted.
        let refused = typed("SELECT $1::float8", Type::POINT).await.expect_err("no points");
        assert_eq!(code(refused).as_deref(), Some("0A000"));
        running.stop().await;
    });
}

/// A parameter in text format.
#[derive(Debug)]
struct InText(&'static str);

impl ToSql for InText {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut bytes::BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

#[test]
fn a_cast_is_the_type_of_its_parameter() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let client = running.client().await;
        let query = "SELECT $1::int8, CAST($2 AS varchar), $3::int[], $4::timestamptz, $5::jsonb";
        let statement = client.prepare(query).await.expect(query);
        let expected =
            [Type::INT8, Type::VARCHAR, Type::INT4_ARRAY, Type::TIMESTAMPTZ, Type::JSONB];
        assert_eq!(statement.params(), expected);
        let row = client.query_one("SELECT $1::int8 + 1, $2::int[]", &[&5_i64, &vec![1, 2]]).await;
        let row = row.expect("values");
        assert_eq!((row.get::<_, i64>(0), row.get::<_, Vec<i32>>(1)), (6, vec![1, 2]));
        for (of, text, expected) in [
            ("interval", "01:02:03", Ok("01:02:03")),
            ("interval", "P1DT2H", Ok("1 day 02:00:00")),
            ("interval", "3 days ago", Ok("-3 days")),
            ("interval", "x", Err("22007")),
            ("timestamptz", "2026-01-02 03:04", Ok("2026-01-02 03:04:00+00")),
            ("timestamp", "2026-01-02 03:04", Ok("2026-01-02 03:04:00")),
            ("timestamp", "x", Err("22007")),
            ("jsonb", "{\"b\":1, \"a\":2}", Ok("{\"a\": 2, \"b\": 1}")),
            ("jsonb", "x", Err("22P02")),
            ("json", "x", Err("22P02")),
            ("varchar(2)", "abc", Ok("ab")),
            ("boolean", "tru", Ok("true")),
            ("integer", "x", Err("22P02")),
            ("integer", "99999999999", Err("22003")),
        ] {
            let query = format!("SELECT ($1::{of})::text");
            let found = match client.query_one(&query, &[&InText(text)]).await {
                Ok(row) => Ok(row.get::<_, String>(0)),
                Err(error) => Err(error.code().expect("an error").code().to_owned()),
            };
            assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned), "{text} as {of}");
        }
        running.stop().await;
    });
}

#[test]
fn a_parameter_beside_jsonb_is_jsonb() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        running.topics.create("orders", 1);
        let client = running.client().await;
        let query = "SELECT count(*) FROM orders WHERE value::jsonb->'a' = $1 AND value->>'b' = $2";
        let statement = client.prepare(query).await.expect(query);
        assert_eq!(statement.params(), [Type::JSONB, Type::TEXT]);
        let jsonb = Raw(b"\x01{\"a\": 1}".to_vec());
        let row = client.query_one(&statement, &[&jsonb, &"x"]).await.expect(query);
        assert_eq!(row.get::<_, i64>(0), 0);
        running.stop().await;
    });
}

async fn client_typed(
    client: &tokio_postgres::Client,
    query: &str,
    of: Type,
) -> Result<tokio_postgres::Statement, tokio_postgres::Error> {
    client.prepare_typed(query, &[of]).await
}

/// Values that are invalid as UTF-8, JSON, or numbers.
const POISON: &[&[u8]] = &[
    b"{\"x\": \"\xff\xfe\"}",
    b"{\"x\": \"\\u0000\"}",
    b"{\"x\": \"\\ud800\"}",
    b"{\"x\": 1e400}",
    b"{\"x\": 123456789012345678901234567890123456789012345678901234567890}",
    b"{\"x\": NaN}",
    b"{\"x\": -0}",
    b"{\"x\": 1e-400}",
    b"{\"x\": 1, \"x\": \"twice\"}",
    b"\xef\xbb\xbf{\"x\": 1}",
    b"",
    b"\"\\ud800\"",
    b"no JSON",
    b"{\"x\": ",
    b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    b"null",
];

#[test]
fn one_value_does_not_fail_the_query_of_all() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let topic = running.topics.create("poisoned", 1);
        let record = |value: Option<&[u8]>| NewRecord {
            key: Some("k".into()),
            value: value.map(|it| it.to_vec().into()),
            timestamp_ms: 0,
            headers: Vec::new(),
        };
        let mut values: Vec<_> = POISON.iter().map(|it| record(Some(it))).collect();
        values.push(record(None));
        values.push(record(Some(b"{\"x\": 7}")));
        append(&topic, 0, &values, &BatchOptions::default());
        let client = running.client().await;
        for (name, of) in [
            ("texts", "text"),
            ("integers", "bigint"),
            ("small", "int"),
            ("floats", "float8"),
            ("numerics", "numeric"),
            ("booleans", "boolean"),
            ("times", "timestamptz"),
            ("documents", "json"),
            ("binaries", "jsonb"),
        ] {
            let create = format!("CREATE TABLE {name} (x {of}) WITH (topic = 'poisoned')");
            client.simple_query(&create).await.expect("a table");
            let rows = texts(&client, &format!("SELECT x FROM {name} ORDER BY \"offset\"")).await;
            assert_eq!(rows.len(), values.len(), "{name}");
            assert_eq!(rows[0], ["NULL"], "{name}: what is not UTF-8");
            let none_of_any = [5, 10, 11, 12, 13, 14, 15, 16];
            let none_of_this: &[usize] = match of {
                "text" => &[1, 2],
                "bigint" | "int" => &[1, 2, 3, 4],
                "float8" => &[1, 2, 3],
                "numeric" => &[1, 2],
                "boolean" => &[1, 2, 3, 4, 17],
                "timestamptz" => &[1, 2, 3, 4, 6, 17],
                _ => &[],
            };
            for index in none_of_any.iter().chain(none_of_this) {
                assert_eq!(rows[*index], ["NULL"], "{name}: the record {index}");
            }
            if matches!(of, "text" | "bigint" | "int" | "float8" | "numeric") {
                assert_eq!(rows[values.len() - 1], ["7"], "{name}");
            }
        }
        // Values that are not UTF-8 are an error in a table of texts, with a hint. All other
        // invalid values are NULL.
        let query = "SELECT value->>'x' FROM poisoned";
        assert_eq!(failure(&client, query).await, "22021");
        let rows = texts(&client, &format!("{query} WHERE \"offset\" > 0")).await;
        assert_eq!(rows.len(), values.len() - 1);
        assert_eq!(&rows[..2], [["NULL"], ["NULL"]]);
        running.stop().await;
    });
}
