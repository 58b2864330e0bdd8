//! Acts of the coordinator once records of its state are stable, and what waits for that.
//!
//! The state is kept as well as the best topic. What speaks of topics that are kept in memory alone
//! is worth no more than these, and is done as soon as its records are in the log: so it waits for
//! no disk. All else is done when the flush behind it has ended.
//!
//! So with transactions. One becomes part of a topic on a disk only when all before is stable, its
//! producer's epoch too; one that has no such topic, and commits no offsets of one, is lost with
//! all that it wrote. A transactional id that had such a part gets each later epoch when that is
//! stable: one that was lost would be given again, and two instances would write with it.

use std::sync::mpsc::SyncSender;

use consumer_groups::Groups;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{RequestKind, ResponseKind, TransactionalId};
use kafka_protocol::protocol::StrBytes;
use transactions::{Markers, Participants, Transactions, Write};

use crate::topics::{Found, Topics};

/// Act for one request or transaction.
pub(super) enum Deed {
    /// Answers the request of a ticket.
    Respond(u64, ResponseKind),
    /// Says whether records are admitted, and where partitions ended when that was decided.
    Admit(u64, Result<Vec<i64>, ResponseError>),
    WriteMarkers(Markers),
    /// What groups committed to deleted topics is forgotten.
    Forgotten(SyncSender<()>),
}

/// Records that have to be stable before a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitsFor {
    Nothing,
    /// The last ids of producers that were reserved.
    ProducerIds,
    Everything,
}

impl WaitsFor {
    pub(super) fn of(
        request: &RequestKind,
        groups: &Groups,
        transactions: &Transactions,
        topics: &Topics,
    ) -> Self {
        let is_of_disks = match request {
            RequestKind::AddOffsetsToTxn(it) => {
                let participants = transactions.participants(&it.transactional_id);
                return Self::of_added(participants, groups.committed_topics(&it.group_id), topics);
            }
            RequestKind::EndTxn(it) if transactions.is_on_disk(&it.transactional_id) => true,
            RequestKind::EndTxn(it) => {
                let participants = transactions.participants(&it.transactional_id);
                return Self::of_end(participants, groups.pending_topics(it.producer_id.0), topics);
            }
            RequestKind::InitProducerId(it) => match &it.transactional_id {
                Some(id) if transactions.is_on_disk(id) => true,
                _ => return Self::ProducerIds,
            },
            RequestKind::OffsetCommit(it) => {
                it.topics.iter().any(|it| is_on_disk(topics, &it.name))
            }
            // What the answer shows says that.
            RequestKind::OffsetFetch(_) => false,
            RequestKind::TxnOffsetCommit(it) => {
                it.topics.iter().any(|it| is_on_disk(topics, &it.name))
            }
            RequestKind::AddPartitionsToTxn(it) => {
                it.v3_and_below_topics.iter().any(|it| is_on_disk(topics, &it.name))
            }
            // Members whose group is not known any more join again.
            RequestKind::JoinGroup(_)
            | RequestKind::SyncGroup(_)
            | RequestKind::Heartbeat(_)
            | RequestKind::LeaveGroup(_)
            | RequestKind::ListGroups(_)
            | RequestKind::DescribeGroups(_)
            | RequestKind::ConsumerGroupHeartbeat(_)
            | RequestKind::ConsumerGroupDescribe(_)
            | RequestKind::ListTransactions(_)
            | RequestKind::DescribeTransactions(_) => false,
            _ => true,
        };
        if is_of_disks { Self::Everything } else { Self::Nothing }
    }

    /// The same of the admission of records.
    pub(super) fn of_write(write: &Write, topics: &Topics) -> Self {
        Self::of_added(Some(&write.participants), std::iter::empty(), topics)
    }

    /// The same of parts of a transaction, and of a group whose offsets become one. A transaction
    /// that is known after a loss of power, and the group not, would refuse these offsets.
    fn of_added<'a>(
        participants: Option<&'a Participants>,
        offsets: impl Iterator<Item = &'a StrBytes>,
        topics: &Topics,
    ) -> Self {
        match has_topic_on_disk(participants, offsets, topics) {
            true => Self::Everything,
            false => Self::Nothing,
        }
    }

    /// The same of a transaction's end, after which its producer may have another id.
    pub(super) fn of_end<'a>(
        participants: Option<&'a Participants>,
        offsets: impl Iterator<Item = &'a StrBytes>,
        topics: &Topics,
    ) -> Self {
        match has_topic_on_disk(participants, offsets, topics) {
            true => Self::Everything,
            false => Self::ProducerIds,
        }
    }
}

impl Deed {
    /// Returns whether it shows offsets of topics that are kept on a disk.
    pub(super) fn shows_offsets_on_disk(&self, topics: &Topics) -> bool {
        let Self::Respond(_, ResponseKind::OffsetFetch(shown)) = self else { return false };
        let of_groups = shown.groups.iter().flat_map(|it| &it.topics).map(|it| &it.name);
        let mut names = shown.topics.iter().map(|it| &it.name).chain(of_groups);
        names.any(|name| is_on_disk(topics, name))
    }
}

/// The transactional id of a request that makes something part of a transaction.
pub(super) fn id_of_part(request: &RequestKind) -> Option<&TransactionalId> {
    match request {
        RequestKind::AddPartitionsToTxn(it) => Some(&it.v3_and_below_transactional_id),
        RequestKind::AddOffsetsToTxn(it) => Some(&it.transactional_id),
        RequestKind::TxnOffsetCommit(it) => Some(&it.transactional_id),
        _ => None,
    }
}

/// Returns whether a transaction writes to a topic that is kept on a disk, or commits its offsets.
fn has_topic_on_disk<'a>(
    participants: Option<&'a Participants>,
    offsets: impl Iterator<Item = &'a StrBytes>,
    topics: &Topics,
) -> bool {
    let written = participants.into_iter().flat_map(|it| it.topics.keys().map(|it| &it.0));
    written.chain(offsets).any(|name| is_on_disk(topics, name))
}

/// One that is not served now may be.
fn is_on_disk(topics: &Topics, name: &str) -> bool {
    match topics.find(name) {
        Found::Served(topic) => topic.waits_for_disk(),
        Found::NotServed => true,
        Found::Gone => false,
    }
}
