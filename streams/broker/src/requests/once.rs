//! Removal of duplicate names from requests: each name is looked up and answered once, so that the
//! size of a response is limited by the existing objects.

use std::collections::BTreeSet;

use kafka_protocol::messages::{ListOffsetsRequest, RequestKind, TopicName};

/// Retains the first occurrence of each name. Of committed offsets, retains the last.
pub(super) fn name_once(request: &mut RequestKind) {
    match request {
        RequestKind::Metadata(it) => {
            if let Some(topics) = &mut it.topics {
                once(topics, |it| (it.topic_id, it.name.clone()));
            }
        }
        RequestKind::FindCoordinator(it) => once(&mut it.coordinator_keys, Clone::clone),
        RequestKind::DescribeConfigs(it) => {
            once(&mut it.resources, |it| (it.resource_type, it.resource_name.clone()));
        }
        RequestKind::ElectLeaders(it) => {
            if let Some(topics) = &mut it.topic_partitions {
                each_once(topics, |it| (&it.topic, &mut it.partitions), |it| *it);
            }
        }
        RequestKind::AlterPartitionReassignments(it) => {
            each_once(&mut it.topics, |it| (&it.name, &mut it.partitions), |it| it.partition_index);
        }
        RequestKind::AlterReplicaLogDirs(it) => {
            for folder in &mut it.dirs {
                let topics = &mut folder.topics;
                each_once(topics, |it| (&it.name, &mut it.partitions), |it| *it);
            }
        }
        RequestKind::DescribeQuorum(it) => {
            let topics = &mut it.topics;
            each_once(topics, |it| (&it.topic_name, &mut it.partitions), |it| it.partition_index);
        }
        RequestKind::OffsetForLeaderEpoch(it) => {
            each_once(&mut it.topics, |it| (&it.topic, &mut it.partitions), |it| it.partition);
        }
        RequestKind::DeleteRecords(it) => {
            each_once(&mut it.topics, |it| (&it.name, &mut it.partitions), |it| it.partition_index);
        }
        RequestKind::DescribeProducers(it) => {
            each_once(&mut it.topics, |it| (&it.name, &mut it.partition_indexes), |it| *it);
        }
        RequestKind::OffsetFetch(it) => {
            if let Some(topics) = &mut it.topics {
                each_once(topics, |it| (&it.name, &mut it.partition_indexes), |it| *it);
            }
            once(&mut it.groups, |it| it.group_id.clone());
            for topics in it.groups.iter_mut().filter_map(|it| it.topics.as_mut()) {
                each_once(topics, |it| (&it.name, &mut it.partition_indexes), |it| *it);
            }
        }
        RequestKind::OffsetDelete(it) => {
            each_once(&mut it.topics, |it| (&it.name, &mut it.partitions), |it| it.partition_index);
        }
        RequestKind::AddPartitionsToTxn(it) => {
            let topics = &mut it.v3_and_below_topics;
            each_once(topics, |it| (&it.name, &mut it.partitions), |it| *it);
        }
        RequestKind::OffsetCommit(it) => {
            each_last(&mut it.topics, |it| (&it.name, &mut it.partitions), |it| it.partition_index);
        }
        RequestKind::TxnOffsetCommit(it) => {
            each_last(&mut it.topics, |it| (&it.name, &mut it.partitions), |it| it.partition_index);
        }
        RequestKind::DescribeGroups(it) => once(&mut it.groups, Clone::clone),
        RequestKind::ConsumerGroupDescribe(it) => once(&mut it.group_ids, Clone::clone),
        RequestKind::DeleteGroups(it) => once(&mut it.groups_names, Clone::clone),
        RequestKind::DescribeTransactions(it) => once(&mut it.transactional_ids, Clone::clone),
        _ => {}
    }
}

/// Retains the first occurrence of each partition, and returns the repeated ones, which Kafka
/// rejects.
pub(super) fn list_once(request: &mut ListOffsetsRequest) -> BTreeSet<(TopicName, i32)> {
    each_once(&mut request.topics, |it| (&it.name, &mut it.partitions), |it| it.partition_index)
}

fn once<T, K: Ord>(items: &mut Vec<T>, key: impl Fn(&T) -> K) {
    let mut seen = BTreeSet::new();
    items.retain(|it| seen.insert(key(it)));
}

/// Retains the first occurrence of each partition, and returns the repeated ones.
fn each_once<T, P>(
    topics: &mut Vec<T>,
    parts: impl Fn(&mut T) -> (&TopicName, &mut Vec<P>),
    index: impl Fn(&P) -> i32,
) -> BTreeSet<(TopicName, i32)> {
    let (mut seen, mut again) = (BTreeSet::new(), BTreeSet::new());
    topics.retain_mut(|topic| {
        let (name, partitions) = parts(topic);
        let was_empty = partitions.is_empty();
        let name = name.clone();
        partitions.retain(|it| {
            let key = (name.clone(), index(it));
            let is_first = seen.insert(key.clone());
            if !is_first {
                again.insert(key);
            }
            is_first
        });
        was_empty || !partitions.is_empty()
    });
    again
}

/// Retains the last occurrence of each partition, in the order of the request.
fn each_last<T, P>(
    topics: &mut Vec<T>,
    parts: impl Fn(&mut T) -> (&TopicName, &mut Vec<P>),
    index: impl Fn(&P) -> i32,
) {
    let turn = |topics: &mut Vec<T>| {
        topics.reverse();
        topics.iter_mut().for_each(|topic| parts(topic).1.reverse());
    };
    turn(topics);
    each_once(topics, &parts, index);
    turn(topics);
}
