//! Persistent state of the broker outside of topics: a compacted log of records by key, which is
//! rewritten when most of it is outdated.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::{Bytes, BytesMut};
use kafka_protocol::records::{
    Compression, NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE,
    Record as KafkaRecord, RecordBatchDecoder, RecordBatchEncoder, RecordEncodeOptions,
    TimestampType,
};
use record_log::{Batch, LogError, NewTopic, Partition, SEGMENT_BYTES_MAX, Topic, TopicOptions};
use tokio::sync::Notify;
use uuid::Uuid;
use volumes::{Durability, Reduction};

use crate::clock;
use crate::storage::{STATE_VOLUMES, Storage, VolumeClass};
use crate::topics::{FlushNumber, Flusher, random_id};

/// Location of a state log. No topic's volume has such a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatePlace {
    volume: &'static str,
    /// Properties of the log, which identify it.
    properties: &'static [u8],
}

impl StatePlace {
    /// Log of groups and transactions.
    pub(crate) const COORDINATOR: Self =
        Self { volume: STATE_VOLUMES[0], properties: b"{\"state\":1}" };

    /// Log of objects created by SQL statements.
    pub(crate) const DEFINITIONS: Self =
        Self { volume: STATE_VOLUMES[1], properties: b"{\"definitions\":1}" };
}

/// Approximate size of a batch of records.
const BATCH_BYTES: usize = 1 << 20;

/// Bytes of one read.
const READ_BYTES: usize = 4 << 20;

/// Minimum size for a rewrite. The log is rewritten when it also exceeds twice its size after the
/// last rewrite.
const REWRITTEN_BYTES_MIN: u64 = 512 << 10;

/// Minimum bytes reserved in advance, in the active segment and in a spare one each. The maximum of
/// this and three times the size after a rewrite is reserved: the log exceeds twice that size
/// before the next rewrite, by what is appended at once.
const RESERVED_BYTES_MIN: u64 = 1 << 20;

/// If less memory could be reserved, the log is rewritten when so little of it is left.
const RESERVED_BYTES_LEFT_MIN: u64 = 256 << 10;

/// Maximum time that a start waits for the disk of a log.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);

/// Appended bytes after which an incomplete reservation is retried.
const RESERVED_AFTER_BYTES: usize = 64 << 10;

/// Callback for a key and its value.
pub(crate) type Visit<'a> = dyn FnMut(&[u8], Option<&[u8]>) -> anyhow::Result<()> + 'a;

/// A key and its value. `None` deletes the key.
#[derive(Clone, Debug)]
pub(crate) struct StateRecord {
    pub(crate) key: Bytes,
    pub(crate) value: Option<Bytes>,
}

pub(crate) struct StateLog {
    topic: Arc<Topic>,
    partition: Arc<Partition>,
    flusher: Arc<Flusher>,
    /// True if a flush waited for a disk, according to the volume's class at opening.
    waits_for_disk: bool,
    /// Size after the last rewrite; `u64::MAX` during one, so that no size is considered large.
    least_bytes: Arc<AtomicU64>,
    /// Bytes of memory reserved in advance.
    reserved_bytes: u64,
    /// Bytes appended since the last reservation.
    appended_bytes: usize,
}

impl StateLog {
    /// Opens or creates the log on a volume that is at least as durable as `class`.
    pub(crate) fn open(
        storage: &dyn Storage,
        place: StatePlace,
        class: VolumeClass,
    ) -> anyhow::Result<Self> {
        let StatePlace { volume, properties } = place;
        let there = storage.volumes()?.into_iter().find(|it| it.name == volume);
        let kept = there.as_ref().map_or(class.durability, |it| it.class.durability);
        let waits_for_disk = kept.max(class.durability) == Durability::Journal;
        // An unshared page without reduction is overwritten in place, even if no memory is free.
        let class = VolumeClass { durability: kept.max(class.durability), ..class };
        let class = VolumeClass { reduction: Reduction::None, ..class };
        let device = match there {
            Some(there) => {
                if there.class != class {
                    storage.set_class(volume, class)?;
                }
                storage.open(volume)?
            }
            None => storage.create(volume, class)?,
        };
        let options = TopicOptions { segment_bytes: SEGMENT_BYTES_MAX };
        let open = || {
            let device = Arc::clone(&device);
            match waits_for_disk {
                true => Topic::open_reserved_unflushed(device, options),
                false => Topic::open_reserved(device, options),
            }
            .with_context(|| format!("cannot open the log in volume {volume:?}"))
        };
        let topic = match open()? {
            Some(topic) => topic,
            None => {
                let id = random_id();
                let new = NewTopic { id, partition_count: 1, options, properties };
                drop(Topic::create(Arc::clone(&device), &new)?);
                open()?.context("the new log is missing")?
            }
        };
        if topic.properties() != properties {
            bail!("volume {volume:?} contains no broker state, or that of a later version");
        }
        let (partition, topic) = (topic.partition(0)?, Arc::new(topic));
        if waits_for_disk {
            flush_beside(&topic, volume)?;
        }
        let flusher = Arc::new(Flusher::of_state(Arc::clone(&topic)));
        let (least_bytes, reserved_bytes, appended_bytes) = Default::default();
        let mut log = Self {
            topic,
            partition,
            flusher,
            waits_for_disk,
            least_bytes,
            reserved_bytes,
            appended_bytes,
        };
        log.reserve();
        Ok(log)
    }

    /// Returns the unique id of this log.
    pub(crate) fn id(&self) -> Uuid {
        Uuid::from_bytes(self.topic.id())
    }

    /// Calls `visit` with all records in order of offsets, including those that only the next flush
    /// makes stable.
    pub(crate) fn load(&self, visit: &mut Visit<'_>) -> anyhow::Result<()> {
        let mut offset = self.partition.start_offset();
        let mut buffer = Vec::new();
        while offset < self.partition.next_offset() {
            let range = self.partition.read_appended(offset, READ_BYTES, &mut buffer)?;
            let Some(last) = record_batch::headers(&buffer[range.clone()]).last() else { break };
            let mut batches = Bytes::copy_from_slice(&buffer[range]);
            let sets = RecordBatchDecoder::decode_all(&mut batches)
                .context("invalid record in the state log")?;
            for record in sets.iter().flat_map(|set| &set.records) {
                let key = record.key.as_deref().context("a record of the state log has no key")?;
                visit(key, record.value.as_deref())?;
            }
            offset = last.next_offset();
        }
        Ok(())
    }

    /// Appends records and flushes them. May wait for a disk.
    pub(crate) fn append(&mut self, records: &[StateRecord]) -> Result<(), LogError> {
        let (end_offset, stable_offset) = self.ends();
        if stable_offset < end_offset || self.reserved_bytes == 0 {
            // A log that was opened while its disk did not respond has no reservation yet.
            self.topic.flush()?;
            self.reserve();
        }
        self.write(records)?;
        self.topic.flush()
    }

    /// Appends records without a flush.
    pub(crate) fn write(&mut self, records: &[StateRecord]) -> Result<(), LogError> {
        let mut records = records;
        while !records.is_empty() {
            let mut bytes = 0;
            let fits = records.iter().take_while(|it| {
                bytes += it.key.len() + it.value.as_ref().map_or(0, Bytes::len) + 32;
                bytes <= BATCH_BYTES
            });
            let count = fits.count().max(1);
            let mut batch = encode(&records[..count]);
            let (mut batch, rest) = Batch::split_first(&mut batch)?;
            assert!(rest.is_empty(), "all records are in one batch");
            self.appended_bytes += batch.header().size_bytes;
            self.partition.append(&mut batch, clock::unix_ms())?;
            records = &records[count..];
        }
        if self.appended_bytes >= RESERVED_AFTER_BYTES {
            self.reserve();
        }
        Ok(())
    }

    /// Reserves memory for later records, which then can be written when others have filled the
    /// pool. If memory is short, a later append tries again.
    fn reserve(&mut self) {
        let state_bytes = match self.least_bytes.load(Ordering::Relaxed) {
            // Unknown until the log is rewritten.
            0 => self.partition.size_bytes(),
            // A rewrite is in progress.
            u64::MAX => return,
            least_bytes => least_bytes,
        };
        self.appended_bytes = 0;
        let reserved = self.partition.reserve(RESERVED_BYTES_MIN.max(3 * state_bytes));
        self.reserved_bytes = reserved.unwrap_or_else(|error| {
            let error = error.with_causes();
            tracing::warn!(error, "cannot reserve memory for the state of the broker");
            0
        });
    }

    /// Returns whether a flush waited for a disk when the log was opened.
    pub(crate) fn waits_for_disk(&self) -> bool {
        self.waits_for_disk
    }

    pub(crate) fn flush(&self) -> Result<(), LogError> {
        self.topic.flush()
    }

    /// Starts a flush on another thread, which may block. `stirred` is notified at its end.
    pub(crate) fn flush_later(&self, stirred: &Arc<Notify>) -> FlushNumber {
        let stirred = Arc::clone(stirred);
        self.flusher.flush_later(move || stirred.notify_one())
    }

    /// Returns whether a flush with this number or a later one has failed.
    pub(crate) fn has_failed(&self, flush: FlushNumber) -> bool {
        self.flusher.has_failed(flush)
    }

    /// Returns the end offset of the log, and the stable offset.
    pub(crate) fn ends(&self) -> (i64, i64) {
        let stable_offset = self.partition.stable_offset();
        (self.partition.next_offset(), stable_offset)
    }

    /// Returns whether the log should be rewritten because most of it is outdated.
    pub(crate) fn is_outdated(&self) -> bool {
        let least_bytes = self.least_bytes.load(Ordering::Relaxed);
        let size_bytes = self.partition.size_bytes();
        let left_bytes = self.reserved_bytes.saturating_sub(size_bytes);
        let is_short = self.reserved_bytes > 2 * RESERVED_BYTES_LEFT_MIN
            && left_bytes < RESERVED_BYTES_LEFT_MIN
            && size_bytes > least_bytes.saturating_add(least_bytes / 4);
        is_short || size_bytes > REWRITTEN_BYTES_MIN.max(least_bytes.saturating_mul(2))
    }

    /// Rewrites the state, and deletes all earlier records. After an interruption the old records
    /// still exist, and the new ones repeat some of them.
    pub(crate) fn rewrite(&mut self, state: &[StateRecord]) -> Result<(), LogError> {
        let begin = self.begin_rewrite(state)?;
        self.topic.flush()?;
        self.partition.delete_before(begin)?;
        self.least_bytes.store(self.partition.size_bytes(), Ordering::Relaxed);
        self.topic.flush()?;
        self.reserve();
        Ok(())
    }

    /// Same as [`StateLog::rewrite`], but waits for a disk on another thread.
    pub(crate) fn rewrite_later(&mut self, state: &[StateRecord]) -> Result<(), LogError> {
        let begin = self.begin_rewrite(state)?;
        self.least_bytes.store(u64::MAX, Ordering::Relaxed);
        let (topic, partition) = (Arc::clone(&self.topic), Arc::clone(&self.partition));
        let least_bytes = Arc::clone(&self.least_bytes);
        tokio::task::spawn_blocking(move || {
            let cut = topic.flush().and_then(|()| partition.delete_before(begin));
            if let Err(error) = cut.and_then(|_| topic.flush()) {
                let error = error.with_causes();
                tracing::warn!(error, "cannot delete compacted state");
            }
            least_bytes.store(partition.size_bytes(), Ordering::Relaxed);
        });
        Ok(())
    }

    fn begin_rewrite(&mut self, state: &[StateRecord]) -> Result<i64, LogError> {
        self.partition.roll();
        let begin = self.partition.next_offset();
        self.write(state)?;
        Ok(begin)
    }
}

/// Flushes a log after opening. If its disk does not respond, the flush continues in the
/// background.
fn flush_beside(topic: &Arc<Topic>, volume: &'static str) -> anyhow::Result<()> {
    let (done, is_done) = mpsc::channel();
    let topic = Arc::clone(topic);
    let flush = move || {
        if let Err(mpsc::SendError(Err(error))) = done.send(topic.flush()) {
            let error = error.with_causes();
            tracing::warn!(volume, error, "cannot flush the state of the broker; retrying");
        }
    };
    std::thread::Builder::new().name("flush-state".to_owned()).spawn(flush)?;
    match is_done.recv_timeout(FLUSH_PATIENCE) {
        Ok(flushed) => flushed.with_context(|| format!("cannot flush volume {volume:?}")),
        Err(_) => {
            tracing::warn!(
                volume,
                "flush of the broker's state is stalled by its disk; transactions, new producers \
                 and offset commits are waiting"
            );
            Ok(())
        }
    }
}

/// Encodes records as one batch. The encoder starts another one if sequence numbers do not follow
/// the offsets, even for records without a producer.
fn encode(records: &[StateRecord]) -> Vec<u8> {
    let timestamp = clock::unix_ms();
    let numbered = (0_i64..).zip(NO_SEQUENCE..).zip(records);
    let records: Vec<KafkaRecord> = numbered
        .map(|((offset, sequence), record)| KafkaRecord {
            transactional: false,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: NO_PARTITION_LEADER_EPOCH,
            producer_id: NO_PRODUCER_ID,
            producer_epoch: NO_PRODUCER_EPOCH,
            timestamp_type: TimestampType::Creation,
            offset,
            sequence,
            timestamp,
            key: Some(record.key.clone()),
            value: record.value.clone(),
            headers: Default::default(),
        })
        .collect();
    let mut bytes = BytesMut::new();
    let options = RecordEncodeOptions { version: 2, compression: Compression::None };
    RecordBatchEncoder::encode(&mut bytes, &records, &options).expect("the records are plain");
    bytes.to_vec()
}

#[cfg(test)]
mod tests {
    use volumes::{Durability, Reduction};

    use super::*;
    use crate::storage::{Embedded, EmbeddedPool};

    #[test]
    fn state_of_a_later_version_is_refused_by_the_name_of_its_volume() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("it is there");
        let pool = EmbeddedPool { size_bytes: 64 << 20, file: Some(folder.path().join("pool")) };
        let storage = Embedded::open(&pool).expect("it opens");
        let class = VolumeClass { durability: Durability::Ram, reduction: Reduction::None };
        for place in [StatePlace::COORDINATOR, StatePlace::DEFINITIONS] {
            let text = str::from_utf8(place.properties).expect("it is text");
            let properties = text.replace(":1", ":2").leak().as_bytes();
            let later = StatePlace { properties, ..place };
            drop(StateLog::open(&storage, later, class).expect("it is made"));
            let error = StateLog::open(&storage, place, class).err().expect("it is another");
            let told = error.to_string();
            assert!(told.contains(place.volume) && told.contains("later version"), "{told}");
        }
    }

    #[test]
    fn all_records_of_a_round_are_one_batch() {
        let record = |number: u8| StateRecord {
            key: Bytes::copy_from_slice(&[number]),
            value: (number > 30).then(|| Bytes::from_static(b"value")),
        };
        let records: Vec<_> = (0..100).map(record).collect();
        let mut bytes = encode(&records);
        let (_, rest) = Batch::split_first(&mut bytes).expect("it is a good batch");
        assert!(rest.is_empty(), "{} bytes are not in the batch", rest.len());
        let sets = RecordBatchDecoder::decode_all(&mut Bytes::from(bytes)).expect("good batches");
        let found: Vec<_> = sets.iter().flat_map(|set| &set.records).collect();
        assert_eq!(found.len(), records.len());
        for (found, record) in found.iter().zip(&records) {
            assert_eq!((&found.key, &found.value), (&Some(record.key.clone()), &record.value));
        }
    }
}
