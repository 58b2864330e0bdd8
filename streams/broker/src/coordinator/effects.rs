//! Effects of groups and transactions in a round, and their records for the log.

use std::sync::mpsc::SyncSender;

use super::keys::{of_epoch, of_groups, of_transactions};
use crate::state_log::StateRecord;

#[derive(Default)]
pub(super) struct Effects {
    pub(super) groups: Vec<consumer_groups::Effect>,
    pub(super) transactions: Vec<transactions::Effect>,
    /// Callers that wait until the deletion of offsets is durable.
    pub(super) forgotten: Vec<SyncSender<()>>,
    /// The minimum epoch of new topics, to be stored.
    pub(super) epoch: Option<i32>,
}

impl Effects {
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.transactions.is_empty()
    }

    pub(super) fn records(&self) -> Vec<StateRecord> {
        let groups = self.groups.iter().filter_map(|effect| match effect {
            consumer_groups::Effect::Persist(record) => Some(of_groups(record)),
            consumer_groups::Effect::Reply(..) => None,
        });
        let transactions = self.transactions.iter().filter_map(|effect| match effect {
            transactions::Effect::Persist(record) => Some(of_transactions(record)),
            transactions::Effect::Reply(..) | transactions::Effect::WriteMarkers(_) => None,
        });
        groups.chain(transactions).chain(self.epoch.map(of_epoch)).collect()
    }

    /// Returns whether a block of producer ids is reserved.
    pub(super) fn draw_ids(&self) -> bool {
        self.transactions.iter().any(|effect| match effect {
            transactions::Effect::Persist(record) => record.is_of_producer_ids(),
            transactions::Effect::Reply(..) | transactions::Effect::WriteMarkers(_) => false,
        })
    }
}
