//! Topics of the broker: one volume each, indexed by name and by id.

mod change_feeds;
mod classes;
mod epochs;
mod errors;
mod names;
mod opening;
mod places;
mod rounds;
mod rules;
mod settings;
mod stability;
mod topic;
mod unserved;
mod unsettled;
mod upkeep;
mod watchers;

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};

use kafka_protocol::error::ResponseError;
use record_log::{Topic, TopicOptions};
use shares::Owner;
use uuid::Uuid;
use volumes::{Durability, Reduction};

use crate::storage::{Storage, StorageError, StorageErrorKind, VolumeClass};

pub(crate) use change_feeds::{
    Broken, ChangeFeed, FeedItem, FeedWriter, KeptRecord, ValueChange, read_change,
};
pub(crate) use errors::{error_of, is_of_full_pool, pool_is_full};
pub(crate) use names::check_name;
pub(crate) use rules::{RecordRules, WITHOUT_KEY};
pub(crate) use settings::{Kind, SETTINGS, Setting, TopicSettings, find as find_setting};
pub(crate) use stability::{FlushNumber, Flusher};
pub(crate) use topic::{OpenPartition, OpenTopic, Pending, Properties};
pub(crate) use unserved::Found;
pub(crate) use upkeep::{compact, flush_all, retain};

use epochs::Epochs;
use errors::{of_log, of_storage};
use names::check_creatable;
use places::Places;
use unserved::{Unserved, not_served};
use unsettled::Unsettled;

const NO_PANIC: &str = "no thread panics with this lock";

/// Prefix of the names of topics' volumes.
const VOLUME_PREFIX: &str = "topic.";

/// Prefix of the names of volumes of topics under creation. The topic's id follows.
const HALF_MADE_PREFIX: &str = "half-made-topic.";

/// Maximum length of the name of a volume.
const VOLUME_NAME_MAX: usize = 63;

/// Maximum number of topics with `memlane.values=merge`: twice as many as one owner can have.
pub(crate) const MERGING_COUNT_MAX: usize = 200;

/// Minimum number of segments of a partition with retention by size only, unless they would be
/// shorter than `SEGMENT_BYTES_LIKED_MIN`.
const SEGMENTS_IN_RETENTION: u64 = 4;
const SEGMENT_BYTES_LIKED_MIN: u64 = 1 << 20;

/// A rejected request: Kafka's error for client programs, and a message for people.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) error: ResponseError,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(error: ResponseError, message: impl Into<String>) -> Self {
        Self { error, message: message.into() }
    }

    /// Returns the error for an unknown topic name.
    pub(crate) fn no_topic(name: &str) -> Self {
        Self::new(ResponseError::UnknownTopicOrPartition, format!("topic {name:?} does not exist"))
    }
}

/// Definition of a topic to be created.
#[derive(Clone, Debug)]
pub(crate) struct NewTopic {
    pub(crate) name: String,
    pub(crate) partition_count: u32,
    pub(crate) settings: BTreeMap<String, String>,
    /// True if the broker fills it from another topic.
    pub(crate) is_derived: bool,
    /// Owner whose share of the limits the topic takes.
    pub(crate) owner: Owner,
}

/// Function that changes the settings of a topic that its owner has set.
pub(crate) type Change<'a> = dyn Fn(&mut BTreeMap<String, String>) -> Result<(), Refusal> + 'a;

/// Function that deletes state about a topic name outside of its topic, such as committed offsets.
/// May block.
pub(crate) type Forget = dyn Fn(&str) -> Result<(), Refusal> + Send + Sync;

/// Function that is called for a topic that was not served before. May block.
pub(crate) type Meet = dyn Fn(&Arc<OpenTopic>) + Send + Sync;

pub(crate) struct Topics {
    storage: Arc<dyn Storage>,
    /// Default settings of topics.
    pub(crate) defaults: BTreeMap<String, String>,
    unserved: Unserved,
    table: RwLock<Table>,
    epochs: Epochs,
    /// Incremented when a topic is created or deleted, or gets partitions.
    version: AtomicU64,
    /// Class of the volumes with the state of groups, transactions and definitions. The lock
    /// serializes creation and deletion of topics; it is taken after the lock of the changed topic.
    changing: Mutex<VolumeClass>,
    /// Hooks of the group coordinator, which starts after the topics.
    forget: OnceLock<Box<Forget>>,
    meet: OnceLock<Box<Meet>>,
    unsettled: Mutex<Vec<Unsettled>>,
    /// True if a flush of that state waits for a disk.
    state_waits: AtomicBool,
    /// True while the class of a volume may differ from the known one, for example after a lost
    /// reply.
    is_a_class_unsure: AtomicBool,
}

#[derive(Default)]
struct Table {
    by_name: BTreeMap<Arc<str>, Arc<OpenTopic>>,
    by_id: HashMap<Uuid, Arc<OpenTopic>>,
    /// Names by [`plain`] name.
    by_plain_name: HashMap<String, Arc<str>>,
    places: Places,
}

impl Topics {
    /// Opens all topics in the storage. A volume whose class is weaker than its topic's settings is
    /// changed to the class in the settings. Topics that wait for a disk delay no others.
    pub(crate) fn open(
        storage: Arc<dyn Storage>,
        defaults: BTreeMap<String, String>,
    ) -> anyhow::Result<Arc<Self>> {
        let settings = TopicSettings::new(BTreeMap::new(), &defaults);
        let class = settings.map_err(anyhow::Error::msg)?.class;
        // The pages of the state are stored without reduction.
        let changing = Mutex::new(VolumeClass { reduction: Reduction::None, ..class });
        let (unserved, table, epochs, version, forget, meet) = Default::default();
        let (unsettled, state_waits, is_a_class_unsure) = Default::default();
        let topics = Arc::new(Self {
            storage,
            defaults,
            unserved,
            table,
            epochs,
            version,
            changing,
            forget,
            meet,
            unsettled,
            state_waits,
            is_a_class_unsure,
        });
        let (mut beside, mut of_topics) = (Vec::new(), Vec::new());
        for volume in topics.storage.volumes()? {
            let is_topic = volume.name.starts_with(VOLUME_PREFIX) && !volume.name.contains('@');
            if is_half_made(&volume.name) {
                beside.push(volume);
            } else if is_topic {
                of_topics.push(volume);
            }
        }
        let strongest = topics.open_all_here(of_topics, &mut beside).max(class.durability);
        topics.changing.lock().expect(NO_PANIC).durability = strongest;
        topics.state_waits.store(strongest == Durability::Journal, Ordering::Relaxed);
        topics.open_beside(beside)?;
        Ok(topics)
    }

    /// Sets `forget`, which must succeed before a topic is created. Called once.
    pub(crate) fn set_forget(&self, forget: Box<Forget>) {
        assert!(self.forget.set(forget).is_ok(), "one coordinator remembers topics");
    }

    /// Sets `meet`, which is called for each topic that is served later than others. Called once.
    pub(crate) fn set_meet(&self, meet: Box<Meet>) {
        assert!(self.meet.set(meet).is_ok(), "one coordinator knows of producers");
    }

    /// Returns the class of the volumes with the state of groups, transactions and definitions:
    /// that of the most durable topic, because the state refers to the records of all topics.
    pub(crate) fn state_class(&self) -> VolumeClass {
        *self.changing.lock().expect(NO_PANIC)
    }

    /// Returns whether a flush of that state may wait for a disk. Never blocks.
    pub(crate) fn state_waits_for_disk(&self) -> bool {
        // Relaxed: a flush that starts before the change is complete still finds the old class.
        self.state_waits.load(Ordering::Relaxed)
    }

    /// Returns the minimum epoch of new topics if it is ahead of the clock, so that it must outlive
    /// this process.
    pub(crate) fn epoch_ahead(&self) -> Option<i32> {
        self.epochs.ahead()
    }

    /// Raises the minimum epoch of new topics to that of an earlier process.
    pub(crate) fn raise_epoch(&self, least: i32) {
        self.epochs.raise(least);
    }

    fn open_volume(&self, volume: &str) -> Result<OpenTopic, Refusal> {
        let peeked = self.storage.peek(volume).map_err(of_storage)?;
        let no_topic = || {
            let what = format!(
                "volume {volume:?} has the name of a topic's volume but contains \
                                no topic"
            );
            Refusal::new(ResponseError::KafkaStorageError, what)
        };
        let (id, properties) =
            Topic::look(&*peeked.device).map_err(of_log)?.ok_or_else(no_topic)?;
        let properties = read_properties(volume, &properties)?;
        check_place(volume, &properties.name, Uuid::from_bytes(id))?;
        let settings = TopicSettings::stored(properties.settings.clone(), &self.defaults)
            .map_err(|why| Refusal::new(ResponseError::InvalidConfig, why))?;
        let log = Topic::open_in_epoch(peeked.keep(), options(&settings), self.epochs.least());
        let log = log.map_err(of_log)?.ok_or_else(no_topic)?;
        OpenTopic::new(&properties, volume.to_owned(), log, settings).map_err(of_log)
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<Arc<OpenTopic>> {
        self.table.read().expect(NO_PANIC).by_name.get(name).map(Arc::clone)
    }

    pub(crate) fn by_id(&self, id: Uuid) -> Option<Arc<OpenTopic>> {
        self.table.read().expect(NO_PANIC).by_id.get(&id).map(Arc::clone)
    }

    /// Returns all topics, sorted by name.
    pub(crate) fn all(&self) -> Vec<Arc<OpenTopic>> {
        self.table.read().expect(NO_PANIC).by_name.values().map(Arc::clone).collect()
    }

    /// Creates a topic. It is durable on return. May block.
    pub(crate) fn create(&self, new: &NewTopic) -> Result<Arc<OpenTopic>, Refusal> {
        let mut state = self.changing.lock().expect(NO_PANIC);
        let settings = self.check(new)?;
        self.keep_state_as_well(&mut state, settings.class)?;
        let topic = self.make(new, settings)?;
        let volume = &topic.volume;
        tracing::info!(topic = new.name, partitions = new.partition_count, volume, "topic created");
        say_what_has_no_effect(&new.name, &topic.settings());
        Ok(self.insert(topic, new.owner))
    }

    /// Returns the settings of the topic if it were created now. May block.
    pub(crate) fn check_new(&self, new: &NewTopic) -> Result<TopicSettings, Refusal> {
        let _one = self.changing.lock().expect(NO_PANIC);
        self.check(new)
    }

    fn check(&self, new: &NewTopic) -> Result<TopicSettings, Refusal> {
        check_creatable(&new.name)?;
        self.settle()?;
        if let Some(name) = self.colliding(&new.name) {
            if *name == *new.name {
                let what = format!("topic {name:?} already exists");
                return Err(Refusal::new(ResponseError::TopicAlreadyExists, what));
            }
            let what = format!(
                "{:?} collides with topic {name:?}: topic names must differ in more than . and _",
                new.name
            );
            return Err(Refusal::new(ResponseError::InvalidTopicException, what));
        }
        if let Found::NotServed = self.find(&new.name) {
            return Err(not_served(&new.name));
        }
        let settings = TopicSettings::new(new.settings.clone(), &self.defaults)
            .map_err(|why| Refusal::new(ResponseError::InvalidConfig, why))?;
        if !(1..=record_log::PARTITION_COUNT_MAX).contains(&new.partition_count) {
            let most = record_log::PARTITION_COUNT_MAX;
            let what =
                format!("invalid number of partitions {}; use 1 to {most}", new.partition_count);
            return Err(Refusal::new(ResponseError::InvalidPartitions, what));
        }
        let places = &self.table.read().expect(NO_PANIC).places;
        places.check(new.owner, &settings).map(|()| settings)
    }

    /// Creates the topic on a volume with a temporary name, and then renames the volume. Therefore
    /// a volume with a topic's name contains the complete topic, and no state of an earlier one
    /// applies to it.
    fn make(&self, new: &NewTopic, settings: TopicSettings) -> Result<OpenTopic, Refusal> {
        let id = Uuid::from_bytes(random_id());
        let (half_made, volume) = (half_made_name(id), volume_name(&new.name, id));
        let made = self.make_as(new, settings, (&half_made, &volume, id));
        if made.is_err() {
            self.unsettle(Unsettled::Made { half_made, volume, id });
        }
        made
    }

    fn make_as(
        &self,
        new: &NewTopic,
        settings: TopicSettings,
        (half_made, volume, id): (&str, &str, Uuid),
    ) -> Result<OpenTopic, Refusal> {
        let device = self.storage.create(half_made, settings.class).map_err(of_storage)?;
        let properties = Properties {
            name: new.name.clone(),
            settings: new.settings.clone(),
            is_derived: new.is_derived,
        };
        let bytes = serde_json::to_vec(&properties).expect("it is plain data");
        let log = record_log::NewTopic {
            id: id.into_bytes(),
            partition_count: new.partition_count,
            options: options(&settings),
            properties: &bytes,
        };
        let log = Topic::create_in_epoch(device, &log, self.epochs.least()).map_err(of_log)?;
        self.forget.get().map_or(Ok(()), |forget| forget(&new.name))?;
        match self.storage.rename(half_made, volume) {
            Ok(()) => OpenTopic::new(&properties, volume.to_owned(), log, settings).map_err(of_log),
            Err(error) => self.find_unanswered(volume, id, error),
        }
    }

    /// Returns the topic with this id if its volume was renamed although the daemon died before it
    /// replied.
    fn find_unanswered(
        &self,
        volume: &str,
        id: Uuid,
        error: StorageError,
    ) -> Result<OpenTopic, Refusal> {
        let is_taken = error.kind == StorageErrorKind::Exists;
        let mut refusal = of_storage(error);
        let why = match self.open_volume(volume) {
            Ok(topic) if topic.id == id => return Ok(topic),
            Ok(_) => "restart the broker to make it available".to_owned(),
            Err(why) => why.message,
        };
        if is_taken {
            refusal.message = format!("{}: {why}", refusal.message);
        }
        Err(refusal)
    }

    /// Returns a topic with a colliding name, as in Kafka: dots and underscores are equal in names
    /// of metrics.
    fn colliding(&self, name: &str) -> Option<Arc<str>> {
        let table = self.table.read().expect(NO_PANIC);
        table.by_plain_name.get(&plain(name)).map(Arc::clone)
    }

    /// Deletes a topic permanently. Requests in progress fail because the volume is missing. May
    /// block.
    pub(crate) fn delete(&self, name: &str) -> Result<(), Refusal> {
        let topic = self.demand(name)?;
        let _own = self.lock_to_change(&topic)?;
        let _one = self.changing.lock().expect(NO_PANIC);
        self.settle()?;
        self.check_served(&topic)?;
        topic.note_deleted(true);
        match self.storage.delete(&topic.volume) {
            Ok(()) => self.remove(&topic),
            // It was deleted by another program.
            Err(error) if error.kind == StorageErrorKind::Missing => self.remove(&topic),
            Err(error) => {
                topic.note_deleted(false);
                self.unsettle(Unsettled::Deleted(Arc::clone(&topic)));
                if self.by_name(name).is_some() {
                    return Err(of_storage(error));
                }
            }
        }
        Ok(())
    }

    /// Takes the topic's lock for changes, after which the topic still exists: its name and its
    /// volume's name belong to no other topic while the lock is held. May wait for the topic's
    /// disk.
    fn lock_to_change<'a>(&self, topic: &'a OpenTopic) -> Result<MutexGuard<'a, ()>, Refusal> {
        let own = topic.changing.lock().expect(NO_PANIC);
        self.check_served(topic).map(|()| own)
    }

    fn check_served(&self, topic: &OpenTopic) -> Result<(), Refusal> {
        match self.by_id(topic.id) {
            Some(_) => Ok(()),
            None => Err(Refusal::no_topic(&topic.name)),
        }
    }

    /// Removes a topic whose volume was deleted.
    fn remove(&self, topic: &Arc<OpenTopic>) {
        topic.note_deleted(true);
        self.epochs.note_deleted(topic);
        let mut table = self.table.write().expect(NO_PANIC);
        if table.by_id.remove(&topic.id).is_some() {
            table.by_name.remove(&topic.name);
            table.by_plain_name.remove(&plain(&topic.name));
            table.places.give_back(topic.id);
        }
        drop(table);
        self.version.fetch_add(1, Ordering::AcqRel);
        tracing::info!(topic = %topic.name, "topic deleted");
        topic.wake_all();
    }

    /// Adds partitions to a topic. They are durable on return. May block.
    pub(crate) fn add_partitions(
        &self,
        name: &str,
        partition_count: i32,
        validate_only: bool,
    ) -> Result<(), Refusal> {
        let topic = self.demand(name)?;
        let _own = self.lock_to_change(&topic)?;
        let before = topic.log.partition_count();
        let most = record_log::PARTITION_COUNT_MAX;
        let wanted = u32::try_from(partition_count).unwrap_or(0);
        if wanted <= before || wanted > most {
            let what = format!(
                "the number of partitions of topic {name:?} is {before} and can only be \
                 increased, up to {most}; {partition_count} was requested"
            );
            return Err(Refusal::new(ResponseError::InvalidPartitions, what));
        }
        if validate_only {
            return Ok(());
        }
        topic.log.add_partitions(wanted).inspect_err(|_| topic.note_unsure()).map_err(of_log)?;
        topic.find_partitions().map_err(of_log)?;
        self.version.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Changes the settings of a topic that its owner has set. Durable on return. May block.
    pub(crate) fn configure(
        &self,
        name: &str,
        validate_only: bool,
        change: &Change<'_>,
    ) -> Result<(), Refusal> {
        let topic = self.demand(name)?;
        let _own = self.lock_to_change(&topic)?;
        let before = topic.settings();
        let mut own = before.own.clone();
        change(&mut own)?;
        let settings = TopicSettings::new(own.clone(), &self.defaults)
            .map_err(|why| Refusal::new(ResponseError::InvalidConfig, why))?;
        if validate_only {
            return Ok(());
        }
        let class = settings.class;
        self.table.read().expect(NO_PANIC).places.check_change(topic.id, &settings)?;
        // Done even if the settings are unchanged: the volume may have been changed independently.
        let is_weaker = settings.class.durability < before.class.durability;
        if !is_weaker {
            self.keep_state_as_well(&mut self.changing.lock().expect(NO_PANIC), settings.class)?;
            self.set_class(&topic, class)?;
        }
        if settings == *before {
            return Ok(());
        }
        say_what_has_no_effect(name, &settings);
        let is_derived = topic.is_derived;
        let properties = Properties { name: name.to_owned(), settings: own, is_derived };
        let bytes = serde_json::to_vec(&properties).expect("it is plain data");
        topic.log.set_properties(&bytes).inspect_err(|_| topic.note_unsure()).map_err(of_log)?;
        topic.log.set_options(options(&settings));
        self.table.write().expect(NO_PANIC).places.change(topic.id, &settings);
        topic.set_settings(settings);
        // Last: a volume is never less durable than its topic's settings.
        if is_weaker { self.set_class(&topic, class) } else { Ok(()) }
    }

    /// Returns a number that changes when a topic is created or deleted, or gets partitions.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Calls `visit` with each name until it breaks.
    pub(crate) fn each_name(&self, visit: &mut dyn FnMut(&str) -> ControlFlow<()>) {
        let table = self.table.read().expect(NO_PANIC);
        // The visitor's break only ends the iteration.
        let _ended = table.by_name.keys().try_for_each(|name| visit(name));
    }

    fn insert(&self, topic: OpenTopic, owner: Owner) -> Arc<OpenTopic> {
        let topic = Arc::new(topic);
        self.epochs.note_served(&topic);
        let mut table = self.table.write().expect(NO_PANIC);
        table.places.take(topic.id, owner, &topic.settings());
        table.by_id.insert(topic.id, Arc::clone(&topic));
        table.by_plain_name.insert(plain(&topic.name), Arc::clone(&topic.name));
        table.by_name.insert(Arc::clone(&topic.name), Arc::clone(&topic));
        drop(table);
        self.version.fetch_add(1, Ordering::AcqRel);
        topic
    }
}

/// Returns the log's options. Retention by size deletes whole segments, but never the last one. It
/// retains little more than configured if segments are small compared with the limit.
fn options(settings: &TopicSettings) -> TopicOptions {
    let is_by_size = settings.deletes && !settings.compacts;
    let kept_bytes = settings.retention_bytes.filter(|_| is_by_size).unwrap_or(u64::MAX);
    let part_bytes = (kept_bytes / SEGMENTS_IN_RETENTION).max(SEGMENT_BYTES_LIKED_MIN);
    TopicOptions { segment_bytes: settings.segment_bytes.min(part_bytes) }
}

fn say_what_has_no_effect(topic: &str, settings: &TopicSettings) {
    let names: Vec<&str> = settings.without_effect().collect();
    if !names.is_empty() {
        let settings = names.join(", ");
        tracing::warn!(topic, settings, "settings accepted without effect");
    }
}

/// Returns the form of a topic name that no two topics may share: dots and underscores are equal.
fn plain(name: &str) -> String {
    name.replace('.', "_")
}

/// Returns the name of the volume of a topic under creation.
fn half_made_name(id: Uuid) -> String {
    format!("{HALF_MADE_PREFIX}{}", id.simple())
}

/// Returns whether a volume was left by an interrupted creation. The name must have exactly the
/// broker's form.
fn is_half_made(volume: &str) -> bool {
    let id = volume.strip_prefix(HALF_MADE_PREFIX).and_then(|id| Uuid::try_parse(id).ok());
    id.is_some_and(|id| half_made_name(id) == volume)
}

/// Returns the name of a topic's volume. A name that is too long is truncated and made unique by
/// the id.
fn volume_name(topic: &str, id: Uuid) -> String {
    let whole = format!("{VOLUME_PREFIX}{topic}");
    if whole.len() <= VOLUME_NAME_MAX {
        return whole;
    }
    let id = id.simple().to_string();
    format!("{}.{id}", &whole[..VOLUME_NAME_MAX - 1 - id.len()])
}

fn read_properties(volume: &str, bytes: &[u8]) -> Result<Properties, Refusal> {
    serde_json::from_slice(bytes).map_err(|error| {
        let what = format!("cannot read the topic's settings in volume {volume:?}: {error}");
        Refusal::new(ResponseError::KafkaStorageError, what)
    })
}

/// Rejects a volume whose name is not that of the topic's volume. Clones and images copy the
/// topic's name and id with the contents, but not the volume's name.
fn check_place(volume: &str, topic: &str, id: Uuid) -> Result<(), Refusal> {
    let own = volume_name(topic, id);
    if volume == own {
        return Ok(());
    }
    let what = format!(
        "volume {volume:?} is a copy of topic {topic:?} and is ignored; the topic's volume is \
         {own:?}"
    );
    Err(Refusal::new(ResponseError::KafkaStorageError, what))
}

/// Returns a random UUID of version 4.
pub(crate) fn random_id() -> [u8; 16] {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the kernel has random bytes");
    uuid::Builder::from_random_bytes(bytes).into_uuid().into_bytes()
}
