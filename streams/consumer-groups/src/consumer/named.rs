//! Conversion of partitions from and to topic names, which the classic protocol uses.

use super::group::{Partition, Partitions, by_topic};
use crate::embedded::NamedPartitions;
use crate::topics::Topics;

/// Resolves names to existing partitions. Others are dropped.
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

/// Returns the partitions by topic name, without those of deleted topics.
pub(crate) fn named(partitions: &Partitions, topics: &dyn Topics) -> Vec<(String, Vec<i32>)> {
    let topics =
        by_topic(partitions).into_iter().map(|(id, indexes)| Some((topics.name_of(id)?, indexes)));
    topics.flatten().collect()
}
