//! Produce, versions 3 to 12, parsed in place. The records of each partition are passed to the
//! caller without a copy, the response is written meanwhile, and partitions need no allocation.

use std::collections::HashMap;
use std::ops::Range;

use crate::WireError;
use crate::wire::{Reader, Writer};

/// First flexible version (KIP-482).
const FLEXIBLE_FROM: i16 = 9;

/// Fields of a request before its topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProduceStart<'a> {
    pub transactional_id: Option<&'a str>,
    /// 0: no response; 1 and -1: response once the batch is stable.
    pub acks: i16,
    pub timeout_ms: i32,
    topics_at: usize,
}

impl<'a> ProduceStart<'a> {
    pub fn read(body: &'a [u8], version: i16) -> Result<Self, WireError> {
        let mut reader = Reader::new(body, version >= FLEXIBLE_FROM);
        let transactional_id = reader.string()?;
        let (acks, timeout_ms) = (reader.i16()?, reader.i32()?);
        Ok(Self { transactional_id, acks, timeout_ms, topics_at: reader.position() })
    }
}

/// Callback for a topic's name, a partition's number and its records.
pub type Visit<'a> = dyn FnMut(&str, i32, Option<&[u8]>) + 'a;

/// Parsed form of a request whose whole body is well-formed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    version: i16,
    topics_at: usize,
    /// Indexes of partition entries that a later entry supersedes, in ascending order.
    replaced: Vec<usize>,
}

impl Checked {
    /// Parses the whole body that begins with `start`, and passes each partition entry to `visit`,
    /// including superseded ones. Fails if the body is malformed.
    pub fn read(
        body: &[u8],
        version: i16,
        start: &ProduceStart<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<Self, WireError> {
        let topics_at = start.topics_at;
        let topics = &body[topics_at..];
        let mut reader = Reader::new(topics, version >= FLEXIBLE_FROM);
        let mut named = Named::default();
        for _ in 0..reader.count()? {
            let name = reader.string()?.unwrap_or_default();
            for _ in 0..reader.count()? {
                let index = reader.i32()?;
                let records = reader.bytes()?;
                named.note(name, index);
                visit(name, index, records.map(|range| &topics[range]));
                reader.skip_tags()?;
            }
            reader.skip_tags()?;
        }
        reader.skip_tags()?;
        reader.end()?;
        named.replaced.sort_unstable();
        Ok(Self { version, topics_at, replaced: named.replaced })
    }

    /// Returns the number of superseded entries in a range of indexes.
    fn replaced_among(&self, places: &Range<usize>) -> usize {
        let before = |place| self.replaced.partition_point(|it| *it < place);
        before(places.end) - before(places.start)
    }
}

/// Up to this number, partitions are searched linearly, without an allocation.
const FEW: usize = 8;

/// Partitions seen so far, with the index of the last entry of each.
#[derive(Default)]
struct Named<'a> {
    few: [(&'a str, i32); FEW],
    /// Used from the ninth partition or the first duplicate on.
    many: HashMap<(&'a str, i32), usize>,
    count: usize,
    replaced: Vec<usize>,
}

impl<'a> Named<'a> {
    fn note(&mut self, name: &'a str, number: i32) {
        let place = self.count;
        self.count += 1;
        if self.many.is_empty() {
            let few = place.min(FEW);
            let is_new = !self.few[..few].iter().any(|it| it.1 == number && it.0 == name);
            if let Some(free) = self.few.get_mut(place).filter(|_| is_new) {
                *free = (name, number);
                return;
            }
            self.many.extend(self.few[..few].iter().copied().zip(0..));
        }
        self.replaced.extend(self.many.insert((name, number), place));
    }
}

/// Result of an append to one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Produced {
    /// 0, or an error code.
    pub error_code: i16,
    /// -1 after an error.
    pub base_offset: i64,
    /// -1 unless the topic uses LogAppendTime.
    pub log_append_time_ms: i64,
    /// -1 if the batch was rejected before its log was accessed.
    pub log_start_offset: i64,
    pub message: Option<String>,
    /// Records because of which the batch was rejected.
    pub record_errors: Vec<RecordError>,
}

/// Reason for which a record was rejected (KIP-467).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordError {
    /// Index of the record in the batch.
    pub index: i32,
    pub message: String,
}

impl Produced {
    pub fn error(code: i16) -> Self {
        Self {
            error_code: code,
            base_offset: -1,
            log_append_time_ms: -1,
            log_start_offset: -1,
            message: None,
            record_errors: Vec::new(),
        }
    }
}

/// Appends the records of a request's partitions.
pub trait Appender {
    /// Appends the batches of one partition. `records` is `None` if the client sent null.
    /// `error_at` is the position of the partition's error code in the response buffer, so that
    /// later failures can be written there.
    fn append(
        &mut self,
        topic: &str,
        partition: i32,
        records: Option<&mut [u8]>,
        error_at: usize,
    ) -> Produced;

    /// Returns the time in milliseconds that the client must wait before its next request
    /// (KIP-219). Called once, after the last partition was appended.
    fn throttle_time_ms(&mut self) -> i32;
}

/// Passes each partition's records to `appender` and writes the response's body to `into`. `body`
/// must be the one that was checked. As in Kafka, if a partition occurs more than once, only its
/// last entry is appended and answered.
pub fn serve(
    body: &mut [u8],
    checked: &Checked,
    into: &mut Vec<u8>,
    appender: &mut dyn Appender,
) -> Result<(), WireError> {
    let Checked { version, topics_at: mut at, ref replaced } = *checked;
    let is_flexible = version >= FLEXIBLE_FROM;
    let mut seen_count = 0;
    let mut writer = Writer::new(into, is_flexible);
    // Positions are kept instead of a reader because the records are modified in place.
    let (topic_count, next) = step(body, at, is_flexible, Reader::count)?;
    at = next;
    writer.count(topic_count);
    for _ in 0..topic_count {
        let name_at = at;
        let (_, next) = step(body, at, is_flexible, |it| it.string().map(|_| ()))?;
        let (partition_count, next) = step(body, next, is_flexible, Reader::count)?;
        at = next;
        let (name, _) = step(body, name_at, is_flexible, Reader::string)?;
        writer.string(Some(name.unwrap_or_default()));
        let places = seen_count..seen_count + partition_count;
        writer.count(partition_count - checked.replaced_among(&places));
        for place in places {
            seen_count += 1;
            let (index, next) = step(body, at, is_flexible, Reader::i32)?;
            let (records, after) = step(body, next, is_flexible, Reader::bytes)?;
            let (_, after) = step(body, after, is_flexible, Reader::skip_tags)?;
            at = after;
            if replaced.binary_search(&place).is_ok() {
                continue;
            }
            writer.i32(index);
            let error_at = writer.into.len();
            // The name precedes the records, and only the records are borrowed mutably.
            let (before, rest) = body.split_at_mut(next);
            let (name, _) = step(before, name_at, is_flexible, Reader::string)?;
            let records = records.map(|range| &mut rest[range]);
            let produced = appender.append(name.unwrap_or_default(), index, records, error_at);
            write_partition(&mut writer, version, &produced);
        }
        let (_, next) = step(body, at, is_flexible, Reader::skip_tags)?;
        at = next;
        writer.no_tags();
    }
    writer.i32(appender.throttle_time_ms());
    writer.no_tags();
    Ok(())
}

fn write_partition(writer: &mut Writer<'_>, version: i16, produced: &Produced) {
    writer.i16(produced.error_code);
    writer.i64(produced.base_offset);
    writer.i64(produced.log_append_time_ms);
    if version >= 5 {
        writer.i64(produced.log_start_offset);
    }
    if version >= 8 {
        writer.count(produced.record_errors.len());
        for error in &produced.record_errors {
            writer.i32(error.index);
            writer.string(Some(&error.message));
            writer.no_tags();
        }
        writer.string(produced.message.as_deref());
    }
    writer.no_tags();
}

/// Parses one item at a position of the body. Returns it and the position after it. Ranges in the
/// item are relative to the given position.
fn step<'a, T>(
    body: &'a [u8],
    at: usize,
    is_flexible: bool,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, WireError>,
) -> Result<(T, usize), WireError> {
    let mut reader = Reader::new(&body[at..], is_flexible);
    let value = read(&mut reader)?;
    Ok((value, at + reader.position()))
}
