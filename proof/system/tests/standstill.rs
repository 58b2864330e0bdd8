//! A broker that stands still as a whole, as when its machine is paused: members of groups, which
//! it could not hear, stay members.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::{self as of, ApiKey, RequestKind, ResponseKind};
use kafka_protocol::protocol::{Encodable, StrBytes};
use rustix::process::Signal;
use system::Broker;

/// The shortest that the broker gives.
const SESSION: Duration = Duration::from_secs(6);

/// Of all requests here.
const VERSION: i16 = 3;

fn send(stream: &mut TcpStream, key: ApiKey, request: &RequestKind) -> Result<()> {
    let mut frame = BytesMut::new();
    of::RequestHeader::default()
        .with_request_api_key(key as i16)
        .with_request_api_version(VERSION)
        .encode(&mut frame, key.request_header_version(VERSION))?;
    request.encode(&mut frame, VERSION)?;
    stream.write_all(&[&u32::try_from(frame.len())?.to_be_bytes()[..], &frame].concat())?;
    Ok(())
}

fn receive(stream: &mut TcpStream, key: ApiKey) -> Result<ResponseKind> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::try_from(u32::from_be_bytes(length))?];
    stream.read_exact(&mut answer)?;
    // Behind the correlation id.
    ResponseKind::decode(key, &mut Bytes::from(answer.split_off(4)), VERSION)
}

fn group() -> of::GroupId {
    of::GroupId(StrBytes::from_static_str("group"))
}

#[test]
fn members_of_a_broker_that_stands_still_for_longer_than_their_sessions_stay_members() -> Result<()>
{
    let mut broker = Broker::start("--embedded 64M")?;
    let mut stream = broker.connect()?;
    let range = JoinGroupRequestProtocol::default().with_name(StrBytes::from_static_str("range"));
    let join = of::JoinGroupRequest::default()
        .with_group_id(group())
        .with_session_timeout_ms(i32::try_from(SESSION.as_millis())?)
        .with_rebalance_timeout_ms(60_000)
        .with_protocol_type(StrBytes::from_static_str("consumer"))
        .with_protocols(vec![range]);
    send(&mut stream, ApiKey::JoinGroup, &join.into())?;
    let answer = receive(&mut stream, ApiKey::JoinGroup)?;
    let ResponseKind::JoinGroup(joined) = answer else { panic!("{answer:?}") };
    let sync = of::SyncGroupRequest::default()
        .with_group_id(group())
        .with_member_id(joined.member_id.clone())
        .with_generation_id(joined.generation_id);
    send(&mut stream, ApiKey::SyncGroup, &sync.into())?;
    receive(&mut stream, ApiKey::SyncGroup)?;

    broker.signal(Signal::STOP)?;
    // That time passes is what this is about.
    thread::sleep(SESSION + Duration::from_secs(1));
    broker.signal(Signal::CONT)?;
    let heartbeat = of::HeartbeatRequest::default().with_group_id(group());
    // When this is answered, all that is due has been done.
    send(&mut stream, ApiKey::Heartbeat, &heartbeat.clone().into())?;
    receive(&mut stream, ApiKey::Heartbeat)?;
    let heartbeat =
        heartbeat.with_member_id(joined.member_id).with_generation_id(joined.generation_id);
    send(&mut stream, ApiKey::Heartbeat, &heartbeat.into())?;
    let answer = receive(&mut stream, ApiKey::Heartbeat)?;
    let ResponseKind::Heartbeat(it) = answer else { panic!("{answer:?}") };
    ensure!(it.error_code == 0, "the heartbeat got the error {}", it.error_code);
    let said = broker.log();
    ensure!(said.contains("the broker stood still"), "{said}");
    broker.stop()
}
