//! Work without a request: deadlines, expiry of offsets, and loading of the state log.

use std::ops::Bound;

use kafka_protocol::protocol::StrBytes;
use shares::Owner;

use crate::classic::{ClassicGroup, Phase};
use crate::consumer::{ConsumerGroup, KIND_CONSUMER, KIND_CONVERTED, decode_member, decode_target};
use crate::effect::{CallContext, Effect, Record};
use crate::groups::{Group, Groups, Kind};
use crate::keys::Key;
use crate::offsets::{self, Offset, Place};
use crate::topics::Topics;

/// Time of a tick, by the clock of [`Caller::now_ms`](crate::Caller::now_ms).
#[derive(Clone, Copy, Debug)]
pub struct TickTime {
    pub now_ms: i64,
    /// All requests received up to this time have been passed in.
    pub heard_ms: i64,
}

/// Number of groups whose offsets one tick examines.
const SWEPT_GROUP_COUNT: usize = 256;

/// Reason for which a record of the state log cannot be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadErrorKind {
    /// The key is damaged, or of a later version.
    Key,
    /// The value does not match its key.
    Value,
}

/// A malformed record of the state log.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot load a record of the group coordinator with a key of {key_bytes} bytes: invalid \
     {kind:?}; it is corrupt, or of a later version"
)]
pub struct LoadError {
    pub kind: LoadErrorKind,
    pub key_bytes: usize,
}

impl Groups {
    /// Returns the earliest time, by the owner's clock, at which `tick` has work.
    pub fn next_deadline_ms(&self) -> Option<i64> {
        let wake_ms = self.wakes.first().map(|(at_ms, _)| *at_ms);
        let sweep_ms = Some(self.sweep.next_ms).filter(|it| *it < i64::MAX);
        wake_ms.into_iter().chain(sweep_ms).min()
    }

    /// Handles deadlines: sessions, rebalances, offsets of empty groups. Only deadlines up to
    /// `heard_ms` are handled, so that no member is removed whose heartbeat has already been
    /// received.
    pub fn tick(&mut self, time: TickTime, topics: &dyn Topics, out: &mut Vec<Effect>) {
        let TickTime { now_ms, heard_ms } = time;
        let due_ms = now_ms.min(heard_ms);
        let mut context = Self::context(self.options, self.host_ahead_ms, now_ms, out);
        let mut due = Vec::new();
        while let Some(first) = self.wakes.first().filter(|(at_ms, _)| *at_ms <= due_ms).cloned() {
            self.wakes.remove(&first);
            self.woke(&first.1);
            due.push(first.1);
        }
        for id in due {
            if let Some(group) = self.groups.get_mut(&id) {
                match &mut group.kind {
                    Kind::Classic(group) => group.expire(due_ms, &mut context),
                    Kind::Consumer(group) => group.expire(due_ms, &mut context),
                }
                group.downgrade(topics, &mut context);
            }
            self.settle(&id);
        }
        if self.sweep.next_ms <= now_ms {
            self.sweep_offsets(&mut context);
        }
    }

    fn sweep_offsets(&mut self, context: &mut CallContext<'_>) {
        let start = self.sweep.after.take().map_or(Bound::Unbounded, Bound::Excluded);
        let ids: Vec<StrBytes> = self
            .groups
            .range((start, Bound::Unbounded))
            .take(SWEPT_GROUP_COUNT)
            .map(|(id, _)| id.clone())
            .collect();
        for id in &ids {
            self.expire_offsets(id, context);
        }
        if ids.len() == SWEPT_GROUP_COUNT {
            self.sweep.after = ids.last().cloned();
        } else {
            self.sweep.next_ms = context.now_ms + self.options.offsets_check_interval_ms.max(1);
        }
    }

    fn expire_offsets(&mut self, id: &StrBytes, context: &mut CallContext<'_>) {
        let Some(group) = self.groups.get_mut(id) else { return };
        let retention_ms = context.options.offsets_retention_ms;
        for place in group.expired(context.unix_ms, retention_ms) {
            group.offsets.remove(&place);
            context.persist(offsets::key(id, &place).gone());
        }
        if group.kind.is_empty() && group.offsets.is_empty() {
            self.delete_group(id, context);
        } else {
            self.settle(id);
        }
    }

    /// Loads a record of the state log. Records must be loaded in the log's order, before `start`.
    pub fn load(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), LoadError> {
        let error = |kind| LoadError { kind, key_bytes: key.len() };
        let read = Key::decode(key).ok_or(error(LoadErrorKind::Key))?;
        match value {
            Some(value) => self.take_over(read, value).ok_or(error(LoadErrorKind::Value)),
            None => {
                self.take_out(&read);
                Ok(())
            }
        }
    }

    fn take_over(&mut self, key: Key, value: &[u8]) -> Option<()> {
        match key {
            Key::Group(id) => {
                if [KIND_CONSUMER, KIND_CONVERTED].contains(value.first()?) {
                    return self.loaded_consumer(&id).load(value);
                }
                let mut loaded = ClassicGroup::decode(id.clone(), value)?;
                let kind = &mut self.loaded(&id).kind;
                if let Kind::Classic(before) = kind {
                    loaded.generation_max = loaded.generation.max(before.generation_max);
                }
                *kind = Kind::Classic(loaded);
            }
            Key::Generation(id) => {
                if let Kind::Classic(group) = &mut self.loaded(&id).kind {
                    group.load_generation(value)?;
                }
            }
            Key::Member(id, member_id) => {
                let member = decode_member(value)?;
                self.loaded_consumer(&id).members.insert(member_id, member);
            }
            Key::Target(id, member_id) => {
                let target = decode_target(value)?;
                self.loaded_consumer(&id).targets.insert(member_id, target);
            }
            Key::Offset(id, topic, partition) => {
                let offset = offsets::decode(value)?;
                self.loaded(&id).offsets.commit(Place { topic, partition }, offset);
            }
            Key::Pending(id, producer_id, topic, partition) => {
                let (epoch, offset) = offsets::decode_pending(value)?;
                let place = Place { topic, partition };
                self.loaded(&id).offsets.hold(producer_id, epoch, place, offset);
                self.transactions.entry(producer_id).or_default().insert(id);
            }
        }
        Some(())
    }

    fn take_out(&mut self, key: &Key) {
        match key {
            Key::Group(id) => {
                let Some(group) = self.groups.get_mut(id) else { return };
                group.kind = Kind::Classic(ClassicGroup::new(id.clone(), 0, 0));
            }
            // A consumer group has no such record any more, and a classic group without one is
            // being deleted.
            Key::Generation(_) => {}
            Key::Member(id, member_id) => {
                let Some(group) = self.groups.get_mut(id) else { return };
                if let Kind::Consumer(group) = &mut group.kind {
                    group.members.remove(member_id);
                }
            }
            Key::Target(id, member_id) => {
                let Some(group) = self.groups.get_mut(id) else { return };
                if let Kind::Consumer(group) = &mut group.kind {
                    group.targets.remove(member_id);
                }
            }
            Key::Offset(id, topic, partition) => {
                let Some(group) = self.groups.get_mut(id) else { return };
                group.offsets.remove(&Place { topic: topic.clone(), partition: *partition });
            }
            Key::Pending(id, producer_id, topic, partition) => {
                let Some(group) = self.groups.get_mut(id) else { return };
                let place = Place { topic: topic.clone(), partition: *partition };
                group.offsets.release(*producer_id, &place);
                if group.offsets.pending_epoch(*producer_id).is_none() {
                    self.forget_transaction(*producer_id, id);
                }
            }
        }
    }

    fn loaded(&mut self, id: &StrBytes) -> &mut Group {
        if !self.groups.contains_key(id) {
            self.counts.take(Owner::NOBODY, 1);
        }
        self.groups
            .entry(id.clone())
            .or_insert_with(|| Group::new(Kind::Classic(ClassicGroup::new(id.clone(), 0, 0))))
    }

    /// Returns the group, or creates it: members and targets may precede it in a compacted log.
    fn loaded_consumer(&mut self, id: &StrBytes) -> &mut ConsumerGroup {
        let kind = &mut self.loaded(id).kind;
        if matches!(kind, Kind::Classic(_)) {
            *kind = Kind::Consumer(ConsumerGroup::new(id.clone(), 0, 0));
        }
        match kind {
            Kind::Consumer(group) => group,
            Kind::Classic(_) => unreachable!("it was made a consumer group"),
        }
    }

    /// Starts the coordinator after loading. All members get new sessions.
    pub fn start(&mut self, now_ms: i64) {
        let ids: Vec<StrBytes> = self.groups.keys().cloned().collect();
        for id in ids {
            let group = self.groups.get_mut(&id).expect("the id is of a group");
            self.order = self.order.max(group.offsets.order_max());
            match &mut group.kind {
                Kind::Classic(group) => group.revive(now_ms),
                Kind::Consumer(group) => {
                    group.revive(self.options.consumer_session_timeout_ms, now_ms);
                }
            }
            self.settle(&id);
        }
        self.sweep.next_ms = now_ms + self.options.offsets_check_interval_ms.max(1);
    }

    /// Returns all records for a compacted state log. Loading them in this order results in the
    /// same state as loading the log of all effects so far.
    pub fn state(&self) -> impl Iterator<Item = Record> {
        self.groups.iter().flat_map(|(id, group)| {
            group.kind.records().into_iter().chain(group.offsets.records(id))
        })
    }
}

impl Group {
    /// Returns the offsets that were unused for the retention time.
    fn expired(&self, unix_ms: i64, retention_ms: i64) -> Vec<Place> {
        let subscriptions = self.kind.subscriptions();
        let is_unread = |place: &Place| !subscriptions.contains(&place.topic);
        let unused_since_ms = |place: &Place, offset: &Offset| match &self.kind {
            Kind::Classic(group) if group.phase == Phase::Empty => {
                // The offsets of a group that never had members expire by their commit times only.
                let is_simple = group.protocol_type.is_none();
                Some(if is_simple { 0 } else { group.since_ms }.max(offset.commit_ms))
            }
            Kind::Classic(group) => {
                let is_settled = group.is_of_consumers() && group.phase == Phase::Stable;
                (is_settled && is_unread(place)).then_some(offset.commit_ms)
            }
            Kind::Consumer(group) if group.members.is_empty() => {
                Some(group.since_ms.max(offset.commit_ms))
            }
            Kind::Consumer(_) => is_unread(place).then_some(offset.commit_ms),
        };
        let is_expired = |place: &Place, offset: &Offset| {
            let Some(since_ms) = unused_since_ms(place, offset) else { return false };
            let until_ms = offset.expire_ms.unwrap_or(since_ms.saturating_add(retention_ms));
            until_ms <= unix_ms && !self.offsets.has_pending(place)
        };
        let expired = self.offsets.committed().filter(|(place, offset)| is_expired(place, offset));
        expired.map(|(place, _)| place.clone()).collect()
    }
}
