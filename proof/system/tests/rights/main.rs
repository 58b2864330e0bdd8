//! Every request of Kafka's protocol against every right: each client may perform exactly the
//! requests in the guide's table, and learns nothing of resources that it may not describe.
//!
//! A client here is a loopback address, to which entries of the access lists refer.

mod announced;
mod asking;
mod placement;
mod table;

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{self as of, ApiKey, RequestKind, ResponseKind};
use kafka_protocol::protocol::{Encodable, StrBytes};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use system::{Broker, wait_for};
use table::{KINDS, Refused, Right, Row, User};
use tempfile::TempDir;

const GUIDE: &str = include_str!("../../../../docs/guides/access.md");

/// Error codes TopicAuthorizationFailed, and those of groups, the cluster and transactional ids.
const FORBIDDEN: [i16; 4] = [29, 30, 31, 53];

const ADMIN: Ipv4Addr = Ipv4Addr::LOCALHOST;

const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Logins have separate tests.
const OF_LOGINS: [&str; 2] = ["SaslHandshake", "SaslAuthenticate"];

/// A connection from a loopback address.
struct Connection {
    stream: TcpStream,
}

impl Connection {
    fn open(broker: &Broker, from: Ipv4Addr) -> Result<Self> {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        bind(socket.as_fd(), &SocketAddr::from((from, 0)))?;
        connect(socket.as_fd(), &broker.address().parse::<SocketAddr>()?)?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(TIME_LIMIT))?;
        Ok(Self { stream })
    }

    /// Sends the bytes of a request, and reads those of its answer.
    fn exchange(&mut self, frame: &[u8]) -> Result<Vec<u8>> {
        let length = u32::try_from(frame.len())?.to_be_bytes();
        self.stream.write_all(&[&length[..], frame].concat())?;
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut answer = vec![0; usize::try_from(u32::from_be_bytes(length))?];
        self.stream.read_exact(&mut answer)?;
        Ok(answer)
    }

    /// Sends a request. Returns the bytes of its answer, raw and decoded.
    fn ask(&mut self, asked: Asked, request: &RequestKind) -> Result<(Vec<u8>, ResponseKind)> {
        let Asked(key, version) = asked;
        let mut frame = BytesMut::new();
        of::RequestHeader::default()
            .with_request_api_key(key as i16)
            .with_request_api_version(version)
            .encode(&mut frame, key.request_header_version(version))?;
        request.encode(&mut frame, version)?;
        let answer = self.exchange(&frame)?;
        let header_bytes = if key.response_header_version(version) >= 1 { 5 } else { 4 };
        let mut body = Bytes::copy_from_slice(&answer[header_bytes..]);
        let said = ResponseKind::decode(key, &mut body, version)?;
        Ok((answer, said))
    }
}

/// Key and version of a request.
#[derive(Clone, Copy, Debug)]
struct Asked(ApiKey, i16);

impl Asked {
    fn highest(api: &str) -> Result<Self> {
        let served = kafka::SERVED.iter().find(|(key, ..)| format!("{key:?}") == api);
        let (key, _, highest) = served.with_context(|| format!("{api:?} is not served"))?;
        Ok(Self(*key, *highest))
    }
}

/// A broker whose access lists have entries for each of many clients.
struct Fixture {
    broker: Broker,
    users: Vec<User>,
    _folder: TempDir,
}

/// Returns the address of a client.
fn address(number: usize) -> Ipv4Addr {
    let number = u16::try_from(number).expect("they are few");
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(127, 1 + high, low, 1)
}

fn line(out: &mut String, host: Ipv4Addr, right: Right, permission: &str) {
    let Right { operation, kind } = right;
    let (name, pattern) = match (kind, host) {
        ("Cluster", _) => ("kafka-cluster", "Literal"),
        (_, ADMIN) => ("*", "Literal"),
        _ => ("seen", "Prefixed"),
    };
    writeln!(
        out,
        "[[acl]]\nprincipal = \"User:ANONYMOUS\"\nhost = \"{host}\"\n\
         permission = \"{permission}\"\noperation = \"{operation}\"\nresource = \"{kind}\"\n\
         name = \"{name}\"\npattern = \"{pattern}\"\n"
    )
    .expect("a string takes all");
}

impl Fixture {
    fn start(users: Vec<User>) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("lists");
        let mut lists = "version = 1\n".to_owned();
        for kind in KINDS {
            line(&mut lists, ADMIN, Right { operation: "All", kind }, "Allow");
        }
        for (number, user) in users.iter().enumerate() {
            for right in &user.allowed {
                line(&mut lists, address(number), *right, "Allow");
            }
            if let Some(right) = user.denied {
                line(&mut lists, address(number), right, "Deny");
            }
        }
        std::fs::write(&path, lists)?;
        let flags = format!("--embedded 128M --acl-file {}", path.display());
        Ok(Self { broker: Broker::start(&flags)?, users, _folder: folder })
    }

    fn admin(&self, api: &str, request: impl Into<RequestKind>) -> Result<ResponseKind> {
        self.admin_in(Asked::highest(api)?, request)
    }

    fn admin_in(&self, asked: Asked, request: impl Into<RequestKind>) -> Result<ResponseKind> {
        Ok(Connection::open(&self.broker, ADMIN)?.ask(asked, &request.into())?.1)
    }

    /// Creates topics, groups and transactions of both names, each of which uses both topics.
    fn fill(&self) -> Result<()> {
        let topics = ["seen", "hidden"].map(|name| {
            of::create_topics_request::CreatableTopic::default()
                .with_name(of::TopicName(StrBytes::from_static_str(name)))
                .with_num_partitions(1)
                .with_replication_factor(1)
        });
        let request = of::CreateTopicsRequest::default().with_topics(topics.to_vec());
        self.done("CreateTopics", self.admin("CreateTopics", request)?)?;
        for name in ["seen", "hidden"] {
            let commit = asking::commit(name, &["seen", "hidden"]);
            self.done("OffsetCommit", self.admin("OffsetCommit", commit)?)?;
            let init = asking::init_producer(Some(name), 900_000);
            let made = self.admin("InitProducerId", init)?;
            let ResponseKind::InitProducerId(made) = made else { panic!("{made:?}") };
            ensure!(made.error_code == 0, "{made:?}");
            let producer = (made.producer_id, made.producer_epoch);
            let added = asking::add_partitions(name, producer, &["seen", "hidden"]);
            self.done("AddPartitionsToTxn", self.admin("AddPartitionsToTxn", added)?)?;
        }
        Ok(())
    }

    fn done(&self, row: &str, answer: ResponseKind) -> Result<()> {
        let said = asking::said(row, &answer);
        ensure!(said.iter().all(|(_, code)| *code == 0), "{answer:?}");
        Ok(())
    }
}

/// Returns clients with each single right, with all others, and with exactly the rights of a row.
fn users(rows: &[Row]) -> Vec<User> {
    let only = |right| User { allowed: vec![right], denied: None };
    let everything = || KINDS.map(|kind| Right { operation: "All", kind }).to_vec();
    let without = |right| User { allowed: everything(), denied: Some(right) };
    let ways = rows.iter().flat_map(|row| &row.ways).filter(|way| way.len() != 1);
    let mut ways: Vec<_> = ways.cloned().collect();
    ways.sort();
    ways.dedup();
    let exact = ways.into_iter().map(|allowed| User { allowed, denied: None });
    Right::all().map(only).chain(Right::all().map(without)).chain(exact).collect()
}

/// Compares the answers for a resource that a client may not describe and for a missing one: they
/// must be equal to the last byte, except for the name.
fn check_tells_nothing(connection: &mut Connection, row: &Row, asked: Asked) -> Result<()> {
    const NAMES: [&str; 2] = ["hidden", "absent"];
    let request = |name| asking::request(&row.name, asked.1, &[name]).context("no request");
    if request(NAMES[0])? == request(NAMES[1])? {
        // The request has no named resource.
        return Ok(());
    }
    let mut answers = Vec::new();
    for name in NAMES {
        answers.push(connection.ask(asked, &request(name)?)?);
    }
    let mut of_absent = answers[1].0.clone();
    while let Some(at) = of_absent.windows(6).position(|it| it == NAMES[1].as_bytes()) {
        of_absent[at..at + 6].copy_from_slice(NAMES[0].as_bytes());
    }
    ensure!(answers[0].0 == of_absent, "the answers tell which is there: {answers:?}");
    Ok(())
}

/// Tests the requests of a row by one client.
fn check(connection: &mut Connection, user: &User, row: &Row, asked: Asked) -> Result<()> {
    let names = ["seen", "hidden", "hidden-missing"].map(|name| asking::harmless(&row.name, name));
    let request = |names: &[&str]| asking::request(&row.name, asked.1, names).context("no request");
    let expected = |name: &str| match name.starts_with("seen") {
        true => row.allows(user),
        false => row.allows_all_names(user),
    };
    let is_forbidden = |code: i16| FORBIDDEN.contains(&code);
    if !row.allows_all_names(user) {
        check_tells_nothing(connection, row, asked)?;
    }
    if row.refused == Refused::Request {
        for name in names {
            // Some requests have no named resource.
            if request(&[name])? == request(&["seen"])? && name != "seen" {
                continue;
            }
            let (_, answer) = connection.ask(asked, &request(&[name])?)?;
            let said = asking::said(&row.name, &answer);
            ensure!(!said.is_empty(), "nothing is said: {answer:?}");
            for (_, code) in said {
                ensure!(is_forbidden(code) != expected(name), "{name:?}: {answer:?}");
            }
        }
        return Ok(());
    }
    let (bytes, answer) = connection.ask(asked, &request(&names)?)?;
    let said = asking::said(&row.name, &answer);
    if row.refused == Refused::LeftOut {
        let is_listed = said.iter().any(|(name, code)| name == "seen" && *code == 0);
        ensure!(is_listed == row.allows(user), "{answer:?}");
        let tells = bytes.windows(6).any(|it| it == b"hidden");
        ensure!(tells == row.allows_all_names(user), "of the hidden one: {answer:?}");
        return Ok(());
    }
    for name in names {
        let of_name = said.iter().filter(|(it, _)| *it == name || it.is_empty());
        let codes: Vec<i16> = of_name.map(|(_, code)| *code).collect();
        ensure!(codes.len() == 1, "{name:?} is answered {} times: {answer:?}", codes.len());
        ensure!(is_forbidden(codes[0]) != expected(name), "{name:?}: {answer:?}");
    }
    Ok(())
}

#[test]
fn every_request_does_what_the_table_says_with_every_right() -> Result<()> {
    let rows = table::rows(GUIDE)?;
    for (key, ..) in kafka::SERVED {
        let has_row = rows.iter().any(|row| row.api() == format!("{key:?}"));
        ensure!(has_row, "the guide's table has no row for {key:?}");
    }
    let fixture = Fixture::start(users(&rows))?;
    fixture.fill()?;
    let mut wrong = Vec::new();
    for (number, user) in fixture.users.iter().enumerate() {
        let mut connection = Connection::open(&fixture.broker, address(number))?;
        for row in rows.iter().filter(|row| !OF_LOGINS.contains(&row.api())) {
            let Asked(key, highest) = Asked::highest(row.api())?;
            for version in asking::versions(&row.name).unwrap_or(&[highest]) {
                let checked = check(&mut connection, user, row, Asked(key, *version));
                if let Err(error) = checked {
                    wrong.push(format!("{}, version {version}: {user:?}: {error:#}", row.name));
                }
            }
        }
    }
    let count = wrong.len();
    wrong.truncate(20);
    ensure!(wrong.is_empty(), "{count} answers are wrong:\n{}", wrong.join("\n"));
    Ok(())
}

/// Returns the number of settings of a topic, or the error in their place.
fn told_settings(fixture: &Fixture, user: usize, name: &str) -> Result<(usize, i16)> {
    let topic = of::create_topics_request::CreatableTopic::default()
        .with_name(of::TopicName(StrBytes::from_string(name.to_owned())))
        .with_num_partitions(1)
        .with_replication_factor(1);
    let request = of::CreateTopicsRequest::default().with_topics(vec![topic]);
    let mut connection = Connection::open(&fixture.broker, address(user))?;
    let (_, answer) = connection.ask(Asked::highest("CreateTopics")?, &request.into())?;
    let ResponseKind::CreateTopics(answer) = answer else { panic!("{answer:?}") };
    let made = &answer.topics[0];
    ensure!(made.error_code == 0, "{made:?}");
    Ok((made.configs.as_ref().map_or(0, Vec::len), made.topic_config_error_code))
}

#[test]
fn whoever_makes_a_topic_sees_its_settings_only_with_the_right_to() -> Result<()> {
    let of_topics = |operations: &[&'static str]| User {
        allowed: operations.iter().map(|it| Right { operation: it, kind: "Topic" }).collect(),
        denied: None,
    };
    let fixture = Fixture::start(vec![
        of_topics(&["Create"]),
        of_topics(&["Create", "DescribeConfigs"]),
        of_topics(&["Describe"]),
        of_topics(&["Describe", "Create"]),
    ])?;
    ensure!(told_settings(&fixture, 0, "seen-0")? == (0, FORBIDDEN[0]));
    let (count, error) = told_settings(&fixture, 1, "seen-1")?;
    ensure!(count > 0 && error == 0, "{count} settings, error {error}");
    // Same, for automatic creation by a client's request.
    for (user, code) in [(2, FORBIDDEN[0]), (3, 0)] {
        let name = of::TopicName(StrBytes::from_static_str("seen-on-demand"));
        let topic = of::metadata_request::MetadataRequestTopic::default().with_name(Some(name));
        let request = of::MetadataRequest::default().with_topics(Some(vec![topic]));
        let mut connection = Connection::open(&fixture.broker, address(user))?;
        let (_, answer) = connection.ask(Asked::highest("Metadata")?, &request.into())?;
        ensure!(asking::said("Metadata", &answer)[0].1 == code, "{answer:?}");
    }
    Ok(())
}

#[test]
fn a_group_that_reads_a_hidden_topic_is_described_to_nobody_else() -> Result<()> {
    let rights = [("Describe", "Group"), ("Describe", "Topic")];
    let allowed = rights.map(|(operation, kind)| Right { operation, kind }).to_vec();
    let fixture = Fixture::start(vec![User { allowed, denied: None }])?;
    fixture.fill()?;
    let mut connection = Connection::open(&fixture.broker, address(0))?;
    for (topic, code) in [("seen", 0), ("hidden", FORBIDDEN[0])] {
        let group = format!("seen-reads-{topic}");
        let group = of::GroupId(StrBytes::from_string(group));
        let join = of::ConsumerGroupHeartbeatRequest::default()
            .with_group_id(group.clone())
            .with_member_id(StrBytes::from_static_str("member"))
            .with_rebalance_timeout_ms(60_000)
            .with_subscribed_topic_names(Some(vec![of::TopicName(topic.into())]))
            .with_topic_partitions(Some(Vec::new()));
        let request = of::ConsumerGroupDescribeRequest::default().with_group_ids(vec![group]);
        // On a busy host the member's session may end before it is described.
        wait_for("a description of the member", TIME_LIMIT, || {
            fixture.done("", fixture.admin("ConsumerGroupHeartbeat", join.clone())?)?;
            let api = Asked::highest("ConsumerGroupDescribe")?;
            let (_, answer) = connection.ask(api, &request.clone().into())?;
            let ResponseKind::ConsumerGroupDescribe(answer) = answer else { panic!("{answer:?}") };
            let group = &answer.groups[0];
            ensure!(group.error_code == code, "{group:?}");
            ensure!(code == 0 || group.members.is_empty(), "{group:?}");
            Ok(code != 0 || !group.members.is_empty())
        })?;
    }
    Ok(())
}

#[test]
fn a_partition_that_is_not_there_refuses_no_other() -> Result<()> {
    let fixture = Fixture::start(Vec::new())?;
    fixture.fill()?;
    let mut commit = asking::commit("seen", &["seen", "hidden", "missing"]);
    let partition = commit.topics[0].partitions[0].clone().with_partition_index(9);
    commit.topics[0].partitions.push(partition);
    let answer = fixture.admin("OffsetCommit", commit)?;
    let ResponseKind::OffsetCommit(answer) = answer else { panic!("{answer:?}") };
    let mut codes = Vec::new();
    for topic in &answer.topics {
        let partitions = topic.partitions.iter();
        codes.extend(partitions.map(|it| (&**topic.name, it.partition_index, it.error_code)));
    }
    codes.sort_unstable();
    let expected = [("hidden", 0, 0), ("missing", 0, 3), ("seen", 0, 0), ("seen", 9, 3)];
    ensure!(codes == expected, "{answer:?}");
    Ok(())
}
