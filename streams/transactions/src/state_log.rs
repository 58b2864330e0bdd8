//! Records of the state log, in the format of `docs/formats/coordinator.md`.
//!
//! The log retains the latest record of each key. Loading validates every record: one that no
//! version of this code can have written is rejected, with its key.

use kafka_protocol::messages::{GroupId, ProducerId, TopicName, TransactionalId};
use kafka_protocol::protocol::StrBytes;
use shares::Owner;

use crate::participants::Participants;
use crate::transaction::{Outcome, Producer, State, Transaction};

const VERSION: u8 = 1;
const KEY_OF_PRODUCER_IDS: u8 = b'p';
const KEY_OF_TRANSACTION: u8 = b't';
const NONE: Producer = Producer { id: ProducerId(-1), epoch: -1 };

/// A record of the state log. A record without a value deletes its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: Vec<u8>,
    pub value: Option<Vec<u8>>,
}

/// Reason for which a record cannot be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateErrorKind {
    /// A later version wrote it.
    LaterVersion,
    /// No version wrote it: it is damaged or foreign.
    Damaged,
}

/// Error for a rejected record of the state log.
#[derive(Debug, thiserror::Error)]
#[error("cannot load the record of key {key:?} from the transactions' state log: {kind:?}")]
pub struct StateError {
    pub kind: StateErrorKind,
    /// Lossy UTF-8 form of the key.
    pub key: String,
}

/// Contents of a record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// All producer ids below this one are reserved.
    ProducerIds(i64),
    /// `None` if the transactional id has expired.
    Transaction(TransactionalId, Option<Box<Transaction>>),
}

impl Record {
    /// Returns whether the record reserves producer ids. None of them is allocated before it is
    /// durable.
    pub fn is_of_producer_ids(&self) -> bool {
        self.key == [KEY_OF_PRODUCER_IDS]
    }
}

pub(crate) fn producer_ids_record(end: i64) -> Record {
    let mut value = vec![VERSION];
    value.extend(end.to_le_bytes());
    Record { key: vec![KEY_OF_PRODUCER_IDS], value: Some(value) }
}

/// Encodes a transaction. `None` deletes its transactional id.
pub(crate) fn transaction_record(
    id: &TransactionalId,
    transaction: Option<&Transaction>,
) -> Record {
    let mut key = vec![KEY_OF_TRANSACTION];
    key.extend(id.as_bytes());
    Record { key, value: transaction.map(transaction_value) }
}

/// Returns the size of a value whose transaction has these participants.
pub(crate) fn value_bytes(participants: &Participants) -> usize {
    let topics = participants.topics.iter();
    let topics: usize =
        topics.map(|(name, partitions)| 2 + name.len() + 4 + 4 * partitions.len()).sum();
    let groups: usize = participants.groups.iter().map(|name| 2 + name.len()).sum();
    FIXED_BYTES + topics + groups
}

/// Fields from the version to the marker, and two counts.
const FIXED_BYTES: usize = 2 + 10 + 10 + 4 + 8 + 8 + 10 + 2 * 4;

pub(crate) fn parse(key: &[u8], value: Option<&[u8]>) -> Result<Entry, StateError> {
    let failed = |kind| {
        let key = String::from_utf8_lossy(key).into_owned();
        StateError { kind, key }
    };
    if value.and_then(|value| value.first()).is_some_and(|version| *version > VERSION) {
        return Err(failed(StateErrorKind::LaterVersion));
    }
    try_parse(key, value).ok_or_else(|| failed(StateErrorKind::Damaged))
}

fn try_parse(key: &[u8], value: Option<&[u8]>) -> Option<Entry> {
    let (kind, name) = key.split_first()?;
    let mut fields = value.map(Fields);
    if let Some(fields) = &mut fields {
        (fields.u8()? == VERSION).then_some(())?;
    }
    let entry = match *kind {
        KEY_OF_PRODUCER_IDS if name.is_empty() => {
            let end = fields.as_mut()?.i64()?;
            (end >= 0).then_some(Entry::ProducerIds(end))?
        }
        KEY_OF_TRANSACTION if !name.is_empty() => {
            let id = TransactionalId(StrBytes::from_string(String::from_utf8(name.to_vec()).ok()?));
            let transaction = match &mut fields {
                Some(fields) => Some(Box::new(take_transaction(fields)?)),
                None => None,
            };
            Entry::Transaction(id, transaction)
        }
        _ => return None,
    };
    fields.is_none_or(|rest| rest.0.is_empty()).then_some(entry)
}

fn transaction_value(transaction: &Transaction) -> Vec<u8> {
    let mut value = vec![VERSION, state_number(&transaction.state)];
    put_producer(&mut value, transaction.producer);
    put_producer(&mut value, transaction.previous.unwrap_or(NONE));
    value.extend(transaction.timeout_ms.to_le_bytes());
    value.extend(transaction.updated_ms.to_le_bytes());
    match &transaction.state {
        State::Empty | State::Complete(_) => {}
        State::Ongoing { started_ms, participants, .. } => {
            value.extend(started_ms.to_le_bytes());
            put_participants(&mut value, participants);
        }
        State::Prepare { started_ms, marker, participants, .. } => {
            value.extend(started_ms.to_le_bytes());
            put_producer(&mut value, *marker);
            put_participants(&mut value, participants);
        }
    }
    value
}

/// Returns the number of a state, as in Kafka.
fn state_number(state: &State) -> u8 {
    match state {
        State::Empty => 0,
        State::Ongoing { .. } => 1,
        State::Prepare { outcome: Outcome::Commit, .. } => 2,
        State::Prepare { outcome: Outcome::Abort, .. } => 3,
        State::Complete(Outcome::Commit) => 4,
        State::Complete(Outcome::Abort) => 5,
    }
}

fn put_producer(value: &mut Vec<u8>, producer: Producer) {
    value.extend(producer.id.0.to_le_bytes());
    value.extend(producer.epoch.to_le_bytes());
}

fn put_participants(value: &mut Vec<u8>, participants: &Participants) {
    put_count(value, participants.topics.len());
    for (topic, partitions) in &participants.topics {
        put_name(value, topic);
        put_count(value, partitions.len());
        for partition in partitions {
            value.extend(partition.to_le_bytes());
        }
    }
    put_count(value, participants.groups.len());
    for group in &participants.groups {
        put_name(value, group);
    }
}

fn put_count(value: &mut Vec<u8>, count: usize) {
    value.extend(u32::try_from(count).expect("a value has a limit").to_le_bytes());
}

fn put_name(value: &mut Vec<u8>, name: &str) {
    value.extend(u16::try_from(name.len()).expect("names have a limit").to_le_bytes());
    value.extend(name.as_bytes());
}

fn take_transaction(fields: &mut Fields<'_>) -> Option<Transaction> {
    let state = fields.u8()?;
    let producer = fields.producer().filter(|it| it.id.0 >= 0 && it.epoch >= 0)?;
    let previous = Some(fields.producer()?).filter(|it| *it != NONE);
    let timeout_ms = fields.i32().filter(|it| *it > 0)?;
    let updated_ms = fields.i64()?;
    let state = match state {
        0 => State::Empty,
        1 => {
            let started_ms = fields.i64()?;
            let times_out_ms = started_ms.saturating_add(timeout_ms.into());
            State::Ongoing { started_ms, times_out_ms, participants: fields.participants()? }
        }
        2 => fields.prepare(Outcome::Commit)?,
        3 => fields.prepare(Outcome::Abort)?,
        4 => State::Complete(Outcome::Commit),
        5 => State::Complete(Outcome::Abort),
        _ => return None,
    };
    let owner = Owner::NOBODY;
    Some(Transaction { producer, previous, timeout_ms, updated_ms, state, owner, is_on_disk: true })
}

/// Remaining bytes of a value.
struct Fields<'bytes>(&'bytes [u8]);

impl<'bytes> Fields<'bytes> {
    fn take(&mut self, count: usize) -> Option<&'bytes [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.number().map(u8::from_le_bytes)
    }

    fn i16(&mut self) -> Option<i16> {
        self.number().map(i16::from_le_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.number().map(i32::from_le_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.number().map(i64::from_le_bytes)
    }

    /// Reads a count of items, each of which takes at least one byte.
    fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(u32::from_le_bytes(self.number()?)).ok()?;
        (count <= self.0.len()).then_some(count)
    }

    fn name(&mut self) -> Option<StrBytes> {
        let length = u16::from_le_bytes(self.number()?);
        let name = String::from_utf8(self.take(length.into())?.to_vec()).ok()?;
        Some(StrBytes::from_string(name))
    }

    fn producer(&mut self) -> Option<Producer> {
        let id = ProducerId(self.i64()?);
        Some(Producer { id, epoch: self.i16()? })
    }

    fn participants(&mut self) -> Option<Participants> {
        let mut participants = Participants::default();
        for _ in 0..self.count()? {
            let topic = TopicName(self.name()?);
            let count = self.count()?;
            let partitions = (0..count).map(|_| self.i32()).collect::<Option<_>>()?;
            participants.topics.insert(topic, partitions);
        }
        for _ in 0..self.count()? {
            participants.groups.insert(GroupId(self.name()?));
        }
        Some(participants)
    }

    fn prepare(&mut self, outcome: Outcome) -> Option<State> {
        let started_ms = self.i64()?;
        let marker = self.producer().filter(|it| it.id.0 >= 0 && it.epoch >= 0)?;
        Some(State::Prepare { outcome, started_ms, marker, participants: self.participants()? })
    }
}

#[cfg(test)]
mod tests {
    use random::Random;

    use super::*;

    fn transactions() -> Vec<Transaction> {
        let producer = Producer { id: ProducerId(7), epoch: 3 };
        let marker = Producer { id: ProducerId(6), epoch: i16::MAX };
        let mut participants =
            Participants::of_partitions(&TopicName(StrBytes::from_static_str("orders")), [4, 1, 9]);
        participants.add_partitions(&TopicName(StrBytes::from_static_str("größe")), [0]);
        participants.add(&Participants::of_group(&GroupId(StrBytes::from_static_str("group"))));
        let prepare = |outcome| State::Prepare {
            outcome,
            started_ms: 11,
            marker,
            participants: participants.clone(),
        };
        let states = [
            State::Empty,
            State::Ongoing {
                started_ms: 10,
                times_out_ms: 60_010,
                participants: participants.clone(),
            },
            prepare(Outcome::Commit),
            prepare(Outcome::Abort),
            State::Complete(Outcome::Commit),
            State::Complete(Outcome::Abort),
        ];
        let of = |(index, state): (usize, State)| Transaction {
            producer,
            previous: (index % 2 == 0).then_some(Producer { epoch: 2, ..producer }),
            timeout_ms: 60_000,
            updated_ms: 1_700_000_000_000,
            state,
            owner: Owner::NOBODY,
            is_on_disk: true,
        };
        states.into_iter().enumerate().map(of).collect()
    }

    fn id() -> TransactionalId {
        TransactionalId(StrBytes::from_static_str("writer-1"))
    }

    #[test]
    fn every_state_comes_back_from_its_record() {
        for transaction in transactions() {
            let record = transaction_record(&id(), Some(&transaction));
            let found = parse(&record.key, record.value.as_deref()).expect("it was written so");
            if let Some(participants) = transaction.participants() {
                let most = value_bytes(participants);
                assert!((most - 10..=most).contains(&record.value.expect("it has one").len()));
            }
            assert_eq!(found, Entry::Transaction(id(), Some(Box::new(transaction))));
        }
        let record = producer_ids_record(5_000);
        let found = parse(&record.key, record.value.as_deref()).expect("it was written so");
        assert_eq!(found, Entry::ProducerIds(5_000));
        let found = parse(&transaction_record(&id(), None).key, None).expect("it was written so");
        assert_eq!(found, Entry::Transaction(id(), None));
    }

    #[test]
    fn every_state_that_version_1_wrote_is_read() {
        let bytes = |text: &str| -> Vec<u8> {
            let pairs = (0..text.len()).step_by(2).map(|at| &text[at..at + 2]);
            pairs.map(|pair| u8::from_str_radix(pair, 16).expect("two digits")).collect()
        };
        let lines = include_str!("golden/transactions-1.txt").lines();
        let lines: Vec<&str> = lines.filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines.len(), transactions().len());
        for (line, transaction) in lines.into_iter().zip(transactions()) {
            let (key, value) = line.split_once(' ').expect("a key and a value");
            let found = parse(&bytes(key), Some(&bytes(value))).expect("version 1 is read");
            assert_eq!(found, Entry::Transaction(id(), Some(Box::new(transaction))));
        }
    }

    #[track_caller]
    fn check_refused(key: &[u8], value: Option<&[u8]>, expected: StateErrorKind) {
        assert_eq!(parse(key, value).expect_err("it is none").kind, expected);
    }

    #[test]
    fn records_of_a_later_version_are_refused_as_such() {
        check_refused(b"tid", Some(&[2, 0, 0]), StateErrorKind::LaterVersion);
        check_refused(b"p", Some(&[2]), StateErrorKind::LaterVersion);
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let whole = transaction_record(&id(), Some(&transactions()[3]));
        let value = whole.value.expect("it has one");
        for length in 0..value.len() {
            check_refused(&whole.key, Some(&value[..length]), StateErrorKind::Damaged);
        }
        let longer = [value.as_slice(), &[0]].concat();
        check_refused(&whole.key, Some(&longer), StateErrorKind::Damaged);
        check_refused(b"", Some(&value), StateErrorKind::Damaged);
        check_refused(b"t", Some(&value), StateErrorKind::Damaged);
        check_refused(b"t\xFF", Some(&value), StateErrorKind::Damaged);
        check_refused(b"p", None, StateErrorKind::Damaged);
        check_refused(b"p", Some(&[0; 9]), StateErrorKind::Damaged);
        check_refused(b"p", Some(&[1, 0, 0, 0, 0, 0, 0, 0, 0x80]), StateErrorKind::Damaged);
        check_refused(b"x", Some(&value), StateErrorKind::Damaged);
    }

    #[test]
    fn damaged_bytes_never_panic() {
        let mut random = Random::new(5);
        for _ in 0..20_000 {
            let all = transactions();
            let record = transaction_record(&id(), Some(&all[random.index(all.len())]));
            let mut value = record.value.expect("it has one");
            let place = random.index(value.len());
            value[place] ^= 1 << random.below(8);
            if let Ok(Entry::Transaction(id, Some(found))) = parse(&record.key, Some(&value)) {
                assert_eq!(transaction_record(&id, Some(&*found)).key, record.key);
            }
        }
    }
}
