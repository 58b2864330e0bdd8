//! Creation and deletion of topics: a created one exists with all acknowledged records, and nothing
//! of a deleted one remains, also if another one takes its name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use kafka_client::{
    Client, Compression, Isolation, NewTopic, OffsetAt, Position, Producer, ProducerSettings,
    ResponseError,
};
use system::Random;

use crate::entry::{Entry, check};
use crate::producers::Cast;
use crate::stage::{Act, Patience, Stage, TOPICS, count};
use crate::verifiers::{fetch, fetcher};

const NAMES: [&str; 3] = ["made-a", "made-b", "made-c"];
const RECORD_COUNT_MAX: u64 = 40;

/// An existing topic: the identification of its records, and their number.
#[derive(Clone, Copy, Debug)]
struct Made {
    producer: u32,
    transaction: u64,
    record_count: u64,
}

impl Made {
    fn entries(self) -> impl Iterator<Item = Entry> {
        let Self { producer, transaction, record_count } = self;
        (0..record_count).map(move |number| Entry { producer, transaction, number })
    }
}

/// Creates and deletes topics.
pub(crate) async fn make_and_delete(stage: Arc<Stage>, cast: Cast) -> Result<()> {
    let mut random = Random::new(cast.seed);
    let client = stage.client(&cast.name);
    let mut made = BTreeMap::new();
    let mut made_count = 0;
    while stage.act() == Act::Producing {
        check_list(&client, made.keys().copied()).await?;
        let name = random.pick(&NAMES);
        match made.remove(name) {
            Some(it) => {
                check_contents(&client, name, it).await?;
                delete(&client, name).await?;
                count(&stage.counts.topics_deleted);
            }
            None => {
                made_count += 1;
                let record_count = 1 + random.below(RECORD_COUNT_MAX);
                let (producer, transaction) = (cast.number, made_count);
                let it = Made { producer, transaction, record_count };
                create(&client, name).await?;
                fill(&client, name, it, random.pick(&Compression::ALL)).await?;
                made.insert(name, it);
                count(&stage.counts.topics_made);
            }
        }
        stage.step(&cast.name).await;
    }
    for (name, it) in made {
        check_contents(&client, name, it).await?;
    }
    Ok(())
}

/// Checks that the broker has exactly these topics and those of the storm.
async fn check_list(client: &Client, made: impl Iterator<Item = &str>) -> Result<()> {
    let mut patience = Patience::new("cannot list topics");
    let cluster = loop {
        match client.cluster().await {
            Ok(cluster) => break cluster,
            Err(error) => patience.after(error).await?,
        }
    };
    let listed = cluster.topics.iter().filter(|it| !it.is_internal).map(|it| it.name.as_str());
    let listed: BTreeSet<_> = listed.collect();
    let expected: BTreeSet<_> = TOPICS.into_iter().chain(made).collect();
    ensure!(listed == expected, "{listed:?} are there instead of {expected:?}");
    Ok(())
}

async fn create(client: &Client, name: &str) -> Result<()> {
    let topic = NewTopic { name: name.to_owned(), partitions: Some(1), configs: Vec::new() };
    let mut patience = Patience::new("cannot create a topic");
    let mut is_repeated = false;
    loop {
        match client.create_topic(&topic).await {
            Err(error) if is_repeated && is(&error, ResponseError::TopicAlreadyExists) => {
                return Ok(());
            }
            Err(error) => patience.after(error).await?,
            Ok(()) => return Ok(()),
        }
        is_repeated = true;
    }
}

async fn delete(client: &Client, name: &str) -> Result<()> {
    let mut patience = Patience::new("cannot delete a topic");
    let mut is_repeated = false;
    loop {
        match client.delete_topic(name).await {
            Err(error) if is(&error, ResponseError::UnknownTopicOrPartition) => {
                ensure!(is_repeated, "{name:?} is not there to be deleted");
                return Ok(());
            }
            Err(error) => patience.after(error).await?,
            Ok(()) => return Ok(()),
        }
        is_repeated = true;
    }
}

fn is(error: &kafka_client::ClientError, refusal: ResponseError) -> bool {
    error.refusal() == Some(refusal)
}

/// Writes the records of a new topic, which begins with offset 0.
async fn fill(
    client: &Arc<Client>,
    name: &str,
    made: Made,
    compression: Compression,
) -> Result<()> {
    let settings =
        ProducerSettings { is_idempotent: true, compression, ..ProducerSettings::default() };
    let mut patience = Patience::new("cannot write to a new topic");
    let mut producer = loop {
        match Producer::new(Arc::clone(client), name, settings).await {
            Ok(producer) => break producer,
            Err(error) => patience.after(error).await?,
        }
    };
    let records = made.entries().map(Entry::record).collect();
    let offsets = producer.send(vec![(0, records)]).await.context("cannot fill a topic")?;
    ensure!(offsets == [(0, 0)], "the first offset of the new topic {name:?}: {offsets:?}");
    Ok(())
}

async fn check_contents(client: &Arc<Client>, name: &str, made: Made) -> Result<()> {
    let latest = client.topic_offsets(name, OffsetAt::Latest, Isolation::ReadCommitted).await?;
    let end = i64::try_from(made.record_count)?;
    ensure!(latest.iter().all(|it| it.offset == Some(end)), "{name:?}: {latest:?}, not {end}");
    let mut fetcher = fetcher(client);
    let mut entries = made.entries();
    let mut at = Position { topic: name.to_owned(), partition: 0, offset: 0 };
    while at.offset < end {
        let fetched = fetch(&mut fetcher, std::slice::from_ref(&at)).await?;
        for partition in fetched {
            for record in &partition.records {
                let entry = entries.next().context("there are more records than were written")?;
                check(record, &entry.record()).with_context(|| format!("{name:?}: {entry:?}"))?;
            }
            at.offset = partition.next_offset;
        }
    }
    ensure!(entries.next().is_none(), "records of {name:?} are gone");
    Ok(())
}
