//! Malicious statements and clients: each fails alone, without an effect on others.

mod support;

use std::time::Duration;

use futures::StreamExt;
use sql::{Limits, Server};
use support::{Running, failure, run, texts};
use tokio_postgres::Client;

const ENDLESS: &str =
    "select count(*) from generate_series(1, 1000000) a, generate_series(1, 1000000) b";

const ROWS: &str = "select * from generate_series(1, 1000000000)";

/// Nests `inner` `depth` times between `before` and `after`.
fn nested(before: &str, inner: &str, after: &str, depth: usize) -> String {
    format!("select {}{inner}{}", before.repeat(depth), after.repeat(depth))
}

/// Waits until `count` statements are running or waiting for a permit.
async fn running_count(server: &Server, count: usize) {
    while server.running().len() != count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Runs `meanwhile` during a statement. Returns the SQLSTATE with which the statement fails.
async fn failure_while(
    client: &Client,
    query: &str,
    meanwhile: impl Future<Output = ()>,
) -> String {
    tokio::join!(failure(client, query), meanwhile).0
}

#[test]
fn what_nests_as_deep_as_allowed_is_answered() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let client = running.client().await;
        let twice = ["with c0 as (select 1 as x)".to_owned()].into_iter().chain((1..8).map(|it| {
            let before = it - 1;
            format!(", c{it} as (select a.x from c{before} a join c{before} b on a.x = b.x)")
        }));
        for (query, expected) in [
            (nested("upper(", "'x'", ")", 50), "X"),
            (nested("(", "1", ")", 50), "1"),
            (nested("cast(", "1", " as text)", 49), "1"),
            (nested("case when true then ", "1", " end", 100), "1"),
            (nested("coalesce(upper(", "'x'", "), 'y')", 5), "X"),
            (format!("{}select count(*) from c7", twice.collect::<String>()), "1"),
            (format!("select {}true", "not ".repeat(100)), "t"),
        ] {
            assert_eq!(texts(&client, &query).await, [[expected]], "{query}");
        }
        running.stop().await;
    });
}

#[test]
fn what_would_take_too_long_to_plan_is_refused() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        running.topics.create("orders", 1);
        let client = running.client().await;
        let list = |item: &str, count: usize| vec![item; count].join(",");
        let doubling = |it: usize| {
            let before = it - 1;
            format!(", c{it} as (select a.x from c{before} a, c{before} b)")
        };
        let doubled = (1..25).map(doubling).collect::<String>();
        for (query, state) in [
            (nested("upper(", "'x'", ")", 51), "54001"),
            (nested("(select ", "1", ")", 40), "54001"),
            (nested("exists (select 1 where ", "true", ")", 40), "54001"),
            (nested("position(", "'a', 'b'", ", 'b')", 40), "54001"),
            (format!("with c0 as (select 1 as x){doubled} select count(*) from c24"), "54001"),
            (format!("select 1 in ({})", list("1", 100_000)), "54001"),
            (format!("select {}", list("1", 50_000)), "54011"),
            (format!("select concat({})", list("'a'", 50_000)), "54023"),
            (format!("select coalesce({})", list("1", 50_000)), "54023"),
            (format!("select array[{}]", list("1", 50_000)), "54001"),
            (format!("select 1{}", " union all select 1".repeat(10_000)), "54001"),
            (format!("select 1{}", " is null".repeat(60_000)), "54001"),
            (format!("select 'a'{}", " collate \"C\"".repeat(60_000)), "54001"),
            (format!("select 1{}", " intersect select 1".repeat(40_000)), "54001"),
            (format!("select now(){}", " at time zone 'UTC'".repeat(40_000)), "54001"),
            (format!("select 1{}", "::text".repeat(51)), "54001"),
            (nested("coalesce(upper(", "'x'", "), 'y')", 20), "54001"),
            (nested("coalesce(", "'x'", ", 'y')", 40), "54001"),
        ] {
            let shown: String = query.chars().take(60).collect();
            assert_eq!(failure(&client, &query).await, state, "{shown}");
        }
        assert_eq!(texts(&client, "select count(*) from orders").await, [["0"]]);
        running.topics.forget("orders");
        assert_eq!(failure(&client, "select count(*) from orders").await, "42P01");
        running.stop().await;
    });
}

#[test]
fn a_statement_that_is_planned_is_given_up_in_time_and_when_it_is_cancelled() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let (client, other) = (running.client().await, running.client().await);
        let rows = vec!["(1, 'a')"; 35_000].join(",");
        let long = format!("select count(*) from (values {rows}) v, ({ENDLESS}) e");
        let hurried = "-c statement_timeout=1ms";
        let hurried = running.client_saying("admin", support::SECRET, hurried).await;
        let hurried = hurried.expect("a client");
        for _ in 0..3 {
            assert_eq!(failure(&hurried, &long).await, "57014");
        }
        let error = hurried.prepare(&long).await.expect_err("it takes longer");
        assert_eq!(error.code().map(|it| it.code()), Some("57014"));
        let cancelled = failure_while(&client, &long, async {
            running_count(&running.server, 1).await;
            assert!(running.server.cancel(running.server.running()[0].id));
        });
        assert_eq!(cancelled.await, "57014");
        assert_eq!(texts(&client, "select 1").await, [["1"]]);
        assert_eq!(texts(&other, "select 1").await, [["1"]]);
        running.stop().await;
    });
}

#[test]
fn what_functions_make_is_counted_before_it_is_there() {
    run(async {
        let limits = Limits { query_bytes: 64 << 20, ..Limits::default() };
        let running = Running::start(limits, false).await;
        let client = running.client().await;
        // All are different, because equal calls would be evaluated once.
        let many = |call: &str, between: &str| {
            let calls = (0..30).map(|it| call.replace("000000", &format!("{:06}", it)));
            calls.collect::<Vec<_>>().join(between)
        };
        let text = "repeat('x', 6000000)";
        for query in [
            format!("select length(concat({}))", many(text, ", ")),
            format!("select length(concat({}))", many("lpad('x', 20000000, 'y')", ", ")),
            format!("select {}", many(text, ", ")),
            format!("select {}", many("repeat('x', 6000000) = 'y'", " or ")),
            format!("select length({})", many(text, " || ")),
            format!("select count(*) from generate_series(1, 100) t(g) where {text} > g::text"),
        ] {
            let state = failure(&client, &query).await;
            assert!(["53200", "54000"].contains(&state.as_str()), "{state}: {query}");
        }
        let distinct = format!("select {}", many(text, ", "));
        assert_eq!(failure(&client, &distinct).await, "53200");
        assert_eq!(texts(&client, &format!("select length({text})")).await, [["6000000"]]);
        let values = "select sum(length(v)) from (values (repeat('x', 100000))) t(v)";
        assert_eq!(texts(&client, values).await, [["100000"]]);
        let each = "select sum(length(repeat('x', g::int))) from generate_series(1, 5000) t(g)";
        assert_eq!(texts(&client, each).await, [["12502500"]]);
        assert_eq!(running.server.memory_bytes(), 0);
        running.stop().await;
    });
}

#[test]
fn who_comes_when_there_are_too_many_clients_is_told_so() {
    run(async {
        let limits = Limits { connection_count: 1, ..Limits::default() };
        let running = Running::start(limits, true).await;
        let client = running.client().await;
        let refused = running.client_as("reader").await.map(drop).expect_err("one too many");
        let told = refused.as_db_error().expect("an answer");
        assert_eq!((told.code().code(), told.severity()), ("53300", "FATAL"));
        // Cancel requests are accepted beyond the connection limit.
        let token = client.cancel_token();
        let cancelled = failure_while(&client, ENDLESS, async {
            running_count(&running.server, 1).await;
            token.cancel_query(tokio_postgres::NoTls).await.expect("it is asked");
        });
        assert_eq!(cancelled.await, "57014");
        running.stop().await;
    });
}

#[test]
fn connections_that_say_nothing_and_users_with_many_leave_room_for_others() {
    run(async {
        let limits = Limits { connection_count: 4, ..Limits::default() };
        let running = Running::start(limits, true).await;
        let mut silent = Vec::new();
        for _ in 0..20 {
            let stream = tokio::net::TcpStream::connect(("127.0.0.1", running.port)).await;
            silent.push(stream.expect("it is let in"));
        }
        let _held = [running.client().await, running.client().await];
        let refused = running.client_as("admin").await.map(drop).expect_err("one half");
        let told = refused.as_db_error().expect("an answer");
        assert_eq!((told.code().code(), told.severity()), ("53300", "FATAL"));
        running.client_as("reader").await.expect("others have room");
        running.stop().await;
    });
}

#[test]
fn statements_beyond_those_of_one_user_wait_for_their_turn() {
    run(async {
        let limits = Limits { queries_per_principal: 1, ..Limits::default() };
        let running = Running::start(limits, true).await;
        let (one, two) = (running.client().await, running.client().await);
        let reader = running.client_as("reader").await.expect("a client");
        let hurried = "-c statement_timeout=10ms";
        let hurried = running.client_saying("admin", support::SECRET, hurried).await;
        let hurried = hurried.expect("a client");
        let rows = || async {
            let rows = one.query_raw(ROWS, Vec::<String>::new()).await.expect("rows");
            let mut rows = Box::pin(rows);
            rows.next().await.expect("one of many").expect("a row");
            rows
        };
        let cancel = || {
            let running_now = running.server.running();
            let first = running_now.iter().find(|it| it.text == ROWS).expect("it runs");
            assert!(running.server.cancel(first.id));
        };
        // The timeout also applies while a statement waits for a permit. Other users do not wait.
        let first = rows().await;
        assert_eq!(failure(&hurried, "select 1").await, "57014");
        assert_eq!(texts(&reader, "select 1").await, [["1"]]);
        cancel();
        assert!(first.any(|it| async move { it.is_err() }).await);

        let first = rows().await;
        let waits = async {
            assert_eq!(texts(&two, "select 1").await, [["1"]]);
        };
        let ends = async {
            running_count(&running.server, 2).await;
            cancel();
            assert!(first.any(|it| async move { it.is_err() }).await);
        };
        tokio::join!(waits, ends);
        running.stop().await;
    });
}

#[test]
fn parameters_of_the_login_hold_from_the_first_statement() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let options = "-c statement_timeout=7s --extra-float-digits=2 -c my.own=a\\\\ b";
        let client = running.client_saying("admin", support::SECRET, options).await;
        let client = client.expect("a client");
        for (name, value) in
            [("statement_timeout", "7s"), ("extra_float_digits", "2"), ("my.own", "a b")]
        {
            assert_eq!(texts(&client, &format!("show {name}")).await, [[value]], "{name}");
        }
        let odd = "-c statement_timeout=soon";
        let odd = running.client_saying("admin", support::SECRET, odd).await.map(drop);
        let told = odd.expect_err("no time");
        assert_eq!(told.code().map(|it| it.code()), Some("22023"), "{told}");
        running.stop().await;
    });
}

#[test]
fn the_words_of_long_lists_are_counted_as_long_as_a_statement_is_there() {
    run(async {
        let limits = Limits { query_bytes: 64 << 20, total_bytes: 192 << 20, ..Limits::default() };
        let running = Running::start(limits, true).await;
        running.topics.create("orders", 1);
        let client = running.client().await;
        let list = |item: &str, count: usize| vec![item; count].join(",");
        for query in [
            format!("select count(*) from (values {}) v", list("(1)", 250_000)),
            format!("select count(*) from (values {}) v", list("(1, 'a')", 20_000)),
            format!("insert into orders (value) values {}", list("('a')", 50_000)),
            format!("explain select 1 where 1 = any(array[{}])", list("1", 50_000)),
        ] {
            let shown: String = query.chars().take(60).collect();
            assert_eq!(failure(&client, &query).await, "53200", "{shown}");
        }
        assert_eq!(running.server.memory_bytes(), 0);
        // Prepared statements hold memory until they are closed, within a limit for the user.
        let rows = format!("select count(*) from (values {}) v", list("(1)", 10_000));
        let first = client.prepare(&rows).await.expect("its memory is there");
        let held = running.server.memory_bytes();
        assert!(held > 24 << 20, "{held}");
        let mut others = Vec::new();
        let refused = loop {
            assert!((others.len() + 1) * held <= 96 << 20, "more than one user may take");
            match client.prepare(&rows).await {
                Ok(other) => others.push(other),
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused.code().map(|it| it.code()), Some("53200"));
        let reader = running.client_as("reader").await.expect("a client");
        let of_another = reader.prepare(&rows).await.expect("another user has memory left");
        reader.simple_query("deallocate all").await.expect("it forgets it");
        drop((of_another, others));
        let count: i64 = client.query_one(&first, &[]).await.expect("a row").get(0);
        assert_eq!(count, 10_000);
        client.simple_query("deallocate all").await.expect("it forgets them");
        assert_eq!(running.server.memory_bytes(), 0);
        running.stop().await;
    });
}
