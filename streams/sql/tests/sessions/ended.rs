//! Expensive statements, one for each phase of processing, end soon after cancellation, timeout, or
//! disconnection. The limit is relative to the time of `SHOW` at the same moment.

use std::time::{Duration, Instant};

use sql::{Limits, Server};

use crate::raw::{RawClient, executed, message, query};
use crate::support::{Running, run};

const ENDLESS: &str =
    "select count(*) from generate_series(1, 1000000) a, generate_series(1, 1000000) b";

const ROWS: &str = "select v, repeat('x', 1000) from generate_series(1, 1000000000) t(v)";

/// Maximum time until a statement has ended, in multiples of the time of `SHOW`. Running to
/// completion takes thousands of them.
const TIMES_MAX: u32 = 100;

/// Number of attempts, of which the best counts. On a busy host any single one may take longer.
const TRY_COUNT: usize = 5;

/// Time limit for observing that a statement with a timeout is running.
const SEEN_TIME_MAX: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Cancelled,
    TimedOut,
    Disconnected,
}

/// An expensive statement, and messages to process before it.
struct Harm {
    name: &'static str,
    before: Vec<Vec<u8>>,
    sent: Vec<u8>,
}

impl Harm {
    fn new(name: &'static str, sent: Vec<u8>) -> Self {
        Self { name, before: Vec::new(), sent }
    }

    fn after(self, before: &[&str]) -> Self {
        Self { before: before.iter().map(|it| query(it)).collect(), ..self }
    }
}

fn statements() -> Vec<Harm> {
    let list = |item: &str, count: usize| vec![item; count].join(",");
    let sum = format!("select {}", vec!["1"; 400].join("+"));
    let values = format!("select count(*) from (values {}) v", list("(1, 'a')", 35_000));
    let ctes = (0..200).map(|it| format!("c{it} as (select {it} as x)")).collect::<Vec<_>>();
    let names = (0..200).map(|it| format!("c{it}")).collect::<Vec<_>>();
    let joined = format!("with {} select count(*) from {}", ctes.join(","), names.join(","));
    let rows = "some text\n".repeat(400_000);
    let endless_cursor = format!("declare c cursor for {ENDLESS}");
    // Searches 24 MB for each condition before it is asked for the next rows.
    let conditions = (0..6).map(|it| format!("v ~ '(a|b)*c{it}'")).collect::<Vec<_>>().join(" or ");
    let long_batch = format!(
        "select count(*) from (select repeat('a', 3000) || v from generate_series(1, 8000) s(v)) \
         t(v) where {conditions}"
    );
    vec![
        Harm::new("long sum", query(&sum)),
        Harm::new("long VALUES", query(&values)),
        Harm::new("joined WITH", query(&joined)),
        Harm::new("parsed and described alone", executed(&sum)),
        Harm::new("EXPLAIN", query(&format!("explain {sum}"))),
        Harm::new("endless join", query(ENDLESS)),
        Harm::new("endless join, executed", executed(ENDLESS)),
        Harm::new("EXPLAIN ANALYZE", query(&format!("explain analyze {ENDLESS}"))),
        Harm::new("INSERT", query(&format!("insert into orders (value) {ENDLESS}"))),
        Harm::new("slow reader", query(ROWS)),
        Harm::new("slow reader of COPY", query(&format!("copy ({ROWS}) to stdout"))),
        Harm::new("COPY FROM without rows", query("copy orders (value) from stdin")),
        Harm::new(
            "COPY FROM of a long message",
            [query("copy orders (value) from stdin"), message(b'd', rows.as_bytes())].concat(),
        ),
        Harm::new("FETCH", query("fetch 1 from c")).after(&["begin", &endless_cursor]),
        Harm::new("MOVE", query("move all in c")).after(&["begin", &endless_cursor]),
        Harm::new("long batch", query(&long_batch)),
    ]
}

fn is_running(server: &Server, id: i32) -> bool {
    server.running().iter().any(|it| it.id == id)
}

/// Returns the time from the event until the statement has ended, or `None` if it was not running.
fn time_to_end(server: &Server, port: u16, harm: &Harm, end: End) -> Option<Duration> {
    let mut client = RawClient::connect(port);
    for before in &harm.before {
        client.write(before);
        assert!(client.until(b'Z').iter().all(|it| it.0 != b'E'), "{}", harm.name);
    }
    let time = Duration::from_millis(50);
    if end == End::TimedOut {
        client.write(&query("set statement_timeout = '50ms'"));
        client.until(b'Z');
    }
    let id = client.id;
    client.write(&harm.sent);
    let begun = Instant::now();
    while !is_running(server, id) {
        // The timeout may have passed before this thread observes the statement.
        if end == End::TimedOut && begun.elapsed() > SEEN_TIME_MAX {
            return Some(Duration::ZERO);
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{} does not run", harm.name);
        std::thread::yield_now();
    }
    match end {
        End::TimedOut => {}
        _ => std::thread::sleep(time),
    }
    let asked = Instant::now();
    match end {
        End::Cancelled if !server.cancel(id) => return None,
        End::Cancelled | End::TimedOut => {}
        End::Disconnected => drop(client),
    }
    while is_running(server, id) {
        std::thread::yield_now();
    }
    Some(match end {
        End::TimedOut => asked.elapsed().saturating_sub(time),
        _ => asked.elapsed(),
    })
}

/// Returns the longest of several times of `SHOW`, as a measure of the current load.
fn time_of_one(port: u16) -> Duration {
    let mut client = RawClient::connect(port);
    let times = (0..5).map(|_| {
        let begun = Instant::now();
        client.write(&query("show timezone"));
        client.until(b'Z');
        begun.elapsed()
    });
    times.max().expect("some")
}

fn check(end: End, is_meant: fn(&Harm) -> bool) {
    run(async move {
        let running = Running::start(Limits::default(), false).await;
        running.topics.create("orders", 1);
        let (port, server) = (running.port, running.server.clone());
        let tried = tokio::task::spawn_blocking(move || {
            for harm in statements().iter().filter(|it| is_meant(it)) {
                let mut tries = Vec::new();
                let is_soon = (0..TRY_COUNT).any(|_| {
                    let time = time_to_end(&server, port, harm, end);
                    let one = time_of_one(port);
                    tries.push((time, one));
                    time.is_some_and(|time| time <= one * TIMES_MAX)
                });
                assert!(is_soon, "{}, {end:?}: times and those of one: {tries:?}", harm.name);
            }
        });
        tried.await.expect("all went well");
        running.stop().await;
    });
}

#[test]
fn statements_end_soon_after_they_are_cancelled() {
    check(End::Cancelled, |_| true);
}

#[test]
fn statements_end_soon_after_their_time() {
    // A long message takes time to arrive.
    check(End::TimedOut, |it| !it.name.contains("long message"));
}

#[test]
fn statements_end_soon_after_their_client_has_gone() {
    // A disconnection is not detected if the client has sent more than is read ahead.
    check(End::Disconnected, |it| !it.name.contains("long message"));
}
