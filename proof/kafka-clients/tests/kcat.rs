//! kcat: typical uses in scripts, and clients from ten years ago.

use std::io::{Seek, Write};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use kafka_clients::{Broker, is_skipped};
use serde_json::Value;
use system::Tool;

const PROGRAMS: &[&str] = &["kcat"];

/// Versions before which brokers used protocol versions that Apache Kafka no longer supports.
const OLD_VERSIONS: &[&str] = &["0.10.2.1", "0.11.0.0", "1.0.0", "2.0.0"];

const CODECS: &[&str] = &["none", "gzip", "snappy", "lz4", "zstd"];

/// Topic of one test, created automatically by kcat's requests.
struct Topic {
    broker: &'static Broker,
    name: String,
}

impl Topic {
    fn new(name: &str) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // Relaxed: the number carries no data.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Ok(Self { broker: Broker::shared()?, name: format!("{name}-{number}") })
    }

    /// Creates a kcat command with options that contain no blanks.
    fn kcat(&self, options: &str) -> Tool {
        Tool::new("kcat -b").arg(self.broker.address()).args(options.split_whitespace())
    }

    fn run(&self, options: &str) -> Result<String> {
        self.broker.check(self.kcat(options))
    }

    /// Produces each line.
    fn produce(&self, lines: &[String], options: &str) -> Result<()> {
        let mut file = tempfile::tempfile().context("cannot make a file for input")?;
        for line in lines {
            writeln!(file, "{line}")?;
        }
        file.rewind()?;
        let client = self.kcat(&format!("-P -t {} {options}", self.name)).input(file);
        self.broker.check(client)?;
        Ok(())
    }

    /// Returns the lines that kcat prints in `format` for everything up to the end.
    fn consume(&self, options: &str, format: &str) -> Result<Vec<String>> {
        let client = self.kcat(&format!("-C -e -q -t {} {options}", self.name));
        let printed = self.broker.check(client.arg("-f").arg(format!("{format}\\n")))?;
        Ok(printed.lines().map(str::to_owned).collect())
    }
}

fn lines(label: &str, count: usize) -> Vec<String> {
    (0..count).map(|index| format!("{label}-{index}")).collect()
}

fn numbered(lines: &[String]) -> Vec<String> {
    lines.iter().enumerate().map(|(offset, line)| format!("{offset} {line}")).collect()
}

#[test]
fn lines_are_read_in_order_with_their_offsets() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let topic = Topic::new("lines")?;
    for codec in CODECS {
        let topic = Topic { broker: topic.broker, name: format!("{}-{codec}", topic.name) };
        let written = lines(codec, 2000);
        topic.produce(&written, &format!("-z {codec}"))?;
        ensure!(topic.consume("-o beginning", "%o %s")? == numbered(&written), "{codec}");
    }
    Ok(())
}

#[test]
fn keys_and_headers_are_kept() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let topic = Topic::new("keys")?;
    topic.produce(&["k1:v1".to_owned(), "k2:v2".to_owned()], "-K : -H a=b -H c=d")?;
    topic.produce(&["k3:".to_owned()], "-K : -Z")?;
    let expected = ["k1 v1 2 a=b,c=d", "k2 v2 2 a=b,c=d", "k3  -1 "];
    assert_eq!(topic.consume("-o beginning", "%k %s %S %h")?, expected);
    Ok(())
}

#[test]
fn reading_starts_at_the_end_in_the_middle_and_at_a_time() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let topic = Topic::new("places")?;
    for part in ["one", "two", "three"] {
        topic.produce(&lines(part, 10), "")?;
    }
    let all = topic.consume("-o beginning", "%o %T %s")?;
    ensure!(all.len() == 30, "{all:?}");
    assert_eq!(topic.consume("-o -4", "%o %T %s")?, all[26..]);
    assert_eq!(topic.consume("-o 7 -c 5", "%o %T %s")?, all[7..12]);
    assert_eq!(topic.consume("-o end", "%o %T %s")?, all[30..]);
    let time_of = |line: &str| line.split(' ').nth(1).and_then(|it| it.parse::<u64>().ok());
    let time = time_of(&all[15]).context("the record has a time")?;
    let first = all.iter().position(|line| time_of(line) >= Some(time)).context("it is there")?;
    assert_eq!(topic.consume(&format!("-o s@{time}"), "%o %T %s")?, all[first..]);
    let name = &topic.name;
    let found = topic.run(&format!("-Q -t {name}:0:{time}"))?;
    assert_eq!(found.trim(), format!("{name} [0] offset {first}"));
    let found = topic.run(&format!("-Q -t {name}:0:-1"))?;
    assert_eq!(found.trim(), format!("{name} [0] offset 30"));
    let found = topic.run(&format!("-Q -t {name}:0:-2"))?;
    assert_eq!(found.trim(), format!("{name} [0] offset 0"));
    let found = topic.run(&format!("-Q -t {name}:0:{}", time + 3_600_000))?;
    assert_eq!(found.trim(), format!("{name} [0] offset -1"));
    Ok(())
}

#[test]
fn metadata_names_the_broker_and_the_topic() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let topic = Topic::new("metadata")?;
    topic.produce(&lines("x", 1), "")?;
    let found: Value = serde_json::from_str(&topic.run(&format!("-L -J -t {}", topic.name))?)?;
    assert_eq!(found["brokers"][0]["name"], topic.broker.address());
    assert_eq!(found["brokers"].as_array().map(Vec::len), Some(1));
    let id = &found["brokers"][0]["id"];
    let partition = &found["topics"][0]["partitions"][0];
    assert_eq!(found["topics"][0]["topic"], topic.name.as_str());
    assert_eq!((&partition["leader"], &partition["replicas"][0]["id"]), (id, id));
    assert_eq!((&partition["isrs"][0]["id"], &found["controllerid"]), (id, id));
    let all: Value = serde_json::from_str(&topic.run("-L -J")?)?;
    let topics = all["topics"].as_array().context("a list of topics")?;
    ensure!(topics.iter().any(|it| it["topic"] == topic.name.as_str()), "{all}");
    Ok(())
}

#[test]
fn a_group_goes_on_where_it_was() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let topic = Topic::new("group")?;
    let written = lines("x", 100);
    topic.produce(&written[..60], "")?;
    let earliest = "-X auto.offset.reset=earliest";
    let read = || topic.run(&format!("-G {0} -e -q {earliest} {0}", topic.name));
    let text = |lines: &[String]| lines.iter().map(|it| format!("{it}\n")).collect::<String>();
    assert_eq!(read()?, text(&written[..60]));
    assert_eq!(read()?, "");
    topic.produce(&written[60..], "")?;
    assert_eq!(read()?, text(&written[60..]));
    Ok(())
}

#[test]
fn a_transaction_of_lines_is_committed() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let topic = Topic::new("transaction")?;
    topic.produce(&lines("before", 1), "")?;
    let written = lines("x", 500);
    topic.produce(&written, &format!("-X transactional.id={}", topic.name))?;
    let found = topic.consume("-o 1 -X isolation.level=read_committed", "%s")?;
    ensure!(found == written, "{} records", found.len());
    Ok(())
}

/// These clients have no ApiVersions request: they use the protocol versions of their time.
#[test]
fn clients_that_negotiate_nothing_are_served() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    for version in OLD_VERSIONS {
        let topic = Topic::new("old")?;
        let old = format!("-X api.version.request=false -X broker.version.fallback={version}");
        let written = lines("x", 300);
        topic.produce(&written, &format!("{old} -z gzip"))?;
        ensure!(topic.consume(&format!("-o beginning {old}"), "%o %s")? == numbered(&written));
        let earliest = "-X auto.offset.reset=earliest";
        let found = topic.run(&format!("-G {0} -e -q {old} {earliest} {0}", topic.name))?;
        ensure!(found.lines().eq(&written), "a group of version {version} read other records");
        let found = topic.run(&format!("-Q {old} -t {}:0:-1", topic.name))?;
        assert_eq!(found.trim(), format!("{} [0] offset 300", topic.name));
    }
    Ok(())
}
