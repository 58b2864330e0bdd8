//! Producers recorded in partitions, which may be missing from the state log.

use std::collections::BTreeMap;

use kafka_protocol::messages::{ProducerId, TopicName};

use crate::participants::Participants;
use crate::table::Table;
use crate::transaction::{Producer, State};

/// A producer recorded in a partition.
#[derive(Clone, Debug)]
pub struct Known {
    pub producer: Producer,
    /// Topic and partition, if a transaction of the producer is open there.
    pub open: Option<(TopicName, i32)>,
}

/// Returns the producers with open transactions that the table does not contain, and their
/// partitions.
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

/// Returns the participants of each producer's transaction that is open or about to end.
fn open_by_producer(table: &Table) -> BTreeMap<ProducerId, &Participants> {
    let open = table.iter().filter_map(|(_, transaction)| match &transaction.state {
        State::Ongoing { participants, .. } => Some((transaction.producer.id, participants)),
        State::Prepare { marker, participants, .. } => Some((marker.id, participants)),
        State::Empty | State::Complete(_) => None,
    });
    open.collect()
}
