//! Admission of a produce request to a transaction, before any of its records are written: a record
//! outside of all transactions would never be committed or aborted, and would block all
//! read_committed consumers (KIP-890).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use access::{Operation, Resource};
use kafka::produce::{Checked, ProduceStart};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{ProducerId, TopicName, TransactionalId};
use kafka_protocol::protocol::StrBytes;
use record_batch::BatchHeader;
use shares::Owner;
use transactions::{Participants, Producer, Write};

use super::asked::Asked;
use super::client::Client;
use crate::broker::Broker;
use crate::topics::OpenPartition;
use crate::waiting::{self, Place};

/// Partitions of a request that may be written in a transaction.
#[derive(Debug, Default)]
pub(super) struct Admission {
    /// Admitted partitions of a transactional request, in the order of the request.
    admitted: Vec<Admitted>,
    /// Error if the client may not write in the transaction.
    pub(super) refusal: Option<ResponseError>,
    /// Index of each partition in `admitted`.
    indexes: HashMap<String, HashMap<i32, usize>>,
}

#[derive(Debug)]
struct Admitted {
    partition: Arc<OpenPartition>,
    /// End of the partition when the transaction was known to be open, or the error.
    at: Result<i64, ResponseError>,
}

impl Admission {
    /// Returns the end for [`record_log::Partition::append_to_transaction`].
    pub(super) fn of(
        &self,
        topic: &str,
        partition: &Arc<OpenPartition>,
        number: i32,
    ) -> Result<i64, ResponseError> {
        let index = self.indexes.get(topic).and_then(|topic| topic.get(&number));
        let admitted = &self.admitted[*index.ok_or(ResponseError::InvalidTxnState)?];
        // The topic may have been deleted and created again meanwhile.
        match Arc::ptr_eq(&admitted.partition, partition) {
            true => admitted.at,
            false => Err(ResponseError::UnknownTopicOrPartition),
        }
    }
}

/// Partitions to be added to a transaction.
#[derive(Debug, Default)]
struct New {
    participants: Participants,
    /// Indexes in the admission.
    indexes: Vec<usize>,
}

/// Asks the coordinator to admit partitions without an open transaction of the producer. Returns
/// the place for the rest of the request. No place is held while waiting for the coordinator, which
/// may wait for a disk that the client's other requests need not wait for.
pub(super) async fn check(
    broker: &Arc<Broker>,
    client: &Client,
    asked: Asked,
    body: &[u8],
) -> Result<((Checked, Admission), Place), kafka::WireError> {
    let place = waiting::place(client.owner()).await;
    let start = ProduceStart::read(body, asked.version)?;
    let mut admission = Admission::default();
    let may_write = |id| client.may(broker, Operation::Write, Resource::transactional_id(id));
    let Some(id) = start.transactional_id.filter(|id| may_write(id)) else {
        // As in Kafka, a request without a transactional id that contains a transactional batch is
        // rejected as a whole.
        let mut is_refused = start.transactional_id.is_some();
        let checked = Checked::read(body, asked.version, &start, &mut |_, _, records| {
            let header = records.and_then(BatchHeader::read);
            is_refused |= header.is_some_and(|it| it.is_transactional());
        })?;
        let refusal = ResponseError::TransactionalIdAuthorizationFailed;
        admission.refusal = is_refused.then_some(refusal);
        return Ok(((checked, admission), place));
    };
    let mut new = BTreeMap::new();
    let checked = Checked::read(body, asked.version, &start, &mut |name, number, records| {
        let batch = records.and_then(BatchHeader::read);
        if let Some(batch) = batch.filter(BatchHeader::is_transactional) {
            find_new((broker, client), (name, number), &batch, &mut admission, &mut new);
        }
    })?;
    if new.is_empty() {
        return Ok(((checked, admission), place));
    }
    drop(place);
    let id = TransactionalId(StrBytes::from_string(id.to_owned()));
    let asker = (broker.as_ref(), (asked.version, client.owner()));
    ask(asker, &id, &new, &mut admission).await;
    if let Some(place) = waiting::place_at_once(client.owner()) {
        return Ok(((checked, admission), place));
    }
    let place = waiting::place(client.owner()).await;
    // Earlier replies may be outdated.
    ask(asker, &id, &new, &mut admission).await;
    Ok(((checked, admission), place))
}

/// Asks the coordinator to admit writes to new partitions in transactions of `id`.
async fn ask(
    (broker, asker): (&Broker, (i16, Owner)),
    id: &TransactionalId,
    new: &BTreeMap<(i64, i16), New>,
    admission: &mut Admission,
) {
    for (&(producer_id, epoch), New { participants, indexes }) in new {
        let producer = Producer { id: ProducerId(producer_id), epoch };
        let participants = participants.clone();
        let write = Write { transactional_id: id.clone(), producer, participants };
        let partitions = indexes.iter().map(|it| Arc::clone(&admission.admitted[*it].partition));
        let ends = broker.coordinator.admit(write, partitions.collect(), asker).await;
        for (nth, index) in indexes.iter().enumerate() {
            admission.admitted[*index].at = ends.as_ref().map(|it| it[nth]).map_err(|it| *it);
        }
    }
}

/// Adds a partition to which the request writes a transactional batch. If the batch's producer has
/// no open transaction there, the partition is recorded as new, by producer and epoch. Partitions
/// without authorization are not added: their records are rejected later.
fn find_new(
    (broker, client): (&Broker, &Client),
    (name, number): (&str, i32),
    batch: &BatchHeader,
    admission: &mut Admission,
    all: &mut BTreeMap<(i64, i16), New>,
) {
    let topic = broker.topics.by_name(name);
    let Some(partition) = topic.and_then(|topic| topic.partition(number)) else { return };
    if !client.may(broker, Operation::Write, Resource::topic(name)) {
        return;
    }
    let index = admission.admitted.len();
    let at = Ok(partition.log.next_offset());
    let is_new = !partition.log.is_in_transaction(batch.producer_id, batch.producer_epoch);
    admission.admitted.push(Admitted { partition, at });
    let of_topic = admission.indexes.entry(name.to_owned()).or_default();
    // If a partition is named repeatedly, the last one applies.
    of_topic.insert(number, index);
    if is_new {
        let name = TopicName(StrBytes::from_string(name.to_owned()));
        let new = all.entry((batch.producer_id, batch.producer_epoch)).or_default();
        new.participants.add_partitions(&name, [number]);
        new.indexes.push(index);
    }
}
