//! An open topic and its partitions.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard};

use record_log::{LogError, LogErrorKind, Partition, Topic};
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use values::Values;
use volumes::Durability;

use super::change_feeds::ChangeFeeds;
use super::settings::TopicSettings;
use super::stability::{FlushNumber, Flusher};
use super::watchers::Watchers;
use crate::clock;
use crate::storage::VolumeClass;

const NO_PANIC: &str = "no thread panics with this lock";

/// Properties of a topic, which the log stores for the broker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Properties {
    pub(crate) name: String,
    /// Settings that the topic's owner set.
    pub(crate) settings: BTreeMap<String, String>,
    /// True if only the broker writes to the topic.
    #[serde(default)]
    pub(crate) is_derived: bool,
}

#[derive(Debug)]
pub(crate) struct OpenTopic {
    pub(crate) name: Arc<str>,
    pub(crate) id: Uuid,
    /// Name of its volume.
    pub(crate) volume: String,
    pub(crate) log: Arc<Topic>,
    /// True if the broker fills it from another topic, and clients cannot write to it.
    pub(crate) is_derived: bool,
    /// Class of the volume when it was last read or set.
    kept: Mutex<VolumeClass>,
    /// True if the settings require journal durability, or the volume has it.
    waits_for_disk: AtomicBool,
    /// True while the properties on the volume may differ from those reported to the topic's owner.
    is_unsure: AtomicBool,
    flusher: Arc<Flusher>,
    settings: RwLock<Arc<TopicSettings>>,
    /// Serializes changes of the topic. The holder may wait for the topic's disk.
    pub(super) changing: Mutex<()>,
    partitions: RwLock<Arc<[Arc<OpenPartition>]>>,
}

#[derive(Debug)]
pub(crate) struct OpenPartition {
    pub(crate) log: Arc<Partition>,
    pub(crate) watchers: Watchers,
    pub(crate) feeds: ChangeFeeds,
    pub(crate) traffic: Traffic,
    /// Index of current values, if maintained.
    values: RwLock<Option<Arc<Values>>>,
    /// Latest possible start of the active segment, in Unix milliseconds.
    pub(crate) segment_since_ms: AtomicI64,
    quiet: Quiet,
}

/// End of the partition when upkeep checked it last, and since when it is unchanged, in Unix
/// milliseconds.
#[derive(Debug)]
struct Quiet {
    end_offset: AtomicI64,
    since_ms: AtomicI64,
}

impl OpenPartition {
    fn new(log: Arc<Partition>, now_ms: i64) -> Self {
        let (watchers, feeds, traffic, values) = Default::default();
        let end_offset = AtomicI64::new(log.next_offset());
        let quiet = Quiet { end_offset, since_ms: AtomicI64::new(now_ms) };
        let segment_since_ms = AtomicI64::new(now_ms);
        Self { log, watchers, feeds, traffic, values, segment_since_ms, quiet }
    }

    /// Returns the current values. `None` if the topic does not keep them, or they are not loaded
    /// yet.
    pub(crate) fn values(&self) -> Option<Arc<Values>> {
        self.values.read().expect(NO_PANIC).clone()
    }

    /// Sets the current values. Called by the follower thread.
    pub(crate) fn set_values(&self, values: Option<Arc<Values>>) {
        *self.values.write().expect(NO_PANIC) = values;
    }

    /// Returns the time without appends, as far as one thread can tell that calls this
    /// periodically.
    pub(crate) fn quiet_ms(&self, now_ms: i64) -> i64 {
        let end_offset = self.log.next_offset();
        if self.quiet.end_offset.swap(end_offset, Ordering::Relaxed) != end_offset {
            self.quiet.since_ms.store(now_ms, Ordering::Relaxed);
        }
        now_ms.saturating_sub(self.quiet.since_ms.load(Ordering::Relaxed))
    }
}

/// Records and bytes since the start.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) bytes_in: AtomicU64,
    pub(crate) records_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) records_out: AtomicU64,
}

impl Traffic {
    pub(crate) fn count_in(&self, bytes: usize, records: i32) {
        self.bytes_in.fetch_add(bytes as u64, Ordering::Relaxed);
        self.records_in.fetch_add(u64::try_from(records).unwrap_or(0), Ordering::Relaxed);
    }

    pub(crate) fn count_out(&self, bytes: usize, records: u64) {
        self.bytes_out.fetch_add(bytes as u64, Ordering::Relaxed);
        self.records_out.fetch_add(records, Ordering::Relaxed);
    }
}

/// Records that were appended and are not stable yet.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) topic: Arc<OpenTopic>,
    pub(crate) partition: Arc<OpenPartition>,
    /// The records are stable once the partition's stable offset has reached this.
    pub(crate) end_offset: i64,
    pub(crate) flush: FlushNumber,
}

impl Pending {
    pub(crate) async fn stable(&self) -> Result<(), LogErrorKind> {
        let failed = self.topic.flusher.ended(self.flush).await;
        match self.partition.log.stable_offset() >= self.end_offset {
            true => Ok(()),
            false => Err(failed.unwrap_or(LogErrorKind::NotDurable)),
        }
    }
}

impl OpenTopic {
    pub(crate) fn new(
        properties: &Properties,
        volume: String,
        log: Topic,
        settings: TopicSettings,
    ) -> Result<Self, LogError> {
        let log = Arc::new(log);
        let topic = Self {
            name: properties.name.as_str().into(),
            id: Uuid::from_bytes(log.id()),
            volume,
            is_derived: properties.is_derived,
            kept: Mutex::new(settings.class),
            waits_for_disk: AtomicBool::new(settings.class.durability == Durability::Journal),
            is_unsure: AtomicBool::default(),
            flusher: Arc::new(Flusher::new(Arc::clone(&log))),
            log,
            settings: RwLock::new(Arc::new(settings)),
            changing: Mutex::default(),
            partitions: RwLock::new(Arc::new([])),
        };
        topic.find_partitions()?;
        Ok(topic)
    }

    /// Opens partitions of the log that the broker has not opened yet.
    pub(crate) fn find_partitions(&self) -> Result<(), LogError> {
        let mut partitions = self.partitions.write().expect(NO_PANIC);
        let mut all = partitions.to_vec();
        for number in (0..self.log.partition_count()).skip(all.len()) {
            let log = self.log.partition(number)?;
            all.push(Arc::new(OpenPartition::new(log, clock::unix_ms())));
        }
        *partitions = all.into();
        Ok(())
    }

    pub(crate) fn partitions(&self) -> RwLockReadGuard<'_, Arc<[Arc<OpenPartition>]>> {
        self.partitions.read().expect(NO_PANIC)
    }

    pub(crate) fn partition(&self, number: i32) -> Option<Arc<OpenPartition>> {
        let index = usize::try_from(number).ok()?;
        self.partitions().get(index).map(Arc::clone)
    }

    pub(crate) fn settings(&self) -> Arc<TopicSettings> {
        Arc::clone(&self.settings.read().expect(NO_PANIC))
    }

    pub(crate) fn set_settings(&self, settings: TopicSettings) {
        *self.settings.write().expect(NO_PANIC) = Arc::new(settings);
    }

    /// Returns whether a flush waits for a disk.
    pub(crate) fn waits_for_disk(&self) -> bool {
        // Relaxed: a flush that starts before the change is complete still finds the old class.
        self.waits_for_disk.load(Ordering::Relaxed)
    }

    /// Returns the class of the volume when it was last read or set. It differs from the settings
    /// if the volume was changed independently, or the broker died while it changed the topic.
    pub(crate) fn kept(&self) -> VolumeClass {
        *self.kept.lock().expect(NO_PANIC)
    }

    /// Sets the known class of the volume.
    pub(crate) fn note_kept(&self, class: VolumeClass) {
        *self.kept.lock().expect(NO_PANIC) = class;
        let settings = self.settings().class.durability;
        let waits = class.durability.max(settings) == Durability::Journal;
        self.waits_for_disk.store(waits, Ordering::Relaxed);
    }

    /// Marks flushes as waiting for a disk, before the volume's class is changed to that.
    pub(super) fn expect_waits(&self) {
        self.waits_for_disk.store(true, Ordering::Relaxed);
    }

    /// Marks the topic as being deleted, or as kept if that failed.
    pub(super) fn note_deleted(&self, is_deleted: bool) {
        self.flusher.is_deleted.store(is_deleted, Ordering::Relaxed);
    }

    /// Logs that work on the topic failed, unless it was deleted meanwhile, which is no trouble.
    pub(super) fn warn(&self, what: &str, error: &LogError) {
        if !self.is_deleted() {
            tracing::warn!(topic = %self.name, error = error.with_causes(), "{what}");
        }
    }

    /// Returns whether the topic was deleted.
    pub(crate) fn is_deleted(&self) -> bool {
        self.flusher.is_deleted.load(Ordering::Relaxed)
    }

    /// Records that a change of the log failed, but may be on the volume.
    pub(super) fn note_unsure(&self) {
        self.is_unsure.store(true, Ordering::Relaxed);
    }

    /// Rewrites the properties on the volume if they may differ from those reported to the topic's
    /// owner. May wait for its disk.
    pub(super) fn settle(&self) -> Result<(), LogError> {
        if !self.is_unsure.load(Ordering::Relaxed) {
            return Ok(());
        }
        // While another thread changes the topic, a later call settles it.
        let Ok(_own) = self.changing.try_lock() else { return Ok(()) };
        self.log.restate()?;
        self.is_unsure.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Flushes the appended records: synchronously if that does not wait for a disk, otherwise in
    /// the background. Returns the number of a background flush.
    pub(crate) fn stabilize(self: &Arc<Self>) -> Result<Option<FlushNumber>, LogError> {
        if !self.waits_for_disk() {
            return self.flusher.flush_now().map(|()| None);
        }
        let this = Arc::clone(self);
        Ok(Some(self.flusher.flush_later(move || this.wake_all())))
    }

    /// Flushes on this thread, which may wait for a disk.
    pub(crate) fn flush(&self) -> Result<(), LogError> {
        let flushed = self.flusher.flush_now();
        self.wake_all();
        flushed
    }

    pub(crate) fn wake_all(&self) {
        for partition in self.partitions().iter() {
            partition.watchers.wake();
        }
    }
}
