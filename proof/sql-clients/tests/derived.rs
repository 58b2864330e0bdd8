//! Derived topics and views while the broker is killed again and again: what they hold is what SQL
//! gives of their source, each record once and in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use kafka_client::{
    Client, Compression, NewRecord, Settings, TransactionSettings, TransactionalProducer,
};
use kafka_clients::is_skipped;
use random::Random;
use system::{Broker, Tool, free_address, wait_for};

const PARTITIONS: i32 = 3;
const KILLS: usize = 15;
const CATCH_UP_TIME_MAX: Duration = Duration::from_secs(120);

const MADE: &[&str] = &[
    "CREATE TOPIC big AS SELECT * FROM orders WHERE (value->>'qty')::bigint >= 50",
    "CREATE TOPIC small AS SELECT value->>'symbol' AS symbol, value->>'qty' AS qty FROM orders \
     WHERE (value->>'qty')::bigint < 20",
    "CREATE TOPIC acme AS SELECT * FROM \"prices$current\" WHERE value->>'symbol' = 'S1'",
    "CREATE MATERIALIZED VIEW sums AS SELECT value->>'symbol' AS symbol, \
     sum((value->>'qty')::bigint) AS qty, count(*) AS n, min((value->>'qty')::bigint) AS least, \
     max((value->>'qty')::bigint) AS most FROM \"prices$current\" GROUP BY 1",
    "CREATE MATERIALIZED VIEW counts AS SELECT value->>'symbol' AS symbol, count(*) AS n \
     FROM orders GROUP BY 1",
    "CREATE MATERIALIZED VIEW priced_high AS SELECT key, value->>'symbol' AS symbol, \
     (value->>'qty')::numeric + 0.125 AS part, value->'qty' AS qty, time FROM \"prices$current\" \
     WHERE (value->>'qty')::bigint > 30",
    "CREATE MATERIALIZED VIEW totals AS SELECT sum((value->>'qty')::numeric) AS qty \
     FROM \"sums$current\"",
    "CREATE TOPIC named AS SELECT o.value->>'qty' AS qty, n.value->>'name' AS name FROM orders o \
     JOIN \"names$current\" n ON o.value->>'symbol' = n.key",
    "CREATE TOPIC priced AS SELECT o.value->>'qty' AS qty, p.value->>'qty' AS price FROM orders o \
     LEFT JOIN \"prices$current\" p ON p.key = o.key",
];

/// What does not change is joined: so the derived topic is what SQL gives at any time.
const NAMES: &str = "INSERT INTO names (key, value) VALUES ('S0', '{\"name\": \"zero\"}'), \
     ('S1', '{\"name\": \"one\"}'), ('S2', '{\"name\": \"two\"}'), ('S3', 'no JSON')";

/// Pairs of queries that must give the same.
const SAME: &[(&str, &str)] = &[
    (
        "SELECT partition, key, value FROM orders WHERE (value->>'qty')::bigint >= 50 \
         ORDER BY partition, \"offset\"",
        "SELECT partition, key, value FROM big ORDER BY partition, \"offset\"",
    ),
    (
        "SELECT partition, key, value->>'symbol', value->>'qty' FROM orders \
         WHERE (value->>'qty')::bigint < 20 ORDER BY partition, \"offset\"",
        "SELECT partition, key, value->>'symbol', value->>'qty' FROM small \
         ORDER BY partition, \"offset\"",
    ),
    (
        "SELECT partition, key, value FROM \"prices$current\" WHERE value->>'symbol' = 'S1' \
         ORDER BY 1, 2",
        "SELECT partition, key, value FROM \"acme$current\" ORDER BY 1, 2",
    ),
    (
        "SELECT value->>'symbol', sum((value->>'qty')::bigint), count(*), \
         min((value->>'qty')::bigint), max((value->>'qty')::bigint) FROM \"prices$current\" \
         GROUP BY 1 ORDER BY 1",
        "SELECT value->>'symbol', (value->>'qty')::bigint, (value->>'n')::bigint, \
         (value->>'least')::bigint, (value->>'most')::bigint FROM \"sums$current\" ORDER BY 1",
    ),
    (
        "SELECT value->>'symbol', count(*) FROM orders GROUP BY 1 ORDER BY 1",
        "SELECT value->>'symbol', (value->>'n')::bigint FROM \"counts$current\" ORDER BY 1",
    ),
    (
        "SELECT value->>'symbol', sum((value->>'qty')::bigint), count(*), \
         min((value->>'qty')::bigint), max((value->>'qty')::bigint) FROM \"prices$current\" \
         GROUP BY 1 ORDER BY 1",
        "SELECT symbol, qty, n, least, most FROM sums ORDER BY symbol",
    ),
    (
        "SELECT value->>'symbol', count(*) FROM orders GROUP BY 1 HAVING count(*) > 1 \
         ORDER BY 1",
        "SELECT * FROM counts WHERE n > 1 ORDER BY 1",
    ),
    (
        "SELECT key, value->>'symbol', (value->>'qty')::numeric + 0.125, value->'qty', time \
         FROM \"prices$current\" WHERE (value->>'qty')::bigint > 30 ORDER BY key, time, 3, 2",
        "SELECT * FROM priced_high ORDER BY key, time, part, symbol",
    ),
    (
        "SELECT sum((value->>'qty')::bigint) FROM \"prices$current\"",
        "SELECT qty::bigint FROM totals",
    ),
    (
        "SELECT o.symbol, p.sum FROM (SELECT DISTINCT value->>'symbol' AS symbol FROM orders) o \
         JOIN (SELECT value->>'symbol' AS symbol, sum((value->>'qty')::bigint) AS sum \
         FROM \"prices$current\" GROUP BY 1) p ON p.symbol = o.symbol ORDER BY 1",
        "SELECT c.symbol, s.qty FROM counts c JOIN sums s ON s.symbol = c.symbol ORDER BY 1",
    ),
    (
        "SELECT o.partition, o.key, o.value->>'qty', n.value->>'name' FROM orders o \
         JOIN \"names$current\" n ON o.value->>'symbol' = n.key ORDER BY 1, o.\"offset\"",
        "SELECT partition, key, value->>'qty', value->>'name' FROM named \
         ORDER BY partition, \"offset\"",
    ),
    (
        "SELECT partition, key, value->>'qty' FROM orders ORDER BY partition, \"offset\"",
        "SELECT partition, key, value->>'qty' FROM priced ORDER BY partition, \"offset\"",
    ),
];

struct Site {
    broker: Broker,
    sql_port: u16,
}

impl Site {
    fn query(&self, sql: &str) -> Result<String> {
        Tool::new("psql --no-psqlrc --quiet --no-align --tuples-only -P null=<null>")
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", &self.sql_port.to_string())
            .env("PGUSER", "tester")
            .env("PGDATABASE", "memlane")
            .args(["-c", sql])
            .check()
            .with_context(|| sql.to_owned())
    }
}

/// Publishes transactions, of which some are aborted, until it is told to stop. What fails while
/// the broker is down is left out.
struct Publisher {
    stops: Arc<AtomicBool>,
    committed: Arc<AtomicU64>,
    aborted: Arc<AtomicU64>,
}

impl Publisher {
    fn run(&self, address: &str, seed: u64) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut random = Random::new(seed);
            while !self.stops.load(Ordering::Relaxed) {
                // After an error a new producer takes over, and ends what the other left open.
                if self.publish(address, seed, &mut random).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            Ok(())
        })
    }

    async fn publish(&self, address: &str, seed: u64, random: &mut Random) -> Result<()> {
        let request_time_max = Duration::from_secs(5);
        let client = Client::new(address, Settings { request_time_max, ..Settings::default() });
        let compression = Compression::None;
        let settings = TransactionSettings { compression, time_max: Duration::from_secs(10) };
        let id = format!("publisher-{seed}");
        let mut producer = TransactionalProducer::new(Arc::new(client), &id, settings).await?;
        while !self.stops.load(Ordering::Relaxed) {
            for topic in ["orders", "prices"] {
                let partition = i32::try_from(random.below(3))?.min(PARTITIONS - 1);
                let count = 1 + random.below(20);
                let records = (0..count).map(|_| record(seed, random)).collect();
                producer.send(topic, vec![(partition, records)]).await?;
            }
            match random.below(4) {
                0 => {
                    producer.abort().await?;
                    self.aborted.fetch_add(1, Ordering::Relaxed);
                }
                _ => {
                    producer.commit().await?;
                    self.committed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }
}

fn record(seed: u64, random: &mut Random) -> NewRecord {
    let key = format!("k{seed}-{}", random.below(50));
    let (symbol, qty) = (random.below(5), random.below(100));
    let value = match random.below(8) {
        0 => None,
        1 => Some("{\"qty\": 7}".to_owned()),
        _ => Some(format!("{{\"symbol\": \"S{symbol}\", \"qty\": {qty}}}")),
    };
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is right");
    let timestamp_ms = i64::try_from(since_epoch.as_millis()).expect("this age is not that old");
    NewRecord {
        key: Some(key.into()),
        value: value.map(Into::into),
        timestamp_ms,
        ..NewRecord::default()
    }
}

#[test]
fn derived_topics_and_views_are_what_sql_gives_however_often_the_broker_is_killed() -> Result<()> {
    if is_skipped(&["psql"]) {
        return Ok(());
    }
    let folder = tempfile::Builder::new().prefix("memlane-derived-").tempdir_in("/dev/shm")?;
    let pool = folder.path().join("pool");
    let sql = free_address()?;
    let flags = format!("--embedded 512M --pool-file {} --sql {sql}", pool.display());
    let mut site = Site { broker: Broker::start(&flags)?, sql_port: sql.port() };
    let latest = "memlane.values=latest";
    for (topic, setting) in
        [("orders", "memlane.values=none"), ("prices", latest), ("names", latest)]
    {
        let create = system::product("memlane").args(["topic", "create", topic]);
        let create = create.args(["--partitions", &PARTITIONS.to_string(), "--config", setting]);
        create.env("MEMLANE_BROKER", &site.broker.address()).check()?;
    }
    for statement in [NAMES].iter().chain(MADE) {
        site.query(statement)?;
    }
    let (stops, committed, aborted) =
        (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let address = site.broker.address();
    let publishing: Vec<_> = (0..2)
        .map(|seed| {
            let address = address.clone();
            let (stops, committed, aborted) = (stops.clone(), committed.clone(), aborted.clone());
            let publisher = Publisher { stops, committed, aborted };
            thread::spawn(move || publisher.run(&address, seed))
        })
        .collect();
    let mut random = Random::new(7);
    for _ in 0..KILLS {
        thread::sleep(Duration::from_millis(300 + random.below(700)));
        site.broker.kill()?;
        site.broker.start_again()?;
    }
    stops.store(true, Ordering::Relaxed);
    for publisher in publishing {
        publisher.join().expect("publishers do not panic")?;
    }
    for (of_source, of_derived) in SAME {
        let mut last = (String::new(), String::new());
        let is_same = wait_for(of_derived, CATCH_UP_TIME_MAX, || {
            last = (site.query(of_source)?, site.query(of_derived)?);
            Ok(last.0 == last.1)
        });
        let lines = |it: &str| it.lines().count();
        is_same.with_context(|| {
            format!("{} rows expected, {} found", lines(&last.0), lines(&last.1))
        })?;
        ensure!(!last.0.is_empty(), "{of_source} gives nothing");
        eprintln!("{} rows: {of_derived}", lines(&last.0));
    }
    let count = |it: &AtomicU64| it.load(Ordering::Relaxed);
    eprintln!(
        "{KILLS} kills; {} transactions committed, {} aborted",
        count(&committed),
        count(&aborted)
    );
    ensure!(count(&committed) > 0 && count(&aborted) > 0, "nothing was tried");
    Ok(())
}
