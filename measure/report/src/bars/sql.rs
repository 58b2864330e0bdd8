//! Bars on SQL and live queries over topics, each within one run.

use results::Suite;

use super::{Bar, at_least, at_most, newest};
use crate::book::Book;
use crate::figure::{Estimated, Format};
use crate::group::Group;

const BROKER: &str = "memlane-broker";
const POSTGRESQL: &str = "PostgreSQL";
const CONSUMER: &str = "Kafka consumer of memlane-broker";
const LIVE_QUERY: &str = "live query of memlane-broker";

const RECORDS_PER_S: &str = "figures/records_per_s";

/// Sizes to which the bars apply.
const LIVE_QUERIES: u64 = 10_000;
const KEYS: u64 = 10_000_000;

pub(super) fn bars(book: &Book) -> Vec<Bar> {
    let groups = book.groups(Suite::Sql);
    let mut bars = query_bars(book, &groups);
    bars.extend(follow_bars(book, &groups));
    bars.extend(many_bars(book, &groups));
    bars.extend(delivery_bars(book, &groups));
    bars.extend(value_bars(book, &groups));
    bars
}

/// Returns the ratio of a figure to that of another group in the same run.
fn ratio<'book>(
    book: &'book Book,
    groups: &[Group<'book>],
    (is_own, is_other): (impl Fn(&Group<'book>) -> bool, impl Fn(&Group<'book>) -> bool),
    path: &str,
) -> Option<Estimated> {
    let own = newest(groups, is_own)?;
    let other = newest(groups, |group| group.run() == own.run() && is_other(group))?;
    book.ratio((own, path), (other, path))
}

fn is_of(group: &Group, (case, target): (&str, &str)) -> bool {
    group.case() == case && group.target() == target
}

/// Returns bars that compare the same query on the broker and on PostgreSQL.
fn query_bars(book: &Book, groups: &[Group]) -> Vec<Bar> {
    let over = |case: &str, figure: &str| {
        let is_own = |group: &Group| is_of(group, (case, BROKER));
        let is_other = |group: &Group| is_of(group, (case, POSTGRESQL));
        ratio(book, groups, (is_own, is_other), figure)
    };
    let scans = [
        (
            "scan, equality that 0.1 % pass",
            "SQL scan, equality that 0.1 % pass, records per second over PostgreSQL's",
            "SQL scan, equality",
        ),
        (
            "scan, range that 1 % pass",
            "SQL scan, range that 1 % pass, records per second over PostgreSQL's",
            "SQL scan, 1 %",
        ),
        (
            "scan, range that 50 % pass",
            "SQL scan, range that 50 % pass, records per second over PostgreSQL's",
            "SQL scan, 50 %",
        ),
        (
            "groups, count and sum by symbol",
            "SQL groups over all records, records per second over PostgreSQL's",
            "SQL groups",
        ),
    ];
    let lookups = over("current value by key", "figures/lookups_per_s");
    let mut bars = vec![at_least(1.2, lookups).named(
        "current value by key over SQL, 4 clients, lookups per second over PostgreSQL's",
        "SQL lookup, to PostgreSQL",
    )];
    let scan = |(case, what, short)| at_least(4.0, over(case, RECORDS_PER_S)).named(what, short);
    bars.extend(scans.map(scan));
    bars
}

fn follow_bars(book: &Book, groups: &[Group]) -> Vec<Bar> {
    let measured = |log: &str, percent: &str| {
        let is_own = |group: &Group| {
            group.target() == LIVE_QUERY && group.has(&[("log", log), ("pass_percent", percent)])
        };
        let is_other = |group: &Group| group.target() == CONSUMER && group.has(&[("log", log)]);
        ratio(book, groups, (is_own, is_other), RECORDS_PER_S)
    };
    vec![
        at_least(0.8, measured("filled", "0")).named(
            "filled log, live query that no record passes, records per second over a consumer's",
            "live query, 0 %",
        ),
        at_least(0.8, measured("filled", "1"))
            .named("filled log, live query that 1 % pass, over a consumer's", "live query, 1 %"),
        at_least(0.6, measured("filled", "50"))
            .named("filled log, live query that 50 % pass, over a consumer's", "live query, 50 %"),
        at_least(0.5, measured("filled", "100"))
            .named("filled log, live query that all pass, over a consumer's", "live query, 100 %"),
        at_least(0.8, measured("coming", "0")).named(
            "records that come, live query that none passes, records per second over a consumer's",
            "live query meanwhile, 0 %",
        ),
        at_least(0.8, measured("coming", "1")).named(
            "records that come, live query that 1 % pass, over a consumer's",
            "live query meanwhile, 1 %",
        ),
        at_least(0.6, measured("coming", "50")).named(
            "records that come, live query that 50 % pass, over a consumer's",
            "live query meanwhile, 50 %",
        ),
        at_least(0.5, measured("coming", "100")).named(
            "records that come, live query that all pass, over a consumer's",
            "live query meanwhile, 100 %",
        ),
    ]
}

fn many_bars(book: &Book, groups: &[Group]) -> Vec<Bar> {
    let measured = |percent: &str| {
        let group = newest(groups, |group| {
            group.has(&[("op", "many live queries"), ("pass_percent", percent)])
                && group.count("queries").is_some_and(|count| count >= LIVE_QUERIES)
        });
        book.estimate(group?, RECORDS_PER_S)
    };
    let bar = |percent| at_least(200_000.0, measured(percent)).shown_as(Format::Count);
    vec![
        bar("0.1").named(
            "10,000 live queries of 0.1 % of the records each, records per second taken in and \
             delivered",
            "10,000 live queries, 0.1 %",
        ),
        bar("0.001").named(
            "10,000 live queries of 0.001 % of the records each, records per second taken in and \
             delivered",
            "10,000 live queries, 0.001 %",
        ),
    ]
}

fn delivery_bars(book: &Book, groups: &[Group]) -> Vec<Bar> {
    let over = |path: &str| {
        let is_at = |group: &Group, target: &str| {
            group.target() == target && group.has(&[("op", "delivery")])
        };
        let is_own = |group: &Group| is_at(group, LIVE_QUERY);
        let is_other = |group: &Group| is_at(group, CONSUMER);
        ratio(book, groups, (is_own, is_other), path)
    };
    vec![
        at_most(1.5, over("latency/p50")).named(
            "a message as row of a live query at 5,000 a second, p50 over a consumer's",
            "live row, p50",
        ),
        at_most(1.5, over("latency/p99")).named(
            "a message as row of a live query at 5,000 a second, p99 over a consumer's",
            "live row, p99",
        ),
    ]
}

fn value_bars(book: &Book, groups: &[Group]) -> Vec<Bar> {
    let at_size = |case: &str, path: &str| -> Option<Estimated> {
        let group = newest(groups, |group| {
            let keys = group.count("keys").unwrap_or_default();
            group.case() == case && keys >= KEYS
        });
        book.estimate(group?, path)
    };
    let is_keeping = |group: &Group| is_of(group, ("produce, memlane.values=latest", BROKER));
    let is_plain = |group: &Group| is_of(group, ("produce, memlane.values=none", BROKER));
    let keeping = ratio(book, groups, (is_keeping, is_plain), RECORDS_PER_S);
    let restart = at_size("first read of a current value after a restart", FIRST_READ_NS);
    vec![
        at_most(
            32.0,
            at_size("current values, memory beside the log", "figures/index_bytes_per_key"),
        )
        .named(
            "10 million current values, bytes of memory for each key beside the log",
            "current values, bytes a key",
        )
        .shown_as(Format::Count),
        at_most(2e9, restart)
            .named(
                "10 million current values, from the start of the broker to the first read",
                "current values, restart",
            )
            .shown_as(Format::Micros),
        at_least(0.8, keeping).named(
            "producer of a topic that keeps current values, records per second over one \
                 that does not",
            "produce, current values",
        ),
    ]
}

const FIRST_READ_NS: &str = "figures/first_read_ns";
