//! One storm: processes, clients and kills, and the results.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kafka_client::NewTopic;
use system::{Broker, Daemon, Random, wait_for};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::producers::Cast;
use crate::stage::{
    Act, BRIEF, BRIEF_BYTES, INPUT, KEYED, OUTPUT, PARTITION_COUNT, PLAIN, READERS, Stage, TOPICS,
    TRANSACTIONS, WORKERS,
};
use crate::sweeps::Sweeper;
use crate::verifiers::{Verifier, ends};
use crate::{consumers, makers, producers};

/// Time limit for the progress of all clients after a kill, and for reading everything after the
/// last.
const ROUND_TIME_LIMIT: Duration = Duration::from_secs(60);
const END_TIME_LIMIT: Duration = Duration::from_secs(120);

/// Maximum delay of the next kill after all clients have progressed.
const DELAY_MICROSECONDS_MAX: u64 = 60_000;

/// Maximum delay of a kill after the start of a broker.
const START_DELAY_MICROSECONDS_MAX: u64 = 60_000;

/// Interval of retention and compaction. One kill is at about that time.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);
const UPKEEP_DELAY_MICROSECONDS_MAX: u64 = 200_000;

/// Counts that only kills cause, by chance, or that are determined at the end.
const SELDOM: [&str; 2] = [REPEATED, REMOVED];
const REPEATED: &str = "plain requests repeated";
const REMOVED: &str = "records removed by compaction and retention";

const POOL_SIZE: &str = "768MiB";

/// Images truncate the journal during the storm.
const DAEMON_FLAGS: &str = "--no-fuse --journal-max-bytes 32MiB";
const DURABILITIES: [&str; 2] = ["ram", "journal"];

/// Location of topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Stored in a separate pool of the broker.
    Embedded,
    /// Stored on volumes of a daemon, randomly in memory or with a journal.
    Daemon,
    /// Stored on volumes of a daemon, all with a journal, so that the pool may be lost.
    Journal,
}

impl Place {
    fn durability(self, random: &mut Random) -> &'static str {
        match self {
            Self::Embedded => "ram",
            Self::Daemon => random.pick(&DURABILITIES),
            Self::Journal => "journal",
        }
    }

    /// Returns the sequence of kills, which is repeated.
    fn victims(self) -> &'static [Victim] {
        use Victim::{Both, Broker, Daemon, Memory, StartingBroker, Upkeep};
        match self {
            Self::Embedded => &[Broker, Broker, StartingBroker, Broker, Broker, Upkeep],
            Self::Daemon => &[Broker, Daemon, Both, StartingBroker, Daemon, Broker, Both, Upkeep],
            Self::Journal => &[Memory, Both, Memory, Daemon, Memory, Upkeep],
        }
    }
}

pub(crate) struct Storm {
    pub(crate) place: Place,
    pub(crate) kill_count: usize,
    pub(crate) seed: u64,
}

/// Report on storms.
#[derive(Debug, Default)]
pub(crate) struct Report {
    kills: BTreeMap<&'static str, u64>,
    counts: BTreeMap<&'static str, u64>,
    /// Times from the restart until all clients had progressed.
    recoveries: Vec<Duration>,
}

impl Report {
    pub(crate) fn add(&mut self, other: &Self) {
        for (name, count) in &other.kills {
            *self.kills.entry(name).or_default() += count;
        }
        for (name, count) in &other.counts {
            *self.counts.entry(name).or_default() += count;
        }
        self.recoveries.extend(&other.recoveries);
        self.recoveries.sort();
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kills")?;
        for (name, count) in &self.kills {
            write!(f, ", {count} of {name}")?;
        }
        write!(f, ";")?;
        for (name, count) in &self.counts {
            write!(f, " {count} {name},")?;
        }
        let median = self.recoveries.get(self.recoveries.len() / 2).copied().unwrap_or_default();
        let longest = self.recoveries.last().copied().unwrap_or_default();
        write!(f, " until all clients got on: median {median:.1?}, longest {longest:.1?}")
    }
}

/// Processes of a storm. Dropped in this order.
struct Processes {
    broker: Broker,
    ready_at: Instant,
    daemon: Option<Daemon>,
    _pool: TempDir,
}

/// Target of a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Broker,
    Daemon,
    Both,
    /// Both, and all memory. Data passed to the kernel for the disk stays.
    Memory,
    StartingBroker,
    /// The broker, at about the time of retention and compaction.
    Upkeep,
}

impl Victim {
    fn name(self) -> &'static str {
        match self {
            Self::Broker => "the broker",
            Self::Daemon => "the daemon",
            Self::Both => "both",
            Self::Memory => "both with all memory",
            Self::StartingBroker => "a broker that starts",
            Self::Upkeep => "a broker at its upkeep",
        }
    }
}

impl Processes {
    fn start(place: Place, random: &mut Random) -> Result<Self> {
        let pool = tempfile::Builder::new().prefix("memlane-log-").tempdir_in("/dev/shm");
        let pool = pool.context("cannot make a folder in /dev/shm")?;
        let mut flags = vec!["--log warn".to_owned()];
        let mut flag = |name: &str, value: String| flags.push(format!("{name} {value}"));
        let daemon = match place {
            Place::Embedded => {
                flag("--embedded", POOL_SIZE.to_owned());
                flag("--pool-file", pool.path().join("pool").display().to_string());
                None
            }
            Place::Daemon | Place::Journal => {
                let daemon = Daemon::start_flagged(POOL_SIZE.to_owned(), DAEMON_FLAGS.to_owned())?;
                flag("--daemon", daemon.run_dir().display().to_string());
                let class = place.durability(random);
                flag("--topic-default", format!("memlane.durability={class}"));
                Some(daemon)
            }
        };
        let broker = Broker::start(&flags.join(" "))?;
        Ok(Self { broker, ready_at: Instant::now(), daemon, _pool: pool })
    }

    /// Kills and restarts the target.
    fn kill(&mut self, victim: Victim, random: &mut Random) -> Result<()> {
        match (victim, self.daemon.as_mut()) {
            (Victim::Daemon, Some(daemon)) => {
                daemon.kill()?;
                daemon.start_again()?;
                return Ok(());
            }
            (Victim::Both | Victim::Memory, Some(daemon)) => {
                let is_daemon_first = random.one_in(2);
                if is_daemon_first {
                    daemon.kill()?;
                }
                self.broker.kill()?;
                if !is_daemon_first {
                    daemon.kill()?;
                }
                if victim == Victim::Memory {
                    daemon.lose_memory()?;
                }
                daemon.start_again()?;
            }
            _ => self.broker.kill()?,
        }
        self.broker.launch()?;
        if victim == Victim::StartingBroker {
            spin_for(random.below(START_DELAY_MICROSECONDS_MAX));
            self.broker.kill()?;
            self.broker.launch()?;
        }
        self.broker.wait_until_ready()?;
        self.ready_at = Instant::now();
        Ok(())
    }
}

impl Storm {
    /// Runs the storm to its end. Fails at the first error.
    pub(crate) fn run(&self) -> Result<Report> {
        let mut random = Random::new(self.seed);
        let mut processes = Processes::start(self.place, &mut random)?;
        let runtime = Runtime::new().context("cannot start threads")?;
        let played = self.play(&runtime, &mut processes, &mut random);
        let report =
            played.with_context(|| format!("the broker's log:\n{}", processes.broker.log()))?;
        drop(runtime);
        processes.broker.stop()?;
        if let Some(daemon) = processes.daemon.take() {
            daemon.finish()?;
        }
        Ok(report)
    }

    fn play(
        &self,
        runtime: &Runtime,
        processes: &mut Processes,
        random: &mut Random,
    ) -> Result<Report> {
        let mut clients = Clients::start(runtime, &processes.broker.address(), self.place, random)?;
        let mut report = Report::default();
        clients.wait_for_all()?;
        for victim in self.place.victims().iter().cycle().take(self.kill_count) {
            let victim = *victim;
            match victim {
                Victim::Upkeep => {
                    let due = processes.ready_at + UPKEEP_INTERVAL;
                    wait_for("the upkeep", ROUND_TIME_LIMIT, || Ok(Instant::now() >= due))?;
                    spin_for(random.below(UPKEEP_DELAY_MICROSECONDS_MAX));
                }
                _ => spin_for(random.below(DELAY_MICROSECONDS_MAX)),
            }
            processes.kill(victim, random)?;
            *report.kills.entry(victim.name()).or_default() += 1;
            let waited = clients.wait_for_all();
            report.recoveries.push(waited.with_context(|| format!("after a kill: {victim:?}"))?);
        }
        // Events that never happened were not tested.
        wait_for("all to have happened", ROUND_TIME_LIMIT, || {
            clients.check()?;
            let counts = clients.counts();
            Ok(counts.iter().all(|(name, count)| *count > 0 || SELDOM.contains(name)))
        })?;
        clients.finish()?;
        report.counts = clients.counts();
        Ok(report)
    }
}

/// All clients of a storm, in the order in which they end.
struct Clients<'a> {
    runtime: &'a Runtime,
    stage: Arc<Stage>,
    producers: JoinSet<Result<()>>,
    consumers: JoinSet<Result<()>>,
    verifiers: JoinSet<Result<()>>,
}

impl<'a> Clients<'a> {
    fn start(
        runtime: &'a Runtime,
        address: &str,
        place: Place,
        random: &mut Random,
    ) -> Result<Self> {
        let mut numbers = 0..;
        let names = RefCell::new(Vec::new());
        let mut cast = |name: &str| {
            let number = numbers.next().unwrap_or_default();
            let name = format!("{name}-{number}");
            names.borrow_mut().push(name.clone());
            Cast { name, number, seed: random.number() }
        };
        let idempotent = [cast("idempotent"), cast("idempotent")];
        let plain = cast("plain");
        let alone = [KEYED, BRIEF].map(|topic| (topic, cast("alone")));
        let transactional = [cast("transactional"), cast("transactional")];
        let maker = cast("maker");
        let readers = [cast("reader"), cast("reader")];
        let workers = [cast("worker"), cast("worker")];
        let watcher = cast("watcher");
        let verifiers =
            [PLAIN, INPUT, OUTPUT, TRANSACTIONS[0]].map(|topic| (topic, cast("verifier")));
        let sweepers = [KEYED, BRIEF].map(|topic| (topic, cast("sweeper")));
        let stage = Arc::new(Stage::new(address, names.take()));
        runtime.block_on(create_topics(&stage, place, random))?;

        let mut clients = Self {
            runtime,
            stage,
            producers: JoinSet::new(),
            consumers: JoinSet::new(),
            verifiers: JoinSet::new(),
        };
        let _entered = runtime.enter();
        let mine = || Arc::clone(&clients.stage);
        let (producers, consumers) = (&mut clients.producers, &mut clients.consumers);
        for it in idempotent {
            producers.spawn(named(it.clone(), producers::send_idempotently(mine(), it)));
        }
        producers.spawn(named(plain.clone(), producers::send_plainly(mine(), plain)));
        for (topic, it) in alone.clone() {
            producers.spawn(named(it.clone(), producers::send_alone(mine(), it, topic)));
        }
        for it in transactional {
            producers.spawn(named(it.clone(), producers::send_in_transactions(mine(), it)));
        }
        producers.spawn(named(maker.clone(), makers::make_and_delete(mine(), maker)));
        for it in readers {
            consumers.spawn(named(it.clone(), consumers::read_committed(mine(), it)));
        }
        for it in workers {
            consumers.spawn(named(it.clone(), consumers::work(mine(), it)));
        }
        consumers.spawn(named(watcher.clone(), consumers::watch(mine(), watcher)));
        for (topic, it) in verifiers {
            let verifier = Verifier::new(mine(), it.clone(), topic);
            clients.verifiers.spawn(named(it, verifier.run()));
        }
        for ((topic, it), (_, writer)) in sweepers.into_iter().zip(alone) {
            let sweeper = Sweeper::new(mine(), it.clone(), topic, writer.number);
            clients.verifiers.spawn(named(it, sweeper.run()));
        }
        Ok(clients)
    }

    /// Waits until each client has progressed, and returns the duration.
    fn wait_for_all(&mut self) -> Result<Duration> {
        let start = Instant::now();
        let before = self.stage.steps();
        let idle = |stage: &Stage| {
            let steps = stage.steps();
            let idle = before.iter().filter(|(name, count)| steps[*name] <= **count);
            idle.map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        while !idle(&self.stage).is_empty() {
            self.check()?;
            ensure!(
                start.elapsed() < ROUND_TIME_LIMIT,
                "for {ROUND_TIME_LIMIT:?} these clients have done nothing: {:?}",
                idle(&self.stage)
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        self.check()?;
        Ok(start.elapsed())
    }

    /// Fails if a client has failed.
    fn check(&mut self) -> Result<()> {
        for set in [&mut self.producers, &mut self.consumers, &mut self.verifiers] {
            if let Some(ended) = set.try_join_next() {
                ended.context("a client panicked")??;
                bail!("a client has ended before the storm");
            }
        }
        Ok(())
    }

    /// Ends producers, then groups, then verifiers, each after everything is read.
    fn finish(&mut self) -> Result<()> {
        let stage = Arc::clone(&self.stage);
        stage.set_act(Act::Draining);
        self.runtime.block_on(ended(&mut self.producers))?;
        self.wait_until_drained()?;
        stage.set_act(Act::Verifying);
        self.runtime.block_on(ended(&mut self.consumers))?;
        self.runtime.block_on(ended(&mut self.verifiers))
    }

    /// Waits until the groups have committed the ends of their topics.
    fn wait_until_drained(&mut self) -> Result<()> {
        let client = self.stage.client("drain");
        let runtime = self.runtime;
        for (group, topics) in [(READERS, &TRANSACTIONS[..]), (WORKERS, &[INPUT][..])] {
            let expected = runtime.block_on(ends(&client, topics))?;
            let mut committed = Vec::new();
            let drained = wait_for(&format!("group {group:?} to read all"), END_TIME_LIMIT, || {
                for set in [&mut self.consumers, &mut self.verifiers] {
                    if let Some(ended) = set.try_join_next() {
                        ended.context("a client panicked")??;
                    }
                }
                committed = runtime.block_on(consumers::committed(&client, group))?;
                Ok(expected.iter().all(|end| {
                    end.offset == 0
                        || committed.iter().any(|it| {
                            it.topic == end.topic
                                && it.partition == end.partition
                                && it.offset >= end.offset
                        })
                }))
            });
            drained.with_context(|| format!("{committed:?} of {expected:?}"))?;
        }
        Ok(())
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        let counts = &self.stage.counts;
        let read = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        BTreeMap::from([
            ("idempotent records", read(&counts.idempotent)),
            ("plain records", read(&counts.plain)),
            (REPEATED, read(&counts.repeated)),
            ("transactions committed", read(&counts.commits)),
            ("aborted", read(&counts.aborts)),
            ("taken over", read(&counts.takeovers)),
            ("records processed", read(&counts.processed)),
            ("rollbacks", read(&counts.rollbacks)),
            ("joins and returns to what was committed", read(&counts.joins)),
            ("looks at committed offsets", read(&counts.offset_checks)),
            (REMOVED, read(&counts.removed)),
            ("topics made", read(&counts.topics_made)),
            ("topics deleted", read(&counts.topics_deleted)),
        ])
    }
}

/// Adds the client's name to its error.
async fn named(cast: Cast, work: impl Future<Output = Result<()>>) -> Result<()> {
    work.await.with_context(|| cast.name)
}

/// Waits until all clients of a set have ended successfully.
async fn ended(set: &mut JoinSet<Result<()>>) -> Result<()> {
    let all = async {
        while let Some(ended) = set.join_next().await {
            ended.context("a client panicked")??;
        }
        Ok(())
    };
    match tokio::time::timeout(END_TIME_LIMIT, all).await {
        Ok(result) => result,
        Err(_) => bail!("a client has not ended for {END_TIME_LIMIT:?}"),
    }
}

async fn create_topics(stage: &Stage, place: Place, random: &mut Random) -> Result<()> {
    let client = stage.client("admin");
    for name in TOPICS {
        let mut configs = vec![
            ("memlane.durability", place.durability(random).to_owned()),
            ("segment.bytes", "1048576".to_owned()),
            // All records must exist at the end, whatever their age.
            ("retention.ms", "-1".to_owned()),
        ];
        if [KEYED, BRIEF].contains(&name) {
            configs[1].1 = "16384".to_owned();
        }
        if name == KEYED {
            configs.push(("cleanup.policy", "compact".to_owned()));
            configs.push(("min.cleanable.dirty.ratio", "0.1".to_owned()));
        }
        if name == BRIEF {
            configs.push(("retention.bytes", BRIEF_BYTES.to_string()));
        }
        let configs = configs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let name = name.to_owned();
        client.create_topic(&NewTopic { name, partitions: Some(PARTITION_COUNT), configs }).await?;
    }
    Ok(())
}

/// Busy-waits. This is not a wait for a condition: the duration itself is random.
fn spin_for(microseconds: u64) {
    let end = Instant::now() + Duration::from_micros(microseconds);
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}
