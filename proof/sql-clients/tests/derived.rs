//! Derived topics and views while the broker is killed repeatedly: they contain the result of their
//! queries on the acknowledged records, each once and in order.
//!
//! The expected result is computed here, from a ledger that the publishers keep. The broker is only
//! asked whether a transaction with an unanswered commit took effect.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use kafka_client::{
    Client, Compression, NewRecord, Settings, TransactionSettings, TransactionalProducer,
};
use kafka_clients::is_skipped;
use random::Random;
use system::{Broker, Tool, free_address, wait_for};

const PARTITIONS: i32 = 3;
/// Each of the two publishers writes prices to its own half of these partitions. Otherwise an open
/// transaction of one would hide the other's later commits from readers.
const PRICE_PARTITIONS: i32 = 2 * PARTITIONS;
const PUBLISHERS: u64 = 2;
const KILLS: usize = 15;
const CATCH_UP_TIME_MAX: Duration = Duration::from_secs(120);

/// Maximum number of commits between two kills.
const COMMITS_BETWEEN_KILLS_MAX: u64 = 20;

const MADE: &[&str] = &[
    "CREATE TOPIC big AS SELECT * FROM orders WHERE (value->>'qty')::bigint >= 50",
    "CREATE TOPIC small AS SELECT value->>'symbol' AS symbol, value->>'qty' AS qty, \
     value->>'id' AS id FROM orders WHERE (value->>'qty')::bigint < 20",
    "CREATE TOPIC acme AS SELECT * FROM \"prices$current\" WHERE value->>'symbol' = 'S1'",
    "CREATE MATERIALIZED VIEW sums AS SELECT value->>'symbol' AS symbol, \
     sum((value->>'qty')::bigint) AS qty, count(*) AS n, min((value->>'qty')::bigint) AS least, \
     max((value->>'qty')::bigint) AS most FROM \"prices$current\" GROUP BY 1",
    "CREATE MATERIALIZED VIEW counts AS SELECT value->>'symbol' AS symbol, count(*) AS n \
     FROM orders GROUP BY 1",
    "CREATE MATERIALIZED VIEW priced_high AS SELECT key, value->>'symbol' AS symbol, \
     (value->>'qty')::numeric + 0.125 AS part, value->'qty' AS qty, time, \
     (value->>'id')::bigint AS id FROM \"prices$current\" \
     WHERE (value->>'qty')::bigint > 30",
    "CREATE MATERIALIZED VIEW totals AS SELECT sum((value->>'qty')::numeric) AS qty \
     FROM \"sums$current\"",
    "CREATE TOPIC named AS SELECT o.value->>'id' AS id, n.value->>'name' AS name FROM orders o \
     JOIN \"names$current\" n ON o.value->>'symbol' = n.key",
    "CREATE TOPIC priced AS SELECT o.value->>'id' AS id, p.value->>'id' AS price FROM orders o \
     LEFT JOIN \"prices$current\" p ON p.key = o.key",
];

/// Rows to join with that never change, so that the derived topic is the same at any time.
const NAMES: &str = "INSERT INTO names (key, value) VALUES ('S0', '{\"name\": \"zero\"}'), \
     ('S1', '{\"name\": \"one\"}'), ('S2', '{\"name\": \"two\"}'), ('S3', 'no JSON')";

/// The same names by number. S4 has none.
const NAME_OF: [&str; 4] = ["zero", "one", "two", NULL];

/// Output of psql for NULL, which sorts after all symbols.
const NULL: &str = "~null";

const TOPICS: [&str; 2] = ["orders", "prices"];

/// Query for the price that each order of a key was joined with.
const PRICED: &str = "SELECT partition, key, value->>'id', value->>'price' FROM priced \
     ORDER BY partition, \"offset\"";

/// Record that the broker acknowledged.
#[derive(Debug, PartialEq, Eq)]
struct Taken {
    topic: &'static str,
    partition: i32,
    offset: i64,
    key: String,
    /// `None` deletes the key.
    fields: Option<Fields>,
    time_ms: i64,
    /// Index of the publisher's transaction, in order.
    transaction: usize,
}

#[derive(Debug, PartialEq, Eq)]
struct Fields {
    /// Unique among all records.
    id: u64,
    symbol: Option<u64>,
    qty: u64,
}

impl Fields {
    fn json(&self) -> String {
        let symbol = self.symbol.map(|it| format!("\"symbol\": \"S{it}\", ")).unwrap_or_default();
        format!("{{{symbol}\"qty\": {}, \"id\": {}}}", self.qty, self.id)
    }

    fn symbol(&self) -> String {
        self.symbol.map_or_else(|| NULL.to_owned(), |it| format!("S{it}"))
    }
}

impl Taken {
    fn place(&self) -> (i32, i64) {
        (self.partition, self.offset)
    }

    fn symbol(&self) -> String {
        self.fields.as_ref().map_or_else(|| NULL.to_owned(), Fields::symbol)
    }

    fn id(&self) -> String {
        self.fields.as_ref().map_or_else(|| NULL.to_owned(), |it| it.id.to_string())
    }

    /// Returns the record as a row of its topic.
    fn row(&self) -> String {
        let value = self.fields.as_ref().map_or_else(|| NULL.to_owned(), Fields::json);
        format!("{}|{}|{}|{value}|{}", self.partition, self.offset, self.key, self.time_ms)
    }
}

/// Transaction that a publisher asked to commit.
struct Transaction {
    records: Vec<Taken>,
    is_acknowledged: bool,
}

/// Records that exist, by partition and offset.
struct Ledger {
    orders: Vec<Taken>,
    prices: Vec<Taken>,
}

impl Ledger {
    /// Collects the acknowledged transactions, and those unanswered ones whose records are in these
    /// rows of the topics. If one record of a transaction is there, all of them must be.
    fn new(
        transactions: Vec<Transaction>,
        rows: &BTreeMap<&str, BTreeSet<String>>,
    ) -> Result<Self> {
        let mut records: Vec<Taken> = Vec::new();
        for transaction in transactions {
            let is_there = |it: &Taken| rows[it.topic].contains(&it.row());
            let found = transaction.records.iter().filter(|&it| is_there(it)).count();
            let count = transaction.records.len();
            ensure!(
                found == count || found == 0 && !transaction.is_acknowledged,
                "{found} of {count} records of a transaction are there, acknowledged: {}, as {}",
                transaction.is_acknowledged,
                transaction.records[0].row()
            );
            if found > 0 {
                records.extend(transaction.records);
            }
        }
        records.sort_by_key(Taken::place);
        let (orders, prices) = records.into_iter().partition(|it: &Taken| it.topic == "orders");
        Ok(Self { orders, prices })
    }

    /// Returns the last price of each key in a partition, without deleted keys.
    fn current(&self) -> Vec<(&Taken, &Fields)> {
        let last = self.prices.iter().map(|it| ((it.partition, &it.key), it));
        let last: BTreeMap<_, _> = last.collect();
        last.into_values().filter_map(|it| Some((it, it.fields.as_ref()?))).collect()
    }

    /// Returns the orders that are not deletions.
    fn objects(&self) -> impl Iterator<Item = (&Taken, &Fields)> {
        self.orders.iter().filter_map(|it| Some((it, it.fields.as_ref()?)))
    }

    /// Returns sum, number, minimum and maximum of each symbol's current prices.
    fn sums(&self) -> BTreeMap<String, [u64; 4]> {
        let mut sums = BTreeMap::new();
        for (_, it) in self.current() {
            let [sum, count, least, most] = sums.entry(it.symbol()).or_insert([0, 0, u64::MAX, 0]);
            (*sum, *count) = (*sum + it.qty, *count + 1);
            (*least, *most) = ((*least).min(it.qty), (*most).max(it.qty));
        }
        sums
    }

    /// Returns the number of orders of each symbol.
    fn counts(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for it in &self.orders {
            *counts.entry(it.symbol()).or_insert(0) += 1;
        }
        counts
    }

    /// Returns a query of each derived topic and its expected rows.
    fn of_topics(&self) -> Vec<(&'static str, Vec<String>)> {
        let whole = |(it, fields): (&Taken, &Fields)| {
            format!("{}|{}|{}", it.partition, it.key, fields.json())
        };
        let small = |(it, fields): (&Taken, &Fields)| {
            let [symbol, qty] = [fields.symbol(), fields.qty.to_string()];
            format!("{}|{}|{symbol}|{qty}|{}", it.partition, it.key, fields.id)
        };
        let named = |(it, fields): (&Taken, &Fields)| {
            let name = NAME_OF.get(usize::try_from(fields.symbol?).ok()?)?;
            Some(format!("{}|{}|{}|{name}", it.partition, it.key, fields.id))
        };
        let is_acme = |(_, fields): &(&Taken, &Fields)| fields.symbol == Some(1);
        vec![
            (
                "SELECT partition, key, value FROM big ORDER BY partition, \"offset\"",
                self.objects().filter(|(_, it)| it.qty >= 50).map(whole).collect(),
            ),
            (
                "SELECT partition, key, value->>'symbol', value->>'qty', value->>'id' FROM small \
                 ORDER BY partition, \"offset\"",
                self.objects().filter(|(_, it)| it.qty < 20).map(small).collect(),
            ),
            (
                "SELECT partition, key, value FROM \"acme$current\" ORDER BY 1, 2",
                self.current().into_iter().filter(is_acme).map(whole).collect(),
            ),
            (
                "SELECT partition, key, value->>'id', value->>'name' FROM named \
                 ORDER BY partition, \"offset\"",
                self.objects().filter_map(named).collect(),
            ),
            (
                "SELECT partition, key, value->>'id' FROM priced ORDER BY partition, \"offset\"",
                self.orders
                    .iter()
                    .map(|it| format!("{}|{}|{}", it.partition, it.key, it.id()))
                    .collect(),
            ),
        ]
    }

    /// Returns a query of each materialized view and its expected rows.
    fn of_views(&self) -> Vec<(&'static str, Vec<String>)> {
        let (sums, counts) = (self.sums(), self.counts());
        let sum = |(symbol, [qty, n, least, most]): (&String, &[u64; 4])| {
            format!("{symbol}|{qty}|{n}|{least}|{most}")
        };
        let both = |(symbol, n): (&String, &u64)| {
            let [qty, ..] = sums.get(symbol).filter(|_| symbol != NULL)?;
            Some(format!("{symbol}|{n}|{qty}"))
        };
        let total = sums.values().map(|[qty, ..]| qty).sum::<u64>().to_string();
        let mut high = self.current();
        high.retain(|(_, fields)| fields.qty > 30);
        high.sort_by_key(|(_, fields)| fields.id);
        let high = high.into_iter().map(|(it, fields)| {
            let [symbol, qty] = [fields.symbol(), fields.qty.to_string()];
            format!("{}|{symbol}|{qty}.125|{qty}|{}|{}", it.key, it.time_ms, fields.id)
        });
        vec![
            (
                "SELECT value->>'symbol', value->>'qty', value->>'n', value->>'least', \
                 value->>'most' FROM \"sums$current\" ORDER BY 1",
                sums.iter().map(sum).collect(),
            ),
            (
                "SELECT symbol, qty, n, least, most FROM sums ORDER BY symbol",
                sums.iter().map(sum).collect(),
            ),
            ("SELECT qty::bigint FROM totals", vec![total]),
            (
                "SELECT * FROM counts ORDER BY symbol",
                counts.iter().map(|(symbol, n)| format!("{symbol}|{n}")).collect(),
            ),
            (
                "SELECT c.symbol, c.n, s.qty FROM counts c JOIN sums s ON s.symbol = c.symbol \
                 ORDER BY 1",
                counts.iter().filter_map(both).collect(),
            ),
            (
                "SELECT key, symbol, part, qty, (extract(epoch FROM time) * 1000)::bigint, id \
                 FROM priced_high ORDER BY id",
                high.collect(),
            ),
        ]
    }

    /// Checks that each order was joined with a current or newer price of its key: one that existed
    /// when the preceding transaction committed, or a later one. Among partitions the newest price
    /// counts; at equal times, that of the first partition.
    fn check_prices(&self, rows: &str) -> Result<()> {
        let mut prices: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for it in &self.prices {
            prices.entry((&it.key, it.partition)).or_default().push(it);
        }
        for (order, row) in self.orders.iter().zip(rows.lines()) {
            let (_, price) = row.rsplit_once('|').context("a row has columns")?;
            // Possible prices of each partition. `None` is no price.
            let states = (0..PRICE_PARTITIONS).map(|partition| {
                let of_key = prices.get(&(&order.key, partition)).map_or(&[][..], Vec::as_slice);
                let before = of_key.iter().rposition(|it| it.transaction < order.transaction);
                let none = before.is_none().then_some(None);
                let since = of_key[before.unwrap_or(0)..].iter();
                let values = since.map(|it| it.fields.is_some().then_some(*it));
                none.into_iter().chain(values).collect::<Vec<_>>()
            });
            let states: Vec<_> = states.collect();
            let rank = |it: &Taken| (it.time_ms, Reverse(it.partition));
            let is_good = match price {
                NULL => states.iter().all(|it| it.contains(&None)),
                price => states.iter().flatten().flatten().any(|found| {
                    let loses = |it: &Option<&Taken>| it.is_none_or(|it| rank(it) <= rank(found));
                    found.id() == price && states.iter().all(|it| it.iter().any(loses))
                }),
            };
            ensure!(is_good, "{row}, of the order {}: {states:?}", order.row());
        }
        Ok(())
    }
}

struct Fixture {
    broker: Broker,
    sql_port: u16,
}

impl Fixture {
    fn query(&self, sql: &str) -> Result<String> {
        Tool::new("psql --no-psqlrc --quiet --no-align --tuples-only -P null=~null")
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", &self.sql_port.to_string())
            .env("PGUSER", "tester")
            .env("PGDATABASE", "memlane")
            .args(["-c", sql])
            .check()
            .with_context(|| sql.to_owned())
    }

    /// Returns the rows of the topics that publishers write to.
    fn sources(&self) -> Result<BTreeMap<&'static str, BTreeSet<String>>> {
        let rows = |topic| {
            let query = format!(
                "SELECT partition, \"offset\", key, value, \
                 (extract(epoch FROM time) * 1000)::bigint FROM {topic}"
            );
            Ok((topic, self.query(&query)?.lines().map(str::to_owned).collect()))
        };
        TOPICS.into_iter().map(rows).collect()
    }

    /// Waits until a query returns these rows.
    fn wait_for_rows(&self, query: &str, expected: &[String]) -> Result<()> {
        ensure!(!expected.is_empty(), "{query} gives nothing: nothing is tested");
        let mut last = String::new();
        let is_same = wait_for(query, CATCH_UP_TIME_MAX, || {
            last = self.query(query)?;
            Ok(last.lines().eq(expected.iter().map(String::as_str)))
        });
        is_same.with_context(|| {
            let mut pairs = last.lines().zip(expected);
            let differs = pairs.find(|(found, expected)| found != expected);
            let counts = (last.lines().count(), expected.len());
            format!("rows found and expected: {counts:?}, the first that differ: {differs:?}")
        })?;
        eprintln!("{} rows: {query}", expected.len());
        Ok(())
    }
}

/// Publisher that commits transactions and aborts some until it is stopped. It keeps a ledger of
/// the answers.
struct Publisher {
    seed: u64,
    random: Random,
    record_count: u64,
    ledger: Vec<Transaction>,
    stops: Arc<AtomicBool>,
    committed: Arc<AtomicU64>,
    aborted: Arc<AtomicU64>,
}

impl Publisher {
    fn run(mut self, address: &str) -> Result<Vec<Transaction>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut deadline = None;
            // After an error, a new producer takes over and ends the open transaction.
            while let Err(error) = self.publish(address).await {
                if self.stops.load(Ordering::Relaxed) {
                    let deadline =
                        deadline.get_or_insert_with(|| Instant::now() + CATCH_UP_TIME_MAX);
                    ensure!(
                        Instant::now() < *deadline,
                        "the last transaction does not end: {error:#}"
                    );
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok(())
        })?;
        Ok(self.ledger)
    }

    async fn publish(&mut self, address: &str) -> Result<()> {
        let request_time_max = Duration::from_secs(5);
        let client = Client::new(address, Settings { request_time_max, ..Settings::default() });
        let compression = Compression::None;
        let settings = TransactionSettings { compression, time_max: Duration::from_secs(10) };
        let id = format!("publisher-{}", self.seed);
        let mut producer = TransactionalProducer::new(Arc::new(client), &id, settings).await?;
        while !self.stops.load(Ordering::Relaxed) {
            let mut records = Vec::new();
            for topic in TOPICS {
                records.extend(self.send(&mut producer, topic).await?);
            }
            if self.random.one_in(4) {
                producer.abort().await?;
                self.aborted.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let committed = producer.commit().await;
            let is_acknowledged = committed.is_ok();
            self.ledger.push(Transaction { records, is_acknowledged });
            committed?;
            self.committed.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Sends records to one partition and stores the offsets that the broker returns.
    async fn send(
        &mut self,
        producer: &mut TransactionalProducer,
        topic: &'static str,
    ) -> Result<Vec<Taken>> {
        let mut partition = i32::try_from(self.random.below(3))?.min(PARTITIONS - 1);
        if topic == "prices" {
            partition += PARTITIONS * i32::try_from(self.seed)?;
        }
        let count = 1 + self.random.below(20);
        let mut records: Vec<_> = (0..count).map(|_| self.record(topic, partition)).collect();
        let sent = records.iter().map(|it| NewRecord {
            key: Some(it.key.clone().into()),
            value: it.fields.as_ref().map(|it| it.json().into()),
            timestamp_ms: it.time_ms,
            ..NewRecord::default()
        });
        let answered = producer.send(topic, vec![(partition, sent.collect())]).await?;
        ensure!(answered.len() == 1 && answered[0].0 == partition, "{answered:?}");
        for (record, offset) in records.iter_mut().zip(answered[0].1..) {
            record.offset = offset;
        }
        Ok(records)
    }

    fn record(&mut self, topic: &'static str, partition: i32) -> Taken {
        let random = &mut self.random;
        let key = format!("k{}-{}", self.seed, random.below(50));
        let (symbol, qty) = (random.below(5), random.below(100));
        self.record_count += 1;
        let id = self.record_count * PUBLISHERS + self.seed;
        let fields = match random.below(8) {
            0 => None,
            1 => Some(Fields { id, symbol: None, qty }),
            _ => Some(Fields { id, symbol: Some(symbol), qty }),
        };
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is right");
        let time_ms = i64::try_from(since_epoch.as_millis()).expect("this age is not that old");
        let transaction = self.ledger.len();
        Taken { topic, partition, offset: 0, key, fields, time_ms, transaction }
    }
}

#[test]
fn derived_topics_and_views_are_what_their_queries_say_however_often_the_broker_is_killed()
-> Result<()> {
    if is_skipped(&["psql"]) {
        return Ok(());
    }
    let folder = tempfile::Builder::new().prefix("memlane-derived-").tempdir_in("/dev/shm")?;
    let pool = folder.path().join("pool");
    let sql = free_address()?;
    let flags = format!("--embedded 512M --pool-file {} --sql {sql}", pool.display());
    let mut fixture = Fixture { broker: Broker::start(&flags)?, sql_port: sql.port() };
    let latest = "memlane.values=latest";
    for (topic, count, setting) in [
        ("orders", PARTITIONS, "memlane.values=none"),
        ("prices", PRICE_PARTITIONS, latest),
        ("names", PARTITIONS, latest),
    ] {
        let create = system::product("memlane").args(["topic", "create", topic]);
        let create = create.args(["--partitions", &count.to_string(), "--config", setting]);
        create.env("MEMLANE_BROKER", &fixture.broker.address()).check()?;
    }
    for statement in [NAMES].iter().chain(MADE) {
        fixture.query(statement)?;
    }
    let transactions = publish_through_kills(&mut fixture)?;
    let sources = fixture.sources()?;
    let ledger = Ledger::new(transactions, &sources)?;
    let records = ledger.orders.iter().chain(&ledger.prices);
    let known: BTreeSet<_> = records.map(|it| (it.topic, it.row())).collect();
    for (topic, rows) in &sources {
        let unknown = rows.iter().find(|&it| !known.contains(&(*topic, it.clone())));
        ensure!(unknown.is_none(), "{topic} has {unknown:?}, which nobody committed");
    }
    for (query, expected) in ledger.of_topics().into_iter().chain(ledger.of_views()) {
        fixture.wait_for_rows(query, &expected)?;
    }
    ledger.check_prices(&fixture.query(PRICED)?)?;
    ensure!(
        !fixture.broker.log().contains("panicked"),
        "the broker panicked: {}",
        fixture.broker.log()
    );
    Ok(())
}

/// Kills the broker repeatedly while publishers commit, at least once between two kills.
fn publish_through_kills(fixture: &mut Fixture) -> Result<Vec<Transaction>> {
    let (stops, committed, aborted) =
        (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let address = fixture.broker.address();
    let publishing: Vec<_> = (0..PUBLISHERS)
        .map(|seed| {
            let address = address.clone();
            let (stops, committed, aborted) = (stops.clone(), committed.clone(), aborted.clone());
            let (random, ledger) = (Random::new(seed), Vec::new());
            let publisher =
                Publisher { seed, random, record_count: 0, ledger, stops, committed, aborted };
            thread::spawn(move || publisher.run(&address))
        })
        .collect();
    let count = |it: &AtomicU64| it.load(Ordering::Relaxed);
    let mut random = Random::new(7);
    let killed = (0..KILLS).try_for_each(|_| {
        let goal = count(&committed) + 1 + random.below(COMMITS_BETWEEN_KILLS_MAX);
        wait_for("transactions", CATCH_UP_TIME_MAX, || Ok(count(&committed) >= goal))?;
        fixture.broker.kill()?;
        fixture.broker.start_again().map(drop)
    });
    stops.store(true, Ordering::Relaxed);
    let mut transactions = Vec::new();
    for publisher in publishing {
        transactions.extend(publisher.join().expect("publishers do not panic")?);
    }
    killed?;
    let unanswered = transactions.iter().filter(|it| !it.is_acknowledged).count();
    eprintln!(
        "{KILLS} kills; {} transactions committed, {} aborted, {unanswered} without an answer",
        count(&committed),
        count(&aborted)
    );
    ensure!(count(&aborted) > 0, "nothing was aborted");
    Ok(transactions)
}
