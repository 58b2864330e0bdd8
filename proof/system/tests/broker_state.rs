//! Durability of the broker's state of groups, transactions and definitions, which is never less
//! than that of the records to which it refers: after losses of memory, lost volumes and changed
//! settings.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kafka_client::{
    Acks, Client, CommittedOffset, Compression, ConfigChange, Isolation, NewTopic, OffsetAt,
    Producer, ProducerSettings, Settings, TransactionSettings, TransactionalProducer,
};
use record_batch::NewRecord;
use rustix::process::Signal;
use system::{Broker, Daemon, DaemonOptions, NbdClient, Request, wait_for};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

const TIME_LIMIT: Duration = Duration::from_secs(60);
const STATE: [&str; 2] = ["broker-state", "broker-definitions"];

/// Number of groups that commit in a full pool, and of the partitions of each.
const GROUP_COUNT: i32 = 200;
const PARTITION_COUNT: i32 = 16;

/// Longer than a test, so that no transaction times out.
const TRANSACTION_TIME: Duration = Duration::from_secs(900);

fn start_daemon() -> Result<Daemon> {
    Daemon::start(DaemonOptions { pool_size: "256MiB", flags: "--no-fuse" })
}

struct Log {
    client: Arc<Client>,
    topic: &'static str,
}

impl Log {
    fn of(broker: &Broker, topic: &'static str) -> Self {
        Self { client: Arc::new(Client::new(broker.address(), Settings::default())), topic }
    }

    async fn create(&self, configs: &[(&str, &str)]) -> Result<()> {
        let configs = configs.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let name = self.topic.to_owned();
        let topic = NewTopic { name, partitions: Some(1), configs: configs.collect() };
        Ok(self.client.create_topic(&topic).await?)
    }

    async fn producer(&self, id: &str) -> Result<TransactionalProducer> {
        let settings =
            TransactionSettings { compression: Compression::None, time_max: TRANSACTION_TIME };
        Ok(TransactionalProducer::new(Arc::clone(&self.client), id, settings).await?)
    }

    async fn set_durability(&self, class: &str) -> Result<()> {
        let name = "memlane.durability".to_owned();
        let change = ConfigChange { name, value: Some(class.to_owned()) };
        Ok(self.client.alter_topic_configs(self.topic, &[change]).await?)
    }

    /// Sends records in the open transaction. Returns the offset of the first.
    async fn send(&self, producer: &mut TransactionalProducer, count: u8) -> Result<i64> {
        let record =
            |number| NewRecord { value: Some(vec![number].into()), ..NewRecord::default() };
        let records = (0..count).map(record).collect();
        let sent = producer.send(self.topic, vec![(0, records)]).await?;
        Ok(sent.first().context("one batch was sent")?.1)
    }

    async fn end(&self, isolation: Isolation) -> Result<i64> {
        let offsets = self.client.topic_offsets(self.topic, OffsetAt::Latest, isolation).await?;
        offsets.first().and_then(|it| it.offset).context("one partition")
    }

    /// Waits until read_committed readers see the end of the log.
    fn wait_until_none_is_open(&self, runtime: &Runtime) -> Result<()> {
        let is_closed = || {
            runtime.block_on(async {
                let end = self.end(Isolation::ReadUncommitted).await?;
                Ok(self.end(Isolation::ReadCommitted).await? == end)
            })
        };
        wait_for("the end of a transaction that nobody knows", TIME_LIMIT, is_closed)
    }
}

fn check_durability(daemon: &Daemon, volumes: &[&str], wanted: &str) -> Result<()> {
    for volume in volumes {
        let found = serde_json::to_value(daemon.volume(volume)?.durability)?;
        ensure!(found == wanted, "{volume} is of class {found}, not {wanted}");
    }
    Ok(())
}

/// Loses memory under a topic that is created in one class, and changed to a class that survives
/// this.
fn check_survival(made: &str) -> Result<()> {
    let mut daemon = start_daemon()?;
    let mut broker = Broker::on_daemon(&daemon.run_dir(), "")?;
    let runtime = Runtime::new()?;
    check_durability(&daemon, &STATE, "ram")?;
    let log = Log::of(&broker, "orders");
    let committed = CommittedOffset { topic: "orders".into(), partition: 0, offset: 3 };
    runtime.block_on(async {
        log.create(&[("memlane.durability", made)]).await?;
        let mut producer = log.producer("first").await?;
        log.send(&mut producer, 3).await?;
        producer.commit().await?;
        log.client.set_group_offsets("group", std::slice::from_ref(&committed)).await?;
        log.set_durability("journal").await?;
        // One transaction is open when memory is lost.
        log.send(&mut producer, 2).await
    })?;
    check_durability(&daemon, &STATE, "journal")?;
    broker.kill()?;
    daemon.lose_memory()?;
    daemon.start_again()?;
    broker.start_again()?;
    let log = Log::of(&broker, "orders");
    runtime.block_on(async {
        let found = log.client.group_offsets("group").await?;
        ensure!(found == [committed], "the group is at {found:?}");
        let mut other = log.producer("second").await?;
        let end = log.end(Isolation::ReadUncommitted).await?;
        let at = log.send(&mut other, 1).await?;
        ensure!(at == end, "a new producer's record is at {at}, and the end was {end}");
        other.commit().await?;
        // Its open transaction is ended by the next producer with its id.
        log.producer("first").await.map(drop)
    })?;
    log.wait_until_none_is_open(&runtime)?;
    broker.stop()?;
    daemon.finish()
}

#[test]
fn groups_and_transactions_survive_what_records_survive() -> Result<()> {
    ["journal", "ram"].into_iter().try_for_each(check_survival)
}

#[test]
fn state_that_is_lost_holds_no_reader_up_and_takes_no_record_for_a_repeat() -> Result<()> {
    let daemon = start_daemon()?;
    let mut broker = Broker::on_daemon(&daemon.run_dir(), "")?;
    let runtime = Runtime::new()?;
    let log = Log::of(&broker, "orders");
    runtime.block_on(async {
        log.create(&[]).await?;
        let mut producer = log.producer("first").await?;
        log.send(&mut producer, 2).await
    })?;
    broker.stop()?;
    daemon.memlane("volume delete broker-state --force")?;
    broker.start_again()?;
    let log = Log::of(&broker, "orders");
    log.wait_until_none_is_open(&runtime)?;
    runtime.block_on(async {
        let end = log.end(Isolation::ReadUncommitted).await?;
        let mut other = log.producer("other").await?;
        let at = log.send(&mut other, 1).await?;
        ensure!(at == end, "a new producer's record is at {at}, and the end was {end}");
        other.commit().await?;
        // Also without transactions.
        let settings = ProducerSettings {
            acks: Acks::All,
            is_idempotent: true,
            ..ProducerSettings::default()
        };
        let mut plain = Producer::new(Arc::clone(&log.client), log.topic, settings).await?;
        let end = log.end(Isolation::ReadUncommitted).await?;
        let sent = plain.send(vec![(0, vec![NewRecord::default()])]).await?;
        ensure!(sent == [(0, end)], "{sent:?}, and the end was {end}");
        Ok(())
    })?;
    broker.stop()?;
    daemon.finish()
}

#[test]
fn a_volume_is_kept_at_least_as_the_settings_of_its_topic_say() -> Result<()> {
    let daemon = start_daemon()?;
    let mut broker = Broker::on_daemon(&daemon.run_dir(), "")?;
    let runtime = Runtime::new()?;
    let log = Log::of(&broker, "orders");
    runtime.block_on(log.create(&[]))?;
    check_durability(&daemon, &["topic.orders"], "ram")?;
    broker.stop()?;
    let flags = "--topic-default memlane.durability=journal";
    let mut broker = Broker::on_daemon(&daemon.run_dir(), flags)?;
    let log = Log::of(&broker, "orders");
    check_durability(&daemon, &["topic.orders"], "journal")?;
    check_durability(&daemon, &STATE, "journal")?;
    // Changed directly on the volume, and set again to the same value.
    daemon.memlane("volume set topic.orders durability=ram")?;
    runtime.block_on(log.set_durability("journal"))?;
    check_durability(&daemon, &["topic.orders"], "journal")?;
    daemon.memlane("volume set topic.orders durability=ram")?;
    runtime.block_on(log.set_durability("journal"))?;
    check_durability(&daemon, &["topic.orders"], "journal")?;
    runtime.block_on(log.set_durability("ram"))?;
    check_durability(&daemon, &["topic.orders"], "ram")?;
    check_durability(&daemon, &STATE, "journal")?;
    broker.stop()?;
    daemon.finish()
}

/// Returns the class of a topic as reported to clients and operators, which must agree.
fn told(runtime: &Runtime, broker: &Broker, log: &Log) -> Result<String> {
    let settings = runtime.block_on(log.client.topic_configs(log.topic))?;
    let setting = settings.into_iter().find(|it| it.name == "memlane.durability");
    let told = setting.and_then(|it| it.value).context("each topic has a class")?;
    let shown = broker.ask(&format!("/v1/topics/{}", log.topic))?;
    ensure!(shown.contains(&format!("\"durability\":\"{told}\"")), "{told} and {shown}");
    Ok(told)
}

#[test]
fn what_is_told_of_a_topic_is_true_of_its_volume_wherever_a_change_ends() -> Result<()> {
    let mut daemon = start_daemon()?;
    let mut broker = Broker::on_daemon(&daemon.run_dir(), "")?;
    let runtime = Runtime::new()?;
    runtime.block_on(Log::of(&broker, "orders").create(&[]))?;
    // Between the two steps of a change the volume has the stronger class: as if the broker had
    // been killed there, in both directions.
    for class in ["journal", "ram"] {
        broker.kill()?;
        daemon.memlane("volume set topic.orders durability=journal")?;
        broker.start_again()?;
        let log = Log::of(&broker, "orders");
        ensure!(told(&runtime, &broker, &log)? == "journal");
        runtime.block_on(log.set_durability(class))?;
        check_durability(&daemon, &["topic.orders"], class)?;
        ensure!(told(&runtime, &broker, &log)? == class);
        broker.kill()?;
        broker.start_again()?;
        ensure!(told(&runtime, &broker, &Log::of(&broker, "orders"))? == class);
    }
    // The daemon is killed during the request.
    let log = Log::of(&broker, "orders");
    daemon.signal(Signal::STOP)?;
    let client = Arc::clone(&log.client);
    let topic = log.topic;
    let changing =
        runtime.spawn(async move { Log { client, topic }.set_durability("journal").await });
    daemon.kill()?;
    daemon.start_again()?;
    // The change may have failed.
    let _changed = runtime.block_on(changing)?;
    let is_true = || {
        let kept = serde_json::to_value(daemon.volume("topic.orders")?.durability)?;
        Ok(kept == told(&runtime, &broker, &log)?)
    };
    wait_for("what is true of the volume", TIME_LIMIT, is_true)?;
    runtime.block_on(log.set_durability("journal"))?;
    check_durability(&daemon, &["topic.orders"], "journal")?;
    ensure!(told(&runtime, &broker, &log)? == "journal");
    broker.stop()?;
    daemon.finish()
}

/// Returns incompressible bytes.
fn noise(random: &mut u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    bytes.chunks_mut(8).for_each(|it| {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_041);
        it.copy_from_slice(&(*random >> 16).to_be_bytes()[..it.len()]);
    });
    bytes
}

/// Fills the pool with records of these lengths, each until there is no space, and then signals it.
async fn fill(client: Arc<Client>, topic: &'static str, is_full: oneshot::Sender<()>) {
    let mut is_full = Some(is_full);
    let mut random = 5_u64;
    let mut lengths = [900_000, 60_000, 4_000, 500].into_iter().peekable();
    while let Some(length) = lengths.peek().copied() {
        let value = Some(noise(&mut random, length).into());
        let record = NewRecord { value, ..NewRecord::default() };
        let sent = async {
            let settings = ProducerSettings::default();
            let mut producer = Producer::new(Arc::clone(&client), topic, settings).await?;
            producer.send(vec![(0, vec![record])]).await
        };
        if sent.await.is_err() {
            lengths.next_if(|length| *length > 500);
            if lengths.peek() == Some(&500) {
                // The receiver may be gone.
                let _gone = is_full.take().map(|it| it.send(()));
            }
        }
    }
}

/// Returns the offsets that a group commits in a round.
fn committed(topic: &str, round: i64) -> Vec<CommittedOffset> {
    let offset = |partition| CommittedOffset { topic: topic.into(), partition, offset: round };
    (0..PARTITION_COUNT).map(offset).collect()
}

/// Commits offsets of many groups in several rounds: more than the memory reserved in advance.
async fn commit(client: &Client, topic: &str, rounds: i64) -> Result<()> {
    for round in 0..rounds {
        for group in 0..GROUP_COUNT {
            let group = format!("group-{group}");
            let done = client.set_group_offsets(&group, &committed(topic, round)).await;
            done.with_context(|| format!("{group} in round {round}"))?;
        }
    }
    Ok(())
}

#[test]
fn groups_commit_in_a_pool_that_a_producer_filled_and_retention_gives_room() -> Result<()> {
    const ROUNDS: i64 = 20;
    let daemon = Daemon::start(DaemonOptions { pool_size: "64MiB", flags: "--no-fuse" })?;
    let mut broker = Broker::on_daemon(&daemon.run_dir(), "")?;
    let runtime = Runtime::new()?;
    let log = Log::of(&broker, "orders");
    let (is_full, full) = oneshot::channel();
    // Duration of retries.
    let request_time_max = Duration::from_millis(200);
    let impatient = Settings { request_time_max, ..Settings::default() };
    let impatient = Arc::new(Client::new(broker.address(), impatient));
    runtime
        .block_on(async {
            let name = log.topic.to_owned();
            let (partitions, configs) = (Some(PARTITION_COUNT), Vec::new());
            log.client.create_topic(&NewTopic { name, partitions, configs }).await?;
            let filling = tokio::spawn(fill(impatient, log.topic, is_full));
            full.await?;
            // The filler continues, so freed memory is taken again.
            let committed = commit(&log.client, log.topic, ROUNDS).await;
            filling.abort();
            committed
        })
        .with_context(|| broker.log())?;
    ensure!(broker.ask("/readyz")?.starts_with("HTTP/1.1 200"), "{}", broker.ask("/readyz")?);
    runtime.block_on(async {
        let change = ConfigChange { name: "retention.ms".into(), value: Some("1000".into()) };
        log.client.alter_topic_configs(log.topic, &[change]).await
    })?;
    let has_room = || {
        let sent = runtime.block_on(async {
            let settings = ProducerSettings::default();
            let mut producer = Producer::new(Arc::clone(&log.client), log.topic, settings).await?;
            let value = Some(vec![7; 900_000].into());
            producer.send(vec![(0, vec![NewRecord { value, ..NewRecord::default() }])]).await
        });
        Ok(sent.is_ok())
    };
    wait_for("room that retention makes", TIME_LIMIT, has_room)?;
    broker.stop()?;
    broker.start_again()?;
    for group in [0, GROUP_COUNT - 1] {
        let client = Log::of(&broker, "orders").client;
        let found = runtime.block_on(client.group_offsets(&format!("group-{group}")))?;
        let expected = committed(log.topic, ROUNDS - 1);
        ensure!(found == expected, "group {group} is at {found:?}");
    }
    broker.stop()?;
    daemon.finish()
}

#[test]
fn retention_by_size_makes_room_for_more_than_the_pool_holds() -> Result<()> {
    const BATCH_COUNT: usize = 120;
    let mut broker = Broker::start("--embedded 64MiB")?;
    let client = Arc::new(Client::new(broker.address(), Settings::default()));
    Runtime::new()?.block_on(async {
        let configs = [("retention.bytes", "8388608"), ("segment.bytes", "1073741824")];
        let configs = configs.map(|(name, value)| (name.into(), value.into())).into();
        let topic = NewTopic { name: "limited".into(), partitions: Some(1), configs };
        client.create_topic(&topic).await?;
        let settings = ProducerSettings::default();
        let mut producer = Producer::new(Arc::clone(&client), "limited", settings).await?;
        let mut random = 7;
        for _ in 0..BATCH_COUNT {
            let value = Some(noise(&mut random, 900_000).into());
            producer.send(vec![(0, vec![NewRecord { value, ..NewRecord::default() }])]).await?;
        }
        anyhow::Ok(())
    })?;
    broker.stop()
}

#[test]
fn retention_by_size_makes_room_when_it_is_set_on_a_full_pool() -> Result<()> {
    let mut broker = Broker::start("--embedded 64MiB")?;
    let runtime = Runtime::new()?;
    let log = Log::of(&broker, "filling");
    // Duration of retries.
    let request_time_max = Duration::from_millis(200);
    let impatient = Settings { request_time_max, ..Settings::default() };
    let impatient = Arc::new(Client::new(broker.address(), impatient));
    let mut random = 7;
    let mut produce = || {
        let value = Some(noise(&mut random, 900_000).into());
        let record = NewRecord { value, ..NewRecord::default() };
        let sent = runtime.block_on(async {
            let settings = ProducerSettings::default();
            let mut producer = Producer::new(Arc::clone(&impatient), log.topic, settings).await?;
            producer.send(vec![(0, vec![record])]).await
        });
        sent.is_ok()
    };
    runtime.block_on(log.create(&[]))?;
    while produce() {}
    let change = ConfigChange { name: "retention.bytes".into(), value: Some("1000".into()) };
    runtime.block_on(log.client.alter_topic_configs(log.topic, &[change]))?;
    wait_for("room that retention makes", TIME_LIMIT, || Ok(produce()))?;
    broker.stop()
}

/// Returns `MANY_TOPICS`, or a number more than twice the daemon's limit on volumes of one user.
fn many_topics() -> usize {
    std::env::var("MANY_TOPICS").ok().and_then(|it| it.parse().ok()).unwrap_or(600)
}

#[test]
fn a_broker_serves_more_topics_than_the_daemon_has_places_for() -> Result<()> {
    let count = many_topics();
    let daemon = Daemon::start(DaemonOptions { pool_size: "1GiB", flags: "--no-fuse" })?;
    let mut broker = Broker::on_daemon(&daemon.run_dir(), "")?;
    let runtime = Runtime::new()?;
    let names: Vec<String> = (0..count).map(|it| format!("topic-{it}")).collect();
    let client = |broker: &Broker| Arc::new(Client::new(broker.address(), Settings::default()));
    let produce = |client: Arc<Client>, name: String| async move {
        let settings = ProducerSettings::default();
        let mut producer = Producer::new(client, &name, settings).await?;
        let value = Some(name.clone().into());
        let record = NewRecord { value, ..NewRecord::default() };
        let sent = producer.send(vec![(0, vec![record])]).await;
        Ok::<_, anyhow::Error>(sent.with_context(|| format!("a record of {name}"))?[0].1)
    };
    let client_now = client(&broker);
    runtime.block_on(async {
        for name in &names {
            let new = NewTopic { name: name.clone(), partitions: Some(1), configs: Vec::new() };
            let made = client_now.create_topic(&new).await;
            made.with_context(|| format!("making {name}"))?;
            ensure!(produce(Arc::clone(&client_now), name.clone()).await? == 0, "{name} is new");
        }
        anyhow::Ok(())
    })?;
    let served: u64 = daemon.volumes()?.iter().map(|it| it.ring_clients).sum();
    ensure!(served < u64::try_from(count)?, "all {count} topics have places: {served}");
    broker.stop()?;
    broker.start_again()?;
    let client_now = client(&broker);
    runtime.block_on(async {
        let topics = client_now.cluster().await?.topics;
        ensure!(topics.len() == count, "{} topics", topics.len());
        for name in &names {
            let offset = produce(Arc::clone(&client_now), name.clone()).await?;
            ensure!(offset == 1, "the first record of {name} is gone: the next is at {offset}");
        }
        anyhow::Ok(())
    })?;
    broker.stop()?;
    daemon.finish()
}

/// Writes the first block of a volume over NBD, and returns its old contents.
fn replace_first_block(daemon: &Daemon, volume: &str, block: &[u8]) -> Result<Vec<u8>> {
    let mut client = NbdClient::connect(&daemon.nbd_socket(), volume)?;
    let length = u32::try_from(block.len())?;
    let before = client.ask(&Request::Read { offset: 0, length })?;
    client.ask(&Request::Write { offset: 0, data: block.to_vec() })?;
    Ok(before)
}

#[test]
fn topics_that_could_not_be_opened_are_served_or_gone_without_a_restart() -> Result<()> {
    let daemon = start_daemon()?;
    let mut broker = Broker::on_daemon(&daemon.run_dir(), "")?;
    let runtime = Runtime::new()?;
    for topic in ["mended", "deleted"] {
        let log = Log::of(&broker, topic);
        runtime.block_on(async {
            log.create(&[]).await?;
            let settings = ProducerSettings::default();
            let mut producer = Producer::new(Arc::clone(&log.client), topic, settings).await?;
            producer.send(vec![(0, vec![NewRecord::default()])]).await?;
            anyhow::Ok(())
        })?;
    }
    broker.stop()?;
    let broken = [0xFF; 4096];
    let block = replace_first_block(&daemon, "topic.mended", &broken)?;
    replace_first_block(&daemon, "topic.deleted", &broken)?;
    broker.start_again()?;
    let end_of = |topic| runtime.block_on(Log::of(&broker, topic).end(Isolation::ReadUncommitted));
    for topic in ["mended", "deleted"] {
        // A client with the usual timeout would get the same answer much later.
        let settings = Settings { request_time_max: Duration::from_secs(1), ..Settings::default() };
        let client = Arc::new(Client::new(broker.address(), settings));
        let log = Log { client, topic };
        let ended = runtime.block_on(log.end(Isolation::ReadUncommitted));
        ensure!(ended.is_err(), "{topic} cannot be opened, and ends at {ended:?}");
    }
    replace_first_block(&daemon, "topic.mended", &block)?;
    daemon.memlane("volume delete topic.deleted --force")?;
    wait_for("the topic to be served", TIME_LIMIT, || Ok(end_of("mended").is_ok()))?;
    ensure!(end_of("mended")? == 1, "its record is there");
    let log = Log::of(&broker, "deleted");
    let is_made = || Ok(runtime.block_on(log.create(&[])).is_ok());
    wait_for("the name of the other one to be free", TIME_LIMIT, is_made)?;
    broker.stop()?;
    daemon.finish()
}
