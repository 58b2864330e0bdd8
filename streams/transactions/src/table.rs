//! Table of all transactional ids, with their deadlines and memory usage.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::messages::TransactionalId;
use shares::Shares;

use crate::state_log::value_bytes;
use crate::transaction::{Now, Transaction};

#[derive(Debug)]
pub(crate) struct Table {
    by_id: BTreeMap<TransactionalId, Transaction>,
    /// Timeouts of open transactions, by the owner's clock.
    timeouts: BTreeSet<(i64, TransactionalId)>,
    /// Expirations of transactional ids without an open transaction, by the host's clock.
    expirations: BTreeSet<(i64, TransactionalId)>,
    /// Number of transactional ids.
    ids: Shares,
    /// Bytes of the participants of all transactions, in the format of the state log.
    participants: Shares,
    expiration_ms: i64,
}

impl Table {
    pub(crate) fn new(expiration_ms: i64) -> Self {
        Self {
            by_id: BTreeMap::new(),
            timeouts: BTreeSet::new(),
            expirations: BTreeSet::new(),
            ids: Shares::default(),
            participants: Shares::default(),
            expiration_ms,
        }
    }

    /// Returns an entry with the table's own copy of the id, which references no request buffer.
    pub(crate) fn entry(&self, id: &TransactionalId) -> Option<(&TransactionalId, &Transaction)> {
        self.by_id.get_key_value(id)
    }

    pub(crate) fn get(&self, id: &TransactionalId) -> Option<&Transaction> {
        self.by_id.get(id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&TransactionalId, &Transaction)> {
        self.by_id.iter()
    }

    /// Returns the number of transactional ids by owner.
    pub(crate) fn ids(&self) -> &Shares {
        &self.ids
    }

    /// Returns the bytes of participants, by the owner of their transactional id.
    pub(crate) fn participants(&self) -> &Shares {
        &self.participants
    }

    /// Inserts or replaces a transactional id.
    pub(crate) fn put(&mut self, id: &TransactionalId, transaction: Transaction) {
        self.remove(id);
        self.note(id, &transaction);
        self.by_id.insert(id.clone(), transaction);
    }

    pub(crate) fn remove(&mut self, id: &TransactionalId) {
        if let Some(transaction) = self.by_id.remove(id) {
            self.forget(id, &transaction);
        }
    }

    /// Changes an existing transactional id.
    pub(crate) fn change(
        &mut self,
        id: &TransactionalId,
        change: impl FnOnce(&mut Transaction),
    ) -> &Transaction {
        let found = self.by_id.remove_entry(id);
        let (id, mut transaction) = found.expect("the caller looked it up");
        self.forget(&id, &transaction);
        change(&mut transaction);
        self.note(&id, &transaction);
        self.by_id.entry(id).or_insert(transaction)
    }

    /// Returns the earliest deadline by the owner's clock. The host's clock is ahead by
    /// `host_ahead_ms`.
    pub(crate) fn next_deadline_ms(&self, host_ahead_ms: i64) -> Option<i64> {
        let timeout = self.timeouts.first().map(|(at_ms, _)| *at_ms);
        let expiration = self.expirations.first().map(|(at_ms, _)| at_ms - host_ahead_ms);
        timeout.into_iter().chain(expiration).min()
    }

    /// Returns a transactional id that has expired or whose transaction has timed out.
    pub(crate) fn due(&self, now: Now) -> Option<TransactionalId> {
        let timeout = self.timeouts.first().filter(|(at_ms, _)| *at_ms <= now.steady_ms);
        let expiration = || self.expirations.first().filter(|(at_ms, _)| *at_ms <= now.unix_ms);
        timeout.or_else(expiration).map(|(_, id)| id.clone())
    }

    fn note(&mut self, id: &TransactionalId, transaction: &Transaction) {
        self.ids.take(transaction.owner, 1);
        let bytes = transaction.participants().map_or(0, value_bytes);
        self.participants.take(transaction.owner, bytes);
        if let Some(at_ms) = transaction.times_out_ms() {
            self.timeouts.insert((at_ms, id.clone()));
        }
        if let Some(at_ms) = transaction.expires_ms(self.expiration_ms) {
            self.expirations.insert((at_ms, id.clone()));
        }
    }

    fn forget(&mut self, id: &TransactionalId, transaction: &Transaction) {
        self.ids.give_back(transaction.owner, 1);
        let bytes = transaction.participants().map_or(0, value_bytes);
        self.participants.give_back(transaction.owner, bytes);
        if let Some(at_ms) = transaction.times_out_ms() {
            self.timeouts.remove(&(at_ms, id.clone()));
        }
        if let Some(at_ms) = transaction.expires_ms(self.expiration_ms) {
            self.expirations.remove(&(at_ms, id.clone()));
        }
    }
}
