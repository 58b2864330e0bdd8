//! Classes of topics' volumes: those in the settings of topics, and the actual ones, which can be
//! changed without the broker.
//!
//! A volume and its topic's settings are changed one after the other, and the broker or daemon may
//! die in between. The broker reports the actual class of the volume.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use volumes::Durability;

use super::{OpenTopic, Refusal, Topics, of_storage};
use crate::storage::{STATE_VOLUMES, StorageError, VolumeClass};

impl Topics {
    /// Sets the class of a topic's volume. After an error the class is unknown, and is checked
    /// soon. May wait for its disk.
    pub(super) fn set_class(&self, topic: &OpenTopic, class: VolumeClass) -> Result<(), Refusal> {
        if class.durability == Durability::Journal {
            topic.expect_waits();
        }
        let set = self.storage.class_of(&topic.volume).and_then(|kept| {
            // Without a change, nothing waits for a disk.
            if kept == class { Ok(()) } else { self.storage.set_class(&topic.volume, class) }
        });
        match set {
            Ok(()) => topic.note_kept(class),
            Err(_) => self.note_class_unsure(),
        }
        set.map_err(of_storage)
    }

    /// Requests an early check of the volumes' classes.
    fn note_class_unsure(&self) {
        self.is_a_class_unsure.store(true, Ordering::Relaxed);
    }

    /// Reads the actual classes of volumes, which can be changed without the broker. May block.
    pub(super) fn look_at_classes(&self) -> Result<(), StorageError> {
        // Reset first, so that a concurrent change that fails causes another check.
        self.is_a_class_unsure.store(false, Ordering::Relaxed);
        let volumes = self.storage.volumes().inspect_err(|_| self.note_class_unsure())?;
        let kept: HashMap<_, _> = volumes.into_iter().map(|it| (it.name, it.class)).collect();
        for topic in self.all() {
            // A thread that is changing the topic sets the class itself.
            let Ok(_one) = topic.changing.try_lock() else { continue };
            kept.get(&topic.volume).iter().for_each(|class| topic.note_kept(**class));
        }
        Ok(())
    }

    /// Raises the class of a topic's volume to its settings. They differ if the default changed, or
    /// the broker died during a change of the topic.
    pub(super) fn reconcile(
        &self,
        topic: OpenTopic,
        mut class: VolumeClass,
    ) -> Result<OpenTopic, Refusal> {
        let wanted = topic.settings().class;
        if class.durability < wanted.durability {
            let volume = &topic.volume;
            tracing::warn!(volume, was = %class.durability, now = %wanted.durability, "the \
                durability of a topic's volume is lower than the topic's setting; raising it");
            self.storage.set_class(volume, wanted).map_err(of_storage)?;
            class = wanted;
        }
        topic.note_kept(class);
        Ok(topic)
    }

    /// Makes the broker's state as durable as a topic of this class, before that topic exists.
    pub(super) fn keep_state_as_well(
        &self,
        state: &mut VolumeClass,
        class: VolumeClass,
    ) -> Result<(), Refusal> {
        if class.durability > state.durability {
            let stronger = VolumeClass { durability: class.durability, ..*state };
            if class.durability == Durability::Journal {
                // Set first, because the change may succeed although its reply is lost.
                self.state_waits.store(true, Ordering::Relaxed);
            }
            for volume in STATE_VOLUMES {
                self.storage.set_class(volume, stronger).map_err(of_storage)?;
            }
            *state = stronger;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use tempfile::TempDir;
    use volumes::Reduction;

    use super::*;
    use crate::storage::{Embedded, EmbeddedPool, Failing, LostAnswers, Unreliable};
    use crate::topics::{NewTopic, upkeep};

    struct World {
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
            Self { pool, failing: Arc::default(), _folder: folder }
        }

        /// Opens the topics, like a starting broker.
        fn open(&self) -> Arc<Topics> {
            let (pool, failing) = (Arc::clone(&self.pool), Arc::clone(&self.failing));
            let storage = Arc::new(Unreliable { pool, failing });
            Topics::open(storage, BTreeMap::new()).expect("it opens")
        }
    }

    fn create(topics: &Topics) -> Arc<OpenTopic> {
        let new = NewTopic {
            name: "orders".to_owned(),
            partition_count: 1,
            settings: BTreeMap::new(),
            is_derived: false,
            owner: shares::Owner::NOBODY,
        };
        topics.create(&new).expect("there is room")
    }

    fn set(topics: &Topics, name: &str, value: &str) -> Result<(), Refusal> {
        topics.configure("orders", false, &|own| {
            own.insert(name.to_owned(), value.to_owned());
            Ok(())
        })
    }

    /// Returns the reduction in the settings, and the reported one of the volume.
    fn reductions(topics: &Topics) -> (Reduction, Reduction) {
        let topic = topics.by_name("orders").expect("it is served");
        (topic.settings().class.reduction, topic.kept().reduction)
    }

    #[test]
    fn what_is_told_of_a_volume_is_true_after_a_change_that_ended_half_way_and_it_is_completed() {
        const NAME: &str = "memlane.reduction";
        let world = World::new();
        let topics = world.open();
        create(&topics);
        world.failing.volumes.store(true, Ordering::Release);
        set(&topics, NAME, "compress").expect_err("the settings cannot be written");
        world.failing.volumes.store(false, Ordering::Release);
        let half_way = (Reduction::None, Reduction::Compress);
        assert_eq!(reductions(&topics), half_way);
        let topics = world.open();
        assert_eq!(reductions(&topics), half_way, "the broker has died");
        set(&topics, NAME, "compress").expect("it is completed");
        assert_eq!(reductions(&topics), (Reduction::Compress, Reduction::Compress));
        // The change succeeds, but its reply is lost. The class is read first.
        world.failing.lose_answers(LostAnswers { after: 1, count: 1 });
        set(&topics, NAME, "full").expect_err("the answer is lost");
        topics.look_at_classes().expect("they are there");
        assert_eq!(reductions(&topics), (Reduction::Compress, Reduction::Full));
        set(&topics, NAME, "compress").expect("it is as the settings say again");
        assert_eq!(reductions(&world.open()), (Reduction::Compress, Reduction::Compress));
    }

    #[test]
    fn what_a_client_was_told_to_have_failed_does_not_come_with_the_next_start() {
        let world = World::new();
        let topics = world.open();
        let topic = create(&topics);
        set(&topics, "retention.ms", "2000").expect("it is served");
        world.failing.flushes.store(true, Ordering::Release);
        set(&topics, "retention.ms", "1000").expect_err("it is not durable");
        topics.add_partitions("orders", 3, false).expect_err("they are not durable");
        upkeep::retain_one(&topic).expect_err("it cannot be settled yet");
        world.failing.flushes.store(false, Ordering::Release);
        upkeep::retain_one(&topic).expect("it is settled");
        let found = world.open().by_name("orders").expect("it is served");
        assert_eq!((found.settings().retention_ms, found.log.partition_count()), (Some(2000), 1));
        topics.add_partitions("orders", 2, false).expect("it is served");
        set(&topics, "retention.ms", "1000").expect("it is served");
        let found = world.open().by_name("orders").expect("it is served");
        assert_eq!((found.settings().retention_ms, found.log.partition_count()), (Some(1000), 2));
    }
}
