//! Panics at any point of a statement, in a process that is terminated by all other panics.

mod support;

use std::panic;
use std::sync::atomic::Ordering;

use record_batch::{BatchOptions, NewRecord};
use sql::Limits;
use support::{PLANTED, Running, append, failure, run, texts};
use tokio_postgres::Client;

/// Point reads and scans, on the connection's thread and on others, directly and with cursors.
const STATEMENTS: &[&str] = &[
    "SELECT count(*) FROM orders",
    "SELECT value FROM \"orders$current\" WHERE key = 'k1'",
    "SELECT a.key, count(*) FROM orders a JOIN orders b ON a.key = b.key GROUP BY a.key",
    "SELECT count(*) FROM \"orders$current\" a, orders b WHERE a.key < b.key",
    "EXPLAIN ANALYZE SELECT max(value) FROM \"orders$current\"",
    "BEGIN; DECLARE c CURSOR FOR SELECT * FROM orders; FETCH 2 FROM c; COMMIT",
    "INSERT INTO plain (value) VALUES ('a')",
    "SELECT relname FROM pg_class WHERE relname = 'orders'",
];

/// Maximum number of host calls in a statement.
const QUESTION_COUNT_MAX: u64 = 10_000;

/// Panic of a task that shares a future with the task that panicked first.
const SHARED: &str = "inner future panicked during poll";

/// Terminates the process on a panic, as in the programs, except for planted ones.
fn die_of_panics() {
    let tell = panic::take_hook();
    panic::set_hook(Box::new(move |it| {
        let text = it.to_string();
        if !text.ends_with(PLANTED) && !text.ends_with(SHARED) {
            tell(it);
        }
    }));
    service_manager::die_of_panics();
}

/// Runs a statement. Returns the SQLSTATE of its failure, or `None` if its connection was closed.
async fn outcome(client: &Client, statement: &str) -> Result<(), Option<String>> {
    let done = client.simple_query(statement).await;
    done.map(drop).map_err(|error| error.code().map(|it| it.code().to_owned()))
}

#[test]
fn statements_that_panic_end_alone() {
    die_of_panics();
    run(async {
        let server = Running::start(Limits::default(), false).await;
        let orders = server.topics.create("orders", 2);
        server.topics.create("plain", 1);
        for number in 0..4_u32 {
            let key = Some(format!("k{number}").into());
            let value = Some("{\"n\": 1}".into());
            let record = NewRecord { key, value, headers: Vec::new(), timestamp_ms: 1 };
            append(&orders, number % 2, &[record], &BatchOptions::default());
        }
        let other = server.client().await;
        let mut client = server.client().await;
        for statement in STATEMENTS {
            let (mut failed, mut ended) = (0, 0);
            for count in 1.. {
                assert!(count < QUESTION_COUNT_MAX, "{statement}");
                server.topics.until_panic.store(count, Ordering::Relaxed);
                let outcome = outcome(&client, statement).await;
                let left = server.topics.until_panic.swap(0, Ordering::Relaxed);
                match outcome {
                    Ok(()) => assert!(left > 0, "{statement}: the panic was passed over"),
                    Err(Some(state)) => {
                        assert_eq!(state, "XX000", "{statement}");
                        failed += 1;
                        roll_back(&client).await;
                    }
                    Err(None) => {
                        ended += 1;
                        client = server.client().await;
                    }
                }
                assert_eq!(texts(&other, "SELECT 1").await, [["1"]]);
                while server.server.memory_bytes() > 0 || !server.server.running().is_empty() {
                    tokio::task::yield_now().await;
                }
                if left > 0 {
                    break;
                }
            }
            assert!(failed > 0 && ended == 0, "{statement}: {failed} failed, {ended} ended");
        }
        // All permits were released: the same statements run.
        for statement in STATEMENTS {
            outcome(&client, statement).await.expect(statement);
        }
        server.topics.forget("plain");
        assert_eq!(failure(&client, "INSERT INTO plain (value) VALUES ('b')").await, "42P01");
        server.stop().await;
    });
}

/// Ends a transaction that failed by a panic.
async fn roll_back(client: &Client) {
    outcome(client, "ROLLBACK").await.expect("there may be no transaction to end");
}
