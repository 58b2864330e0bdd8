//! The table of groups: looking them up, making and forgetting them, their deadlines and sizes.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::error::ResponseError;
use kafka_protocol::protocol::StrBytes;
use random::Random;
use shares::{Owner, Shares};
use uuid::Uuid;

use crate::classic::ClassicGroup;
use crate::consumer::ConsumerGroup;
use crate::conversion::downgraded;
use crate::effect::{CallContext, Caller, Effect, Record};
use crate::fields::own;
use crate::keys::Key;
use crate::offsets::Offsets;
use crate::options::{ENTRY_BYTES, Options};
use crate::subscriptions::Subscriptions;
use crate::topics::Topics;

/// The group coordinator. See the crate's documentation for what its effects promise.
#[derive(Debug)]
pub struct Groups {
    pub(crate) options: Options,
    pub(crate) groups: BTreeMap<StrBytes, Group>,
    /// When a group is to be looked at, at the latest.
    pub(crate) wakes: BTreeSet<(i64, StrBytes)>,
    /// The groups for which each producer's open transaction holds offsets.
    pub(crate) transactions: BTreeMap<i64, BTreeSet<StrBytes>>,
    /// The number of the last commit.
    pub(crate) order: u64,
    pub(crate) sweep: Sweep,
    pub(crate) host_ahead_ms: i64,
    /// Number of groups, by who made them or first used them since the start.
    pub(crate) counts: Shares,
    bytes: Shares,
    ids: Random,
}

/// The walk over all groups for offsets that nobody needs any more.
#[derive(Debug)]
pub(crate) struct Sweep {
    pub(crate) next_ms: i64,
    /// The last group of a walk that is going on.
    pub(crate) after: Option<StrBytes>,
}

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) kind: Kind,
    pub(crate) offsets: Offsets,
    pub(crate) owner: Owner,
    wake_ms: Option<i64>,
    bytes: usize,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Classic(ClassicGroup),
    Consumer(ConsumerGroup),
}

impl Kind {
    /// Returns whether no member is there.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Classic(group) => group.is_empty(),
            Self::Consumer(group) => group.members.is_empty(),
        }
    }

    fn is_stored(&self) -> bool {
        match self {
            Self::Classic(group) => group.durable.is_some(),
            Self::Consumer(group) => group.is_stored,
        }
    }

    fn footprint(&self) -> usize {
        match self {
            Self::Classic(group) => group.footprint(),
            Self::Consumer(group) => group.footprint(),
        }
    }

    fn next_deadline_ms(&self) -> Option<i64> {
        match self {
            Self::Classic(group) => group.next_deadline_ms(),
            Self::Consumer(group) => group.next_deadline_ms(),
        }
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        match self {
            Self::Classic(group) => group.records(),
            Self::Consumer(group) => group.records(),
        }
    }

    fn gone(&self) -> Vec<Record> {
        match self {
            Self::Classic(group) => group.gone(),
            Self::Consumer(group) => vec![Key::Group(group.id.clone()).gone()],
        }
    }

    pub(crate) fn subscriptions(&self) -> Subscriptions {
        match self {
            Self::Classic(group) => group.subscriptions(),
            Self::Consumer(group) => group.subscriptions(),
        }
    }
}

impl Group {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind, offsets: Offsets::default(), owner: Owner::NOBODY, wake_ms: None, bytes: 0 }
    }

    /// Makes a consumer group whose members all speak the classic protocol a classic group, when
    /// others have gone and the policy has that.
    pub(crate) fn downgrade(&mut self, topics: &dyn Topics, context: &mut CallContext<'_>) {
        if let Kind::Consumer(group) = &self.kind
            && context.options.migration_policy.has_downgrades()
            && group.has_only_classic()
        {
            self.kind = Kind::Classic(downgraded(group, None, topics, context));
        }
    }
}

impl Groups {
    /// A coordinator without groups. `seed` differs from one start to the next: ids of members
    /// are drawn from it, which tell members apart and are no secrets.
    pub fn new(options: Options, seed: u64) -> Self {
        Self {
            options,
            groups: BTreeMap::new(),
            wakes: BTreeSet::new(),
            transactions: BTreeMap::new(),
            order: 0,
            sweep: Sweep { next_ms: i64::MAX, after: None },
            host_ahead_ms: 0,
            counts: Shares::default(),
            bytes: Shares::default(),
            ids: Random::new(seed),
        }
    }

    /// Number of groups, those with nothing but offsets included.
    pub fn count(&self) -> usize {
        self.groups.len()
    }

    /// Memory that all groups take, about: names, members and offsets.
    pub fn bytes(&self) -> usize {
        self.bytes.total()
    }

    /// Says by how much the clock of the host is ahead of the owner's, which nobody sets. What is
    /// kept over restarts has the host's time.
    pub fn set_host_ahead(&mut self, ahead_ms: i64) {
        self.host_ahead_ms = ahead_ms;
    }

    pub(crate) fn context<'a>(
        options: Options,
        host_ahead_ms: i64,
        now_ms: i64,
        out: &'a mut Vec<Effect>,
    ) -> CallContext<'a> {
        CallContext { now_ms, unix_ms: now_ms.saturating_add(host_ahead_ms), options, out }
    }

    pub(crate) fn fresh_uuid(&mut self) -> Uuid {
        let (high, low) = (self.ids.number(), self.ids.number());
        let bits = (u128::from(high) << 64) | u128::from(low);
        uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
    }

    /// The classic group of this id, made if there is none. One that the state log brought is from
    /// now on of whoever uses it first.
    pub(crate) fn classic_or_new(
        &mut self,
        id: &StrBytes,
        caller: &Caller<'_>,
    ) -> Result<&mut Group, ResponseError> {
        let owner = caller.owner;
        if !self.groups.contains_key(id) {
            if !self.counts.has_room(owner, 1, self.options.groups_max) {
                return Err(ResponseError::CoordinatorNotAvailable);
            }
            let bytes = ENTRY_BYTES + id.len();
            self.check_bytes(owner, bytes)?;
            let id = own(id);
            let unix_ms = caller.now_ms.saturating_add(self.host_ahead_ms);
            let kind = Kind::Classic(ClassicGroup::new(id.clone(), 0, unix_ms));
            self.groups.insert(id, Group { owner, bytes, ..Group::new(kind) });
            self.counts.take(owner, 1);
            self.bytes.take(owner, bytes);
        }
        let group = self.groups.get_mut(id).expect("it is there or was made");
        if group.owner == Owner::NOBODY {
            self.counts.give_back(group.owner, 1);
            self.bytes.give_back(group.owner, group.bytes);
            group.owner = owner;
            self.counts.take(owner, 1);
            self.bytes.take(owner, group.bytes);
        }
        Ok(group)
    }

    /// Whose a group is, or will be where there is none yet.
    pub(crate) fn owner_of(&self, id: &StrBytes, caller: &Caller<'_>) -> Owner {
        self.groups.get(id).map_or(caller.owner, |group| group.owner)
    }

    /// Returns whether groups of an owner have room for so many more bytes. For none there always
    /// is: what an owner has stays its own when others have come.
    pub(crate) fn check_bytes(&self, owner: Owner, more: usize) -> Result<(), ResponseError> {
        match more == 0 || self.bytes.has_room(owner, more, self.options.total_bytes_max) {
            true => Ok(()),
            false => Err(ResponseError::CoordinatorNotAvailable),
        }
    }

    /// Counts and arms a group anew after it changed. One that holds nothing is dropped.
    pub(crate) fn settle(&mut self, id: &StrBytes) {
        let Some(group) = self.groups.get_mut(id) else { return };
        if group.kind.is_empty() && !group.kind.is_stored() && group.offsets.is_empty() {
            self.drop_group(id);
            return;
        }
        let bytes = ENTRY_BYTES + id.len() + group.kind.footprint() + group.offsets.bytes();
        self.bytes.give_back(group.owner, group.bytes);
        self.bytes.take(group.owner, bytes);
        group.bytes = bytes;
        let next_ms = group.kind.next_deadline_ms();
        // Deadlines that moved on are found when the group is looked at.
        let Some(next_ms) = next_ms.filter(|it| group.wake_ms.is_none_or(|wake| *it < wake)) else {
            return;
        };
        let before = group.wake_ms.replace(next_ms);
        if let Some(before) = before {
            self.wakes.remove(&(before, id.clone()));
        }
        self.wakes.insert((next_ms, id.clone()));
    }

    /// Counts what a group's offsets take, of which so many bytes are counted.
    pub(crate) fn count_offsets(&mut self, id: &StrBytes, bytes_before: usize) {
        let Some(group) = self.groups.get_mut(id) else { return };
        let bytes = group.bytes - bytes_before + group.offsets.bytes();
        self.bytes.give_back(group.owner, group.bytes);
        self.bytes.take(group.owner, bytes);
        group.bytes = bytes;
    }

    /// Notes that the group's wake was taken out of the list.
    pub(crate) fn woke(&mut self, id: &StrBytes) {
        if let Some(group) = self.groups.get_mut(id) {
            group.wake_ms = None;
        }
    }

    /// Forgets a group and all its offsets, in the state log too.
    pub(crate) fn delete_group(&mut self, id: &StrBytes, context: &mut CallContext<'_>) {
        let Some(group) = self.groups.get(id) else { return };
        let records = group.offsets.gone(id).into_iter().chain(group.kind.gone());
        for record in records {
            context.persist(record);
        }
        self.drop_group(id);
    }

    fn drop_group(&mut self, id: &StrBytes) {
        let Some(group) = self.groups.remove(id) else { return };
        self.bytes.give_back(group.owner, group.bytes);
        self.counts.give_back(group.owner, 1);
        if let Some(wake_ms) = group.wake_ms {
            self.wakes.remove(&(wake_ms, id.clone()));
        }
        for producer_id in group.offsets.producers() {
            self.forget_transaction(producer_id, id);
        }
    }

    pub(crate) fn forget_transaction(&mut self, producer_id: i64, id: &StrBytes) {
        let Some(groups) = self.transactions.get_mut(&producer_id) else { return };
        groups.remove(id);
        if groups.is_empty() {
            self.transactions.remove(&producer_id);
        }
    }
}
