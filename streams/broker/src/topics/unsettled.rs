//! Requested changes of volumes without a reply, for example because the daemon died. Their outcome
//! is determined, so that the list of topics matches the volumes.
//!
//! A change that was reported as failed must not take effect: a topic that was created nevertheless
//! is deleted. The outcome of a deletion is determined by looking for the volume.

use std::collections::BTreeSet;
use std::sync::Arc;

use kafka_protocol::error::ResponseError;
use record_log::Topic;
use uuid::Uuid;

use super::{NO_PANIC, OpenTopic, Refusal, Topics, of_log, of_storage};
use crate::storage::{StorageError, StorageErrorKind};

/// A change with unknown outcome.
#[derive(Debug)]
pub(super) enum Unsettled {
    /// The topic with this id must exist on neither volume.
    Made {
        half_made: String,
        volume: String,
        id: Uuid,
    },
    Deleted(Arc<OpenTopic>),
}

impl Topics {
    /// Records a change with unknown outcome, and tries to settle it immediately.
    pub(super) fn unsettle(&self, change: Unsettled) {
        self.unsettled.lock().expect(NO_PANIC).push(change);
        if let Err(refusal) = self.settle() {
            tracing::warn!(
                error = refusal.message,
                "the result of a topic change is unknown; \
                                                     checking"
            );
        }
    }

    /// Settles all changes. Returns an error if that is not possible yet. Called by the thread that
    /// changes topics before each change, so unsettled changes are few. May block.
    pub(super) fn settle(&self) -> Result<(), Refusal> {
        let mut unsettled = std::mem::take(&mut *self.unsettled.lock().expect(NO_PANIC));
        if unsettled.is_empty() {
            return Ok(());
        }
        let mut settled = Ok(());
        let there = self.storage.volumes().map_err(of_storage);
        let there = there.map(|all| all.into_iter().map(|it| it.name).collect::<BTreeSet<_>>());
        unsettled.retain(|change| {
            let done = match &there {
                Ok(there) => self.settle_one(change, there),
                Err(refusal) => Err(Refusal::new(refusal.error, &refusal.message)),
            };
            match done {
                Ok(()) => false,
                Err(refusal) => {
                    settled = Err(refusal);
                    true
                }
            }
        });
        self.unsettled.lock().expect(NO_PANIC).extend(unsettled);
        settled.map_err(|refusal| {
            let what = "the result of an earlier topic change is not known yet; retry later";
            Refusal::new(ResponseError::KafkaStorageError, format!("{what}: {}", refusal.message))
        })
    }

    fn settle_one(&self, change: &Unsettled, there: &BTreeSet<String>) -> Result<(), Refusal> {
        match change {
            Unsettled::Made { half_made, volume, id } => {
                if there.contains(half_made) {
                    gone(self.storage.delete(half_made))?;
                }
                if there.contains(volume) && self.holds(volume, *id)? {
                    gone(self.storage.delete(volume))?;
                }
            }
            Unsettled::Deleted(topic) if !there.contains(&topic.volume) => self.remove(topic),
            Unsettled::Deleted(_) => {}
        }
        Ok(())
    }

    fn holds(&self, volume: &str, id: Uuid) -> Result<bool, Refusal> {
        let device = self.storage.peek(volume).map_err(of_storage)?;
        let found = Topic::look(&*device.device).map_err(of_log)?;
        Ok(found.is_some_and(|(found, _)| Uuid::from_bytes(found) == id))
    }

    /// Calls [`Topics::settle`] periodically, even if no topic is changed.
    pub(super) fn settle_beside(&self) {
        if self.unsettled.lock().expect(NO_PANIC).is_empty() {
            return;
        }
        let _one = self.changing.lock().expect(NO_PANIC);
        if let Err(refusal) = self.settle() {
            tracing::debug!(
                error = refusal.message,
                "the result of a topic change is still \
                                                      unknown"
            );
        }
    }
}

/// Accepts that a volume is already deleted.
fn gone(deleted: Result<(), StorageError>) -> Result<(), Refusal> {
    match deleted {
        Err(error) if error.kind == StorageErrorKind::Missing => Ok(()),
        deleted => deleted.map_err(of_storage),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::Ordering;

    use record_batch::{BatchOptions, NewRecord, encode_batch};
    use record_log::Batch;
    use tempfile::TempDir;

    use super::*;
    use crate::storage::{
        Asked, Embedded, EmbeddedPool, Failing, LostAnswers, Storage, Unreliable,
    };
    use crate::topics::{NewTopic, upkeep};

    /// More requests than one change makes.
    const ALL: u32 = 100;

    struct World {
        topics: Arc<Topics>,
        pool: Arc<Embedded>,
        failing: Arc<Failing>,
        _folder: TempDir,
    }

    impl World {
        fn new() -> Self {
            let folder = tempfile::tempdir_in("/dev/shm").expect("it is there");
            let file = Some(folder.path().join("pool"));
            let pool = EmbeddedPool { size_bytes: 64 << 20, file };
            let pool = Arc::new(Embedded::open(&pool).expect("it opens"));
            let failing = Arc::<Failing>::default();
            let storage = Unreliable { pool: Arc::clone(&pool), failing: Arc::clone(&failing) };
            let topics = Topics::open(Arc::new(storage), BTreeMap::new()).expect("it opens");
            Self { topics, pool, failing, _folder: folder }
        }

        fn create(&self, name: &str) -> Result<(), Refusal> {
            self.create_with(name, BTreeMap::new())
        }

        fn create_with(
            &self,
            name: &str,
            settings: BTreeMap<String, String>,
        ) -> Result<(), Refusal> {
            let new = NewTopic {
                name: name.to_owned(),
                partition_count: 1,
                settings,
                is_derived: false,
                owner: shares::Owner::NOBODY,
            };
            self.topics.create(&new).map(drop)
        }

        /// Checks that volumes and served topics correspond.
        fn check(&self, case: &str) {
            self.failing.lose_answers(LostAnswers::default());
            self.failing.requests.store(false, Ordering::Release);
            self.topics.settle_beside();
            let mut there: Vec<_> = self.pool.volumes().expect("it is there");
            there.sort_by(|a, b| a.name.cmp(&b.name));
            let there: Vec<String> = there.into_iter().map(|it| it.name).collect();
            let listed: Vec<_> = self.topics.all().iter().map(|it| it.volume.clone()).collect();
            assert_eq!(listed, there, "{case}");
        }
    }

    #[test]
    fn a_topic_is_there_as_a_whole_or_not_at_all_whichever_answers_are_lost() {
        for (after, count) in [(0, 1), (0, 2), (0, ALL), (1, 1), (1, 2), (1, 3), (1, ALL), (2, 1)] {
            let case = format!("{count} answers after {after} are lost");
            let world = World::new();
            world.create("kept").expect("there is room");
            world.failing.lose_answers(LostAnswers { after, count });
            let made = world.create("orders");
            if count == ALL {
                made.as_ref().expect_err("nothing is answered");
                let again = world.create("others").expect_err("nothing is answered");
                assert_eq!(again.error, ResponseError::KafkaStorageError, "{case}");
            }
            world.check(&case);
            assert_eq!(world.topics.by_name("orders").is_some(), made.is_ok(), "{case}");
            if made.is_err() {
                world.create("orders").expect("there is room");
            }
            world.failing.lose_answers(LostAnswers { after, count });
            let deleted = world.topics.delete("orders");
            world.check(&case);
            assert_eq!(world.topics.by_name("orders").is_none(), after == 0 || deleted.is_ok());
            world.create("orders").expect("there is room");
            world.check(&case);
        }
    }

    #[test]
    fn a_topic_stays_where_its_deletion_did_not_reach_the_storage() {
        let world = World::new();
        world.create("orders").expect("there is room");
        world.failing.requests.store(true, Ordering::Release);
        for _ in 0..3 {
            world.topics.delete("orders").expect_err("the daemon is away");
            world.create("others").expect_err("the daemon is away");
        }
        world.check("the daemon was away");
        assert!(world.topics.by_name("orders").is_some());
        world.topics.delete("orders").expect("it is there");
        world.check("it was deleted");
    }

    #[test]
    fn a_change_of_a_topic_asks_as_much_of_the_storage_with_few_topics_as_with_many() {
        let world = World::new();
        let asked = |change: &dyn Fn() -> Result<(), Refusal>| {
            world.failing.take_asked();
            change().expect("there is room");
            world.failing.take_asked()
        };
        let requests = |requests| Asked { requests, listed: 0 };
        let set = |own: &mut BTreeMap<String, String>| {
            own.insert("retention.ms".to_owned(), "1000".to_owned());
            Ok(())
        };
        for count in [1, 40] {
            let present = world.topics.all().len();
            let names = (present..count).map(|number| format!("topic-{number}"));
            names.for_each(|name| world.create(&name).expect("there is room"));
            assert_eq!(asked(&|| world.create("one")), requests(2), "create and rename");
            let configure = || world.topics.configure("one", false, &set);
            assert_eq!(asked(&configure), requests(1), "look at the class");
            assert_eq!(asked(&|| world.topics.delete("one")), requests(1), "delete");
        }
        world.failing.take_asked();
        let storage =
            Unreliable { pool: Arc::clone(&world.pool), failing: Arc::clone(&world.failing) };
        let again = Topics::open(Arc::new(storage), BTreeMap::new()).expect("it opens");
        assert_eq!(again.all().len(), 40);
        let all = Asked { requests: 1 + 40, listed: 40 };
        assert_eq!(world.failing.take_asked(), all, "one list, and each volume once");
    }

    #[test]
    fn a_stop_flushes_only_topics_that_have_changed() {
        let world = World::new();
        for name in ["changed", "unused"] {
            world.create(name).expect("there is room");
        }
        let topic = world.topics.by_name("changed").expect("it was made");
        let partition = topic.partition(0).expect("it has one");
        let record = NewRecord { value: Some(vec![b'v'; 100].into()), ..NewRecord::default() };
        let mut bytes = encode_batch(&[record], &BatchOptions::default()).expect("one").to_vec();
        let (mut batch, _) = Batch::split_first(&mut bytes).expect("a good batch");
        partition.log.append(&mut batch, 0).expect("there is room");
        assert_eq!(upkeep::flush_all(&world.topics), 1);
        assert_eq!(partition.log.stable_offset(), 1);
        assert_eq!(upkeep::flush_all(&world.topics), 0);
    }

    #[test]
    fn the_maintenance_flushes_no_unused_topic() {
        let world = World::new();
        let compacted = ("cleanup.policy".to_owned(), "compact,delete".to_owned());
        world.create_with("unused", [compacted].into()).expect("there is room");
        let topic = world.topics.by_name("unused").expect("it was made");
        upkeep::retain_one(&topic).expect("it is new");
        world.failing.flushes.store(true, Ordering::Release);
        upkeep::retain_one(&topic).expect("nothing is flushed");
        upkeep::compact_one(&topic, [7; 16]).expect("nothing is flushed");
    }
}
