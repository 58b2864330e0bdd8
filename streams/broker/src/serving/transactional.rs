//! Whether a produce request may write for a transaction, asked before any of it is written: a
//! record that no transaction knows of would never be committed or aborted, and hold up all
//! readers of committed records (KIP-890).

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka::produce::{self, ProduceStart};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{ProducerId, TopicName, TransactionalId};
use kafka_protocol::protocol::StrBytes;
use record_batch::BatchHeader;
use transactions::{Participants, Producer, Write};

use super::asked::Asked;
use crate::broker::Broker;

/// What a transaction may be written to, as far as a request needs to know.
#[derive(Debug, Default)]
pub(super) struct Admission {
    /// Of a request for a transaction, and in the order of its partitions.
    admitted: Vec<Admitted>,
}

#[derive(Debug)]
struct Admitted {
    topic: String,
    partition: i32,
    /// Where the partition ended before the coordinator was asked.
    at: i64,
    refused: Option<ResponseError>,
}

impl Admission {
    /// The end that [`record_log::Partition::append_to_transaction`] asks for.
    pub(super) fn of(&self, topic: &str, partition: i32) -> Result<i64, ResponseError> {
        let found = self.admitted.iter().find(|it| it.topic == topic && it.partition == partition);
        match found {
            Some(Admitted { refused: Some(error), .. }) => Err(*error),
            Some(admitted) => Ok(admitted.at),
            None => Err(ResponseError::InvalidTxnState),
        }
    }
}

/// Asks the coordinator about partitions where the producer has no transaction open yet.
pub(super) async fn check(
    broker: &Arc<Broker>,
    asked: Asked,
    body: &[u8],
) -> Result<Admission, kafka::WireError> {
    let mut admission = Admission::default();
    let Some(id) = ProduceStart::read(body, asked.version)?.transactional_id else {
        return Ok(admission);
    };
    let id = TransactionalId(StrBytes::from_string(id.to_owned()));
    for (producer, participants) in unknown(broker, asked, body, &mut admission)? {
        let producer = Producer { id: ProducerId(producer.0), epoch: producer.1 };
        let write = Write { transactional_id: id.clone(), producer, participants };
        let topics = write.participants.topics.clone();
        if let Err(error) = broker.coordinator.admit(write, asked.version).await {
            for admitted in &mut admission.admitted {
                let is_asked_for = topics.iter().any(|(name, numbers)| {
                    ***name == *admitted.topic && numbers.contains(&admitted.partition)
                });
                if is_asked_for {
                    admitted.refused = Some(error);
                }
            }
        }
    }
    Ok(admission)
}

/// Partitions that the request writes to and where no transaction of its producer is open, by
/// producer and epoch.
fn unknown(
    broker: &Broker,
    asked: Asked,
    body: &[u8],
    admission: &mut Admission,
) -> Result<BTreeMap<(i64, i16), Participants>, kafka::WireError> {
    let mut unknown: BTreeMap<(i64, i16), Participants> = BTreeMap::new();
    produce::each_partition(body, asked.version, &mut |name, number, records| {
        let Some(batch) = records.and_then(BatchHeader::read) else { return };
        let topic = broker.topics.by_name(name);
        let Some(partition) = topic.and_then(|topic| topic.partition(number)) else { return };
        admission.admitted.push(Admitted {
            topic: name.to_owned(),
            partition: number,
            at: partition.log.next_offset(),
            refused: None,
        });
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
