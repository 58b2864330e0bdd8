//! Prepared statements whose tables have changed since, and statements that name a topic more than
//! once during writes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use access::Principal;
use record_batch::{BatchOptions, NewRecord};
use record_log::Topic;
use sql::{Client as Asking, DefinitionKind, Host, Limits, NewDefinition};

use crate::support::{Running, append, failure, run, texts};

/// Returns the client that defines views.
fn asking(running: &Running) -> Asking {
    let principal = Principal::user("admin").expect("a name");
    let address = SocketAddr::from(([127, 0, 0, 1], running.port));
    let place = running.topics.connect(&principal, address.ip()).expect("there is room");
    Asking { principal, on_behalf_of: None, address, place }
}

fn code(error: &tokio_postgres::Error) -> String {
    error.code().unwrap_or_else(|| panic!("{error:?}")).code().to_owned()
}

#[test]
fn a_prepared_statement_sees_that_its_table_is_gone_or_another_one() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        running.topics.create("orders", 1);
        let client = running.client().await;
        let create = async |columns: &str| {
            let options = "with (topic = 'orders', format = 'json')";
            let text = format!("create table t ({columns}) {options}");
            client.simple_query(&text).await.expect("a table");
        };
        let drop_it = async || client.simple_query("drop table t").await.map(drop).expect("gone");
        create("n bigint").await;
        client.simple_query("insert into t (n) values (5)").await.expect("a row");
        let all = client.prepare("select * from t").await.expect("good");
        let one = client.prepare("select n from t where partition = $1").await.expect("good");
        let insert = client.prepare("insert into t (n) values ($1)").await.expect("good");
        assert_eq!(client.query_one(&one, &[&0_i32]).await.expect("a row").get::<_, i64>(0), 5);

        drop_it().await;
        for statement in [&all, &insert] {
            let parameters: &[&(dyn tokio_postgres::types::ToSql + Sync)] = &[&1_i64];
            let parameters = &parameters[..statement.params().len()];
            let error = client.query(statement, parameters).await.expect_err("it is gone");
            assert_eq!(code(&error), "42P01");
        }
        // A new table of the same name, with the column at another path.
        create("n bigint path '$.m', more text").await;
        client.simple_query("insert into t (n, more) values (7, 'x')").await.expect("a row");
        let found = client.query(&one, &[&0_i32]).await.expect("rows");
        let found: Vec<Option<i64>> = found.iter().map(|row| row.get(0)).collect();
        assert_eq!(found, [None, Some(7)]);
        client.execute(&insert, &[&9_i64]).await.expect("it goes where the column lies now");
        let values = texts(&client, "select value from orders where \"offset\" = 2").await;
        assert_eq!(values.concat(), [r#"{"m": 9}"#]);
        // The client was told about different columns.
        let error = client.query(&all, &[]).await.expect_err("other columns");
        assert_eq!(code(&error), "0A000");
        let message = error.as_db_error().expect("of the server").message();
        assert_eq!(message, "cached plan must not change result type");
        drop_it().await;
        create("n text").await;
        let error = client.query(&one, &[&0_i32]).await.expect_err("another type");
        assert_eq!(code(&error), "0A000");

        let of_topic = client.prepare("select key from orders").await.expect("good");
        let by_key = client.prepare("select value from \"orders$current\" where key = $1").await;
        let by_key = by_key.expect("good");
        running.topics.forget("orders");
        assert_eq!(code(&client.query(&of_topic, &[]).await.expect_err("gone")), "42P01");
        assert_eq!(code(&client.query(&by_key, &[&"a"]).await.expect_err("gone")), "42P01");
        running.topics.create("orders", 1);
        assert_eq!(client.query(&of_topic, &[]).await.expect("there again").len(), 0);
        running.stop().await;
    });
}

#[test]
fn a_prepared_statement_sees_that_its_view_was_made_anew() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        running.topics.create("orders", 1);
        running.topics.create("v", 1);
        let asking = asking(&running);
        let define = async |query: &str| {
            let statement = format!("CREATE MATERIALIZED VIEW v AS {query}");
            let (name, kind) = ("v".to_owned(), DefinitionKind::View);
            running.topics.forget("v");
            let new = NewDefinition { name, kind, statement };
            running.topics.define(&asking, new).await.expect("a view");
            running.topics.create("v", 1);
        };
        define("SELECT value->>'a' AS a, count(*) AS n FROM orders GROUP BY 1").await;
        let client = running.client().await;
        let all = client.prepare("select * from v").await.expect("good");
        let one = client.prepare("select n from v").await.expect("good");
        let other = client.prepare("select a from v").await.expect("good");
        let live = client.prepare("subscribe to v").await.expect("good");
        running.topics.undefine(&asking, DefinitionKind::View, "v").await.expect("it is there");
        define("SELECT value->>'b' AS b, count(*) AS n FROM orders GROUP BY 1").await;
        let result = |query: &tokio_postgres::Statement| {
            let query = query.clone();
            let client = &client;
            async move { client.query(&query, &[]).await.map(|it| it.len()) }
        };
        assert_eq!(code(&result(&all).await.expect_err("other columns")), "0A000");
        assert_eq!(code(&result(&other).await.expect_err("no such column")), "42703");
        assert_eq!(result(&one).await.expect("the same column"), 0);
        assert_eq!(code(&result(&live).await.expect_err("other columns")), "0A000");
        assert_eq!(failure(&client, "select a from v").await, "42703");
        running.stop().await;
    });
}

/// Writes records as long as `left` permits. Returns their total number.
fn write_on(topic: &Topic, left: &AtomicI64, is_over: &AtomicBool) -> i64 {
    let mut count = 0_i64;
    while !is_over.load(Ordering::Relaxed) {
        std::thread::yield_now();
        if left.load(Ordering::Relaxed) == 0 {
            continue;
        }
        left.fetch_sub(1, Ordering::Relaxed);
        let (key, partition) = (count % 40, u32::try_from(count % 2).expect("small"));
        // Some records delete keys.
        let value = (count % 7 > 0).then(|| format!("{{\"n\": {count}}}").into());
        let key = Some(format!("k{key}").into());
        let record = NewRecord { key, value, timestamp_ms: 1_000, headers: Vec::new() };
        append(topic, partition, &[record], &BatchOptions::default());
        count += 1;
    }
    count
}

/// Both sides of a join see the same records, in spite of concurrent writes.
#[test]
fn a_statement_that_names_a_topic_twice_sees_it_once() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let topic = running.topics.create("orders", 2);
        // Limits the writes during a query to what it can read.
        let left = Arc::new(AtomicI64::new(0));
        let is_over = Arc::new(AtomicBool::new(false));
        let writer = {
            let (left, is_over) = (Arc::clone(&left), Arc::clone(&is_over));
            std::thread::spawn(move || write_on(&topic, &left, &is_over))
        };
        let client = running.client().await;
        let current = "\"orders$current\"";
        let of = |left: &str, right: &str, on: &str, more: &str| {
            format!(
                "select count(*) from {left} a full join {right} b on {on} where \
                 (a.partition is null or b.partition is null) {more}"
            )
        };
        let same = "a.partition = b.partition and a.\"offset\" = b.\"offset\"";
        let queries = [
            of("orders", "orders", same, ""),
            of(current, current, same, ""),
            of("(select * from orders limit 1000000000)", "orders", same, ""),
            of(
                &format!("(select * from {current} where key = 'k3')"),
                &format!("(select * from {current} where key || '' = 'k3')"),
                same,
                "",
            ),
            // Each current value is the last record of its key in the log.
            format!(
                "select count(*) from {current} a full join (select partition, key, \
                 max(\"offset\") as last from orders group by partition, key) b on \
                 a.partition = b.partition and a.key = b.key where a.\"offset\" <> b.last \
                 or b.key is null"
            ),
            "select (select count(*) from orders) - (select count(*) from orders)".to_owned(),
            "with all_of as (select * from orders) select (select max(\"offset\") from all_of) \
             - (select max(\"offset\") from all_of where partition >= 0)"
                .to_owned(),
        ];
        for _ in 0..5 {
            for query in &queries {
                left.store(1_500, Ordering::Relaxed);
                // The query starts while the writer is active.
                while left.load(Ordering::Relaxed) == 1_500 {
                    tokio::task::yield_now().await;
                }
                let found = texts(&client, query).await.concat();
                assert_eq!(found, ["0"], "{query}");
            }
        }
        is_over.store(true, Ordering::Relaxed);
        let written = writer.join().expect("it writes");
        assert!(written >= 35, "only {written} records were written meanwhile");
        running.stop().await;
    });
}
