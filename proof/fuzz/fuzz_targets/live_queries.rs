//! SQL text of live queries, run on records: no panic, no overflow, and the index of filters finds
//! the same as each filter individually.
//!
//! Input: statement text, a zero byte, and a record's value.
#![no_main]

use std::str;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use live_queries::{
    Change, Fields, FilterIndex, Found, GroupLimits, OutputRow, Paths, Query, QueueLimits, Record,
    Row, Statement, Subscribe, Subscription, Table, parse_query, parse_statement,
};

fuzz_target!(|bytes: &[u8]| {
    let split = bytes.iter().position(|it| *it == 0).unwrap_or(bytes.len());
    let (sql, rest) = bytes.split_at(split);
    let value = rest.get(1..).unwrap_or_default();
    let Ok(sql) = str::from_utf8(sql) else { return };
    if let Ok(Some(statement)) = parse_statement(sql) {
        match statement {
            Statement::Subscribe(subscribe)
            | Statement::Copy { subscribe, .. }
            | Statement::Declare { subscribe, .. } => run(&subscribe, value),
            Statement::Create(created) => {
                let again = parse_query(&created.query_text);
                assert_eq!(again.as_ref(), Ok(&created.query), "its text is the query");
            }
            Statement::Fetch(_) | Statement::Drop { .. } => {}
        }
    }
    // Short inputs rarely form a whole statement, but often a condition of one.
    let subscribe = format!("SUBSCRIBE (SELECT key, value->>'a' FROM t WHERE {sql})");
    if let Ok(Some(Statement::Subscribe(subscribe))) = parse_statement(&subscribe) {
        run(&subscribe, value);
    }
});

/// Compiles the query and passes it a record that is inserted, changed and deleted.
fn run(subscribe: &Subscribe, value: &[u8]) {
    let mut paths = Paths::new();
    let table = Table::values("t");
    let Ok(query) = Query::compile(&subscribe.query, &table, &mut paths) else {
        assert!(paths.is_empty(), "a query that is refused keeps no path");
        return;
    };
    let query = Arc::new(query);
    let (mut fields, mut other_fields) = (Fields::default(), Fields::default());
    let row = Row::read(record(value, 0), &paths, &mut fields);
    let other = Row::read(record(b"{\"a\":1,\"b\":[\"x\"]}", 1), &paths, &mut other_fields);
    check_index(&query, &[row, other]);

    let limits = QueueLimits { rows_max: 100, bytes_max: 1 << 20 };
    let group_limits = GroupLimits { groups_max: 10, kept_values_max: 10 };
    let subscription = Subscription::new(query.clone(), subscribe, limits, group_limits);
    let Ok(mut subscription) = subscription else { return };
    subscription.begin_snapshot(0, &[(0, 1)]);
    let passes = |row: &Row<'_>| query.filter().passes(row) == Ok(true);
    if passes(&row) {
        subscription.snapshot_row(&row);
    }
    subscription.end_snapshot();
    let states = [Some(&row), Some(&other), None].map(|it| it.filter(|it| passes(it)));
    for (offset, pair) in (1..).zip(states.windows(2)) {
        let (old, new) = (pair[0], pair[1]);
        let key = Some(b"k".as_slice());
        let offset = Some(offset);
        subscription.apply(&Change { partition: 0, offset, time_ms: 1, key, old, new });
    }
    subscription.tick(i64::MAX);
    let rows = subscription.take();
    let (mut reader, mut row, mut values) = (rows.reader(), OutputRow::default(), Vec::new());
    while reader.read(&mut row) {
        subscription.layout().values(&mut row, &mut values);
        let columns = subscription.columns().len();
        assert_eq!(values.len(), columns, "one value for each column");
    }
}

fn check_index(query: &Query, rows: &[Row<'_>]) {
    let mut index = FilterIndex::new(1);
    let id = index.insert(query.filter().clone()).expect("it has room for one");
    let mut found = Found::default();
    for row in rows {
        index.find(row, &mut found);
        let (passed, failed) = match query.filter().passes(row) {
            Ok(true) => (vec![id], Vec::new()),
            Ok(false) => (Vec::new(), Vec::new()),
            Err(error) => (Vec::new(), vec![(id, error)]),
        };
        assert_eq!(found, Found { passed, failed });
    }
}

fn record(value: &[u8], offset: i64) -> Record<'_> {
    Record {
        partition: 0,
        offset,
        timestamp_ms: 0,
        key: Some(b"k"),
        value: Some(value),
        headers: &[],
    }
}
