//! Keys of the coordinator's log, which identify the owner of a record.

use bytes::Bytes;

use crate::state_log::StateRecord;

/// Owner of a record, identified by the first byte of the key.
pub(super) enum Owner {
    Groups,
    Transactions,
    /// The minimum epoch of new topics.
    Epoch,
}

const GROUPS: u8 = b'g';
const TRANSACTIONS: u8 = b't';
const EPOCH: u8 = b'e';

pub(super) fn owner_of(key: &[u8]) -> Option<(Owner, &[u8])> {
    match key.split_first()? {
        (&GROUPS, key) => Some((Owner::Groups, key)),
        (&TRANSACTIONS, key) => Some((Owner::Transactions, key)),
        (&EPOCH, key @ []) => Some((Owner::Epoch, key)),
        _ => None,
    }
}

pub(super) fn of_groups(record: &consumer_groups::Record) -> StateRecord {
    let key = [&[GROUPS], record.key.as_ref()].concat().into();
    StateRecord { key, value: record.value.clone() }
}

pub(super) fn of_transactions(record: &transactions::Record) -> StateRecord {
    let key = [&[TRANSACTIONS], record.key.as_slice()].concat().into();
    StateRecord { key, value: record.value.clone().map(Bytes::from) }
}

pub(super) fn of_epoch(epoch: i32) -> StateRecord {
    let value = Bytes::copy_from_slice(&epoch.to_le_bytes());
    StateRecord { key: Bytes::from_static(&[EPOCH]), value: Some(value) }
}

pub(super) fn read_epoch(value: Option<&[u8]>) -> Option<i32> {
    Some(i32::from_le_bytes(value?.try_into().ok()?))
}
