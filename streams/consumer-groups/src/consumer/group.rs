//! State of a consumer group, and queries of it.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::error::ResponseError;
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::classic::{Protocol, protocols_bytes};
use crate::effect::CallContext;
use crate::options::ENTRY_BYTES;
use crate::subscriptions::{Subscriptions, compile};
use crate::topics::Viewer;

/// Epoch in the heartbeat of a joining member.
pub(crate) const JOIN_EPOCH: i32 = 0;

/// Epoch in the heartbeat of a leaving member.
pub(crate) const LEAVE_EPOCH: i32 = -1;

/// Epoch in the heartbeat of a static member that leaves temporarily.
pub(crate) const STATIC_LEAVE_EPOCH: i32 = -2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Partition {
    pub(crate) topic: Uuid,
    pub(crate) index: i32,
}

pub(crate) type Partitions = BTreeSet<Partition>;

/// Groups partitions by topic, as for messages and records.
pub(crate) fn by_topic(partitions: &Partitions) -> BTreeMap<Uuid, Vec<i32>> {
    let mut topics: BTreeMap<Uuid, Vec<i32>> = BTreeMap::new();
    for partition in partitions {
        topics.entry(partition.topic).or_default().push(partition.index);
    }
    topics
}

/// Metadata of a member from its heartbeats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) instance: Option<StrBytes>,
    pub(crate) rack: Option<StrBytes>,
    pub(crate) client_id: StrBytes,
    pub(crate) host: StrBytes,
    pub(crate) principal: StrBytes,
    pub(crate) rebalance_timeout_ms: i32,
    pub(crate) names: BTreeSet<StrBytes>,
    pub(crate) pattern: Option<StrBytes>,
    pub(crate) assignor: Option<StrBytes>,
}

impl Profile {
    pub(crate) fn bytes(&self) -> usize {
        let texts = [&self.instance, &self.rack, &self.pattern, &self.assignor];
        let texts: usize = texts.into_iter().flatten().map(|it| it.len()).sum();
        let names: usize = self.names.iter().map(|it| ENTRY_BYTES + it.len()).sum();
        let caller = self.client_id.len() + self.host.len() + self.principal.len();
        ENTRY_BYTES + texts + names + caller
    }

    pub(crate) fn viewer(&self) -> Viewer<'_> {
        Viewer { principal: &self.principal, host: &self.host }
    }

    /// Returns whether both have the same subscription and assignor.
    pub(crate) fn subscribes_as(&self, other: &Self) -> bool {
        self.names == other.names
            && self.viewer() == other.viewer()
            && self.pattern == other.pattern
            && self.assignor == other.assignor
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Member {
    pub(crate) profile: Profile,
    pub(crate) epoch: i32,
    /// Previous epoch, for a client that missed a reply.
    pub(crate) previous_epoch: i32,
    /// Current assignment.
    pub(crate) assigned: Partitions,
    /// Partitions to revoke. The member owns them until it confirms the revocation.
    pub(crate) revoking: Partitions,
    /// The member is removed then.
    pub(crate) session_until_ms: i64,
    /// The member is removed then, unless it has revoked its partitions.
    pub(crate) revoke_until_ms: Option<i64>,
    /// State of a member of the classic protocol.
    pub(crate) classic: Option<ClassicTerms>,
    /// A classic member is removed then, unless it has sent JoinGroup or SyncGroup.
    pub(crate) owes_until_ms: Option<i64>,
}

impl Member {
    /// Restarts the session.
    pub(crate) fn refresh(&mut self, context: &CallContext<'_>) {
        let timeout_ms = context.options.consumer_session_timeout_ms;
        self.begin_session(timeout_ms, context.now_ms);
    }

    /// Restarts the session, with `timeout_ms` unless the member has its own timeout.
    pub(super) fn begin_session(&mut self, timeout_ms: i32, now_ms: i64) {
        let own_ms = self.classic.as_ref().map(|it| it.session_timeout_ms);
        self.session_until_ms = now_ms + i64::from(own_ms.unwrap_or(timeout_ms));
    }

    /// Returns when the member is removed.
    pub(super) fn deadline_ms(&self) -> i64 {
        let others = self.revoke_until_ms.into_iter().chain(self.owes_until_ms);
        others.fold(self.session_until_ms, i64::min)
    }
}

/// Classic member's session timeout and protocols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClassicTerms {
    pub(crate) session_timeout_ms: i32,
    pub(crate) protocols: Vec<Protocol>,
}

impl ClassicTerms {
    pub(crate) fn bytes(&self) -> usize {
        protocols_bytes(&self.protocols)
    }
}

#[derive(Debug)]
pub(crate) struct ConsumerGroup {
    pub(crate) id: StrBytes,
    /// Group epoch: incremented with every change that requires a new assignment.
    pub(crate) epoch: i32,
    /// Epoch of the target assignment.
    pub(crate) assignment_epoch: i32,
    /// Time at which a member last joined or left.
    pub(crate) since_ms: i64,
    /// Hash of the subscribed topics and their sizes, as used for the targets.
    pub(crate) shapes_hash: u64,
    /// Version of the topics that was last examined.
    pub(crate) topics_version: Option<u64>,
    /// Assignor of the targets.
    pub(crate) assignor: StrBytes,
    pub(crate) members: BTreeMap<StrBytes, Member>,
    pub(crate) targets: BTreeMap<StrBytes, Partitions>,
    /// Member id of each static instance.
    pub(crate) instances: BTreeMap<StrBytes, StrBytes>,
    /// Member to which each partition is assigned, or which must still revoke it.
    pub(crate) owners: BTreeMap<Partition, StrBytes>,
    /// Topic names that match each pattern.
    pub(crate) matches: BTreeMap<StrBytes, BTreeSet<StrBytes>>,
    /// True if the group is in the state log.
    pub(crate) is_stored: bool,
}

impl ConsumerGroup {
    pub(crate) fn new(id: StrBytes, epoch: i32, now_ms: i64) -> Self {
        Self {
            id,
            epoch,
            assignment_epoch: epoch,
            since_ms: now_ms,
            shapes_hash: 0,
            topics_version: None,
            assignor: StrBytes::default(),
            members: BTreeMap::new(),
            targets: BTreeMap::new(),
            instances: BTreeMap::new(),
            owners: BTreeMap::new(),
            matches: BTreeMap::new(),
            is_stored: false,
        }
    }

    /// Returns Kafka's name of the state.
    pub(crate) fn state_name(&self) -> &'static str {
        if self.members.is_empty() {
            "Empty"
        } else if self.epoch > self.assignment_epoch {
            "Assigning"
        } else if self.members.keys().all(|id| self.is_settled(id)) {
            "Stable"
        } else {
            "Reconciling"
        }
    }

    /// Returns whether the member has its target assignment in the current epoch.
    pub(crate) fn is_settled(&self, member_id: &StrBytes) -> bool {
        let Some(member) = self.members.get(member_id) else { return false };
        let target = self.targets.get(member_id);
        member.epoch == self.assignment_epoch
            && member.revoking.is_empty()
            && target.map_or(member.assigned.is_empty(), |it| *it == member.assigned)
    }

    /// Returns the size of the members' data.
    pub(crate) fn bytes(&self) -> usize {
        let terms = |it: &Member| it.classic.as_ref().map_or(0, ClassicTerms::bytes);
        self.members.iter().map(|(id, it)| id.len() + it.profile.bytes() + terms(it)).sum()
    }

    /// Returns the size of the topic names in a member's subscription.
    pub(crate) fn name_bytes(&self, member_id: &StrBytes) -> usize {
        let names = self.members.get(member_id).into_iter().flat_map(|it| &it.profile.names);
        names.map(|it| it.len()).sum()
    }

    /// Returns the approximate memory usage.
    pub(crate) fn footprint(&self) -> usize {
        let targets: usize = self.targets.values().map(BTreeSet::len).sum();
        let matches: usize = self.matches.values().flatten().map(|it| it.len() + 32).sum();
        let partitions = targets + 3 * self.owners.len();
        self.bytes() + matches + partitions * size_of::<Partition>()
    }

    pub(crate) fn subscriptions(&self) -> Subscriptions {
        let profiles = self.members.values().map(|it| &it.profile);
        let patterns: BTreeSet<&StrBytes> =
            profiles.clone().filter_map(|it| it.pattern.as_ref()).collect();
        Subscriptions {
            names: profiles.flat_map(|it| it.names.iter().cloned()).collect(),
            patterns: patterns.into_iter().filter_map(|it| compile(it).ok()).collect(),
        }
    }

    /// Checks whether the member may commit or fetch offsets (Kafka:
    /// `ConsumerGroup.validateOffsetCommit`). No member has a negative epoch.
    pub(crate) fn check_epoch(
        &self,
        member_id: &StrBytes,
        epoch: i32,
    ) -> Result<(), ResponseError> {
        let member = self.members.get(member_id).ok_or(ResponseError::UnknownMemberId)?;
        match epoch >= 0 && member.epoch == epoch {
            true => Ok(()),
            false if member.classic.is_some() => Err(ResponseError::IllegalGeneration),
            false => Err(ResponseError::StaleMemberEpoch),
        }
    }

    /// Returns the next deadline of the group.
    pub(crate) fn next_deadline_ms(&self) -> Option<i64> {
        self.members.values().map(Member::deadline_ms).min()
    }
}
