//! Producer of one topic.
//!
//! An idempotent producer numbers its batches in each partition. The broker detects a repeated
//! batch and returns the offset of the first copy, so a batch can be resent after a lost response.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::ProduceResponse;
use kafka_protocol::messages::{
    InitProducerIdRequest, ProduceRequest, ProducerId, TransactionalId,
};
use record_batch::{BatchOptions, BatchProducer, Codec as Compression, NewRecord, encode_batch};

use crate::client::{Client, text, topic_name};
use crate::connection::Connection;
use crate::error::{ClientError, check_right};
use crate::retry::Retry;
use crate::topics::no_result;

/// Versions 13 and later identify topics by id.
pub(crate) const PRODUCE_VERSION_MAX: i16 = 12;

/// Since version 12, produce requests add partitions to transactions implicitly (KIP-890).
const TRANSACTIONAL_VERSION_MAX: i16 = 11;

/// Number of recent batches per producer and partition that brokers deduplicate.
const IN_FLIGHT_MAX: usize = 5;

/// Required acknowledgements of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acks {
    /// None: the batch counts as sent once it is written to the socket.
    None,
    /// The leader has written the batch.
    Leader,
    /// All in-sync replicas have the batch.
    #[default]
    All,
}

impl Acks {
    pub(crate) fn number(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Leader => 1,
            Self::All => -1,
        }
    }
}

/// Settings of a producer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProducerSettings {
    pub acks: Acks,
    pub compression: Compression,
    /// Deduplicates resent batches. Requires `Acks::All`.
    pub is_idempotent: bool,
}

/// Sends records to the partitions of one topic.
#[derive(Debug)]
pub struct Producer {
    client: Arc<Client>,
    topic: String,
    settings: ProducerSettings,
    leaders: Vec<Arc<Connection>>,
    identity: Option<Identity>,
    /// Set if records belong to transactions.
    transactional_id: Option<TransactionalId>,
}

#[derive(Debug)]
struct Identity {
    id: i64,
    epoch: i16,
    /// Next sequence number in each partition.
    sequences: HashMap<i32, i32>,
}

/// A batch for one partition, resent until it is acknowledged.
#[derive(Debug)]
struct Shipment {
    /// Position in the order of sending, which is the order within each partition.
    number: usize,
    partition: i32,
    batch: Bytes,
}

impl Producer {
    /// Looks up the topic's leaders, and obtains a producer id if idempotence is enabled.
    pub async fn new(
        client: Arc<Client>,
        topic: &str,
        settings: ProducerSettings,
    ) -> Result<Self, ClientError> {
        if settings.is_idempotent && settings.acks != Acks::All {
            return Err(ClientError::invalid(
                "an idempotent producer needs all acknowledgements (acks=all)",
            ));
        }
        let mut retry = client.retry();
        let leaders = client.leaders_within(&mut retry, topic).await?;
        let identity = match settings.is_idempotent {
            true => Some(Identity::obtain_within(&mut retry, &client).await?),
            false => None,
        };
        let topic = topic.to_owned();
        Ok(Self { client, topic, settings, leaders, identity, transactional_id: None })
    }

    /// Creates a producer for transactions of `id`. Its sequence numbers start at 0.
    pub(crate) async fn transactional(
        client: Arc<Client>,
        topic: &str,
        settings: ProducerSettings,
        id: &str,
        numbers: BatchProducer,
    ) -> Result<Self, ClientError> {
        let leaders = client.leaders(topic).await?;
        let BatchProducer { id: producer_id, epoch, sequence: _ } = numbers;
        let identity = Identity { id: producer_id, epoch, sequences: HashMap::new() };
        Ok(Self {
            client,
            topic: topic.to_owned(),
            settings,
            leaders,
            identity: Some(identity),
            transactional_id: Some(TransactionalId(text(id))),
        })
    }

    pub fn partition_count(&self) -> usize {
        self.leaders.len()
    }

    /// Sends batches to their partitions concurrently. Returns the base offset of each batch, or -1
    /// without acknowledgements. Several batches for one partition need an idempotent producer, and
    /// may be at most five.
    pub async fn send(
        &mut self,
        records: Vec<(i32, Vec<NewRecord>)>,
    ) -> Result<Vec<(i32, i64)>, ClientError> {
        self.check_batches(&records)?;
        let mut shipments = Vec::with_capacity(records.len());
        for (number, (partition, records)) in records.into_iter().enumerate() {
            let producer = self.identity.as_mut().map(|it| it.next(partition, records.len()));
            let options = BatchOptions {
                compression: self.settings.compression,
                producer,
                is_transactional: self.transactional_id.is_some(),
            };
            let batch = encode_batch(&records, &options)?;
            shipments.push(Shipment { number, partition, batch });
        }
        let mut retry = self.client.retry();
        let mut offsets = Vec::with_capacity(shipments.len());
        loop {
            let shipped = retry.attempt(self.ship(&mut shipments, &mut offsets)).await;
            let Err(error) = shipped else {
                offsets.sort_unstable();
                return Ok(offsets);
            };
            // Without sequence numbers, a resent batch could be stored twice.
            let is_certain = error.refusal().is_some() || self.identity.is_some();
            if !is_certain {
                return Err(error);
            }
            retry.after(error).await?;
            self.leaders = self.client.leaders_within(&mut retry, &self.topic).await?;
        }
    }

    /// Checks that the batches can be in flight concurrently.
    fn check_batches(&self, records: &[(i32, Vec<NewRecord>)]) -> Result<(), ClientError> {
        let (topic, count) = (&self.topic, self.leaders.len());
        let per_partition_max = if self.identity.is_some() { IN_FLIGHT_MAX } else { 1 };
        let mut counts = HashMap::new();
        for (partition, _) in records {
            let refused = |why: String| {
                Err(ClientError::invalid(format!(
                    "cannot send to {topic:?}, partition {partition}: {why}"
                )))
            };
            if usize::try_from(*partition).map_or(true, |it| it >= count) {
                return refused(format!("it has {count}"));
            }
            let batches = counts.entry(partition).or_insert(0);
            *batches += 1;
            if *batches > per_partition_max {
                return refused(format!("it takes {per_partition_max} batches at a time"));
            }
        }
        Ok(())
    }

    /// Sends all `shipments` and removes those that are acknowledged.
    async fn ship(
        &self,
        shipments: &mut Vec<Shipment>,
        offsets: &mut Vec<(i32, i64)>,
    ) -> Result<(), ClientError> {
        let mut waiting = Vec::with_capacity(shipments.len());
        for shipment in &*shipments {
            let leader = &self.leaders[usize::try_from(shipment.partition).unwrap_or_default()];
            let version = leader.version_up_to::<ProduceRequest>(self.version_max())?;
            let request = self.request(shipment);
            if self.settings.acks == Acks::None {
                leader.send_only(&request, version).await?;
                offsets.push((shipment.partition, -1));
            } else {
                let sent = leader.submit(&request, version).await?;
                waiting.push((shipment.number, shipment.partition, sent));
            }
        }
        let mut first_error = None;
        for (number, partition, waiting) in waiting {
            let response = waiting.response().await;
            match response.and_then(|it| self.offset_in(&it, partition)) {
                Ok(offset) => {
                    offsets.push((partition, offset));
                    shipments.retain(|shipment| shipment.number != number);
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    fn version_max(&self) -> i16 {
        match self.transactional_id {
            Some(_) => TRANSACTIONAL_VERSION_MAX,
            None => PRODUCE_VERSION_MAX,
        }
    }

    fn request(&self, shipment: &Shipment) -> ProduceRequest {
        let data = PartitionProduceData::default()
            .with_index(shipment.partition)
            .with_records(Some(shipment.batch.clone()));
        let topic = TopicProduceData::default()
            .with_name(topic_name(&self.topic))
            .with_partition_data(vec![data]);
        let time_max = self.client.settings().request_time_max.as_millis();
        ProduceRequest::default()
            .with_transactional_id(self.transactional_id.clone())
            .with_acks(self.settings.acks.number())
            .with_timeout_ms(i32::try_from(time_max).unwrap_or(i32::MAX))
            .with_topic_data(vec![topic])
    }

    fn offset_in(&self, response: &ProduceResponse, partition: i32) -> Result<i64, ClientError> {
        let attempt = format!("append to {:?}, partition {partition}", self.topic);
        let results = response.responses.iter().flat_map(|topic| &topic.partition_responses);
        let result = results.into_iter().find(|it| it.index == partition);
        let result = result.ok_or_else(|| no_result(&attempt))?;
        if result.error_code == ResponseError::DuplicateSequenceNumber.code() {
            return Ok(result.base_offset);
        }
        let right = format_args!("Write on topic {:?}", self.topic);
        check_right(result.error_code, result.error_message.as_deref(), attempt, right)?;
        Ok(result.base_offset)
    }
}

impl Identity {
    async fn obtain_within(retry: &mut Retry, client: &Client) -> Result<Self, ClientError> {
        loop {
            match retry.attempt(Self::obtain_once(client)).await {
                Ok(identity) => return Ok(identity),
                Err(error) => retry.after(error).await?,
            }
        }
    }

    async fn obtain_once(client: &Client) -> Result<Self, ClientError> {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
        let response = client.ask(&request).await?;
        const RIGHTS: &str = "IdempotentWrite on the cluster or Write on a topic";
        check_right(response.error_code, None, "get a producer id", RIGHTS)?;
        let sequences = HashMap::new();
        Ok(Self { id: response.producer_id.0, epoch: response.producer_epoch, sequences })
    }

    /// Returns the producer fields of the next batch, which has `count` records. Sequence numbers
    /// wrap around to 0.
    fn next(&mut self, partition: i32, count: usize) -> BatchProducer {
        let sequence = self.sequences.entry(partition).or_insert(0);
        let batch = BatchProducer { id: self.id, epoch: self.epoch, sequence: *sequence };
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        *sequence = sequence.wrapping_add(count) & i32::MAX;
        batch
    }
}

/// Returns the partition of a key, which is chosen as by Kafka's default partitioner (murmur2
/// hash).
pub fn partition_of_key(key: &[u8], count: usize) -> i32 {
    let count = u32::try_from(count).unwrap_or(u32::MAX).max(1);
    let partition = (murmur2(key) & 0x7FFF_FFFF) % count;
    i32::try_from(partition).expect("31 bits fit")
}

/// Hash function of Kafka's default partitioner. Source: Austin Appleby, MurmurHash2, with Kafka's
/// seed.
fn murmur2(bytes: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_B28C;
    const FACTOR: u32 = 0x5BD1_E995;
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut hash = SEED ^ length;
    let words = bytes.chunks_exact(4);
    let rest = words.remainder();
    for word in words {
        let word = word.iter().rev().fold(0, |sum, &byte| sum << 8 | u32::from(byte));
        let mixed = word.wrapping_mul(FACTOR);
        let mixed = (mixed ^ mixed >> 24).wrapping_mul(FACTOR);
        hash = hash.wrapping_mul(FACTOR) ^ mixed;
    }
    if !rest.is_empty() {
        let rest = rest.iter().rev().fold(0, |sum, &byte| sum << 8 | u32::from(byte));
        hash = (hash ^ rest).wrapping_mul(FACTOR);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(FACTOR);
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_hash_as_in_kafkas_clients() {
        // From the tests of Apache Kafka's Utils.murmur2.
        for (key, hash) in [
            (&b"21"[..], -973_932_308_i32),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            (b"abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key).cast_signed(), hash, "{key:?}");
        }
    }

    #[test]
    fn a_partition_is_one_of_those_that_there_are() {
        for count in 1..20_u8 {
            for key in 0..100_u8 {
                let partition = partition_of_key(&[key], count.into());
                assert!((0..i32::from(count)).contains(&partition));
            }
        }
        assert_eq!(partition_of_key(b"a", 0), 0);
    }

    #[test]
    fn sequences_count_records_and_begin_again_at_zero() {
        let mut identity =
            Identity { id: 1, epoch: 0, sequences: HashMap::from([(3, i32::MAX - 1)]) };
        assert_eq!(identity.next(0, 5).sequence, 0);
        assert_eq!(identity.next(0, 5).sequence, 5);
        assert_eq!(identity.next(3, 4).sequence, i32::MAX - 1);
        assert_eq!(identity.next(3, 1).sequence, 2);
    }
}
