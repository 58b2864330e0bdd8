//! Parameters of sessions: what drivers, pools and tools set, show and reset.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, UNIX_EPOCH};

use sql::Limits;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use crate::support::{Running, failure, run, texts};

#[test]
fn pools_reset_sessions() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let client = running.client().await;
        for statement in [
            "SET SESSION AUTHORIZATION DEFAULT; RESET ALL; CLOSE ALL; UNLISTEN *; \
             SELECT pg_advisory_unlock_all(); DISCARD SEQUENCES; DISCARD TEMP",
            "RESET SESSION AUTHORIZATION",
            "SET ROLE NONE",
            "RESET ROLE",
            "unlisten a",
        ] {
            client.simple_query(statement).await.expect(statement);
        }
        client.query("UNLISTEN *", &[]).await.expect("it can be prepared");
        let shown = texts(&client, "SHOW session_authorization").await;
        assert_eq!(shown, texts(&client, "SELECT session_user").await);
        assert_eq!(failure(&client, "SET ROLE postgres").await, "0A000");
        assert_eq!(failure(&client, "LISTEN a").await, "0A000");
        running.stop().await;
    });
}

#[test]
fn all_parameters_are_shown() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let client = running.client().await;
        let shown = texts(&client, "SHOW ALL").await;
        for expected in [["DateStyle", "ISO, MDY", ""], ["lock_timeout", "0", ""]] {
            assert!(shown.iter().any(|it| it == &expected), "{shown:?}");
        }
        let rows = client.query("SHOW ALL", &[]).await.expect("it can be prepared");
        assert_eq!(rows[0].columns().len(), 3);
        running.stop().await;
    });
}

#[test]
fn set_config_sets_parameters_as_set_does() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let client = running.client().await;
        let set = "SELECT set_config('DateStyle', 'iso, dmy', false)";
        assert_eq!(texts(&client, set).await, [["ISO, DMY"]]);
        assert_eq!(texts(&client, "SHOW DateStyle").await, [["ISO, DMY"]]);
        let both = "SELECT set_config('my.new', 'x', false), current_setting('my.new')";
        assert_eq!(texts(&client, both).await, [["x", "x"]]);
        let prepared = "SELECT set_config($1, $2, false)";
        client.query(prepared, &[&"my.own", &"1"]).await.expect("it can be prepared");
        let own = "SELECT current_setting('my.own', true)";
        assert_eq!(texts(&client, own).await, [["1"]]);
        let pg_admin = "SELECT set_config('bytea_output', 'hex', false) FROM pg_settings \
                        WHERE name = 'bytea_output'";
        assert_eq!(texts(&client, pg_admin).await, [["hex"]]);
        // Until the end of the transaction, or of one that fails.
        for (set, inside, behind) in [
            ("BEGIN; SELECT set_config('my.own', '2', true)", "2", "COMMIT"),
            ("BEGIN; SELECT set_config('my.own', '3', false)", "3", "ROLLBACK"),
            ("SELECT set_config('my.own', '4', true)", "1", "SELECT 1"),
        ] {
            texts(&client, set).await;
            assert_eq!(texts(&client, own).await, [[inside]], "{set}");
            texts(&client, behind).await;
            assert_eq!(texts(&client, own).await, [["1"]], "{set}");
        }
        for (query, state) in [
            ("SELECT set_config('bytea_output', 'escape', false)", "0A000"),
            ("SELECT set_config('statement_timeout', 'soon', false)", "22023"),
            (
                "SELECT set_config('my.own', '5', false), 1 / (\"offset\" - \"offset\") \
              FROM (VALUES (1)) t(\"offset\")",
                "22012",
            ),
            ("SELECT set_config('my.own', NULL, false)", "0A000"),
            ("SELECT set_config('a.b' || n, '1', false) FROM generate_series(1, 200) n", "54000"),
        ] {
            assert_eq!(failure(&client, query).await, state, "{query}");
        }
        texts(&client, "SELECT 1").await;
        assert_eq!(texts(&client, own).await, [["1"]]);
        running.stop().await;
    });
}

#[test]
fn intervals_are_written_in_the_style_of_the_session() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let client = running.client().await;
        let queries = ["SELECT interval '1 day 02:00'", "SELECT ARRAY[interval '1 day 02:00']"];
        texts(&client, "SET intervalstyle = iso_8601").await;
        for (query, expected) in queries.into_iter().zip(["P1DT2H", "{P1DT2H}"]) {
            assert_eq!(texts(&client, query).await, [[expected]], "{query}");
        }
        texts(&client, "RESET intervalstyle").await;
        assert_eq!(texts(&client, queries[0]).await, [["1 day 02:00:00"]]);
        assert_eq!(failure(&client, "SET intervalstyle = sql_standard").await, "0A000");
        running.stop().await;
    });
}

#[test]
fn replication_connections_are_refused() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let port = running.port;
        let answer = tokio::task::spawn_blocking(move || {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
            let body = b"\0\x03\0\0user\0admin\0replication\0database\0\0";
            let length = u32::try_from(body.len() + 4).expect("a short message");
            stream.write_all(&[&length.to_be_bytes()[..], body].concat()).expect("it is read");
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).expect("the server closes");
            String::from_utf8_lossy(&answer).into_owned()
        });
        let answer = answer.await.expect("it does not panic");
        assert!(answer.starts_with('E') && answer.contains("0A000"), "{answer:?}");
        assert!(answer.contains("replication connections are not supported"), "{answer:?}");
        running.stop().await;
    });
}

#[test]
fn parameters_get_the_types_of_their_places() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let client = running.client().await;
        for (query, expected) in [
            ("SELECT n FROM generate_series(1, 9) n LIMIT $1", "int8"),
            ("SELECT n FROM generate_series(1, 9) n ORDER BY n OFFSET $1", "int8"),
            ("SELECT unnest($1::text[])", "_text"),
            ("SELECT * FROM unnest($1::\"text\"[])", "_text"),
            ("SELECT relname FROM pg_class WHERE relkind != $1::CHAR", "bpchar"),
            ("SELECT * FROM unnest($1::pg_catalog.int4[])", "_int4"),
            ("SELECT $1::date, $1::timestamp", "date"),
            ("SELECT $1::timestamptz, $1::date", "timestamptz"),
            ("SELECT 1 WHERE now() > $1 AND current_date > $1", "timestamptz"),
        ] {
            let prepared = client.prepare(query).await.expect(query);
            assert_eq!(prepared.params()[0].name(), expected, "{query}");
        }
        let query = "SELECT ($1::timestamp)::text, ($1::date)::text WHERE $1 IS NOT NULL";
        let time = UNIX_EPOCH + Duration::from_secs(86_400 + 3_600);
        let rows = client.query(query, &[&time]).await.expect("a good parameter");
        let texts: [String; 2] = [0_usize, 1].map(|column| rows[0].get(column));
        assert_eq!(texts, ["1970-01-02 01:00:00", "1970-01-02"]);
        let refused = client.prepare("SELECT 1 WHERE now() > $1 AND true = $1").await;
        let refused = refused.expect_err("two types");
        assert_eq!(refused.code().map(SqlState::code), Some("0A000"), "{refused}");
        let query = "SELECT n FROM generate_series(1, 9) n ORDER BY n LIMIT $1 OFFSET $2";
        let rows = client.query(query, &[&2_i64, &3_i64]).await.expect("good parameters");
        let numbers: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
        assert_eq!(numbers, [4, 5]);
        // JDBC declares the types that it sends.
        let types = [Type::INT4, Type::INT2];
        let prepared = client.prepare_typed(query, &types).await.expect("good types");
        let rows = client.query(&prepared, &[&2_i32, &8_i16]).await.expect("good parameters");
        assert_eq!(rows.len(), 1);
        let rows = client.query("SELECT unnest($1::text[])", &[&vec!["a", "b"]]).await;
        assert_eq!(rows.expect("good parameters").len(), 2);
        running.stop().await;
    });
}

#[test]
fn functions_of_the_session_stand_in_from() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let client = running.client().await;
        for (query, expected) in [
            ("SELECT * FROM current_schema()", "public"),
            ("SELECT current_schema FROM pg_catalog.current_schema()", "public"),
            ("SELECT s FROM current_schema() AS s", "public"),
            ("SELECT t.d FROM current_database() AS t(d)", "memlane"),
            ("SELECT * FROM current_setting('server_version_num') v", "150000"),
        ] {
            assert_eq!(texts(&client, query).await, [[expected]], "{query}");
        }
        running.stop().await;
    });
}

#[test]
fn wildcards_name_tables_of_a_schema() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        running.topics.create("orders", 1);
        let client = running.client().await;
        for query in [
            "SELECT orders.* FROM public.orders",
            "SELECT \"orders\".*, c.relname FROM pg_class c, \"public\".\"orders\"",
        ] {
            texts(&client, query).await;
        }
        let columns = "SELECT columns.* FROM \"information_schema\".\"columns\" LIMIT 1";
        assert_eq!(texts(&client, columns).await.len(), 1);
        assert_eq!(failure(&client, "SELECT other.* FROM public.orders").await, "42P01");
        running.stop().await;
    });
}

#[test]
fn prepared_statements_are_deallocated_by_name() {
    run(async {
        let running = Running::start(Limits::default(), false).await;
        let client = running.client().await;
        assert_eq!(failure(&client, "DEALLOCATE nosuch").await, "26000");
        texts(&client, "DEALLOCATE ALL").await;
        running.stop().await;
    });
}
