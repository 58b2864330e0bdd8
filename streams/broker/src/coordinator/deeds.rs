//! Acts of the coordinator once records of its state are stable, and what waits for that.
//!
//! The state is kept as well as the best topic. What speaks of topics that are kept in memory alone
//! is worth no more than these, and is done as soon as its records are in the log: so it waits for
//! no disk. All else is done when the flush behind it has ended.

use std::sync::mpsc::SyncSender;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{RequestKind, ResponseKind, TopicName};
use transactions::Markers;

use crate::topics::Topics;

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
    pub(super) fn of(request: &RequestKind, topics: &Topics) -> Self {
        let is_of_disks = match request {
            RequestKind::OffsetCommit(it) => {
                it.topics.iter().any(|it| is_on_disk(topics, &it.name))
            }
            // What the answer shows says that.
            RequestKind::OffsetFetch(_) => false,
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
            RequestKind::InitProducerId(it) if it.transactional_id.is_none() => {
                return Self::ProducerIds;
            }
            _ => true,
        };
        if is_of_disks { Self::Everything } else { Self::Nothing }
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

fn is_on_disk(topics: &Topics, name: &TopicName) -> bool {
    topics.by_name(name).is_some_and(|topic| topic.waits_for_disk())
}
