//! Groups as their owner sees them, for metrics and lists of its own.

use kafka_protocol::protocol::StrBytes;

use crate::groups::{Groups, Kind};

/// A group and what it committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    pub id: StrBytes,
    /// State by its name in `ListGroups`.
    pub state: &'static str,
    /// `classic` or `consumer`.
    pub kind: &'static str,
    pub member_count: usize,
    /// By topic and partition; without those of open transactions.
    pub offsets: Vec<CommittedOffset>,
}

/// The offset that a group goes on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    pub topic: StrBytes,
    pub partition: i32,
    pub offset: i64,
}

impl Groups {
    /// All groups by name, those with nothing but offsets included. Changes nothing.
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
