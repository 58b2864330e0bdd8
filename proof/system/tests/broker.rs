//! The broker from an operator's point of view: readiness, metrics, lists, and a clean stop.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use kafka_client::{Client, ConfigChange, NewTopic, Settings};
use rustix::process::Signal;
use system::{
    Ability, Background, Broker, Daemon, DaemonOptions, Tool, free_address, missing, product,
    wait_for,
};
use tokio::runtime::Runtime;

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

/// Shorter than the time for which requests wait for a daemon that is down.
const PATIENCE: Duration = Duration::from_secs(40);

/// Writes until it is stopped.
async fn write_on(client: Arc<Client>, topic: String, stops: Arc<AtomicBool>) -> Result<()> {
    let settings = kafka_client::ProducerSettings::default();
    let mut producer = kafka_client::Producer::new(client, &topic, settings).await?;
    while !stops.load(Ordering::Acquire) {
        let record = record_batch::NewRecord { value: Some("value".into()), ..Default::default() };
        producer.send(vec![(0, vec![record])]).await?;
    }
    Ok(())
}

#[test]
fn what_needs_no_volume_is_answered_while_many_requests_wait_for_the_daemon() -> Result<()> {
    const WRITERS: usize = 40;
    const TOPICS: usize = 8;
    let mut daemon = Daemon::start(DaemonOptions { pool_size: "128MiB", flags: "--no-fuse" })?;
    let mut broker = Broker::on_daemon(&daemon.run_dir(), "")?;
    let runtime = Runtime::new()?;
    let new_client = || Arc::new(Client::new(broker.address(), Settings::default()));
    let client = new_client();
    let name = |number: usize| format!("orders-{number}");
    for number in 0..TOPICS {
        let (name, configs) = (name(number), Vec::new());
        let topic = kafka_client::NewTopic { name, partitions: Some(1), configs };
        runtime.block_on(client.create_topic(&topic))?;
    }
    let stops = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            let stops = Arc::clone(&stops);
            runtime.spawn(write_on(new_client(), name(number % TOPICS), stops))
        })
        .collect();
    wait_for("all topics to be written to", TIME_LIMIT, || {
        let metrics = broker.ask("/metrics")?;
        Ok((0..TOPICS).all(|number| {
            let counter =
                format!("memlane_broker_topic_records_in_total{{topic={:?}}} ", name(number));
            let count = metrics.lines().find_map(|line| line.strip_prefix(&*counter));
            count.and_then(|it| it.parse::<u64>().ok()).is_some_and(|it| it > 10)
        }))
    })?;
    daemon.kill()?;
    runtime.block_on(async {
        for round in 0..20 {
            let client = new_client();
            let found = tokio::time::timeout(PATIENCE, client.topic("orders-0")).await;
            found.with_context(|| format!("metadata waits for the daemon in round {round}"))??;
        }
        anyhow::Ok(())
    })?;
    daemon.start_again()?;
    stops.store(true, Ordering::Release);
    runtime.block_on(async {
        for writer in writers {
            writer.await??;
        }
        anyhow::Ok(())
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
    // Any user of the host can do this.
    let directory = std::fs::File::open(&run_dir)?;
    directory.try_lock()?;
    let mut broker = Broker::on_daemon(&run_dir, "")?;
    let refused = Broker::on_daemon(&run_dir, "").err().context("two brokers use a daemon")?;
    ensure!(refused.to_string().contains("another broker uses this daemon"), "{refused:#}");
    broker.kill()?;
    broker.start_again()?;
    broker.stop()?;
    daemon.finish()
}

#[test]
fn what_belongs_to_the_broker_is_deleted_by_force_only_also_while_it_is_away() -> Result<()> {
    let mut daemon = Daemon::start(DaemonOptions { pool_size: "128MiB", flags: "--no-fuse" })?;
    let mut broker = Broker::on_daemon(&daemon.run_dir(), "")?;
    let runtime = Runtime::new()?;
    let topic = kafka_client::NewTopic {
        name: "orders".to_owned(),
        partitions: Some(1),
        configs: Vec::new(),
    };
    let client = Client::new(broker.address(), Settings::default());
    runtime.block_on(client.create_topic(&topic))?;
    broker.stop()?;
    // A volume of an earlier release has no owner.
    daemon.memlane("volume set topic.orders owner=")?;
    broker.start_again()?;
    wait_for("the broker to say that it is its own", TIME_LIMIT, || {
        Ok(daemon.volume("topic.orders")?.owner.as_deref() == Some("memlane-broker"))
    })?;
    broker.stop()?;
    daemon.kill()?;
    daemon.start_again()?;
    let owned = daemon.memlane("volume list --owner memlane-broker -o name")?;
    let owned: Vec<&str> = owned.lines().skip(1).collect();
    ensure!(owned.contains(&"topic.orders") && owned.contains(&"broker-state"), "{owned:?}");
    for words in
        ["delete topic.orders", "rename topic.orders mine", "resize broker-state --size 1M"]
    {
        let refused = daemon.memlane(&format!("volume {words}"));
        let refused = refused.err().context("the broker's volume was taken from it")?;
        ensure!(format!("{refused:#}").contains("its owner is memlane-broker"), "{refused:#}");
    }
    broker.start_again()?;
    runtime.block_on(Client::new(broker.address(), Settings::default()).delete_topic("orders"))?;
    ensure!(!daemon.memlane("volume list -o name")?.contains("topic.orders"), "it is there");
    broker.stop()?;
    daemon.memlane("volume delete broker-state --force")?;
    daemon.finish()
}

#[test]
fn a_broker_whose_volume_was_taken_away_is_not_ready_and_names_it() -> Result<()> {
    let daemon = Daemon::start(DaemonOptions { pool_size: "128MiB", flags: "--no-fuse" })?;
    // A volume with the name of a topic's volume that is not one.
    daemon.memlane("volume create topic.mine --size 1MiB")?;
    let mut broker = Broker::on_daemon(&daemon.run_dir(), "")?;
    let runtime = Runtime::new()?;
    let client = Client::new(broker.address(), Settings::default());
    for name in ["kept", "lost", "deleted"] {
        let topic = kafka_client::NewTopic {
            name: name.to_owned(),
            partitions: Some(1),
            configs: Vec::new(),
        };
        runtime.block_on(client.create_topic(&topic))?;
    }
    runtime.block_on(client.delete_topic("deleted"))?;
    daemon.memlane("volume delete topic.mine")?;
    daemon.memlane("volume delete topic.lost --force")?;
    wait_for("readyz to say so", TIME_LIMIT, || {
        Ok(broker.ask("/readyz")?.starts_with("HTTP/1.1 503"))
    })?;
    let answer = broker.ask("/readyz")?;
    ensure!(answer.contains("1 volumes") && answer.contains("topic.lost"), "{answer}");
    runtime.block_on(client.delete_topic("lost"))?;
    wait_for("the broker to be ready", TIME_LIMIT, || {
        Ok(broker.ask("/readyz")?.starts_with("HTTP/1.1 200"))
    })?;
    broker.stop()?;
    daemon.finish()
}

/// Returns a request frame in a version whose header has no tags, from a client without a name.
fn frame(key: i16, version: i16, correlation_id: i32, body: &[u8]) -> Vec<u8> {
    let mut bytes = [key.to_be_bytes(), version.to_be_bytes()].concat();
    bytes.extend(correlation_id.to_be_bytes());
    bytes.extend([0xff, 0xff]);
    bytes.extend(body);
    let length = i32::try_from(bytes.len()).expect("it is short");
    [&length.to_be_bytes()[..], &bytes].concat()
}

/// Returns the body of a Fetch request, version 4, which waits longer than a stop takes for a
/// record after the one in `topic`.
fn long_fetch(topic: &str) -> Vec<u8> {
    let mut body = Vec::new();
    for number in [-1, 600_000, 1, 1 << 20] {
        body.extend(i32::to_be_bytes(number));
    }
    body.extend([0, 0, 0, 0, 1]);
    body.extend(u16::try_from(topic.len()).expect("it is short").to_be_bytes());
    body.extend(topic.as_bytes());
    body.extend([0, 0, 0, 1, 0, 0, 0, 0]);
    body.extend(1_i64.to_be_bytes());
    body.extend(i32::to_be_bytes(1 << 20));
    body
}

#[test]
fn answers_in_flight_are_sent_before_the_broker_ends() -> Result<()> {
    const FETCH: i16 = 1;
    const API_VERSIONS: i16 = 18;
    // Together with the fetch this is the maximum number of requests in flight on a connection.
    const BEHIND: i32 = 63;
    // A broker that loses answers may have sent those of a single client.
    const CLIENTS: i32 = 16;
    if let Some(reason) = missing(&[Ability::Program("kcat")]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let mut broker = Broker::start("--embedded 128M")?;
    produce(&broker, "-t waits", "a\n")?;
    let before = requests(&broker, "ApiVersions")?;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = broker.connect()?;
        // Answers are in order, so all others wait behind that of the fetch.
        client.write_all(&frame(FETCH, 4, 0, &long_fetch("waits")))?;
        let behind = (1..=BEHIND).flat_map(|id| frame(API_VERSIONS, 0, id, &[]));
        client.write_all(&behind.collect::<Vec<_>>())?;
        clients.push(client);
    }
    wait_for("the broker to have taken all", TIME_LIMIT, || {
        Ok(requests(&broker, "ApiVersions")? == before + f64::from(BEHIND * CLIENTS))
    })?;
    broker.signal(Signal::TERM)?;
    for client in clients {
        let ids = ids_of_answers(client)?;
        ensure!(ids == (0..=BEHIND).collect::<Vec<_>>(), "answers to these, in order: {ids:?}");
    }
    broker.wait_until_ended()
}

/// Returns the correlation ids of all complete answers up to the end of the connection.
fn ids_of_answers(mut client: TcpStream) -> Result<Vec<i32>> {
    let mut answers = Vec::new();
    client.read_to_end(&mut answers)?;
    let (mut at, mut ids) = (0, Vec::new());
    while at < answers.len() {
        let field = |from: usize| -> Result<i32> {
            let bytes = answers.get(from..from + 4).context("an answer was cut")?;
            Ok(i32::from_be_bytes(bytes.try_into()?))
        };
        ids.push(field(at + 4)?);
        at += 4 + usize::try_from(field(at)?)?;
    }
    ensure!(at == answers.len(), "the last answer was cut");
    Ok(ids)
}

/// Returns the number of requests of a kind that the broker has received.
fn requests(broker: &Broker, kind: &str) -> Result<f64> {
    let name = format!("memlane_broker_requests_total{{request=\"{kind}\"}}");
    let metrics = broker.ask("/metrics")?;
    if metrics.contains(&name) { value(&metrics, &name) } else { Ok(0.0) }
}

#[test]
fn a_fetch_that_waits_holds_no_stop_up() -> Result<()> {
    if let Some(reason) = missing(&[Ability::Program("kcat")]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let mut broker = Broker::start("--embedded 128M --log debug")?;
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
    let log = broker.log();
    // A fetch that delays a stop is abandoned after a while.
    ensure!(
        log.contains("connection ended") && !log.contains("connection closed: shutdown"),
        "{log}"
    );
    Ok(())
}

/// Waits until retention has deleted both records of a topic.
fn wait_until_empty(broker: &Broker, topic: &str) -> Result<()> {
    wait_for("the topic to be empty", TIME_LIMIT, || {
        let metrics = broker.ask("/metrics")?;
        let end =
            format!("memlane_broker_topic_end_offset{{topic=\"{topic}\",partition=\"0\"}} 2\n");
        ensure!(metrics.contains(&end), "{topic} has another end");
        let size = format!("memlane_broker_topic_size_bytes{{topic=\"{topic}\"}} 0\n");
        Ok(metrics.contains(&size))
    })
}

#[test]
fn a_topic_whose_records_are_all_too_old_gives_its_memory_back() -> Result<()> {
    const DAY: &str = "86400000";
    if let Some(reason) = missing(&[Ability::Program("kcat")]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let mut broker = Broker::start("--embedded 128M --topic-default retention.ms=1000")?;
    produce(&broker, "-t brief", "a\nb\n")?;
    wait_until_empty(&broker, "brief")?;
    let day = ConfigChange { name: "retention.ms".to_owned(), value: Some(DAY.to_owned()) };
    let client = Client::new(broker.address(), Settings::default());
    Runtime::new()?.block_on(client.alter_topic_configs("brief", &[day]))?;
    produce(&broker, "-t brief", "c\n")?;
    // Records that are not too old stay, also when retention runs.
    for passes in ["passes", "passes-again"] {
        let read = kcat(&broker, "-C -t brief -o beginning -e -q -f %o=%s").check()?;
        ensure!(read == "2=c", "{read:?} is there");
        produce(&broker, &format!("-t {passes}"), "a\nb\n")?;
        wait_until_empty(&broker, passes)?;
    }
    let read = kcat(&broker, "-C -t brief -o beginning -e -q -f %o=%s").check()?;
    ensure!(read == "2=c", "{read:?} is left");
    broker.stop()
}

/// Listeners of which one is reachable from other hosts: that for Kafka clients, or that for SQL
/// clients.
const REACHABLE: [&str; 2] = ["--listen 0.0.0.0:0", "--listen 127.0.0.1:0 --sql 0.0.0.0:0"];

/// Starts a broker with such listeners. Returns its exit status, or `None` if it serves, and its
/// output.
fn listen(at: &str, options: &[&str]) -> Result<(Option<ExitStatus>, String)> {
    let log = tempfile::NamedTempFile::new()?;
    let broker = product(&format!("memlane-broker --embedded 128M {at}")).args(options);
    let mut broker = Background::start(broker.output_to(log.reopen()?)?)?;
    let (mut status, mut said) = (None, String::new());
    wait_for("the broker to serve or end", TIME_LIMIT, || {
        status = broker.has_ended()?;
        said = std::fs::read_to_string(log.path())?;
        Ok(status.is_some() || said.contains("memlane-broker: ready at "))
    })?;
    if status.is_none() {
        let ended = broker.end(Signal::TERM, TIME_LIMIT)?;
        ensure!(ended.success(), "{ended}: {said}");
    }
    Ok((status, said))
}

#[test]
fn a_listener_that_lets_everybody_in_or_shows_secrets_is_served_only_when_asked_for() -> Result<()>
{
    let folder = tempfile::tempdir()?;
    let (users, secret) = (folder.path().join("users"), folder.path().join("secret"));
    std::fs::write(&secret, "of someone\n")?;
    let set = product("memlane-broker").args(["user", "set", "someone", "--user-file"]);
    set.arg(&users).input(std::fs::File::open(&secret)?).check()?;
    let users = users.to_str().context("the folder's name is no UTF-8")?;
    let anonymous: &[&str] = &[];
    let secrets: &[&str] = &["--user-file", users, "--mechanisms", "PLAIN"];
    for at in REACHABLE {
        for (options, why) in [(anonymous, "could read and write"), (secrets, "sends passwords")] {
            for too_little in [&[][..], &["--anonymous", "loopback"]] {
                let (status, said) = listen(at, &[options, too_little].concat())?;
                let status =
                    status.with_context(|| format!("{at} {options:?} {too_little:?} is served"))?;
                ensure!(!status.success(), "refused, and ended with {status}");
                ensure!(said.contains(why) && said.contains("--anonymous"), "{said}");
            }
            let (status, said) = listen(at, &[options, &["--anonymous", "everywhere"]].concat())?;
            ensure!(status.is_none(), "{at} {options:?} is refused where it is asked for: {said}");
        }
        // Nothing else is required if secrets stay secret.
        let scram = ["--user-file", users, "--mechanisms", "SCRAM-SHA-256"];
        let (status, said) = listen(at, &scram)?;
        ensure!(status.is_none(), "{at} with SCRAM is refused: {said}");
    }
    Ok(())
}

#[test]
fn a_hang_up_reads_users_and_access_lists_again_and_bad_ones_change_nothing() -> Result<()> {
    if let Some(reason) = missing(&[Ability::Program("kcat")]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    let (users, lists, secret) = (path("users"), path("lists"), path("secret"));
    std::fs::write(&secret, "of writer\n")?;
    let set = product("memlane-broker").args(["user", "set", "writer", "--user-file"]);
    set.arg(&users).input(std::fs::File::open(&secret)?).check()?;
    let good_users = std::fs::read_to_string(&users)?;
    let allowed = "version = 1\n[[acl]]\nprincipal = \"User:writer\"\nhost = \"*\"\n\
                   permission = \"Allow\"\noperation = \"All\"\nresource = \"Topic\"\n\
                   name = \"lines\"\npattern = \"Literal\"\n";
    std::fs::write(&lists, allowed)?;
    let flags = format!("--user-file {} --acl-file {}", users.display(), lists.display());
    let mut broker = Broker::start(&format!("--embedded 128M {flags}"))?;
    let can_write = |broker: &Broker| -> Result<bool> {
        let login = "-m 10 -P -t lines -X security.protocol=SASL_PLAINTEXT \
                     -X sasl.mechanism=SCRAM-SHA-256 -X sasl.username=writer -X";
        let writer = kcat(broker, login).arg("sasl.password=of writer").arg("-l").arg(&secret);
        Ok(writer.run()?.exit_code == Some(0))
    };
    ensure!(can_write(&broker)?, "it may write, by the lists");
    // Both are rejected, the errors in both are reported, and both stay unchanged.
    std::fs::write(&users, good_users.replace("secrets", "secretz"))?;
    std::fs::write(&lists, allowed.replace("\"All\"", "\"Al\""))?;
    broker.signal(Signal::HUP)?;
    wait_for("both files to be refused", TIME_LIMIT, || {
        let said = broker.log();
        let mut told = said.lines().filter(|line| line.contains("cannot reload"));
        let is_told = |it: Option<&str>| it.is_some_and(|line| line.contains(": line "));
        Ok(is_told(told.next()) && is_told(told.next()))
    })
    .with_context(|| broker.log())?;
    ensure!(can_write(&broker)?, "bad files have changed who may write");
    // A valid file takes effect at once, also beside an invalid one.
    std::fs::write(&lists, "version = 1\n")?;
    broker.signal(Signal::HUP)?;
    wait_for("the right to be gone", TIME_LIMIT, || Ok(!can_write(&broker)?))?;
    std::fs::write(&lists, allowed)?;
    broker.signal(Signal::HUP)?;
    wait_for("the right to be there again", TIME_LIMIT, || can_write(&broker))?;
    std::fs::write(&users, "version = 1\n")?;
    broker.signal(Signal::HUP)?;
    wait_for("the user to be gone", TIME_LIMIT, || Ok(!can_write(&broker)?))?;
    broker.stop()
}

/// Returns the value of a metric, by the beginning of its line.
fn value(metrics: &str, name: &str) -> Result<f64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    let text = line.with_context(|| format!("no {name} in {metrics}"))?;
    text.trim().parse().with_context(|| format!("{name} is {text:?}"))
}

/// Creates a certificate that expires in some days. Returns its expiry in Unix seconds.
fn make_certificate(folder: &Path, days: u32) -> Result<u64> {
    let mut parameters = rcgen::CertificateParams::new(["localhost".to_owned()])?;
    let expires =
        SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() + 24 * 60 * 60 * u64::from(days);
    parameters.not_after = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(expires);
    let key = rcgen::KeyPair::generate()?;
    std::fs::write(folder.join("broker.crt"), parameters.self_signed(&key)?.pem())?;
    std::fs::write(folder.join("broker.key"), key.serialize_pem())?;
    Ok(expires)
}

#[test]
fn a_certificate_that_expires_soon_is_logged_and_its_expiry_is_a_metric() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let expires = make_certificate(folder.path(), 10)?;
    let path = folder.path().join("broker");
    let flags = "--embedded 128M --tls-certificate";
    let flags = format!("{flags} {0}.crt --tls-key {0}.key", path.display());
    let mut broker = Broker::start(&flags)?;
    let told = format!("{}.crt (message log) expires on 20", path.display());
    let warnings = |broker: &Broker| broker.log().matches(&told).count();
    let used = format!("{{used_for=\"message log\",file=\"{}.crt\"}}", path.display());
    let metric = format!("memlane_broker_certificate_expiry_timestamp_seconds{used}");
    let shown = |broker: &Broker| -> Result<u64> {
        let value = value(&broker.ask("/metrics")?, &metric)?;
        Ok(format!("{value}").parse()?)
    };
    wait_for("the warning", TIME_LIMIT, || Ok(warnings(&broker) == 1))?;
    ensure!(shown(&broker)? == expires);
    // A file that was replaced counts once the broker reads it.
    let later = make_certificate(folder.path(), 300)?;
    ensure!(shown(&broker)? == expires);
    broker.signal(Signal::HUP)?;
    wait_for("the new certificate", TIME_LIMIT, || Ok(shown(&broker)? == later))?;
    make_certificate(folder.path(), 5)?;
    broker.signal(Signal::HUP)?;
    wait_for("the other warning", TIME_LIMIT, || Ok(warnings(&broker) == 2))?;
    broker.stop()
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
    let begun = Instant::now();
    loader("-P -t paced -X batch.num.messages=20 -l").arg(file.path()).check()?;
    let written = Instant::now();
    let read = loader("-C -t paced -o beginning -e -q -X fetch.message.max.bytes=20000").check()?;
    let times = [written - begun, written.elapsed()].map(|it| it.as_secs_f64());
    ensure!(read == lines, "{} bytes were read", read.len());
    let metrics = broker.ask("/metrics")?;
    for ((request, direction), took) in [("produce", "in"), ("fetch", "out")].into_iter().zip(times)
    {
        let bytes = format!("memlane_broker_topic_bytes_{direction}_total{{topic=\"paced\"}}");
        let of_request = |name: &str| {
            value(&metrics, &format!("memlane_broker_rate_{name}_total{{request=\"{request}\"}}"))
        };
        let bytes = value(&metrics, &bytes)?;
        // The quota's first second is a burst, and no throttling follows the last answer.
        let (owed, waited) = (bytes / RATE - 1.0, of_request("throttle_seconds")?);
        ensure!(owed > 2.0, "{request}: {bytes} bytes");
        ensure!(took > owed * 0.8, "{request}: {bytes} bytes in {took} s");
        // The total includes the time of the requests, which is long on a busy host.
        ensure!(
            (0.0..owed * 1.5).contains(&waited),
            "{request}: told to wait {waited} of {owed} s"
        );
        let is_quick = took < owed * 2.0;
        ensure!(waited > owed / 2.0 || !is_quick, "{request}: told to wait {waited} of {owed} s");
        ensure!(
            of_request("throttles")? > 10.0 || !is_quick,
            "{request}: a few long waits: {metrics}"
        );
    }
    broker.stop()
}

/// Returns the throttle times that clients were told, in seconds.
fn throttled(broker: &Broker, request: &str) -> Result<f64> {
    let name = format!("memlane_broker_rate_throttle_seconds_total{{request=\"{request}\"}}");
    value(&broker.ask("/metrics")?, &name)
}

#[test]
fn sql_clients_over_their_rate_wait_too() -> Result<()> {
    const RATE: f64 = 200_000.0;
    const COUNT: usize = 3;
    const BYTES: f64 = 400_000.0;
    let folder = tempfile::tempdir()?;
    let (users, secret) = (folder.path().join("users"), folder.path().join("secret"));
    let quota = format!("produce-bytes-per-second = {RATE}\nfetch-bytes-per-second = {RATE}\n");
    std::fs::write(&users, format!("version = 1\n[default-quota]\n{quota}"))?;
    std::fs::write(&secret, "of loader\n")?;
    let set = product("memlane-broker").args(["user", "set", "loader", "--user-file"]);
    set.arg(&users).input(std::fs::File::open(&secret)?).check()?;
    let sql = free_address()?;
    let flags = format!("--embedded 128M --sql {sql} --user-file {}", users.display());
    let mut broker = Broker::start(&flags)?;
    let login = |words: &str| {
        let client = product("memlane").env("MEMLANE_BROKER_USER", "loader");
        let client = client.env("MEMLANE_BROKER_PASSWORD", "of loader");
        client.args(words.split_whitespace())
    };
    login("topic create paced --broker").arg(broker.address()).check()?;
    let run = |text: &str| login(&format!("sql --server {sql} -c")).arg(text).check();
    // The first second is a burst, and nothing waits after the last statement.
    let owed = (COUNT as f64 - 1.0) * BYTES / RATE - 1.0;
    let insert = format!("INSERT INTO paced (value) SELECT repeat('x', {BYTES})");
    for (text, request) in [(&insert[..], "produce"), ("SELECT value FROM paced LIMIT 1", "fetch")]
    {
        let begun = Instant::now();
        for _ in 0..COUNT {
            run(text)?;
        }
        let took = begun.elapsed().as_secs_f64();
        ensure!(took > owed * 0.8, "{request}: {took} s instead of {owed} s");
        // On a busy host, logins can take so long that nothing has to wait.
        let waited = throttled(&broker, request)?;
        ensure!(waited > 0.0 || took > owed * 1.3, "{request}: no wait in {took} s");
    }
    broker.stop()
}

#[test]
fn a_deleted_topic_is_no_trouble_for_a_stop() -> Result<()> {
    let daemon = Daemon::start(DaemonOptions { pool_size: "128MiB", flags: "--no-fuse" })?;
    for storage in
        ["--embedded 128M".to_owned(), format!("--daemon {}", daemon.run_dir().display())]
    {
        let mut broker = Broker::start(&storage)?;
        let runtime = Runtime::new()?;
        let client = Client::new(broker.address(), Settings::default());
        for number in 0..4 {
            let name = format!("prices-{number}");
            let configs = [("memlane.values".to_owned(), "latest".to_owned())].into();
            let topic = NewTopic { name: name.clone(), partitions: Some(1), configs };
            runtime.block_on(client.create_topic(&topic))?;
            let keyed = format!("key {number}:1\n");
            let file = tempfile::NamedTempFile::new()?;
            std::fs::write(file.path(), &keyed)?;
            let produce = product("memlane").args(["produce", &name, "--key-separator", ":"]);
            let produce = produce.args(["--broker", &broker.address()]);
            produce.input(std::fs::File::open(file.path())?).check()?;
        }
        wait_for("values of all topics", TIME_LIMIT, || {
            let metrics = broker.ask("/metrics")?;
            let keys = metrics.lines().filter(|it| it.contains("_broker_topic_values_keys{"));
            Ok(keys.filter(|it| it.ends_with(" 1")).count() == 4)
        })?;
        for number in 0..4 {
            runtime.block_on(client.delete_topic(&format!("prices-{number}")))?;
        }
        broker.stop()?;
        ensure!(!broker.log().contains(" WARN "), "{}", broker.log());
    }
    daemon.finish()
}

#[test]
fn a_producer_beside_a_stopped_daemon_ends_at_its_timeout() -> Result<()> {
    let daemon = Daemon::start(DaemonOptions { pool_size: "128MiB", flags: "--no-fuse" })?;
    let mut broker = Broker::on_daemon(&daemon.run_dir(), "")?;
    let memlane = |words: &str| {
        product("memlane").args(words.split_whitespace()).args(["--broker", &broker.address()])
    };
    memlane("topic create t").check()?;
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), "a\n")?;
    let produce = || memlane("produce t").input(std::fs::File::open(file.path())?).run();
    // The broker reserves producer ids for others too.
    ensure!(produce()?.exit_code == Some(0));
    daemon.signal(Signal::STOP)?;
    let produced = produce();
    daemon.signal(Signal::CONT)?;
    let produced = produced?;
    ensure!(produced.exit_code == Some(5), "{produced:?}");
    ensure!(produced.stderr.contains("did not answer Produce within 30s"), "{produced:?}");
    broker.stop()?;
    daemon.finish()
}
