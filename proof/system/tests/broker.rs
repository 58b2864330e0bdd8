//! The broker as operators see it: readiness, metrics, lists, and an end in order.

use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use system::{Ability, Broker, Daemon, DaemonOptions, Tool, missing, product, wait_for};

const TIME_LIMIT: Duration = Duration::from_secs(60);

fn kcat(broker: &Broker, words: &str) -> Tool {
    Tool::new("kcat -b").arg(broker.address()).args(words.split_whitespace())
}

fn produce(broker: &Broker, words: &str, lines: &str) -> Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), lines)?;
    kcat(broker, words).arg("-P").arg("-l").arg(file.path()).check().map(drop)
}

fn body(answer: &str) -> Result<serde_json::Value> {
    let (_, body) = answer.split_once("\r\n\r\n").context("an answer without a body")?;
    Ok(serde_json::from_str(body)?)
}

#[test]
fn metrics_and_lists_show_what_clients_did() -> Result<()> {
    if let Some(reason) = missing(&[Ability::Program("kcat")]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let mut broker = Broker::start("--embedded 128M")?;
    produce(&broker, "-t seen", "a\nb\nc\n")?;
    let read = kcat(&broker, "-C -t seen -o beginning -e -q").check()?;
    ensure!(read.lines().collect::<Vec<_>>() == ["a", "b", "c"], "{read}");
    let metrics = broker.ask("/metrics")?;
    for line in [
        "memlane_broker_topic_records_in_total{topic=\"seen\"} 3\n",
        "memlane_broker_topic_records_out_total{topic=\"seen\"} 3\n",
        "memlane_broker_topic_end_offset{topic=\"seen\",partition=\"0\"} 3\n",
        "memlane_broker_request_seconds_count{request=\"produce\"}",
        "memlane_broker_ready 1\n",
    ] {
        ensure!(metrics.contains(line), "no {line} in {metrics}");
    }
    let topic = body(&broker.ask("/v1/topics/seen")?)?;
    ensure!(topic["partitions"][0]["end_offset"] == 3, "{topic}");
    ensure!(broker.ask("/v1/topics/unseen")?.starts_with("HTTP/1.1 404"));
    broker.stop()
}

#[test]
fn a_broker_whose_daemon_is_away_answers_and_is_not_ready() -> Result<()> {
    let mut daemon = Daemon::start(DaemonOptions { pool_size: "128MiB", flags: "--no-fuse" })?;
    let mut broker = Broker::on_daemon(&daemon.run_dir(), "")?;
    daemon.kill()?;
    wait_for("readyz to say so", TIME_LIMIT, || {
        Ok(broker.ask("/readyz")?.starts_with("HTTP/1.1 503"))
    })?;
    let answer = broker.ask("/readyz")?;
    ensure!(answer.contains("storage"), "{answer}");
    ensure!(broker.ask("/healthz")?.starts_with("HTTP/1.1 200"));
    ensure!(broker.ask("/metrics")?.contains("memlane_broker_storage_reachable 0"));
    daemon.start_again()?;
    wait_for("the broker to be ready", TIME_LIMIT, || {
        Ok(broker.ask("/readyz")?.starts_with("HTTP/1.1 200"))
    })?;
    broker.stop()?;
    daemon.finish()
}

#[test]
fn one_broker_uses_a_daemon_and_a_lock_of_its_directory_keeps_none_out() -> Result<()> {
    let daemon = Daemon::start(DaemonOptions { pool_size: "128MiB", flags: "--no-fuse" })?;
    let run_dir = daemon.run_dir();
    let lock = std::fs::metadata(run_dir.join("broker.lock"))?;
    ensure!(lock.mode() & 0o777 == 0o660, "others can open it: {:o}", lock.mode());
    // As any user of the host may do.
    let directory = std::fs::File::open(&run_dir)?;
    directory.try_lock()?;
    let mut broker = Broker::on_daemon(&run_dir, "")?;
    let refused = Broker::on_daemon(&run_dir, "").err().context("two brokers use a daemon")?;
    ensure!(refused.to_string().contains("another broker serves"), "{refused:#}");
    broker.kill()?;
    broker.start_again()?;
    broker.stop()?;
    daemon.finish()
}

/// A frame of ApiVersions, version 0.
fn api_versions(correlation_id: i32) -> Vec<u8> {
    let mut body = vec![0, 18, 0, 0];
    body.extend(correlation_id.to_be_bytes());
    body.extend([0xff, 0xff]);
    let length = i32::try_from(body.len()).expect("it is short");
    [&length.to_be_bytes()[..], &body].concat()
}

#[test]
fn answers_in_flight_are_sent_before_the_broker_ends() -> Result<()> {
    const REQUESTS: i32 = 500;
    let mut broker = Broker::start("--embedded 128M")?;
    let mut client = broker.connect()?;
    client.write_all(&(0..REQUESTS).flat_map(api_versions).collect::<Vec<_>>())?;
    // The first answer says that the broker has begun with them.
    let mut head = [0; 8];
    client.read_exact(&mut head)?;
    broker.signal(Signal::TERM)?;
    let mut rest = Vec::new();
    client.read_to_end(&mut rest)?;
    let answers = [&head[..], &rest].concat();
    let (mut at, mut count) = (0, 0);
    while at < answers.len() {
        let field = |from: usize| -> Result<i32> {
            let bytes = answers.get(from..from + 4).context("an answer was cut")?;
            Ok(i32::from_be_bytes(bytes.try_into()?))
        };
        ensure!(field(at + 4)? == count, "answers in order");
        at += 4 + usize::try_from(field(at)?)?;
        count += 1;
    }
    ensure!(at == answers.len() && count > 0, "the last answer was cut");
    broker.wait_until_ended()
}

#[test]
fn a_fetch_that_waits_holds_no_stop_up() -> Result<()> {
    if let Some(reason) = missing(&[Ability::Program("kcat")]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let mut broker = Broker::start("--embedded 128M")?;
    produce(&broker, "-t waits", "a\n")?;
    let mut waiting = std::process::Command::new("kcat")
        .args(["-b", &broker.address(), "-C", "-t", "waits", "-X", "fetch.wait.max.ms=30000"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()?;
    let is_connected = || Ok(broker.ask("/metrics")?.contains("{request=\"Fetch\"}"));
    let stopped = wait_for("the fetch", TIME_LIMIT, is_connected).and_then(|()| broker.stop());
    waiting.kill()?;
    waiting.wait()?;
    stopped?;
    ensure!(!broker.log().contains("connection given up"), "{}", broker.log());
    Ok(())
}

#[test]
fn a_topic_whose_records_are_all_too_old_gives_its_memory_back() -> Result<()> {
    if let Some(reason) = missing(&[Ability::Program("kcat")]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let mut broker = Broker::start("--embedded 128M --topic-default retention.ms=1000")?;
    produce(&broker, "-t brief", "a\nb\n")?;
    wait_for("the topic to be empty", TIME_LIMIT, || {
        let metrics = broker.ask("/metrics")?;
        ensure!(
            metrics.contains("memlane_broker_topic_end_offset{topic=\"brief\",partition=\"0\"} 2")
        );
        Ok(metrics.contains("memlane_broker_topic_size_bytes{topic=\"brief\"} 0\n"))
    })?;
    produce(&broker, "-t brief", "c\n")?;
    let read = kcat(&broker, "-C -t brief -o beginning -e -q -f %o=%s").check()?;
    ensure!(read == "2=c" || read.is_empty(), "{read}");
    broker.stop()
}

/// The value of a metric, by the beginning of its line.
fn value(metrics: &str, name: &str) -> Result<f64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    let text = line.with_context(|| format!("no {name} in {metrics}"))?;
    text.trim().parse().with_context(|| format!("{name} is {text:?}"))
}

#[test]
fn clients_over_their_rate_wait_as_long_as_it_takes() -> Result<()> {
    const RATE: f64 = 200_000.0;
    const LINES: usize = 1_000;
    if let Some(reason) = missing(&[Ability::Program("kcat")]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let (users, secret) = (folder.path().join("users"), folder.path().join("secret"));
    let quota = format!("produce-bytes-per-second = {RATE}\nfetch-bytes-per-second = {RATE}\n");
    std::fs::write(&users, format!("version = 1\n[default-quota]\n{quota}"))?;
    std::fs::write(&secret, "of loader\n")?;
    let set = product("memlane-broker").args(["user", "set", "loader", "--user-file"]);
    set.arg(&users).input(std::fs::File::open(&secret)?).check()?;
    let mut broker = Broker::start(&format!("--embedded 128M --user-file {}", users.display()))?;
    let loader = |words: &str| {
        let login = "-X security.protocol=SASL_PLAINTEXT -X sasl.mechanism=SCRAM-SHA-256 \
                     -X sasl.username=loader -X";
        kcat(&broker, login).arg("sasl.password=of loader").args(words.split_whitespace())
    };
    let lines = format!("{:0>1000}\n", 1).repeat(LINES);
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), &lines)?;
    loader("-P -t paced -X batch.num.messages=20 -l").arg(file.path()).check()?;
    let read = loader("-C -t paced -o beginning -e -q -X fetch.message.max.bytes=20000").check()?;
    ensure!(read == lines, "{} bytes were read", read.len());
    let metrics = broker.ask("/metrics")?;
    for (request, direction) in [("produce", "in"), ("fetch", "out")] {
        let bytes = format!("memlane_broker_topic_bytes_{direction}_total{{topic=\"paced\"}}");
        let of_request = |name: &str| {
            value(&metrics, &format!("memlane_broker_rate_{name}_total{{request=\"{request}\"}}"))
        };
        let bytes = value(&metrics, &bytes)?;
        // What a second brings comes at once. Beside the waits goes the time of the requests.
        let (owed, waited) = (bytes / RATE - 1.0, of_request("throttle_seconds")?);
        ensure!(owed > 2.0, "{request}: {bytes} bytes");
        ensure!((owed / 2.0..owed * 1.5).contains(&waited), "{request}: {waited} s for {owed} s");
        ensure!(of_request("throttles")? > 10.0, "{request}: a few long waits: {metrics}");
    }
    broker.stop()
}
