//! Materialized views as tables: the columns of their queries, over records as a broker derives
//! them.

mod support;

use record_batch::{BatchOptions, NewRecord};
use sql::{Host, Limits};
use support::{Running, append, failure, run, texts};
use tokio_postgres::types::Type as PgType;

const POSITIONS: &str = "CREATE MATERIALIZED VIEW positions AS SELECT value->>'symbol' AS symbol, \
     sum((value->>'qty')::bigint) AS qty, count(*) AS n FROM \"orders$current\" GROUP BY 1";

/// A view with a column of each type.
const ALL_TYPES: &str = "CREATE MATERIALIZED VIEW \"All.Types\" AS SELECT key, time, headers, \
     value->'j' AS j, (value->>'t')::timestamptz AS t, (value->>'d')::interval AS d, \
     (value->>'m')::numeric AS m, (value->>'f')::double precision AS f, \
     (value->>'i')::int AS i, (value->>'b')::bytea AS b, value->>'x' = 'x' AS \"is X\" \
     FROM \"orders$current\"";

fn made(key: &str, value: &str, timestamp_ms: i64) -> NewRecord {
    let value = (!value.is_empty()).then(|| value.to_owned().into());
    NewRecord { key: Some(key.to_owned().into()), value, timestamp_ms, headers: Vec::new() }
}

/// Creates a source, and views as a broker creates them, before they are filled.
async fn views() -> (Running, tokio_postgres::Client) {
    views_of(Running::start(Limits::default(), false).await).await
}

async fn views_of(running: Running) -> (Running, tokio_postgres::Client) {
    running.topics.create("orders", 1);
    let client = running.client().await;
    for (name, statement) in [
        ("positions", POSITIONS),
        ("All.Types", ALL_TYPES),
        ("whole", "CREATE MATERIALIZED VIEW whole AS SELECT * FROM \"orders$current\""),
    ] {
        client.batch_execute(statement).await.expect("a good view");
        running.topics.create(name, 1);
    }
    (running, client)
}

fn fill(running: &Running, view: &str, records: &[NewRecord]) {
    let topic = running.topics.topic(view).expect("it is there");
    append(&topic, 0, records, &BatchOptions::default());
}

fn fill_positions(running: &Running) {
    fill(
        running,
        "positions",
        &[
            made("{\"symbol\":\"A\"}", "{\"symbol\":\"A\",\"qty\":1,\"n\":1}", 1_000),
            made("{\"symbol\":null}", "{\"symbol\":null,\"qty\":null,\"n\":2}", 2_000),
            made("{\"symbol\":\"A\"}", "{\"symbol\":\"A\",\"qty\":-5,\"n\":2}", 3_000),
            made("{\"symbol\":\"B\"}", "{\"symbol\":\"B\",\"qty\":3,\"n\":1}", 4_000),
            made("{\"symbol\":\"B\"}", "", 5_000),
        ],
    );
}

#[test]
fn a_view_is_what_its_query_gives_now() {
    run(async {
        let (running, client) = views().await;
        assert!(texts(&client, "SELECT * FROM positions").await.is_empty(), "it is not filled");
        fill_positions(&running);
        let all = texts(&client, "SELECT * FROM positions ORDER BY symbol").await;
        assert_eq!(all, [["A", "-5", "2"], ["NULL", "NULL", "2"]]);
        let then = "SELECT p.symbol, qty FROM positions FOR SYSTEM_TIME AS OF '0:1' p";
        assert_eq!(texts(&client, then).await, [["A", "1"]]);
        let then = "SELECT n FROM positions FOR SYSTEM_TIME AS OF '1970-01-01 00:00:04' \
                    WHERE symbol = 'B'";
        assert_eq!(texts(&client, then).await, [["1"]]);
        let joined = "SELECT sum(p.qty * q.n) FROM positions p JOIN positions q USING (symbol)";
        assert_eq!(texts(&client, joined).await, [["-10"]]);
        for (query, expected) in [
            ("SELECT count(*) FROM \"positions$log\"", "5"),
            ("SELECT count(value) FROM \"positions$log$bytes\"", "4"),
            ("SELECT count(*) FROM \"positions$current\"", "2"),
            ("SELECT count(*) FROM \"positions$bytes\"", "2"),
            ("SELECT max(\"offset\") FROM \"positions$current\" WHERE value->>'n' = '2'", "2"),
            ("SELECT count(*) FROM whole", "0"),
            ("SELECT count(*) FROM orders", "0"),
            ("SELECT count(*) FROM \"orders$log\"", "0"),
        ] {
            assert_eq!(texts(&client, query).await, [[expected]], "{query}");
        }
        let plan = texts(&client, "EXPLAIN SELECT n FROM positions WHERE symbol = 'A'").await;
        assert!(plan.concat().concat().contains("ValuesScan"), "{plan:?}");
        running.stop().await;
    });
}

#[test]
fn columns_have_their_types_in_prepared_statements() {
    run(async {
        let (running, client) = views().await;
        fill_positions(&running);
        let query = "SELECT * FROM positions WHERE qty < $1 AND n = $2";
        let statement = client.prepare(query).await.expect("a good statement");
        let described: Vec<_> =
            statement.columns().iter().map(|it| (it.name(), it.type_().clone())).collect();
        let expected = [("symbol", PgType::TEXT), ("qty", PgType::NUMERIC), ("n", PgType::INT8)];
        assert_eq!(described, expected);
        let statement = client.prepare("SELECT * FROM positions WHERE n = $1").await;
        let rows = client.query(&statement.expect("a good statement"), &[&2_i64]).await;
        let rows = rows.expect("rows");
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].get::<_, i64>("n"), 2);
        let statement = client.prepare("SELECT * FROM \"All.Types\"").await.expect("a view");
        let types: Vec<_> = statement.columns().iter().map(|it| it.type_().clone()).collect();
        let expected = [
            PgType::TEXT,
            PgType::TIMESTAMPTZ,
            PgType::JSON,
            PgType::JSON,
            PgType::TIMESTAMPTZ,
            PgType::INTERVAL,
            PgType::NUMERIC,
            PgType::FLOAT8,
            PgType::INT4,
            PgType::TEXT,
            PgType::BOOL,
        ];
        assert_eq!(types, expected);
        let whole = client.prepare("SELECT * FROM whole").await.expect("a view");
        let names: Vec<_> = whole.columns().iter().map(tokio_postgres::Column::name).collect();
        assert_eq!(names, ["partition", "offset", "time", "key", "value", "headers"]);
        running.stop().await;
    });
}

#[test]
fn values_of_all_types_are_what_was_written() {
    run(async {
        let (running, client) = views().await;
        let full = "{\"j\":{\"a\" : [null]},\"t\":\"2026-01-31 12:00:00.000001+00\",\
                    \"d\":\"-2 days -01:30:00.5\",\"m\":-79228162514264337.5935439503,\
                    \"f\":1e+300,\"i\":-2147483648,\"b\":\"\\\\x00ff\",\"is X\":true}";
        let none = "{\"j\":null,\"t\":null,\"d\":null,\"m\":null,\"f\":null,\"i\":null,\
                    \"b\":null,\"is X\":null}";
        let more = "{\"j\":\"null\",\"t\":\"1969-12-31 23:59:59.5+00\",\"d\":\"-00:00:01\",\
                    \"m\":9999999999999999999999999999,\"f\":\"-Infinity\",\"i\":0,\"b\":\"\",\
                    \"is X\":false}";
        let records = [made("a", full, 1_500), made("b", none, 0), made("c", more, 0)];
        fill(&running, "All.Types", &records);
        let rows = texts(&client, "SELECT * FROM \"All.Types\" ORDER BY key").await;
        assert_eq!(
            rows,
            [
                [
                    "a",
                    "1970-01-01 00:00:01.5+00",
                    "NULL",
                    "{\"a\" : [null]}",
                    "2026-01-31 12:00:00.000001+00",
                    "-2 days -01:30:00.5",
                    "-79228162514264337.5935439503",
                    "1e+300",
                    "-2147483648",
                    "\\x00ff",
                    "t",
                ],
                [
                    "b",
                    "1970-01-01 00:00:00+00",
                    "NULL",
                    "NULL",
                    "NULL",
                    "NULL",
                    "NULL",
                    "NULL",
                    "NULL",
                    "NULL",
                    "NULL",
                ],
                [
                    "c",
                    "1970-01-01 00:00:00+00",
                    "NULL",
                    "\"null\"",
                    "1969-12-31 23:59:59.5+00",
                    "-00:00:01",
                    "9999999999999999999999999999",
                    "-Infinity",
                    "0",
                    "",
                    "f",
                ],
            ]
        );
        let path = "SELECT key, j->'a'->>0 FROM \"All.Types\" WHERE j IS NOT NULL ORDER BY key";
        assert_eq!(texts(&client, path).await, [["a", "NULL"], ["c", "NULL"]]);
        let some = "SELECT key, t.time, i FROM \"All.Types\" t WHERE key = 'c' ORDER BY key";
        assert_eq!(texts(&client, some).await, [["c", "1970-01-01 00:00:00+00", "0"]]);
        // A value out of the range of a view's type is an error, not NULL.
        fill(&running, "All.Types", &[made("d", "{\"i\":2147483648}", 0)]);
        assert_eq!(failure(&client, "SELECT max(i) FROM \"All.Types\"").await, "22003");
        running.stop().await;
    });
}

#[test]
fn live_queries_have_the_columns_of_a_view_and_its_groups_as_their_key() {
    run(async {
        let (running, client) = views().await;
        for (statement, expected) in [
            ("SUBSCRIBE TO positions", Ok("symbol, qty, n")),
            ("SUBSCRIBE TO (SELECT n + 1 AS m FROM positions WHERE qty > 5)", Ok("m")),
            (
                "SUBSCRIBE TO \"positions$current\"",
                Ok("partition, offset, time, key, value, headers"),
            ),
            ("SUBSCRIBE TO (SELECT key FROM \"positions$log\")", Ok("key")),
            ("SUBSCRIBE TO (SELECT value FROM \"positions$bytes\")", Ok("value")),
            ("SUBSCRIBE TO (SELECT key, value FROM whole)", Ok("key, value")),
            ("SUBSCRIBE TO positions ENVELOPE UPSERT (KEY (symbol))", Ok("symbol, qty, n")),
            ("SUBSCRIBE TO (SELECT qty, key FROM \"All.Types\" AS t(key, qty))", Err("0A000")),
            ("SUBSCRIBE TO positions ENVELOPE UPSERT (KEY (qty))", Err("42P10")),
            (
                "SUBSCRIBE TO (SELECT j->'a' AS a, key FROM \"All.Types\") \
                 ENVELOPE UPSERT (KEY (key))",
                Ok("key, a"),
            ),
            ("SUBSCRIBE TO (SELECT qty, n FROM positions) ENVELOPE UPSERT (KEY (n))", Err("42P10")),
        ] {
            let prepared = client.prepare(statement).await;
            let found = match &prepared {
                Ok(prepared) => {
                    let columns = prepared.columns().iter().skip(2).map(|it| it.name());
                    Ok(columns.collect::<Vec<_>>().join(", "))
                }
                Err(error) => Err(error.code().map_or("", |it| it.code())),
            };
            assert_eq!(found, expected.map(str::to_owned), "{statement}");
        }
        let prepared = client.prepare("SUBSCRIBE TO positions").await.expect("a live query");
        let types: Vec<_> = prepared.columns().iter().skip(2).map(|it| it.type_()).collect();
        assert_eq!(types, [&PgType::TEXT, &PgType::NUMERIC, &PgType::INT8]);
        running.stop().await;
    });
}

#[test]
fn the_catalogue_lists_a_view_as_one_with_its_columns() {
    run(async {
        let (running, client) = views().await;
        let kinds = "SELECT relname, relkind FROM pg_class WHERE relname LIKE 'positions%' \
                     ORDER BY 1";
        let expected = [["positions", "m"], ["positions$current", "v"], ["positions$log", "v"]];
        assert_eq!(texts(&client, kinds).await, expected);
        let columns = "SELECT column_name, data_type, is_updatable \
                       FROM information_schema.columns WHERE table_name = 'positions' \
                       ORDER BY ordinal_position";
        let expected = [["symbol", "text", "NO"], ["qty", "numeric", "NO"], ["n", "bigint", "NO"]];
        assert_eq!(texts(&client, columns).await, expected);
        let listed = "SELECT table_type, is_insertable_into FROM information_schema.tables \
                      WHERE table_name = 'positions'";
        assert_eq!(texts(&client, listed).await, [["VIEW", "NO"]]);
        let definition = "SELECT matviewname FROM pg_matviews WHERE definition LIKE \
                          '%\"orders$current\" GROUP BY 1;'";
        assert_eq!(texts(&client, definition).await, [["positions"]]);
        let count = "SELECT count(*) FROM pg_class WHERE relkind = 'm'";
        assert_eq!(texts(&client, count).await, [["3"]]);
        let definitions = "SELECT pg_get_viewdef('positions'::regclass) LIKE ' SELECT %', \
                           pg_get_viewdef('\"positions$current\"'::regclass) \
                           LIKE '%FROM positions$log%'";
        assert_eq!(texts(&client, definitions).await, [["t", "t"]]);
        running.stop().await;
    });
}

#[test]
fn nothing_is_inserted_into_a_view_and_others_do_not_see_it() {
    run(async {
        let (running, client) = views_of(Running::start(Limits::default(), true).await).await;
        for table in ["positions", "\"positions$log\"", "\"positions$current\"", "whole"] {
            let insert = format!("INSERT INTO {table} (value) VALUES ('x')");
            assert_eq!(failure(&client, &insert).await, "42809", "{table}");
        }
        let insert = "INSERT INTO positions (symbol, qty) VALUES ('A', 1)";
        assert_eq!(failure(&client, insert).await, "42809");
        let offsets = running.topics.topic("positions").expect("it is there");
        assert_eq!(offsets.partition(0).expect("it is there").last_stable_offset(), 0);
        assert_eq!(running.server.running().len(), 0);
        let reader = running.client_as("reader").await.expect("a client");
        for query in ["SELECT * FROM positions", "SUBSCRIBE TO positions"] {
            assert_eq!(failure(&reader, query).await, "42P01", "{query}");
        }
        assert_eq!(failure(&reader, insert).await, "42501");
        let count = "SELECT count(*) FROM pg_class WHERE relname LIKE 'positions%'";
        assert_eq!(texts(&reader, count).await, [["0"]]);
        running.stop().await;
    });
}

#[test]
fn a_view_without_current_values_or_its_topic_is_a_topic_or_nothing() {
    run(async {
        let (running, client) = views().await;
        running.topics.forget("positions");
        assert_eq!(failure(&client, "SELECT * FROM positions").await, "42P01");
        assert_eq!(failure(&client, "SUBSCRIBE TO positions").await, "42P01");
        let plain = POSITIONS.replace("positions", "plain");
        client.batch_execute(&plain).await.expect("a good view");
        running.topics.create("plain", 1);
        let whole = client.prepare("SELECT * FROM plain").await.expect("a topic");
        assert_eq!(whole.columns().len(), 6);
        running.stop().await;
    });
}
