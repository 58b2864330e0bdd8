//! A journal's disk that takes nothing: what is kept in memory alone does not wait for it, and a
//! broker beside it stops in time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kafka_client::{
    Client, CommittedOffset, FetchLimits, Fetcher, Isolation, NewTopic, OffsetAt, Position,
    Producer, ProducerSettings, Settings,
};
use record_batch::NewRecord;
use rustix::process::Signal;
use system::{Ability, Broker, Daemon, Mounted, Tool, missing, wait_for};
use tempfile::TempDir;
use tokio::runtime::Runtime;

const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Clients that write to the topic whose disk hangs.
const WRITER_COUNT: usize = 6;

/// Commits one after the other beside one that waits.
const ROUND_COUNT: usize = 20;

const FAST: &str = "fast";
const HUNG: &str = "hung";

/// A file system in a file, which can be told to take nothing.
struct Disk {
    mounted: Option<Mounted>,
    folder: PathBuf,
    is_hung: bool,
}

impl Disk {
    fn new(place: &Path) -> Result<Self> {
        let (file, folder) = (place.join("disk"), place.join("journal-disk"));
        std::fs::File::create(&file)?.set_len(256 << 20)?;
        Tool::new("mkfs.ext4 -q").arg(&file).check()?;
        let mounted = Mounted::new(&file, &folder, "loop")?;
        Ok(Self { mounted: Some(mounted), folder, is_hung: false })
    }

    fn hang(&mut self) -> Result<()> {
        Tool::new("fsfreeze --freeze").arg(&self.folder).check()?;
        self.is_hung = true;
        Ok(())
    }

    fn recover(&mut self) -> Result<()> {
        self.is_hung = false;
        Tool::new("fsfreeze --unfreeze").arg(&self.folder).check().map(drop)
    }

    fn finish(mut self) -> Result<()> {
        self.mounted.take().context("it is mounted")?.unmount()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_hung {
            // Something went wrong before; what matters is that nobody waits for it for ever.
            self.recover().ok();
        }
    }
}

fn client(broker: &Broker) -> Arc<Client> {
    Arc::new(Client::new(broker.address(), Settings::default()))
}

async fn create(client: &Client, name: &str, configs: &[(&str, &str)]) -> Result<()> {
    let configs = configs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let topic = NewTopic { name: name.to_owned(), partitions: Some(1), configs };
    Ok(client.create_topic(&topic).await?)
}

fn record() -> NewRecord {
    NewRecord { value: Some("value".into()), ..NewRecord::default() }
}

async fn send(producer: &mut Producer) -> Result<()> {
    Ok(producer.send(vec![(0, vec![record()])]).await.map(drop)?)
}

fn committed(topic: &str) -> CommittedOffset {
    CommittedOffset { topic: topic.to_owned(), partition: 0, offset: 1 }
}

/// Writes without an end.
async fn write_on(client: Arc<Client>, topic: &'static str) -> Result<()> {
    let mut producer = Producer::new(client, topic, ProducerSettings::default()).await?;
    loop {
        send(&mut producer).await?;
    }
}

async fn in_time<T>(what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(TIME_LIMIT, work).await.with_context(|| format!("{what} waits"))?
}

/// A daemon with its journal on such a disk, and a broker that serves a topic of each kind.
struct World {
    /// First: no process ends that waits for it.
    disk: Disk,
    broker: Broker,
    daemon: Daemon,
    runtime: Runtime,
    _place: TempDir,
}

impl World {
    fn start() -> Result<Self> {
        let place = tempfile::Builder::new().prefix("memlane-").tempdir()?;
        let disk = Disk::new(place.path())?;
        let flags = format!("--no-fuse --journal-dir {}", disk.folder.join("journal").display());
        let daemon = Daemon::start_flagged("256MiB".to_owned(), flags)?;
        let broker = Broker::on_daemon(&daemon.run_dir(), "")?;
        let runtime = Runtime::new()?;
        runtime.block_on(async {
            let client = client(&broker);
            create(&client, FAST, &[("retention.ms", "1"), ("segment.ms", "1")]).await?;
            create(&client, HUNG, &[("memlane.durability", "journal")]).await?;
            for topic in [FAST, HUNG] {
                send(&mut producer(&broker, topic).await?).await?;
            }
            // The log of the state has begun, and ids are reserved.
            client.set_group_offsets("before", &[committed(FAST)]).await?;
            let settings = ProducerSettings { is_idempotent: true, ..ProducerSettings::default() };
            Producer::new(Arc::clone(&client), FAST, settings).await?;
            anyhow::Ok(())
        })?;
        Ok(Self { daemon, broker, disk, runtime, _place: place })
    }

    /// Has many wait for the disk from now on.
    fn hang(&mut self) -> Result<()> {
        self.disk.hang()?;
        for _ in 0..WRITER_COUNT {
            self.runtime.spawn(write_on(client(&self.broker), HUNG));
        }
        // They are in the log, and not acknowledged.
        let appended = 1 + WRITER_COUNT;
        let wanted = format!("memlane_broker_topic_records_in_total{{topic={HUNG:?}}} {appended}");
        let is_there = || Ok(self.broker.ask("/metrics")?.contains(&wanted));
        wait_for("records that wait for the disk", TIME_LIMIT, is_there)
    }

    fn finish(self) -> Result<()> {
        self.daemon.finish()?;
        self.disk.finish()
    }
}

async fn producer(broker: &Broker, topic: &str) -> Result<Producer> {
    Ok(Producer::new(client(broker), topic, ProducerSettings::default()).await?)
}

#[test]
fn a_disk_that_hangs_holds_up_no_topic_that_is_in_memory_alone() -> Result<()> {
    if let Some(reason) = missing(&[Ability::BlockDevices]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let mut world = World::start()?;
    world.hang()?;
    let World { broker, runtime, .. } = &world;
    let client = client(broker);
    runtime.block_on(async {
        in_time("metadata", async { Ok(client.topic(FAST).await?) }).await?;
        in_time("producing", async { send(&mut producer(broker, FAST).await?).await }).await?;
        let isolation = Isolation::ReadCommitted;
        let mut fetcher = Fetcher::new(Arc::clone(&client), FetchLimits::default(), isolation);
        let position = Position { topic: FAST.into(), partition: 0, offset: 2 };
        in_time("fetching", async { Ok(fetcher.fetch(&[position]).await?) }).await?;
        let committed = [committed(FAST)];
        in_time("a commit", async { Ok(client.set_group_offsets("group", &committed).await?) })
            .await?;
        let found = in_time("offsets", async { Ok(client.group_offsets("group").await?) }).await?;
        ensure!(found == committed, "the group is at {found:?}");
        let settings = ProducerSettings { is_idempotent: true, ..ProducerSettings::default() };
        in_time("an id", async {
            let mut producer = Producer::new(Arc::clone(&client), FAST, settings).await?;
            send(&mut producer).await
        })
        .await?;
        in_time("retention", async {
            loop {
                let start = client.topic_offsets(FAST, OffsetAt::Earliest, isolation).await?;
                if start.first().and_then(|it| it.offset) == Some(3) {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await
    })?;
    world.disk.recover()?;
    world.broker.stop()?;
    world.finish()
}

#[test]
fn what_speaks_of_records_on_a_disk_waits_for_it_and_is_not_lost() -> Result<()> {
    if let Some(reason) = missing(&[Ability::BlockDevices]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let mut world = World::start()?;
    world.hang()?;
    let client = client(&world.broker);
    // Of a connection of its own: answers come in the order of requests.
    let committing = self::client(&world.broker);
    let commit = world.runtime.spawn(async move {
        let offsets = [committed(HUNG)];
        committing.set_group_offsets("slow", &offsets).await
    });
    world.runtime.block_on(async {
        let offsets = [committed(FAST)];
        for _ in 0..ROUND_COUNT {
            let commit = async { Ok(client.set_group_offsets("fast", &offsets).await?) };
            in_time("a commit beside one that waits", commit).await?;
        }
        anyhow::Ok(())
    })?;
    ensure!(!commit.is_finished(), "a commit was acknowledged that is on no disk");
    world.disk.recover()?;
    let World { broker, runtime, .. } = &mut world;
    runtime.block_on(in_time("the commit", async { Ok(commit.await??) }))?;
    // What was acknowledged early is in the log as well.
    broker.kill()?;
    broker.start_again()?;
    let client = self::client(broker);
    for (group, topic) in [("fast", FAST), ("slow", HUNG)] {
        let found = runtime.block_on(client.group_offsets(group))?;
        ensure!(found == [committed(topic)], "group {group:?} is at {found:?}");
    }
    broker.stop()?;
    world.finish()
}

#[test]
fn a_broker_stops_although_a_disk_hangs() -> Result<()> {
    if let Some(reason) = missing(&[Ability::BlockDevices]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let mut world = World::start()?;
    world.hang()?;
    world.broker.signal(Signal::TERM)?;
    world.broker.wait_until_ended()?;
    ensure!(world.disk.is_hung, "it ended before the disk takes anything");
    world.disk.recover()?;
    world.finish()
}
