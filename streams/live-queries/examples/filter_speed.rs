//! Benchmark of filters: records per second of thread CPU time.
//!
//! `cargo run --release -p live-queries --example filter_speed [RECORDS]`
//!
//! Reads JSON records of 300 bytes, filters them, and projects those that pass: with a single query
//! that passes 0, 1, 50 and 100 % of them, and with 10,000 queries that each pass 0.1 %, with and
//! without the index.

#![expect(clippy::print_stdout, reason = "a measurement for people")]

use std::hint::black_box;
use std::time::Duration;

use live_queries::{
    Fields, FilterIndex, Found, Paths, Query, Record, Row, SqlError, Table, parse_query,
};

const QUERY_COUNT: usize = 10_000;
const SYMBOL_COUNT: u64 = 1_000;
const RECORD_BYTES: usize = 300;

fn main() -> Result<(), SqlError> {
    let count = std::env::args().nth(1).and_then(|it| it.parse().ok()).unwrap_or(200_000);
    let records: Vec<Vec<u8>> = (0..count).map(record).collect();
    for percent in [0, 1, 50, 100] {
        one_query(&records, percent)?;
    }
    for (name, filter) in FILTERS {
        many_queries(&records, name, *filter)?;
    }
    Ok(())
}

/// Builds the filter of query `number`, which one record in a thousand passes.
type FilterOf = fn(u64) -> String;

const FILTERS: &[(&str, FilterOf)] = &[
    ("equality", |number| format!("value->>'symbol' = 'S{}'", number % SYMBOL_COUNT)),
    ("equality and range", |number| {
        let symbol = number % (SYMBOL_COUNT / 10);
        let low = number % 10 * 100;
        format!(
            "value->>'group' = 'G{symbol}' AND (value->>'price')::bigint >= {low} \
             AND (value->>'price')::bigint < {}",
            low + 100
        )
    }),
    ("range", |number| {
        let low = number % 1_000;
        format!("(value->>'price')::bigint BETWEEN {low} AND {low}")
    }),
    ("prefix", |number| format!("value->>'account' LIKE 'A{:03}%'", number % SYMBOL_COUNT)),
];

fn record(number: u64) -> Vec<u8> {
    // Hashed, so that the fields of a record are not correlated.
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    let mut text = format!(
        "{{\"id\":{number},\"symbol\":\"S{}\",\"group\":\"G{}\",\"price\":{},\"percent\":{},\
         \"account\":\"A{:03}-{number}\",\"side\":\"buy\",\"flags\":[true,false,null],\
         \"venue\":{{\"name\":\"X\",\"zone\":3}},\"note\":\"",
        mixed % SYMBOL_COUNT,
        mixed / 7 % (SYMBOL_COUNT / 10),
        mixed / 11 % 1_000,
        mixed / 13 % 100,
        mixed / 17 % SYMBOL_COUNT,
    );
    while text.len() < RECORD_BYTES - 2 {
        text.push('.');
    }
    text.push_str("\"}");
    text.into_bytes()
}

fn row_of(value: &[u8], offset: usize) -> Record<'_> {
    Record {
        partition: 0,
        offset: i64::try_from(offset).unwrap_or(i64::MAX),
        timestamp_ms: 0,
        key: None,
        value: Some(value),
        headers: &[],
    }
}

fn compile(filter: &str, paths: &mut Paths) -> Result<Query, SqlError> {
    let sql = format!("SELECT value->>'symbol', value->>'price' FROM t WHERE {filter}");
    Query::compile(&*parse_query(&sql)?, &Table::log("t"), paths)
}

fn one_query(records: &[Vec<u8>], percent: u32) -> Result<(), SqlError> {
    let mut paths = Paths::new();
    let query = compile(&format!("(value->>'percent')::bigint < {percent}"), &mut paths)?;
    let mut fields = Fields::default();
    let mut passed = 0;
    let start = cpu_time();
    for (offset, value) in records.iter().enumerate() {
        let row = Row::read(row_of(value, offset), &paths, &mut fields);
        if query.filter().passes(&row) == Ok(true) {
            passed += 1;
            black_box(query.project(&row));
        }
    }
    report(&format!("one query, {percent} %"), records.len(), passed, start);
    Ok(())
}

fn many_queries(records: &[Vec<u8>], name: &str, filter: FilterOf) -> Result<(), SqlError> {
    let mut paths = Paths::new();
    let mut index = FilterIndex::new(QUERY_COUNT);
    let mut queries = Vec::with_capacity(QUERY_COUNT);
    let start = cpu_time();
    for number in 0..QUERY_COUNT as u64 {
        let query = compile(&filter(number), &mut paths)?;
        index.insert(query.filter().clone())?;
        queries.push(query);
    }
    println!("{name}: {QUERY_COUNT} queries made in {:.2?}", cpu_time() - start);

    let (mut fields, mut found, mut passed) = (Fields::default(), Found::default(), 0);
    let start = cpu_time();
    for (offset, value) in records.iter().enumerate() {
        let row = Row::read(row_of(value, offset), &paths, &mut fields);
        index.find(&row, &mut found);
        passed += found.passed.len();
    }
    report(&format!("{name}, by the index"), records.len(), passed, start);

    let some = &records[..records.len() / 200];
    let mut passed = 0;
    let start = cpu_time();
    for (offset, value) in some.iter().enumerate() {
        let row = Row::read(row_of(value, offset), &paths, &mut fields);
        passed += queries.iter().filter(|it| it.filter().passes(&row) == Ok(true)).count();
    }
    report(&format!("{name}, one by one"), some.len(), passed, start);
    Ok(())
}

/// CPU time of this thread. Other load on the machine affects only the CPU caches.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("a thread has used no negative time")
}

fn report(name: &str, records: usize, passed: usize, start: Duration) {
    let elapsed = cpu_time() - start;
    let ns_each = elapsed.as_nanos() / records.max(1) as u128;
    let per_second = 1_000_000_000 / ns_each.max(1);
    println!("{name}: {per_second} records/s, {ns_each} ns each; {passed} matches of {records}");
}
