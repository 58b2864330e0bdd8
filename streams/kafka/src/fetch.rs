//! Fetch, versions 4 to 16. Requests are parsed partition by partition into a visitor. Responses
//! are written in pieces, so records are sent from where they were read, without a copy.

use crate::WireError;
use crate::wire::{Reader, Writer};

/// First flexible version (KIP-482).
const FLEXIBLE_FROM: i16 = 12;

/// First version that identifies topics by id (KIP-516).
const IDS_FROM: i16 = 13;

/// Fields of a request except its partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchStart {
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    /// Isolation level `read_committed`: records of open and aborted transactions are excluded.
    pub is_committed_only: bool,
    /// Id of the fetch session (KIP-227); 0 without a session.
    pub session_id: i32,
    /// -1: no session; 0: open a session; otherwise: continue the session.
    pub session_epoch: i32,
    /// True if topics are named by their ids.
    pub is_by_id: bool,
}

/// Topic of a request, by name or id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicRef<'a> {
    Name(&'a str),
    Id([u8; 16]),
}

/// Requested range of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchPartition {
    pub index: i32,
    /// Current leader epoch; -1 if the client does not know it.
    pub leader_epoch: i32,
    pub offset: i64,
    /// Epoch of the record before `offset`; -1 if the client does not know it (KIP-595).
    pub last_fetched_epoch: i32,
    pub max_bytes: i32,
}

/// Receiver of the parsed partitions of a request.
pub trait FetchVisitor {
    /// Adds a partition, in a session also to subsequent requests.
    fn want(&mut self, topic: TopicRef<'_>, partition: FetchPartition);
    /// Removes a partition from the session.
    fn forget(&mut self, topic: TopicRef<'_>, index: i32);
}

/// Parses the body of a request.
pub fn read(
    body: &[u8],
    version: i16,
    visitor: &mut dyn FetchVisitor,
) -> Result<FetchStart, WireError> {
    let mut reader = Reader::new(body, version >= FLEXIBLE_FROM);
    if version < 15 {
        reader.i32()?; // the replica's id
    }
    let (max_wait_ms, min_bytes, max_bytes) = (reader.i32()?, reader.i32()?, reader.i32()?);
    let is_committed_only = reader.i8()? == 1;
    let (mut session_id, mut session_epoch) = (0, -1);
    if version >= 7 {
        (session_id, session_epoch) = (reader.i32()?, reader.i32()?);
    }
    for _ in 0..reader.count()? {
        let topic = read_topic(&mut reader, version)?;
        for _ in 0..reader.count()? {
            visitor.want(topic, read_partition(&mut reader, version)?);
        }
        reader.skip_tags()?;
    }
    if version >= 7 {
        for _ in 0..reader.count()? {
            let topic = read_topic(&mut reader, version)?;
            for _ in 0..reader.count()? {
                visitor.forget(topic, reader.i32()?);
            }
            reader.skip_tags()?;
        }
    }
    if version >= 11 {
        reader.string()?; // the client's rack
    }
    reader.skip_tags()?;
    reader.end()?;
    Ok(FetchStart {
        max_wait_ms,
        min_bytes,
        max_bytes,
        is_committed_only,
        session_id,
        session_epoch,
        is_by_id: version >= IDS_FROM,
    })
}

fn read_topic<'a>(reader: &mut Reader<'a>, version: i16) -> Result<TopicRef<'a>, WireError> {
    if version >= IDS_FROM {
        return reader.uuid().map(TopicRef::Id);
    }
    Ok(TopicRef::Name(reader.string()?.unwrap_or_default()))
}

fn read_partition(reader: &mut Reader<'_>, version: i16) -> Result<FetchPartition, WireError> {
    let index = reader.i32()?;
    let leader_epoch = if version >= 9 { reader.i32()? } else { -1 };
    let offset = reader.i64()?;
    let last_fetched_epoch = if version >= 12 { reader.i32()? } else { -1 };
    if version >= 5 {
        reader.i64()?; // the start of a follower's log
    }
    let max_bytes = reader.i32()?;
    reader.skip_tags()?;
    Ok(FetchPartition { index, leader_epoch, offset, last_fetched_epoch, max_bytes })
}

/// An aborted transaction, whose records a `read_committed` client must skip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    pub producer_id: i64,
    pub first_offset: i64,
}

/// Response for one partition, without its records.
#[derive(Clone, Copy, Debug)]
pub struct Fetched<'a> {
    pub index: i32,
    pub error_code: i16,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub log_start_offset: i64,
    /// Aborted transactions in the range. `None` with isolation level `read_uncommitted`.
    pub aborted: Option<&'a [AbortedTransaction]>,
    pub records_bytes: usize,
}

/// Fields of a response before its first topic.
#[derive(Clone, Copy, Debug, Default)]
pub struct FetchBegin {
    /// Time that the client must wait before its next request (KIP-219).
    pub throttle_time_ms: i32,
    /// 0, or the error code of the whole request.
    pub error_code: i16,
    /// 0 without a session.
    pub session_id: i32,
    pub topic_count: usize,
}

/// Writes the body of a response sequentially.
#[derive(Debug)]
pub struct FetchWriter<'a> {
    writer: Writer<'a>,
    version: i16,
}

impl<'a> FetchWriter<'a> {
    pub fn new(into: &'a mut Vec<u8>, version: i16) -> Self {
        Self { writer: Writer::new(into, version >= FLEXIBLE_FROM), version }
    }

    pub fn begin(&mut self, begin: FetchBegin) {
        self.writer.i32(begin.throttle_time_ms);
        if self.version >= 7 {
            self.writer.i16(begin.error_code);
            self.writer.i32(begin.session_id);
        }
        self.writer.count(begin.topic_count);
    }

    /// Begins a topic. `name` and `id` are those of the request; the version determines which is
    /// sent.
    pub fn begin_topic(&mut self, name: &str, id: [u8; 16], partition_count: usize) {
        match self.version >= IDS_FROM {
            true => self.writer.uuid(id),
            false => self.writer.string(Some(name)),
        }
        self.writer.count(partition_count);
    }

    /// Begins a partition. The caller sends its records next and then calls
    /// [`Self::end_partition`].
    pub fn begin_partition(&mut self, fetched: &Fetched<'_>) {
        let writer = &mut self.writer;
        writer.i32(fetched.index);
        writer.i16(fetched.error_code);
        writer.i64(fetched.high_watermark);
        writer.i64(fetched.last_stable_offset);
        if self.version >= 5 {
            writer.i64(fetched.log_start_offset);
        }
        match fetched.aborted {
            None => writer.null_array(),
            Some(aborted) => {
                writer.count(aborted.len());
                for transaction in aborted {
                    writer.i64(transaction.producer_id);
                    writer.i64(transaction.first_offset);
                    writer.no_tags();
                }
            }
        }
        if self.version >= 11 {
            writer.i32(-1); // no other replica to read from
        }
        writer.bytes_length(fetched.records_bytes);
    }

    pub fn end_partition(&mut self) {
        self.writer.no_tags();
    }

    pub fn end_topic(&mut self) {
        self.writer.no_tags();
    }

    pub fn end(&mut self) {
        self.writer.no_tags();
    }
}
