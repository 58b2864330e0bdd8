//! A journal disk that hangs: volumes that are only in memory do not wait for it, and a broker
//! beside it stops in time.
//!
//! In the topics on that disk each batch begins a segment. One of them has settings that do not
//! mention the journal of its volume.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kafka_client::{
    AclBinding, AclFilter, AclOperation, Client, CommittedOffset, Compression, ConfigChange,
    FetchLimits, Fetcher, GroupGeneration, Isolation, NewTopic, OffsetAt, PatternType, Permission,
    Position, Producer, ProducerSettings, ResourceType, Settings, TransactionSettings,
    TransactionalProducer,
};
use record_batch::NewRecord;
use rustix::process::Signal;
use system::{Ability, Broker, Daemon, Mounted, Tool, missing, wait_for};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Number of clients that write to each topic on the hung disk, more than the number of prepared
/// segments.
const WRITER_COUNT: usize = 40;

/// Size of their records, more than a segment holds.
const BATCH_BYTES: usize = 20_000;

/// Number of consecutive commits beside one that waits.
const ROUND_COUNT: usize = 20;

/// Minimum number of compared requests of each kind, and maximum number of comparisons.
const SAMPLE_COUNT: usize = 200;
const COMPARISON_COUNT_MAX: usize = 20;

/// Variable with the duration of the hang in seconds, for long runs.
const HANG_VARIABLE: &str = "MEMLANE_HANG_SECONDS";

const FAST: &str = "fast";
const HUNG: &str = "hung";

/// Topic whose volume was given a journal independently of its settings.
const KEPT: &str = "kept";

/// A file system in a file that can be made to hang.
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
            // Something has failed before. Nothing must wait for the disk for ever.
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

/// Returns the minimum time for which the disk hangs during measurements.
fn hang_time() -> Result<Duration> {
    match std::env::var(HANG_VARIABLE) {
        Ok(seconds) => Ok(Duration::from_secs(seconds.parse().context(HANG_VARIABLE)?)),
        Err(_) => Ok(Duration::ZERO),
    }
}

/// Creates a client whose requests wait as long as the disk hangs.
fn patient_client(broker: &Broker) -> Result<Arc<Client>> {
    let request_time_max = hang_time()? + TIME_LIMIT;
    let settings = Settings { request_time_max, ..Settings::default() };
    Ok(Arc::new(Client::new(broker.address(), settings)))
}

/// Sends one long record.
async fn write(client: Arc<Client>, topic: &'static str) -> Result<()> {
    let mut producer = Producer::new(client, topic, ProducerSettings::default()).await?;
    let record = NewRecord { value: Some(vec![7; BATCH_BYTES].into()), ..NewRecord::default() };
    Ok(producer.send(vec![(0, vec![record])]).await.map(drop)?)
}

async fn in_time<T>(what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(TIME_LIMIT, work).await.with_context(|| format!("{what} waits"))?
}

/// A daemon with its journal on such a disk, and a broker with a topic of each kind.
struct World {
    /// First, because no process that waits for it can end.
    disk: Disk,
    broker: Broker,
    daemon: Daemon,
    runtime: Runtime,
    /// Writers that wait for the disk.
    writers: Vec<JoinHandle<Result<()>>>,
    /// Number of records in each topic on the disk.
    appended: usize,
    _place: TempDir,
}

impl World {
    fn start() -> Result<Self> {
        let place = tempfile::Builder::new().prefix("memlane-").tempdir()?;
        let disk = Disk::new(place.path())?;
        let flags = format!("--no-fuse --journal-dir {}", disk.folder.join("journal").display());
        let daemon = Daemon::start_flagged("256MiB".to_owned(), flags)?;
        let mut broker = Broker::on_daemon(&daemon.run_dir(), "")?;
        let runtime = Runtime::new()?;
        runtime.block_on(async {
            let client = client(&broker);
            create(&client, FAST, &[("retention.ms", "1"), ("segment.ms", "1")]).await?;
            let segment = ("segment.bytes", "16384");
            create(&client, HUNG, &[("memlane.durability", "journal"), segment]).await?;
            create(&client, KEPT, &[segment]).await
        })?;
        daemon.memlane(&format!("volume set topic.{KEPT} durability=journal"))?;
        broker.stop()?;
        broker.start_again()?;
        runtime.block_on(async {
            let client = client(&broker);
            for topic in [FAST, HUNG, KEPT] {
                send(&mut producer(&broker, topic).await?).await?;
            }
            // The state log has begun, and producer ids are reserved.
            client.set_group_offsets("before", &[committed(FAST)]).await?;
            let settings = ProducerSettings { is_idempotent: true, ..ProducerSettings::default() };
            Producer::new(Arc::clone(&client), FAST, settings).await?;
            anyhow::Ok(())
        })?;
        let (writers, appended) = (Vec::new(), 0);
        Ok(Self { disk, broker, daemon, runtime, writers, appended, _place: place })
    }

    /// Hangs the disk, with many writers waiting for it.
    fn hang(&mut self) -> Result<()> {
        self.disk.hang()?;
        for topic in [HUNG, KEPT] {
            for _ in 0..WRITER_COUNT {
                let writer = write(patient_client(&self.broker)?, topic);
                self.writers.push(self.runtime.spawn(writer));
            }
        }
        self.appended += WRITER_COUNT;
        for topic in [HUNG, KEPT] {
            // The records are in the log, and not acknowledged.
            let counter = format!("memlane_broker_topic_records_in_total{{topic={topic:?}}}");
            let wanted = format!("{counter} {}", 1 + self.appended);
            let is_there = || Ok(self.broker.ask("/metrics")?.contains(&wanted));
            wait_for("records that wait for the disk", TIME_LIMIT, is_there)?;
        }
        Ok(())
    }

    /// Lets the disk complete everything that waits.
    fn recover(&mut self) -> Result<()> {
        ensure!(!self.writers.iter().any(JoinHandle::is_finished), "a writer did not wait");
        self.disk.recover()?;
        let writers = std::mem::take(&mut self.writers);
        let all = async {
            for writer in writers {
                writer.await??;
            }
            Ok(())
        };
        self.runtime.block_on(in_time("a writer", all))
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
        let position = Position { topic: FAST.into(), partition: 0, offset: 1 };
        let fetched = in_time("fetching", async { Ok(fetcher.fetch(&[position]).await?) }).await?;
        let values: Vec<_> =
            fetched.iter().flat_map(|it| &it.records).map(|it| &it.value).collect();
        ensure!(values == [&record().value], "what was written is read: {fetched:?}");
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
    world.recover()?;
    world.broker.stop()?;
    world.finish()
}

/// Durations of requests of each kind, at the 99th percentile.
struct Slowest {
    produce: Duration,
    fetch: Duration,
    commit: Duration,
}

impl Slowest {
    /// Measures requests that do not concern a topic on the disk, for this minimum time.
    async fn measure(broker: &Broker, least: Duration) -> Result<Self> {
        let begin = Instant::now();
        let mut times = [const { Vec::new() }; 3];
        let client = client(broker);
        let mut producer = producer(broker, FAST).await?;
        let isolation = Isolation::ReadCommitted;
        let limits = FetchLimits::default();
        let mut fetcher = Fetcher::new(Arc::clone(&client), limits, isolation);
        let offsets = [committed(FAST)];
        while times[0].len() < SAMPLE_COUNT || begin.elapsed() < least {
            let start = Instant::now();
            let sent = async { Ok(producer.send(vec![(0, vec![record()])]).await?) };
            let sent = in_time("producing", sent).await?;
            let (produced, offset) = (Instant::now(), sent[0].1);
            let position = Position { topic: FAST.into(), partition: 0, offset };
            in_time("fetching", async { Ok(fetcher.fetch(&[position]).await?) }).await?;
            let fetched = Instant::now();
            let commit = async { Ok(client.set_group_offsets("group", &offsets).await?) };
            in_time("a commit", commit).await?;
            times[0].push(produced - start);
            times[1].push(fetched - produced);
            times[2].push(fetched.elapsed());
        }
        let [produce, fetch, commit] = times.map(|mut of_kind: Vec<Duration>| {
            of_kind.sort_unstable();
            of_kind[of_kind.len() - 1 - of_kind.len() / 100]
        });
        Ok(Self { produce, fetch, commit })
    }

    fn is_within(&self, factor: u32, quiet: &Self) -> bool {
        self.produce <= quiet.produce * factor
            && self.fetch <= quiet.fetch * factor
            && self.commit <= quiet.commit * factor
    }
}

#[test]
fn requests_of_other_topics_take_at_most_twice_as_long_while_a_disk_hangs() -> Result<()> {
    if let Some(reason) = missing(&[Ability::BlockDevices]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let (mut world, least) = (World::start()?, hang_time()?);
    let mut is_good = false;
    // The load of the machine changes, so only times of the same round are compared.
    for _ in 0..COMPARISON_COUNT_MAX {
        let quiet = world.runtime.block_on(Slowest::measure(&world.broker, least))?;
        world.hang()?;
        let hung = world.runtime.block_on(Slowest::measure(&world.broker, least))?;
        world.recover()?;
        for (state, it) in [("quiet", &quiet), ("while a disk hangs", &hung)] {
            let Slowest { produce, fetch, commit } = it;
            eprintln!("{state}: produce {produce:?}, fetch {fetch:?}, commit {commit:?}");
        }
        is_good = hung.is_within(2, &quiet);
        if is_good {
            break;
        }
    }
    ensure!(is_good, "requests that need no disk take longer while one hangs");
    world.broker.stop()?;
    world.finish()
}

async fn transactional(client: &Arc<Client>, id: &str) -> Result<TransactionalProducer> {
    let settings = TransactionSettings { compression: Compression::None, time_max: TIME_LIMIT };
    Ok(TransactionalProducer::new(Arc::clone(client), id, settings).await?)
}

async fn transact(client: &Arc<Client>, id: &str, topics: &[&str]) -> Result<()> {
    let mut producer = transactional(client, id).await?;
    for topic in topics {
        producer.send(topic, vec![(0, vec![record()])]).await?;
    }
    Ok(producer.commit().await?)
}

#[test]
fn a_transaction_waits_for_the_disks_of_its_own_topics_alone() -> Result<()> {
    if let Some(reason) = missing(&[Ability::BlockDevices]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let mut world = World::start()?;
    let earlier = self::client(&world.broker);
    world.runtime.block_on(async {
        let (group, member_id) = ("of-before".to_owned(), String::new());
        let generation = GroupGeneration { group, generation: -1, member_id };
        let mut producer = transactional(&earlier, "before").await?;
        producer.commit_offsets(&generation, &[committed(HUNG)]).await?;
        anyhow::Ok(producer.commit().await?)
    })?;
    world.hang()?;
    let end_of = async |client: &Client, isolation| {
        let ends = client.topic_offsets(FAST, OffsetAt::Latest, isolation).await?;
        ends.first().and_then(|it| it.offset).context("a partition without an end")
    };
    let slow = self::client(&world.broker);
    let waiting = Arc::clone(&slow);
    let slow = world.runtime.spawn(async move { transact(&waiting, "slow", &[FAST, HUNG]).await });
    // An epoch of an id that had offsets of a topic on the disk, and no topic now.
    let before = world.runtime.spawn(async move { transactional(&earlier, "before").await });
    let client = client(&world.broker);
    world.runtime.block_on(async {
        for round in 0..ROUND_COUNT {
            in_time("a transaction", transact(&client, &format!("id-{round}"), &[FAST])).await?;
        }
        anyhow::Ok(())
    })?;
    ensure!(!slow.is_finished(), "a transaction was committed that is on no disk");
    ensure!(!before.is_finished(), "an epoch was given that is on no disk");
    world.recover()?;
    let World { broker, runtime, .. } = &mut world;
    runtime.block_on(in_time("the transaction", async { slow.await? }))?;
    runtime.block_on(in_time("the epoch", async { before.await? }))?;
    // Everything acknowledged early is also in the log.
    broker.kill()?;
    broker.start_again()?;
    let client = self::client(broker);
    runtime.block_on(in_time("all to be decided", async {
        // One record before, one of each transaction, and its marker, which may be repeated.
        let wanted = 1 + 2 * (1 + i64::try_from(ROUND_COUNT)?);
        loop {
            let decided = end_of(&client, Isolation::ReadCommitted).await?;
            if decided >= wanted && decided == end_of(&client, Isolation::ReadUncommitted).await? {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }))?;
    broker.stop()?;
    world.finish()
}

#[test]
fn a_topic_is_changed_beside_changes_of_others_that_wait_for_a_disk() -> Result<()> {
    if let Some(reason) = missing(&[Ability::BlockDevices]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let mut world = World::start()?;
    world.hang()?;
    let change = |value: &str| {
        [ConfigChange { name: "retention.ms".to_owned(), value: Some(value.to_owned()) }]
    };
    let (first, second) = (client(&world.broker), client(&world.broker));
    let setting = change("1000000");
    let slow = [
        world.runtime.spawn(async move { first.alter_topic_configs(HUNG, &setting).await }),
        world.runtime.spawn(async move { second.enlarge_topic(KEPT, 2).await }),
    ];
    let client = client(&world.broker);
    world.runtime.block_on(async {
        for round in 0..ROUND_COUNT {
            let change = change(&round.to_string());
            let changed = async { Ok(client.alter_topic_configs(FAST, &change).await?) };
            in_time("a setting", changed).await?;
        }
        anyhow::Ok(())
    })?;
    ensure!(!slow.iter().any(JoinHandle::is_finished), "a change was made that is on no disk");
    world.recover()?;
    for changed in slow {
        world.runtime.block_on(in_time("a change", async { Ok(changed.await??) }))?;
    }
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
    // On a separate connection, because answers are in the order of requests.
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
    world.recover()?;
    let World { broker, runtime, .. } = &mut world;
    runtime.block_on(in_time("the commit", async { Ok(commit.await??) }))?;
    // Everything acknowledged early is also in the log.
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

/// Starts the broker while the disk hangs, and observes it until the disk has recovered.
fn check_a_start(world: &mut World, round: i64) -> Result<()> {
    let World { broker, runtime, disk, .. } = world;
    disk.hang()?;
    broker.start_again()?;
    let readiness = broker.ask("/readyz")?;
    ensure!(readiness.contains("the disk does not respond"), "it says {readiness}");
    ensure!(readiness.contains(&format!("{HUNG}, {KEPT}")), "it names none: {readiness}");
    let client = client(broker);
    let group = format!("group-{round}");
    runtime.block_on(async {
        let mut producer = producer(broker, FAST).await?;
        for _ in 0..ROUND_COUNT {
            in_time("producing", send(&mut producer)).await?;
            let offsets = [committed(FAST)];
            let commit = async { Ok(client.set_group_offsets(&group, &offsets).await?) };
            in_time("a commit", commit).await?;
        }
        let name = format!("made-{round}");
        in_time("making a topic", create(&client, &name, &[])).await
    })?;
    let waiting = self::client(broker);
    let waiting = runtime.spawn(async move {
        let mut producer = Producer::new(waiting, HUNG, ProducerSettings::default()).await?;
        send(&mut producer).await
    });
    let committing = self::client(broker);
    let commit = runtime.spawn(async move {
        let offsets = [committed(HUNG)];
        committing.set_group_offsets("slow", &offsets).await
    });
    runtime.block_on(async {
        for _ in 0..ROUND_COUNT {
            let offsets = [committed(FAST)];
            let commit = async { Ok(client.set_group_offsets(&group, &offsets).await?) };
            in_time("a commit beside one that waits", commit).await?;
        }
        anyhow::Ok(())
    })?;
    ensure!(!waiting.is_finished(), "a record was acknowledged that is on no disk");
    disk.recover()?;
    runtime.block_on(in_time("the record", async { waiting.await? }))?;
    // It may have failed as a commit for a missing topic.
    drop(runtime.block_on(commit)?);
    wait_for("all topics to be served", TIME_LIMIT, || {
        Ok(!broker.ask("/readyz")?.contains("not available"))
    })?;
    runtime.block_on(async {
        let isolation = Isolation::ReadCommitted;
        let ends = client.topic_offsets(HUNG, OffsetAt::Latest, isolation).await?;
        ensure!(ends.first().and_then(|it| it.offset) == Some(2 + round), "{ends:?}");
        let found = client.group_offsets("earlier").await?;
        ensure!(found == [committed(HUNG)], "the group is at {found:?}");
        let found = client.group_offsets(&group).await?;
        ensure!(found == [committed(FAST)], "the group is at {found:?}");
        anyhow::Ok(())
    })?;
    Ok(())
}

#[test]
fn a_broker_that_starts_while_a_disk_hangs_serves_all_other_topics() -> Result<()> {
    if let Some(reason) = missing(&[Ability::BlockDevices]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let mut world = World::start()?;
    let earlier = client(&world.broker);
    world.runtime.block_on(earlier.set_group_offsets("earlier", &[committed(HUNG)]))?;
    world.broker.kill()?;
    check_a_start(&mut world, 0)?;
    world.broker.stop()?;
    check_a_start(&mut world, 1)?;
    // Everything acknowledged before the disk completed it is also in the log.
    let World { broker, runtime, .. } = &mut world;
    broker.kill()?;
    broker.start_again()?;
    for round in 0..2 {
        let found = runtime.block_on(client(broker).group_offsets(&format!("group-{round}")))?;
        ensure!(found == [committed(FAST)], "the group is at {found:?}");
    }
    broker.stop()?;
    world.finish()
}

#[test]
fn a_broker_that_was_started_while_a_disk_hangs_stops() -> Result<()> {
    if let Some(reason) = missing(&[Ability::BlockDevices]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let mut world = World::start()?;
    world.broker.kill()?;
    world.disk.hang()?;
    world.broker.start_again()?;
    world.broker.stop()?;
    ensure!(world.disk.is_hung, "it ended before the disk takes anything");
    world.disk.recover()?;
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

/// Goal: files of access lists on a hung disk delay no request except those on access lists, and no
/// signal.
/// Method: a change of the lists waits for the disk, and more clients request the lists than the
/// broker has threads. Then the broker must reload them, and stop.
#[test]
fn access_lists_on_a_disk_that_hangs_hold_up_no_other_request_and_no_signal() -> Result<()> {
    if let Some(reason) = missing(&[Ability::BlockDevices]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let place = tempfile::Builder::new().prefix("memlane-").tempdir()?;
    let mut disk = Disk::new(place.path())?;
    let lists = disk.folder.join("lists");
    let allowed = "version = 1\n[[acl]]\nprincipal = \"User:ANONYMOUS\"\nhost = \"*\"\n\
                   permission = \"Allow\"\noperation = \"All\"\nresource = \"Cluster\"\n\
                   name = \"kafka-cluster\"\npattern = \"Literal\"\n";
    std::fs::write(&lists, allowed)?;
    let flags = format!("--embedded 128M --acl-file {}", lists.display());
    let mut broker = Broker::start(&flags)?;
    let runtime = Runtime::new()?;
    let new = AclBinding {
        resource_type: ResourceType::Topic,
        resource_name: FAST.to_owned(),
        pattern: PatternType::Literal,
        principal: "User:writer".to_owned(),
        host: "*".to_owned(),
        operation: AclOperation::Write,
        permission: Permission::Allow,
    };
    disk.hang()?;
    let (changing, asked) = (patient_client(&broker)?, AclFilter::default());
    let change = runtime.spawn(async move { changing.add_acl(&new).await });
    let taken = |request: &str, count: usize| {
        let line = format!("memlane_broker_requests_total{{request={request:?}}} {count}");
        let is_taken = || Ok(broker.ask("/metrics")?.contains(&line));
        wait_for("requests about access lists", TIME_LIMIT, is_taken)
    };
    taken("CreateAcls", 1)?;
    let mut asking = Vec::new();
    for _ in 0..WRITER_COUNT {
        let (client, asked) = (patient_client(&broker)?, asked.clone());
        asking.push(runtime.spawn(async move { client.acls(&asked).await }));
    }
    taken("DescribeAcls", WRITER_COUNT)?;
    let other = client(&broker);
    runtime.block_on(in_time("another request", async { Ok(other.cluster().await.map(drop)?) }))?;
    broker.signal(Signal::HUP)?;
    broker.signal(Signal::TERM)?;
    let is_heeded = || Ok(broker.log().contains("stopping: finishing requests in flight"));
    wait_for("the signal to be heeded", TIME_LIMIT, is_heeded)?;
    ensure!(!change.is_finished(), "the change did not wait for the disk");
    disk.recover()?;
    broker.wait_until_ended()?;
    disk.finish()
}

#[test]
fn a_daemon_that_starts_while_its_journals_disk_hangs_names_it() -> Result<()> {
    if let Some(reason) = missing(&[Ability::BlockDevices]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let place = tempfile::Builder::new().prefix("memlane-").tempdir()?;
    let mut daemon = Daemon::prepare("64MiB".to_owned(), String::new())?;
    // Dropped before the daemon, which does not end while it waits for the disk.
    let mut disk = Disk::new(place.path())?;
    let journal = disk.folder.join("journal").display().to_string();
    daemon.set_flags(&format!("--no-fuse --journal-dir {journal}"));
    daemon.start_again()?;
    daemon.memlane("volume create db --size 16MiB --durability journal")?;
    daemon.kill()?;
    disk.hang()?;
    daemon.launch()?;
    wait_for("the daemon to name what it waits for", TIME_LIMIT, || {
        Ok(daemon.ask("/readyz").is_ok_and(|it| it.contains("503") && it.contains(&journal)))
    })?;
    wait_for("a warning in its log", TIME_LIMIT, || {
        let log = daemon.log_end();
        let is_warning = |line: &&str| line.contains("WARN") && line.contains("still starting");
        Ok(log.lines().find(is_warning).is_some_and(|line| line.contains(&journal)))
    })?;
    ensure!(daemon.ask("/readyz")?.contains(&journal), "it waits for the disk as before");
    disk.recover()?;
    daemon.wait_until_ready()?;
    ensure!(daemon.memlane("volume show db")?.contains("journal"), "the volume is there");
    daemon.finish()?;
    disk.finish()
}
