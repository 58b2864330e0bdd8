//! Fetching records from partitions.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::{AbortedTransaction, PartitionData};
use kafka_protocol::messages::{BrokerId, FetchRequest, FetchResponse};
use record_batch::BatchHeader;

use crate::batch::{Record, decode_records, first_batch};
use crate::client::{Client, topic_name};
use crate::connection::Connection;
use crate::error::{ClientError, check, check_right};

/// Versions 13 and later identify topics by id.
pub(crate) const FETCH_VERSION_MAX: i16 = 12;

/// No fetch session: each request lists all partitions.
pub(crate) const SESSION_EPOCH_NONE: i32 = -1;

/// Visibility of records of open and aborted transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    #[default]
    ReadUncommitted,
    ReadCommitted,
}

impl Isolation {
    pub(crate) fn level(self) -> i8 {
        match self {
            Self::ReadUncommitted => 0,
            Self::ReadCommitted => 1,
        }
    }
}

/// Limits on a response, and on the time that the broker waits for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchLimits {
    /// Time for which the broker waits until `bytes_min` are available.
    pub wait_max: Duration,
    pub bytes_min: i32,
    pub bytes_max: i32,
    pub partition_bytes_max: i32,
    /// Memory limit of a decompressed batch.
    pub batch_bytes_max: usize,
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self {
            wait_max: Duration::from_millis(500),
            bytes_min: 1,
            bytes_max: 16 << 20,
            partition_bytes_max: 1 << 20,
            batch_bytes_max: 256 << 20,
        }
    }
}

/// Partition and offset to fetch from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
}

/// Result for one partition.
#[derive(Clone, Debug)]
pub struct FetchedPartition {
    pub topic: String,
    pub partition: i32,
    /// Fetched records, without control records and, with `ReadCommitted`, without aborted
    /// transactions.
    pub records: Vec<Record>,
    /// Offset to fetch from next. It may be beyond filtered records.
    pub next_offset: i64,
    /// High watermark: offset of the next record to be replicated to all in-sync replicas.
    pub high_watermark: i64,
    /// Error that the broker returned for the partition.
    pub error: Option<ResponseError>,
}

impl FetchedPartition {
    /// Returns the error, with a description of the attempt.
    pub fn check(&self) -> Result<(), ClientError> {
        let code = self.error.map_or(0, |error| error.code());
        let Self { topic, partition, .. } = self;
        let right = format_args!("Read on topic {topic:?}");
        check_right(code, None, format_args!("read from {topic:?}, partition {partition}"), right)
    }
}

/// Fetches from partitions, and caches their leaders.
#[derive(Debug)]
pub struct Fetcher {
    client: Arc<Client>,
    limits: FetchLimits,
    isolation: Isolation,
    /// Leaders of each topic's partitions, by partition index.
    leaders: BTreeMap<String, Vec<Arc<Connection>>>,
}

impl Fetcher {
    pub fn new(client: Arc<Client>, limits: FetchLimits, isolation: Isolation) -> Self {
        Self { client, limits, isolation, leaders: BTreeMap::new() }
    }

    /// Fetches once from all `positions`, from all leaders concurrently. After an error, the next
    /// call looks up the leaders again.
    pub async fn fetch(
        &mut self,
        positions: &[Position],
    ) -> Result<Vec<FetchedPartition>, ClientError> {
        let fetched = self.fetch_once(positions).await;
        let is_good =
            fetched.as_ref().is_ok_and(|partitions| partitions.iter().all(|it| it.error.is_none()));
        if !is_good {
            self.leaders.clear();
        }
        fetched
    }

    async fn fetch_once(
        &mut self,
        positions: &[Position],
    ) -> Result<Vec<FetchedPartition>, ClientError> {
        let mut by_leader = BTreeMap::<String, (Arc<Connection>, Vec<Position>)>::new();
        for position in positions {
            let leader = self.leader(position).await?;
            let entry = by_leader.entry(leader.address().to_owned());
            entry.or_insert_with(|| (leader, Vec::new())).1.push(position.clone());
        }
        let mut waiting = Vec::with_capacity(by_leader.len());
        for (leader, wanted) in by_leader.values() {
            let version = leader.version_up_to::<FetchRequest>(FETCH_VERSION_MAX)?;
            let request = request(wanted, &self.limits, self.isolation);
            waiting.push((leader.submit(&request, version).await?, wanted));
        }
        let mut fetched = Vec::with_capacity(positions.len());
        for (waiting, wanted) in waiting {
            fetched.extend(self.read_response(waiting.response().await?, wanted)?);
        }
        Ok(fetched)
    }

    async fn leader(&mut self, position: &Position) -> Result<Arc<Connection>, ClientError> {
        let Position { topic, partition, .. } = position;
        if !self.leaders.contains_key(topic) {
            self.leaders.insert(topic.clone(), self.client.leaders(topic).await?);
        }
        let at = usize::try_from(*partition).ok();
        let leader = at.and_then(|at| self.leaders[topic].get(at)).cloned();
        leader.ok_or_else(|| {
            ClientError::invalid(format!("topic {topic:?} has no partition {partition}"))
        })
    }

    fn read_response(
        &self,
        response: FetchResponse,
        positions: &[Position],
    ) -> Result<Vec<FetchedPartition>, ClientError> {
        check(response.error_code, None, "read records")?;
        let mut fetched = Vec::with_capacity(positions.len());
        for topic in response.responses {
            for data in topic.partitions {
                let index = data.partition_index;
                let is_it =
                    |it: &&Position| it.topic == topic.topic.as_str() && it.partition == index;
                let position = positions.iter().find(is_it).ok_or_else(|| {
                    let topic = topic.topic.as_str();
                    let what = format!("records of {topic:?}, partition {index}");
                    ClientError::protocol(format!("the broker sent unrequested data: {what}"))
                })?;
                let bytes_max = self.limits.batch_bytes_max;
                fetched.push(read_partition(data, position, bytes_max, self.isolation)?);
            }
        }
        Ok(fetched)
    }
}

fn request(positions: &[Position], limits: &FetchLimits, isolation: Isolation) -> FetchRequest {
    let mut topics = Vec::<FetchTopic>::new();
    for position in positions {
        let partition = FetchPartition::default()
            .with_partition(position.partition)
            .with_fetch_offset(position.offset)
            .with_partition_max_bytes(limits.partition_bytes_max);
        match topics.iter_mut().find(|topic| topic.topic.as_str() == position.topic) {
            Some(topic) => topic.partitions.push(partition),
            None => {
                let topic = FetchTopic::default().with_topic(topic_name(&position.topic));
                topics.push(topic.with_partitions(vec![partition]));
            }
        }
    }
    let wait_max_ms = i32::try_from(limits.wait_max.as_millis()).unwrap_or(i32::MAX);
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(wait_max_ms)
        .with_min_bytes(limits.bytes_min)
        .with_max_bytes(limits.bytes_max)
        .with_isolation_level(isolation.level())
        .with_session_epoch(SESSION_EPOCH_NONE)
        .with_topics(topics)
}

fn read_partition(
    data: PartitionData,
    position: &Position,
    batch_bytes_max: usize,
    isolation: Isolation,
) -> Result<FetchedPartition, ClientError> {
    let mut fetched = FetchedPartition {
        topic: position.topic.clone(),
        partition: position.partition,
        records: Vec::new(),
        next_offset: position.offset,
        high_watermark: data.high_watermark,
        error: ResponseError::try_from_code(data.error_code),
    };
    let mut aborted = match isolation {
        Isolation::ReadUncommitted => Aborted::default(),
        Isolation::ReadCommitted => Aborted::new(data.aborted_transactions.unwrap_or_default()),
    };
    let mut rest = data.records.unwrap_or_default();
    while let Some(header) = first_batch(&rest)? {
        let batch = rest.split_to(header.size_bytes);
        if header.last_offset() < position.offset {
            continue;
        }
        if !aborted.hides(&header, &batch, batch_bytes_max)? {
            let records = decode_records(&batch, batch_bytes_max)?;
            let wanted = records.into_iter().filter(|record| record.offset >= position.offset);
            fetched.records.extend(wanted);
        }
        fetched.next_offset = header.last_offset().saturating_add(1);
    }
    Ok(fetched)
}

/// Aborted transactions in the batches of a response.
#[derive(Debug, Default)]
struct Aborted {
    /// Not yet started in the response, sorted by descending first offset.
    to_come: Vec<AbortedTransaction>,
    open: HashSet<i64>,
}

impl Aborted {
    fn new(mut transactions: Vec<AbortedTransaction>) -> Self {
        transactions.sort_by_key(|it| std::cmp::Reverse(it.first_offset));
        Self { to_come: transactions, open: HashSet::new() }
    }

    /// Returns whether the next batch belongs to an aborted transaction.
    fn hides(
        &mut self,
        header: &BatchHeader,
        batch: &Bytes,
        batch_bytes_max: usize,
    ) -> Result<bool, ClientError> {
        while let Some(next) = self.to_come.pop_if(|it| it.first_offset <= header.last_offset()) {
            self.open.insert(next.producer_id.0);
        }
        if header.is_control() {
            if is_abort(&decode_records(batch, batch_bytes_max)?) {
                self.open.remove(&header.producer_id);
            }
            return Ok(true);
        }
        Ok(header.is_transactional() && self.open.contains(&header.producer_id))
    }
}

/// Returns whether a control batch is an abort marker. The key of its record is version and type.
fn is_abort(records: &[Record]) -> bool {
    const ABORT: [u8; 4] = [0, 0, 0, 0];
    let key = records.first().and_then(|record| record.key.as_deref());
    key == Some(&ABORT[..])
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::ProducerId;
    use record_batch::{BatchOptions, BatchProducer, NewRecord, encode_batch, seal};

    use super::*;

    const BYTES_MAX: usize = 1 << 20;
    const IS_TRANSACTIONAL: u8 = 1 << 4;
    const IS_CONTROL: u8 = 1 << 5;

    /// Returns a batch at `offset` with one record for each letter.
    fn batch(offset: i64, letters: &str, producer: i64, attributes: u8) -> Vec<u8> {
        let record = |letter: char| NewRecord {
            key: (attributes & IS_CONTROL != 0).then(|| Bytes::from_static(&[0, 0, 0, 0])),
            value: Some(letter.to_string().into()),
            ..NewRecord::default()
        };
        let producer = Some(BatchProducer { id: producer, epoch: 0, sequence: 0 });
        let options = BatchOptions { producer, ..BatchOptions::default() };
        let records: Vec<_> = letters.chars().map(record).collect();
        let mut batch = encode_batch(&records, &options).expect("some records").to_vec();
        batch[..8].copy_from_slice(&offset.to_be_bytes());
        batch[22] |= attributes;
        seal(&mut batch);
        batch
    }

    fn seen(data: PartitionData, offset: i64, isolation: Isolation) -> (String, i64) {
        let position = Position { topic: "t".to_owned(), partition: 0, offset };
        let fetched = read_partition(data, &position, BYTES_MAX, isolation).expect("good batches");
        let letter = |it: &Record| {
            String::from_utf8_lossy(it.value.as_ref().expect("a letter")).into_owned()
        };
        (fetched.records.iter().map(letter).collect(), fetched.next_offset)
    }

    fn data(batches: &[Vec<u8>]) -> PartitionData {
        PartitionData::default().with_records(Some(batches.concat().into()))
    }

    #[test]
    fn records_before_the_position_are_left_out() {
        let batches = [batch(10, "abc", -1, 0), batch(13, "de", -1, 0)];
        assert_eq!(seen(data(&batches), 12, Isolation::ReadUncommitted), ("cde".to_owned(), 15));
        assert_eq!(seen(data(&batches), 13, Isolation::ReadUncommitted), ("de".to_owned(), 15));
    }

    #[test]
    fn a_batch_that_the_broker_has_cut_is_asked_for_again() {
        let mut cut = batch(13, "de", -1, 0);
        cut.pop();
        let batches = [batch(10, "abc", -1, 0), cut];
        assert_eq!(seen(data(&batches), 10, Isolation::ReadUncommitted), ("abc".to_owned(), 13));
    }

    #[test]
    fn aborted_records_are_seen_only_where_they_are_wanted() {
        let batches = [
            batch(0, "ab", 7, IS_TRANSACTIONAL),
            batch(2, "c", 8, IS_TRANSACTIONAL),
            batch(3, "x", 7, IS_TRANSACTIONAL | IS_CONTROL),
            batch(4, "d", 7, IS_TRANSACTIONAL),
        ];
        let aborted =
            AbortedTransaction::default().with_producer_id(ProducerId(7)).with_first_offset(0);
        let data = data(&batches).with_aborted_transactions(Some(vec![aborted]));
        assert_eq!(seen(data.clone(), 0, Isolation::ReadCommitted), ("cd".to_owned(), 5));
        assert_eq!(seen(data, 0, Isolation::ReadUncommitted), ("abcd".to_owned(), 5));
    }
}
