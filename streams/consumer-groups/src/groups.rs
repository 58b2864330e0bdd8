//! The table of groups: lookup, creation and deletion, deadlines and memory usage.

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

/// The group coordinator. See the crate's documentation for the guarantees of its effects.
#[derive(Debug)]
pub struct Groups {
    pub(crate) options: Options,
    pub(crate) groups: BTreeMap<StrBytes, Group>,
    /// Times at which groups must be examined at the latest.
    pub(crate) wakes: BTreeSet<(i64, StrBytes)>,
    /// Groups with pending offsets of each producer's open transaction.
    pub(crate) transactions: BTreeMap<i64, BTreeSet<StrBytes>>,
    /// Sequence number of the last commit.
    pub(crate) order: u64,
    pub(crate) sweep: Sweep,
    pub(crate) host_ahead_ms: i64,
    /// Number of groups, by the owner that created them or first used them since the start.
    pub(crate) counts: Shares,
    bytes: Shares,
    ids: Random,
    /// A request was refused by a limit that all groups share.
    is_refusing: bool,
}

/// Memory usage of groups, and its limits. A single owner gets at most half of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    pub group_count: usize,
    pub groups_max: usize,
    pub bytes: usize,
    pub bytes_max: usize,
    /// Group that takes most memory, and its bytes.
    pub largest: Option<(String, usize)>,
}

/// State of the periodic scan of all groups for expired offsets.
#[derive(Debug)]
pub(crate) struct Sweep {
    pub(crate) next_ms: i64,
    /// Last group examined by a scan in progress.
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
    /// Returns whether the group has no members.
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

    /// Returns the approximate size of the offsets of a group with this id, which is part of the
    /// key of each.
    pub(crate) fn offset_bytes(&self, id: &StrBytes) -> usize {
        self.offsets.bytes() + self.offsets.count() * id.len()
    }

    /// Converts a consumer group to a classic group if only classic members remain and the policy
    /// allows it.
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
    /// Creates a coordinator without groups. `seed` must differ between starts: member ids, which
    /// must be unique but are not secret, are generated from it.
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
            is_refusing: false,
        }
    }

    /// Returns the number of groups, including those with only offsets.
    pub fn count(&self) -> usize {
        self.groups.len()
    }

    /// Returns the approximate memory usage of all groups: names, members and offsets.
    pub fn bytes(&self) -> usize {
        self.bytes.total()
    }

    /// Returns what uses the memory of groups, if a request was refused for the limits of all
    /// groups since the last call. Reads all groups.
    pub fn take_refusal(&mut self) -> Option<Usage> {
        if !std::mem::take(&mut self.is_refusing) {
            return None;
        }
        let largest = self.groups.iter().max_by_key(|(_, group)| group.bytes);
        Some(Usage {
            group_count: self.count(),
            groups_max: self.options.groups_max,
            bytes: self.bytes(),
            bytes_max: self.options.total_bytes_max,
            largest: largest.map(|(id, group)| (id.to_string(), group.bytes)),
        })
    }

    /// Sets the difference of the host's clock to the owner's monotonic clock. Persistent
    /// timestamps are the host's.
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

    /// Returns the classic group with this id, or creates one. A loaded group is assigned to the
    /// owner that first uses it.
    pub(crate) fn classic_or_new(
        &mut self,
        id: &StrBytes,
        caller: &Caller<'_>,
    ) -> Result<&mut Group, ResponseError> {
        let owner = caller.owner;
        if !self.groups.contains_key(id) {
            if !self.counts.has_room(owner, 1, self.options.groups_max) {
                self.is_refusing = true;
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

    /// Returns the owner of a group, or the caller if the group does not exist.
    pub(crate) fn owner_of(&self, id: &StrBytes, caller: &Caller<'_>) -> Owner {
        self.groups.get(id).map_or(caller.owner, |group| group.owner)
    }

    /// Checks that the groups of an owner may grow by `more` bytes. 0 is always allowed, so owners
    /// keep what they have.
    pub(crate) fn check_bytes(&mut self, owner: Owner, more: usize) -> Result<(), ResponseError> {
        if more == 0 || self.bytes.has_room(owner, more, self.options.total_bytes_max) {
            return Ok(());
        }
        self.is_refusing = true;
        Err(ResponseError::CoordinatorNotAvailable)
    }

    /// Updates memory usage and deadlines of a changed group. Deletes it if it is empty.
    pub(crate) fn settle(&mut self, id: &StrBytes) {
        let Some(group) = self.groups.get_mut(id) else { return };
        if group.kind.is_empty() && !group.kind.is_stored() && group.offsets.is_empty() {
            self.drop_group(id);
            return;
        }
        let bytes = ENTRY_BYTES + id.len() + group.kind.footprint() + group.offset_bytes(id);
        self.bytes.give_back(group.owner, group.bytes);
        self.bytes.take(group.owner, bytes);
        group.bytes = bytes;
        let next_ms = group.kind.next_deadline_ms();
        // A later deadline is discovered when the group is next examined.
        let Some(next_ms) = next_ms.filter(|it| group.wake_ms.is_none_or(|wake| *it < wake)) else {
            return;
        };
        let before = group.wake_ms.replace(next_ms);
        if let Some(before) = before {
            self.wakes.remove(&(before, id.clone()));
        }
        self.wakes.insert((next_ms, id.clone()));
    }

    /// Updates the memory usage of a group's offsets, which was `bytes_before`.
    pub(crate) fn count_offsets(&mut self, id: &StrBytes, bytes_before: usize) {
        let Some(group) = self.groups.get_mut(id) else { return };
        let bytes = group.bytes - bytes_before + group.offset_bytes(id);
        self.bytes.give_back(group.owner, group.bytes);
        self.bytes.take(group.owner, bytes);
        group.bytes = bytes;
    }

    /// Records that the group's deadline was removed from the list.
    pub(crate) fn woke(&mut self, id: &StrBytes) {
        if let Some(group) = self.groups.get_mut(id) {
            group.wake_ms = None;
        }
    }

    /// Deletes a group and all its offsets, including the state log's records.
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
