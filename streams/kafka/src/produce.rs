//! Produce, versions 3 to 11: read where it lies, answered while it is read. The records of each
//! partition are handed to the caller in place, and nothing is allocated for one partition.

use std::collections::HashMap;
use std::ops::Range;

use crate::WireError;
use crate::wire::{Reader, Writer};

/// The first version with lengths of variable size.
const FLEXIBLE_FROM: i16 = 9;

/// Fields of a request before its topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProduceStart<'a> {
    pub transactional_id: Option<&'a str>,
    /// 0: no answer; 1 and -1: once the batch is stable.
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

/// Is given a topic's name, the number of a partition and the records for it.
pub type Visit<'a> = dyn FnMut(&str, i32, Option<&[u8]>) + 'a;

/// Form of a request whose body is well-formed from its beginning to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    version: i16,
    topics_at: usize,
    /// Places of partitions in the request that are named again later, in ascending order.
    replaced: Vec<usize>,
}

impl Checked {
    /// Goes over the body that begins with `start` once, shows each partition to `visit`, also one
    /// that is named again later, and refuses a body that is not well-formed.
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

    /// Number of replaced partitions among these places.
    fn replaced_among(&self, places: &Range<usize>) -> usize {
        let before = |place| self.replaced.partition_point(|it| *it < place);
        before(places.end) - before(places.start)
    }
}

/// Partitions up to here are looked for one by one, which takes no memory.
const FEW: usize = 8;

/// The partitions that were named so far, and where for the last time.
#[derive(Default)]
struct Named<'a> {
    few: [(&'a str, i32); FEW],
    /// In use once there are more, or one of the few is named again.
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

/// Outcome for the records of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Produced {
    /// 0, or an error's code.
    pub error_code: i16,
    /// -1 after an error.
    pub base_offset: i64,
    /// -1 unless the topic has the time of the append.
    pub log_append_time_ms: i64,
    /// -1 where a batch was refused before its log was looked at.
    pub log_start_offset: i64,
    pub message: Option<String>,
    /// The records for which the batch was refused.
    pub record_errors: Vec<RecordError>,
}

/// Why a record is refused (KIP-467).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordError {
    /// Its place in the batch.
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

/// Takes the records of the partitions of a request.
pub trait Appender {
    /// Appends the batches for a partition of a topic. `records` is `None` where the client sent
    /// null. `error_at` is where the answer's error code will be in the response's buffer, for
    /// errors that show later.
    fn append(
        &mut self,
        topic: &str,
        partition: i32,
        records: Option<&mut [u8]>,
        error_at: usize,
    ) -> Produced;

    /// How long the client is to wait before its next request, in milliseconds (KIP-219). Asked
    /// once, when the last partition was appended.
    fn throttle_time_ms(&mut self) -> i32;
}

/// Hands each partition's records to `appender` and writes the answer's body to `into`. `body` is
/// that which was checked. As in Kafka, of a partition that is named more than once the last
/// records count, and are answered alone.
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
    // Positions are kept instead of a reader, since the records are changed in place.
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
            // The name lies before the records, which alone are lent for changes.
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

/// Reads one thing at a position of the body; returns it and the position after it. Ranges count
/// from the position given.
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
