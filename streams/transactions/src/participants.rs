//! Partitions and groups that participate in a transaction, to which its markers are written.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::messages::{GroupId, TopicName};
use kafka_protocol::protocol::StrBytes;

const TOPIC_BYTES_MAX: usize = 249;

/// Maximum length of a string in the protocol.
const GROUP_ID_BYTES_MAX: usize = 32_767;

/// Partitions with records of a transaction, and groups whose offsets it commits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Participants {
    pub topics: BTreeMap<TopicName, BTreeSet<i32>>,
    pub groups: BTreeSet<GroupId>,
}

impl Participants {
    pub fn of_partitions(topic: &TopicName, partitions: impl IntoIterator<Item = i32>) -> Self {
        let mut all = Self::default();
        all.add_partitions(topic, partitions);
        all
    }

    pub fn of_group(group: &GroupId) -> Self {
        let groups = BTreeSet::from([GroupId(copy(group))]);
        Self { groups, ..Self::default() }
    }

    pub fn add_partitions(&mut self, topic: &TopicName, partitions: impl IntoIterator<Item = i32>) {
        match self.topics.get_mut(topic) {
            Some(known) => known.extend(partitions),
            None => {
                self.topics.insert(TopicName(copy(topic)), partitions.into_iter().collect());
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.topics.is_empty() && self.groups.is_empty()
    }

    pub(crate) fn has_valid_names(&self) -> bool {
        let is_topic = |name: &StrBytes| (1..=TOPIC_BYTES_MAX).contains(&name.len());
        let is_group = |name: &StrBytes| (1..=GROUP_ID_BYTES_MAX).contains(&name.len());
        self.topics.keys().all(|name| is_topic(name))
            && self.topics.values().flatten().all(|number| *number >= 0)
            && self.groups.iter().all(|name| is_group(name))
    }

    pub(crate) fn has_partition(&self, topic: &TopicName, partition: i32) -> bool {
        self.topics.get(topic).is_some_and(|partitions| partitions.contains(&partition))
    }

    pub(crate) fn contains(&self, other: &Self) -> bool {
        let has = |(topic, partitions): (&TopicName, &BTreeSet<i32>)| {
            self.topics.get(topic).is_some_and(|known| known.is_superset(partitions))
        };
        other.topics.iter().all(has) && self.groups.is_superset(&other.groups)
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (topic, partitions) in &other.topics {
            self.add_partitions(topic, partitions.iter().copied());
        }
        self.groups.extend(other.groups.iter().cloned());
    }
}

/// Copies a name, so that it does not keep the buffer of the whole request in memory.
fn copy(name: &StrBytes) -> StrBytes {
    StrBytes::from_string(name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &'static str) -> TopicName {
        TopicName(StrBytes::from_static_str(name))
    }

    #[test]
    fn participants_contain_what_was_added_and_nothing_else() {
        let mut all = Participants::of_partitions(&topic("a"), [1, 2]);
        all.add(&Participants::of_group(&GroupId(StrBytes::from_static_str("g"))));
        all.add(&Participants::of_partitions(&topic("a"), [7]));
        assert!(all.contains(&Participants::of_partitions(&topic("a"), [2, 7])));
        assert!(all.contains(&Participants::of_group(&GroupId(StrBytes::from_static_str("g")))));
        assert!(!all.contains(&Participants::of_partitions(&topic("a"), [2, 3])));
        assert!(!all.contains(&Participants::of_partitions(&topic("b"), [2])));
        assert!(!all.contains(&Participants::of_group(&GroupId(StrBytes::from_static_str("h")))));
    }
}
