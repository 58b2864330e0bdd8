//! Random valid and malformed messages of PostgreSQL's protocol. The broker answers each valid one,
//! disconnects clients that send malformed ones, and serves the next client.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kafka_clients::is_skipped;
use model::{Random, for_each_seed};
use sql_clients::Fixture;

/// Time without an answer after which a connection counts as hung.
const ANSWER_TIME_LIMIT: Duration = Duration::from_secs(60);

const PROTOCOL: i32 = 196_608;

/// Maximum size of a message.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Clients that send unfinished messages, and how much each sends.
const UNFINISHED_COUNT: usize = 8;
const UNFINISHED_BYTES: usize = 4 << 20;

/// Clients that announce messages above the maximum size, and how much each tries to send.
const EXCESSIVE_COUNT: usize = 4;
const EXCESSIVE_BYTES: usize = 64 << 20;

/// Limit on the broker's memory growth for all of them: twice the bytes of unfinished messages,
/// since a growing buffer is copied.
const GROWTH_MIB_MAX: usize = ((2 * UNFINISHED_COUNT * UNFINISHED_BYTES) >> 20) + 32;

/// First bytes that the broker's messages may have.
const ANSWERS: &[u8] = b"123ACDEGHIKNRSTVZcdnstv";

/// Statements to change at random. None waits for new records.
const STATEMENTS: &[&str] = &[
    "SELECT 1, NULL, 'ä', 2.5::numeric, now() IS NULL",
    "SELECT key, value->>'name', \"offset\" FROM storm WHERE key IN ('k1', 'k2') AND partition = 0",
    "SELECT count(*), sum((value->>'qty')::bigint) FROM storm GROUP BY value->>'name' ORDER BY 1",
    "SELECT * FROM pg_class c LEFT JOIN pg_namespace n ON n.oid = c.relnamespace LIMIT 3",
    "WITH RECURSIVE r AS (SELECT 1 AS a) SELECT * FROM r, LATERAL (SELECT a) x",
    "INSERT INTO storm (key, value) VALUES ('a', '{\"qty\": 1}'), ($1, NULL)",
    "COPY (SELECT key FROM storm LIMIT 3) TO STDOUT WITH (FORMAT csv)",
    "BEGIN; SELECT 1; SELECT nothing; COMMIT",
    "BEGIN; DECLARE c CURSOR FOR SELECT generate_series(1, 100); FETCH 7 FROM c; ROLLBACK",
    "SET statement_timeout = '20 s'; SHOW statement_timeout; RESET ALL",
    "EXPLAIN SELECT * FROM storm WHERE time > now() - interval '1 day'",
    "PREPARE p AS SELECT $1; EXECUTE p (1); DEALLOCATE p",
    "CREATE TABLE odd (a text PATH '$.a[0].\"b\"') WITH (topic = 'storm'); DROP TABLE odd",
    "CREATE TOPIC no AS SELECT o.* FROM storm o JOIN \"none$current\" n ON n.key = o.key",
    "SELECT ((((((((((1)))))))))) + - + - 1 BETWEEN 0 AND ARRAY[1,2,3][2]",
    "SELECT E'\\x41\\u00e4', $$a$b$$, U&'\\0041', '\\x00'::bytea, \"no such\" --end",
    "",
    ";;",
];

const SIGNS: &[&str] = &[
    "'", "\"", "(", ")", "$", "$$", "--", "/*", "*/", ";", "\\", "::", "->>", ",", " ", "ä",
    "NULL", "SELECT", "FROM", "WHERE", "IN (", "$1", "0", "1e999", "AS", "JOIN", "[", "]", "E'",
    "\u{1}",
];

/// Returns a statement with a few random changes.
fn statement(random: &mut Random) -> String {
    let mut text: Vec<char> = random.pick(STATEMENTS).chars().collect();
    for _ in 0..random.below(4) {
        let at = place(random, text.len());
        match random.below(4) {
            0 => drop(text.drain(at..(at + place(random, 8)).min(text.len()))),
            1 => drop(text.splice(at..at, random.pick(SIGNS).chars())),
            2 => {
                let end = (at + place(random, 20)).min(text.len());
                let again = text[at..end].to_vec();
                drop(text.splice(at..at, again));
            }
            _ => text.truncate(at),
        }
    }
    text.into_iter().collect()
}

/// Returns a number from 0 to `most`.
fn place(random: &mut Random, most: usize) -> usize {
    random.index(most + 1)
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = i32::try_from(body.len() + 4).expect("bodies are short");
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

fn text(value: &str) -> Vec<u8> {
    [value.as_bytes(), b"\0"].concat()
}

/// Returns the messages of a random request and the number of ReadyForQuery answers to it.
fn request(random: &mut Random) -> (Vec<Vec<u8>>, usize) {
    if random.below(2) == 0 {
        return (vec![message(b'Q', &text(&statement(random)))], 1);
    }
    let name = text(random.pick(&["", "", "s1", "s2"]));
    let portal = text(random.pick(&["", "", "p1"]));
    let mut messages = Vec::new();
    for _ in 0..=random.below(5) {
        messages.push(match random.below(7) {
            0 | 1 => {
                let types: &[u8] = if random.below(2) == 0 { b"\0\0" } else { b"\0\x01\0\0\0\x19" };
                message(b'P', &[&*name, &text(&statement(random)), types].concat())
            }
            2 => {
                let values: &[u8] = if random.below(2) == 0 {
                    b"\0\0\0\0\0\0"
                } else {
                    b"\0\0\0\x01\0\0\0\x011\0\0"
                };
                message(b'B', &[&*portal, &name, values].concat())
            }
            3 => message(b'D', &[b"S", &*name].concat()),
            4 => message(b'D', &[b"P", &*portal].concat()),
            5 => {
                let most = i32::try_from(random.below(5)).expect("small");
                message(b'E', &[&*portal, &most.to_be_bytes()].concat())
            }
            _ => message(b'C', &[b"S", &*name].concat()),
        });
    }
    messages.push(message(b'S', b""));
    (messages, 1)
}

/// Damages a message: its bytes, its length or its end.
fn broken(random: &mut Random, mut bytes: Vec<u8>) -> Vec<u8> {
    let last = bytes.len() - 1;
    match random.below(5) {
        0 => bytes[place(random, last)] = u8::try_from(random.below(256)).expect("a byte"),
        1 => {
            let length = u32::try_from(random.below(1 << 32)).expect("32 bits");
            bytes[1..5].copy_from_slice(&length.to_be_bytes());
        }
        2 => bytes.truncate(place(random, last)),
        3 => {
            // Removes the rest of the body and adjusts the length.
            bytes.truncate(5 + place(random, last - 4).min(last - 4));
            let length = u32::try_from(bytes.len() - 1).expect("bodies are short");
            bytes[1..5].copy_from_slice(&length.to_be_bytes());
        }
        _ => bytes = (0..place(random, 64)).map(|_| byte(random)).collect(),
    }
    bytes
}

fn byte(random: &mut Random) -> u8 {
    u8::try_from(random.below(256)).expect("a byte")
}

/// Connection with the answer bytes that have not been parsed.
struct Storm {
    stream: TcpStream,
    answers: Vec<u8>,
}

impl Storm {
    fn connect(fixture: &Fixture) -> Result<Self> {
        let stream = TcpStream::connect(fixture.sql())?;
        stream.set_read_timeout(Some(ANSWER_TIME_LIMIT))?;
        stream.set_write_timeout(Some(ANSWER_TIME_LIMIT))?;
        Ok(Self { stream, answers: Vec::new() })
    }

    fn log_in(fixture: &Fixture) -> Result<Self> {
        let mut storm = Self::connect(fixture)?;
        storm.stream.write_all(&start_up())?;
        storm.ready(1)?;
        Ok(storm)
    }

    /// Reads until the broker has sent this many ReadyForQuery messages.
    fn ready(&mut self, times: usize) -> Result<()> {
        let mut count = 0;
        while count < times {
            while let Some(kind) = self.next()? {
                count += usize::from(kind == b'Z');
            }
            if count < times && !self.read()? {
                bail!("the connection ended after {count} of {times} answers");
            }
        }
        ensure!(count == times, "{count} answers to {times} requests");
        Ok(())
    }

    /// Reads until the connection ends. All is messages, except the answer to a malformed start.
    fn end(mut self) -> Result<()> {
        // The broker may have closed the connection already.
        drop(self.stream.shutdown(Shutdown::Write));
        while self.read()? {
            while self.next()?.is_some() {}
        }
        Ok(())
    }

    /// Returns the kind of the next complete message.
    fn next(&mut self) -> Result<Option<u8>> {
        let Some(header) = self.answers.first_chunk::<5>() else { return Ok(None) };
        let [kind, length @ ..] = *header;
        ensure!(ANSWERS.contains(&kind), "an answer of kind {kind}");
        let length = usize::try_from(i32::from_be_bytes(length))?;
        ensure!((4..1 << 26).contains(&length), "an answer of {length} bytes");
        if self.answers.len() <= length {
            return Ok(None);
        }
        drop(self.answers.drain(..=length));
        Ok(Some(kind))
    }

    /// Reads more bytes and returns whether there were any.
    fn read(&mut self) -> Result<bool> {
        let mut buffer = [0; 1 << 14];
        match self.stream.read(&mut buffer) {
            Ok(0) => Ok(false),
            Ok(count) => {
                self.answers.extend_from_slice(&buffer[..count]);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(false),
            Err(error) => Err(error).context("no answer comes"),
        }
    }
}

fn start_up() -> Vec<u8> {
    let fields = b"user\0tester\0database\0memlane\0\0";
    let length = i32::try_from(fields.len() + 8).expect("it is short");
    [&length.to_be_bytes()[..], &PROTOCOL.to_be_bytes(), fields].concat()
}

fn fixture() -> Result<Fixture> {
    let fixture = Fixture::with_options(&["--anonymous", "loopback"])?;
    fixture.create_topic("storm", 2)?;
    let row = |number: usize| format!("k{number}:{{\"name\": \"n\", \"qty\": {number}}}");
    fixture.produce("storm", &(0..50).map(row).collect::<Vec<_>>())?;
    Ok(fixture)
}

/// Goal: each request is answered completely and in order, whatever its statements are.
/// Method: random statements in both protocols; count the ReadyForQuery messages.
#[test]
fn each_request_is_answered_whatever_its_statement_is() -> Result<()> {
    if is_skipped(&["psql", "kcat"]) {
        return Ok(());
    }
    let fixture = fixture()?;
    for_each_seed("cargo test -p sql-clients --test storm", 40, |seed| {
        let mut random = Random::new(seed);
        let mut storm = Storm::log_in(&fixture).expect("the broker lets clients in");
        for _ in 0..25 {
            let (messages, count) = request(&mut random);
            let sent = storm.stream.write_all(&messages.concat()).map_err(anyhow::Error::from);
            sent.and_then(|()| storm.ready(count)).unwrap_or_else(|error| {
                let shown: Vec<_> = messages.iter().map(|it| String::from_utf8_lossy(it)).collect();
                panic!("seed {seed}: {error:#}: {shown:?}");
            });
        }
    });
    assert_eq!(fixture.query("SELECT 1")?, "1");
    Ok(())
}

/// Goal: malformed messages end their own connection at most.
/// Method: random messages, some malformed, also before the login. End the connection, read all
/// answers, and serve another client.
#[test]
fn broken_messages_end_their_connection_and_no_other() -> Result<()> {
    if is_skipped(&["psql", "kcat"]) {
        return Ok(());
    }
    let fixture = fixture()?;
    let mut other = Storm::log_in(&fixture)?;
    for_each_seed("cargo test -p sql-clients --test storm", 150, |seed| {
        let mut random = Random::new(seed);
        let is_early = random.below(5) == 0;
        let storm = if is_early { Storm::connect(&fixture) } else { Storm::log_in(&fixture) };
        let mut storm = storm.expect("the broker takes connections");
        let mut bytes = if is_early { broken(&mut random, start_up()) } else { Vec::new() };
        for _ in 0..random.below(6) {
            for message in request(&mut random).0 {
                bytes.extend(match random.below(3) {
                    0 => broken(&mut random, message),
                    _ => message,
                });
            }
        }
        // The broker may close the connection in the middle.
        drop(storm.stream.write_all(&bytes));
        let ended = storm.end();
        ended.unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
        let asked = other.stream.write_all(&message(b'Q', &text("SELECT 1")));
        let answered = asked.map_err(anyhow::Error::from).and_then(|()| other.ready(1));
        answered.unwrap_or_else(|error| panic!("seed {seed}: another client: {error:#}"));
    });
    assert_eq!(fixture.query("SELECT count(*) >= 50 FROM storm")?, "t");
    Ok(())
}

/// Returns the start of a query that claims one size and sends another.
fn unfinished(claimed_bytes: usize, sent_bytes: usize) -> Vec<u8> {
    let length = u32::try_from(claimed_bytes).expect("a length has 32 bits");
    [&b"Q"[..], &length.to_be_bytes(), &vec![b' '; sent_bytes]].concat()
}

/// Goal: a client takes no more memory than its messages may, and only while it is connected.
/// Method: clients that stop in the middle of a message, and clients that announce more than
/// allowed and send as long as the broker reads. Measure the broker's peak memory.
#[test]
fn messages_without_an_end_take_a_bounded_part_of_memory() -> Result<()> {
    if is_skipped(&["psql", "kcat"]) {
        return Ok(());
    }
    let fixture = fixture()?;
    assert_eq!(fixture.query("SELECT count(*) FROM storm")?, "50");
    fixture.forget_memory_peak()?;
    let before = fixture.memory_peak_mib()?;
    let mut clients = Vec::new();
    for _ in 0..UNFINISHED_COUNT {
        let mut storm = Storm::log_in(&fixture)?;
        storm.stream.write_all(&unfinished(MESSAGE_BYTES_MAX, UNFINISHED_BYTES))?;
        clients.push(storm);
    }
    for _ in 0..EXCESSIVE_COUNT {
        let mut storm = Storm::log_in(&fixture)?;
        let sent = storm.stream.write_all(&unfinished(MESSAGE_BYTES_MAX + 1, EXCESSIVE_BYTES));
        ensure!(sent.is_err(), "the broker takes a message that is too long");
        clients.push(storm);
    }
    assert_eq!(fixture.query("SELECT count(*) FROM storm")?, "50");
    let grown = fixture.memory_peak_mib()?.saturating_sub(before);
    eprintln!("the broker grew by {grown} MiB");
    ensure!(grown <= u64::try_from(GROWTH_MIB_MAX)?, "the broker grew by {grown} MiB");
    drop(clients);
    Ok(())
}
