//! Conversion of records of the log to rows of queries.

use live_queries::{Fields, Header, Paths, Row};
use record_batch::Record;

/// Calls `look` with a record as a row.
pub(super) fn with_row<T>(
    (partition, record): (u32, &Record<'_>),
    paths: &Paths,
    look: impl FnOnce(&Row<'_>) -> T,
) -> T {
    let headers = record.headers.iter().filter_map(|(name, value)| {
        // Kafka's header names are UTF-8. Others cannot be represented in JSON.
        Some(Header { name: std::str::from_utf8(name).ok()?, value })
    });
    let headers: Vec<Header<'_>> = headers.collect();
    let record = live_queries::Record {
        partition: i32::try_from(partition).expect("partitions have a limit"),
        offset: record.offset,
        timestamp_ms: record.timestamp_ms,
        key: record.key,
        value: record.value,
        headers: &headers,
    };
    let mut fields = Fields::default();
    look(&Row::read(record, paths, &mut fields))
}
