//! Copies and older states of the broker's volumes: none replaces a volume that the broker serves.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use kafka_client::{
    Acks, Client, Isolation, NewTopic, OffsetAt, Producer, ProducerSettings, Settings,
};
use kafka_protocol::messages::{self as of, ApiKey};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use record_batch::NewRecord;
use system::{Broker, Daemon, DaemonOptions, wait_for};
use tokio::runtime::Runtime;

fn start_daemon() -> Result<Daemon> {
    Daemon::start(DaemonOptions { pool_size: "256MiB", flags: "--no-fuse" })
}

fn client_of(broker: &Broker) -> Arc<Client> {
    Arc::new(Client::new(broker.address(), Settings::default()))
}

async fn create(client: &Client, name: &str) -> Result<()> {
    let topic = NewTopic { name: name.to_owned(), partitions: Some(1), configs: Vec::new() };
    Ok(client.create_topic(&topic).await?)
}

async fn produce(client: &Arc<Client>, topic: &str, count: usize) -> Result<()> {
    let settings = ProducerSettings { acks: Acks::All, ..ProducerSettings::default() };
    let mut producer = Producer::new(Arc::clone(client), topic, settings).await?;
    producer.send(vec![(0, vec![NewRecord::default(); count])]).await?;
    Ok(())
}

async fn end_of(client: &Client, topic: &str) -> Result<i64> {
    let ends = client.topic_offsets(topic, OffsetAt::Latest, Isolation::ReadUncommitted).await?;
    ends.first().and_then(|it| it.offset).context("one partition")
}

/// Returns a name longer than a volume name may be, so that the volume's name contains only a part
/// of it.
fn long_name() -> String {
    format!("orders-{}", "x".repeat(100))
}

#[test]
fn a_copy_of_a_topics_volume_takes_no_topics_place() -> Result<()> {
    let daemon = start_daemon()?;
    let mut broker = Broker::on_daemon(&daemon.run_dir(), "")?;
    let (runtime, long) = (Runtime::new()?, long_name());
    let client = client_of(&broker);
    for topic in ["orders", &long] {
        runtime.block_on(create(&client, topic))?;
        runtime.block_on(produce(&client, topic, 3))?;
    }
    let of_long = daemon.volumes()?.into_iter().map(|it| it.name);
    let of_long = of_long.filter(|it| it.starts_with("topic.orders-")).collect::<Vec<_>>();
    let [of_long] = &of_long[..] else { anyhow::bail!("one volume of a long name: {of_long:?}") };
    daemon.memlane("volume set topic.orders durability=image")?;
    daemon.save_image()?;
    daemon.memlane("snapshot create topic.orders@before")?;
    // Names before and after the topic's own, and one with the length of the long one's.
    let as_long = format!("{}{}", &of_long[..of_long.len() - 4], "0000");
    for words in [
        "clone topic.orders topic.another".to_owned(),
        "clone topic.orders@before topic.orders.old".to_owned(),
        format!("clone {of_long} {as_long}"),
        "image restore topic.orders --as topic.zebra".to_owned(),
    ] {
        daemon.memlane(&words)?;
    }
    for topic in ["orders", &long] {
        runtime.block_on(produce(&client, topic, 3))?;
    }
    broker.stop()?;
    broker.start_again()?;
    let client = client_of(&broker);
    runtime.block_on(async {
        for topic in ["orders", &long] {
            let end = end_of(&client, topic).await?;
            ensure!(end == 6, "{topic} ends at {end}");
        }
        let topics = client.cluster().await?.topics;
        ensure!(topics.len() == 2, "{topics:?}");
        for name in ["another", "orders.old", "zebra"] {
            let refused = create(&client, name).await.err().context("it is in the way")?;
            ensure!(format!("{refused:#}").contains("cannot be opened"), "{refused:#}");
        }
        anyhow::Ok(())
    })?;
    for volume in ["topic.another", "topic.orders.old", &as_long, "topic.zebra"] {
        ensure!(daemon.volume(volume)?.owner.is_none(), "the broker claims {volume}");
    }
    let log = broker.log();
    for volume in ["topic.another", "topic.orders.old", &as_long, "topic.zebra"] {
        let said = log.lines().find(|it| it.contains(volume)).context("it is passed over")?;
        ensure!(said.contains("copy"), "{said}");
    }
    // A copy that exists before its name is requested is reported, and not taken for the topic.
    daemon.memlane("clone topic.orders topic.late")?;
    let refused = runtime.block_on(create(&client, "late")).err().context("it is in the way")?;
    ensure!(format!("{refused:#}").contains("copy"), "{refused:#}");
    broker.stop()?;
    // To replace the topic by the copy, it must be renamed explicitly.
    daemon.memlane("snapshot delete topic.orders@before")?;
    daemon.memlane("volume delete topic.orders --force")?;
    daemon.memlane("volume rename topic.another topic.orders")?;
    broker.start_again()?;
    let end = runtime.block_on(end_of(&client_of(&broker), "orders"))?;
    ensure!(end == 3, "orders ends at {end}");
    broker.stop()?;
    daemon.finish()
}

#[test]
fn a_volume_of_a_broker_that_runs_is_not_set_back_also_after_a_restart_of_the_daemon() -> Result<()>
{
    let mut daemon = start_daemon()?;
    let mut broker = Broker::on_daemon(&daemon.run_dir(), "")?;
    let runtime = Runtime::new()?;
    let client = client_of(&broker);
    runtime.block_on(async {
        create(&client, "orders").await?;
        produce(&client, "orders", 3).await
    })?;
    daemon.memlane("snapshot create topic.orders@before")?;
    runtime.block_on(produce(&client, "orders", 3))?;
    // The broker sends no request, and so does not reconnect.
    daemon.kill()?;
    daemon.start_again()?;
    for words in [
        "snapshot restore topic.orders@before",
        "snapshot restore topic.orders@before --force",
        "volume resize topic.orders --size 1G --force",
        "volume resize broker-state --size 1M --force",
    ] {
        let refused = daemon.memlane(words).err().context("it was done under the broker")?;
        ensure!(format!("{refused:#}").contains("memlane-broker"), "{refused:#}");
    }
    runtime.block_on(async {
        produce(&client, "orders", 1).await?;
        let end = end_of(&client, "orders").await?;
        ensure!(end == 7, "orders ends at {end}");
        anyhow::Ok(())
    })?;
    broker.stop()?;
    daemon.memlane("snapshot restore topic.orders@before --force")?;
    broker.start_again()?;
    let end = runtime.block_on(end_of(&client_of(&broker), "orders"))?;
    ensure!(end == 3, "orders ends at {end}");
    broker.stop()?;
    daemon.memlane("snapshot delete topic.orders@before")?;
    daemon.finish()
}

/// Returns the epoch of the only partition, as reported to clients.
fn epoch_of(broker: &Broker, topic: &str) -> Result<i32> {
    let name = of::TopicName(StrBytes::from_string(topic.to_owned()));
    let asked = of::metadata_request::MetadataRequestTopic::default().with_name(Some(name));
    let request = of::MetadataRequest::default().with_topics(Some(vec![asked]));
    let (key, version) = (ApiKey::Metadata, 12);
    let mut frame = BytesMut::new();
    of::RequestHeader::default()
        .with_request_api_key(key as i16)
        .with_request_api_version(version)
        .encode(&mut frame, key.request_header_version(version))?;
    request.encode(&mut frame, version)?;
    let mut stream = broker.connect()?;
    stream.write_all(&u32::try_from(frame.len())?.to_be_bytes())?;
    stream.write_all(&frame)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::try_from(u32::from_be_bytes(length))?];
    stream.read_exact(&mut answer)?;
    let mut body = Bytes::copy_from_slice(&answer[5..]);
    let told = of::MetadataResponse::decode(&mut body, version)?;
    Ok(told.topics[0].partitions[0].leader_epoch)
}

/// Restarts a broker until its topic is in an epoch that no earlier state contains, each time with
/// another record. Returns the last epoch. The broker has stopped.
fn know_epochs(broker: &mut Broker, runtime: &Runtime) -> Result<i32> {
    let mut known = 0;
    for _ in 0..3 {
        broker.stop()?;
        broker.start_again()?;
        runtime.block_on(produce(&client_of(broker), "orders", 1))?;
        let epoch = epoch_of(broker, "orders")?;
        ensure!(epoch > known, "{epoch} after {known}");
        known = epoch;
    }
    broker.stop()?;
    Ok(known)
}

/// Starts a broker whose topic was reset to its first three records.
fn check_epoch(broker: &mut Broker, runtime: &Runtime, known: i32) -> Result<()> {
    // The broker was started more than once a second, which does not happen for long in practice.
    let since_2025 = UNIX_EPOCH + Duration::from_secs(1_735_689_600);
    let passed = since_2025 + Duration::from_secs(known.unsigned_abs().into());
    wait_for("the clock to pass the epoch", Duration::from_secs(60), || {
        Ok(SystemTime::now() > passed + Duration::from_secs(1))
    })?;
    broker.start_again()?;
    let end = runtime.block_on(end_of(&client_of(broker), "orders"))?;
    ensure!(end == 3, "orders ends at {end}");
    let epoch = epoch_of(broker, "orders")?;
    ensure!(epoch > known, "clients know {known} and are told {epoch}");
    Ok(())
}

#[test]
fn a_topic_that_is_set_back_is_in_no_epoch_that_clients_had_left() -> Result<()> {
    let mut daemon = start_daemon()?;
    let mut broker = Broker::on_daemon(&daemon.run_dir(), "")?;
    let runtime = Runtime::new()?;
    let client = client_of(&broker);
    runtime.block_on(async {
        create(&client, "orders").await?;
        produce(&client, "orders", 3).await
    })?;
    daemon.memlane("volume set topic.orders durability=image")?;
    daemon.memlane("snapshot create topic.orders@before")?;
    daemon.save_image()?;
    let known = know_epochs(&mut broker, &runtime)?;
    daemon.memlane("snapshot restore topic.orders@before --force")?;
    check_epoch(&mut broker, &runtime, known)?;
    // And to the image, after a power failure.
    let known = know_epochs(&mut broker, &runtime)?;
    daemon.kill()?;
    daemon.lose_memory()?;
    daemon.start_again()?;
    check_epoch(&mut broker, &runtime, known)?;
    broker.stop()?;
    daemon.memlane("snapshot delete topic.orders@before")?;
    daemon.finish()
}
