//! Conversion of records to rows of queries.

use live_queries::{Fields, Header, Paths, Record, Row};

use crate::topics::KeptRecord;

/// Calls `show` with a record of a batch as a row.
pub(super) fn with_row<T>(
    (partition, record): (i32, &record_batch::Record<'_>),
    (paths, fields): (&Paths, &mut Fields),
    show: impl FnOnce(&Row<'_>) -> T,
) -> T {
    let headers: Vec<Header<'_>> = record.headers.iter().map(header).collect();
    let record = Record {
        partition,
        offset: record.offset,
        timestamp_ms: record.timestamp_ms,
        key: record.key,
        value: record.value,
        headers: &headers,
    };
    show(&Row::read(record, paths, fields))
}

/// Same, for an owned record.
pub(super) fn with_kept<T>(
    (partition, record): (i32, &KeptRecord),
    (paths, fields): (&Paths, &mut Fields),
    show: impl FnOnce(&Row<'_>) -> T,
) -> T {
    let headers: Vec<Header<'_>> = record
        .headers
        .iter()
        .map(|it| Header { name: &it.name, value: it.value.as_deref() })
        .collect();
    let record = Record {
        partition,
        offset: record.offset,
        timestamp_ms: record.timestamp_ms,
        key: record.key.as_deref(),
        value: record.value.as_deref(),
        headers: &headers,
    };
    show(&Row::read(record, paths, fields))
}

/// A name that is not UTF-8 becomes empty.
fn header<'a>((name, value): (&'a [u8], Option<&'a [u8]>)) -> Header<'a> {
    Header { name: std::str::from_utf8(name).unwrap_or_default(), value }
}
