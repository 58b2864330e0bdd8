//! Arbitrary record batches, as from malicious producers. Shared with the fuzzer, which declares
//! the same modules.

use model::Random;
use record_batch::{BatchHeader, HEADER_BYTES, Marker, TransactionEnd};
use record_log::{Aborted, Batch, LogErrorKind, Partition, Topic};

use crate::support::{Disk, From, batch, new_topic, open, read_all};

/// Maximum batches of one run. More do not find additional defects.
const BATCH_COUNT_MAX: usize = 64;

/// Number of batches after which a new segment and a flush follow.
const BATCHES_PER_SEGMENT: usize = 10;

/// One of them has no producer id and no sequence numbers.
const PRODUCER_COUNT: usize = 4;

/// Result that a producer received: the offset, and whether the batch was a duplicate.
pub(crate) type Told = Result<(i64, bool), LogErrorKind>;

/// Splits arbitrary bytes into batches, alone and after valid batches. Accepted batches must be
/// within the bytes.
pub(crate) fn split(bytes: &[u8]) {
    take_apart(bytes);
    take_apart(&[&batches(bytes).concat(), bytes].concat());
}

fn take_apart(bytes: &[u8]) {
    let mut own = bytes.to_vec();
    let mut rest = &mut own[..];
    let mut left_count = rest.len();
    let mut taken_count = 0;
    while let Ok((batch, after)) = Batch::split_first(rest) {
        let header = batch.header();
        assert_eq!(header.size_bytes + after.len(), left_count);
        assert!(header.size_bytes >= HEADER_BYTES);
        assert_eq!(header.last_offset_delta, header.record_count - 1);
        left_count = after.len();
        rest = after;
        taken_count += 1;
    }
    // Readers walk the batches by their headers. The last one may be truncated.
    let walked: Vec<BatchHeader> = record_batch::headers(&own).collect();
    let whole = walked.split_last().map_or(&[][..], |(_, before)| before);
    assert!(whole.iter().map(|it| it.size_bytes).sum::<usize>() <= own.len());
    assert!(walked.len() >= taken_count, "{taken_count} of {walked:?}");
}

/// Appends batches with valid checksums and arbitrary headers. The log must contain the accepted
/// ones in order. A log that is opened after a kill halfway must return the same results. Returns
/// them.
pub(crate) fn append(bytes: &[u8]) -> Vec<Told> {
    let batches = batches(bytes);
    let (before, after) = batches.split_at(batches.len() / 2);
    let disk = Disk::new();
    let topic = Topic::create(disk.clone(), &new_topic(1)).expect("it is made");
    let partition = topic.partition(0).expect("it is there");
    let mut taken = Vec::new();
    for (index, batch) in before.iter().enumerate() {
        // A rejected batch leaves nothing that the reopened log could find.
        tell(&partition, batch, &mut taken).ok();
        if index % BATCHES_PER_SEGMENT == BATCHES_PER_SEGMENT - 1 {
            partition.roll();
            topic.flush().expect("it flushes");
        }
    }
    let twin_topic = open(&disk.after_kill());
    let twin = twin_topic.partition(0).expect("it is there");
    assert_same(&partition, &twin);
    let (mut taken_by_twin, mut all_told) = (taken.clone(), Vec::new());
    for batch in after {
        let told = tell(&partition, batch, &mut taken);
        assert_eq!(told, tell(&twin, batch, &mut taken_by_twin), "{:?}", BatchHeader::read(batch));
        all_told.push(told);
    }
    assert_same(&partition, &twin);
    topic.flush().expect("it flushes");
    twin_topic.flush().expect("it flushes");
    assert_eq!(partition.stable_offset(), partition.next_offset());
    assert_eq!(partition.last_stable_offset(), twin.last_stable_offset());
    let mut random = Random::new(u64::try_from(bytes.len()).expect("a length"));
    assert_eq!(read_all(&partition, 0, &mut random), taken);
    assert_eq!(read_all(&twin, 0, &mut random), taken_by_twin);
    all_told
}

fn tell(partition: &Partition, bytes: &[u8], taken: &mut Vec<Vec<u8>>) -> Told {
    let mut bytes = bytes.to_vec();
    let (mut batch, rest) = Batch::split_first(&mut bytes).map_err(|it| it.kind)?;
    assert!(rest.is_empty(), "one batch");
    let next_offset = partition.next_offset();
    let appended = partition.append(&mut batch, 0).map_err(|it| it.kind);
    match appended {
        Ok(it) if !it.was_there => {
            assert_eq!((it.base_offset, batch.header().base_offset), (next_offset, next_offset));
            assert_eq!(partition.next_offset(), batch.header().next_offset());
            taken.push(bytes);
        }
        _ => assert_eq!(partition.next_offset(), next_offset, "nothing was appended"),
    }
    appended.map(|it| (it.base_offset, it.was_there))
}

/// Compares the client-visible state of two partitions with the same batches, except their epochs.
fn assert_same(one: &Partition, other: &Partition) {
    let facts = |it: &Partition| {
        let mut aborted: Vec<Aborted> = it.aborted(0..i64::MAX);
        aborted.sort_by_key(|it| (it.last_offset, it.producer_id));
        (it.next_offset(), it.size_bytes(), it.max_timestamp().expect("it reads"), aborted)
    };
    assert_eq!(facts(one), facts(other));
}

/// Generates batches with valid checksums, most of which are as clients send them.
fn batches(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut producers = [Producer::default(); PRODUCER_COUNT];
    let mut made = Vec::new();
    while let Some((choices, rest)) = bytes.split_first_chunk()
        && made.len() < BATCH_COUNT_MAX
    {
        let choices = Choices::from_bytes(*choices);
        let length = (choices.length % 32).min(rest.len());
        let (contents, rest) = rest.split_at(length);
        made.push(choices.batch(&mut producers, contents));
        bytes = rest;
    }
    made
}

/// Epoch and next sequence number of a client's producer.
#[derive(Clone, Copy, Default)]
struct Producer {
    epoch: i16,
    sequence: i32,
}

/// Contents of a batch's header.
struct Choices {
    kind: u8,
    producer: usize,
    epoch: u8,
    sequence: u8,
    count: u8,
    unix_ms: i64,
    length: usize,
    patch: usize,
}

impl Choices {
    fn from_bytes(bytes: [u8; 8]) -> Self {
        let [kind, producer, epoch, sequence, count, time, length, patch] = bytes;
        Self {
            kind,
            producer: usize::from(producer) % PRODUCER_COUNT,
            epoch,
            sequence,
            count,
            unix_ms: i64::from(time) - 8,
            length: usize::from(length),
            patch: usize::from(patch),
        }
    }

    fn batch(&self, producers: &mut [Producer], contents: &[u8]) -> Vec<u8> {
        let producer = &mut producers[self.producer];
        match self.epoch {
            0..16 => *producer = Producer { epoch: producer.epoch + 1, sequence: 0 },
            16..24 => producer.epoch = 0,
            _ => {}
        }
        match self.sequence {
            0..16 => producer.sequence = i32::from(self.sequence),
            16..32 => producer.sequence = i32::MAX - i32::from(self.sequence),
            _ => {}
        }
        let mut bytes = if self.kind.is_multiple_of(4) {
            self.marker(producer)
        } else {
            self.records(producer, contents)
        };
        if self.kind >= 224 {
            // Modifies any header field except length, version and checksum.
            bytes[21 + self.patch % (HEADER_BYTES - 21)] ^= self.kind | 1;
            seal(&mut bytes);
        }
        bytes
    }

    fn marker(&self, producer: &Producer) -> Vec<u8> {
        let marker = if self.kind & 64 == 0 { Marker::Abort } else { Marker::Commit };
        marker.to_batch(TransactionEnd {
            producer_id: self.producer_id(),
            producer_epoch: producer.epoch,
            coordinator_epoch: 0,
            unix_ms: self.unix_ms,
        })
    }

    fn records(&self, producer: &mut Producer, contents: &[u8]) -> Vec<u8> {
        let count = if self.count == 255 { i32::MAX } else { i32::from(self.count % 8) + 1 };
        let from = From {
            producer_id: self.producer_id(),
            epoch: producer.epoch,
            sequence: producer.sequence,
            is_transactional: self.kind % 4 == 1,
        };
        let next = (i64::from(producer.sequence) + i64::from(count)) % (1 << 31);
        producer.sequence = i32::try_from(next).expect("it was taken modulo 2^31");
        batch(from, count, self.unix_ms, contents)
    }

    /// -1 without a producer.
    fn producer_id(&self) -> i64 {
        i64::try_from(self.producer).expect("they are few") - 1
    }
}

fn seal(batch: &mut [u8]) {
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &batch[21..]);
    batch[17..21].copy_from_slice(&u32::try_from(crc).expect("32 bits").to_be_bytes());
}
