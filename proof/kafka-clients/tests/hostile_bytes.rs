//! Messages that no client sends: truncated, inconsistent or meaningless frames, readers that do
//! not read, and excessive connections. The broker answers or closes, limits its memory, and
//! continues to serve others.

use std::io::{Read, Seek, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kafka_clients::{Broker, is_skipped};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use system::{Random, Tool, seed};

const PROGRAMS: &[&str] = &["kcat"];

/// Time limit for an answer, longer than the broker needs. Neither an answer nor a close is a
/// failure.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// Maximum growth of the broker's memory under all of these attacks.
const GROWTH_BYTES_MAX: u64 = 96 << 20;

/// Number of connections. One user may have 1,000, of which other tests need some.
const CONNECTION_COUNT: usize = 900;
const HALF_CLOSED_COUNT: usize = 500;
const RANDOM_FRAME_COUNT: usize = 2_000;
const SLOW_READER_COUNT: usize = 20;
/// Number of requests whose answers together are several times the broker's permitted growth.
const REQUESTS_OF_SLOW_READER: usize = 20_000;

const PRODUCE: i16 = 0;
const FETCH: i16 = 1;
const METADATA: i16 = 3;
const API_VERSIONS: i16 = 18;

/// Returns a request: key, version, correlation id, client name, and the body.
fn request(key: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend(key.to_be_bytes());
    frame.extend(version.to_be_bytes());
    frame.extend(7_i32.to_be_bytes());
    frame.extend([0, 1, b'x']);
    frame.extend(body);
    framed(&frame)
}

fn framed(bytes: &[u8]) -> Vec<u8> {
    let length = i32::try_from(bytes.len()).expect("frames are small");
    [&length.to_be_bytes()[..], bytes].concat()
}

/// Reaction of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    Answered,
    Closed,
}

fn connect(broker: &Broker) -> Result<TcpStream> {
    let stream = TcpStream::connect(broker.socket_address()).context("cannot connect")?;
    stream.set_read_timeout(Some(ANSWER_TIME))?;
    stream.set_write_timeout(Some(ANSWER_TIME))?;
    Ok(stream)
}

/// Sends bytes on a separate connection, and then closes its input.
fn send(broker: &Broker, bytes: &[u8]) -> Result<Taken> {
    let mut stream = connect(broker)?;
    // The broker may close before it has read everything.
    let sent = stream.write_all(bytes);
    if sent.is_ok() {
        stream.shutdown(std::net::Shutdown::Write).ok();
    }
    read_answer(&mut stream)
}

fn read_answer(stream: &mut TcpStream) -> Result<Taken> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Ok(()) => {
            let length = usize::try_from(i32::from_be_bytes(length)).context("a length")?;
            ensure!(length < 1 << 24, "an answer of {length} bytes");
            let mut answer = vec![0; length];
            stream.read_exact(&mut answer).context("an answer is cut")?;
            ensure!(answer.starts_with(&7_i32.to_be_bytes()), "the answer is to something else");
            Ok(Taken::Answered)
        }
        Err(error) => {
            use std::io::ErrorKind::{TimedOut, WouldBlock};
            ensure!(!matches!(error.kind(), TimedOut | WouldBlock), "no answer and no end");
            Ok(Taken::Closed)
        }
    }
}

/// Returns the broker's private memory, without its pool, which is shared or counted by its size.
fn own_bytes(broker: &Broker) -> Result<u64> {
    let path = format!("/proc/{}/status", broker.process_id()?);
    let status = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|it| it.trim().strip_suffix("kB")).context("no RssAnon")?;
    Ok(kib.trim().parse::<u64>()? << 10)
}

/// Performs `harm`. Afterwards the broker must serve a client and not have grown, both while the
/// connections that `harm` returns are open, and after they are closed.
fn check(harm: impl FnOnce(&Broker) -> Result<Vec<TcpStream>>) -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let broker = Broker::shared()?;
    serves(broker)?;
    let (before, process) = (own_bytes(broker)?, broker.process_id()?);
    let check_growth = |when: &str| {
        let growth = own_bytes(broker)?.saturating_sub(before);
        // Java uses its configured heap before it collects garbage.
        let is_bounded = Broker::is_reference() || growth <= GROWTH_BYTES_MAX;
        ensure!(is_bounded, "the broker grew by {growth} bytes {when}");
        Ok(())
    };
    let open = harm(broker).with_context(|| broker.last_words())?;
    serves(broker)?;
    check_growth("while clients were there")?;
    drop(open);
    serves(broker)?;
    assert_eq!(broker.process_id()?, process);
    check_growth("and clients have gone")
}

fn write_line(broker: &Broker, topic: &str) -> Result<()> {
    let mut input = tempfile::tempfile()?;
    writeln!(input, "line")?;
    input.rewind()?;
    let kcat = Tool::new("kcat -P -p 0 -b").arg(broker.address()).args(["-t", topic]);
    broker.check(kcat.input(input))?;
    Ok(())
}

/// Checks that a client writes and reads, in a separate topic.
fn serves(broker: &Broker) -> Result<()> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // Relaxed: the number carries no data.
    let topic = format!("served-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    write_line(broker, &topic)?;
    let read = Tool::new("kcat -C -e -q -p 0 -o beginning -b").arg(broker.address());
    let read = read.args(["-t", &topic]);
    let found = broker.check(read)?;
    ensure!(found == "line\n", "{found:?}");
    Ok(())
}

#[test]
fn frames_that_lie_about_their_size_end_their_connection() -> Result<()> {
    check(|broker| {
        for length in [i32::MIN, -1, 0, 1, 7, i32::MAX] {
            let taken = send(broker, &[&length.to_be_bytes()[..], &[0; 7]].concat())?;
            assert_eq!(taken, Taken::Closed, "a frame of {length} bytes");
        }
        let whole = request(API_VERSIONS, 0, &[]);
        for end in 0..whole.len() {
            assert_eq!(send(broker, &whole[..end])?, Taken::Closed, "cut at {end}");
        }
        assert_eq!(send(broker, &whole)?, Taken::Answered);
        Ok(Vec::new())
    })
}

#[test]
fn a_client_that_sends_no_more_gets_its_answers() -> Result<()> {
    if Broker::is_reference() {
        // Apache Kafka closes when the client closes its input.
        return Ok(());
    }
    check(|broker| {
        for _ in 0..HALF_CLOSED_COUNT {
            assert_eq!(send(broker, &request(API_VERSIONS, 0, &[]))?, Taken::Answered);
        }
        Ok(Vec::new())
    })
}

#[test]
fn unknown_requests_are_answered_by_an_error() -> Result<()> {
    check(|broker| {
        for key in [-1, 4, 7, 99, i16::MIN, i16::MAX] {
            let taken = send(broker, &request(key, 0, &[]))?;
            // Apache Kafka closes.
            assert!(Broker::is_reference() || taken == Taken::Answered, "key {key}: {taken:?}");
        }
        for version in [-1, 99, i16::MIN, i16::MAX] {
            for key in [PRODUCE, FETCH, METADATA, API_VERSIONS] {
                let taken = send(broker, &request(key, version, &[]))?;
                let is_answered = taken == Taken::Answered;
                assert!(Broker::is_reference() || is_answered, "{key} {version}: {taken:?}");
            }
        }
        Ok(Vec::new())
    })
}

#[test]
fn bodies_that_claim_more_than_they_hold_take_no_memory() -> Result<()> {
    check(|broker| {
        let huge = [0x7F, 0xFF, 0xFF, 0xFF];
        // As a count of topics, with lengths of strings, and as a varint.
        let bodies: [&[u8]; 4] = [
            &huge,
            &[0, 0, 0, 1, 0x7F, 0xFF],
            &[0xFF, 0xFF, 0xFF, 0xFF, 0x07, 0, 0],
            &[0, 0xFF, 0xFF, 0xFF, 0xFF, 0x07, 0, 0],
        ];
        for key in 0..=75 {
            for version in [0, 1, 3, 5, 9, 12] {
                for body in bodies {
                    send(broker, &request(key, version, body))?;
                }
            }
        }
        Ok(Vec::new())
    })
}

#[test]
fn random_frames_harm_nobody() -> Result<()> {
    check(|broker| {
        let seed = seed()?;
        eprintln!("seed {seed}: MEMLANE_SEED={seed} cargo test -p kafka-clients random_frames");
        let mut random = Random::new(seed);
        for _ in 0..RANDOM_FRAME_COUNT {
            let key = i16::try_from(random.below(80)).context("a key")?;
            let version = i16::try_from(random.below(16)).context("a version")?;
            let length = usize::try_from(random.below(300)).context("a length")?;
            let mut body = vec![0; length];
            random.fill(&mut body);
            // Small numbers are plausible as counts and lengths.
            body.iter_mut().for_each(|byte| *byte &= if *byte < 200 { 3 } else { 255 });
            send(broker, &request(key, version, &body))?;
        }
        Ok(Vec::new())
    })
}

/// Returns batches as in Produce version 3: no transaction, acks of all, one partition.
fn produce(batch: &[u8]) -> Result<Vec<u8>> {
    let mut body = vec![0xFF, 0xFF, 0xFF, 0xFF];
    body.extend(30_000_i32.to_be_bytes());
    body.extend([0, 0, 0, 1, 0, 6]);
    body.extend(b"broken");
    body.extend([0, 0, 0, 1, 0, 0, 0, 0]);
    body.extend(i32::try_from(batch.len())?.to_be_bytes());
    body.extend(batch);
    Ok(request(PRODUCE, 3, &body))
}

#[test]
fn broken_batches_are_refused_and_not_kept() -> Result<()> {
    check(|broker| {
        let address = broker.address();
        let count = || -> Result<usize> {
            let read = Tool::new("kcat -C -e -q -t broken -p 0 -o beginning -b").arg(&address);
            Ok(broker.check(read)?.lines().count())
        };
        write_line(broker, "broken")?;
        // A batch without records and with a checksum of zero, with another fault in each.
        let mut batch = vec![0; 61];
        batch[8..12].copy_from_slice(&49_i32.to_be_bytes());
        batch[16] = 2;
        let mut broken = vec![batch.clone(), Vec::new(), batch[..30].to_vec()];
        for (at, value) in [(8, 0x7F), (8, 0xFF), (11, 0), (16, 0), (16, 1), (16, 9), (60, 1)] {
            let mut other = batch.clone();
            other[at] = value;
            broken.push(other);
        }
        for batch in &broken {
            send(broker, &produce(batch)?)?;
        }
        assert_eq!(count()?, 1);
        Ok(Vec::new())
    })
}

#[test]
fn clients_that_read_no_answers_hold_up_nobody() -> Result<()> {
    check(|broker| {
        // Large answers to consecutive requests, which the client does not read.
        let all_topics = request(METADATA, 1, &[0xFF; 4]);
        let mut slow = Vec::new();
        for _ in 0..SLOW_READER_COUNT {
            let mut stream = connect(broker)?;
            stream.set_nonblocking(true)?;
            for _ in 0..REQUESTS_OF_SLOW_READER {
                // It is permitted that the broker accepts no more of them.
                if stream.write_all(&all_topics).is_err() {
                    break;
                }
            }
            slow.push(stream);
        }
        Ok(slow)
    })
}

/// Raises the limit of descriptors to its maximum, for this program and for the broker that it may
/// start.
fn allow_connections() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let limit = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, limit).context("cannot have more descriptors")
}

#[test]
fn hundreds_of_idle_connections_leave_room_for_others() -> Result<()> {
    allow_connections()?;
    check(|broker| {
        let ask = request(API_VERSIONS, 0, &[]);
        let mut streams = Vec::new();
        for _ in 0..CONNECTION_COUNT {
            streams.push(connect(broker)?);
        }
        for stream in &mut streams {
            stream.write_all(&ask)?;
        }
        for stream in &mut streams {
            assert_eq!(read_answer(stream)?, Taken::Answered);
        }
        Ok(streams)
    })
}
