//! Java's clients through the tools of Apache Kafka, run like their scripts run them.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use kafka_clients::{Answer, Broker, ToolBox, is_skipped};
use serde_json::Value;

const PROGRAMS: &[&str] = &["javac", "mvn"];

const TOPICS: &str = "org.apache.kafka.tools.TopicCommand";
const CONFIGS: &str = "kafka.admin.ConfigCommand";
const GROUPS: &str = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
const ALL_GROUPS: &str = "org.apache.kafka.tools.GroupsCommand";
const OFFSETS: &str = "org.apache.kafka.tools.GetOffsetShell";
const LOG_FOLDERS: &str = "org.apache.kafka.tools.LogDirsCommand";
const TRANSACTIONS: &str = "org.apache.kafka.tools.TransactionsCommand";
const ACCESS: &str = "org.apache.kafka.tools.AclCommand";
const DELETE_RECORDS: &str = "org.apache.kafka.tools.DeleteRecordsCommand";
const VERSIONS: &str = "org.apache.kafka.tools.BrokerApiVersionsCommand";
const CLUSTER: &str = "org.apache.kafka.tools.ClusterTool";
const FEATURES: &str = "org.apache.kafka.tools.FeatureCommand";
const PRODUCER: &str = "org.apache.kafka.tools.ConsoleProducer";
const CONSUMER: &str = "org.apache.kafka.tools.consumer.ConsoleConsumer";
const PRODUCER_PERFORMANCE: &str = "org.apache.kafka.tools.ProducerPerformance";
const CONSUMER_PERFORMANCE: &str = "org.apache.kafka.tools.ConsumerPerformance";

/// The broker, and a name that no other test uses.
struct Fixture {
    broker: &'static Broker,
    name: String,
}

impl Fixture {
    fn new(name: &str) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // Relaxed: the number carries no data.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Ok(Self { broker: Broker::shared()?, name: format!("{name}-{number}") })
    }

    /// Creates a fixture with a topic of its name.
    fn with_topic(name: &str, partition_count: u32) -> Result<Self> {
        let fixture = Self::new(name)?;
        let topic = &fixture.name;
        fixture.run(TOPICS, &format!("--create --topic {topic} --partitions {partition_count}"))?;
        Ok(fixture)
    }

    /// Runs a tool, which must succeed. No option contains a blank.
    fn run(&self, tool: &str, options: &str) -> Result<String> {
        self.run_with_input(tool, options, "")
    }

    fn run_with_input(&self, tool: &str, options: &str, input: &str) -> Result<String> {
        let address = self.broker.address();
        let words = ToolBox::words(&address, options);
        ToolBox::check(tool, &words, input).with_context(|| self.broker.last_words())
    }

    /// Runs a tool, which must fail, and returns its output.
    fn refused(&self, tool: &str, options: &str) -> Result<String> {
        let address = self.broker.address();
        let words = ToolBox::words(&address, options);
        let Answer { exit_code, printed, errors } = ToolBox::run(tool, &words, "")?;
        ensure!(exit_code != 0, "{tool} {options} was not refused: {printed}");
        Ok(printed + &errors)
    }

    fn produce(&self, lines: &[String], options: &str) -> Result<()> {
        let mut text = String::new();
        for line in lines {
            writeln!(text, "{line}")?;
        }
        self.run_with_input(PRODUCER, &format!("--topic {} {options}", self.name), &text)?;
        Ok(())
    }

    /// Returns the size of the topic's first partition.
    fn size_bytes(&self) -> Result<u64> {
        let name = &self.name;
        let printed = self.run(LOG_FOLDERS, &format!("--describe --topic-list {name}"))?;
        let json = printed.lines().find(|it| it.starts_with('{')).context("a line of JSON")?;
        let json: Value = serde_json::from_str(json)?;
        let folder = &json["brokers"][0]["logDirs"][0];
        ensure!(folder["error"].is_null(), "{json}");
        let partition = &folder["partitions"][0];
        assert_eq!(partition["partition"], format!("{name}-0"), "{json}");
        partition["size"].as_u64().with_context(|| format!("no size in {json}"))
    }

    /// Returns the codec number of each batch in the topic, by a hand-written fetch, because
    /// clients show only records.
    fn codecs(&self) -> Result<Vec<u8>> {
        /// Offset of attributes in a batch after its offset and length, and lengths of the parts of
        /// an answer before the topic's name and before the batches.
        const ATTRIBUTES_AT: usize = 22;
        const HEAD_BYTES: usize = 14;
        const BEFORE_BATCHES_BYTES: usize = 34;
        let name = self.name.as_bytes();
        let mut request = vec![0, 1, 0, 4, 0, 0, 0, 7, 0xff, 0xff];
        for number in [-1, 1000, 1, 1 << 20] {
            request.extend(i32::to_be_bytes(number));
        }
        request.extend([0, 0, 0, 0, 1]);
        request.extend(u16::try_from(name.len())?.to_be_bytes());
        request.extend(name);
        request.extend([&[0, 0, 0, 1][..], &[0; 12], &i32::to_be_bytes(1 << 20)].concat());
        let mut stream = TcpStream::connect(self.broker.socket_address())?;
        stream.write_all(&u32::try_from(request.len())?.to_be_bytes())?;
        stream.write_all(&request)?;
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut answer = vec![0; usize::try_from(u32::from_be_bytes(length))?];
        stream.read_exact(&mut answer)?;
        let mut batches = &answer[HEAD_BYTES + name.len() + BEFORE_BATCHES_BYTES..];
        let mut codecs = Vec::new();
        while let Some(length) = batches.get(8..12) {
            let length = 12 + usize::try_from(u32::from_be_bytes(length.try_into()?))?;
            codecs.push(batches[ATTRIBUTES_AT] & 7);
            batches = batches.get(length..).unwrap_or_default();
        }
        Ok(codecs)
    }

    /// Returns lines of the console consumer, which ends after this many.
    fn consume(&self, count: usize, options: &str) -> Result<Vec<String>> {
        let limits = format!("--max-messages {count} --timeout-ms 20000");
        let printed = self.run(CONSUMER, &format!("--topic {} {limits} {options}", self.name))?;
        Ok(printed.lines().map(str::to_owned).collect())
    }
}

fn lines(label: &str, count: usize) -> Vec<String> {
    (0..count).map(|index| format!("{label}-{index}")).collect()
}

/// Returns the words of the line that contains all of `marks`.
#[track_caller]
fn row<'text>(text: &'text str, marks: &[&str]) -> Result<Vec<&'text str>> {
    let has_all =
        |line: &&str| marks.iter().all(|mark| line.split_whitespace().any(|it| it == *mark));
    let line = text.lines().find(has_all);
    let line = line.with_context(|| format!("no line with {marks:?} in: {text}"))?;
    Ok(line.split_whitespace().collect())
}

#[test]
fn the_console_reads_what_it_wrote() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::with_topic("console", 1)?;
    let written: Vec<_> = (0..1000).map(|it| format!("k{it}\tv{it}")).collect();
    fixture.produce(&written, "--reader-property parse.key=true --compression-codec zstd")?;
    let shown = "--formatter-property print.key=true";
    assert_eq!(fixture.consume(1000, &format!("--from-beginning {shown}"))?, written);
    let shown = format!("{shown} --formatter-property print.offset=true");
    let found = fixture.consume(2, &format!("--partition 0 --offset 998 {shown}"))?;
    assert_eq!(found, ["Offset:998\tk998\tv998", "Offset:999\tk999\tv999"]);
    Ok(())
}

#[test]
fn a_topic_has_the_codec_of_its_setting_whatever_producers_use() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let written: Vec<_> = (0..200).map(|it| format!("{it:x<1000}")).collect();
    // In the order of the codec numbers in batches.
    for (number, (codec, producers)) in (0..).zip([
        ("uncompressed", "zstd"),
        ("gzip", "none"),
        ("snappy", "gzip"),
        ("lz4", "snappy"),
        ("zstd", "lz4"),
    ]) {
        let fixture = Fixture::new(&format!("codec-{codec}"))?;
        let name = &fixture.name;
        fixture
            .run(TOPICS, &format!("--create --topic {name} --config compression.type={codec}"))?;
        fixture.produce(&written, &format!("--compression-codec {producers}"))?;
        assert_eq!(fixture.consume(200, "--from-beginning")?, written, "{codec}");
        let size = fixture.size_bytes()?;
        ensure!((size < 100_000) == (codec != "uncompressed"), "{codec}: {size} bytes");
        let found = fixture.codecs()?;
        ensure!(!found.is_empty() && found.iter().all(|it| *it == number), "{codec}: {found:?}");
    }
    Ok(())
}

#[test]
fn groups_of_either_protocol_go_on_where_they_were() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    for protocol in ["classic", "consumer"] {
        let fixture = Fixture::with_topic(&format!("group-{protocol}"), 1)?;
        let written = lines(protocol, 90);
        fixture.produce(&written, "")?;
        let group = format!(
            "--group {} --from-beginning --command-property group.protocol={protocol}",
            fixture.name
        );
        assert_eq!(fixture.consume(40, &group)?, written[..40], "the first of a {protocol} group");
        assert_eq!(fixture.consume(50, &group)?, written[40..], "the rest of a {protocol} group");
        let kind = if protocol == "classic" { "Classic" } else { "Consumer" };
        let listed = fixture.run(ALL_GROUPS, "--list")?;
        ensure!(row(&listed, &[&fixture.name])?.contains(&kind), "{listed}");
        let described = fixture.run(GROUPS, &format!("--describe --group {}", fixture.name))?;
        let row = row(&described, &[&fixture.name, "0"])?;
        assert_eq!(row[3..6], ["90", "90", "0"], "committed, end, lag: {described}");
    }
    Ok(())
}

#[test]
fn topics_are_made_shown_grown_and_deleted() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::new("topics")?;
    let name = &fixture.name;
    let config = "--config retention.ms=3600000 --config cleanup.policy=compact";
    fixture.run(TOPICS, &format!("--create --topic {name} --partitions 3 {config}"))?;
    let again = fixture.refused(TOPICS, &format!("--create --topic {name}"))?;
    ensure!(again.contains("TopicExistsException"), "{again}");
    fixture.run(TOPICS, &format!("--create --topic {name} --if-not-exists"))?;
    fixture.run(TOPICS, &format!("--alter --topic {name} --partitions 4"))?;
    let fewer = fixture.refused(TOPICS, &format!("--alter --topic {name} --partitions 2"))?;
    ensure!(fewer.contains("InvalidPartitionsException"), "{fewer}");
    let described = fixture.run(TOPICS, &format!("--describe --topic {name}"))?;
    ensure!(described.contains("PartitionCount: 4\tReplicationFactor: 1"), "{described}");
    ensure!(described.contains("retention.ms=3600000"), "{described}");
    ensure!(described.contains("cleanup.policy=compact"), "{described}");
    assert_eq!(described.matches("\tPartition: ").count(), 4, "{described}");
    ensure!(fixture.run(TOPICS, "--list")?.lines().any(|it| it == name), "it is not listed");
    fixture.run(TOPICS, &format!("--delete --topic {name}"))?;
    ensure!(!fixture.run(TOPICS, "--list")?.lines().any(|it| it == name), "it is listed still");
    let gone = fixture.refused(TOPICS, &format!("--describe --topic {name}"))?;
    ensure!(gone.contains("does not exist"), "{gone}");
    Ok(())
}

#[test]
fn settings_of_topics_and_the_broker_are_shown_and_changed() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::with_topic("configs", 1)?;
    let entity = format!("--entity-type topics --entity-name {}", fixture.name);
    let values = "retention.ms=60000,max.message.bytes=100000,cleanup.policy=[compact,delete]";
    fixture.run(CONFIGS, &format!("--alter {entity} --add-config {values}"))?;
    let described = fixture.run(CONFIGS, &format!("--describe {entity}"))?;
    for value in ["retention.ms=60000", "max.message.bytes=100000", "cleanup.policy=compact,delete"]
    {
        ensure!(described.contains(value), "{value} is not in {described}");
    }
    fixture.run(CONFIGS, &format!("--alter {entity} --delete-config retention.ms"))?;
    let described = fixture.run(CONFIGS, &format!("--describe {entity}"))?;
    ensure!(!described.contains("retention.ms"), "{described}");
    let all = fixture.run(CONFIGS, &format!("--describe --all {entity}"))?;
    ensure!(all.contains("retention.ms=604800000"), "{all}");
    let refused =
        fixture.refused(CONFIGS, &format!("--alter {entity} --add-config retention.ms=soon"))?;
    ensure!(refused.contains("InvalidConfigurationException"), "{refused}");
    let node = fixture.run(VERSIONS, "")?;
    let id = node.split("(id: ").nth(1).and_then(|it| it.split(' ').next()).context("a node")?;
    let broker = format!("--describe --all --entity-type brokers --entity-name {id}");
    let all = fixture.run(CONFIGS, &broker)?;
    for setting in
        ["auto.create.topics.enable=", "authorizer.class.name= ", "transaction.max.timeout.ms="]
    {
        ensure!(all.contains(setting), "{setting} is not in {all}");
    }
    Ok(())
}

#[test]
fn offsets_of_a_group_are_shown_reset_and_deleted() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::with_topic("reset", 1)?;
    fixture.produce(&lines("x", 100), "")?;
    let name = &fixture.name;
    fixture.consume(60, &format!("--group {name} --from-beginning"))?;
    let position = |expected: [&str; 3]| -> Result<()> {
        let described = fixture.run(GROUPS, &format!("--describe --group {name}"))?;
        assert_eq!(row(&described, &[name, "0"])?[3..6], expected, "{described}");
        Ok(())
    };
    position(["60", "100", "40"])?;
    let reset = format!("--reset-offsets --execute --group {name} --topic {name}");
    for (to, expected) in [
        ("--to-earliest", ["0", "100", "100"]),
        ("--to-offset 30", ["30", "100", "70"]),
        ("--shift-by 5", ["35", "100", "65"]),
        ("--to-datetime 2000-01-01T00:00:00.000", ["0", "100", "100"]),
        ("--to-latest", ["100", "100", "0"]),
    ] {
        fixture.run(GROUPS, &format!("{reset} {to}"))?;
        position(expected)?;
    }
    let state = fixture.run(GROUPS, &format!("--describe --state --group {name}"))?;
    ensure!(row(&state, &[name])?.contains(&"Empty"), "{state}");
    let listed = fixture.run(GROUPS, "--list --state")?;
    ensure!(row(&listed, &[name])?.contains(&"Empty"), "{listed}");
    fixture.run(GROUPS, &format!("--delete-offsets --group {name} --topic {name}"))?;
    fixture.run(GROUPS, &format!("--delete --group {name}"))?;
    ensure!(!fixture.run(GROUPS, "--list")?.lines().any(|it| it == name), "it is listed still");
    Ok(())
}

#[test]
fn offsets_of_partitions_are_listed() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::with_topic("offsets", 2)?;
    fixture.produce(&lines("x", 50), "")?;
    let name = &fixture.name;
    let ask = |time: &str| -> Result<u32> {
        let printed = fixture.run(OFFSETS, &format!("--topic {name} --time {time}"))?;
        let prefix = format!("{name}:");
        let rows: Vec<_> = printed.lines().filter_map(|it| it.strip_prefix(&prefix)).collect();
        ensure!(rows.len() == 2, "{printed}");
        rows.iter().try_fold(0, |sum, row| {
            let offset = row.rsplit(':').next().context("an offset")?;
            Ok(sum + offset.parse::<u32>()?)
        })
    };
    assert_eq!(ask("latest")?, 50);
    assert_eq!(ask("earliest")?, 0);
    Ok(())
}

#[test]
fn records_are_deleted_up_to_an_offset() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::with_topic("delete", 1)?;
    fixture.produce(&lines("x", 100), "")?;
    let name = &fixture.name;
    let file = tempfile::NamedTempFile::new()?;
    let place = format!(r#"{{"topic": "{name}", "partition": 0, "offset": 70}}"#);
    std::fs::write(file.path(), format!(r#"{{"partitions": [{place}], "version": 1}}"#))?;
    let printed =
        fixture.run(DELETE_RECORDS, &format!("--offset-json-file {}", file.path().display()))?;
    ensure!(printed.contains("low_watermark: 70"), "{printed}");
    assert_eq!(fixture.consume(30, "--from-beginning")?, lines("x", 100)[70..]);
    Ok(())
}

#[test]
fn the_size_of_a_topic_is_shown() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::with_topic("size", 1)?;
    fixture.produce(&lines("x", 1000), "")?;
    let size = fixture.size_bytes()?;
    ensure!(size > 5000, "{size} bytes");
    Ok(())
}

#[test]
fn versions_and_the_cluster_are_shown() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::new("versions")?;
    let printed = fixture.run(VERSIONS, "")?;
    for request in ["Produce(0)", "Fetch(1)", "ConsumerGroupHeartbeat(68)", "AddOffsetsToTxn(25)"] {
        let line = printed.lines().find(|it| it.trim().starts_with(request));
        let line = line.with_context(|| format!("{request} is not in {printed}"))?;
        ensure!(line.contains("[usable: "), "{line}");
    }
    let address = fixture.broker.address();
    let id = ToolBox::check(CLUSTER, &["cluster-id", "--bootstrap-server", &address], "")?;
    ensure!(id.trim().starts_with("Cluster ID: "), "{id}");
    let features = fixture.run(FEATURES, "describe")?;
    let levels =
        [("group.version", "1"), ("metadata.version", "4.3-IV0"), ("transaction.version", "2")];
    for (feature, level) in levels {
        let line = row(&features, &[feature])?.join(" ");
        ensure!(line.contains(&format!("FinalizedVersionLevel: {level} ")), "{line}");
    }
    Ok(())
}

#[test]
fn access_control_that_is_off_says_so() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::new("access")?;
    let printed = fixture.refused(ACCESS, "--list")?;
    ensure!(printed.contains("SecurityDisabledException"), "{printed}");
    Ok(())
}

#[test]
fn transactions_are_listed_and_described() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::with_topic("listed", 1)?;
    let name = &fixture.name;
    let options = format!("--topic {name} --transactional-id {name} --num-records 200");
    let size = "--record-size 100 --throughput -1 --transaction-duration-ms 20";
    fixture.run(PRODUCER_PERFORMANCE, &format!("{options} {size}"))?;
    let listed = fixture.run(TRANSACTIONS, "list")?;
    ensure!(row(&listed, &[name])?.contains(&"CompleteCommit"), "{listed}");
    let described = fixture.run(TRANSACTIONS, &format!("describe --transactional-id {name}"))?;
    ensure!(row(&described, &[name])?.contains(&"CompleteCommit"), "{described}");
    let producers = format!("describe-producers --topic {name} --partition 0");
    let producers = fixture.run(TRANSACTIONS, &producers)?;
    ensure!(producers.lines().count() >= 2, "no producer in {producers}");
    let hanging = format!("find-hanging --topic {name} --partition 0");
    let hanging = fixture.run(TRANSACTIONS, &hanging)?;
    ensure!(!hanging.contains(name.as_str()), "{hanging}");
    let aborted = format!("abort --topic {name} --partition 0 --producer-id 7 --producer-epoch 0");
    let refusal = fixture.refused(TRANSACTIONS, &format!("{aborted} --coordinator-epoch 0"))?;
    ensure!(refusal.contains("The node does not support WRITE_TXN_MARKERS"), "{refusal}");
    fixture.run(TRANSACTIONS, &format!("forceTerminateTransaction --transactionalId {name}"))?;
    Ok(())
}

#[test]
fn producer_and_consumer_performance_move_every_record() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let fixture = Fixture::with_topic("performance", 1)?;
    let name = &fixture.name;
    let options = "--num-records 100000 --record-size 512 --throughput -1";
    let props = "--command-property acks=all --command-property batch.size=65536";
    let printed =
        fixture.run(PRODUCER_PERFORMANCE, &format!("--topic {name} {options} {props}"))?;
    ensure!(printed.contains("100000 records sent"), "{printed}");
    let printed =
        fixture.run(CONSUMER_PERFORMANCE, &format!("--topic {name} --num-records 100000"))?;
    let row = printed.lines().nth(1).context("a line of results")?;
    let read = row.split(", ").nth(4).context("a count of records")?;
    ensure!(read.parse::<u32>().is_ok_and(|it| it >= 100_000), "{printed}");
    Ok(())
}

#[track_caller]
fn check_transactions(scenario: &str, topics: &[&Fixture]) -> Result<()> {
    let address = topics[0].broker.address();
    let mut words = vec![scenario, &address];
    words.extend(topics.iter().map(|it| it.name.as_str()));
    ToolBox::check("Transactions", &words, "").with_context(|| topics[0].broker.last_words())?;
    topics[0].broker.check_transactions_begin_with_records()
}

#[test]
fn transactions_are_seen_whole_or_not_at_all() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    check_transactions("commit-and-abort", &[&Fixture::with_topic("transactions", 1)?])
}

#[test]
fn a_second_producer_fences_the_first() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    check_transactions("fencing", &[&Fixture::with_topic("fencing", 1)?])
}

#[test]
fn records_and_offsets_change_together_or_not_at_all() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let (source, target) = (Fixture::with_topic("source", 1)?, Fixture::with_topic("target", 1)?);
    check_transactions("transform", &[&source, &target])
}
