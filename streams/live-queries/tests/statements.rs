//! Statements of live queries: parse results, and SQLSTATEs of rejected ones.

use live_queries::{
    AsOf, Backpressure, CopyFormat, CreateKind, Envelope, Fetch, FetchCount, Paths, Point, Query,
    Reach, Statement, Subscribe, Table, limits, parse_query, parse_statement,
};

fn parse(sql: &str) -> Statement {
    let parsed = parse_statement(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    parsed.unwrap_or_else(|| panic!("{sql} is taken for a statement of another kind"))
}

fn subscribe(sql: &str) -> Subscribe {
    match parse(sql) {
        Statement::Subscribe(subscribe) => subscribe,
        other => panic!("{sql} is {other:?}"),
    }
}

/// Checks the SQLSTATE with which a statement, or its query, is rejected.
#[track_caller]
fn check_refused(sql: &str, state: &str) {
    let error = match parse_statement(sql) {
        Err(error) => error,
        Ok(Some(Statement::Subscribe(subscribe))) => {
            let mut paths = Paths::new();
            let compiled = Query::compile(&subscribe.query, &Table::values("t"), &mut paths);
            let error = compiled.err().unwrap_or_else(|| panic!("{sql} is not refused"));
            assert!(paths.is_empty(), "{sql}: a query that is refused keeps no path");
            error
        }
        Ok(other) => panic!("{sql} is {other:?}"),
    };
    assert_eq!(error.state.0, state, "{sql}: {error}");
}

#[test]
fn a_name_is_all_of_its_columns() {
    let parsed = subscribe("SUBSCRIBE TO \"orders$current\";");
    assert_eq!(Query::table_name(&parsed.query).expect("it has one"), "orders$current");
    assert_eq!(parsed, subscribe("subscribe \"orders$current\""));
    assert_eq!(parsed.envelope, Envelope::Diff);
    assert!(parsed.options.snapshot && !parsed.options.progress);
}

#[test]
fn every_clause_of_subscribe_is_read() {
    let parsed = subscribe(
        "SUBSCRIBE TO (SELECT key, value FROM t WHERE key LIKE 'a%') ENVELOPE UPSERT (KEY (key)) \
         WITH (SNAPSHOT = false, PROGRESS, EVERY = '100 ms', SPEED = 2.5, BACKPRESSURE = conflate) \
         AS OF AT LEAST '2026-01-31 10:00:00+00' UP TO '0:17,1:20'",
    );
    assert_eq!(parsed.envelope, Envelope::Upsert { key: vec!["key".to_owned()] });
    assert!(!parsed.options.snapshot && parsed.options.progress);
    assert_eq!(parsed.options.every_ms, Some(100));
    assert_eq!(parsed.options.speed, Some(2.5));
    assert_eq!(parsed.options.backpressure, Backpressure::Conflate);
    let time = Point::TimeMs(1_769_853_600_000);
    assert_eq!(parsed.as_of, Some(AsOf { point: time, reach: Reach::AtLeast }));
    assert_eq!(parsed.up_to, Some(Point::Positions(vec![(0, 17), (1, 20)])));
    let parsed = subscribe("SUBSCRIBE t AS OF OFFSET 5 UP TO 1700000000000");
    assert_eq!(parsed.as_of, Some(AsOf { point: Point::Offset(5), reach: Reach::Exactly }));
    assert_eq!(parsed.up_to, Some(Point::TimeMs(1_700_000_000_000)));
}

#[test]
fn copies_cursors_and_fetches_are_read() {
    let copied = parse("COPY (SUBSCRIBE TO t) TO STDOUT WITH (FORMAT csv)");
    assert!(matches!(copied, Statement::Copy { format: CopyFormat::Csv, .. }), "{copied:?}");
    let declared = parse("/* live */ DECLARE c NO SCROLL CURSOR FOR SUBSCRIBE TO t");
    assert!(
        matches!(&declared, Statement::Declare { cursor, .. } if cursor == "c"),
        "{declared:?}"
    );
    let all = Fetch { cursor: "c".to_owned(), count: FetchCount::All, timeout_ms: Some(1_000) };
    assert_eq!(parse("FETCH ALL c WITH (timeout='1s')"), Statement::Fetch(all));
    let some = Fetch { cursor: "c".to_owned(), count: FetchCount::Rows(10), timeout_ms: None };
    assert_eq!(parse("FETCH FORWARD 10 FROM C"), Statement::Fetch(some));
}

#[test]
fn derived_topics_and_views_are_read() {
    let Statement::Create(created) = parse(
        "CREATE TOPIC IF NOT EXISTS \"Big\" WITH (partitions = 3) \
         AS SELECT key, value FROM t WHERE key = 'a'",
    ) else {
        panic!("it is no CREATE")
    };
    assert_eq!((created.kind, created.name.as_str()), (CreateKind::Topic, "Big"));
    assert_eq!(created.options, [("partitions".to_owned(), "3".to_owned())]);
    assert_eq!(created.query_text, "SELECT key, value FROM t WHERE key = 'a'");
    let sql = "/* ä */ CREATE TOPIC x AS\n  -- ö\n  SELECT 'é''\"' AS ü, key FROM t ;\n";
    let Statement::Create(created) = parse(sql) else { panic!("it is no CREATE") };
    assert_eq!(created.query_text, "SELECT 'é''\"' AS ü, key FROM t ");
    assert_eq!(parse_query(&created.query_text).as_ref(), Ok(&created.query));
    let view = parse("CREATE MATERIALIZED VIEW v AS SELECT key, count(*) FROM t GROUP BY key");
    assert!(matches!(view, Statement::Create(it) if it.kind == CreateKind::MaterializedView));
    let dropped = parse("DROP TOPIC IF EXISTS big");
    assert!(matches!(dropped, Statement::Drop { if_exists: true, .. }));
}

#[test]
fn statements_of_others_are_left_to_them() {
    let others = [
        "SELECT 1",
        "",
        "COPY t TO STDOUT",
        "CREATE TABLE t (a int)",
        "DROP VIEW v",
        "BEGIN",
        "DECLARE c CURSOR FOR SELECT 1",
        "CREATE MATERIALIZED",
        "nonsense '",
        "COPY",
    ];
    for sql in others {
        assert_eq!(parse_statement(sql), Ok(None), "{sql}");
    }
}

#[test]
fn what_is_not_supported_is_refused_when_a_query_is_made() {
    let query = |sql: &str| format!("SUBSCRIBE ({sql})");
    for (sql, state) in [
        ("SELECT * FROM t JOIN u ON t.key = u.key", "0A000"),
        ("SELECT * FROM t, u", "0A000"),
        ("SELECT * FROM (SELECT * FROM t) x", "0A000"),
        ("SELECT DISTINCT key FROM t", "0A000"),
        ("WITH x AS (SELECT 1) SELECT * FROM t", "0A000"),
        ("SELECT key FROM t UNION SELECT key FROM t", "0A000"),
        ("SELECT key FROM t LIMIT 5", "0A000"),
        ("SELECT key FROM t ORDER BY key", "0A000"),
        ("SELECT key FROM t ORDER BY key LIMIT 1000000", "54000"),
        ("SELECT key FROM t ORDER BY key LIMIT 5 OFFSET 5", "0A000"),
        ("SELECT row_number() OVER () FROM t", "0A000"),
        ("SELECT now() FROM t", "42883"),
        ("SELECT $1 FROM t", "0A000"),
        ("SELECT key FROM t WHERE key ~ 'a'", "0A000"),
        ("SELECT key FROM t WHERE key IN (SELECT key FROM u)", "0A000"),
        ("SELECT key FROM t WHERE nosuch = 1", "42703"),
        ("SELECT key FROM t WHERE u.key = 'a'", "42703"),
        ("SELECT key FROM t WHERE key", "42804"),
        ("SELECT key FROM t WHERE value->>'a' > 5", "42883"),
        ("SELECT key FROM t WHERE value = value->'a'", "42883"),
        ("SELECT key FROM t WHERE count(*) > 1", "42803"),
        ("SELECT key, count(*) FROM t", "42803"),
        ("SELECT value->>'a', count(*) FROM t GROUP BY key", "42803"),
        ("SELECT count(DISTINCT key) FROM t", "0A000"),
        ("SELECT string_agg(key, ',') FROM t", "0A000"),
        ("SELECT count(*) FROM t GROUP BY 3", "42P10"),
        ("SELECT key FROM t WHERE 1 / 0 = 1", "22012"),
        ("SELECT key FROM t WHERE partition = 'x'", "22P02"),
        ("SELECT key FROM t WHERE time > 'yesterday'", "22007"),
        ("SELECT key FROM t WHERE", "42601"),
        ("SELECT key FROM other.t", "42P01"),
    ] {
        check_refused(&query(sql), state);
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for (sql, state) in [
        ("SUBSCRIBE TO t WITH (nosuch = 1)", "22023"),
        ("SUBSCRIBE TO t WITH (EVERY = '0 ms')", "22023"),
        ("SUBSCRIBE TO t WITH (EVERY = 'often')", "22023"),
        ("SUBSCRIBE TO t WITH (SPEED = -1)", "42601"),
        ("SUBSCRIBE TO t WITH (SPEED = 0)", "22023"),
        ("SUBSCRIBE TO t WITH (SNAPSHOT = 3)", "22023"),
        ("SUBSCRIBE TO t WITH (SNAPSHOT, SNAPSHOT)", "42601"),
        ("SUBSCRIBE TO t AS OF 'never'", "22007"),
        ("SUBSCRIBE TO t AS OF", "42601"),
        ("SUBSCRIBE TO t ENVELOPE DEBEZIUM (KEY (key))", "0A000"),
        ("SUBSCRIBE TO t; SELECT 1", "42601"),
        ("SUBSCRIBE TO", "42601"),
        ("FETCH ALL c WITH (speed = 1)", "22023"),
        ("CREATE TOPIC a", "42601"),
    ] {
        check_refused(sql, state);
    }
}

#[test]
fn a_statement_that_is_too_much_is_refused() {
    let list = |count: usize| vec!["1"; count].join(",");
    for (sql, state) in [
        (
            format!("SELECT key FROM t WHERE partition IN ({})", list(limits::IN_LIST_MAX + 1)),
            "54000",
        ),
        (
            format!(
                "SELECT key FROM t WHERE partition = {}1{}",
                "(".repeat(5_000),
                ")".repeat(5_000)
            ),
            "54001",
        ),
        (
            format!("SELECT key FROM t WHERE partition = {}1{}", "(".repeat(300), ")".repeat(300)),
            "54001",
        ),
        (format!("SELECT key FROM t WHERE partition = 1{}", " + 1".repeat(900)), "54001"),
        (format!("SELECT key FROM t WHERE partition = 1{}", "::int".repeat(400)), "54001"),
        (format!("SELECT key FROM t WHERE {} true", "NOT ".repeat(400)), "42601"),
        (format!("SELECT key FROM t WHERE partition # 1{} = 1", " # 1".repeat(900)), "0A000"),
        (
            format!(
                "SELECT key FROM t WHERE key LIKE '{}'",
                "%a".repeat(limits::PATTERN_BYTES_MAX)
            ),
            "54000",
        ),
        (format!("SELECT key FROM t WHERE key = value{}->>'a'", "->'a'".repeat(30)), "54001"),
        (format!("SELECT {} FROM t", vec!["key"; 300].join(",")), "54000"),
        (
            format!("SELECT key FROM t WHERE key = '{}'", "a".repeat(limits::STATEMENT_BYTES_MAX)),
            "54000",
        ),
    ] {
        check_refused(&format!("SUBSCRIBE ({sql})"), state);
    }
}

#[test]
fn long_chains_and_lists_within_the_limits_are_taken() {
    let chain = vec!["partition = 1"; 450].join(" OR ");
    let list = vec!["1"; limits::IN_LIST_MAX].join(",");
    for sql in [
        format!("SELECT key FROM t WHERE {chain}"),
        format!("SELECT key FROM t WHERE partition IN ({list})"),
    ] {
        let query = parse_query(&sql).expect("it is within the limits");
        Query::compile(&query, &Table::log("t"), &mut Paths::new()).expect("it compiles");
    }
}

/// Returns the SQLSTATE of a rejected join of `orders` with `"prices$current"`, or `None`.
fn join_state(sql: &str) -> Option<&'static str> {
    let mut paths = Paths::new();
    let query = parse_query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let tables = [&Table::log("orders"), &Table::values("prices$current")];
    let error = Query::compile_join(&query, tables, &mut paths).err()?;
    assert!(paths.is_empty(), "{sql}: a query that is refused keeps no path");
    Some(error.state.0)
}

#[test]
fn a_join_looks_up_the_key_of_the_second_table_and_all_else_is_refused() {
    let from = "FROM orders o JOIN \"prices$current\" p";
    for (rest, state) in [
        ("SELECT o.key, p.value->>'a' FROM", None),
        ("SELECT key FROM", Some("42702")),
        ("SELECT value->>'a' FROM", Some("42702")),
        ("SELECT x.key FROM", Some("42703")),
        ("SELECT o.price FROM", Some("42703")),
        ("SELECT * FROM", Some("0A000")),
        ("SELECT count(*) FROM", Some("0A000")),
    ] {
        let sql = rest.replace("FROM", &format!("{from} ON o.value->>'s' = p.key"));
        assert_eq!(join_state(&sql), state, "{sql}");
    }
    for (on, state) in [
        ("(p.key = o.value->>'s')", None),
        ("p.key = 'fixed'", None),
        ("p.key = o.partition", Some("42883")),
        ("p.key = p.value", Some("0A000")),
        ("p.value = o.key", Some("0A000")),
        ("p.key <> o.key", Some("0A000")),
        ("p.key = o.key AND o.partition = 1", Some("0A000")),
        ("p.key = key", Some("42702")),
    ] {
        let sql = format!("SELECT o.key {from} ON {on}");
        assert_eq!(join_state(&sql), state, "{sql}");
    }
    for (from, state) in [
        ("orders o LEFT JOIN \"prices$current\" p ON o.key = p.key", None),
        ("orders o FULL JOIN \"prices$current\" p ON o.key = p.key", Some("0A000")),
        ("orders o JOIN \"prices$current\" p USING (key)", Some("0A000")),
        ("orders o NATURAL JOIN \"prices$current\" p", Some("0A000")),
        ("orders o, \"prices$current\" p", Some("0A000")),
        ("orders o JOIN \"prices$current\" o ON o.key = o.key", Some("42712")),
    ] {
        let sql = format!("SELECT o.key FROM {from}");
        assert_eq!(join_state(&sql), state, "{sql}");
    }
}
