//! Read-only view of groups for the owner's metrics and lists.

use kafka_protocol::protocol::StrBytes;

use crate::groups::{Groups, Kind};

/// A group and its committed offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    pub id: StrBytes,
    /// Name of the state, as in `ListGroups`.
    pub state: &'static str,
    /// `classic` or `consumer`.
    pub kind: &'static str,
    pub member_count: usize,
    /// Ordered by topic and partition, without pending ones of transactions.
    pub offsets: Vec<CommittedOffset>,
}

/// Committed offset of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    pub topic: StrBytes,
    pub partition: i32,
    pub offset: i64,
}

impl Groups {
    /// Iterates over all groups by name, including those with only offsets.
    pub fn views(&self) -> impl Iterator<Item = GroupView> {
        self.groups.iter().map(|(id, group)| {
            let offsets = group.offsets.committed().map(|(place, offset)| CommittedOffset {
                topic: place.topic.clone(),
                partition: place.partition,
                offset: offset.offset,
            });
            GroupView {
                id: id.clone(),
                state: group.kind.state_name(),
                kind: group.kind.type_name(),
                member_count: match &group.kind {
                    Kind::Classic(group) => group.members.len(),
                    Kind::Consumer(group) => group.members.len(),
                },
                offsets: offsets.collect(),
            }
        })
    }
}
