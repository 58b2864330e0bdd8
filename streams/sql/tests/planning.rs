//! Planning time grows linearly with the length of a statement. Measured as CPU time of the
//! process, which depends little on the host's load. The only test in its process.

#[expect(dead_code, reason = "other suites use more of it")]
mod support;

use std::time::Duration;

use record_batch::{BatchOptions, NewRecord};
use rustix::time::{ClockId, clock_gettime};
use sql::Limits;
use support::{Running, append, run};
use tokio_postgres::Client;

/// Ratio of the sizes of the longer and the shorter statement of a pair.
const TIMES: usize = 4;

/// Maximum ratio of their times. Quadratic growth would result in a ratio of sixteen.
const WORK_TIMES_MAX: u32 = 8;

/// Number of times that each statement is planned. The shortest time counts.
const TRY_COUNT: usize = 3;

/// Number of attempts for a pair of statements to meet the limit.
const ROUND_COUNT: usize = 5;

fn list(part: impl Fn(usize) -> String, between: &str, count: usize) -> String {
    (0..count).map(part).collect::<Vec<_>>().join(between)
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let (seconds, nanoseconds) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds)
}

/// Returns the shortest CPU time for planning a statement.
async fn work(client: &Client, query: &str) -> Duration {
    let mut least = Duration::MAX;
    for _ in 0..TRY_COUNT {
        let begin = processor_time();
        let planned = client.simple_query(query).await;
        least = least.min(processor_time() - begin);
        planned.unwrap_or_else(|error| panic!("{}: {error:?}", &query[..query.len().min(80)]));
    }
    least
}

type Query = fn(usize) -> String;

/// Statements as a function of the number of their parts, with the number for the shorter one.
const STATEMENTS: &[(&str, usize, Query)] = &[
    ("a sum of literals", 110, |count| {
        format!("explain select {}", list(|_| "1".to_owned(), "+", count))
    }),
    ("a sum of columns", 110, |count| {
        let sum = list(|_| "\"offset\"".to_owned(), " + ", count);
        format!("explain select {sum} from orders")
    }),
    ("a text of many", 110, |count| {
        format!(
            "explain select {} from orders",
            list(|it| format!("key || '{it}'"), " || ", count / 2)
        )
    }),
    ("casts of casts", 12, |count| {
        format!("explain select \"offset\"{} from orders", "::text".repeat(count))
    }),
    ("conditions that all hold", 60, |count| {
        let all = list(|it| format!("\"offset\" <> {it}"), " and ", count);
        format!("explain select count(*) from orders where {all}")
    }),
    ("conditions of which one holds", 60, |count| {
        let any = list(|it| format!("key like '%{it}'"), " or ", count);
        format!("explain select count(*) from orders where {any}")
    }),
    ("branches", 100, |count| {
        let branches = list(|it| format!("when \"offset\" = {it} then 'b{it}'"), " ", count);
        format!("explain select case {branches} end from orders")
    }),
    ("a list after IN", 1_000, |count| {
        let literals = list(|it| it.to_string(), ", ", count);
        format!("explain select count(*) from orders where \"offset\" in ({literals})")
    }),
    ("rows of VALUES", 1_000, |count| {
        format!(
            "explain select count(*) from (values {}) v",
            list(|it| format!("({it}, 'a')"), ",", count)
        )
    }),
    ("calls in calls", 12, |count| {
        format!("explain select {}key{} from orders", "upper(".repeat(count), ")".repeat(count))
    }),
    ("queries of WITH", 60, |count| {
        let queries = list(|it| format!("c{it} as (select {it} as x)"), ", ", count);
        format!("explain with {queries} select x from c0")
    }),
    ("options", 4_000, |count| {
        let options = list(|_| "verbose".to_owned(), ", ", count);
        format!("explain ({options}) select 1")
    }),
    ("modes", 2_000, |count| {
        format!("begin {}; commit", list(|_| "read only".to_owned(), ", ", count))
    }),
    ("columns", 400, |count| {
        format!(
            "explain select {} from orders",
            list(|it| format!("\"offset\" + {it}"), ", ", count / 4)
        )
    }),
];

#[test]
fn work_grows_as_the_text_of_a_statement_does() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let orders = running.topics.create("orders", 1);
        let (key, value) = (Some("k".into()), Some("{}".into()));
        let record = NewRecord { key, value, headers: Vec::new(), timestamp_ms: 1 };
        append(&orders, 0, &[record], &BatchOptions::default());
        let client = running.client().await;
        let mut uneven = Vec::new();
        for (name, count, query) in STATEMENTS {
            let (short, long) = (query(*count), query(count * TIMES));
            let (mut seen, mut is_even) = (Vec::new(), false);
            while !is_even && seen.len() < ROUND_COUNT {
                let pair = (work(&client, &short).await, work(&client, &long).await);
                is_even = pair.1 <= pair.0 * WORK_TIMES_MAX;
                seen.push(pair);
            }
            if !is_even {
                uneven.push((name, seen));
            }
        }
        assert!(uneven.is_empty(), "{uneven:?}");
        running.stop().await;
    });
}
