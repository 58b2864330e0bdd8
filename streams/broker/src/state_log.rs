//! State that the broker remembers over restarts, beside topics: records by key in a log of its
//! own, which is written anew when most of it is outdated.

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

/// Place of a state log: no topic's volume has a name like these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatePlace {
    volume: &'static str,
    /// What the log's properties say, so that no other log is taken for it.
    properties: &'static [u8],
}

impl StatePlace {
    /// Log of groups and transactions.
    pub(crate) const COORDINATOR: Self =
        Self { volume: STATE_VOLUMES[0], properties: b"{\"state\":1}" };

    /// Log of what SQL made.
    pub(crate) const DEFINITIONS: Self =
        Self { volume: STATE_VOLUMES[1], properties: b"{\"definitions\":1}" };
}

/// Records are put in batches of about this size.
const BATCH_BYTES: usize = 1 << 20;

/// What is read at a time.
const READ_BYTES: usize = 4 << 20;

/// The log is written anew when it is longer than this and twice what it would be then.
const REWRITTEN_BYTES_MIN: u64 = 512 << 10;

/// So much memory is taken before it is needed, twice, or three times what the log takes when it is
/// written anew: it is longer than twice that before, by what comes at once.
const RESERVED_BYTES_MIN: u64 = 1 << 20;

/// Where less could be had, the log is written anew when it comes so close to the end of that.
const RESERVED_BYTES_LEFT_MIN: u64 = 256 << 10;

/// A start waits so long for the disk of a log.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);

/// So much is appended before it is looked again whether all memory is there.
const RESERVED_AFTER_BYTES: usize = 64 << 10;

/// Is given a key and its value.
pub(crate) type Visit<'a> = dyn FnMut(&[u8], Option<&[u8]>) -> anyhow::Result<()> + 'a;

/// A key and its value; without one the key is forgotten.
#[derive(Clone, Debug)]
pub(crate) struct StateRecord {
    pub(crate) key: Bytes,
    pub(crate) value: Option<Bytes>,
}

pub(crate) struct StateLog {
    topic: Arc<Topic>,
    partition: Arc<Partition>,
    flusher: Arc<Flusher>,
    /// Whether the volume was kept so that a flush waits for a disk when it was opened.
    waits_for_disk: bool,
    /// What the log took when it was last written anew; no length is long while it is.
    least_bytes: Arc<AtomicU64>,
    /// Memory that is there before it is needed.
    reserved_bytes: u64,
    /// Appended since that was looked for.
    appended_bytes: usize,
}

impl StateLog {
    /// Opens the log, or makes it, on a volume that is at least as durable as `class` says.
    pub(crate) fn open(
        storage: &dyn Storage,
        place: StatePlace,
        class: VolumeClass,
    ) -> anyhow::Result<Self> {
        let StatePlace { volume, properties } = place;
        let there = storage.volumes()?.into_iter().find(|it| it.name == volume);
        let kept = there.as_ref().map_or(class.durability, |it| it.class.durability);
        let waits_for_disk = kept.max(class.durability) == Durability::Journal;
        // A page as it is that a volume has alone is overwritten also where there is no memory.
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

    /// Id of this log, and of no other.
    pub(crate) fn id(&self) -> Uuid {
        Uuid::from_bytes(self.topic.id())
    }

    /// Shows all records, oldest first: also those that are not stable yet, which the next flush
    /// makes so.
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

    /// Appends records and makes them stable. May wait for a disk.
    pub(crate) fn append(&mut self, records: &[StateRecord]) -> Result<(), LogError> {
        let (end_offset, stable_offset) = self.ends();
        if stable_offset < end_offset || self.reserved_bytes == 0 {
            // A log that was opened while its disk took nothing has no place before.
            self.topic.flush()?;
            self.reserve();
        }
        self.write(records)?;
        self.topic.flush()
    }

    /// Appends records, which a flush makes stable.
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

    /// Takes memory for what comes, so that it finds room when others have filled the pool. Where
    /// there is none now, what comes tries again.
    fn reserve(&mut self) {
        let state_bytes = match self.least_bytes.load(Ordering::Relaxed) {
            // It is not known before the log is written anew.
            0 => self.partition.size_bytes(),
            // It is being written anew.
            u64::MAX => return,
            least_bytes => least_bytes,
        };
        self.appended_bytes = 0;
        let reserved = self.partition.reserve(RESERVED_BYTES_MIN.max(3 * state_bytes));
        self.reserved_bytes = reserved.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot reserve memory for the state of the broker");
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

    /// Begins to make stable what was written, on a thread that may wait; `stirred` is told when
    /// that has ended.
    pub(crate) fn flush_later(&self, stirred: &Arc<Notify>) -> FlushNumber {
        let stirred = Arc::clone(stirred);
        self.flusher.flush_later(move || stirred.notify_one())
    }

    /// Returns whether a flush that began with this turn or later has failed.
    pub(crate) fn has_failed(&self, flush: FlushNumber) -> bool {
        self.flusher.has_failed(flush)
    }

    /// After the last record that was written, and after the last one that is stable.
    pub(crate) fn ends(&self) -> (i64, i64) {
        let stable_offset = self.partition.stable_offset();
        (self.partition.next_offset(), stable_offset)
    }

    /// Returns whether most of the log says nothing any more.
    pub(crate) fn is_outdated(&self) -> bool {
        let least_bytes = self.least_bytes.load(Ordering::Relaxed);
        let size_bytes = self.partition.size_bytes();
        let left_bytes = self.reserved_bytes.saturating_sub(size_bytes);
        let is_short = self.reserved_bytes > 2 * RESERVED_BYTES_LEFT_MIN
            && left_bytes < RESERVED_BYTES_LEFT_MIN
            && size_bytes > least_bytes.saturating_add(least_bytes / 4);
        is_short || size_bytes > REWRITTEN_BYTES_MIN.max(least_bytes.saturating_mul(2))
    }

    /// Writes the state anew, and forgets all before it. Should that end half-way, the old records
    /// are still there, and the new ones repeat some of them.
    pub(crate) fn rewrite(&mut self, state: &[StateRecord]) -> Result<(), LogError> {
        let begin = self.begin_rewrite(state)?;
        self.topic.flush()?;
        self.partition.delete_before(begin)?;
        self.least_bytes.store(self.partition.size_bytes(), Ordering::Relaxed);
        self.topic.flush()?;
        self.reserve();
        Ok(())
    }

    /// Rewrites as [`StateLog::rewrite`] does, but what waits for a disk is done on a thread that
    /// may wait.
    pub(crate) fn rewrite_later(&mut self, state: &[StateRecord]) -> Result<(), LogError> {
        let begin = self.begin_rewrite(state)?;
        self.least_bytes.store(u64::MAX, Ordering::Relaxed);
        let (topic, partition) = (Arc::clone(&self.topic), Arc::clone(&self.partition));
        let least_bytes = Arc::clone(&self.least_bytes);
        tokio::task::spawn_blocking(move || {
            let cut = topic.flush().and_then(|()| partition.delete_before(begin));
            if let Err(error) = cut.and_then(|_| topic.flush()) {
                tracing::warn!(%error, "cannot delete compacted state");
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

/// Makes stable what an opening found. That of a disk that takes nothing goes on beside the others.
fn flush_beside(topic: &Arc<Topic>, volume: &'static str) -> anyhow::Result<()> {
    let (done, is_done) = mpsc::channel();
    let topic = Arc::clone(topic);
    let flush = move || {
        if let Err(mpsc::SendError(Err(error))) = done.send(topic.flush()) {
            tracing::warn!(volume, %error, "cannot flush the state of the broker; retrying");
        }
    };
    std::thread::Builder::new().name("flush-state".to_owned()).spawn(flush)?;
    match is_done.recv_timeout(FLUSH_PATIENCE) {
        Ok(flushed) => flushed.with_context(|| format!("cannot flush volume {volume:?}")),
        Err(_) => {
            tracing::warn!(
                volume,
                "the state of the broker waits for its disk: transactions, new producers and \
                 offset commits wait too"
            );
            Ok(())
        }
    }
}

/// One batch. The encoder begins another one where sequence numbers do not follow the offsets, also
/// for records without a producer.
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
