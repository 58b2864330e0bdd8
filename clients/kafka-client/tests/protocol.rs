//! The client against well-behaved and misbehaving brokers.

mod scripted;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kafka_client::{
    Acks, BatchOptions, Client, ClientError, Compression, ErrorKind, FetchLimits, Fetcher,
    Isolation, Mechanism, Membership, MembershipSettings, NewRecord, NewTopic, Position,
    PreparedProduce, ProducePipe, ProduceTarget, Producer, ProducerSettings, ResponseError,
    SaslSettings, ScramHash, Settings, WaitNotice, encode_batch,
};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, FetchResponse, InitProducerIdResponse, JoinGroupResponse,
    ProduceRequest, ProduceResponse, ProducerId, SaslAuthenticateRequest, SaslAuthenticateResponse,
    SaslHandshakeResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use sasl::{ClientFinal, ClientFirst, Nonce, ScramKeys, server_final, server_first};
use scripted::{Asked, Deed, broker, frame};

fn settings() -> Settings {
    Settings { request_time_max: Duration::from_secs(20), ..Settings::default() }
}

fn source(error: &ClientError) -> String {
    std::error::Error::source(error).map(ToString::to_string).unwrap_or_default()
}

/// Returns the client's error if the broker reacts with `deed` to the first metadata request.
async fn error_after(deed: impl Fn(&Asked) -> Deed + Clone + Send + 'static) -> ClientError {
    let address = broker(move |asked| match asked.key {
        ApiKey::ApiVersions => Deed::Send(asked.versions(&[])),
        _ => deed(asked),
    })
    .await;
    let error = Client::new(&address, settings()).cluster().await.expect_err("a broken answer");
    assert!(error.to_string().contains(&address), "{error}");
    error
}

#[tokio::test]
async fn a_cluster_is_described_by_its_broker() {
    let address = broker(|asked| match asked.key {
        ApiKey::ApiVersions => Deed::Send(asked.versions(&[])),
        _ => Deed::Send(asked.cluster(3)),
    })
    .await;
    let cluster = Client::new(&address, settings()).cluster().await.expect("a good answer");
    assert_eq!(cluster.brokers[0].address, address);
    assert_eq!((cluster.topics[0].name.as_str(), cluster.topics[0].partitions.len()), ("t", 3));
}

#[tokio::test]
async fn a_broker_that_is_not_there_is_unreachable() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    drop(listener);
    let error = Client::new(&address, settings()).cluster().await.expect_err("nothing listens");
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.to_string().contains(&address), "{error}");
}

#[tokio::test]
async fn a_broker_is_waited_for_only_where_it_was_there_before() {
    let client = Client::new("127.0.0.1:1", settings());
    let error = client.topic("t").await.expect_err("nothing listens");
    assert!(!error.is_retriable(), "{error}");

    let tries = Arc::new(AtomicUsize::new(0));
    let address = broker(move |asked| match asked.key {
        ApiKey::ApiVersions => Deed::Send(asked.versions(&[])),
        _ if tries.fetch_add(1, Ordering::Relaxed) < 3 => Deed::End,
        _ => Deed::Send(asked.cluster(1)),
    })
    .await;
    Client::new(&address, settings()).topic("t").await.expect("it comes back");
}

#[tokio::test]
async fn responses_that_break_the_protocol_are_named() {
    let error = error_after(|asked| {
        let id = asked.header.correlation_id;
        Deed::Send(asked.answer_as(id + 7, &kafka_protocol::messages::MetadataResponse::default()))
    })
    .await;
    assert!(error.to_string().contains("answered request 8 instead of 1"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Protocol);

    for length in [-1, 3, i32::MAX] {
        let error = error_after(move |_| Deed::Send(length.to_be_bytes().to_vec())).await;
        assert_eq!(error.kind(), ErrorKind::Protocol, "{length}: {error}");
    }
    let id = 1_i32.to_be_bytes();
    let error = error_after(move |_| Deed::Send(frame(&id))).await;
    assert!(error.to_string().contains("Metadata, version 9"), "{error}");
    let error = error_after(|asked| {
        let whole = asked.cluster(1);
        Deed::Send(frame(&[&whole[4..], &[0; 3]].concat()))
    })
    .await;
    assert_eq!((error.kind(), &source(&error)[..]), (ErrorKind::Protocol, "3 bytes too many"));
}

#[tokio::test]
async fn connections_that_end_are_noticed() {
    let error = error_after(|_| Deed::End).await;
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    let error = error_after(|asked| {
        let mut cut = asked.cluster(1);
        cut.truncate(cut.len() - 1);
        Deed::SendAndEnd(cut)
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(source(&error).contains("bytes of a response"), "{}", source(&error));
}

#[tokio::test]
async fn a_broker_that_is_silent_is_named_with_the_request() {
    let address = broker(|asked| match asked.key {
        ApiKey::ApiVersions => Deed::Send(asked.versions(&[])),
        _ => Deed::Wait,
    })
    .await;
    let settings = Settings { request_time_max: Duration::from_millis(50), ..settings() };
    let error = Client::new(&address, settings).cluster().await.expect_err("no answer");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let text = format!("timed out: broker {address} did not answer Metadata within 50ms");
    assert_eq!(error.to_string(), text);
}

/// Reasons of the waits that were reported.
static WAITS: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[tokio::test]
async fn long_waits_are_reported_once_with_their_reason() {
    let tries = Arc::new(AtomicUsize::new(0));
    let address = broker(move |asked| match asked.key {
        ApiKey::ApiVersions => Deed::Send(asked.versions(&[])),
        _ if tries.fetch_add(1, Ordering::Relaxed) < 4 => Deed::End,
        _ => Deed::Wait,
    })
    .await;
    let tell = |reason: &ClientError| {
        WAITS.lock().expect("nothing panics here").push(reason.to_string());
    };
    let wait_notice = Some(WaitNotice { after: Duration::from_millis(1), tell });
    let request_time_max = Duration::from_secs(2);
    let settings = Settings { request_time_max, wait_notice, ..settings() };
    Client::new(&address, settings).topic("t").await.expect_err("no answer");
    let waits = WAITS.lock().expect("nothing panics here");
    let ended = waits.iter().filter(|it| it.contains("closed the connection")).count();
    assert_eq!(ended, 1, "{waits:?}");
    let silent = format!("broker {address} has not answered Metadata yet");
    assert!(waits.contains(&silent), "{waits:?}");
}

#[tokio::test]
async fn a_group_that_never_settles_is_joined_for_a_limited_time() {
    for (answer, why) in [
        (ResponseError::RebalanceInProgress, "REBALANCE_IN_PROGRESS"),
        (ResponseError::UnknownMemberId, "UNKNOWN_MEMBER_ID"),
        (ResponseError::IllegalGeneration, "ILLEGAL_GENERATION"),
    ] {
        let address = broker(move |asked| match asked.key {
            ApiKey::ApiVersions => {
                let group = [(ApiKey::FindCoordinator, 3), (ApiKey::JoinGroup, 5)];
                Deed::Send(asked.versions(&group))
            }
            ApiKey::FindCoordinator => Deed::Send(asked.coordinator()),
            _ => {
                let refused = JoinGroupResponse::default().with_error_code(answer.code());
                Deed::Send(asked.answer(&refused))
            }
        })
        .await;
        let settings = Settings { request_time_max: Duration::from_secs(1), ..settings() };
        let rebalance_time_max = Duration::from_millis(500);
        let membership = MembershipSettings { rebalance_time_max, ..MembershipSettings::default() };
        let client = Arc::new(Client::new(&address, settings));
        let topics = BTreeSet::from(["t".to_owned()]);
        let joined = Membership::join(client, "g", topics, membership).await;
        let error = joined.expect_err("no generation is complete");
        assert_eq!(error.to_string(), "cannot join group \"g\" within 1.5s");
        assert_eq!(error.kind(), ErrorKind::Refused(answer));
        let cause = source(&error);
        assert!(cause.starts_with(&format!("its last response was {why}; look for")), "{cause}");
    }
}

#[tokio::test]
async fn a_member_id_is_required_at_most_once() {
    let address = broker(|asked| match asked.key {
        ApiKey::ApiVersions => {
            let group = [(ApiKey::FindCoordinator, 3), (ApiKey::JoinGroup, 5)];
            Deed::Send(asked.versions(&group))
        }
        ApiKey::FindCoordinator => Deed::Send(asked.coordinator()),
        _ => {
            let refused = JoinGroupResponse::default()
                .with_error_code(ResponseError::MemberIdRequired.code())
                .with_member_id(StrBytes::from_static_str("m"));
            Deed::Send(asked.answer(&refused))
        }
    })
    .await;
    let client = Arc::new(Client::new(&address, settings()));
    let topics = BTreeSet::from(["t".to_owned()]);
    let joined = Membership::join(client, "g", topics, MembershipSettings::default()).await;
    let error = joined.expect_err("no member id is accepted");
    assert_eq!(error.refusal(), Some(ResponseError::MemberIdRequired));
}

#[tokio::test]
async fn a_broker_that_falls_silent_during_retries_does_not_get_the_time_of_another_request() {
    let tries = Arc::new(AtomicUsize::new(0));
    let address = broker(move |asked| match asked.key {
        ApiKey::ApiVersions => Deed::Send(asked.versions(&[])),
        _ if tries.fetch_add(1, Ordering::Relaxed) < 5 => Deed::End,
        _ => Deed::Wait,
    })
    .await;
    let settings = Settings { request_time_max: Duration::from_secs(3), ..settings() };
    let error = Client::new(&address, settings).topic("t").await.expect_err("no answer");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(error.to_string(), "timed out after 3s; the attempt before failed");
    assert_eq!(source(&error), format!("broker {address} closed the connection"));
}

#[tokio::test]
async fn a_broker_that_is_silent_to_a_new_connection_had_the_time_of_a_connection() {
    let address = broker(|_| Deed::Wait).await;
    let settings = Settings { connect_time_max: Duration::from_millis(50), ..settings() };
    let error = Client::new(&address, settings).cluster().await.expect_err("no answer");
    let text = format!("timed out: broker {address} did not answer ApiVersions within 50ms");
    assert_eq!(error.to_string(), text);
}

#[tokio::test]
async fn a_late_response_does_not_break_the_connection() {
    let held = Arc::new(Mutex::new(Vec::new()));
    let address = broker(move |asked| match asked.key {
        ApiKey::ApiVersions => Deed::Send(asked.versions(&[])),
        _ => {
            let mut held = held.lock().expect("nothing panics here");
            held.extend(asked.cluster(1));
            // Both responses are sent after the second request.
            if held.len() > asked.cluster(1).len() {
                Deed::Send(std::mem::take(&mut held))
            } else {
                Deed::Wait
            }
        }
    })
    .await;
    let settings = Settings { request_time_max: Duration::from_millis(300), ..settings() };
    let client = Client::new(&address, settings);
    client.cluster().await.expect_err("it comes too late");
    client.cluster().await.expect("the second answer is its own");
}

#[tokio::test]
async fn what_was_not_asked_for_ends_the_connection() {
    let address = broker(|asked| match asked.key {
        ApiKey::ApiVersions => {
            let mut twice = asked.versions(&[]);
            twice.extend(asked.versions(&[]));
            Deed::Send(twice)
        }
        _ => Deed::Wait,
    })
    .await;
    let error = Client::new(&address, settings()).cluster().await.expect_err("an extra answer");
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
}

#[tokio::test]
async fn a_client_connects_again_after_a_connection_has_failed() {
    let tries = Arc::new(AtomicUsize::new(0));
    let address = broker(move |asked| match asked.key {
        ApiKey::ApiVersions => Deed::Send(asked.versions(&[])),
        _ if tries.fetch_add(1, Ordering::Relaxed) == 0 => Deed::End,
        _ => Deed::Send(asked.cluster(1)),
    })
    .await;
    let client = Client::new(&address, settings());
    client.cluster().await.expect_err("the connection ends");
    client.cluster().await.expect("a new connection");
}

#[tokio::test]
async fn requests_without_a_common_version_are_not_sent() {
    let address = broker(|asked| match asked.key {
        ApiKey::ApiVersions => Deed::Send(asked.versions(&[(ApiKey::CreateTopics, 1)])),
        other => panic!("{other:?} was sent"),
    })
    .await;
    let client = Client::new(&address, settings());
    let topic = NewTopic { name: "t".to_owned(), partitions: None, configs: Vec::new() };
    let error = client.create_topic(&topic).await.expect_err("version 1 is too old");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(source(&error), "it supports versions 0 to 1, this client 2 to 7");
    let error = client.delete_topic("t").await.expect_err("it is unknown");
    assert_eq!(source(&error), "it does not know this request");
}

#[tokio::test]
async fn a_broker_that_knows_older_versions_only_is_asked_in_these() {
    const UNSUPPORTED_VERSION: i16 = 35;
    let address = broker(|asked| match (asked.key, asked.version) {
        (ApiKey::ApiVersions, 3) => {
            // The error response has version 0.
            let api = ApiVersion::default().with_api_key(18).with_max_version(2);
            let refusal = ApiVersionsResponse::default()
                .with_error_code(UNSUPPORTED_VERSION)
                .with_api_keys(vec![api]);
            let version_0 = Asked {
                version: 0,
                header: asked.header.clone(),
                body: asked.body.clone(),
                ..*asked
            };
            Deed::Send(version_0.answer(&refusal))
        }
        (ApiKey::ApiVersions, 2) => Deed::Send(asked.versions(&[])),
        (ApiKey::Metadata, _) => Deed::Send(asked.cluster(1)),
        other => panic!("{other:?} was sent"),
    })
    .await;
    Client::new(&address, settings()).cluster().await.expect("version 2 is common");
}

fn produced(asked: &Asked, code: i16, offset: i64) -> Vec<u8> {
    let request: ProduceRequest = asked.read();
    let partition = PartitionProduceResponse::default()
        .with_index(request.topic_data[0].partition_data[0].index)
        .with_error_code(code)
        .with_base_offset(offset);
    let topic = TopicProduceResponse::default()
        .with_name(request.topic_data[0].name.clone())
        .with_partition_responses(vec![partition]);
    asked.answer(&ProduceResponse::default().with_responses(vec![topic]))
}

fn record(value: &'static str) -> NewRecord {
    NewRecord { value: Some(value.into()), ..NewRecord::default() }
}

const PRODUCE: &[(ApiKey, i16)] =
    &[(ApiKey::Produce, 9), (ApiKey::InitProducerId, 4), (ApiKey::Fetch, 11)];

#[tokio::test]
async fn batches_of_several_partitions_are_in_flight_at_the_same_time() {
    let held = Arc::new(Mutex::new(Vec::new()));
    let address = broker(move |asked| match asked.key {
        ApiKey::ApiVersions => Deed::Send(asked.versions(PRODUCE)),
        ApiKey::Metadata => Deed::Send(asked.cluster(3)),
        _ => {
            let mut held = held.lock().expect("nothing panics here");
            held.push(produced(asked, 0, 100));
            // No response is sent before all requests have arrived.
            if held.len() == 3 { Deed::Send(held.concat()) } else { Deed::Wait }
        }
    })
    .await;
    let client = Arc::new(Client::new(&address, settings()));
    let mut producer =
        Producer::new(client, "t", ProducerSettings::default()).await.expect("a topic");
    assert_eq!(producer.partition_count(), 3);
    let records = (0..3).map(|partition| (partition, vec![record("a")])).collect();
    let offsets = producer.send(records).await.expect("all are answered");
    assert_eq!(offsets, [(0, 100), (1, 100), (2, 100)]);
    let error = producer.send(vec![(3, vec![record("a")])]).await.expect_err("there are three");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn only_an_idempotent_producer_repeats_what_may_have_arrived() {
    for is_idempotent in [false, true] {
        let tries = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&tries);
        let address = broker(move |asked| match asked.key {
            ApiKey::ApiVersions => Deed::Send(asked.versions(PRODUCE)),
            ApiKey::Metadata => Deed::Send(asked.cluster(1)),
            ApiKey::InitProducerId => {
                let id = InitProducerIdResponse::default().with_producer_id(ProducerId(9));
                Deed::Send(asked.answer(&id))
            }
            _ if tries.fetch_add(1, Ordering::Relaxed) == 0 => Deed::End,
            _ => Deed::Send(produced(asked, 0, 5)),
        })
        .await;
        let client = Arc::new(Client::new(&address, settings()));
        let wanted = ProducerSettings { is_idempotent, ..ProducerSettings::default() };
        let mut producer = Producer::new(client, "t", wanted).await.expect("a topic");
        let sent = producer.send(vec![(0, vec![record("a")])]).await;
        match sent {
            Ok(offsets) => assert!(is_idempotent && offsets == [(0, 5)], "{offsets:?}"),
            Err(error) => assert!(!is_idempotent && error.kind() == ErrorKind::Unreachable),
        }
        assert_eq!(seen.load(Ordering::Relaxed), 1 + usize::from(is_idempotent));
    }
}

#[tokio::test]
async fn what_the_broker_refuses_for_good_is_not_sent_again() {
    let tries = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&tries);
    let address = broker(move |asked| match asked.key {
        ApiKey::ApiVersions => Deed::Send(asked.versions(PRODUCE)),
        ApiKey::Metadata => Deed::Send(asked.cluster(1)),
        _ => {
            tries.fetch_add(1, Ordering::Relaxed);
            Deed::Send(produced(asked, ResponseError::MessageTooLarge.code(), -1))
        }
    })
    .await;
    let client = Arc::new(Client::new(&address, settings()));
    let mut producer =
        Producer::new(client, "t", ProducerSettings::default()).await.expect("a topic");
    let error = producer.send(vec![(0, vec![record("a")])]).await.expect_err("it is refused");
    assert_eq!(error.refusal(), Some(ResponseError::MessageTooLarge));
    assert_eq!(error.to_string(), "cannot append to \"t\", partition 0");
    assert_eq!(seen.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn records_are_read_from_a_position_on() {
    let address = broker(|asked| match asked.key {
        ApiKey::ApiVersions => Deed::Send(asked.versions(PRODUCE)),
        ApiKey::Metadata => Deed::Send(asked.cluster(1)),
        _ => {
            let options = BatchOptions { compression: Compression::Lz4, ..BatchOptions::default() };
            let batch = encode_batch(&[record("a"), record("b")], &options).expect("two");
            let data = PartitionData::default().with_high_watermark(2).with_records(Some(batch));
            let topic = FetchableTopicResponse::default()
                .with_topic(TopicName(StrBytes::from_static_str("t")))
                .with_partitions(vec![data]);
            Deed::Send(asked.answer(&FetchResponse::default().with_responses(vec![topic])))
        }
    })
    .await;
    let client = Arc::new(Client::new(&address, settings()));
    let mut fetcher = Fetcher::new(client, FetchLimits::default(), Isolation::ReadUncommitted);
    let position = Position { topic: "t".to_owned(), partition: 0, offset: 1 };
    let fetched = fetcher.fetch(&[position]).await.expect("a good answer");
    let values: Vec<_> = fetched[0].records.iter().map(|it| it.value.clone()).collect();
    assert_eq!(values, [Some("b".into())]);
    assert_eq!((fetched[0].next_offset, fetched[0].high_watermark), (2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_requests_are_answered_in_order() {
    let offset = Arc::new(AtomicUsize::new(0));
    let address = broker(move |asked| match asked.key {
        ApiKey::ApiVersions => Deed::Send(asked.versions(PRODUCE)),
        ApiKey::Metadata => Deed::Send(asked.cluster(1)),
        _ => {
            let offset = offset.fetch_add(2, Ordering::Relaxed);
            let code = if offset == 8 { ResponseError::NotLeaderOrFollower.code() } else { 0 };
            Deed::Send(produced(asked, code, i64::try_from(offset).expect("a small number")))
        }
    })
    .await;
    let client = Client::new(&address, settings());
    let target = ProduceTarget { topic: "t".to_owned(), partition: 0, acks: Acks::All };
    let batch = encode_batch(&[record("a"), record("b")], &BatchOptions::default());
    let mut produce =
        PreparedProduce::new(&target, &batch.expect("two records")).expect("a short request");
    let mut pipe = ProducePipe::open(&client, &target).await.expect("a leader");
    for _ in 0..5 {
        pipe.sender.send(&mut produce).expect("the broker reads");
    }
    for expected in [0, 2, 4, 6] {
        assert_eq!(pipe.receiver.receive().expect("an offset"), expected);
    }
    let error = pipe.receiver.receive().expect_err("the fifth is refused");
    assert_eq!(error.refusal(), Some(ResponseError::NotLeaderOrFollower));
}

#[tokio::test]
async fn a_user_who_is_not_let_in_learns_why() {
    let script = |offered: &'static [&'static str], code: i16| {
        move |asked: &Asked| match asked.key {
            ApiKey::ApiVersions => {
                let sasl = [(ApiKey::SaslHandshake, 1), (ApiKey::SaslAuthenticate, 2)];
                Deed::Send(asked.versions(&sasl))
            }
            ApiKey::SaslHandshake => {
                let known = offered.iter().map(|&name| StrBytes::from_static_str(name)).collect();
                let code = if offered.contains(&"PLAIN") { 0 } else { 33 };
                let response = SaslHandshakeResponse::default().with_mechanisms(known);
                Deed::Send(asked.answer(&response.with_error_code(code)))
            }
            ApiKey::SaslAuthenticate => {
                let response = SaslAuthenticateResponse::default().with_error_code(code);
                Deed::Send(asked.answer(&response))
            }
            _ => Deed::Send(asked.cluster(1)),
        }
    };
    let user = SaslSettings {
        mechanism: Mechanism::Plain,
        user: "u".to_owned(),
        password: "secret".to_owned(),
    };
    let settings = Settings { sasl: Some(user), ..settings() };
    for (offered, code, why) in [
        (&["PLAIN"][..], 0, None),
        (&["PLAIN"], 58, Some("SASL_AUTHENTICATION_FAILED")),
        (&["SCRAM-SHA-256"], 0, Some("it has enabled SCRAM-SHA-256")),
    ] {
        let address = broker(script(offered, code)).await;
        let client = Client::new(&address, settings.clone());
        match (client.cluster().await, why) {
            (Ok(_), None) => {}
            (Err(error), Some(why)) => {
                assert_eq!(error.kind(), ErrorKind::Authentication);
                let inner = std::error::Error::source(&error).expect("a refusal");
                let chain = format!("{inner}: {:?}", inner.source().map(ToString::to_string));
                assert!(chain.contains(why), "{chain}");
                assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
            }
            (result, _) => panic!("{result:?}"),
        }
    }
}

/// Reaction of a broker that accepts user `u` with password `secret` over SCRAM.
fn scram(asked: &Asked, state: &mut Option<(ClientFirst, String, Nonce)>) -> Deed {
    let keys = ScramKeys::derive(ScramHash::Sha256, b"secret", &[7; 16], 4096).expect("good keys");
    let request: SaslAuthenticateRequest = asked.read();
    let response = SaslAuthenticateResponse::default();
    let response = match state.take() {
        None => {
            let first = ClientFirst::parse(&request.auth_bytes).expect("a good message");
            let nonce = Nonce::from_text("broker").expect("plain letters");
            let message = server_first(&first.nonce, &nonce, &keys);
            *state = Some((first, message.clone(), nonce));
            response.with_auth_bytes(message.into())
        }
        Some((first, sent, nonce)) => {
            let last = ClientFinal::parse(&request.auth_bytes).expect("a good message");
            assert!(last.follows(&first, &nonce));
            let signed = first.auth_message(&sent, &last);
            match keys.accept_proof(&signed, &last.proof) {
                true => response.with_auth_bytes(server_final(&keys, &signed).into()),
                false => response.with_error_code(ResponseError::SaslAuthenticationFailed.code()),
            }
        }
    };
    Deed::Send(asked.answer(&response))
}

#[tokio::test]
async fn scram_lets_the_right_password_in() {
    let state = Arc::new(Mutex::new(None));
    let address = broker(move |asked| match asked.key {
        ApiKey::ApiVersions => {
            let sasl = [(ApiKey::SaslHandshake, 1), (ApiKey::SaslAuthenticate, 2)];
            Deed::Send(asked.versions(&sasl))
        }
        ApiKey::SaslHandshake => Deed::Send(asked.answer(&SaslHandshakeResponse::default())),
        ApiKey::SaslAuthenticate => scram(asked, &mut state.lock().expect("nothing panics here")),
        _ => Deed::Send(asked.cluster(1)),
    })
    .await;
    for (password, is_right) in [("secret", true), ("another", false)] {
        let user = SaslSettings {
            mechanism: Mechanism::Scram(ScramHash::Sha256),
            user: "u".to_owned(),
            password: password.to_owned(),
        };
        let settings = Settings { sasl: Some(user), ..settings() };
        let answer = Client::new(&address, settings).cluster().await;
        assert_eq!(answer.is_ok(), is_right, "{answer:?}");
    }
}
