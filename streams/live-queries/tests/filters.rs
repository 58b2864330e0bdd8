//! Compares filters with an independent reference evaluator, and the filter index with a separate
//! evaluation of each filter.

mod reference;

use std::sync::Arc;

use live_queries::{Fields, FilterIndex, Found, Paths, Query, Record, Row, Table, parse_query};
use model::{Random, for_each_seed};
use reference::{Condition, Document, Truth, random_condition, random_document};

fn record(document: &Document) -> Record<'_> {
    Record {
        partition: document.partition,
        offset: document.offset,
        timestamp_ms: 0,
        key: document.key.as_deref().map(str::as_bytes),
        value: Some(document.text.as_bytes()),
        headers: &[],
    }
}

fn compile(condition: &Condition, paths: &mut Paths) -> Query {
    let sql = format!("SELECT key FROM t WHERE {}", condition.sql());
    let query = parse_query(&sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    Query::compile(&query, &Table::log("t"), paths).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// Goal: WHERE retains the records for which the condition is true in three-valued logic.
/// Method: random conditions without errors on random records, compared with the reference.
#[test]
fn a_filter_agrees_with_the_reference() {
    for_each_seed("cargo test -p live-queries --test filters", 150, |seed| {
        let mut random = Random::new(seed);
        let documents: Vec<Document> = (0..20).map(|_| random_document(&mut random)).collect();
        for _ in 0..20 {
            let condition = random_condition(&mut random, 3);
            let mut paths = Paths::new();
            let query = compile(&condition, &mut paths);
            let mut fields = Fields::default();
            for document in &documents {
                let row = Row::read(record(document), &paths, &mut fields);
                let expected = condition.truth(document) == Truth::True;
                let sql = condition.sql();
                assert_eq!(query.filter().passes(&row), Ok(expected), "{sql} on {}", document.text);
                let may_pass = query.filter().may_pass(row.record().value);
                assert!(may_pass || !expected, "{sql} passes over {}", document.text);
            }
        }
    });
}

/// Goal: a string that text cannot represent is NULL, as in a SELECT, so its record is not lost.
#[test]
fn a_string_that_no_text_can_hold_is_null() {
    for value in [r#"{"s":"\u0000"}"#, r#"{"s":"\ud800"}"#, r#"{"s":"\udc00 x"}"#] {
        let mut paths = Paths::new();
        let query = parse_query("SELECT key FROM t WHERE value->>'s' IS NULL").expect("a query");
        let query = Query::compile(&query, &Table::log("t"), &mut paths).expect("a query");
        let mut fields = Fields::default();
        let record = Record {
            partition: 0,
            offset: 0,
            timestamp_ms: 0,
            key: None,
            value: Some(value.as_bytes()),
            headers: &[],
        };
        let row = Row::read(record, &paths, &mut fields);
        assert_eq!(query.filter().passes(&row), Ok(true), "{value}");
    }
}

/// Goal: the bytes of a value exclude records that cannot pass, but none that can fail.
#[test]
fn bytes_tell_what_cannot_pass() {
    let values = [
        r#"{"n":5,"s":"abc"}"#,
        r#"{"n":15,"s":"ab"}"#,
        r#"{"n":"x","s":null}"#,
        r#"{"\u006e":5,"s":"abc"}"#,
        r#"{"s":"n"}"#,
    ];
    for (condition, may_pass) in [
        ("(value->>'n')::bigint >= 10", [false, true, true, true, false]),
        (
            "(value->>'n')::bigint > 4 AND (value->>'n')::bigint < 6",
            [true, false, true, true, false],
        ),
        ("(value->>'n')::numeric <= 4.5", [true, false, true, true, false]),
        ("(value->>'n')::numeric < -4.5", [false, false, true, true, false]),
        ("(value->>'n')::float8 = 5", [true, false, true, true, false]),
        ("(value->>'n')::int IN (1, 5, 7)", [true, false, true, true, false]),
        ("value->>'s' = 'abc'", [true, false, false, true, false]),
        ("value->>'s' LIKE 'abc%'", [true, false, false, true, false]),
        ("value->>'s' = 'abc' AND (value->>'n')::bigint > 9", [true, false, false, true, false]),
        ("value->>'s' <> 'abc'", [true; 5]),
        ("value->>'s' IN ('x', 'y')", [true; 5]),
        ("(value->>'n')::bigint > 4 OR key = 'k'", [true; 5]),
        ("(value->>',')::bigint > 9", [true; 5]),
    ] {
        let query = parse_query(&format!("SELECT key FROM t WHERE {condition}"));
        let table = Table::log("t");
        let query = Query::compile(&query.expect("a query"), &table, &mut Paths::new());
        let query = query.expect("it compiles");
        let told = values.map(|it| query.filter().may_pass(Some(it.as_bytes())));
        assert_eq!(told, may_pass, "{condition}");
    }
}

/// Goal: the index finds exactly the filters that a record passes or fails on.
/// Method: random filters, some with failing casts, are added and removed. Each record is evaluated
/// by the index and by each filter.
#[test]
fn an_index_finds_what_each_filter_alone_finds() {
    for_each_seed("cargo test -p live-queries --test filters", 60, |seed| {
        let mut random = Random::new(seed);
        let mut paths = Paths::new();
        let mut index = FilterIndex::new(1_000);
        let mut queries: Vec<(live_queries::FilterId, Query)> = Vec::new();
        let mut fields = Fields::default();
        let mut found = Found::default();
        for _ in 0..300 {
            match random.below(5) {
                0 if !queries.is_empty() => {
                    let (id, query) = queries.swap_remove(random.index(queries.len()));
                    index.remove(id);
                    query.release(&mut paths);
                }
                0..=2 => {
                    let sql = random_filter(&mut random);
                    let query = parse_query(&format!("SELECT key FROM t WHERE {sql}"));
                    let query = query.unwrap_or_else(|error| panic!("{sql}: {error}"));
                    let query = Query::compile(&query, &Table::log("t"), &mut paths);
                    let query = query.unwrap_or_else(|error| panic!("{sql}: {error}"));
                    let id = index.insert(query.filter().clone()).expect("there is room");
                    queries.push((id, query));
                }
                _ => {
                    let document = random_document(&mut random);
                    let row = Row::read(record(&document), &paths, &mut fields);
                    index.find(&row, &mut found);
                    found.passed.sort_unstable();
                    found.failed.sort_unstable_by_key(|it| it.0);
                    assert_eq!(found, one_by_one(&queries, &row), "{}", document.text);
                    let is_any = !found.passed.is_empty() || !found.failed.is_empty();
                    let may_find = index.may_find(row.record().value);
                    assert!(may_find || !is_any, "{} is passed over", document.text);
                }
            }
        }
        assert_eq!(index.len(), queries.len());
        for (id, query) in queries {
            index.remove(id);
            query.release(&mut paths);
        }
        assert!(index.is_empty() && paths.is_empty(), "all was given back");
    });
}

fn one_by_one(queries: &[(live_queries::FilterId, Query)], row: &Row<'_>) -> Found {
    let mut found = Found::default();
    for (id, query) in queries {
        let filter: &Arc<live_queries::Filter> = query.filter();
        let may_pass = filter.may_pass(row.record().value);
        assert!(may_pass || filter.passes(row) == Ok(false), "{filter:?} passes over {row:?}");
        match filter.passes(row) {
            Ok(true) => found.passed.push(*id),
            Ok(false) => {}
            Err(error) => found.failed.push((*id, error)),
        }
    }
    found.passed.sort_unstable();
    found.failed.sort_unstable_by_key(|it| it.0);
    found
}

/// Random conditions that an index supports or does not, some with failing casts.
fn random_filter(random: &mut Random) -> String {
    let count = 1 + random.below(3);
    let conditions: Vec<String> = (0..count).map(|_| random_indexed(random)).collect();
    conditions.join(" AND ")
}

fn random_indexed(random: &mut Random) -> String {
    let text = random.pick(&["key", "value->>'s'", "value->'o'->>'t'", "lower(key)"]);
    let number = random.pick(&[
        "(value->>'n')::bigint",
        "(value->>'n')::numeric",
        "(value->>'s')::float8",
        "\"offset\"",
    ]);
    let word = random.pick(&["a", "ab", "b", "abc", ""]);
    let limit = random.pick(&["-1", "0", "1", "2", "3", "10"]);
    let other = random.pick(&["1", "2.5", "5", "7"]);
    match random.below(10) {
        0 | 1 => format!("{text} = '{word}'"),
        2 => format!("{text} IN ('{word}', 'abd')"),
        3 => format!("{number} = {limit}"),
        4 => format!("{number} >= {limit} AND {number} < {other}"),
        5 => format!("{number} BETWEEN {limit} AND {other}"),
        6 => format!("{other} > {number}"),
        7 => format!("{text} LIKE '{word}%'"),
        8 => format!("{text} <> '{word}'"),
        _ => format!("{text} LIKE '{word}_%b' OR {number} = {limit}"),
    }
}
