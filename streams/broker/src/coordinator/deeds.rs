//! Actions of the coordinator after its state was written, and whether they wait for its flush.
//!
//! The state is as durable as the most durable topic. State about topics in memory only needs no
//! more durability than these topics. Actions for them are taken as soon as their records are in
//! the log, without waiting for a disk. All other actions wait for the next flush.
//!
//! The same applies to transactions. A topic on disk is added to a transaction only after all
//! earlier state is stable, including its producer's epoch. A transaction without such a topic, and
//! without offsets of one, is lost together with all its records. A transactional id that had a
//! topic on disk gets each later epoch when it is stable: a lost epoch would be assigned again, and
//! two instances would write with it.

use std::sync::mpsc::SyncSender;

use consumer_groups::Groups;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{RequestKind, ResponseKind, TransactionalId};
use kafka_protocol::protocol::StrBytes;
use transactions::{Markers, Participants, Transactions, Write};

use crate::topics::{Found, Topics};

/// Action for a request or transaction.
pub(super) enum Deed {
    /// Sends the response to the request with this ticket.
    Respond(u64, ResponseKind),
    /// Replies whether records are admitted, with the ends of the partitions at that time.
    Admit(u64, Result<Vec<i64>, ResponseError>),
    WriteMarkers(Markers),
    /// Reports that committed offsets of deleted topics were deleted.
    Forgotten(SyncSender<()>),
}

/// Records that must be stable before a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitsFor {
    Nothing,
    /// The last reservation of producer ids.
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
            // Determined by the contents of the response.
            RequestKind::OffsetFetch(_) => false,
            RequestKind::TxnOffsetCommit(it) => {
                it.topics.iter().any(|it| is_on_disk(topics, &it.name))
            }
            RequestKind::AddPartitionsToTxn(it) => {
                it.v3_and_below_topics.iter().any(|it| is_on_disk(topics, &it.name))
            }
            // Members join again if their group was lost.
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

    /// Same, for the admission of records.
    pub(super) fn of_write(write: &Write, topics: &Topics) -> Self {
        Self::of_added(Some(&write.participants), std::iter::empty(), topics)
    }

    /// Same, for additions to a transaction, and for a group whose offsets are added. If only the
    /// group was lost in a power failure, the transaction would reject these offsets.
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

    /// Same, for the end of a transaction, after which its producer may get another id.
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
    /// Returns whether the response contains offsets of topics on disk.
    pub(super) fn shows_offsets_on_disk(&self, topics: &Topics) -> bool {
        let Self::Respond(_, ResponseKind::OffsetFetch(shown)) = self else { return false };
        let of_groups = shown.groups.iter().flat_map(|it| &it.topics).map(|it| &it.name);
        let mut names = shown.topics.iter().map(|it| &it.name).chain(of_groups);
        names.any(|name| is_on_disk(topics, name))
    }
}

/// Returns the transactional id of a request that adds something to a transaction.
pub(super) fn id_of_part(request: &RequestKind) -> Option<&TransactionalId> {
    match request {
        RequestKind::AddPartitionsToTxn(it) => Some(&it.v3_and_below_transactional_id),
        RequestKind::AddOffsetsToTxn(it) => Some(&it.transactional_id),
        RequestKind::TxnOffsetCommit(it) => Some(&it.transactional_id),
        _ => None,
    }
}

/// Returns whether a transaction writes to a topic on disk, or commits its offsets.
fn has_topic_on_disk<'a>(
    participants: Option<&'a Participants>,
    offsets: impl Iterator<Item = &'a StrBytes>,
    topics: &Topics,
) -> bool {
    let written = participants.into_iter().flat_map(|it| it.topics.keys().map(|it| &it.0));
    written.chain(offsets).any(|name| is_on_disk(topics, name))
}

/// Returns whether a topic is on disk. A topic that is not served now may be.
fn is_on_disk(topics: &Topics, name: &str) -> bool {
    match topics.find(name) {
        Found::Served(topic) => topic.waits_for_disk(),
        Found::NotServed => true,
        Found::Gone => false,
    }
}
