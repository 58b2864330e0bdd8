//! One storm: processes, clients and kills, and what came of it.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kafka_client::NewTopic;
use system::{Daemon, Random, wait_for};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::broker::Broker;
use crate::producers::Cast;
use crate::stage::{
    Act, INPUT, OUTPUT, PARTITION_COUNT, PLAIN, READERS, Stage, TOPICS, TRANSACTIONS, WORKERS,
};
use crate::verifiers::{Verifier, ends};
use crate::{consumers, producers};

/// All clients get on after a kill within this time, and all is read after the last.
const ROUND_TIME_LIMIT: Duration = Duration::from_secs(60);
const END_TIME_LIMIT: Duration = Duration::from_secs(120);

/// How long after all got on the next kill comes, at most.
const DELAY_MICROSECONDS_MAX: u64 = 60_000;

/// One kill in so many hits the broker while it starts.
const START_KILL_ONE_IN: u64 = 8;
const START_DELAY_MICROSECONDS_MAX: u64 = 60_000;

const POOL_SIZE: &str = "768MiB";
const DURABILITIES: [&str; 2] = ["ram", "journal"];

/// Where topics are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a pool of the broker's own.
    Embedded,
    /// On volumes of a daemon.
    Daemon,
}

pub(crate) struct Storm {
    pub(crate) place: Place,
    pub(crate) kill_count: u64,
    pub(crate) seed: u64,
}

/// What storms went through.
#[derive(Debug, Default)]
pub(crate) struct Report {
    kills: BTreeMap<&'static str, u64>,
    counts: BTreeMap<&'static str, u64>,
    /// From the restart until all clients had got on.
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

/// What runs while a storm lasts. Dropped in this order.
struct Processes {
    broker: Broker,
    daemon: Option<Daemon>,
    _pool: TempDir,
}

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Broker,
    Daemon,
    Both,
    StartingBroker,
}

impl Victim {
    fn name(self) -> &'static str {
        match self {
            Self::Broker => "the broker",
            Self::Daemon => "the daemon",
            Self::Both => "both",
            Self::StartingBroker => "a broker that starts",
        }
    }
}

impl Processes {
    fn start(place: Place, random: &mut Random) -> Result<Self> {
        let pool = tempfile::Builder::new().prefix("memlane-log-").tempdir_in("/dev/shm");
        let pool = pool.context("cannot make a folder in /dev/shm")?;
        let mut flags = vec![];
        let mut flag = |name: &str, value: String| flags.extend([name.to_owned(), value]);
        let daemon = match place {
            Place::Embedded => {
                flag("--embedded", POOL_SIZE.to_owned());
                flag("--pool-file", pool.path().join("pool").display().to_string());
                None
            }
            Place::Daemon => {
                let daemon = Daemon::start_flagged(POOL_SIZE.to_owned(), "--no-fuse".to_owned())?;
                flag("--daemon", daemon.run_dir().display().to_string());
                let class = random.pick(&DURABILITIES);
                flag("--topic-default", format!("memlane.durability={class}"));
                Some(daemon)
            }
        };
        let broker = Broker::start(flags, pool.path(), random)?;
        Ok(Self { broker, daemon, _pool: pool })
    }

    /// Kills what is to be killed, and starts it again.
    fn kill(&mut self, victim: Victim, random: &mut Random) -> Result<()> {
        let daemon = self.daemon.as_mut().filter(|_| victim != Victim::Broker);
        match (victim, daemon) {
            (Victim::Daemon, Some(daemon)) => {
                daemon.kill()?;
                daemon.start_again()?;
                return Ok(());
            }
            (Victim::Both, Some(daemon)) if random.one_in(2) => {
                daemon.kill()?;
                self.broker.kill()?;
                daemon.start_again()?;
            }
            (Victim::Both, Some(daemon)) => {
                self.broker.kill()?;
                daemon.kill()?;
                daemon.start_again()?;
            }
            _ => self.broker.kill()?,
        }
        self.broker.launch()?;
        if victim == Victim::StartingBroker {
            spin_for(Duration::from_micros(random.below(START_DELAY_MICROSECONDS_MAX)));
            self.broker.kill()?;
            self.broker.launch()?;
        }
        self.broker.wait_until_ready()
    }
}

impl Storm {
    /// Runs the storm to its end; at the first thing that is not as it should be it fails.
    pub(crate) fn run(&self) -> Result<Report> {
        let mut random = Random::new(self.seed);
        let mut processes = Processes::start(self.place, &mut random)?;
        let runtime = Runtime::new().context("cannot start threads")?;
        let played = self.play(&runtime, &mut processes, &mut random);
        let report = played.with_context(|| {
            format!("the end of the broker's log:\n{}", processes.broker.log_end())
        })?;
        drop(runtime);
        processes.broker.kill()?;
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
        let mut clients = Clients::start(runtime, processes.broker.address(), self.place, random)?;
        let mut report = Report::default();
        clients.wait_for_all()?;
        for _ in 0..self.kill_count {
            spin_for(Duration::from_micros(random.below(DELAY_MICROSECONDS_MAX)));
            let victim = self.draw_victim(random);
            processes.kill(victim, random)?;
            *report.kills.entry(victim.name()).or_default() += 1;
            let waited = clients.wait_for_all();
            report.recoveries.push(waited.with_context(|| format!("after a kill: {victim:?}"))?);
        }
        clients.finish()?;
        report.counts = clients.counts();
        Ok(report)
    }

    fn draw_victim(&self, random: &mut Random) -> Victim {
        if random.one_in(START_KILL_ONE_IN) {
            return Victim::StartingBroker;
        }
        match self.place {
            Place::Embedded => Victim::Broker,
            Place::Daemon => random.pick(&[Victim::Broker, Victim::Daemon, Victim::Both]),
        }
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
        let mut cast = |name: &str| {
            let number = numbers.next().unwrap_or_default();
            Cast { name: format!("{name}-{number}"), number, seed: random.number() }
        };
        let idempotent = [cast("idempotent"), cast("idempotent")];
        let plain = [cast("plain")];
        let transactional = [cast("transactional"), cast("transactional")];
        let readers = [cast("reader"), cast("reader")];
        let workers = [cast("worker"), cast("worker")];
        let watcher = [cast("watcher")];
        let verified = [PLAIN, INPUT, OUTPUT, TRANSACTIONS[0]];
        let verifiers = verified.map(|topic| (topic, cast("verifier")));
        let all = idempotent.iter().chain(&plain).chain(&transactional).chain(&readers);
        let all = all.chain(&workers).chain(&watcher).chain(verifiers.iter().map(|(_, it)| it));
        let stage = Arc::new(Stage::new(address, all.map(|it| it.name.clone())));
        runtime.block_on(create_topics(&stage, place, random))?;

        let mut clients = Self {
            runtime,
            stage,
            producers: JoinSet::new(),
            consumers: JoinSet::new(),
            verifiers: JoinSet::new(),
        };
        let _entered = runtime.enter();
        let stage = &clients.stage;
        let mine = || Arc::clone(stage);
        for it in idempotent {
            clients.producers.spawn(named(it.clone(), producers::send_idempotently(mine(), it)));
        }
        for it in plain {
            clients.producers.spawn(named(it.clone(), producers::send_plainly(mine(), it)));
        }
        for it in transactional {
            let sent = producers::send_in_transactions(mine(), it.clone());
            clients.producers.spawn(named(it, sent));
        }
        for it in readers {
            clients.consumers.spawn(named(it.clone(), consumers::read_committed(mine(), it)));
        }
        for it in workers {
            clients.consumers.spawn(named(it.clone(), consumers::work(mine(), it)));
        }
        for it in watcher {
            clients.consumers.spawn(named(it.clone(), consumers::watch(mine(), it)));
        }
        for (topic, it) in verifiers {
            let verifier = Verifier::new(mine(), it.clone(), topic);
            clients.verifiers.spawn(named(it, verifier.run()));
        }
        Ok(clients)
    }

    /// Waits until each client has done something since, and returns how long that took.
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

    /// Fails when a client has.
    fn check(&mut self) -> Result<()> {
        for set in [&mut self.producers, &mut self.consumers, &mut self.verifiers] {
            if let Some(ended) = set.try_join_next() {
                ended.context("a client panicked")??;
                bail!("a client has ended before the storm");
            }
        }
        Ok(())
    }

    /// Ends producers, then groups, then verifiers, each after all is read.
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
            wait_for(&format!("group {group:?} to read all"), END_TIME_LIMIT, || {
                for set in [&mut self.consumers, &mut self.verifiers] {
                    if let Some(ended) = set.try_join_next() {
                        ended.context("a client panicked")??;
                    }
                }
                let committed = runtime.block_on(consumers::committed(&client, group))?;
                Ok(expected.iter().all(|end| {
                    end.offset == 0
                        || committed.iter().any(|it| {
                            it.topic == end.topic
                                && it.partition == end.partition
                                && it.offset == end.offset
                        })
                }))
            })?;
        }
        Ok(())
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        let counts = &self.stage.counts;
        let read = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        BTreeMap::from([
            ("idempotent records", read(&counts.idempotent)),
            ("plain records", read(&counts.plain)),
            ("plain requests repeated", read(&counts.repeated)),
            ("transactions committed", read(&counts.commits)),
            ("aborted", read(&counts.aborts)),
            ("taken over", read(&counts.takeovers)),
            ("records processed", read(&counts.processed)),
            ("rollbacks", read(&counts.rollbacks)),
            ("joins and returns to what was committed", read(&counts.joins)),
            ("looks at committed offsets", read(&counts.offset_checks)),
        ])
    }
}

/// The client's name with its error.
async fn named(cast: Cast, work: impl Future<Output = Result<()>>) -> Result<()> {
    work.await.with_context(|| cast.name)
}

/// Waits until all clients of a set have ended well.
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
        let durability = match place {
            Place::Embedded => "ram",
            // What is processed is on disk, and the rest as it falls.
            Place::Daemon if name == INPUT || name == OUTPUT => "journal",
            Place::Daemon => random.pick(&DURABILITIES),
        };
        let topic = NewTopic {
            name: name.to_owned(),
            partitions: Some(PARTITION_COUNT),
            configs: vec![
                ("memlane.durability".to_owned(), durability.to_owned()),
                ("segment.bytes".to_owned(), "1048576".to_owned()),
                // What is written has to be there in the end, whatever its age.
                ("retention.ms".to_owned(), "-1".to_owned()),
            ],
        };
        client.create_topic(&topic).await?;
    }
    Ok(())
}

/// Not a wait for anything: the moment itself is what is random.
fn spin_for(delay: Duration) {
    let end = Instant::now() + delay;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}
