//! Migration of a topic and its consumer group to Apache Kafka and back by `MirrorMaker` 2, as in
//! the guide: producers and consumers only change their address.
//!
//! It takes longer than 90 s, because Kafka and a mirror for each direction are Java virtual
//! machines, and a mirror checks for topics and groups every five seconds.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kafka_clients::{Broker, JavaClient, ToolBox, is_skipped};
use rustix::process::Signal;
use system::{Background, Daemon, wait_for};
use tempfile::TempDir;

const GUIDE: &str = include_str!("../../../docs/guides/kafka-cluster.md");

const PROGRAMS: &[&str] = &["javac", "mvn"];

const TOPICS: &str = "org.apache.kafka.tools.TopicCommand";
const GROUPS: &str = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
const OFFSETS: &str = "org.apache.kafka.tools.GetOffsetShell";
const PRODUCER: &str = "org.apache.kafka.tools.ConsoleProducer";
const CONSUMER: &str = "org.apache.kafka.tools.consumer.ConsoleConsumer";
const MIRROR: &str = "org.apache.kafka.connect.mirror.MirrorMaker";

const TOPIC: &str = "orders";
const GROUP: &str = "shop";
const PARTITION_COUNT: usize = 2;

/// Prefix of the number in each record's value, because tools print other lines too.
const VALUE: &str = "number ";

/// Number of records before the switch, and after it.
const HALF: usize = 100_000;

/// Number of records that a producer writes at once.
const PART: usize = HALF / 10;

const TIME_LIMIT: Duration = Duration::from_secs(240);

/// A cluster with its address for Kafka clients.
struct Fixture<'a> {
    name: &'a str,
    address: String,
}

impl Fixture<'_> {
    fn run(&self, tool: &str, options: &str, input: &str) -> Result<String> {
        let words = ToolBox::words(&self.address, options);
        ToolBox::check(tool, &words, input).with_context(|| format!("at {}", self.name))
    }

    fn produce(&self, numbers: Range<usize>) -> Result<()> {
        let mut text = String::new();
        for number in numbers {
            writeln!(text, "key-{}\t{VALUE}{number}", number % 1000)?;
        }
        let options = format!("--topic {TOPIC} --reader-property parse.key=true");
        self.run(PRODUCER, &options, &text).map(drop)
    }

    /// Returns the next numbers that the group reads.
    fn consume(&self, count: usize) -> Result<Vec<usize>> {
        let options = format!(
            "--topic {TOPIC} --group {GROUP} --from-beginning --max-messages {count} \
             --timeout-ms 30000"
        );
        let printed = self.run(CONSUMER, &options, "")?;
        let numbers = printed.lines().filter_map(|line| line.strip_prefix(VALUE));
        numbers.map(|it| it.parse().with_context(|| format!("{it:?}"))).collect()
    }

    /// Returns the first records of a partition, with their offsets and keys.
    fn records(&self, partition: usize, count: usize) -> Result<Vec<String>> {
        let options = format!(
            "--topic {TOPIC} --partition {partition} --offset 0 --max-messages {count} \
             --timeout-ms 30000 --formatter-property print.offset=true \
             --formatter-property print.key=true"
        );
        let printed = self.run(CONSUMER, &options, "")?;
        let records = printed.lines().filter(|line| line.starts_with("Offset:"));
        Ok(records.map(str::to_owned).collect())
    }

    /// Returns the end of each partition, or none while there is no topic.
    fn ends(&self) -> Result<Vec<usize>> {
        let options = format!("--topic {TOPIC} --time latest");
        let Ok(printed) = self.run(OFFSETS, &options, "") else { return Ok(Vec::new()) };
        let ends = printed.lines().filter_map(|it| it.strip_prefix("orders:")?.rsplit(':').next());
        ends.map(|it| it.parse().with_context(|| printed.clone())).collect()
    }

    fn record_count(&self) -> Result<usize> {
        Ok(self.ends()?.iter().sum())
    }

    /// Returns the sum of the group's lags, once it has committed for each partition.
    fn lag(&self) -> Option<usize> {
        let printed = self.run(GROUPS, &format!("--describe --group {GROUP}"), "").ok()?;
        let rows = printed.lines().map(|it| it.split_whitespace().collect::<Vec<_>>());
        let lags = rows.filter(|it| it.get(1) == Some(&TOPIC)).map(|it| it.get(5)?.parse().ok());
        let lags = lags.collect::<Option<Vec<usize>>>()?;
        (lags.len() == PARTITION_COUNT).then(|| lags.iter().sum())
    }
}

/// Starts `MirrorMaker` 2 in one direction, with the settings of the guide.
fn mirror(folder: &TempDir, from: &Fixture<'_>, to: &Fixture<'_>) -> Result<Background> {
    let (_, settings) = GUIDE.split_once("```properties\n").context("settings in the guide")?;
    let (settings, _) = settings.split_once("```").context("the end of the settings")?;
    let direction = format!("{}->{}.enabled = ", from.name, to.name);
    let mut text = String::new();
    for line in settings.lines() {
        match line.split_once(" = ") {
            Some((name, _)) if name.ends_with(".enabled") && name.contains("->") => {
                let is_it = line.starts_with(&direction);
                writeln!(text, "{name} = {is_it}")?;
            }
            _ => writeln!(text, "{line}")?,
        }
    }
    for fixture in [from, to] {
        text = text.replace(&format!("{}.example.org:9092", fixture.name), &fixture.address);
    }
    let path = folder.path().join(format!("from-{}.properties", from.name));
    fs::write(&path, text).context("cannot write the settings of MirrorMaker")?;
    let log = File::create(path.with_extension("log")).context("cannot make a log")?;
    Background::start(JavaClient::fetched()?.program(MIRROR).arg(&path).output_to(log)?)
}

#[test]
fn a_topic_and_its_group_move_to_kafka_and_back() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let daemon = Daemon::start_sized("1GiB".to_owned(), "")?;
    let mut broker = system::Broker::on_daemon(&daemon.run_dir(), "")?;
    let kafka = Broker::reference()?;
    let memlane = Fixture { name: "memlane", address: broker.address() };
    let kafka = Fixture { name: "kafka", address: kafka.address() };
    memlane.run(TOPICS, &format!("--create --topic {TOPIC} --partitions {PARTITION_COUNT}"), "")?;

    // Towards Kafka, with a kill of the broker meanwhile.
    let mut moving = mirror(&folder, &memlane, &kafka)?;
    memlane.produce(0..PART)?;
    wait_for("the mirror to copy", TIME_LIMIT, || Ok(kafka.record_count()? > 0))?;
    let written = AtomicUsize::new(PART);
    thread::scope(|scope| -> Result<()> {
        let producer = scope.spawn(|| -> Result<()> {
            for start in (PART..HALF).step_by(PART) {
                memlane.produce(start..start + PART)?;
                written.fetch_add(PART, Ordering::Relaxed);
            }
            Ok(())
        });
        let is_halfway =
            || Ok(written.load(Ordering::Relaxed) >= HALF / 2 || producer.is_finished());
        wait_for("a producer to be half through", TIME_LIMIT, is_halfway)?;
        broker.kill()?;
        broker.start_again()?;
        producer.join().expect("it does not panic")
    })?;
    let before = memlane.consume(HALF)?;
    wait_for("the mirror to have copied all", TIME_LIMIT, || Ok(kafka.record_count()? >= HALF))?;
    wait_for("the group's place to follow", TIME_LIMIT, || Ok(kafka.lag() == Some(0)))?;
    moving.end(Signal::TERM, TIME_LIMIT)?;
    check_same(&memlane, &kafka)?;

    // The same group and producer at the other address.
    kafka.produce(HALF..2 * HALF)?;
    let after = kafka.consume(HALF)?;
    check_each_once([before, after].concat(), 0..2 * HALF)?;

    // Back, to a recreated topic.
    memlane.run(TOPICS, &format!("--delete --topic {TOPIC}"), "")?;
    memlane.run(TOPICS, &format!("--create --topic {TOPIC} --partitions {PARTITION_COUNT}"), "")?;
    let mut back = mirror(&folder, &kafka, &memlane)?;
    wait_for("all to be back", TIME_LIMIT, || Ok(memlane.record_count()? >= 2 * HALF))?;
    wait_for("the group to be back", TIME_LIMIT, || Ok(memlane.lag() == Some(0)))?;
    back.end(Signal::TERM, TIME_LIMIT)?;
    check_same(&memlane, &kafka)?;
    memlane.produce(2 * HALF..2 * HALF + PART)?;
    check_each_once(memlane.consume(PART)?, 2 * HALF..2 * HALF + PART)?;
    broker.stop()?;
    daemon.finish()
}

/// Compares all records with their offsets and keys.
fn check_same(one: &Fixture<'_>, other: &Fixture<'_>) -> Result<()> {
    let ends = one.ends()?;
    ensure!(ends.len() == PARTITION_COUNT && other.ends()? == ends, "the ends differ: {ends:?}");
    for (partition, end) in ends.into_iter().enumerate() {
        let (here, there) = (one.records(partition, end)?, other.records(partition, end)?);
        let difference = here.iter().zip(&there).find(|(here, there)| here != there);
        ensure!(difference.is_none(), "partition {partition}: {difference:?}");
        ensure!(here.len() == end && there.len() == end, "partition {partition} was cut short");
    }
    Ok(())
}

fn check_each_once(mut read: Vec<usize>, expected: Range<usize>) -> Result<()> {
    read.sort_unstable();
    let again = read.windows(2).filter(|it| it[0] == it[1]).count();
    read.dedup();
    let lost = expected.len() - read.len();
    ensure!(read.into_iter().eq(expected), "{lost} records were not read");
    ensure!(again == 0, "{again} records were read again");
    Ok(())
}
