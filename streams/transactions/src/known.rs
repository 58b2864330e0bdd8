//! Producers that partitions know, beside those of the state log.

use std::collections::BTreeMap;

use kafka_protocol::messages::{ProducerId, TopicName};

use crate::participants::Participants;
use crate::table::Table;
use crate::transaction::{Producer, State};

/// A producer that a partition knows.
#[derive(Clone, Debug)]
pub struct Known {
    pub producer: Producer,
    /// The topic and partition, where a transaction of the producer is open there.
    pub open: Option<(TopicName, i32)>,
}

/// Producers with transactions that are open on partitions and not in the table, and where.
pub(crate) fn unknown_to(table: &Table, known: Vec<Known>) -> Vec<(Producer, Participants)> {
    let ours = open_by_producer(table);
    let mut unknown = BTreeMap::<(ProducerId, i16), Participants>::new();
    for Known { producer, open } in known {
        let Some((topic, partition)) = open else { continue };
        let is_known = ours.get(&producer.id).is_some_and(|it| it.has_partition(&topic, partition));
        if !is_known {
            let participants = unknown.entry((producer.id, producer.epoch)).or_default();
            participants.add_partitions(&topic, [partition]);
        }
    }
    let producer = |((id, epoch), participants)| (Producer { id, epoch }, participants);
    unknown.into_iter().map(producer).collect()
}

/// What each producer has in its open transaction, or had in one that is about to end.
fn open_by_producer(table: &Table) -> BTreeMap<ProducerId, &Participants> {
    let open = table.iter().filter_map(|(_, transaction)| match &transaction.state {
        State::Ongoing { participants, .. } => Some((transaction.producer.id, participants)),
        State::Prepare { marker, participants, .. } => Some((marker.id, participants)),
        State::Empty | State::Complete(_) => None,
    });
    open.collect()
}
