//! A partition on a volume in memory, with a history of all records published to it.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::BTreeMap;
use std::sync::Arc;

use block_device::{BlockDevice, SectorSize};
use model::{ModelVolume, Random};
use record_batch::{
    BatchOptions, BatchProducer, Codec, Marker, NewRecord, TransactionEnd, encode_batch,
};
use record_log::{
    Batch, Compaction, CompactionOptions, CompactionStep, NewTopic, Partition, Topic, TopicOptions,
};
use values::{ScanStep, Snapshot, ValuesError};

pub(crate) const SIZE_BYTES: u64 = 64 << 40;

/// Small segments, so that short histories have many.
pub(crate) const OPTIONS: TopicOptions = TopicOptions { segment_bytes: 2 << 10 };

const KEY_COUNT: usize = 12;

/// The first producer is not transactional.
const PRODUCERS: [i64; 3] = [70, 71, 72];

/// A time before all timestamps, at which nothing has expired.
pub(crate) const BEFORE_ALL: i64 = i64::MIN;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) offset: i64,
    pub(crate) timestamp_ms: i64,
    pub(crate) key: Option<String>,
    pub(crate) value: Option<String>,
}

/// A batch that was appended.
#[derive(Clone, Debug)]
struct Appended {
    producer_id: i64,
    is_transactional: bool,
    marker: Option<Marker>,
    entries: Vec<Entry>,
}

/// Values of a partition by key: offset and value.
pub(crate) type Rows = BTreeMap<String, (i64, String)>;

pub(crate) struct History {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) topic: Topic,
    pub(crate) partition: Arc<Partition>,
    pub(crate) now_ms: i64,
    appended: Vec<Appended>,
}

pub(crate) fn new_device() -> Arc<dyn BlockDevice> {
    Arc::new(ModelVolume::new(SIZE_BYTES, SectorSize::Bytes4096))
}

pub(crate) fn new_topic(device: &Arc<dyn BlockDevice>, id: [u8; 16]) -> Topic {
    let new = NewTopic { id, partition_count: 2, options: OPTIONS, properties: &[] };
    Topic::create(Arc::clone(device), &new).expect("it is made")
}

pub(crate) fn append(partition: &Partition, bytes: &[u8]) -> i64 {
    let mut bytes = bytes.to_vec();
    let (mut batch, rest) = Batch::split_first(&mut bytes).expect("a good batch");
    assert!(rest.is_empty(), "one batch");
    partition.append(&mut batch, 0).expect("there is room").base_offset
}

impl History {
    pub(crate) fn new() -> Self {
        let device = new_device();
        let topic = new_topic(&device, [1; 16]);
        let partition = topic.partition(1).expect("it is there");
        Self { device, topic, partition, now_ms: 1_000, appended: Vec::new() }
    }

    /// Reopens the topic as after a crash. All handles of the topic must have been dropped.
    pub(crate) fn reopen(self) -> Self {
        // Flushed first, because unflushed records may be lost and the model does not cover that.
        self.topic.flush().expect("it flushes");
        let Self { device, topic, partition, now_ms, appended } = self;
        drop((topic, partition));
        let topic = Topic::open(Arc::clone(&device), OPTIONS).expect("it opens");
        let topic = topic.expect("there is one");
        let partition = topic.partition(1).expect("it is there");
        Self { device, topic, partition, now_ms, appended }
    }

    fn is_open(&self, producer_id: i64) -> bool {
        let last = self.appended.iter().rev().find(|it| it.producer_id == producer_id);
        last.is_some_and(|it| it.is_transactional && it.marker.is_none())
    }

    fn sequence(&self, producer_id: i64) -> i32 {
        let of_it = self.appended.iter().filter(|it| it.producer_id == producer_id);
        i32::try_from(of_it.map(|it| it.entries.len()).sum::<usize>()).expect("a short history")
    }

    pub(crate) fn publish(&mut self, random: &mut Random) {
        let producer_id = random.pick(&PRODUCERS);
        if self.is_open(producer_id) && random.one_in(3) {
            return self.end_transaction(producer_id, random);
        }
        let entries: Vec<Entry> = (self.partition.next_offset()..)
            .take(1 + random.index(5))
            .map(|offset| Entry {
                offset,
                timestamp_ms: self.now_ms - i64::try_from(random.below(20)).expect("small"),
                key: (!random.one_in(15)).then(|| format!("key {}", random.index(KEY_COUNT))),
                value: (!random.one_in(5)).then(|| "v".repeat(random.index(100))),
            })
            .collect();
        let is_transactional = producer_id != PRODUCERS[0];
        let options = BatchOptions {
            compression: random.pick(&Codec::ALL),
            producer: Some(BatchProducer {
                id: producer_id,
                epoch: 0,
                sequence: self.sequence(producer_id),
            }),
            is_transactional,
        };
        append(&self.partition, &encode(&entries, &options));
        self.appended.push(Appended { producer_id, is_transactional, marker: None, entries });
    }

    fn end_transaction(&mut self, producer_id: i64, random: &mut Random) {
        let marker = random.pick(&[Marker::Abort, Marker::Commit]);
        let end = TransactionEnd {
            producer_id,
            producer_epoch: 0,
            coordinator_epoch: 0,
            unix_ms: self.now_ms,
        };
        append(&self.partition, &marker.to_batch(end));
        self.appended.push(Appended {
            producer_id,
            is_transactional: true,
            marker: Some(marker),
            entries: Vec::new(),
        });
    }

    /// Ends all transactions, so that the outcome of every record is decided.
    pub(crate) fn settle(&mut self, random: &mut Random) {
        for producer_id in PRODUCERS {
            if self.is_open(producer_id) {
                self.end_transaction(producer_id, random);
            }
        }
        self.topic.flush().expect("it flushes");
    }

    pub(crate) fn delete(&mut self, random: &mut Random) {
        let (start, end) = (self.partition.start_offset(), self.partition.stable_offset());
        let most = (end - start).unsigned_abs() / 3 + 1;
        let offset = start + i64::try_from(random.below(most)).expect("small");
        self.partition.delete_before(offset).expect("it deletes");
    }

    /// Runs a compaction pass, sometimes partially.
    pub(crate) fn compact(&mut self, random: &mut Random) {
        let options = CompactionOptions {
            now_ms: self.now_ms,
            delete_retention_ms: 20,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            min_dirty_ratio: 0.0,
            map_bytes_max: 1 << 16,
            hash_secret: [9; 16],
        };
        let pass = Compaction::begin(&self.partition, &options).expect("it begins");
        let Some(mut pass) = pass else { return };
        let step_max = if random.one_in(4) { random.index(5) } else { usize::MAX };
        for _ in 0..step_max {
            if pass.step().expect("it goes on") == CompactionStep::Done {
                return;
            }
        }
    }

    /// Returns the committed records before an offset, in order. All transactions before it must be
    /// decided.
    pub(crate) fn committed(&self, before: i64) -> Vec<&Entry> {
        let mut open: BTreeMap<i64, Vec<&Entry>> = BTreeMap::new();
        let mut found: Vec<&Entry> = Vec::new();
        for it in &self.appended {
            let of_producer = open.entry(it.producer_id).or_default();
            of_producer.extend(&it.entries);
            match it.marker {
                Some(Marker::Abort) => of_producer.clear(),
                Some(Marker::Commit) => found.append(of_producer),
                None if !it.is_transactional => found.append(of_producer),
                None => {}
            }
        }
        found.retain(|it| it.offset < before);
        found.sort_by_key(|it| it.offset);
        found
    }

    /// Returns the expected values at an offset, restricted to those still in the log.
    pub(crate) fn expected(&self, at: i64, ttl_ms: Option<i64>, now_ms: i64) -> Rows {
        let mut latest: BTreeMap<&String, &Entry> = BTreeMap::new();
        for entry in self.committed(at) {
            if let Some(key) = &entry.key {
                latest.insert(key, entry);
            }
        }
        let start_offset = self.partition.start_offset();
        let is_there = |it: &&Entry| {
            let has_expired = ttl_ms.is_some_and(|ttl_ms| it.timestamp_ms + ttl_ms <= now_ms);
            it.offset >= start_offset && !has_expired
        };
        let there = latest.into_iter().filter(|(_, it)| is_there(it));
        there.filter_map(|(key, it)| Some((key.clone(), (it.offset, it.value.clone()?)))).collect()
    }
}

pub(crate) fn encode(entries: &[Entry], options: &BatchOptions) -> Vec<u8> {
    let records: Vec<NewRecord> = entries
        .iter()
        .map(|it| NewRecord {
            key: it.key.clone().map(Into::into),
            value: it.value.clone().map(Into::into),
            headers: Vec::new(),
            timestamp_ms: it.timestamp_ms,
        })
        .collect();
    encode_batch(&records, options).expect("some records").to_vec()
}

pub(crate) fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8(bytes.expect("it is there").to_vec()).expect("it was text")
}

/// Returns all rows of a snapshot.
pub(crate) fn rows(snapshot: &Snapshot, now_ms: i64) -> Result<Rows, ValuesError> {
    let mut rows = Rows::new();
    let mut scan = snapshot.scan_all();
    let mut before = -1;
    loop {
        let step = scan.step(now_ms, &mut |record| {
            assert!(record.offset > before, "in the order of the log");
            before = record.offset;
            let row = (record.offset, text(record.value));
            assert_eq!(rows.insert(text(record.key), row), None, "a key has one value");
        })?;
        if step == ScanStep::Done {
            return Ok(rows);
        }
    }
}
