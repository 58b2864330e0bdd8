//! Reconciliation of one member: its steps from the current to the target assignment.

use kafka_protocol::protocol::StrBytes;

use super::group::{ConsumerGroup, Partition, Partitions};
use crate::effect::CallContext;
use crate::topics::Topics;

impl ConsumerGroup {
    /// Computes the targets of a new epoch, and reconciles the member. Returns whether its
    /// assignment changed.
    pub(super) fn advance(
        &mut self,
        member_id: &StrBytes,
        owned: Option<&Partitions>,
        topics: &dyn Topics,
        context: &mut CallContext<'_>,
    ) -> bool {
        if self.epoch > self.assignment_epoch {
            self.assign(topics, context);
        }
        let is_changed = self.reconcile(member_id, owned, context.now_ms);
        if is_changed {
            self.persist_member(member_id, context);
        }
        is_changed
    }

    /// Performs one step of reconciliation. `owned` is the client's report of its partitions, if it
    /// sent one. Returns whether anything changed.
    fn reconcile(&mut self, member_id: &StrBytes, owned: Option<&Partitions>, now_ms: i64) -> bool {
        let gave_up = |partitions: &Partitions| owned.is_some_and(|it| it.is_disjoint(partitions));
        if self.is_settled(member_id) {
            return false;
        }
        let epoch = self.assignment_epoch;
        let target = self.targets.get(member_id).cloned().unwrap_or_default();
        let member = self.members.get_mut(member_id).expect("the caller looked it up");
        let revoking = member.revoking.clone();
        if !revoking.is_empty() && !gave_up(&revoking) {
            return false;
        }
        let lost: Partitions = member.assigned.difference(&target).copied().collect();
        member.assigned.retain(|it| target.contains(it));
        member.revoking.clear();
        member.revoke_until_ms = None;
        self.release(member_id, &revoking);
        let member = self.members.get_mut(member_id).expect("the caller looked it up");
        if !lost.is_empty() && !gave_up(&lost) {
            // The member learns the new epoch after it has revoked these.
            let timeout_ms = i64::from(member.profile.rebalance_timeout_ms);
            member.revoke_until_ms = Some(now_ms + timeout_ms);
            member.revoking = lost;
            return true;
        }
        self.release(member_id, &lost);
        let is_free = |it: &Partition| !self.owners.contains_key(it);
        let gained: Vec<Partition> = target.iter().copied().filter(is_free).collect();
        for partition in &gained {
            self.owners.insert(*partition, member_id.clone());
        }
        let member = self.members.get_mut(member_id).expect("the caller looked it up");
        let is_next_epoch = member.epoch != epoch;
        if is_next_epoch {
            member.previous_epoch = member.epoch;
            member.epoch = epoch;
        }
        let changed =
            is_next_epoch || !gained.is_empty() || !lost.is_empty() || !revoking.is_empty();
        member.assigned.extend(gained);
        changed
    }

    /// Frees partitions that the member owned.
    pub(super) fn release(&mut self, member_id: &StrBytes, partitions: &Partitions) {
        for partition in partitions {
            if self.owners.get(partition) == Some(member_id) {
                self.owners.remove(partition);
            }
        }
    }
}
