//! Admission of a produce request to write for a transaction, asked before any of it is written: a
//! record that no transaction knows of would never be committed or aborted, and hold up all readers
//! of committed records (KIP-890).

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

/// Partitions that a transaction may be written to, as far as a request needs to know.
#[derive(Debug, Default)]
pub(super) struct Admission {
    /// Of a request for a transaction, and in the order of its partitions.
    admitted: Vec<Admitted>,
    /// Why the client may write nothing for the transaction.
    pub(super) refusal: Option<ResponseError>,
    /// Index in `admitted` of each partition.
    indexes: HashMap<String, HashMap<i32, usize>>,
}

#[derive(Debug)]
struct Admitted {
    partition: Arc<OpenPartition>,
    /// Where the partition ended when the transaction was known to be open, or why it is not.
    at: Result<i64, ResponseError>,
}

impl Admission {
    /// The end that [`record_log::Partition::append_to_transaction`] asks for.
    pub(super) fn of(
        &self,
        topic: &str,
        partition: &Arc<OpenPartition>,
        number: i32,
    ) -> Result<i64, ResponseError> {
        let index = self.indexes.get(topic).and_then(|topic| topic.get(&number));
        let admitted = &self.admitted[*index.ok_or(ResponseError::InvalidTxnState)?];
        // The topic may have been deleted and made again meanwhile.
        match Arc::ptr_eq(&admitted.partition, partition) {
            true => admitted.at,
            false => Err(ResponseError::UnknownTopicOrPartition),
        }
    }
}

/// Partitions that are new to a transaction.
#[derive(Debug, Default)]
struct New {
    participants: Participants,
    /// Of the admission.
    indexes: Vec<usize>,
}

/// Asks the coordinator about partitions where the producer has no transaction open yet. The place
/// is for the rest of the request; there is none while the coordinator is asked, which may wait for
/// a disk that the client's other requests need not wait for.
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
        // As in Kafka, nothing is written of a request that names no transaction and brings a
        // batch of one.
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
    // The answers may be old by now.
    ask(asker, &id, &new, &mut admission).await;
    Ok(((checked, admission), place))
}

/// Asks the coordinator to admit writes to partitions that are new to transactions of `id`.
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

/// Adds a partition that the request writes a batch of a transaction to, and notes it where no
/// transaction of the batch's producer is open there, by producer and epoch. What the client may
/// not write to becomes no part of a transaction: its records are refused later.
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
    // Of a partition that is named more than once, the last one counts.
    of_topic.insert(number, index);
    if is_new {
        let name = TopicName(StrBytes::from_string(name.to_owned()));
        let new = all.entry((batch.producer_id, batch.producer_epoch)).or_default();
        new.participants.add_partitions(&name, [number]);
        new.indexes.push(index);
    }
}
