//! Limited resources of a broker: one client that uses many leaves enough for others.

use std::fs;
use std::io::{Read, Seek, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use kafka_client::{Client, NewTopic, SaslSettings, Settings};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{self as of, ApiKey, RequestKind, ResponseKind};
use kafka_protocol::protocol::{Encodable, StrBytes};
use record_batch::{BatchOptions, NewRecord, encode_batch};
use rustix::process::Signal;
use sasl::{Mechanism, ScramHash};
use system::{Broker, Daemon, DaemonOptions, free_address, product, wait_for};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;
use tokio::runtime::Runtime;

const SECRET: &str = "a secret of each";
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// A version of Fetch and Produce with plain response headers and topic names.
const FETCH_VERSION: i16 = 11;
const PRODUCE_VERSION: i16 = 8;

fn topic(name: &str) -> of::TopicName {
    of::TopicName(StrBytes::from_string(name.to_owned()))
}

/// Returns a request frame.
fn frame(key: ApiKey, version: i16, request: impl Into<RequestKind>) -> Result<Vec<u8>> {
    let mut frame = BytesMut::new();
    of::RequestHeader::default()
        .with_request_api_key(key as i16)
        .with_request_api_version(version)
        .encode(&mut frame, key.request_header_version(version))?;
    request.into().encode(&mut frame, version)?;
    Ok([&u32::try_from(frame.len())?.to_be_bytes()[..], &frame].concat())
}

fn receive(stream: &mut TcpStream, key: ApiKey, version: i16) -> Result<ResponseKind> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::try_from(u32::from_be_bytes(length))?];
    stream.read_exact(&mut answer)?;
    // After the correlation id.
    ResponseKind::decode(key, &mut Bytes::from(answer.split_off(4)), version)
}

/// Connects from this address.
async fn connect(broker: &Broker, from: [u8; 4]) -> Result<tokio::net::TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    Ok(socket.connect(broker.address().parse()?).await?)
}

/// Connects from several addresses, each of which may have at most 1,000 connections.
fn crowd(broker: &Broker, count: usize) -> Result<Vec<TcpStream>> {
    const EACH: usize = 800;
    let connected = async |number: usize| {
        let from = [127, 0, 1, u8::try_from(1 + number / EACH)?];
        let stream = connect(broker, from).await?.into_std()?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(TIME_LIMIT))?;
        anyhow::Ok(stream)
    };
    Runtime::new()?.block_on(async {
        let mut all = Vec::new();
        for number in 0..count {
            all.push(connected(number).await?);
        }
        Ok(all)
    })
}

fn create_topic(broker: &Broker, name: &str) -> Result<()> {
    let client = Client::new(broker.address(), Settings::default());
    let new = NewTopic { name: name.to_owned(), partitions: Some(1), configs: Vec::new() };
    Ok(Runtime::new()?.block_on(client.create_topic(&new))?)
}

/// Starts a broker with these users.
fn broker_of(folder: &TempDir, names: &[&str], flags: &str) -> Result<Broker> {
    let users = folder.path().join("users");
    let users = users.to_str().context("a name in UTF-8")?;
    for name in names {
        let mut secret = tempfile::tempfile()?;
        writeln!(secret, "{SECRET}")?;
        secret.rewind()?;
        let words = ["user", "set", name, "--user-file", users];
        product("memlane-broker").args(words).input(secret).check()?;
    }
    Broker::start(&format!("--embedded 128M --user-file {users} {flags}"))
}

/// Creates a client of a user, which the broker answers.
async fn log_in(broker: &Broker, user: &str) -> Result<Arc<Client>> {
    let sasl = SaslSettings {
        mechanism: Mechanism::Scram(ScramHash::Sha256),
        user: user.to_owned(),
        password: SECRET.to_owned(),
    };
    let settings = Settings { sasl: Some(sasl), ..Settings::default() };
    let client = Arc::new(Client::new(broker.address(), settings));
    client.cluster().await.with_context(|| format!("a connection of {user}"))?;
    Ok(client)
}

#[test]
fn connections_that_say_nothing_and_users_with_many_leave_room_for_others() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut broker = broker_of(&folder, &["alice", "bob"], "--connections 8")?;
    let silent = (0..40).map(|_| broker.connect()).collect::<Result<Vec<_>>>()?;
    Runtime::new()?.block_on(async {
        let mut of_alice = Vec::new();
        let refused = loop {
            ensure!(of_alice.len() < 8, "one user takes all connections");
            match log_in(&broker, "alice").await {
                Ok(client) => of_alice.push(client),
                Err(error) => break error,
            }
        };
        ensure!(of_alice.len() == 4, "{} of 8: {refused:#}", of_alice.len());
        ensure!(format!("{refused:#}").contains("its share of the connections"), "{refused:#}");
        log_in(&broker, "bob").await?;
        // Existing clients are served as before.
        for client in &of_alice {
            client.cluster().await?;
        }
        anyhow::Ok(())
    })?;
    let mut ended = 0;
    for mut stream in silent {
        stream.set_nonblocking(true)?;
        ended += usize::from(matches!(stream.read(&mut [0]), Ok(0)));
    }
    ensure!(ended >= 32, "{ended} silent connections gave their places away");
    ensure!(broker.log().contains("connection closed before authentication"), "{}", broker.log());
    broker.stop()
}

/// Sends the length of a request, and none of its bytes.
async fn announce(broker: &Broker, from: [u8; 4], bytes: i32) -> Result<tokio::net::TcpStream> {
    let mut stream = connect(broker, from).await?;
    stream.write_all(&bytes.to_be_bytes()).await?;
    Ok(stream)
}

/// Returns the value of a metric. One with labels is absent until it is counted.
fn metric(broker: &Broker, name: &str) -> Result<u64> {
    let metrics = broker.ask("/metrics")?;
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(value.map_or(Ok(0), str::parse)?)
}

#[test]
fn requests_in_flight_of_one_client_leave_memory_for_those_of_others() -> Result<()> {
    const IN_FLIGHT: &str = "memlane_broker_requests_in_flight_bytes";
    const WAITED: &str = "memlane_broker_memory_throttles_total";
    let flags = "--embedded 128M --request-size 1M --request-memory 2M";
    let mut broker = Broker::start(flags)?;
    Runtime::new()?.block_on(async {
        let is = |name, wanted| wait_for(name, TIME_LIMIT, || Ok(metric(&broker, name)? == wanted));
        // Its whole share, so that its next request waits.
        let length = (1 << 20) - 4;
        let first = announce(&broker, [127, 0, 0, 2], length).await?;
        is(IN_FLIGHT, 1 << 20)?;
        let _second = announce(&broker, [127, 0, 0, 2], (768 << 10) - 4).await?;
        is(WAITED, 1)?;
        ensure!(metric(&broker, IN_FLIGHT)? == 1 << 20, "it takes what is for others");
        // Clients from other addresses are answered.
        Client::new(broker.address(), Settings::default()).cluster().await?;
        let _third = announce(&broker, [127, 0, 0, 3], (512 << 10) - 4).await?;
        is(IN_FLIGHT, 3 << 19)?;
        drop(first);
        // The second one gets its share.
        is(IN_FLIGHT, (512 + 768) << 10)?;
        anyhow::Ok(())
    })?;
    broker.stop()
}

#[test]
fn a_broker_says_that_it_is_ready_beside_connections_that_ask_for_nothing() -> Result<()> {
    let address = free_address()?;
    let mut broker = Broker::start(&format!("--embedded 128M --http {address}"))?;
    let request = |head: &str| format!("{head} /readyz HTTP/1.1\r\nHost: a\r\n");
    let unread = request("GET") + "\r\n";
    let without_body = request("POST") + "Content-Length: 1000\r\n\r\n";
    for sent in [String::new(), request("GET"), unread, without_body] {
        let mut silent = Vec::new();
        // More than the connection limit and the kernel's queue together.
        for _ in 0..250 {
            let mut stream = TcpStream::connect(address)?;
            stream.write_all(sent.as_bytes())?;
            silent.push(stream);
        }
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.write_all(request("GET").as_bytes())?;
        stream.write_all(b"Connection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).with_context(|| format!("beside {sent:?}"))?;
        ensure!(answer.starts_with("HTTP/1.1 200"), "beside {sent:?}: {answer}");
    }
    broker.stop()
}

/// Goal: requests that wait for the storage delay no others, however many they are.
/// Method: more clients than the broker has threads write while the daemon is stopped. Without a
/// limit on those that wait, all threads would wait.
#[test]
fn more_requests_than_threads_wait_for_the_daemon_and_others_are_answered() -> Result<()> {
    const WRITER_COUNT: u64 = 2_300;
    const THREAD_COUNT: u64 = 2_048;
    const TAKEN: &str = "memlane_broker_requests_total{request=\"Produce\"}";
    let daemon = Daemon::start(DaemonOptions { pool_size: "256MiB", flags: "--no-fuse" })?;
    let mut broker = Broker::on_daemon(&daemon.run_dir(), "")?;
    create_topic(&broker, "some")?;
    let record = NewRecord { value: Some("v".into()), ..NewRecord::default() };
    let batch = encode_batch(&[record], &BatchOptions::default())?;
    let partition =
        PartitionProduceData::default().with_records(Some(Bytes::copy_from_slice(&batch)));
    let data =
        TopicProduceData::default().with_name(topic("some")).with_partition_data(vec![partition]);
    let request = of::ProduceRequest::default()
        .with_acks(-1)
        .with_timeout_ms(60_000)
        .with_topic_data(vec![data]);
    let request = frame(ApiKey::Produce, PRODUCE_VERSION, request)?;
    let mut writers = crowd(&broker, usize::try_from(WRITER_COUNT)?)?;
    daemon.signal(Signal::STOP)?;
    for writer in &mut writers {
        writer.write_all(&request)?;
    }
    let taken = |least| wait_for(TAKEN, TIME_LIMIT, || Ok(metric(&broker, TAKEN)? >= least));
    taken(THREAD_COUNT / 2)?;
    let mut other = broker.connect()?;
    let asks = of::MetadataRequest::default().with_topics(None);
    other.write_all(&frame(ApiKey::Metadata, 7, asks)?)?;
    let answer = receive(&mut other, ApiKey::Metadata, 7).context("metadata waits")?;
    let ResponseKind::Metadata(it) = answer else { panic!("{answer:?}") };
    ensure!(it.topics.len() == 1, "{it:?}");
    taken(WRITER_COUNT)?;
    let status = fs::read_to_string(format!("/proc/{}/status", broker.id().context("it runs")?))?;
    let threads = status.lines().find_map(|line| line.strip_prefix("Threads:"));
    let threads: u64 = threads.context("each process has threads")?.trim().parse()?;
    ensure!(threads < THREAD_COUNT / 2, "{threads} threads wait");
    daemon.signal(Signal::CONT)?;
    let mut offsets = Vec::new();
    for writer in &mut writers {
        let answer = receive(writer, ApiKey::Produce, PRODUCE_VERSION)?;
        let ResponseKind::Produce(it) = answer else { panic!("{answer:?}") };
        let partition = &it.responses[0].partition_responses[0];
        ensure!(partition.error_code == 0, "{partition:?}");
        offsets.push(u64::try_from(partition.base_offset)?);
    }
    offsets.sort_unstable();
    ensure!(offsets.into_iter().eq(0..WRITER_COUNT), "each record is written once");
    broker.stop()?;
    daemon.finish()
}

/// Goal: clients that continuously send group requests do not starve others.
/// Method: the daemon is stopped during an offset commit, so the coordinator waits. More requests
/// arrive than it processes in four rounds, then another client sends one.
#[test]
fn requests_of_many_clients_to_the_coordinator_are_heard_in_their_turn() -> Result<()> {
    const ASKING_COUNT: usize = 4_800;
    const TAKEN: &str = "memlane_broker_requests_total{request=\"Heartbeat\"}";
    const UNKNOWN_MEMBER: i16 = 25;
    let daemon = Daemon::start(DaemonOptions { pool_size: "256MiB", flags: "--no-fuse" })?;
    let mut broker = Broker::on_daemon(&daemon.run_dir(), "")?;
    create_topic(&broker, "some")?;
    let group = of::GroupId(StrBytes::from_static_str("group"));
    let partition = OffsetCommitRequestPartition::default().with_committed_offset(1);
    let offsets = OffsetCommitRequestTopic::default()
        .with_name(topic("some"))
        .with_partitions(vec![partition]);
    let commit =
        of::OffsetCommitRequest::default().with_group_id(group.clone()).with_topics(vec![offsets]);
    let commit = frame(ApiKey::OffsetCommit, 7, commit)?;
    let heartbeat = of::HeartbeatRequest::default().with_group_id(group);
    let heartbeat = frame(ApiKey::Heartbeat, 3, heartbeat)?;
    let heard = |stream: &mut TcpStream| {
        let answer = receive(stream, ApiKey::Heartbeat, 3)?;
        let ResponseKind::Heartbeat(it) = answer else { panic!("{answer:?}") };
        Ok::<i16, anyhow::Error>(it.error_code)
    };
    let mut asking = crowd(&broker, ASKING_COUNT)?;
    let mut other = broker.connect()?;
    let mut committer = broker.connect()?;
    daemon.signal(Signal::STOP)?;
    committer.write_all(&commit)?;
    for stream in &mut asking {
        stream.write_all(&heartbeat)?;
    }
    let all = u64::try_from(ASKING_COUNT)?;
    wait_for(TAKEN, TIME_LIMIT, || Ok(metric(&broker, TAKEN)? == all))?;
    other.write_all(&heartbeat)?;
    wait_for(TAKEN, TIME_LIMIT, || Ok(metric(&broker, TAKEN)? == all + 1))?;
    daemon.signal(Signal::CONT)?;
    ensure!(heard(&mut other)? == UNKNOWN_MEMBER, "the other client was not heard");
    for stream in &mut asking {
        ensure!(heard(stream)? == UNKNOWN_MEMBER, "a client was not heard");
    }
    broker.stop()?;
    daemon.finish()
}

/// Returns a request that waits five minutes unless it has data.
fn fetch(of: Vec<FetchTopic>) -> of::FetchRequest {
    of::FetchRequest::default().with_max_wait_ms(300_000).with_min_bytes(1).with_topics(of)
}

/// Returns the resident memory of a process.
fn resident_bytes(broker: &Broker) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", broker.id().context("it runs")?))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB"));
    Ok(1024 * line.context("each process has memory")?.trim().parse::<u64>()?)
}

/// Goal: queued requests use about as much memory as their bytes, which are counted.
/// Method: behind a waiting fetch there are fetches that name partitions in four bytes each, whose
/// decoded form is many times larger.
#[test]
fn fetches_that_wait_for_their_turn_take_as_much_memory_as_they_have_bytes() -> Result<()> {
    const CONNECTION_COUNT: usize = 8;
    const BEHIND_COUNT: usize = 60;
    const TAKEN: &str = "memlane_broker_requests_total{request=\"Fetch\"}";
    let mut broker = Broker::start("--embedded 128M")?;
    create_topic(&broker, "some")?;
    let some = FetchTopic::default().with_topic(topic("some"));
    let waits = fetch(vec![some.with_partitions(vec![FetchPartition::default()])]);
    let waits = frame(ApiKey::Fetch, FETCH_VERSION, waits)?;
    let all = ForgottenTopic::default().with_topic(topic("some"));
    let forgets = fetch(Vec::new())
        .with_session_epoch(-1)
        .with_forgotten_topics_data(vec![all.with_partitions((0..10_000).collect())]);
    let forgets = frame(ApiKey::Fetch, FETCH_VERSION, forgets)?;
    let before = resident_bytes(&broker)?;
    let mut connections = Vec::new();
    for _ in 0..CONNECTION_COUNT {
        let mut stream = broker.connect()?;
        stream.write_all(&waits)?;
        for _ in 0..BEHIND_COUNT {
            stream.write_all(&forgets)?;
        }
        connections.push(stream);
    }
    let all = u64::try_from(CONNECTION_COUNT * (BEHIND_COUNT + 1))?;
    wait_for(TAKEN, TIME_LIMIT, || Ok(metric(&broker, TAKEN)? == all))?;
    let sent = u64::try_from(CONNECTION_COUNT * BEHIND_COUNT * forgets.len())?;
    let more = resident_bytes(&broker)?.saturating_sub(before);
    ensure!(more < 6 * sent, "{more} bytes of memory for {sent} that were sent");
    drop(connections);
    broker.stop()
}

/// Begins a session with several megabytes of names. Returns its id, or 0.
async fn begin_session(broker: &Broker, from: [u8; 4]) -> Result<(TcpStream, i32)> {
    let stream = connect(broker, from).await?.into_std()?;
    stream.set_nonblocking(false)?;
    let named = (0..140).map(|number| {
        let partition = FetchPartition::default().with_partition_max_bytes(1);
        FetchTopic::default()
            .with_topic(topic(&format!("{number:030000}")))
            .with_partitions(vec![partition])
    });
    let request = fetch(named.collect()).with_session_epoch(0);
    let mut stream = stream;
    stream.write_all(&frame(ApiKey::Fetch, FETCH_VERSION, request)?)?;
    let answer = receive(&mut stream, ApiKey::Fetch, FETCH_VERSION)?;
    let ResponseKind::Fetch(it) = answer else { panic!("{answer:?}") };
    ensure!((it.error_code, it.responses.len()) == (0, 140), "error {}", it.error_code);
    Ok((stream, it.session_id))
}

#[test]
fn fetch_sessions_of_one_client_leave_memory_for_those_of_others() -> Result<()> {
    let mut broker = Broker::start("--embedded 128M")?;
    Runtime::new()?.block_on(async {
        let (one, other) = ([127, 0, 0, 2], [127, 0, 0, 3]);
        let mut of_one = Vec::new();
        loop {
            ensure!(of_one.len() < 64, "one client takes all memory of sessions");
            let (stream, id) = begin_session(&broker, one).await?;
            if id == 0 {
                break;
            }
            of_one.push((stream, id));
        }
        ensure!(of_one.len() == 31, "{} sessions of 4 MiB in a half of 256 MiB", of_one.len());
        let (_of_other, id) = begin_session(&broker, other).await?;
        ensure!(id != 0, "there is none for whoever comes from elsewhere");
        // Existing sessions continue.
        let (stream, id) = &mut of_one[0];
        let request = fetch(Vec::new()).with_session_id(*id).with_session_epoch(1);
        stream.write_all(&frame(ApiKey::Fetch, FETCH_VERSION, request)?)?;
        let answer = receive(stream, ApiKey::Fetch, FETCH_VERSION)?;
        let ResponseKind::Fetch(it) = answer else { panic!("{answer:?}") };
        ensure!((it.error_code, it.session_id) == (0, *id), "error {}", it.error_code);
        drop(of_one);
        // Its memory is freed when the broker has noticed the disconnection.
        for _ in 0..1_000 {
            if begin_session(&broker, one).await?.1 != 0 {
                return Ok(());
            }
        }
        anyhow::bail!("the memory of sessions that ended is not given back")
    })?;
    broker.stop()
}
