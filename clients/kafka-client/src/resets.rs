//! Offset resets of groups without members.

use std::collections::BTreeSet;

use kafka_protocol::ResponseError;

use crate::client::Client;
use crate::error::ClientError;
use crate::fetch::Isolation;
use crate::groups::CommittedOffset;
use crate::specs::OffsetSpec;

/// Change of a group's committed offset in a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetMove {
    pub topic: String,
    pub partition: i32,
    /// `None` if the group has no committed offset there.
    pub from: Option<i64>,
    pub to: i64,
}

impl Client {
    /// Computes the changes that reset a group to `spec` in `topics`, or in all topics with
    /// committed offsets if `topics` is empty. Changes nothing.
    pub async fn offset_moves(
        &self,
        group: &str,
        spec: OffsetSpec,
        topics: &[String],
    ) -> Result<Vec<OffsetMove>, ClientError> {
        let committed = self.group_offsets(group).await?;
        let topics: BTreeSet<&str> = match topics.is_empty() {
            true => committed.iter().map(|it| it.topic.as_str()).collect(),
            false => topics.iter().map(String::as_str).collect(),
        };
        let mut moves = Vec::new();
        for topic in topics {
            let extents = self.extents(topic, Isolation::ReadUncommitted).await?;
            for (partition, to) in self.offsets_of_spec(topic, spec, &extents).await? {
                let is_it = |it: &&CommittedOffset| it.topic == topic && it.partition == partition;
                let from = committed.iter().find(is_it).map(|it| it.offset);
                moves.push(OffsetMove { topic: topic.to_owned(), partition, from, to });
            }
        }
        Ok(moves)
    }

    /// Applies offset changes. Fails if the group has members, see [`ClientError::is_of_members`].
    pub async fn move_group_offsets(
        &self,
        group: &str,
        moves: &[OffsetMove],
    ) -> Result<(), ClientError> {
        let offset = |it: &OffsetMove| CommittedOffset {
            topic: it.topic.clone(),
            partition: it.partition,
            offset: it.to,
        };
        let offsets: Vec<_> = moves.iter().map(offset).collect();
        self.set_group_offsets(group, &offsets).await
    }
}

impl ClientError {
    /// Returns whether the broker rejected the request because the group has members.
    pub fn is_of_members(&self) -> bool {
        matches!(
            self.refusal(),
            Some(
                ResponseError::UnknownMemberId
                    | ResponseError::IllegalGeneration
                    | ResponseError::RebalanceInProgress
                    | ResponseError::StaleMemberEpoch
                    | ResponseError::NonEmptyGroup
            )
        )
    }
}
