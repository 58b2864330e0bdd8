//! Client queries over topics in memory.

mod support;

use std::error::Error;
use std::time::Duration;

use record_batch::{BatchOptions, BatchProducer, Codec, Marker, NewRecord, TransactionEnd};
use sql::{Host, Limits};
use support::{Running, append, append_bytes, failure, run, texts};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{FromSql, Type};
use tokio_postgres::{Client, Row};

const ENDLESS: &str =
    "select count(*) from generate_series(1, 1000000) a, generate_series(1, 1000000) b";

fn record(key: &str, value: &str, timestamp_ms: i64) -> NewRecord {
    let (key, value) = (Some(key.to_owned().into()), Some(value.to_owned().into()));
    NewRecord { key, value, timestamp_ms, headers: Vec::new() }
}

fn order(symbol: &str, qty: i64) -> String {
    format!(r#"{{"symbol": "{symbol}", "qty": {qty}, "tags": ["a", {{"b": null}}]}}"#)
}

/// Creates `orders` with two partitions and timestamps from 1,000 ms to 8,000 ms.
async fn orders() -> Running {
    let running = Running::start(Limits::default(), false).await;
    let topic = running.topics.create("orders", 2);
    for (number, codec) in [(0, Codec::None), (1, Codec::Lz4)] {
        let options = BatchOptions { compression: codec, ..BatchOptions::default() };
        for second in [1, 3] {
            let at = i64::from(number) + second;
            let symbol = if second == 1 { "IBM" } else { "MSFT" };
            let records = [
                record("a", &order(symbol, at), at * 1_000),
                record("b", "no JSON", (at + 4) * 1_000),
            ];
            append(&topic, number, &records, &options);
        }
    }
    running
}

#[test]
fn rows_are_records() {
    run(async {
        let running = orders().await;
        let client = running.client().await;
        let all = texts(&client, "select * from orders order by partition, \"offset\"").await;
        assert_eq!(all.len(), 8);
        let first = ["0", "0", "1970-01-01 00:00:01+00", "a", &order("IBM", 1), "NULL"];
        assert_eq!(all[0], first);
        assert_eq!(all[7][..4], ["1", "3", "1970-01-01 00:00:08+00", "b"]);
        let counted = texts(&client, "select count(*) from orders").await;
        assert_eq!(counted, [["8"]]);
        running.stop().await;
    });
}

#[test]
fn filters_reach_the_log_and_leave_what_they_say() {
    run(async {
        let running = orders().await;
        let client = running.client().await;
        for (filter, expected, plan) in [
            ("partition = 1", "4", "partition=1"),
            ("partition in (0, 5)", "4", "partition>=0 partition<=5"),
            ("\"offset\" >= 1 and \"offset\" < 3", "4", "offset>=1 offset<=2"),
            ("partition = 0 and \"offset\" between 1 and 2", "2", "offset>=1 offset<=2"),
            ("time >= '1970-01-01 00:00:05'", "4", "time>=5000000us"),
            ("time < '1970-01-01 00:00:03+00'", "2", "time<=2999999us"),
            ("key = 'a'", "4", "keys=1"),
            ("key in ('b', 'c')", "4", "keys=2"),
            ("\"offset\" > 100", "0", "offset>=101"),
            ("partition = 7", "0", "partitions=0"),
            ("time > '1970-01-01 00:00:05' and key = 'b' and partition = 0", "1", "keys=1"),
        ] {
            let query = format!("select count(*) from orders where {filter}");
            assert_eq!(texts(&client, &query).await, [[expected]], "{filter}");
            let lines = texts(&client, &format!("explain {query}")).await.concat().join("\n");
            assert!(lines.contains(plan), "{filter}: {lines}");
            assert!(!lines.contains("FilterExec"), "{filter}: {lines}");
        }
        let limited = texts(&client, "explain select key from orders limit 3").await.concat();
        assert!(limited.join("\n").contains("limit=3"), "{limited:?}");
        assert_eq!(texts(&client, "select key from orders limit 3").await.len(), 3);
        running.stop().await;
    });
}

#[test]
fn current_values_are_the_last_records_of_their_keys() {
    run(async {
        let running = orders().await;
        let client = running.client().await;
        let table = "\"orders$current\"";
        let all = format!("select partition, \"offset\", key from {table} order by 1, 2");
        let rows = [["0", "2", "a"], ["0", "3", "b"], ["1", "2", "a"], ["1", "3", "b"]];
        assert_eq!(texts(&client, &all).await, rows);
        for (filter, expected) in [
            ("key = 'a'", "2"),
            ("key = 'a' and partition = 1", "1"),
            ("key in ('a', 'b', 'c')", "4"),
            ("key = 'c'", "0"),
            ("\"offset\" < 2", "0"),
            ("time >= '1970-01-01 00:00:05'", "2"),
            ("value->>'symbol' = 'MSFT'", "2"),
        ] {
            let query = format!("select count(*) from {table} where {filter}");
            assert_eq!(texts(&client, &query).await, [[expected]], "{filter}");
        }
        let limited = texts(&client, &format!("select key from {table} limit 3")).await;
        assert_eq!(limited.len(), 3);
        let deletion = NewRecord { key: Some("a".into()), ..NewRecord::default() };
        let topic = running.topics.create("many", 1);
        let many: Vec<_> = (0..20_000).map(|it| record(&it.to_string(), "v", it)).collect();
        append(&topic, 0, &many, &BatchOptions::default());
        append(&topic, 0, &many[..10], &BatchOptions::default());
        let counted = texts(&client, "select count(*), max(\"offset\") from \"many$current\"");
        assert_eq!(counted.await, [["20000", "20009"]]);
        let limited = texts(&client, "select key from \"many$current$bytes\" limit 9000").await;
        assert_eq!(limited.len(), 9_000);
        append(
            &topic,
            0,
            &[NewRecord { key: Some("7".into()), ..deletion }],
            &BatchOptions::default(),
        );
        let gone = texts(&client, "select key from \"many$current\" where key in ('7', '8')").await;
        assert_eq!(gone, [["8"]]);
        let plain = running.topics.create("plain", 1);
        append(&plain, 0, &many[..1], &BatchOptions::default());
        let refused = failure(&client, "select * from \"plain$current\"").await;
        assert_eq!(refused, "42P01");
        running.stop().await;
    });
}

/// Returns all rows of a prepared statement with text columns.
async fn prepared(client: &Client, query: &str, key: Option<&str>) -> Vec<Vec<Option<String>>> {
    let statement = client.prepare(query).await.expect(query);
    let rows = client.query(&statement, &[&key]).await.expect(query);
    let texts = |row: &Row| (0..row.len()).map(|index| row.get(index)).collect();
    rows.iter().map(texts).collect()
}

#[test]
fn a_value_is_found_by_its_key_as_the_engine_finds_it() {
    run(async {
        let running = orders().await;
        let client = running.client().await;
        for columns in [
            "value",
            "key, value->>'symbol' AS s, value",
            "\"offset\"::text, time::text, (value->>'qty')::bigint * 2 || ' pieces'",
            "value->'tags'->>0, 'x', upper(key)",
            "round(7 / (case when \"offset\" < 0 then 1 else 11.5 end) / 7, 5)::text",
        ] {
            for table in ["\"orders$current\"", "\"orders$current\" AS o"] {
                // A condition on the partition is evaluated by the engine.
                let query = format!("select {columns} from {table} where key = $1");
                let whole = format!("{query} and partition >= 0 order by partition");
                for key in [Some("a"), Some("c"), None] {
                    let found = prepared(&client, &query, key).await;
                    assert_eq!(found, prepared(&client, &whole, key).await, "{query} {key:?}");
                    assert_eq!(found.len(), if key == Some("a") { 2 } else { 0 });
                }
            }
        }
        let statement = "select value from \"orders$current\" where key = $1";
        let statement = client.prepare(statement).await.expect("a query");
        append(
            &running.topics.topic("orders").expect("it is there"),
            0,
            &[record("new", "1", 1)],
            &BatchOptions::default(),
        );
        let found = client.query(&statement, &[&"new"]).await.expect("a query");
        assert_eq!(found[0].get::<_, &str>(0), "1");
        running.topics.forget("orders");
        let refused = client.query(&statement, &[&"new"]).await.expect_err("no such topic");
        assert_eq!(refused.code().map(SqlState::code), Some("42P01"));
        running.stop().await;
    });
}

#[test]
fn fields_of_json_are_read_by_path() {
    run(async {
        let running = orders().await;
        let client = running.client().await;
        for (expression, expected) in [
            ("value->>'symbol'", "IBM"),
            ("value->'symbol'", "\"IBM\""),
            ("value->'tags'->1->'b'", "null"),
            ("value->'tags'->1->>'b'", "NULL"),
            ("value->'tags'->> -2", "a"),
            ("value#>>'{tags,0}'", "a"),
            ("value->>'none'", "NULL"),
            ("(value->>'qty')::int + 1", "2"),
            ("value::jsonb->>'qty'", "1"),
        ] {
            let query =
                format!("select {expression} from orders where partition = 0 and \"offset\" = 0");
            assert_eq!(texts(&client, &query).await, [[expected]], "{expression}");
        }
        let query = "select value->>'symbol' s, count(*), sum((value->>'qty')::bigint) from orders \
                     where (value->>'qty')::bigint > 0 group by 1 order by s";
        assert_eq!(texts(&client, query).await, [["IBM", "2", "3"], ["MSFT", "2", "7"]]);
        assert_eq!(failure(&client, "select 1 from orders where value->>'qty' > 5").await, "42883");
        running.stop().await;
    });
}

/// The reference query uses the field in a concatenation, which cannot be pushed down to the log.
#[test]
fn conditions_on_fields_pass_over_what_cannot_match_and_nothing_else() {
    let values = [
        r#"{"symbol": "S17", "n": 1}"#,
        r#"{"symbol": "\u005317", "n": 2}"#,
        r#"{"symbol": "S\u0031\u0037", "n": 3}"#,
        r#"{"symbol": "S1\\7", "n": 4}"#,
        r#"{"symbol": {"a": "S17"}, "n": 5}"#,
        r#"{"symbol": 17, "n": 6}"#,
        r#"{"symbol": "none", "symbol": "S17", "n": 7}"#,
        r#"{"symbol": "S17", "symbol": "none", "n": 8}"#,
        r#"{"symbol": "S17", "n": 9"#,
        r#"{"symbol": "é", "n": 10}"#,
        r#"{"symbol": "\u00e9", "n": 11}"#,
        r#"{"symbol": "a/b", "n": 12}"#,
        r#"{"symbol": "a\/b", "n": 13}"#,
        r#"{"symbol": null, "n": 14}"#,
        "S17",
        "\"S17\"",
    ];
    run(async {
        let running = Running::start(Limits::default(), false).await;
        for (name, compression) in [("plain", Codec::None), ("packed", Codec::Lz4)] {
            let topic = running.topics.create(name, 1);
            let options = BatchOptions { compression, ..BatchOptions::default() };
            // A batch per record, and one with all of them.
            let records = values.map(|value| record("k", value, 1_000));
            records.iter().for_each(|it| append(&topic, 0, std::slice::from_ref(it), &options));
            append(&topic, 0, &records, &options);
        }
        let client = running.client().await;
        for (text, expected) in [
            ("S17", &["1", "2", "3", "7"][..]),
            ("17", &["6"]),
            ("é", &["10", "11"]),
            ("a/b", &["12", "13"]),
            (r"S1\7", &["4"]),
            (r#"{"a": "S17"}"#, &["5"]),
            ("none", &["8"]),
            ("null", &[]),
        ] {
            let expected: Vec<_> =
                expected.iter().map(|it| vec![(*it).to_owned(), "2".to_owned()]).collect();
            for topic in ["plain", "packed"] {
                for field in ["value->>'symbol'", "(value->>'symbol' || '')"] {
                    let query = format!(
                        "select value->>'n', count(*) from {topic} where {field} = '{text}' \
                         group by 1 order by (value->>'n')::int"
                    );
                    assert_eq!(texts(&client, &query).await, expected, "{query}");
                }
            }
        }
        running.stop().await;
    });
}

/// The reference query extracts the field in another way, which cannot be pushed down to the log.
#[test]
fn comparisons_with_numbers_pass_over_what_cannot_match_and_nothing_else() {
    let values = [
        r#"{"n": "a", "qty": 5}"#,
        r#"{"n": "b", "qty":7,"x": {"qty": 1}}"#,
        r#"{"n": "c", "qty": "9"}"#,
        r#"{"n": "d", "q\u0074y": 8}"#,
        r#"{"n": "e", "qty": 10, "qty": 1}"#,
        r#"{"n": "f", "qty": 1, "qty": 10}"#,
        r#"{"n": "g", "qty": 10"#,
        r#"{"n": "h", "x": {"qty": 10}}"#,
        r#"{"n": "i", "qty": null}"#,
        r#"{"n": "j", "qty": -12}"#,
        r#"{"n": "k", "qty": 12345678901234567}"#,
        "{\"n\": \"l\", \"qty\"\t:\n6\n}",
        "10",
        "no JSON",
    ];
    let fractions = [
        r#"{"n": "m", "qty": 4.75}"#,
        r#"{"n": "n", "qty": -4.25}"#,
        r#"{"n": "o", "qty": 5e0}"#,
        r#"{"n": "p", "qty": 0.5E1}"#,
    ];
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let topic = running.topics.create("whole", 1);
        let records = values.map(|value| record("k", value, 1_000));
        let options = BatchOptions::default();
        records.iter().for_each(|it| append(&topic, 0, std::slice::from_ref(it), &options));
        append(&topic, 0, &records, &options);
        let topic = running.topics.create("all", 1);
        let more = fractions.map(|value| record("k", value, 1_000));
        append(&topic, 0, &[records.as_slice(), &more].concat(), &options);
        let client = running.client().await;
        for (topic, to, condition, expected) in [
            ("whole", "bigint", ">= 7", "bcdfk"),
            ("whole", "bigint", "= 5", "a"),
            ("whole", "bigint", "< 5", "ej"),
            ("whole", "bigint", "between 6 and 8", "bdl"),
            ("whole", "numeric", "> 7.5", "cdfk"),
            ("whole", "numeric", "<= -11.5", "j"),
            ("all", "float8", "= 5", "aop"),
            ("all", "float8", "< -4.2", "jn"),
            ("all", "numeric", "between 4.5 and 5.5", "amop"),
            ("all", "numeric", "= 4.75", "m"),
        ] {
            for field in ["value->>'qty'", "(value::text || '')::json->>'qty'"] {
                let query = format!(
                    "select distinct value->>'n' n from {topic} \
                     where ({field})::{to} {condition} order by 1"
                );
                let found = texts(&client, &query).await.concat().concat();
                assert_eq!(found, expected, "{query}");
            }
        }
        // Invalid numbers are an error even in records that could be skipped.
        let query = "select count(*) from \"all\" where (value->>'qty')::bigint > 1000";
        assert_eq!(failure(&client, query).await, "22P02");
        let query = "select count(*) from whole where (value->>'qty')::int < -1000";
        assert_eq!(failure(&client, query).await, "22003");
        running.stop().await;
    });
}

/// Both sides of the join have columns of these names.
#[test]
fn conditions_on_a_full_join_read_the_columns_that_they_name() {
    run(async {
        let running = orders().await;
        let quotes = running.topics.create("quotes", 2);
        let quote = [record("a", "{}", 1_000)];
        append(&quotes, 0, &quote, &BatchOptions::default());
        let client = running.client().await;
        let joined = "select o.partition, o.\"offset\", q.\"offset\" from orders o \
             full join quotes q on o.\"offset\" = q.\"offset\" and o.partition = q.partition";
        let swapped = "select o.partition, o.\"offset\", q.\"offset\" from quotes q \
             full join orders o on o.\"offset\" = q.\"offset\" and o.partition = q.partition";
        let rows = [["1", "0", "NULL"], ["1", "2", "NULL"]];
        for filter in [
            "least((o.value->>'qty')::int, o.partition) between 1 \
             and o.\"offset\" + (o.value->>'qty')::bigint",
            "coalesce(least((o.value->>'qty')::int, o.partition), case when o.time is null \
             then o.partition else (o.value->>'qty')::int end) \
             between 1 and o.\"offset\" + (o.value->>'qty')::bigint - (o.value->>'qty')::int + 1",
        ] {
            for query in [joined, swapped] {
                let query = format!("{query} where {filter} order by 1, 2, 3");
                assert_eq!(texts(&client, &query).await, rows, "{query}");
            }
        }
        running.stop().await;
    });
}

#[test]
fn fields_are_looked_for_where_records_are_read() {
    run(async {
        let running = orders().await;
        let client = running.client().await;
        for (query, expected) in [
            (
                "select value->>'symbol', count(*) from orders group by 1",
                "columns=[value#>>{symbol}]",
            ),
            (
                "select value->'tags'->1, key from orders where (value->>'qty')::int > 2",
                "value#>{tags,1}",
            ),
            ("select value from orders where value->>'symbol' = 'IBM'", "value contains \"IBM\""),
            (
                "select value from orders where (value->>'qty')::bigint > 1 \
                 and (value->>'qty')::bigint <= 2",
                "value contains \"qty\":1..2",
            ),
        ] {
            let lines = texts(&client, &format!("explain {query}")).await.concat().join("\n");
            assert!(lines.contains(expected), "{query}: {lines}");
            assert!(!lines.contains("json_"), "{query}: {lines}");
        }
        let both = "select value->'tags'-> -1->'b', value->'tags'->1->'b', value ? 'qty', \
                    value->'qty' from orders where partition = 0 order by \"offset\" limit 2";
        let rows = texts(&client, both).await;
        assert_eq!(rows, [["null", "null", "t", "1"], ["NULL", "NULL", "f", "NULL"]]);
        running.stop().await;
    });
}

#[test]
fn only_what_was_committed_is_seen() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let topic = running.topics.create("orders", 1);
        for (id, marker) in [(1, Some(Marker::Abort)), (2, Some(Marker::Commit)), (3, None)] {
            let producer = Some(BatchProducer { id, epoch: 0, sequence: 0 });
            let options =
                BatchOptions { producer, is_transactional: true, compression: Codec::None };
            append(&topic, 0, &[record("k", &format!("of {id}"), 0)], &options);
            if let Some(marker) = marker {
                let (producer_epoch, coordinator_epoch, unix_ms) = (0, 0, 0);
                let end =
                    TransactionEnd { producer_id: id, producer_epoch, coordinator_epoch, unix_ms };
                append_bytes(&topic, 0, marker.to_batch(end).to_vec());
            }
        }
        append(
            &topic,
            0,
            &[record("k", "behind an open transaction", 0)],
            &BatchOptions::default(),
        );
        let client = running.client().await;
        assert_eq!(texts(&client, "select value from orders").await, [["of 2"]]);
        running.stop().await;
    });
}

#[test]
fn prepared_statements_take_parameters_in_both_formats() {
    run(async {
        let running = orders().await;
        let client = running.client().await;
        let query = "select key, \"offset\", time from orders where partition = $1 and key = $2 \
                     order by \"offset\" limit 1";
        let statement = client.prepare(query).await.expect("a statement");
        for partition in [0_i32, 1] {
            let rows = client.query(&statement, &[&partition, &"b"]).await.expect("rows");
            assert_eq!((rows.len(), rows[0].get::<_, i64>(1)), (1, 1));
            assert_eq!(rows[0].get::<_, &str>(0), "b");
        }
        let row = client
            .query_one(
                "select true, 1::int2, 2::int4, 3::int8, 4::float4, 5.5::float8, 'x'::text",
                &[],
            )
            .await
            .expect("a row");
        assert!(row.get::<_, bool>(0));
        assert_eq!((row.get::<_, i16>(1), row.get::<_, i32>(2), row.get::<_, i64>(3)), (1, 2, 3));
        assert_eq!((row.get::<_, f32>(4), row.get::<_, f64>(5)), (4.0, 5.5));
        assert_eq!(row.get::<_, &str>(6), "x");
        let null: Option<i32> = None;
        let count = "select count(*) from orders where partition = $1";
        let counted = client.query_one(count, &[&null]).await.expect("a row");
        assert_eq!(counted.get::<_, i64>(0), 0);
        running.stop().await;
    });
}

#[test]
fn rows_come_through_portals_and_cursors_in_parts() {
    run(async {
        let running = orders().await;
        let mut client = running.client().await;
        let transaction = client.transaction().await.expect("a transaction");
        let portal = transaction.bind("select key from orders", &[]).await.expect("a portal");
        for expected in [3, 3, 2] {
            assert_eq!(transaction.query_portal(&portal, 3).await.expect("rows").len(), expected);
        }
        transaction.commit().await.expect("an end");
        let script = "begin; declare c no scroll cursor for select key from orders; fetch \
        3 from c; \
                      move 1 in c; fetch forward all from c; close c; commit";
        assert_eq!(texts(&client, script).await.len(), 3 + 4);
        assert_eq!(failure(&client, "declare c cursor for select 1").await, "25P01");
        assert_eq!(failure(&client, "fetch c").await, "34000");
        client.simple_query("declare h cursor with hold for select 1").await.expect("it is held");
        client.simple_query("begin; commit").await.expect("it outlives that");
        assert_eq!(texts(&client, "fetch h").await, [["1"]]);
        running.stop().await;
    });
}

#[test]
fn inserts_are_published_when_their_transaction_commits() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        running.topics.create("orders", 2);
        let client = running.client().await;
        let insert = "insert into orders (key, value, partition) values ($1, $2, $3)";
        let none: Option<&str> = None;
        assert_eq!(client.execute(insert, &[&"k", &none, &1_i32]).await.expect("a row"), 1);
        let count = "select count(*) from orders";
        client
            .simple_query("begin; insert into orders (key) values ('x'), ('y')")
            .await
            .expect("kept");
        assert_eq!(texts(&client, count).await, [["1"]]);
        client.simple_query("rollback").await.expect("dropped");
        client.simple_query("begin; insert into orders (key) values ('x')").await.expect("kept");
        client.simple_query("commit").await.expect("published");
        assert_eq!(texts(&client, count).await, [["2"]]);
        let copy = "insert into orders (key, value, headers, time) select key, 'again', \
                    '{\"h\": \"1\"}', '2026-01-02 03:04:05' from orders";
        assert_eq!(client.execute(copy, &[]).await.expect("rows"), 2);
        let found = texts(
            &client,
            "select key, headers, time from orders where value = 'again' \
                                    order by key",
        );
        let found = found.await;
        assert_eq!(found[0], ["k", r#"{"h": "1"}"#, "2026-01-02 03:04:05+00"]);
        assert_eq!(failure(&client, "insert into nothing (key) values ('x')").await, "42P01");
        running.stop().await;
    });
}

#[test]
fn bytes_that_are_no_text_are_told_of_and_can_be_read() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let topic = running.topics.create("orders", 1);
        let value = Some(vec![0xFF, 0].into());
        let records = [NewRecord { value, ..NewRecord::default() }];
        append(&topic, 0, &records, &BatchOptions::default());
        let client = running.client().await;
        assert_eq!(failure(&client, "select value from orders").await, "22021");
        assert_eq!(texts(&client, "select key from orders").await, [["NULL"]]);
        let row = client.query_one("select value from orders$bytes", &[]).await.expect("a row");
        assert_eq!(row.get::<_, &[u8]>(0), [0xFF, 0]);
        running.stop().await;
    });
}

#[test]
fn a_failed_transaction_takes_nothing_but_its_end() {
    run(async {
        let running = orders().await;
        let client = running.client().await;
        client.simple_query("begin").await.expect("begun");
        assert_eq!(failure(&client, "select * from nothing").await, "42P01");
        assert_eq!(failure(&client, "select 1").await, "25P02");
        client.simple_query("rollback").await.expect("ended");
        assert_eq!(texts(&client, "select 1").await, [["1"]]);
        running.stop().await;
    });
}

#[test]
fn errors_have_postgresqls_codes() {
    run(async {
        let running = orders().await;
        let client = running.client().await;
        for (query, state) in [
            ("selec 1", "42601"),
            ("select 'open", "42601"),
            ("select nothing from orders", "42703"),
            ("select * from nothing", "42P01"),
            ("select no_such_function(1)", "42883"),
            ("select 1/0", "22012"),
            ("select 'x'::int", "22P02"),
            ("update orders set key = 'x'", "0A000"),
            ("set client_encoding = 'latin1'", "22023"),
            ("show no_such_setting", "42704"),
        ] {
            assert_eq!(failure(&client, query).await, state, "{query}");
        }
        running.stop().await;
    });
}

#[test]
fn a_query_of_death_ends_alone() {
    run(async {
        let limits = Limits { query_bytes: 16 << 20, ..Limits::default() };
        let running = Running::start(limits, false).await;
        running.topics.create("orders", 1);
        let client = running.client().await;
        let other = running.client().await;
        let deep = format!("select {}1{}", "(".repeat(10_000), ")".repeat(10_000));
        let wide = format!("select 1{}", " or true".repeat(100_000));
        let chain = format!("select 1 where true{}", " and 1 = 1".repeat(249));
        let list = format!("select 1 in ({})", vec!["7"; 8_000].join(","));
        let cross = "select count(*) from generate_series(1, 100000) a, \
        generate_series(1, 100000) b, \
                     generate_series(1, 100000) c";
        let sort = "select * from generate_series(1, 100000000) order by 1 desc";
        client.simple_query("set statement_timeout = '300ms'").await.expect("set");
        assert_eq!(failure(&client, &deep).await, "54001");
        assert_eq!(failure(&client, &wide).await, "54001");
        assert_eq!(failure(&client, cross).await, "57014");
        client.simple_query("set statement_timeout = 0").await.expect("set");
        assert_eq!(failure(&client, sort).await, "53200");
        assert_eq!(texts(&client, &chain).await, [["1"]]);
        assert_eq!(texts(&client, &list).await, [["f"]]);
        assert_eq!(texts(&other, "select 1").await, [["1"]]);
        assert_eq!(running.server.memory_bytes(), 0);
        running.stop().await;
    });
}

#[test]
fn statements_are_cancelled_by_their_client_and_their_host() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let client = running.client().await;
        let token = client.cancel_token();
        for by_host in [false, true] {
            let query = client.simple_query(ENDLESS);
            let cancel = async {
                loop {
                    let running_now = running.server.running();
                    if let Some(info) = running_now.first() {
                        assert!(info.text.contains("generate_series"));
                        match by_host {
                            true => assert!(running.server.cancel(info.id)),
                            false => {
                                let none = tokio_postgres::NoTls;
                                token.cancel_query(none).await.expect("it is asked");
                            }
                        }
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            let (ended, ()) = tokio::join!(query, cancel);
            let error = ended.expect_err("it was cancelled");
            assert_eq!(error.code().map(|it| it.code()), Some("57014"));
        }
        assert!(!running.server.cancel(1_000_000));
        running.stop().await;
    });
}

#[test]
fn no_cancellation_is_lost_between_planning_and_running() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let client = running.client().await;
        let prepared = client.prepare(ENDLESS).await.expect("it is planned");
        for step in 0..100 {
            let query = async {
                match step % 2 {
                    0 => client.simple_query(ENDLESS).await.map(drop),
                    _ => client.query(&prepared, &[]).await.map(drop),
                }
            };
            let cancel = async {
                let id = loop {
                    match running.server.running().first() {
                        Some(info) => break info.id,
                        None => tokio::task::yield_now().await,
                    }
                };
                tokio::time::sleep(Duration::from_micros(100 * step)).await;
                assert!(running.server.cancel(id), "step {step}");
            };
            let (ended, ()) = tokio::join!(query, cancel);
            let error = ended.expect_err("it was cancelled");
            assert_eq!(error.code().map(|it| it.code()), Some("57014"), "step {step}");
        }
        running.stop().await;
    });
}

#[test]
fn a_join_that_finds_no_rows_ends_at_its_timeout() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let client = running.client().await;
        client.batch_execute("set statement_timeout = 300").await.expect("it is set");
        for condition in ["a + b < 0", "a < 0 - b or a is null", "a + b is not distinct from 0"] {
            let error = client.simple_query(&format!("{ENDLESS} where {condition}")).await;
            let error = error.expect_err("it would take hours");
            assert_eq!(error.code().map(|it| it.code()), Some("57014"), "{condition}");
        }
        running.stop().await;
    });
}

#[test]
fn users_log_in_and_see_what_they_may() {
    run(async {
        let running = Running::start(Limits::default(), true).await;
        running.topics.create("orders", 1);
        running.topics.create("secrets", 1);
        let reader = running.client_as("reader").await.expect("the secret is right");
        assert_eq!(texts(&reader, "select current_user").await, [["reader"]]);
        assert_eq!(texts(&reader, "select count(*) from orders").await, [["0"]]);
        assert_eq!(failure(&reader, "select count(*) from secrets").await, "42P01");
        assert_eq!(failure(&reader, "insert into orders (key) values ('x')").await, "42501");
        for (user, secret) in [("reader", "wrong"), ("nobody", support::SECRET)] {
            let error = running.client_with(user, secret).await.map(drop).expect_err("refused");
            assert_eq!(error.code().map(|it| it.code()), Some("28P01"), "{error}");
        }
        running.stop().await;
    });
}

#[test]
fn who_asks_on_behalf_of_a_user_may_what_both_may_and_sees_what_is_that_users() {
    run(async {
        let running = Running::start(Limits::default(), true).await;
        running.topics.create("orders", 1);
        running.topics.create("secrets", 1);
        let asking = async |user: &str, more: &str| {
            let client = running.client_saying(user, support::SECRET, more).await;
            client.expect("the secret is right")
        };
        let read_only = "-c default_transaction_read_only=on --memlane.on-behalf-of=reader";
        let for_reader = asking("admin", read_only).await;
        let names = texts(&for_reader, "select current_user, session_user").await;
        assert_eq!(names, [["reader", "admin"]]);
        assert_eq!(texts(&for_reader, "select count(*) from orders").await, [["0"]]);
        assert_eq!(failure(&for_reader, "select count(*) from secrets").await, "42P01");
        assert_eq!(failure(&for_reader, "subscribe to secrets").await, "42P01");
        // Given at login.
        assert_eq!(failure(&for_reader, "insert into orders (key) values ('x')").await, "25006");
        for change in ["set memlane.on_behalf_of = admin", "reset memlane.on_behalf_of"] {
            assert_eq!(failure(&for_reader, change).await, "22023", "{change}");
        }
        // No other way to reset the session restores a permission, whether it fails or not.
        for change in [
            "reset all",
            "discard all",
            "set role admin",
            "set role none",
            "reset role",
            "set session authorization admin",
            "set session authorization default",
            "reset session authorization",
            "set local memlane.on_behalf_of = admin",
            "select set_config('memlane.on_behalf_of', 'admin', false)",
            "select set_config('role', 'admin', false)",
            "select set_config('session_authorization', 'admin', false)",
        ] {
            let _refused_or_not = for_reader.simple_query(change).await;
            let seen = texts(&for_reader, "select current_user").await;
            assert_eq!(seen, [["reader"]], "{change}");
            let secrets = "select count(*) from secrets";
            assert_eq!(failure(&for_reader, secrets).await, "42P01", "{change}");
        }
        texts(&for_reader, "set default_transaction_read_only = on").await;
        texts(&for_reader, "set default_transaction_read_only = off").await;
        assert_eq!(failure(&for_reader, "insert into orders (key) values ('x')").await, "42501");
        // Acting for another user grants no permission.
        let for_admin = asking("reader", "-c memlane.on_behalf_of=admin").await;
        assert_eq!(failure(&for_admin, "select count(*) from secrets").await, "42P01");
        let odd = running.client_saying("admin", support::SECRET, "-c memlane.on_behalf_of=");
        let odd = odd.await.map(drop).expect_err("there is no such user");
        assert_eq!(odd.code().map(|it| it.code()), Some("22023"), "{odd}");

        let seen = "select usename from pg_stat_activity order by pid";
        let again = asking("admin", read_only).await;
        assert_eq!(texts(&again, seen).await, [["reader"], ["reader"]]);
        let counted = "select count(*) from pg_stat_statements where query like '%orders%'";
        let for_other = asking("admin", "-c memlane.on_behalf_of=reader2").await;
        assert_ne!(texts(&again, counted).await, [["0"]]);
        assert_eq!(texts(&for_other, counted).await, [["0"]]);
        running.stop().await;
    });
}

#[test]
fn a_field_that_is_read_in_several_places_above_an_outer_join_is_planned() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let topic = running.topics.create("left", 1);
        let records = [r#"{"s": "a", "qty": 7}"#, r#"{"s": "a", "qty": -7}"#, r#"{"s": "b"}"#];
        let records = records.map(|value| record("k", value, 1_000));
        append(&topic, 0, &records, &BatchOptions::default());
        let topic = running.topics.create("right", 1);
        append(&topic, 0, &[record("a", "{}", 1_000)], &BatchOptions::default());
        let client = running.client().await;
        let query = "SELECT coalesce((l.value->>'price')::float8, (l.value->>'qty')::int::float8) \
                     FROM \"left\" l RIGHT JOIN \"right\" r ON l.value->>'s' = r.key \
                     WHERE (l.value->>'qty')::int / -3 <= (l.value->>'qty')::int";
        assert_eq!(texts(&client, query).await, [["7"]]);
        running.stop().await;
    });
}

/// Text that a value has in the format of its column's type.
struct Sent(Vec<u8>);

impl<'a> FromSql<'a> for Sent {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(raw.to_vec()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

#[test]
fn numerics_have_the_scale_of_each_value() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let client = running.client().await;
        for (query, expected) in [
            ("1.0 / 1", "1.00000000000000000000"),
            ("3 / 2.0", "1.5000000000000000"),
            ("1.5 / 1", "1.50000000000000000000"),
            ("0 / 3.0", "0.00000000000000000000"),
            ("(10 / 4.0)::text || 'x'", "2.5000000000000000x"),
            ("sqrt(4.0)", "2.000000000000000"),
            ("2.0 ^ 3", "8.0000000000000000"),
            ("avg(x) FROM (VALUES (1),(2)) t(x)", "1.5000000000000000"),
            ("sum(x::numeric) FROM (VALUES ('1.50'),('2')) t(x)", "3.50"),
            ("x::numeric FROM (VALUES ('1.50')) t(x)", "1.50"),
            ("x FROM (VALUES (1),(2.5)) t(x) ORDER BY x LIMIT 1", "1"),
            ("x * 2 FROM (VALUES (1),(2.5)) t(x) ORDER BY x DESC LIMIT 1", "5.0"),
            ("CASE WHEN x > 1 THEN 1 ELSE 2.50 END FROM (VALUES (2)) t(x)", "1"),
            ("coalesce(x::numeric(10,2), 0.5) FROM (VALUES ('1')) t(x)", "1.00"),
            ("greatest(1, 2.5, 3)", "3"),
            ("q FROM (SELECT 1 AS q UNION ALL SELECT 2.5) s ORDER BY q LIMIT 1", "1"),
            ("trunc(x) FROM (VALUES (42.8)) t(x)", "42"),
        ] {
            let query = format!("SELECT {query}");
            assert_eq!(texts(&client, &query).await, [[expected]], "{query}");
        }
        // In binary, the last of the four leading fields is the scale.
        let row = client.query_one("SELECT avg(x) FROM (VALUES (1),(2)) t(x)", &[]).await;
        let Sent(bytes) = row.expect("a row").get(0);
        assert_eq!(bytes, [0, 2, 0, 0, 0, 0, 0, 16, 0, 1, 19, 136]);
        running.stop().await;
    });
}

#[test]
fn columns_are_described_by_the_types_of_their_casts() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let client = running.client().await;
        let types = async |query: &str| -> Vec<Type> {
            let statement = client.prepare(query).await.expect(query);
            statement.columns().iter().map(|it| it.type_().clone()).collect()
        };
        let found = types("SELECT 'a'::varchar(5), current_user, 3 / 2.0, 'b'::varchar || 'c'");
        assert_eq!(found.await, [Type::VARCHAR, Type::NAME, Type::NUMERIC, Type::TEXT]);
        assert_eq!(types("SELECT pg_typeof(1)").await, [Type::REGTYPE]);
        let row = client.query_one("SELECT pg_typeof(1)", &[]).await.expect("a row");
        let Sent(oid) = row.get(0);
        assert_eq!(oid, Type::INT4.oid().to_be_bytes());
        running.stop().await;
    });
}
