//! State transitions of a classic group: rebalances, removals of members, deadlines.

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::SyncGroupResponse;
use kafka_protocol::protocol::StrBytes;

use super::group::{ClassicGroup, InitialDelay, JoinTimer, Member, Phase, refused};
use crate::effect::{CallContext, Waiting};

impl ClassicGroup {
    pub(crate) fn enter(&mut self, phase: Phase, unix_ms: i64) {
        self.phase = phase;
        self.since_ms = unix_ms;
    }

    /// Starts a rebalance, or completes the join phase if all members have joined.
    pub(super) fn rebalance_or_complete(&mut self, context: &mut CallContext<'_>) {
        match self.phase {
            Phase::PreparingRebalance => self.complete_if_all_joined(context),
            _ => self.prepare_rebalance(context),
        }
    }

    pub(super) fn complete_if_all_joined(&mut self, context: &mut CallContext<'_>) {
        let is_initial = self.join_timer.is_some_and(|it| it.initial.is_some());
        let is_joining = self.phase == Phase::PreparingRebalance && !is_initial;
        if is_joining && self.has_all_joined() {
            self.complete_join(context);
        }
    }

    pub(super) fn prepare_rebalance(&mut self, context: &mut CallContext<'_>) {
        let is_initial = self.phase == Phase::Empty;
        self.refuse_syncs(context);
        self.enter(Phase::PreparingRebalance, context.unix_ms);
        let rebalance_ms = self.rebalance_timeout_ms();
        let delay_ms = i64::from(context.options.initial_rebalance_delay_ms);
        if is_initial && delay_ms > 0 {
            let remaining_ms = (rebalance_ms - delay_ms).max(0);
            let initial = InitialDelay { remaining_ms, member_came: false };
            self.join_timer =
                Some(JoinTimer { at_ms: context.now_ms + delay_ms, initial: Some(initial) });
        } else if is_initial || self.has_all_joined() {
            self.complete_join(context);
        } else {
            self.await_joins(context.now_ms);
        }
    }

    /// Starts a rebalance of members converted from a consumer group, once they are stored.
    pub(crate) fn begin_again(&mut self, context: &mut CallContext<'_>) {
        self.protocol = self.select_protocol();
        self.enter(Phase::PreparingRebalance, context.unix_ms);
        self.persist_unassigned(context);
        self.await_joins(context.now_ms);
    }

    fn await_joins(&mut self, now_ms: i64) {
        let at_ms = now_ms.saturating_add(self.rebalance_timeout_ms());
        self.join_timer = Some(JoinTimer { at_ms, initial: None });
    }

    /// Rejects waiting SyncGroup requests, so that the members join again.
    pub(crate) fn refuse_syncs(&mut self, context: &mut CallContext<'_>) {
        self.sync_until_ms = None;
        for member in self.members.values_mut() {
            member.owes_sync = false;
            if let Some(waiting) = member.sync.take() {
                member.refresh(context.now_ms);
                refuse_sync(waiting, ResponseError::RebalanceInProgress, context);
            }
        }
    }

    /// Ends the join phase: removes absent members, and starts the next generation.
    fn complete_join(&mut self, context: &mut CallContext<'_>) {
        self.join_timer = None;
        for member in self.members.values_mut() {
            member.former_epoch = None;
        }
        let absent = |member: &Member| member.join.is_none() && member.instance.is_none();
        self.members.retain(|_, member| !absent(member));
        if !self.members.is_empty() && !self.elect_leader() {
            // Only static members are left, and none has joined. They are removed when their
            // sessions expire.
            let at_ms = context.now_ms + self.rebalance_timeout_ms().max(1);
            self.join_timer = Some(JoinTimer { at_ms, initial: None });
            return;
        }
        self.generation_max = self.generation_max.checked_add(1).unwrap_or(1);
        self.generation = self.generation_max;
        if self.members.is_empty() {
            self.leader = None;
            self.protocol = None;
            self.enter(Phase::Empty, context.unix_ms);
            self.persist(context);
            return;
        }
        self.protocol = self.select_protocol();
        self.enter(Phase::CompletingRebalance, context.unix_ms);
        self.persist_generation(context);
        self.sync_until_ms = Some(context.now_ms + self.rebalance_timeout_ms());
        self.answer_joins(context);
    }

    fn answer_joins(&mut self, context: &mut CallContext<'_>) {
        let ids: Vec<StrBytes> = self.members.keys().cloned().collect();
        for id in ids {
            let member = self.members.get_mut(&id).expect("the id is of a member");
            // Absent static members remain in the group until their sessions expire.
            let Some(waiting) = member.join.take() else { continue };
            member.owes_sync = true;
            member.is_new = false;
            member.refresh(context.now_ms);
            context.reply(waiting.ticket, self.joined(&id, waiting.api_version));
        }
    }

    /// Elects a leader. The current one remains if it has joined. Returns `false` if nobody has
    /// joined.
    fn elect_leader(&mut self) -> bool {
        let has_joined = |id: &StrBytes| self.members.get(id).is_some_and(|it| it.join.is_some());
        if self.leader.as_ref().is_some_and(has_joined) {
            return true;
        }
        let Some((id, _)) = self.members.iter().find(|(_, it)| it.join.is_some()) else {
            return false;
        };
        self.leader = Some(id.clone());
        true
    }

    /// Removes a member and answers its waiting requests. The caller must call `after_removal`.
    pub(super) fn remove(&mut self, member_id: &StrBytes, context: &mut CallContext<'_>) {
        let Some(member) = self.members.remove(member_id) else { return };
        let error = ResponseError::UnknownMemberId;
        if let Some(waiting) = member.join {
            context.reply(waiting.ticket, refused(error, member_id, waiting.api_version));
        }
        if let Some(waiting) = member.sync {
            refuse_sync(waiting, error, context);
        }
        if let Some(instance) = &member.instance {
            self.instances.remove(instance);
        }
        if self.is_leader(member_id) {
            self.leader = None;
        }
    }

    /// Reacts to the removal of members, or of assigned ids that never joined. The latter change no
    /// assignment, but the group no longer waits for them.
    pub(super) fn after_departures(
        &mut self,
        member_count_before: usize,
        context: &mut CallContext<'_>,
    ) {
        match self.members.len() < member_count_before {
            true => self.after_removal(context),
            false => self.complete_if_all_joined(context),
        }
    }

    fn after_removal(&mut self, context: &mut CallContext<'_>) {
        match self.phase {
            Phase::Stable | Phase::CompletingRebalance => self.prepare_rebalance(context),
            Phase::PreparingRebalance => self.complete_if_all_joined(context),
            Phase::Empty => {}
        }
    }

    /// Handles all deadlines up to `due_ms`.
    pub(crate) fn expire(&mut self, due_ms: i64, context: &mut CallContext<'_>) {
        let count_before = self.members.len();
        self.invited.retain(|_, until_ms| *until_ms > due_ms);
        let is_dead = |member: &Member| member.expires_ms().is_some_and(|it| it <= due_ms);
        let dead = self.members.iter().filter(|(_, it)| is_dead(it)).map(|(id, _)| id.clone());
        for id in dead.collect::<Vec<_>>() {
            self.remove(&id, context);
        }
        self.after_departures(count_before, context);
        self.expire_join(due_ms, context);
        self.expire_sync(due_ms, context);
    }

    fn expire_join(&mut self, due_ms: i64, context: &mut CallContext<'_>) {
        let Some(timer) = self.join_timer.filter(|it| it.at_ms <= due_ms) else { return };
        match timer.initial {
            Some(InitialDelay { remaining_ms, member_came: true }) if remaining_ms > 0 => {
                let delay_ms =
                    i64::from(context.options.initial_rebalance_delay_ms).min(remaining_ms);
                let remaining_ms = remaining_ms - delay_ms;
                let initial = InitialDelay { remaining_ms, member_came: false };
                self.join_timer =
                    Some(JoinTimer { at_ms: context.now_ms + delay_ms, initial: Some(initial) });
            }
            _ => self.complete_join(context),
        }
    }

    /// Removes members that joined, but did not send SyncGroup.
    fn expire_sync(&mut self, due_ms: i64, context: &mut CallContext<'_>) {
        if self.sync_until_ms.is_none_or(|it| it > due_ms) {
            return;
        }
        self.sync_until_ms = None;
        let late = self.members.iter().filter(|(_, it)| it.owes_sync).map(|(id, _)| id.clone());
        let late: Vec<StrBytes> = late.collect();
        for id in &late {
            self.remove(id, context);
        }
        if !late.is_empty() {
            self.after_removal(context);
        }
    }

    /// Starts new sessions of all members after a restart, and a join phase if one is pending.
    pub(crate) fn revive(&mut self, now_ms: i64) {
        for member in self.members.values_mut() {
            member.refresh(now_ms);
        }
        if self.phase == Phase::PreparingRebalance {
            self.await_joins(now_ms);
        }
    }
}

pub(super) fn refuse_sync(waiting: Waiting, error: ResponseError, context: &mut CallContext<'_>) {
    context.reply(waiting.ticket, SyncGroupResponse::default().with_error_code(error.code()));
}
