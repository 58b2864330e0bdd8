//! Fetch, versions 4 to 16: requests are shown to a visitor partition by partition, and responses
//! are written in pieces, so that records go out from where they were read.

use crate::WireError;
use crate::wire::{Reader, Writer};

/// The first version with lengths of variable size.
const FLEXIBLE_FROM: i16 = 12;

/// The first version that names topics by id (KIP-516).
const IDS_FROM: i16 = 13;

/// Fields of a request beside its partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchStart {
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    /// True if records of open and aborted transactions stay out (`read_committed`).
    pub is_committed_only: bool,
    /// 0 where there is none (KIP-227).
    pub session_id: i32,
    /// -1: no session; 0: a new one; else the session goes on.
    pub session_epoch: i32,
    /// True if topics are named by their ids.
    pub is_by_id: bool,
}

/// Reference of a request to a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicRef<'a> {
    Name(&'a str),
    Id([u8; 16]),
}

/// Range that is wanted of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchPartition {
    pub index: i32,
    /// -1 where the client does not know.
    pub leader_epoch: i32,
    pub offset: i64,
    /// The epoch of the record before `offset`; -1 where the client does not know (KIP-595).
    pub last_fetched_epoch: i32,
    pub max_bytes: i32,
}

/// Is shown what a request names.
pub trait FetchVisitor {
    /// A partition is wanted, from now on if there is a session.
    fn want(&mut self, topic: TopicRef<'_>, partition: FetchPartition);
    /// A partition is no longer part of the session.
    fn forget(&mut self, topic: TopicRef<'_>, index: i32);
}

/// Reads the body of a request.
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

/// A transaction whose records a client is to leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    pub producer_id: i64,
    pub first_offset: i64,
}

/// Answer for one partition, but for the records.
#[derive(Clone, Copy, Debug)]
pub struct Fetched<'a> {
    pub index: i32,
    pub error_code: i16,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub log_start_offset: i64,
    /// `None` unless only committed records are asked for.
    pub aborted: Option<&'a [AbortedTransaction]>,
    pub records_bytes: usize,
}

/// Answer before the first topic.
#[derive(Clone, Copy, Debug, Default)]
pub struct FetchBegin {
    /// Time that the client is to wait before its next request (KIP-219).
    pub throttle_time_ms: i32,
    /// 0, or the code of an error of the whole request.
    pub error_code: i16,
    /// 0 where there is none.
    pub session_id: i32,
    pub topic_count: usize,
}

/// Writes the body of a response from its beginning to its end.
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

    /// Begins a topic. `name` and `id` are those of the request, whichever it has.
    pub fn begin_topic(&mut self, name: &str, id: [u8; 16], partition_count: usize) {
        match self.version >= IDS_FROM {
            true => self.writer.uuid(id),
            false => self.writer.string(Some(name)),
        }
        self.writer.count(partition_count);
    }

    /// Begins a partition; its records go out after this, and then [`Self::end_partition`].
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
