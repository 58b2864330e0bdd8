//! Topics whose volumes could not be opened. Opening is retried periodically, and they are served
//! as soon as it succeeds.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use kafka_protocol::error::ResponseError;
use shares::Owner;
use uuid::Uuid;
use volumes::Durability;

use super::{NO_PANIC, OpenTopic, Refusal, Topics, VOLUME_PREFIX, volume_name};
use crate::storage::StoredVolume;

/// Maximum number of threads that open topics at a start, each of which mostly waits for replies of
/// the daemon.
const THREAD_COUNT_MAX: usize = 4;

/// Maximum number of unavailable topics that are reported by name.
const NAMED_MAX: usize = 20;

/// Volumes of unavailable topics.
#[derive(Default)]
pub(super) struct Unserved {
    list: Mutex<List>,
    /// Signalled after each attempt to open a topic.
    pub(super) ended: Condvar,
}

#[derive(Default)]
pub(super) struct List {
    /// Volumes that could not be opened, in the order of retries.
    pub(super) failed: VecDeque<String>,
    /// Volumes that wait to be opened, and those being opened.
    pub(super) queue: VecDeque<StoredVolume>,
    pub(super) opening: Vec<String>,
    pub(super) ended_count: u64,
    /// True once the start has continued without them.
    pub(super) are_late: bool,
}

impl Unserved {
    pub(super) fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().expect(NO_PANIC)
    }
}

impl List {
    fn volumes(&self) -> impl Iterator<Item = &str> {
        let queued = self.queue.iter().map(|it| it.name.as_str());
        self.failed.iter().chain(&self.opening).map(String::as_str).chain(queued)
    }
}

/// Result of a lookup by name.
pub(crate) enum Found {
    Served(Arc<OpenTopic>),
    /// The topic exists, but could not be opened yet.
    NotServed,
    Gone,
}

impl Topics {
    /// Looks up a topic. Distinguishes topics that do not exist from unavailable ones.
    pub(crate) fn find(&self, name: &str) -> Found {
        match self.by_name(name) {
            Some(topic) => Found::Served(topic),
            None if self.unserved.lock().volumes().any(|volume| may_be_of(volume, name)) => {
                Found::NotServed
            }
            // It may have been opened in the meantime.
            None => self.by_name(name).map_or(Found::Gone, Found::Served),
        }
    }

    /// Returns the number of unavailable topics, and names of some of them.
    pub(crate) fn unserved(&self) -> (usize, Vec<String>) {
        let list = self.unserved.lock();
        let mut names: Vec<&str> =
            list.volumes().filter_map(|volume| volume.strip_prefix(VOLUME_PREFIX)).collect();
        names.sort_unstable();
        (names.len(), names.iter().take(NAMED_MAX).map(|name| (*name).to_owned()).collect())
    }

    /// Opens the topics of volumes, and adds those that wait for a disk to `beside`. Returns the
    /// highest durability class of the volumes and in the topics' settings.
    pub(super) fn open_all_here(
        &self,
        volumes: Vec<StoredVolume>,
        beside: &mut Vec<StoredVolume>,
    ) -> Durability {
        let thread_count = volumes.len().min(THREAD_COUNT_MAX);
        let todo = Mutex::new(volumes.into_iter());
        let left = Mutex::new((Durability::Ram, beside));
        let open_some = || {
            loop {
                let next = todo.lock().expect(NO_PANIC).next();
                let Some(volume) = next else { return };
                let (durability, waiting) = self.open_here(volume);
                let mut left = left.lock().expect(NO_PANIC);
                left.0 = left.0.max(durability);
                left.1.extend(waiting);
            }
        };
        std::thread::scope(|scope| {
            (1..thread_count).for_each(|_| drop(scope.spawn(open_some)));
            open_some();
        });
        left.into_inner().expect(NO_PANIC).0
    }

    /// Opens the topic of a volume, unless it waits for a disk, and then returns the volume. Also
    /// returns the durability class of the volume, or of the topic's settings if that is higher.
    fn open_here(&self, volume: StoredVolume) -> (Durability, Option<StoredVolume>) {
        let kept = volume.class.durability;
        if kept == Durability::Journal {
            return (kept, Some(volume));
        }
        match self.open_volume(&volume.name) {
            Ok(topic) => {
                let wanted = topic.settings().class.durability;
                if wanted > kept {
                    return (wanted, Some(volume));
                }
                topic.note_kept(volume.class);
                drop(self.insert(topic, Owner::NOBODY));
                (kept, None)
            }
            Err(refusal) => {
                let volume = volume.name;
                tracing::error!(volume, error = refusal.message, "cannot open the topic");
                self.unserved.lock().failed.push_back(volume);
                (kept, None)
            }
        }
    }

    /// Returns the topic, or an error.
    pub(crate) fn demand(&self, name: &str) -> Result<Arc<OpenTopic>, Refusal> {
        match self.find(name) {
            Found::Served(topic) => Ok(topic),
            Found::NotServed => Err(not_served(name)),
            Found::Gone => Err(Refusal::no_topic(name)),
        }
    }

    /// Retries the volume that has failed for the longest time. A deleted volume is removed. May
    /// wait for its disk.
    pub(super) fn serve_beside(&self) {
        let Some(volume) = self.unserved.lock().failed.front().cloned() else { return };
        let there = match self.storage.volumes() {
            Ok(there) => there.into_iter().find(|it| it.name == volume),
            Err(error) => {
                tracing::debug!(volume, %error, "cannot look up the volume of a topic");
                return;
            }
        };
        let opened = there.map(|there| {
            let topic = self.open_volume(&volume)?;
            let wanted = topic.settings().class;
            self.keep_state_as_well(&mut self.changing.lock().expect(NO_PANIC), wanted)?;
            self.reconcile(topic, there.class)
        });
        let is_failed = matches!(opened, Some(Err(_)));
        match opened {
            Some(Err(refusal)) => {
                tracing::debug!(volume, error = refusal.message, "still cannot open the topic");
            }
            None => tracing::info!(volume, "the volume of an unavailable topic was deleted"),
            Some(Ok(topic)) => self.serve_late(topic),
        }
        let mut list = self.unserved.lock();
        list.failed.retain(|it| *it != volume);
        if is_failed {
            list.failed.push_back(volume);
        }
    }

    /// Adds a topic that was opened late, and notifies the coordinator.
    pub(super) fn serve_late(&self, topic: OpenTopic) {
        let topic = self.insert(topic, Owner::NOBODY);
        tracing::info!(volume = topic.volume, topic = %topic.name, "the topic is available now");
        if let Some(meet) = self.meet.get() {
            meet(&topic);
        }
    }
}

/// Returns whether a volume may belong to the topic of this name. A volume has only the beginning
/// of a long name.
fn may_be_of(volume: &str, topic: &str) -> bool {
    let whole = volume_name(topic, Uuid::nil());
    let Some(beginning) = whole.strip_suffix(&Uuid::nil().simple().to_string()) else {
        return volume == whole;
    };
    volume.len() == whole.len() && volume.starts_with(beginning)
}

pub(super) fn not_served(name: &str) -> Refusal {
    let what = format!(
        "topic {name:?} is not available: its volume waits for its disk or cannot be opened; see \
         the broker's log. Opening is retried every few seconds"
    );
    Refusal::new(ResponseError::KafkaStorageError, what)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::storage::{Embedded, EmbeddedPool, Storage};
    use crate::topics::NewTopic;

    #[test]
    fn a_topic_that_could_not_be_opened_is_served_as_soon_as_it_can_be() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("it is there");
        let pool = EmbeddedPool { size_bytes: 64 << 20, file: Some(folder.path().join("pool")) };
        let storage = Arc::new(Embedded::open(&pool).expect("it opens"));
        let open = || Topics::open(Arc::clone(&storage) as _, BTreeMap::new()).expect("it opens");
        let create = |topics: &Topics, name: &str| {
            let (name, settings) = (name.to_owned(), BTreeMap::new());
            let new = NewTopic {
                name,
                partition_count: 1,
                settings,
                is_derived: false,
                owner: shares::Owner::NOBODY,
            };
            topics.create(&new).map(|it| it.volume.clone())
        };
        let volumes = {
            let topics = open();
            ["mended", "deleted"].map(|name| create(&topics, name).expect("there is room"))
        };
        let [mended, deleted] = volumes.each_ref().map(|it| storage.open(it).expect("it opens"));
        let mut block = [0; 4096];
        mended.read(0, &mut block).expect("memory");
        for device in [&mended, &deleted] {
            device.write(0, &[0xFF; 4096]).expect("memory");
        }
        let topics = open();
        let met = Arc::<std::sync::Mutex<Vec<Arc<str>>>>::default();
        let meeting = Arc::clone(&met);
        let note = move |it: &Arc<OpenTopic>| {
            meeting.lock().expect(NO_PANIC).push(Arc::clone(&it.name));
        };
        topics.set_meet(Box::new(note));
        for _ in 0..3 {
            topics.serve_beside();
            assert!(matches!(topics.find("mended"), Found::NotServed));
            assert!(matches!(topics.find("deleted"), Found::NotServed));
        }
        mended.write(0, &block).expect("memory");
        storage.delete(&volumes[1]).expect("it is there");
        (0..2).for_each(|_| topics.serve_beside());
        assert!(matches!(topics.find("mended"), Found::Served(_)));
        assert_eq!(*met.lock().expect(NO_PANIC), ["mended".into()]);
        assert!(matches!(topics.find("deleted"), Found::Gone));
        create(&topics, "deleted").expect("the earlier one is gone");
        topics.serve_beside();
        assert_eq!(met.lock().expect(NO_PANIC).len(), 1);
    }
}
