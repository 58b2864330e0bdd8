//! A topic: the partitions on one volume.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard};

use block_device::BlockDevice;

use crate::error::{LogError, LogErrorKind};
use crate::layout::{PARTITION_COUNT_MAX, Slot};
use crate::partition::Partition;
use crate::properties::Properties;
use crate::records::{PartitionRecord, SegmentHeader, TopicId, TopicRecord};
use crate::recovery::{give_back, recover};
use crate::segment::Segment;
use crate::slots::{self, Slots, Spare};
use crate::volume::{TopicOptions, TopicVolume};
use crate::waits::lock;
use crate::writer::Found;

/// Settings of a new topic.
#[derive(Clone, Copy, Debug)]
pub struct NewTopic<'a> {
    /// Unique id, never reused.
    pub id: TopicId,
    /// 1 to [`PARTITION_COUNT_MAX`].
    pub partition_count: u32,
    pub options: TopicOptions,
    /// The owner's properties, at most [`crate::PROPERTIES_BYTES_MAX`]; see [`Topic::properties`].
    pub properties: &'a [u8],
}

/// An open topic. At most one process may have it open.
#[derive(Debug)]
pub struct Topic {
    volume: Arc<TopicVolume>,
    properties: Properties,
    partitions: RwLock<Vec<Arc<Partition>>>,
    /// Serializes flushes.
    flushing: Mutex<()>,
    /// Serializes additions of partitions.
    widening: Mutex<()>,
}

impl Topic {
    /// Creates a topic on an empty volume. It is durable when this returns.
    pub fn create(device: Arc<dyn BlockDevice>, new: &NewTopic<'_>) -> Result<Self, LogError> {
        Self::create_in_epoch(device, new, 0)
    }

    /// Makes a topic as [`Topic::create`] does, in an epoch that is not below this one: that of an
    /// earlier topic, which clients know by the same name.
    pub fn create_in_epoch(
        device: Arc<dyn BlockDevice>,
        new: &NewTopic<'_>,
        epoch: i32,
    ) -> Result<Self, LogError> {
        let NewTopic { id, partition_count, options, properties } = *new;
        check_count(partition_count)?;
        if TopicRecord::load(&*device)?.is_some() {
            let what = "cannot create a topic on the volume: it already contains one";
            return Err(LogError::new(LogErrorKind::NotALog, what));
        }
        let properties = Properties::create(&*device, properties)?;
        let slots = Slots::of_new_topic(&*device, id, partition_count);
        let record = slots.record;
        let mut volume = TopicVolume::new(device, slots, options);
        volume.least_epoch = epoch;
        let volume = Arc::new(volume);
        let mut partitions = Vec::new();
        for number in 0..partition_count {
            let found = Found::nothing(PartitionRecord::default());
            partitions.push(Arc::new(Partition::open(Arc::clone(&volume), number, found)?));
        }
        // Durable before the topic's record: an existing topic is always complete.
        volume.flush_device()?;
        record.save(&*volume.device)?;
        volume.flush_device()?;
        let partitions = RwLock::new(partitions);
        let (flushing, widening) = Default::default();
        Ok(Self { volume, properties, partitions, flushing, widening })
    }

    /// Reads the id and properties of the topic on a volume without changing it. Returns `None` if
    /// the volume was never written.
    pub fn look(device: &dyn BlockDevice) -> Result<Option<(TopicId, Vec<u8>)>, LogError> {
        let Some(record) = TopicRecord::load(device)? else { return Ok(None) };
        Ok(Some((record.id, Properties::open(device)?.get())))
    }

    /// Opens the topic on a volume: recovers the end of each partition, and frees remains of
    /// deletions and torn writes. Returns `None` if the volume was never written.
    pub fn open(
        device: Arc<dyn BlockDevice>,
        options: TopicOptions,
    ) -> Result<Option<Self>, LogError> {
        Self::open_in_epoch(device, options, 0)
    }

    /// Same as [`Topic::open`], with a minimum leader epoch. An owner that passes a later one each
    /// time avoids epochs that clients know from before the volume was reverted to a copy.
    pub fn open_in_epoch(
        device: Arc<dyn BlockDevice>,
        options: TopicOptions,
        epoch: i32,
    ) -> Result<Option<Self>, LogError> {
        let Some(record) = TopicRecord::load(&*device)? else { return Ok(None) };
        let slots = Slots::new(&*device, record);
        Self::recover(device, options, slots, epoch).map(Some)
    }

    /// Same as [`Topic::open`], for a log that keeps the memory of deleted segments for new ones.
    /// Before it appends, the owner must set the amount by [`Partition::reserve`].
    pub fn open_reserved(
        device: Arc<dyn BlockDevice>,
        options: TopicOptions,
    ) -> Result<Option<Self>, LogError> {
        let Some(record) = TopicRecord::load(&*device)? else { return Ok(None) };
        let mut slots = Slots::new(&*device, record);
        slots.keeps_memory = true;
        Self::recover(device, options, slots, 0).map(Some)
    }

    /// Same as [`Topic::open_reserved`] without a flush, which may wait for a disk. All appended
    /// records are found, but none is stable and nothing is freed before the first flush.
    pub fn open_reserved_unflushed(
        device: Arc<dyn BlockDevice>,
        options: TopicOptions,
    ) -> Result<Option<Self>, LogError> {
        let Some(record) = TopicRecord::load(&*device)? else { return Ok(None) };
        let mut slots = Slots::new(&*device, record);
        (slots.keeps_memory, slots.awaits_flush) = (true, true);
        Self::recover(device, options, slots, 0).map(Some)
    }

    fn recover(
        device: Arc<dyn BlockDevice>,
        options: TopicOptions,
        mut slots: Slots,
        least_epoch: i32,
    ) -> Result<Self, LogError> {
        let record = slots.record;
        let awaits_flush = slots.awaits_flush;
        if !awaits_flush {
            // Contents of the last process must be durable before anything is freed because of
            // them.
            slots::flush(&*device)?;
        }
        let properties = Properties::open(&*device)?;
        if !awaits_flush {
            properties.fill(&*device)?;
        }
        let mut by_partition: BTreeMap<u32, Vec<Segment>> = BTreeMap::new();
        let mut without_segment = Vec::new();
        for slot in (1..record.unused_from.0).map(Slot) {
            match SegmentHeader::load(&*device, slot)? {
                None => without_segment.push(slot),
                Some(header) if header.is_spare() && slots.wants_spare() => {
                    slots.spare = Some(Spare { slot, filled: 0 });
                    slots.give_back_found(slot);
                }
                Some(header) if header.topic == record.id => {
                    let segments = by_partition.entry(header.partition).or_default();
                    segments.push(Segment::new(slot, header));
                }
                Some(_) => {
                    let what = format!("segment {} of the volume belongs to another topic", slot.0);
                    return Err(LogError::new(LogErrorKind::Damaged, what));
                }
            }
        }
        slots::discard_without_segment(&*device, &without_segment)?;
        without_segment.into_iter().for_each(|slot| slots.give_back_found(slot));
        let mut volume = TopicVolume::new(device, slots, options);
        volume.least_epoch = least_epoch;
        let volume = Arc::new(volume);
        let mut partitions = Vec::new();
        for number in 0..record.partition_count {
            let segments = by_partition.remove(&number).unwrap_or_default();
            partitions.push(Arc::new(recover(&volume, number, segments)?));
        }
        // Segments of partitions whose creation was not acknowledged.
        for segment in by_partition.into_values().flatten() {
            give_back(&volume, segment)?;
        }
        if !awaits_flush {
            volume.flush_slots()?;
        }
        let partitions = RwLock::new(partitions);
        let (flushing, widening) = Default::default();
        Ok(Self { volume, properties, partitions, flushing, widening })
    }

    pub fn id(&self) -> TopicId {
        self.volume.id
    }

    /// Returns the owner's properties.
    pub fn properties(&self) -> Vec<u8> {
        self.properties.get()
    }

    /// Replaces the properties: at most [`crate::PROPERTIES_BYTES_MAX`]. They are durable when this
    /// returns. After an error the old ones remain in effect, but the next opening may find the new
    /// ones.
    pub fn set_properties(&self, bytes: &[u8]) -> Result<(), LogError> {
        self.properties.set(&*self.volume.device, bytes)
    }

    /// Durably writes [`Topic::properties`] and [`Topic::partition_count`] again. Used after a
    /// failed change, which may nevertheless have reached the volume.
    pub fn restate(&self) -> Result<(), LogError> {
        let _one = self.widening.lock().expect("nothing panics while partitions are added");
        self.save_partition_count(self.partition_count())?;
        self.set_properties(&self.properties())
    }

    /// Sets the topic's options, from the next append on.
    pub fn set_options(&self, options: TopicOptions) {
        self.volume.set_options(options);
    }

    pub fn partition_count(&self) -> u32 {
        u32::try_from(self.list().len()).expect("partitions have a limit")
    }

    pub fn partition(&self, number: u32) -> Result<Arc<Partition>, LogError> {
        let index = usize::try_from(number).expect("it fits memory");
        self.list().get(index).map(Arc::clone).ok_or_else(|| {
            let what = format!("the topic has no partition {number}");
            LogError::new(LogErrorKind::NoSuchPartition, what)
        })
    }

    /// Adds partitions. They are durable when this returns.
    pub fn add_partitions(&self, partition_count: u32) -> Result<(), LogError> {
        check_count(partition_count)?;
        let _one = self.widening.lock().expect("nothing panics while partitions are added");
        let before = self.partition_count();
        if partition_count < before {
            let what = format!("cannot remove partitions: the topic has {before}");
            return Err(LogError::new(LogErrorKind::NoSuchPartition, what));
        }
        let mut added = Vec::new();
        for number in before..partition_count {
            let found = Found::nothing(PartitionRecord::default());
            added.push(Arc::new(Partition::open(Arc::clone(&self.volume), number, found)?));
        }
        self.save_partition_count(partition_count)?;
        // Flushed before the list is locked, so that its readers do not wait.
        self.volume.flush_slots()?;
        self.partitions.write().expect("nothing panics with the list locked").extend(added);
        Ok(())
    }

    /// Saves the partition count. The next flush makes it durable.
    fn save_partition_count(&self, partition_count: u32) -> Result<(), LogError> {
        let mut slots = self.volume.lock_slots();
        let record = TopicRecord { partition_count, ..slots.record };
        record.save(&*self.volume.device)?;
        slots.record = record;
        Ok(())
    }

    /// Returns whether appends or deletions are waiting for a flush.
    pub fn has_to_flush(&self) -> bool {
        let waits = |volume: &TopicVolume| volume.lock_slots().has_to_flush();
        self.volume.is_dirty() || waits(&self.volume)
    }

    /// Makes all earlier appends to any partition stable, and frees the memory of deleted records.
    /// Once the volume was flushed all of it is stable, even if this returns an error of a later
    /// step, such as a checkpoint or memory that cannot be freed yet.
    pub fn flush(&self) -> Result<(), LogError> {
        let _one = lock(&self.flushing).expect("nothing panics in a flush");
        let reclaimed = self.volume.reclaim();
        let parts: Vec<_> = {
            let partitions = self.list();
            let of = |number: u32| &partitions[usize::try_from(number).expect("it fits memory")];
            let dirty = self.volume.take_dirty().into_iter();
            dirty.map(|number| (Arc::clone(of(number)), of(number).begin_flush())).collect()
        };
        match self.volume.flush_slots() {
            Err(error) => {
                parts.into_iter().for_each(|(partition, part)| partition.fail_flush(part));
                Err(error)
            }
            Ok(()) => {
                // Performed first: stable records become visible even if a later step fails.
                parts.iter().for_each(|(partition, part)| partition.end_flush(part));
                let written =
                    parts.into_iter().map(|(_, part)| part.write_checkpoints(&self.volume));
                written.fold(reclaimed, Result::and)
            }
        }
    }

    fn list(&self) -> RwLockReadGuard<'_, Vec<Arc<Partition>>> {
        self.partitions.read().expect("nothing panics with the list locked")
    }
}

fn check_count(partition_count: u32) -> Result<(), LogError> {
    match (1..=PARTITION_COUNT_MAX).contains(&partition_count) {
        true => Ok(()),
        false => {
            let what =
                format!("a topic has 1 to {PARTITION_COUNT_MAX} partitions, not {partition_count}");
            Err(LogError::new(LogErrorKind::NoSuchPartition, what))
        }
    }
}
