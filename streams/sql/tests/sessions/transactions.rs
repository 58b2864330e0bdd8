//! Transactions: inserts and settings take effect at the end, or not at all.

use crate::raw::{RawClient, executed, field, message, query};
use crate::support::{Running, SECRET, append, failure, run, texts};
use record_batch::{BatchOptions, NewRecord};
use sql::{Host, Limits};
use tokio_postgres::Client;

async fn started() -> (Running, Client) {
    let running = Running::start(Limits::default(), false).await;
    running.topics.create("orders", 2);
    let client = running.client().await;
    (running, client)
}

/// Returns the keys in the log.
async fn keys(client: &Client) -> String {
    texts(client, "select key from orders order by key").await.concat().concat()
}

async fn all_go_well(client: &Client, statements: &[&str]) {
    for text in statements {
        client.simple_query(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
    }
}

#[test]
fn a_text_that_fails_publishes_nothing() {
    run(async {
        let (running, client) = started().await;
        let insert = |key: &str| format!("insert into orders (key) values ('{key}');");
        for text in [
            insert("a") + "select 1 / 0",
            insert("a") + &insert("b") + "select nothing",
            insert("a") + "insert into orders (key, value) values ('b', 'refused')",
            insert("a") + "insert into orders (key, partition) values ('b', 7)",
            insert("a") + "begin;" + &insert("b") + "select 1 / 0",
            insert("a")
                + "insert into orders (key) select 1 / (5 - v) from generate_series(1, 9) t(v)",
        ] {
            failure(&client, &text).await;
            client.simple_query("rollback").await.expect("it ends");
            assert_eq!(keys(&client).await, "", "{text}");
        }
        // A commit within a text is final, and a transaction started in it remains open.
        failure(&client, &(insert("c") + "commit;" + &insert("d") + "select 1 / 0")).await;
        assert_eq!(keys(&client).await, "c");
        client.simple_query(&(insert("e") + "begin;" + &insert("f"))).await.expect("good");
        assert_eq!(keys(&client).await, "c");
        client.simple_query("commit").await.expect("good");
        assert_eq!(keys(&client).await, "cef");
        client.simple_query(&(insert("g") + "rollback")).await.expect("good");
        client.simple_query(&(insert("h") + "select 1")).await.expect("good");
        assert_eq!(keys(&client).await, "cefh");
        running.stop().await;
    });
}

#[test]
fn messages_up_to_a_sync_are_published_together_or_not_at_all() {
    run(async {
        let (running, client) = started().await;
        let port = running.port;
        let answers = |messages: Vec<u8>| async move {
            let answered = tokio::task::spawn_blocking(move || {
                let mut raw = RawClient::connect(port);
                raw.write(&messages);
                raw.until(b'Z').iter().map(|it| char::from(it.0)).collect::<String>()
            });
            answered.await.expect("it answers")
        };
        let insert = |key: &str| executed(&format!("insert into orders (key) values ('{key}')"));
        let sync = message(b'S', b"");
        let failed =
            [insert("a"), insert("b"), executed("select 1 / 0"), insert("c"), sync.clone()];
        assert_eq!(answers(failed.concat()).await, "12C12C12EZ");
        assert_eq!(keys(&client).await, "");
        let refused = executed("insert into orders (value) values ('refused')");
        assert_eq!(answers([insert("a"), refused, sync.clone()].concat()).await, "12C12EZ");
        assert_eq!(keys(&client).await, "");
        assert_eq!(answers([insert("a"), insert("b"), sync.clone()].concat()).await, "12C12CZ");
        assert_eq!(keys(&client).await, "ab");
        // A client that disconnects before its Sync has committed nothing.
        let without_sync = [insert("c"), message(b'H', b"")].concat();
        tokio::task::spawn_blocking(move || {
            let mut raw = RawClient::connect(port);
            raw.write(&without_sync);
            raw.until(b'C');
        })
        .await
        .expect("it answers");
        assert_eq!(keys(&client).await, "ab");
        running.stop().await;
    });
}

#[test]
fn a_commit_that_fails_publishes_nothing() {
    run(async {
        let (running, client) = started().await;
        running.topics.create("others", 1);
        let refused = "insert into others (value) values ('refused')";
        all_go_well(&client, &["begin", "insert into orders (key) values ('a')", refused]).await;
        assert_eq!(failure(&client, "commit").await, "54000");
        assert_eq!(keys(&client).await, "");
        running.topics.create("gone", 1);
        let into_gone = "insert into gone (key) values ('a')";
        all_go_well(&client, &["begin", "insert into orders (key) values ('a')", into_gone]).await;
        running.topics.forget("gone");
        assert_eq!(failure(&client, "commit").await, "42P01");
        assert_eq!(keys(&client).await, "");
        // The transaction has ended.
        all_go_well(&client, &["insert into orders (key) values ('b')"]).await;
        assert_eq!(keys(&client).await, "b");
        running.stop().await;
    });
}

#[test]
fn a_transaction_goes_back_to_savepoints_with_the_work_before_them() {
    run(async {
        let (running, client) = started().await;
        all_go_well(
            &client,
            &[
                "begin",
                "insert into orders (key) values ('a')",
                "savepoint outer_one",
                "insert into orders (key) values ('b')",
                "savepoint inner_one",
                "insert into orders (key) values ('c')",
            ],
        )
        .await;
        assert_eq!(failure(&client, "select 1 / 0").await, "22012");
        assert_eq!(failure(&client, "select 1").await, "25P02");
        all_go_well(
            &client,
            &[
                "rollback to inner_one",
                "insert into orders (key) values ('d')",
                "release savepoint INNER_ONE",
                "savepoint again",
                "insert into orders (key) values ('e')",
                "rollback to savepoint again",
                "rollback work to savepoint again",
                "savepoint again",
                "rollback to again",
                "commit",
            ],
        )
        .await;
        assert_eq!(keys(&client).await, "abd");
        all_go_well(
            &client,
            &[
                "begin",
                "savepoint one",
                "insert into orders (key) values ('x')",
                "savepoint two",
                "rollback to one",
            ],
        )
        .await;
        // Savepoints after the first one were removed with it.
        assert_eq!(failure(&client, "rollback to two").await, "3B001");
        all_go_well(&client, &["rollback to one", "commit"]).await;
        assert_eq!(keys(&client).await, "abd");
        for text in ["savepoint a", "release a", "rollback to a", "commit and chain"] {
            assert_eq!(failure(&client, text).await, "25P01", "{text}");
        }
        all_go_well(&client, &["begin"]).await;
        assert_eq!(failure(&client, "release nothing").await, "3B001");
        all_go_well(&client, &["commit and chain", "insert into orders (key) values ('f')"]).await;
        all_go_well(&client, &["rollback and chain", "commit"]).await;
        assert_eq!(keys(&client).await, "abd");
        running.stop().await;
    });
}

#[test]
fn cursors_end_with_the_work_that_declared_them() {
    run(async {
        let (running, client) = started().await;
        all_go_well(
            &client,
            &[
                "begin",
                "declare a cursor for select 1",
                "savepoint s",
                "declare b cursor for select 1",
                "rollback to s",
                "fetch a",
            ],
        )
        .await;
        assert_eq!(failure(&client, "fetch b").await, "34000");
        all_go_well(&client, &["rollback", "begin", "declare c cursor with hold for select 1"])
            .await;
        all_go_well(&client, &["rollback"]).await;
        assert_eq!(failure(&client, "fetch c").await, "34000");
        all_go_well(&client, &["begin", "declare c cursor with hold for select 1", "commit"]).await;
        all_go_well(&client, &["fetch c"]).await;
        running.stop().await;
    });
}

/// Returns a parameter as shown to the client.
async fn shown(client: &Client, name: &str) -> String {
    texts(client, &format!("show {name}")).await.concat().concat()
}

#[test]
fn what_is_set_ends_with_its_transaction() {
    run(async {
        let (running, client) = started().await;
        let check = async |statements: &[&str], expected: &str| {
            all_go_well(&client, statements).await;
            assert_eq!(shown(&client, "extra_float_digits").await, expected, "{statements:?}");
        };
        let (set, local) = ("set extra_float_digits = 2", "set local extra_float_digits = 3");
        check(&["begin", local], "3").await;
        check(&["commit"], "1").await;
        check(&["begin", local, "rollback"], "1").await;
        check(&["begin", set, "rollback"], "1").await;
        check(&["begin", set, "savepoint s", local, "rollback to s"], "2").await;
        check(&["commit"], "2").await;
        let other = "set local extra_float_digits = 2";
        check(&["begin", "set extra_float_digits = 3", other, "commit"], "3").await;
        check(&["begin", "reset extra_float_digits", "rollback"], "3").await;
        // Outside of a transaction, SET LOCAL has no effect.
        check(&[other], "3").await;
        assert_eq!(
            texts(&client, &format!("{other}; show extra_float_digits")).await.concat(),
            ["2"]
        );
        check(&[], "3").await;
        failure(&client, &format!("{set}; select 1 / 0")).await;
        check(&[], "3").await;
        // Includes parameters that limit statements.
        all_go_well(&client, &["begin", "set local statement_timeout = '7s'", "commit"]).await;
        assert_eq!(shown(&client, "statement_timeout").await, "0");
        running.stop().await;
    });
}

#[test]
fn discard_all_leaves_a_session_as_it_began() {
    run(async {
        let (running, _) = started().await;
        let options = "-c extra_float_digits=2 -c application_name=told";
        let client = running.client_saying("admin", SECRET, options).await.expect("a client");
        let kept = client.prepare("select 1").await.expect("good");
        all_go_well(
            &client,
            &[
                "set extra_float_digits = 3",
                "set application_name = 'x'",
                "set statement_timeout = '9s'",
                "set default_transaction_read_only = on",
                "set my.own = 1",
                "begin; declare c cursor with hold for select 1; commit",
            ],
        )
        .await;
        assert_eq!(failure(&client, "begin; discard all").await, "25001");
        all_go_well(&client, &["rollback", "discard plans", "discard temp", "discard all"]).await;
        for (name, expected) in [
            ("extra_float_digits", "2"),
            ("application_name", "told"),
            ("statement_timeout", "0"),
            ("default_transaction_read_only", "off"),
        ] {
            assert_eq!(shown(&client, name).await, expected, "{name}");
        }
        assert_eq!(failure(&client, "show my.own").await, "42704");
        assert_eq!(failure(&client, "fetch c").await, "34000");
        let error = client.query(&kept, &[]).await.expect_err("it was forgotten");
        assert_eq!(error.code().expect("a state").code(), "26000");
        failure(&client, "discard nothing").await;
        running.stop().await;
    });
}

#[test]
fn clients_are_told_of_parameters_that_a_transactions_end_changes() {
    run(async {
        let (running, _) = started().await;
        let port = running.port;
        let told = tokio::task::spawn_blocking(move || {
            let mut raw = RawClient::connect(port);
            let mut told = Vec::new();
            for text in ["begin", "set local application_name = 'a'", "commit", "select 1"] {
                raw.write(&query(text));
                let messages = raw.until(b'Z');
                let statuses = messages.iter().filter(|it| it.0 == b'S');
                told.extend(statuses.map(|it| String::from_utf8_lossy(&it.1).into_owned()));
            }
            raw.write(&query("commit"));
            let warning = raw.until(b'Z').into_iter().find(|it| it.0 == b'N').expect("a warning");
            (told, field(&warning.1, b'C'))
        });
        let (told, warned) = told.await.expect("it answers");
        assert_eq!(told, ["application_name\0a\0", "application_name\0\0"]);
        assert_eq!(warned, "25P01");
        running.stop().await;
    });
}

#[test]
fn who_asks_to_read_alone_changes_nothing() {
    run(async {
        let (running, client) = started().await;
        let table = "create table t (n bigint) with (topic = 'orders', format = 'json')";
        let insert = "insert into orders (key) values ('a')";
        let changes = [insert, table, "drop table if exists t", "copy orders (key) from stdin"];
        for begin in [
            "begin read only",
            "start transaction isolation level serializable, read only",
            "begin; set transaction read only",
            "begin; set transaction_read_only = on",
            "begin; set local transaction_read_only to true",
            "set session characteristics as transaction read only; begin",
            "set default_transaction_read_only = on; begin",
            "begin read only; commit and chain",
        ] {
            for change in changes {
                all_go_well(&client, &[begin]).await;
                assert_eq!(shown(&client, "transaction_read_only").await, "on", "{begin}");
                assert_eq!(failure(&client, change).await, "25006", "{begin}: {change}");
                all_go_well(&client, &["rollback", "reset default_transaction_read_only"]).await;
            }
            assert_eq!(shown(&client, "transaction_read_only").await, "off", "{begin}");
        }
        for set in [
            "set session characteristics as transaction isolation level read committed, read only",
            "set default_transaction_read_only to 'on'",
        ] {
            all_go_well(&client, &[set]).await;
            for change in changes {
                assert_eq!(failure(&client, change).await, "25006", "{set}: {change}");
            }
            all_go_well(&client, &["begin read write", changes[0], "rollback"]).await;
            all_go_well(&client, &["reset all"]).await;
        }
        let options = "-c default_transaction_read_only=on";
        let told = running.client_saying("admin", SECRET, options).await.expect("a client");
        for change in changes {
            assert_eq!(failure(&told, change).await, "25006", "{change}");
        }
        // A transaction that has read cannot become read-write.
        all_go_well(&client, &["begin read only", "set transaction read write", "rollback"]).await;
        all_go_well(&client, &["begin read only", "select 1"]).await;
        assert_eq!(failure(&client, "set transaction read write").await, "25001");
        all_go_well(&client, &["rollback", "begin read only", "savepoint s"]).await;
        assert_eq!(failure(&client, "set transaction_read_only = off").await, "25001");
        all_go_well(&client, &["rollback", "insert into orders (key) values ('z')"]).await;
        assert_eq!(keys(&client).await, "z");
        running.stop().await;
    });
}

#[test]
fn what_is_no_value_of_a_column_is_not_inserted() {
    run(async {
        let (running, client) = started().await;
        let table = "create table t (n bigint, i integer, ok boolean, f double precision, j json, \
             at timestamptz) with (topic = 'orders', format = 'json')";
        all_go_well(&client, &[table]).await;
        for (insert, state) in [
            ("orders (partition) values ('x')", "22P02"),
            ("orders (partition) values (3000000000)", "22003"),
            ("orders (partition) values ('3000000000')", "22003"),
            ("orders (partition) values (true)", "42804"),
            ("orders (partition) values (2)", "22023"),
            ("orders (partition) values (-1)", "22023"),
            ("orders (time) values ('not a time')", "22007"),
            ("orders (time) values ('2026-02-30')", "22008"),
            ("orders (time) values ('1969-12-31')", "22008"),
            ("orders (time) values (5)", "42804"),
            ("orders (headers) values ('x')", "22P02"),
            ("orders (headers) values (5)", "42804"),
            ("\"orders$bytes\" (value) values ('\\x0')", "22P02"),
            ("t (n) values ('x')", "22P02"),
            ("t (n) values ('9223372036854775808')", "22003"),
            ("t (i) values (3000000000)", "22003"),
            ("t (i) values ('1.5')", "22P02"),
            ("t (ok) values ('maybe')", "22P02"),
            ("t (ok) values (1)", "42804"),
            ("t (f) values ('1e999')", "22003"),
            ("t (j) values ('{')", "22P02"),
            ("t (at) values ('soon')", "22007"),
            ("t (ok) select 1 where false", "42804"),
            ("t (n) select 'x'::text where false", "42804"),
            ("t (n, f) select 1", "42601"),
            ("orders (partition) select key from orders", "42804"),
        ] {
            assert_eq!(failure(&client, &format!("insert into {insert}")).await, state, "{insert}");
        }
        assert_eq!(texts(&client, "select count(*) from orders").await.concat(), ["0"]);
        all_go_well(
            &client,
            &[
                "insert into orders (partition, time, key, value) \
                 values (0.5, '1970-01-01 00:00:07+00', 5, true)",
                "insert into \"orders$bytes\" (partition, key, value) values (0, 'b', '\\x63')",
            ],
        )
        .await;
        let rows = texts(
            &client,
            "select partition, extract(epoch from time)::int, key, value from orders order by key",
        );
        assert_eq!(rows.await, [["1", "7", "5", "true"], ["0", "1", "b", "c"]]);
        let error = client.simple_query("insert into orders (time) values ('not a time')").await;
        let error = error.expect_err("no time").as_db_error().expect("of the server").clone();
        let expected = "invalid input syntax for type timestamp with time zone: \"not a time\"";
        assert_eq!(error.message(), expected);
        running.stop().await;
    });
}

#[test]
fn a_transaction_that_inserts_too_much_is_refused_as_a_whole() {
    run(async {
        let (running, client) = started().await;
        let topic = running.topics.topic("orders").expect("it is there");
        let value = Some("v".to_owned().into());
        let record = NewRecord { key: None, value, timestamp_ms: 1, headers: Vec::new() };
        append(&topic, 0, &[record], &BatchOptions::default());
        let insert = "insert into orders (value) select repeat('x', 1000000) \
                      from generate_series(1, 70)";
        assert_eq!(failure(&client, insert).await, "54000");
        assert_eq!(texts(&client, "select count(*) from orders").await.concat(), ["1"]);
        running.stop().await;
    });
}
