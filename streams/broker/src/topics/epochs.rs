//! Minimum leader epochs of topics that are created or opened.
//!
//! Clients reject epochs below the one that they know, also of a topic that was deleted and created
//! again. Each opening increments a topic's epoch, so epochs can be ahead of the clock: after
//! several starts within a second, or after the clock was set back. As long as the minimum is
//! ahead, the coordinator stores it with each deletion, for starts without the deleted topic.

use std::sync::atomic::{AtomicI32, Ordering};

use super::topic::OpenTopic;
use crate::clock::epoch_now;

/// Epoch that is not below those of served topics, and above those of deleted ones.
#[derive(Debug, Default)]
pub(super) struct Epochs(AtomicI32);

impl Epochs {
    /// Returns the minimum epoch of a topic that is created or opened now.
    pub(super) fn least(&self) -> i32 {
        // Relaxed: the number carries no data.
        self.0.load(Ordering::Relaxed).max(epoch_now())
    }

    /// Returns the minimum if it is ahead of the clock.
    pub(super) fn ahead(&self) -> Option<i32> {
        Some(self.0.load(Ordering::Relaxed)).filter(|least| *least > epoch_now())
    }

    pub(super) fn raise(&self, least: i32) {
        self.0.fetch_max(least, Ordering::Relaxed);
    }

    pub(super) fn note_served(&self, topic: &OpenTopic) {
        self.raise(epoch_of(topic));
    }

    pub(super) fn note_deleted(&self, topic: &OpenTopic) {
        self.raise(epoch_of(topic).saturating_add(1));
    }
}

fn epoch_of(topic: &OpenTopic) -> i32 {
    topic.partitions().iter().map(|it| it.log.epoch()).max().unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::storage::{Embedded, EmbeddedPool};
    use crate::topics::{NewTopic, Topics};

    #[test]
    fn a_topic_that_is_created_again_has_a_later_epoch_also_ahead_of_the_clock() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("it is made");
        let pool = EmbeddedPool { size_bytes: 64 << 20, file: Some(folder.path().join("pool")) };
        let open = || {
            let storage = Arc::new(Embedded::open(&pool).expect("it opens"));
            Topics::open(storage, BTreeMap::new()).expect("it opens")
        };
        let new = NewTopic {
            name: "orders".to_owned(),
            partition_count: 1,
            settings: BTreeMap::new(),
            is_derived: false,
            owner: shares::Owner::NOBODY,
        };
        let mut known = epoch_of(&open().create(&new).expect("there is room"));
        while known <= epoch_now() + 1 {
            known = epoch_of(&open().by_name("orders").expect("it is there"));
        }
        let topics = open();
        known = known.max(epoch_of(&topics.by_name("orders").expect("it is there")));
        topics.delete("orders").expect("it is there");
        let epoch = epoch_of(&topics.create(&new).expect("there is room"));
        assert!(epoch > known, "clients know {known} and are told {epoch}");
    }
}
