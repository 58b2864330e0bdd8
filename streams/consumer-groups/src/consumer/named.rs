//! Partitions by the names of their topics, as clients of the classic protocol know them.

use super::group::{Partition, Partitions, by_topic};
use crate::embedded::NamedPartitions;
use crate::topics::Topics;

/// The partitions of these that there are.
pub(crate) fn resolve(named: &NamedPartitions, topics: &dyn Topics) -> Partitions {
    let mut partitions = Partitions::new();
    for (name, indexes) in named {
        let Some(shape) = topics.by_name(name) else { continue };
        let is_there = |it: &i32| u32::try_from(*it).is_ok_and(|it| it < shape.partition_count);
        let indexes = indexes.iter().copied().filter(is_there);
        partitions.extend(indexes.map(|index| Partition { topic: shape.id, index }));
    }
    partitions
}

/// The same partitions by name, without those of topics that are gone.
pub(crate) fn named(partitions: &Partitions, topics: &dyn Topics) -> Vec<(String, Vec<i32>)> {
    let topics =
        by_topic(partitions).into_iter().map(|(id, indexes)| Some((topics.name_of(id)?, indexes)));
    topics.flatten().collect()
}
