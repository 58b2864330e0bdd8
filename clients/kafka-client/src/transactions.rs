//! Transactional producer: records and offsets that become visible together or not at all.
//!
//! ```text
//! new ──▶ send, commit_offsets … ──▶ commit or abort ──▶ send …
//! ```
//!
//! A new producer with the same transactional id aborts the transaction that its predecessor left
//! open and fences the predecessor (KIP-98). Requests are repeated until they are answered, because
//! the coordinator recognizes repetitions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest,
    ProducerId, TransactionalId, TxnOffsetCommitRequest,
};
use kafka_protocol::protocol::Request;
use record_batch::{BatchProducer, Codec as Compression, NewRecord};

use crate::client::{Client, text, topic_name};
use crate::connection::Connection;
use crate::error::{ClientError, check, check_right};
use crate::groups::{CommittedOffset, group_id};
use crate::membership::GroupGeneration;
use crate::producer::{Producer, ProducerSettings};

/// The next versions are meant for brokers (KIP-890), or do not require producers to register
/// partitions.
const ADD_PARTITIONS_VERSION_MAX: i16 = 3;
const ADD_OFFSETS_VERSION_MAX: i16 = 3;
const COMMIT_OFFSETS_VERSION_MAX: i16 = 3;
const END_VERSION_MAX: i16 = 3;
const INIT_VERSION_MAX: i16 = 4;

/// Settings of a transactional producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionSettings {
    pub compression: Compression,
    /// Transaction timeout, after which the broker aborts an open transaction.
    pub time_max: Duration,
}

/// Sends records to several topics, and offsets of groups, in consecutive transactions. After an
/// error that is not retriable, only `abort` or a new producer can continue.
#[derive(Debug)]
pub struct TransactionalProducer {
    client: Arc<Client>,
    id: String,
    compression: Compression,
    producer_id: i64,
    epoch: i16,
    /// Producers by topic.
    producers: BTreeMap<String, Producer>,
    /// Partitions and groups in the open transaction.
    partitions: BTreeSet<(String, i32)>,
    groups: BTreeSet<String>,
}

/// Outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Commit,
    Abort,
}

impl TransactionalProducer {
    /// Initializes the transactional id and fences an earlier producer with it.
    pub async fn new(
        client: Arc<Client>,
        id: &str,
        settings: TransactionSettings,
    ) -> Result<Self, ClientError> {
        let time_max_ms = i32::try_from(settings.time_max.as_millis()).unwrap_or(i32::MAX);
        let mut producer = Self {
            client,
            id: id.to_owned(),
            compression: settings.compression,
            producer_id: -1,
            epoch: -1,
            producers: BTreeMap::new(),
            partitions: BTreeSet::new(),
            groups: BTreeSet::new(),
        };
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(producer.transactional_id()))
            .with_transaction_timeout_ms(time_max_ms)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
        let attempt = format!("initialize transactional producer {id:?}");
        let response = producer
            .ask(&request, INIT_VERSION_MAX, |it| {
                check_right(
                    it.error_code,
                    None,
                    &attempt,
                    format_args!("Write on transactional id {id:?}"),
                )
            })
            .await?;
        producer.producer_id = response.producer_id.0;
        producer.epoch = response.producer_epoch;
        Ok(producer)
    }

    /// Sends records to partitions of a topic. Returns the base offset of each batch, as
    /// [`Producer::send`] does.
    pub async fn send(
        &mut self,
        topic: &str,
        records: Vec<(i32, Vec<NewRecord>)>,
    ) -> Result<Vec<(i32, i64)>, ClientError> {
        let partitions: BTreeSet<_> =
            records.iter().map(|(partition, _)| (topic.to_owned(), *partition)).collect();
        self.add_partitions(topic, partitions).await?;
        if !self.producers.contains_key(topic) {
            let settings = ProducerSettings {
                compression: self.compression,
                is_idempotent: true,
                ..ProducerSettings::default()
            };
            let numbers = BatchProducer { id: self.producer_id, epoch: self.epoch, sequence: 0 };
            let client = Arc::clone(&self.client);
            let made = Producer::transactional(client, topic, settings, &self.id, numbers).await?;
            self.producers.insert(topic.to_owned(), made);
        }
        let producer = self.producers.get_mut(topic).expect("it was made above");
        producer.send(records).await
    }

    async fn add_partitions(
        &mut self,
        topic: &str,
        mut partitions: BTreeSet<(String, i32)>,
    ) -> Result<(), ClientError> {
        partitions.retain(|it| !self.partitions.contains(it));
        if partitions.is_empty() {
            return Ok(());
        }
        let added = AddPartitionsToTxnTopic::default()
            .with_name(topic_name(topic))
            .with_partitions(partitions.iter().map(|(_, partition)| *partition).collect());
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(self.transactional_id())
            .with_v3_and_below_producer_id(ProducerId(self.producer_id))
            .with_v3_and_below_producer_epoch(self.epoch)
            .with_v3_and_below_topics(vec![added]);
        let attempt = format!("add partitions of {topic:?} to a transaction of {:?}", self.id);
        self.ask(&request, ADD_PARTITIONS_VERSION_MAX, |response| {
            let topics = &response.results_by_topic_v3_and_below;
            let mut results = topics.iter().flat_map(|topic| &topic.results_by_partition);
            results.try_for_each(|it| check(it.partition_error_code, None, &attempt))
        })
        .await?;
        self.partitions.append(&mut partitions);
        Ok(())
    }

    /// Adds offset commits of a group to the transaction. Fails if the group has rebalanced since
    /// `generation`.
    pub async fn commit_offsets(
        &mut self,
        generation: &GroupGeneration,
        offsets: &[CommittedOffset],
    ) -> Result<(), ClientError> {
        let group = &generation.group;
        if !self.groups.contains(group) {
            let request = AddOffsetsToTxnRequest::default()
                .with_transactional_id(self.transactional_id())
                .with_producer_id(ProducerId(self.producer_id))
                .with_producer_epoch(self.epoch)
                .with_group_id(group_id(group));
            let attempt = format!("add group {group:?} to a transaction of {:?}", self.id);
            let added = |code| check(code, None, &attempt);
            self.ask(&request, ADD_OFFSETS_VERSION_MAX, |it| added(it.error_code)).await?;
            self.groups.insert(group.clone());
        }
        let request = self.offsets_request(generation, offsets);
        let attempt = format!("commit offsets of group {group:?} in a transaction");
        let mut retry = self.client.retry();
        loop {
            let coordinator = self.client.coordinator(group).await?;
            let version =
                coordinator.version_up_to::<TxnOffsetCommitRequest>(COMMIT_OFFSETS_VERSION_MAX)?;
            let committed = retry.attempt(coordinator.call(&request, version)).await;
            match committed.and_then(|response| {
                let mut results = response.topics.iter().flat_map(|topic| &topic.partitions);
                results.try_for_each(|it| check(it.error_code, None, &attempt))
            }) {
                Ok(()) => return Ok(()),
                Err(error) => retry.after(error).await?,
            }
        }
    }

    fn offsets_request(
        &self,
        generation: &GroupGeneration,
        offsets: &[CommittedOffset],
    ) -> TxnOffsetCommitRequest {
        let mut topics = BTreeMap::<&str, Vec<TxnOffsetCommitRequestPartition>>::new();
        for committed in offsets {
            let partition = TxnOffsetCommitRequestPartition::default()
                .with_partition_index(committed.partition)
                .with_committed_offset(committed.offset)
                .with_committed_metadata(Some(text("")));
            topics.entry(&committed.topic).or_default().push(partition);
        }
        let topic = |(name, partitions)| {
            TxnOffsetCommitRequestTopic::default()
                .with_name(topic_name(name))
                .with_partitions(partitions)
        };
        TxnOffsetCommitRequest::default()
            .with_transactional_id(self.transactional_id())
            .with_group_id(group_id(&generation.group))
            .with_producer_id(ProducerId(self.producer_id))
            .with_producer_epoch(self.epoch)
            .with_generation_id(generation.generation)
            .with_member_id(text(&generation.member_id))
            .with_topics(topics.into_iter().map(topic).collect())
    }

    /// Commits the transaction.
    pub async fn commit(&mut self) -> Result<(), ClientError> {
        self.end(End::Commit).await
    }

    /// Aborts the transaction.
    pub async fn abort(&mut self) -> Result<(), ClientError> {
        self.end(End::Abort).await
    }

    async fn end(&mut self, end: End) -> Result<(), ClientError> {
        if self.partitions.is_empty() && self.groups.is_empty() {
            return Ok(());
        }
        let request = EndTxnRequest::default()
            .with_transactional_id(self.transactional_id())
            .with_producer_id(ProducerId(self.producer_id))
            .with_producer_epoch(self.epoch)
            .with_committed(end == End::Commit);
        let attempt = match end {
            End::Commit => format!("commit a transaction of {:?}", self.id),
            End::Abort => format!("abort a transaction of {:?}", self.id),
        };
        let ended = |code| check(code, None, &attempt);
        self.ask(&request, END_VERSION_MAX, |it| ended(it.error_code)).await?;
        self.partitions.clear();
        self.groups.clear();
        Ok(())
    }

    /// Sends a request to the transaction coordinator, with retries.
    async fn ask<R: Request>(
        &self,
        request: &R,
        version_max: i16,
        check: impl Fn(&R::Response) -> Result<(), ClientError>,
    ) -> Result<R::Response, ClientError> {
        let mut retry = self.client.retry();
        loop {
            match retry.attempt(self.ask_once(request, version_max, &check)).await {
                Ok(response) => return Ok(response),
                Err(error) => retry.after(error).await?,
            }
        }
    }

    async fn ask_once<R: Request>(
        &self,
        request: &R,
        version_max: i16,
        check: &impl Fn(&R::Response) -> Result<(), ClientError>,
    ) -> Result<R::Response, ClientError> {
        let coordinator: Arc<Connection> = self.client.transaction_coordinator(&self.id).await?;
        let version = coordinator.version_up_to::<R>(version_max)?;
        let response = coordinator.call(request, version).await?;
        check(&response)?;
        Ok(response)
    }

    fn transactional_id(&self) -> TransactionalId {
        TransactionalId(text(&self.id))
    }
}
