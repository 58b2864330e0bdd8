//! A topic that is open, and its partitions.

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

/// Properties that the log keeps for the broker beside the records.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Properties {
    pub(crate) name: String,
    /// Those that the topic's owner set.
    pub(crate) settings: BTreeMap<String, String>,
    /// The broker alone writes to it.
    #[serde(default)]
    pub(crate) is_derived: bool,
}

#[derive(Debug)]
pub(crate) struct OpenTopic {
    pub(crate) name: Arc<str>,
    pub(crate) id: Uuid,
    /// Name of the volume that it is on.
    pub(crate) volume: String,
    pub(crate) log: Arc<Topic>,
    /// The broker fills it from another topic, and clients write nothing to it.
    pub(crate) is_derived: bool,
    /// Class of the volume, as it was last seen or set.
    kept: Mutex<VolumeClass>,
    /// Whether the settings say so, or the volume is kept better than they say.
    waits_for_disk: AtomicBool,
    /// True while the volume may say something else of the topic than its owner was told.
    is_unsure: AtomicBool,
    flusher: Arc<Flusher>,
    settings: RwLock<Arc<TopicSettings>>,
    /// Held by the one thread that changes the topic, which may wait for its disk.
    pub(super) changing: Mutex<()>,
    partitions: RwLock<Arc<[Arc<OpenPartition>]>>,
}

#[derive(Debug)]
pub(crate) struct OpenPartition {
    pub(crate) log: Arc<Partition>,
    pub(crate) watchers: Watchers,
    pub(crate) feeds: ChangeFeeds,
    pub(crate) traffic: Traffic,
    /// While they are kept.
    values: RwLock<Option<Arc<Values>>>,
    /// When the segment that is appended to was begun at the latest, in Unix milliseconds.
    pub(crate) segment_since_ms: AtomicI64,
    quiet: Quiet,
}

/// Where a partition ended when upkeep looked, and since when in Unix milliseconds.
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

    /// The current values; `None` where the topic does not keep them, or nothing is known of them
    /// yet.
    pub(crate) fn values(&self) -> Option<Arc<Values>> {
        self.values.read().expect(NO_PANIC).clone()
    }

    /// For the thread that follows the partition.
    pub(crate) fn set_values(&self, values: Option<Arc<Values>>) {
        *self.values.write().expect(NO_PANIC) = values;
    }

    /// For how long nothing was appended, as far as one thread knows that asks from time to time.
    pub(crate) fn quiet_ms(&self, now_ms: i64) -> i64 {
        let end_offset = self.log.next_offset();
        if self.quiet.end_offset.swap(end_offset, Ordering::Relaxed) != end_offset {
            self.quiet.since_ms.store(now_ms, Ordering::Relaxed);
        }
        now_ms.saturating_sub(self.quiet.since_ms.load(Ordering::Relaxed))
    }
}

/// Records and bytes that have passed since the start.
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
    /// Stable once the partition's stable offset is not below it.
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

    /// Takes in partitions that the log has and the broker does not know yet.
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
        // Relaxed: a flush that begins before the change is over meets the volume as it was.
        self.waits_for_disk.load(Ordering::Relaxed)
    }

    /// Class of the volume, as it was last seen or set: another one than the settings say where
    /// somebody changed the volume, or the broker died while it changed the topic.
    pub(crate) fn kept(&self) -> VolumeClass {
        *self.kept.lock().expect(NO_PANIC)
    }

    /// Notes how the volume is kept.
    pub(crate) fn note_kept(&self, class: VolumeClass) {
        *self.kept.lock().expect(NO_PANIC) = class;
        let settings = self.settings().class.durability;
        let waits = class.durability.max(settings) == Durability::Journal;
        self.waits_for_disk.store(waits, Ordering::Relaxed);
    }

    /// Notes that flushes may wait for a disk, before the volume is kept so.
    pub(super) fn expect_waits(&self) {
        self.waits_for_disk.store(true, Ordering::Relaxed);
    }

    /// Notes that a change of the log failed and may be on the volume all the same.
    pub(super) fn note_unsure(&self) {
        self.is_unsure.store(true, Ordering::Relaxed);
    }

    /// Has the volume say what the owner of the topic was told, where that is not sure. May wait
    /// for its disk.
    pub(super) fn settle(&self) -> Result<(), LogError> {
        if !self.is_unsure.load(Ordering::Relaxed) {
            return Ok(());
        }
        // It is settled later while somebody changes the topic.
        let Ok(_own) = self.changing.try_lock() else { return Ok(()) };
        self.log.restate()?;
        self.is_unsure.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Makes stable what was appended so far: at once where that waits for no disk, else when the
    /// turn that is returned has ended.
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
