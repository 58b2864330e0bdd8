//! Record batches of version 2, as producers send, logs store and consumers fetch them.
//!
//! ```text
//! byte  0 base offset         i64      23 last offset delta  i32      57 record count  i32
//!       8 length after here   i32      27 base timestamp     i64      61 records …
//!      12 leader epoch        i32      35 max timestamp      i64
//!      16 magic, 2            i8       43 producer id        i64
//!      17 CRC-32C from 21 on  u32      51 producer epoch     i16
//!      21 attributes          i16      53 base sequence      i32
//! ```
//!
//! Numbers are big-endian. The checksum excludes the first 21 bytes, so a log sets base offset and
//! leader epoch without computing it again. A record consists of length, attributes, timestamp and
//! offset deltas, key, value and headers. Its numbers are zigzag-encoded varints, as in Protocol
//! Buffers. Source: Apache Kafka, "Message Format".
#![forbid(unsafe_code)]

mod compression;
mod encode;
mod header;
mod marker;
mod produced;
mod records;
mod varint;

pub use compression::{Codec, Undecodable};
pub use encode::{BatchOptions, BatchProducer, Header, NewRecord, Unencodable, encode_batch};
pub use header::{
    BatchHeader, HEADER_BYTES, counts_backwards, crc32c, declared_size, has_valid_checksum,
    headers, seal, sequence_after, set_append_time, set_max_timestamp, set_place,
};
pub use marker::{Marker, TransactionEnd};
pub use produced::{ProducedRecord, each_produced};
pub use records::{HeaderIter, Headers, Record, Records};
