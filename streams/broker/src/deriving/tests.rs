//! Random publishes, transactions and crashes, compared with the result of SQL over the source.

mod left_out;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use random::Random;
use record_batch::{BatchOptions, BatchProducer, Marker, NewRecord, TransactionEnd, encode_batch};
use record_log::Batch;
use sql::{DefinitionKind, NewDefinition};
use tempfile::TempDir;

use super::changes::own_values;
use super::committed::Committed;
use super::output::SOURCE_HEADER;
use super::worker::Worker;
use super::{Deriving, objects_of};
use crate::clock;
use crate::definitions::Definitions;
use crate::storage::{Embedded, EmbeddedPool, Failing, Storage, Unreliable};
use crate::topics::{NewTopic, OpenTopic, Topics};

const PARTITIONS: u32 = 3;
const PRODUCER: i64 = 77;

type Pairs = Vec<(Option<String>, Option<String>)>;

/// State that survives crashes of a broker.
struct World {
    storage: Arc<Embedded>,
    failing: Arc<Failing>,
    _folder: TempDir,
    random: Random,
    sequences: BTreeMap<u32, i32>,
    /// Committed records by partition.
    committed: BTreeMap<u32, Pairs>,
    /// For each committed record, the number of earlier changes of its key's price.
    price_counts: BTreeMap<u32, Vec<usize>>,
    /// All prices of a key in the joined topic, starting with none.
    prices: BTreeMap<String, Vec<Option<u64>>>,
}

/// A broker between two crashes.
struct Life {
    topics: Arc<Topics>,
    definitions: Arc<Definitions>,
    worker: Worker,
}

impl World {
    fn new(seed: u64) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").expect("it is there");
        let file = Some(folder.path().join("pool"));
        let pool = EmbeddedPool { size_bytes: 256 << 20, file };
        let storage = Arc::new(Embedded::open(&pool).expect("it opens"));
        let random = Random::new(seed);
        let (failing, sequences, committed, price_counts, prices) = Default::default();
        let _folder = folder;
        Self { storage, failing, _folder, random, sequences, committed, price_counts, prices }
    }

    fn open(&self) -> Life {
        let (pool, failing) = (Arc::clone(&self.storage), Arc::clone(&self.failing));
        let storage: Arc<dyn Storage> = Arc::new(Unreliable { pool, failing });
        let topics = Topics::open(storage, BTreeMap::new()).expect("it opens");
        let class = topics.state_class();
        let definitions = Arc::new(Definitions::open(&*self.storage, class).expect("they open"));
        let deriving = Deriving::new(Arc::clone(&topics), Arc::clone(&definitions));
        let worker = Worker::new(Arc::new(deriving));
        Life { topics, definitions, worker }
    }

    fn create(&self, settings: &[(&str, &str)], statements: &[&str]) {
        let life = self.open();
        let settings = settings.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let (name, settings) = ("orders".to_owned(), settings.collect());
        let new = NewTopic {
            name,
            partition_count: PARTITIONS,
            settings,
            is_derived: false,
            owner: shares::Owner::NOBODY,
        };
        life.topics.create(&new).expect("there is room");
        for statement in statements {
            let name = statement.split_whitespace().find(|it| it.starts_with("d_"));
            let (name, statement) = (name.expect("a name").to_owned(), (*statement).to_owned());
            let is_view = statement.starts_with("CREATE MATERIALIZED VIEW");
            let kind = if is_view { DefinitionKind::View } else { DefinitionKind::Topic };
            let new = NewDefinition { name, kind, statement };
            life.definitions.put(new, "User:a").expect("there is room");
        }
    }

    fn random_record(&mut self) -> (Option<String>, Option<String>) {
        let key = format!("k{}", self.random.below(20));
        let (symbol, qty) = (self.random.below(4), self.random.below(100));
        let value = match self.random.below(10) {
            0 => None,
            1 => Some("no JSON".to_owned()),
            2 => Some(format!("{{\"qty\":{qty}}}")),
            3 => Some("{\"symbol\":null}".to_owned()),
            _ => Some(format!("{{\"symbol\":\"S{symbol}\",\"qty\":{qty}}}")),
        };
        (Some(key), value)
    }

    /// Publishes a batch, possibly in a transaction that is committed or aborted.
    fn publish(&mut self, topic: &OpenTopic) {
        let number = u32::try_from(self.random.below(u64::from(PARTITIONS))).expect("small");
        let count = 1 + self.random.below(8);
        let pairs: Pairs = (0..count).map(|_| self.random_record()).collect();
        let records: Vec<NewRecord> = pairs.iter().map(record_of).collect();
        let kind = self.random.below(4);
        let sequence = self.sequences.entry(number).or_default();
        let producer = BatchProducer { id: PRODUCER, epoch: 0, sequence: *sequence };
        let options = BatchOptions {
            producer: (kind < 2).then_some(producer),
            is_transactional: kind < 2,
            ..BatchOptions::default()
        };
        append(topic, number, encode_batch(&records, &options).expect("a batch").to_vec());
        if kind < 2 {
            *sequence += i32::try_from(count).expect("small");
            let marker = if kind == 0 { Marker::Commit } else { Marker::Abort };
            let end = TransactionEnd {
                producer_id: PRODUCER,
                producer_epoch: 0,
                coordinator_epoch: 0,
                unix_ms: clock::unix_ms(),
            };
            append(topic, number, marker.to_batch(end));
        }
        if kind != 1 {
            let counts = pairs.iter().map(|(key, _)| {
                let key = key.as_ref().expect("all have one");
                self.prices.get(key).map_or(0, |it| it.len() - 1)
            });
            self.price_counts.entry(number).or_default().extend(counts);
            self.committed.entry(number).or_default().extend(pairs);
        }
        topic.flush().expect("memory");
    }

    /// Changes some prices. Each key has its own partition.
    fn publish_prices(&mut self, topic: &OpenTopic) {
        for _ in 0..self.random.below(6) {
            let number = self.random.below(20);
            let key = format!("k{number}");
            let price = (self.random.below(4) > 0).then(|| self.random.below(1_000));
            let all = self.prices.entry(key.clone()).or_insert_with(|| vec![None]);
            all.push(price);
            let value = price.map(|it| format!("{{\"price\":{it}}}"));
            let records = [record_of(&(Some(key), value))];
            let batch = encode_batch(&records, &BatchOptions::default()).expect("a batch");
            let partition = u32::try_from(number % 2).expect("small");
            append(topic, partition, batch.to_vec());
        }
        topic.flush().expect("memory");
    }

    /// Alternates publishing and deriving, with crashes in between, some before a note is written.
    fn live(&mut self, outputs: &[String], steps: u64) -> usize {
        let mut deaths = 0;
        let mut life = self.open();
        for _ in 0..steps {
            let orders = life.topics.by_name("orders").expect("it is there");
            let prices = life.topics.by_name("prices");
            for _ in 0..self.random.below(5) {
                if let Some(prices) = &prices {
                    self.publish_prices(prices);
                }
                self.publish(&orders);
            }
            life.worker.find();
            let notes = notes_of(&life.topics, outputs);
            life.worker.turn_all(true);
            if self.random.below(3) == 0 {
                for (name, number, note) in notes {
                    // Simulates a crash before the note was written.
                    let topic = life.topics.by_name(&name).expect("it is there");
                    let log = topic.log.partition(number).expect("it is there");
                    log.set_note(&note).expect("memory");
                }
                drop(life);
                life = self.open();
                deaths += 1;
            }
        }
        life.worker.find();
        while life.worker.turn_all(true) {}
        deaths
    }

    /// Returns the last values of keys that have one.
    fn current(&self) -> BTreeMap<(u32, String), String> {
        let mut current = BTreeMap::new();
        for (number, pairs) in &self.committed {
            for (key, value) in pairs {
                let key = (*number, key.clone().expect("all have one"));
                match value {
                    Some(value) => drop(current.insert(key, value.clone())),
                    None => drop(current.remove(&key)),
                }
            }
        }
        current
    }
}

fn record_of((key, value): &(Option<String>, Option<String>)) -> NewRecord {
    let bytes = |it: &Option<String>| it.clone().map(Into::into);
    let timestamp_ms = clock::unix_ms();
    NewRecord { key: bytes(key), value: bytes(value), headers: Vec::new(), timestamp_ms }
}

fn append(topic: &OpenTopic, number: u32, mut bytes: Vec<u8>) {
    let (mut batch, _) = Batch::split_first(&mut bytes).expect("a good batch");
    let log = topic.log.partition(number).expect("it is there");
    let now_ms = clock::unix_ms();
    match batch.header().is_transactional() && !batch.header().is_control() {
        true => log.append_to_transaction(&mut batch, now_ms, log.next_offset()),
        false => log.append(&mut batch, now_ms),
    }
    .expect("there is room");
}

fn notes_of(topics: &Topics, outputs: &[String]) -> Vec<(String, u32, Vec<u8>)> {
    let mut notes = Vec::new();
    for name in outputs {
        let Some(topic) = topics.by_name(name) else { continue };
        for number in 0..topic.log.partition_count() {
            let log = topic.log.partition(number).expect("it is there");
            if let Some(note) = log.note().expect("memory") {
                notes.push((name.clone(), number, note));
            }
        }
    }
    notes
}

fn text(bytes: Option<&[u8]>) -> Option<String> {
    bytes.map(|it| String::from_utf8(it.to_vec()).expect("text"))
}

fn each_record(topic: &OpenTopic, number: u32, look: &mut dyn FnMut(&record_batch::Record<'_>)) {
    let log = topic.log.partition(number).expect("it is there");
    let mut read = Committed::from(0);
    loop {
        let outcome = read.read(&log, &mut *look).expect("memory");
        read.position = outcome.next;
        if !outcome.is_behind {
            return;
        }
    }
}

/// Returns all records of a derived topic, and the source offsets in them.
fn log_of(topic: &OpenTopic, number: u32) -> (Pairs, Vec<i64>) {
    let (mut pairs, mut offsets) = (Vec::new(), Vec::new());
    each_record(topic, number, &mut |record| {
        pairs.push((text(record.key), text(record.value)));
        let named = record.headers.iter().find(|it| it.0 == SOURCE_HEADER.as_bytes());
        let named = named.and_then(|it| text(it.1)).expect("it names its source");
        offsets.push(named.parse().expect("a number"));
    });
    (pairs, offsets)
}

fn values_of(topic: &OpenTopic) -> BTreeMap<(u32, String), String> {
    let mut found = BTreeMap::new();
    for number in 0..topic.log.partition_count() {
        let own = own_values(&topic.log.partition(number).expect("it is there")).expect("memory");
        let snapshot = own.values().snapshot().expect("it is ready");
        let mut scan = snapshot.scan_all();
        let mut add = |record: &record_batch::Record<'_>| {
            let key = (number, text(record.key).expect("all have one"));
            found.insert(key, text(record.value).expect("no tombstone"));
        };
        while scan.step(i64::MIN, &mut add).expect("memory") == values::ScanStep::More {}
    }
    found
}

fn field(value: &str, name: &str) -> Option<serde_json::Value> {
    let value: serde_json::Value = serde_json::from_str(value).ok()?;
    value.get(name).filter(|it| !it.is_null()).cloned()
}

#[test]
fn a_derived_topic_has_what_passes_once_and_in_order_whenever_the_broker_dies() {
    let mut deaths = 0;
    for seed in 0..10 {
        let mut world = World::new(seed);
        let statement = "CREATE TOPIC d_big AS SELECT * FROM orders WHERE \
                         (value->>'qty')::bigint >= 50";
        world.create(&[], &[statement]);
        deaths += world.live(&["d_big".to_owned()], 40);
        let life = world.open();
        let derived = life.topics.by_name("d_big").expect("it is there");
        for number in 0..PARTITIONS {
            let (pairs, offsets) = log_of(&derived, number);
            let committed = world.committed.get(&number).cloned().unwrap_or_default();
            let qty = |it: &str| field(it, "qty").and_then(|it| it.as_i64());
            let passes =
                |it: &(_, Option<String>)| it.1.as_deref().and_then(qty).is_some_and(|it| it >= 50);
            let expected: Pairs = committed.into_iter().filter(passes).collect();
            assert_eq!(pairs, expected, "seed {seed}, partition {number}");
            assert!(offsets.is_sorted(), "{offsets:?}");
        }
    }
    assert!(deaths > 50, "{deaths} deaths");
}

impl World {
    /// Derives while all flushes fail. Returns the ends of the partitions whose last records are
    /// not stable.
    fn derive_unflushed(&self, life: &mut Life, derived: &OpenTopic) -> Vec<(u32, i64)> {
        self.failing.flushes.store(true, Ordering::Release);
        life.worker.turn_all(true);
        self.failing.flushes.store(false, Ordering::Release);
        let log = |number| derived.log.partition(number).expect("it is there");
        let ends = (0..PARTITIONS).map(|it| (it, log(it).next_offset()));
        ends.filter(|(number, end)| log(*number).stable_offset() < *end).collect()
    }

    /// Restarts the worker, like a retry after an error.
    fn begin_anew(life: &mut Life) {
        let deriving = Deriving::new(Arc::clone(&life.topics), Arc::clone(&life.definitions));
        life.worker = Worker::new(Arc::new(deriving));
        life.worker.find();
        while life.worker.turn_all(true) {}
    }
}

#[test]
fn what_a_flush_did_not_make_stable_is_not_made_again() {
    let mut world = World::new(5);
    world.create(&[], &["CREATE TOPIC d_all AS SELECT * FROM orders"]);
    let (mut life, mut unstable) = (world.open(), 0);
    life.worker.find();
    let topic = |life: &Life, name| life.topics.by_name(name).expect("it is there");
    let (orders, derived) = (topic(&life, "orders"), topic(&life, "d_all"));
    for _ in 0..30 {
        (0..3).for_each(|_| world.publish(&orders));
        unstable += world.derive_unflushed(&mut life, &derived).len();
        World::begin_anew(&mut life);
    }
    assert!(unstable > 10, "{unstable} times something was not stable");
    for number in 0..PARTITIONS {
        let (pairs, offsets) = log_of(&derived, number);
        assert!(offsets.is_sorted_by(|a, b| a < b), "partition {number}: {offsets:?}");
        assert_eq!(pairs, world.committed.remove(&number).unwrap_or_default());
    }
}

#[test]
fn values_that_a_flush_did_not_make_stable_are_not_made_again() {
    let mut world = World::new(5);
    let statement = "CREATE TOPIC d_all AS SELECT * FROM \"orders$current\"";
    world.create(&[("memlane.values", "latest")], &[statement]);
    let (mut life, mut unstable) = (world.open(), 0);
    life.worker.find();
    let topic = |life: &Life, name| life.topics.by_name(name).expect("it is there");
    let (orders, derived) = (topic(&life, "orders"), topic(&life, "d_all"));
    for _ in 0..30 {
        (0..3).for_each(|_| world.publish(&orders));
        // The first steps load existing state.
        for _ in 0..3 {
            life.worker.turn_all(true);
        }
        (0..3).for_each(|_| world.publish(&orders));
        let ends = world.derive_unflushed(&mut life, &derived);
        unstable += ends.len();
        World::begin_anew(&mut life);
        for (number, end) in ends {
            let mut values = BTreeMap::new();
            each_record(&derived, number, &mut |record| {
                let (key, value) = (text(record.key), text(record.value));
                let before = values.insert(key, value.clone());
                let is_again = record.offset >= end && before == Some(value);
                assert!(!is_again, "offset {} of partition {number}", record.offset);
            });
        }
    }
    assert!(unstable > 10, "{unstable} times something was not stable");
}

#[test]
fn what_is_dropped_while_the_storage_is_away_can_be_dropped_again() {
    let world = World::new(5);
    world.create(&[], &["CREATE TOPIC d_all AS SELECT * FROM orders"]);
    let mut life = world.open();
    life.worker.find();
    let deriving = Deriving::new(Arc::clone(&life.topics), Arc::clone(&life.definitions));
    let definition = life.definitions.get("d_all").expect("it is there");
    world.failing.requests.store(true, Ordering::Release);
    deriving.undefine(&definition).expect_err("the topic cannot be deleted");
    deriving.delete("d_all").expect_err("the topic cannot be deleted");
    world.failing.requests.store(false, Ordering::Release);
    assert!(life.topics.by_name("d_all").is_some());
    assert!(deriving.undefine(&definition).expect("it is there"));
    assert!(!deriving.undefine(&definition).expect("it was dropped"));
    assert!(life.topics.by_name("d_all").is_none() && life.definitions.get("d_all").is_none());
    life.worker.find();
    assert!(life.topics.by_name("d_all").is_none(), "it was made again");
}

#[test]
fn a_join_has_each_record_once_with_a_value_no_older_than_it_whenever_the_broker_dies() {
    let mut found_count = 0;
    for seed in 0..10 {
        let mut world = World::new(seed);
        let from = "FROM orders o LEFT JOIN \"prices$current\" p ON o.key = p.key";
        let left = format!("CREATE TOPIC d_left AS SELECT p.value->>'price' AS price {from}");
        let inner = "CREATE TOPIC d_inner AS SELECT o.* FROM orders o \
                     JOIN \"prices$current\" p ON p.key = o.key";
        world.create(&[], &[&left, inner]);
        let settings = BTreeMap::from([("memlane.values".to_owned(), "latest".to_owned())]);
        let (name, is_derived) = ("prices".to_owned(), false);
        let new = NewTopic {
            name,
            partition_count: 2,
            settings,
            is_derived,
            owner: shares::Owner::NOBODY,
        };
        world.open().topics.create(&new).expect("there is room");
        world.live(&["d_left".to_owned(), "d_inner".to_owned()], 40);
        let life = world.open();
        let topic = |name| life.topics.by_name(name).expect("it is there");
        for number in 0..PARTITIONS {
            let committed = world.committed.get(&number).cloned().unwrap_or_default();
            let counts = world.price_counts.get(&number).cloned().unwrap_or_default();
            let (left, left_offsets) = log_of(&topic("d_left"), number);
            let (inner, inner_offsets) = log_of(&topic("d_inner"), number);
            assert!(left_offsets.is_sorted() && inner_offsets.is_sorted());
            assert_eq!(left.len(), committed.len(), "seed {seed}: one for each");
            for (index, (made, pair)) in left.iter().zip(&committed).enumerate() {
                assert_eq!(made.0, pair.0, "seed {seed}, record {index}");
                let price = made.1.as_deref().and_then(|it| field(it, "price"));
                let price = price.map(|it| it.as_str().expect("text").parse().expect("a number"));
                let key = pair.0.as_ref().expect("all have one");
                let none = vec![None];
                let all = &world.prices.get(key).unwrap_or(&none)[counts[index]..];
                assert!(all.contains(&price), "seed {seed}: {price:?} is none of {all:?}");
                let joined = inner_offsets.binary_search(&left_offsets[index]);
                assert!(joined.is_ok() || all.contains(&None), "seed {seed}: it had a price");
                if let Ok(place) = joined {
                    assert_eq!(&inner[place], pair, "seed {seed}, record {index}");
                    assert!(all.iter().any(Option::is_some), "seed {seed}: it had no price");
                    found_count += 1;
                }
            }
            let is_left = |it: &i64| left_offsets.binary_search(it).is_ok();
            assert!(inner_offsets.iter().all(is_left), "seed {seed}: of committed records alone");
        }
    }
    assert!(found_count > 500, "{found_count} records with a price");
}

#[test]
fn kept_values_and_groups_are_what_sql_gives_of_the_current_ones() {
    for seed in 0..10 {
        let mut world = World::new(seed);
        world.create(
            &[("memlane.values", "latest")],
            &[
                "CREATE TOPIC d_s1 AS SELECT value->>'qty' AS qty FROM \"orders$current\" \
                 WHERE value->>'symbol' = 'S1'",
                "CREATE MATERIALIZED VIEW d_sums AS SELECT value->>'symbol' AS symbol, \
                 sum((value->>'qty')::bigint) AS qty, count(*) AS n FROM \"orders$current\" \
                 GROUP BY 1",
            ],
        );
        world.live(&[], 40);
        let life = world.open();
        let (mut kept, mut sums) = (BTreeMap::new(), BTreeMap::new());
        for (key, value) in world.current() {
            let symbol = field(&value, "symbol");
            let qty = field(&value, "qty").and_then(|it| it.as_i64());
            if symbol.as_ref().and_then(|it| it.as_str()) == Some("S1") {
                let qty = qty.expect("it has one");
                kept.insert(key, format!("{{\"qty\":\"{qty}\"}}"));
            }
            let symbol = symbol.unwrap_or(serde_json::Value::Null).to_string();
            let (sum, count) = sums.entry(symbol).or_insert((None, 0));
            *sum = qty.map(|it| it + sum.unwrap_or(0)).or(*sum);
            *count += 1;
        }
        let topic = |name| life.topics.by_name(name).expect("it is there");
        assert_eq!(values_of(&topic("d_s1")), kept, "seed {seed}");
        let rows = sums.into_iter().map(|(symbol, (sum, count))| {
            let sum = sum.map_or("null".to_owned(), |it: i64| it.to_string());
            let row = format!("{{\"symbol\":{symbol},\"qty\":{sum},\"n\":{count}}}");
            ((0, format!("{{\"symbol\":{symbol}}}")), row)
        });
        assert_eq!(values_of(&topic("d_sums")), rows.collect(), "seed {seed}");
    }
}

/// Goal: definitions stored before views were tables keep their meaning after a start, and new ones
/// must state which of both they mean.
#[test]
fn a_view_by_its_name_alone_is_its_log_where_that_was_kept_and_refused_where_it_is_new() {
    let mut world = World::new(3);
    world.create(
        &[("memlane.values", "latest")],
        &[
            "CREATE MATERIALIZED VIEW d_a AS SELECT value->>'symbol' AS symbol, \
             sum((value->>'qty')::bigint) AS qty FROM \"orders$current\" GROUP BY 1",
            "CREATE TOPIC d_bare AS SELECT * FROM d_a",
            "CREATE TOPIC d_log AS SELECT * FROM \"d_a$log\"",
            "CREATE MATERIALIZED VIEW d_now AS SELECT key, value FROM \"d_a$current\"",
            "CREATE MATERIALIZED VIEW d_count AS SELECT count(*) AS n FROM d_a",
        ],
    );
    assert!(world.live(&[], 40) > 0, "it never died");
    let life = world.open();
    let topic = |name| life.topics.by_name(name).expect("it is there");
    let mut changes = Vec::new();
    each_record(&topic("d_a"), 0, &mut |it| changes.push((text(it.key), text(it.value))));
    assert!(changes.len() > 100, "{} changes", changes.len());
    assert_eq!(log_of(&topic("d_bare"), 0).0, changes);
    assert_eq!(log_of(&topic("d_log"), 0).0, changes);
    assert_eq!(values_of(&topic("d_now")), values_of(&topic("d_a")));
    let count = format!("{{\"n\":{}}}", changes.len());
    assert_eq!(values_of(&topic("d_count")).into_values().collect::<Vec<_>>(), [count]);
    let deriving = Deriving::new(Arc::clone(&life.topics), Arc::clone(&life.definitions));
    let check = |name: &str, query: &str| {
        let statement = format!("CREATE TOPIC {name} AS {query}");
        let new = NewDefinition { name: name.to_owned(), kind: DefinitionKind::Topic, statement };
        deriving.check(&new, |_| true).map(|checked| checked.sources)
    };
    let refused = check("d_new", "SELECT * FROM d_a").expect_err("it says not which it means");
    let hint = refused.hint.expect("it says what to write");
    assert!(hint.contains("\"d_a$current\"") && hint.contains("\"d_a$log\""), "{hint}");
    assert_eq!(check("d_new", "SELECT * FROM \"d_a$log\"").expect("its log"), ["d_a"]);
    assert_eq!(check("d_new", "SELECT * FROM \"d_a$current\"").expect("its rows"), ["d_a"]);
    assert_eq!(check("d_new", "SELECT * FROM d_log").expect("no view"), ["d_log"]);
    // Existing objects are reported as such, also with IF NOT EXISTS.
    check("d_bare", "SELECT * FROM d_a").expect("it was not refused when it was made");
}

#[test]
fn whole_objects_are_all_patches_of_their_keys_in_order() {
    for seed in 0..10 {
        let mut world = World::new(seed);
        world.create(&[("memlane.values", "merge")], &[]);
        let objects = objects_of("orders");
        world.live(std::slice::from_ref(&objects), 40);
        let life = world.open();
        let topic = life.topics.by_name(&objects).expect("it is there");
        let mut expected: BTreeMap<(u32, String), String> = BTreeMap::new();
        for (number, pairs) in &world.committed {
            let (made, _) = log_of(&topic, *number);
            assert_eq!(made.len(), pairs.len(), "seed {seed}: one for each");
            for (key, value) in pairs {
                let key = (*number, key.clone().expect("all have one"));
                let Some(value) = value else {
                    expected.remove(&key);
                    continue;
                };
                let before = expected.get(&key).map(String::as_str);
                let merged = naively_merged(before, value);
                expected.insert(key, merged);
            }
        }
        let found = values_of(&topic);
        let parse = |it: &String| serde_json::from_str::<serde_json::Value>(it).ok();
        assert_eq!(found.len(), expected.len(), "seed {seed}");
        for (key, value) in &expected {
            assert_eq!(parse(&found[key]), parse(value), "seed {seed}, {key:?}");
        }
    }
}

/// Merges by the pseudocode of the standard, for objects without nested objects.
fn naively_merged(before: Option<&str>, patch: &str) -> String {
    let parse = |it: &str| serde_json::from_str::<serde_json::Value>(it).ok();
    let Some(serde_json::Value::Object(patch)) = parse(patch) else { return patch.to_owned() };
    let mut object = match before.and_then(parse) {
        Some(serde_json::Value::Object(object)) => object,
        _ => serde_json::Map::new(),
    };
    for (name, value) in patch {
        match value.is_null() {
            true => drop(object.remove(&name)),
            false => drop(object.insert(name, value)),
        }
    }
    serde_json::Value::Object(object).to_string()
}
