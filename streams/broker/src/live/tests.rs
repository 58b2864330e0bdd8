//! Live queries with concurrent publishers, compared with the published records.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use access::Principal;
use futures::StreamExt;
use live_queries::{OutputRow, OutputRows, Statement, Table, parse_statement};
use model::{Random, for_each_seed};
use record_batch::{BatchOptions, NewRecord, encode_batch};
use record_log::Batch;
use sql::{LiveQuery, LiveRows, SqlError, SqlState};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::service::LiveClient;
use super::{LiveLimits, LiveQueries, LiveThreads};
use crate::access_rules::AccessRules;
use crate::clock;
use crate::following::FollowingThreads;
use crate::storage::{Embedded, EmbeddedPool};
use crate::topics::{NewTopic, OpenTopic, Topics};

const WAIT_MAX: Duration = Duration::from_secs(60);
const PARTITIONS: u32 = 3;

struct Running {
    topics: Arc<Topics>,
    topic: Arc<OpenTopic>,
    live: Arc<LiveQueries>,
    stop: watch::Sender<bool>,
    threads: Option<(FollowingThreads, LiveThreads)>,
    runtime: Runtime,
    /// Folder of the pool.
    _folder: TempDir,
}

impl Running {
    fn start(settings: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").expect("it is made");
        let file = Some(folder.path().join("pool"));
        let pool = EmbeddedPool { size_bytes: 256 << 20, file };
        let storage = Arc::new(Embedded::open(&pool).expect("it opens"));
        let topics = Topics::open(storage, BTreeMap::new()).expect("it opens");
        let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let new = NewTopic {
            name: "quotes".to_owned(),
            partition_count: PARTITIONS,
            settings: settings.collect(),
            is_derived: false,
            owner: shares::Owner::NOBODY,
        };
        let topic = topics.create(&new).expect("there is room");
        let rules = AccessRules::open_to_this_host();
        let limits = LiveLimits { per_principal: 1_000 };
        let live = Arc::new(LiveQueries::new(Arc::clone(&topics), rules, limits));
        let (stop, stops) = watch::channel(false);
        let following = FollowingThreads::start(&topics, &stops).expect("they start");
        let threads = LiveThreads::start(&live, &stops).expect("they start");
        let runtime = Runtime::new().expect("it starts");
        Self {
            topics,
            topic,
            live,
            stop,
            threads: Some((following, threads)),
            runtime,
            _folder: folder,
        }
    }

    fn publish(&self, partition: i32, records: &[(String, Option<String>)]) {
        let records: Vec<NewRecord> = records
            .iter()
            .map(|(key, value)| NewRecord {
                key: Some(key.clone().into()),
                value: value.clone().map(Into::into),
                timestamp_ms: clock::unix_ms(),
                ..NewRecord::default()
            })
            .collect();
        let mut bytes = encode_batch(&records, &BatchOptions::default()).expect("some").to_vec();
        let (mut batch, _) = Batch::split_first(&mut bytes).expect("a good batch");
        let partition = self.topic.partition(partition).expect("it is there");
        partition.log.append(&mut batch, clock::unix_ms()).expect("there is room");
        self.topic.flush().expect("it flushes");
    }

    fn subscribe(&self, sql: &str) -> Result<LiveRows, SqlError> {
        let Ok(Some(Statement::Subscribe(subscribe))) = parse_statement(sql) else {
            panic!("{sql} is no subscription")
        };
        let name = live_queries::Query::table_name(&subscribe.query)?;
        let table = match name.strip_suffix("$current") {
            Some(_) => Table::values(&name),
            None => Table::log(&name),
        };
        let client = LiveClient {
            principal: Principal::user("tester").expect("a good name"),
            on_behalf_of: None,
            host: [127, 0, 0, 1].into(),
        };
        let live = LiveQuery { topic: "quotes".into(), table, subscribe };
        self.runtime.block_on(Arc::clone(&self.live).subscribe(client, live))
    }

    /// Returns the next rows within a time, with columns as text.
    fn take(
        &self,
        rows: &mut LiveRows,
        time: Duration,
    ) -> Option<Result<Vec<Vec<String>>, SqlError>> {
        let next = async { tokio::time::timeout(time, rows.rows.next()).await };
        let next = self.runtime.block_on(next);
        let texts = |taken: OutputRows| {
            let (mut reader, mut row) = (taken.reader(), OutputRow::default());
            let (mut values, mut texts) = (Vec::new(), Vec::new());
            while reader.read(&mut row) {
                rows.layout.values(&mut row, &mut values);
                texts.push(values.iter().map(ToString::to_string).collect());
            }
            texts
        };
        match next {
            Err(_) => Some(Ok(Vec::new())),
            Ok(next) => next.map(|taken| taken.map(texts)),
        }
    }

    fn stop(mut self) {
        self.stop.send_replace(true);
        if let Some((following, live)) = self.threads.take() {
            live.join();
            following.join();
        }
    }
}

/// State of a client built from received rows. Checks that each row occurs at most once.
struct Client {
    rows: LiveRows,
    there: BTreeMap<Vec<String>, i64>,
    /// For a log: the last offset of each partition.
    offsets: BTreeMap<String, i64>,
    is_log: bool,
}

impl Client {
    fn new(rows: LiveRows, is_log: bool) -> Self {
        Self { rows, there: BTreeMap::new(), offsets: BTreeMap::new(), is_log }
    }

    /// Takes rows for a time. Each row is `mz_timestamp, mz_diff, …`.
    fn go_on(&mut self, running: &Running, time: Duration) {
        let taken = running.take(&mut self.rows, time).expect("it has not ended");
        for row in taken.expect("no error") {
            let (diff, row) = (row[1].parse::<i64>().expect("a number"), row[2..].to_vec());
            if self.is_log {
                let offset: i64 = row[1].parse().expect("a number");
                let last = self.offsets.insert(row[0].clone(), offset);
                assert!(last.is_none_or(|last| last < offset), "{row:?} comes after {last:?}");
            }
            let count = self.there.entry(row.clone()).or_default();
            *count += diff;
            assert!((0..=1).contains(count), "{row:?} is there {count} times");
            if *count == 0 {
                self.there.remove(&row);
            }
        }
    }

    fn wait_for(&mut self, running: &Running, expected: &[Vec<String>]) {
        let begun = std::time::Instant::now();
        while !self.there.keys().eq(expected) {
            assert!(begun.elapsed() < WAIT_MAX, "{:?} is not {expected:?}", self.there.keys());
            self.go_on(running, Duration::from_millis(20));
        }
    }
}

/// Contents of the log, and current values by partition.
#[derive(Default)]
struct Published {
    log: Vec<(i32, i64, String, Option<String>)>,
    values: BTreeMap<(i32, String), String>,
    next: BTreeMap<i32, i64>,
}

impl Published {
    fn add(&mut self, running: &Running, random: &mut Random, count: usize) {
        let partition = i32::try_from(random.below(u64::from(PARTITIONS))).expect("small");
        let records: Vec<_> = (0..count)
            .map(|_| {
                let key = format!("k{}", random.below(12));
                let number = random.below(100);
                let value = format!("{{\"n\": {number}, \"s\": \"{}\"}}", number % 7);
                (key, (!random.one_in(5)).then_some(value))
            })
            .collect();
        running.publish(partition, &records);
        for (key, value) in records {
            let next = self.next.entry(partition).or_default();
            self.log.push((partition, *next, key.clone(), value.clone()));
            *next += 1;
            match value {
                Some(value) => self.values.insert((partition, key), value),
                None => self.values.remove(&(partition, key)),
            };
        }
    }
}

fn number(value: &str) -> i64 {
    let (_, rest) = value.split_once(": ").expect("an object");
    rest.split(',').next().expect("a number").parse().expect("a number")
}

fn sorted(mut rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    rows.sort();
    rows
}

/// Goal: a client that subscribes at any time gets existing rows and each change exactly once.
/// Method: subscribe, take rows and leave at random beside a publisher; compare at the end.
#[test]
fn current_values_have_no_gap_and_nothing_twice_where_a_subscription_begins() {
    for_each_seed("cargo test -p broker --bin memlane-broker live::", 2, |seed| {
        const JOINS: usize = 1_000;
        let running = Running::start(&[("memlane.values", "latest")]);
        let mut random = Random::new(seed);
        let (mut published, mut clients) = (Published::default(), Vec::new());
        for _ in 0..JOINS {
            for _ in 0..random.below(3) {
                let count = 1 + random.index(4);
                published.add(&running, &mut random, count);
            }
            let sql = match random.below(3) {
                0 => {
                    "SUBSCRIBE TO (SELECT key, value FROM \"quotes$current\" \
                      WHERE (value->>'n')::bigint < 50) WITH (BACKPRESSURE = conflate)"
                }
                1 => {
                    "SUBSCRIBE TO (SELECT key, value FROM \"quotes$current\" \
                      WHERE (value->>'n')::bigint < 50) WITH (EVERY = '5 ms')"
                }
                _ => {
                    "SUBSCRIBE TO (SELECT key, value FROM \"quotes$current\" \
                      WHERE (value->>'n')::bigint < 50)"
                }
            };
            clients.push(KeyedClient::new(running.subscribe(sql).expect("it begins")));
            let at = random.index(clients.len());
            clients[at].go_on(&running, Duration::from_millis(1));
            if clients.len() > 20 {
                clients.swap_remove(at);
            }
        }
        let expected: BTreeMap<(String, String), i64> = published
            .values
            .iter()
            .filter(|(_, value)| number(value) < 50)
            .fold(BTreeMap::new(), |mut counts, ((_, key), value)| {
                *counts.entry((key.clone(), value.clone())).or_default() += 1;
                counts
            });
        for client in &mut clients {
            let begun = std::time::Instant::now();
            while client.there != expected {
                assert!(begun.elapsed() < WAIT_MAX, "{:?} is not {expected:?}", client.there);
                client.go_on(&running, Duration::from_millis(20));
            }
        }
        running.stop();
    });
}

/// Keys occur in several partitions, so a row may occur more than once.
struct KeyedClient {
    rows: LiveRows,
    there: BTreeMap<(String, String), i64>,
}

impl KeyedClient {
    fn new(rows: LiveRows) -> Self {
        Self { rows, there: BTreeMap::new() }
    }

    fn go_on(&mut self, running: &Running, time: Duration) {
        let taken = running.take(&mut self.rows, time).expect("it has not ended");
        for row in taken.expect("no error") {
            let key = (row[2].clone(), row[3].clone());
            let count = self.there.entry(key.clone()).or_default();
            *count += row[1].parse::<i64>().expect("a number");
            assert!((0..=i64::from(PARTITIONS)).contains(count), "{row:?} is there {count} times");
            if *count == 0 {
                self.there.remove(&key);
            }
        }
    }
}

#[test]
fn a_log_has_no_gap_and_nothing_twice_where_a_subscription_begins() {
    for_each_seed("cargo test -p broker --bin memlane-broker live::", 2, |seed| {
        const JOINS: usize = 1_000;
        let running = Running::start(&[]);
        let mut random = Random::new(seed);
        let (mut published, mut clients) = (Published::default(), Vec::new());
        for _ in 0..JOINS {
            for _ in 0..random.below(3) {
                let count = if random.one_in(200) { 3_000 } else { 1 + random.index(3) };
                published.add(&running, &mut random, count);
            }
            let options = random.pick(&["", " WITH (PROGRESS = false, BACKPRESSURE = wait)"]);
            // Records are skipped by the bytes of their values, or decoded.
            let is_by_value = random.one_in(2);
            let filter = if is_by_value { "(value->>'n')::bigint < 5" } else { "key < 'k2'" };
            let select = format!("SELECT partition, \"offset\", key FROM quotes WHERE {filter}");
            let sql = format!("SUBSCRIBE TO ({select}){options}");
            let client = Client::new(running.subscribe(&sql).expect("it begins"), true);
            clients.push((client, is_by_value));
            let at = random.index(clients.len());
            clients[at].0.go_on(&running, Duration::from_millis(1));
            if clients.len() > 20 {
                clients.swap_remove(at);
            }
        }
        for (client, is_by_value) in &mut clients {
            let passing = published.log.iter().filter(|(_, _, key, value)| match is_by_value {
                true => value.as_deref().is_some_and(|it| number(it) < 5),
                false => key.as_str() < "k2",
            });
            let expected = passing.map(|it| vec![it.0.to_string(), it.1.to_string(), it.2.clone()]);
            client.wait_for(&running, &sorted(expected.collect()));
        }
        running.stop();
    });
}

#[test]
fn groups_and_a_top_n_are_kept_up_to_date() {
    for_each_seed("cargo test -p broker --bin memlane-broker live::", 2, |seed| {
        let running = Running::start(&[("memlane.values", "latest")]);
        let mut random = Random::new(seed);
        let mut published = Published::default();
        let mut clients = Vec::new();
        for step in 0..400 {
            published.add(&running, &mut random, 3);
            if step % 40 == 0 {
                let groups = "SUBSCRIBE TO (SELECT value->>'s' AS s, count(*), \
                              sum((value->>'n')::bigint) FROM \"quotes$current\" GROUP BY 1)";
                let top = "SUBSCRIBE TO (SELECT partition, key, (value->>'n')::bigint AS n FROM \
                           \"quotes$current\" ORDER BY n DESC, partition, key LIMIT 3)";
                for sql in [groups, top] {
                    clients.push(Client::new(running.subscribe(sql).expect("it begins"), false));
                }
            }
            let at = random.index(clients.len());
            clients[at].go_on(&running, Duration::from_millis(1));
        }
        let mut groups: BTreeMap<String, (i64, i64)> = BTreeMap::new();
        for value in published.values.values() {
            let group = groups.entry((number(value) % 7).to_string()).or_default();
            *group = (group.0 + 1, group.1 + number(value));
        }
        let groups = groups.into_iter();
        let groups = groups.map(|(s, (count, sum))| vec![s, count.to_string(), sum.to_string()]);
        let groups = sorted(groups.collect());
        let mut top: Vec<_> = published.values.iter().collect();
        top.sort_by_key(|(key, value)| (-number(value), (*key).clone()));
        let top = top.iter().take(3).map(|((partition, key), value)| {
            vec![partition.to_string(), key.clone(), number(value).to_string()]
        });
        let top = sorted(top.collect());
        for (index, client) in clients.iter_mut().enumerate() {
            client.wait_for(&running, if index % 2 == 0 { &groups } else { &top });
        }
        running.stop();
    });
}

#[test]
fn a_subscription_goes_on_where_another_one_stopped() {
    for_each_seed("cargo test -p broker --bin memlane-broker live::", 4, |seed| {
        let running = Running::start(&[("memlane.values", "latest")]);
        let mut random = Random::new(seed);
        let mut published = Published::default();
        for _ in 0..100 {
            published.add(&running, &mut random, 3);
        }
        for (select, is_log) in [
            ("SELECT partition, \"offset\", key FROM quotes", true),
            ("SELECT partition, key, value FROM \"quotes$current\"", false),
        ] {
            let first = format!("SUBSCRIBE TO ({select}) WITH (PROGRESS, POSITION)");
            let mut rows = running.subscribe(&first).expect("it begins");
            let mut client = None;
            let mut there: BTreeMap<Vec<String>, i64> = BTreeMap::new();
            while client.is_none() {
                let taken = running.take(&mut rows, WAIT_MAX).expect("it goes on");
                for row in taken.expect("no error") {
                    if row[1] != "t" && row[1] != "true" {
                        *there.entry(row[4..].to_vec()).or_default() +=
                            row[3].parse::<i64>().expect("a number");
                        continue;
                    }
                    for _ in 0..30 {
                        published.add(&running, &mut random, 3);
                    }
                    let onward = format!(
                        "SUBSCRIBE TO ({select}) WITH (SNAPSHOT = false) AS OF '{}'",
                        row[2]
                    );
                    let rows = running.subscribe(&onward).expect("it begins");
                    client = Some(Client { there: there.clone(), ..Client::new(rows, is_log) });
                    break;
                }
            }
            published.add(&running, &mut random, 3);
            let expected = match is_log {
                true => {
                    let log = published.log.iter();
                    log.map(|it| vec![it.0.to_string(), it.1.to_string(), it.2.clone()]).collect()
                }
                false => {
                    let values = published.values.iter();
                    values
                        .map(|((it, key), value)| vec![it.to_string(), key.clone(), value.clone()])
                        .collect()
                }
            };
            client.expect("it is there").wait_for(&running, &sorted(expected));
        }
        running.stop();
    });
}

/// Goal: records of a batch after the end of a snapshot are delivered as changes, once.
#[test]
fn a_snapshot_ends_within_a_batch() {
    let running = Running::start(&[]);
    let records: Vec<_> = (0..10).map(|it| (format!("k{it}"), Some("1".to_owned()))).collect();
    running.publish(0, &records);
    let rows = "SUBSCRIBE TO (SELECT partition, \"offset\", value FROM quotes) AS OF '0:3'";
    let rows = running.subscribe(rows).expect("it begins");
    let expected = (0..10).map(|it| ["0", &it.to_string(), "1"].map(str::to_owned).to_vec());
    Client::new(rows, true).wait_for(&running, &expected.collect::<Vec<_>>());
    let counts = "SUBSCRIBE TO (SELECT count(*) FROM quotes) AS OF '0:3'";
    let mut counts = running.subscribe(counts).expect("it begins");
    let mut last = String::new();
    while last != "10" {
        let taken = running.take(&mut counts, WAIT_MAX).expect("it goes on").expect("no error");
        assert!(!taken.is_empty(), "nothing comes behind a count of {last:?}");
        for row in taken.iter().filter(|it| it[1] == "1") {
            last.clone_from(&row[2]);
            assert!(last.parse::<u64>().is_ok_and(|it| it <= 10), "{last} records are counted");
        }
    }
    running.stop();
}

#[test]
fn a_subscription_ends_where_it_is_to_and_when_its_topic_goes() {
    let running = Running::start(&[("memlane.values", "latest")]);
    let mut published = Published::default();
    let mut random = Random::new(1);
    for _ in 0..30 {
        published.add(&running, &mut random, 2);
    }
    let mut ended =
        running.subscribe("SUBSCRIBE TO (SELECT key FROM quotes) UP TO OFFSET 5").expect("good");
    let mut count = 0;
    while let Some(rows) = running.take(&mut ended, WAIT_MAX) {
        count += rows.expect("no error").len();
    }
    assert!(count >= 15, "each partition has five records before that");
    let far = "SUBSCRIBE TO (SELECT key FROM quotes) AS OF OFFSET 100000";
    let refused = running.subscribe(far).err().expect("it is refused");
    assert_eq!(refused.state, SqlState::INVALID_PARAMETER);
    let failing = "SUBSCRIBE TO (SELECT 1 / ((value->>'n')::bigint - (value->>'n')::bigint) FROM \
                   quotes) WITH (ON_ERROR = fail)";
    let mut failing = running.subscribe(failing).expect("it begins");
    let failed = running.take(&mut failing, WAIT_MAX).expect("there is something");
    assert_eq!(failed.expect_err("it fails").state, SqlState::DIVISION_BY_ZERO);
    let mut both = ["quotes", "\"quotes$current\""].map(|table| {
        let sql = format!("SUBSCRIBE TO (SELECT key FROM {table}) WITH (SNAPSHOT = false)");
        running.subscribe(&sql).expect("it begins")
    });
    assert_eq!(running.live.totals().subscriptions, 3, "one has ended and gone");
    running.topics.delete("quotes").expect("it goes");
    for rows in &mut both {
        let end = loop {
            match running.take(rows, WAIT_MAX).expect("it does not just end") {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!([SqlState::UNDEFINED_TABLE, SqlState::SERIALIZATION].contains(&end.state));
    }
    drop((both, ended, failing));
    assert_eq!(running.live.totals().subscriptions, 0, "all is given back");
    running.stop();
}
