//! Whether a produce request may write for a transaction, asked before any of it is written: a
//! record that no transaction knows of would never be committed or aborted, and hold up all
//! readers of committed records (KIP-890).

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka::produce::{self, ProduceStart};
use kafka_protocol::messages::{ProducerId, TopicName, TransactionalId};
use kafka_protocol::protocol::StrBytes;
use record_log::BatchHeader;
use transactions::{Participants, Producer, Write};

use super::asked::Asked;
use super::produce::Refused;
use crate::broker::Broker;

/// Asks the coordinator about partitions where the producer has no transaction open yet.
pub(super) async fn check(
    broker: &Arc<Broker>,
    asked: Asked,
    body: &[u8],
) -> Result<Refused, kafka::WireError> {
    let mut refused = Refused::default();
    let Some(id) = ProduceStart::read(body, asked.version)?.transactional_id else {
        return Ok(refused);
    };
    let id = TransactionalId(StrBytes::from_string(id.to_owned()));
    for (producer, participants) in unknown(broker, asked, body)? {
        let producer = Producer { id: ProducerId(producer.0), epoch: producer.1 };
        let write = Write { transactional_id: id.clone(), producer, participants };
        let partitions: Vec<(String, i32)> = write
            .participants
            .topics
            .iter()
            .flat_map(|(name, numbers)| numbers.iter().map(|it| (name.to_string(), *it)))
            .collect();
        if let Err(error) = broker.coordinator.admit(write, asked.version).await {
            refused.0.extend(partitions.into_iter().map(|(name, number)| (name, number, error)));
        }
    }
    Ok(refused)
}

/// Partitions that the request writes to and where no transaction of its producer is open, by
/// producer and epoch.
fn unknown(
    broker: &Broker,
    asked: Asked,
    body: &[u8],
) -> Result<BTreeMap<(i64, i16), Participants>, kafka::WireError> {
    let mut unknown: BTreeMap<(i64, i16), Participants> = BTreeMap::new();
    produce::each_partition(body, asked.version, &mut |name, number, records| {
        let Some(batch) = records.and_then(BatchHeader::read) else { return };
        let topic = broker.topics.by_name(name);
        let Some(partition) = topic.and_then(|topic| topic.partition(number)) else { return };
        if partition.log.is_in_transaction(batch.producer_id, batch.producer_epoch) {
            return;
        }
        let name = TopicName(StrBytes::from_string(name.to_owned()));
        unknown
            .entry((batch.producer_id, batch.producer_epoch))
            .or_default()
            .add_partitions(&name, [number]);
    })?;
    Ok(unknown)
}
