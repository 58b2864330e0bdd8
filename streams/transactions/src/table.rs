//! All transactional ids, with what follows from their transactions: when time changes them, and
//! how much memory they take.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::messages::TransactionalId;

use crate::state_log::value_bytes;
use crate::transaction::Transaction;

#[derive(Debug)]
pub(crate) struct Table {
    by_id: BTreeMap<TransactionalId, Transaction>,
    /// Of each transaction that has one.
    deadlines: BTreeSet<(i64, TransactionalId)>,
    /// Of all transactions, in the form of the state log.
    participants_bytes: usize,
    expiration_ms: i64,
}

impl Table {
    pub(crate) fn new(expiration_ms: i64) -> Self {
        let (by_id, deadlines) = (BTreeMap::new(), BTreeSet::new());
        Self { by_id, deadlines, participants_bytes: 0, expiration_ms }
    }

    /// With the id as it is kept, which no request's buffer backs.
    pub(crate) fn entry(&self, id: &TransactionalId) -> Option<(&TransactionalId, &Transaction)> {
        self.by_id.get_key_value(id)
    }

    pub(crate) fn get(&self, id: &TransactionalId) -> Option<&Transaction> {
        self.by_id.get(id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&TransactionalId, &Transaction)> {
        self.by_id.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn participants_bytes(&self) -> usize {
        self.participants_bytes
    }

    /// Puts a transactional id in the place of what was there.
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

    /// Changes one that is there.
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

    pub(crate) fn next_deadline_ms(&self) -> Option<i64> {
        self.deadlines.first().map(|(deadline_ms, _)| *deadline_ms)
    }

    /// The one whose deadline came first.
    pub(crate) fn due(&self, now_ms: i64) -> Option<TransactionalId> {
        let (_, id) = self.deadlines.first().filter(|(deadline_ms, _)| *deadline_ms <= now_ms)?;
        Some(id.clone())
    }

    fn note(&mut self, id: &TransactionalId, transaction: &Transaction) {
        self.participants_bytes += transaction.participants().map_or(0, value_bytes);
        if let Some(deadline_ms) = transaction.deadline_ms(self.expiration_ms) {
            self.deadlines.insert((deadline_ms, id.clone()));
        }
    }

    fn forget(&mut self, id: &TransactionalId, transaction: &Transaction) {
        self.participants_bytes -= transaction.participants().map_or(0, value_bytes);
        if let Some(deadline_ms) = transaction.deadline_ms(self.expiration_ms) {
            self.deadlines.remove(&(deadline_ms, id.clone()));
        }
    }
}
