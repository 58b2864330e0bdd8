//! Producers: plain ones, idempotent ones, and transactional ones that commit and abort.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kafka_client::{
    Compression, NewRecord, Producer, ProducerSettings, ResponseError, TransactionSettings,
    TransactionalProducer,
};
use system::Random;

use crate::entry::Entry;
use crate::stage::{Act, INPUT, PARTITION_COUNT, PLAIN, Patience, Stage, TRANSACTIONS, add, count};

/// Batches of one partition that are in flight, at most.
const IN_FLIGHT_MAX: u64 = 5;
const RECORDS_PER_BATCH_MAX: u64 = 6;
const SENDS_PER_TRANSACTION_MAX: u64 = 4;

/// Longer than any client waits for the broker, so that no transaction ends by itself.
const TRANSACTION_TIME_MAX: Duration = Duration::from_secs(300);

/// A client among those of a storm.
#[derive(Clone, Debug)]
pub(crate) struct Cast {
    pub(crate) name: String,
    /// What its records are marked with.
    pub(crate) number: u32,
    pub(crate) seed: u64,
}

/// The numbers of what a producer sends to each partition of a topic.
#[derive(Default)]
struct Numbers {
    next: [u64; PARTITION_COUNT as usize],
}

impl Numbers {
    fn batch(&mut self, producer: u32, partition: i32, random: &mut Random) -> Vec<NewRecord> {
        let length = 1 + random.below(RECORDS_PER_BATCH_MAX);
        let next = &mut self.next[usize::try_from(partition).unwrap_or_default()];
        let mut records = Vec::new();
        for _ in 0..length {
            records.push(Entry { producer, transaction: 0, number: *next }.record(random));
            *next += 1;
        }
        records
    }

    /// All that was numbered is acknowledged.
    fn acknowledge(&self, stage: &Stage, topic: &str, producer: u32) {
        for (partition, count) in (0..).zip(self.next) {
            stage.books.acknowledge((topic.to_owned(), partition), producer, count);
        }
    }
}

/// Several batches in flight, to each partition, repeated by the client until they are answered.
pub(crate) async fn send_idempotently(stage: Arc<Stage>, cast: Cast) -> Result<()> {
    let mut random = Random::new(cast.seed);
    let settings = ProducerSettings {
        is_idempotent: true,
        compression: random.pick(&[Compression::None, Compression::Lz4]),
        ..ProducerSettings::default()
    };
    let mut producer = Producer::new(stage.client(&cast.name), INPUT, settings).await?;
    let mut numbers = Numbers::default();
    while stage.act() == Act::Producing {
        let mut batches = Vec::new();
        for partition in 0..PARTITION_COUNT {
            for _ in 0..random.below(IN_FLIGHT_MAX + 1) {
                batches.push((partition, numbers.batch(cast.number, partition, &mut random)));
            }
        }
        let record_count = batches.iter().map(|(_, records)| records.len()).sum();
        producer.send(batches).await.context("cannot send idempotently")?;
        numbers.acknowledge(&stage, INPUT, cast.number);
        add(&stage.counts.idempotent, record_count);
        stage.step(&cast.name).await;
    }
    Ok(())
}

/// Batches that are sent again when they were not answered, and may be kept twice.
pub(crate) async fn send_plainly(stage: Arc<Stage>, cast: Cast) -> Result<()> {
    let mut random = Random::new(cast.seed);
    let settings = ProducerSettings::default();
    let client = stage.client(&cast.name);
    let mut producer = Producer::new(Arc::clone(&client), PLAIN, settings).await?;
    let mut numbers = Numbers::default();
    while stage.act() == Act::Producing {
        let mut batches = Vec::new();
        for partition in 0..PARTITION_COUNT {
            batches.push((partition, numbers.batch(cast.number, partition, &mut random)));
        }
        let record_count = batches.iter().map(|(_, records)| records.len()).sum();
        let mut patience = Patience::new("cannot send plainly");
        while let Err(error) = producer.send(batches.clone()).await {
            patience.after(error).await?;
            count(&stage.counts.repeated);
            // The connection of before may have ended with the broker.
            match Producer::new(Arc::clone(&client), PLAIN, settings).await {
                Ok(next) => producer = next,
                Err(error) => patience.after(error).await?,
            }
        }
        numbers.acknowledge(&stage, PLAIN, cast.number);
        add(&stage.counts.plain, record_count);
        stage.step(&cast.name).await;
    }
    Ok(())
}

/// How a transaction is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Commit,
    Abort,
    /// Another producer with the same id comes in the middle.
    Takeover,
}

/// Transactions over several topics and partitions.
pub(crate) async fn send_in_transactions(stage: Arc<Stage>, cast: Cast) -> Result<()> {
    let mut random = Random::new(cast.seed);
    let mut producer = transactional(&stage, &cast.name).await?;
    let mut transaction = 0;
    while stage.act() == Act::Producing {
        transaction += 1;
        let fates = [Fate::Commit, Fate::Commit, Fate::Commit, Fate::Abort, Fate::Abort];
        let fate = if random.one_in(12) { Fate::Takeover } else { random.pick(&fates) };
        let mut number = 0;
        for _ in 0..1 + random.below(SENDS_PER_TRANSACTION_MAX) {
            let topic = random.pick(&TRANSACTIONS);
            let mut batches = Vec::new();
            for partition in 0..PARTITION_COUNT {
                let mut records = Vec::new();
                for _ in 0..random.below(RECORDS_PER_BATCH_MAX) {
                    let entry = Entry { producer: cast.number, transaction, number };
                    records.push(entry.record(&mut random));
                    number += 1;
                }
                if !records.is_empty() {
                    batches.push((partition, records));
                }
            }
            let sent = producer.send(topic, batches).await;
            sent.with_context(|| format!("cannot send in transaction {transaction}"))?;
        }
        match fate {
            Fate::Commit => {
                if number > 0 {
                    stage.books.commit(cast.number, transaction, number);
                }
                producer.commit().await?;
                count(&stage.counts.commits);
            }
            Fate::Abort => {
                producer.abort().await?;
                count(&stage.counts.aborts);
            }
            Fate::Takeover => {
                let next = transactional(&stage, &cast.name).await?;
                let before = std::mem::replace(&mut producer, next);
                check_fenced(before, &mut random).await?;
                count(&stage.counts.takeovers);
            }
        }
        stage.step(&cast.name).await;
    }
    Ok(())
}

pub(crate) async fn transactional(stage: &Stage, id: &str) -> Result<TransactionalProducer> {
    let settings =
        TransactionSettings { compression: Compression::None, time_max: TRANSACTION_TIME_MAX };
    let client = stage.client(id);
    let mut patience = Patience::new("cannot begin as transactional producer");
    loop {
        match TransactionalProducer::new(Arc::clone(&client), id, settings).await {
            Ok(producer) => return Ok(producer),
            Err(error) => patience.after(error).await?,
        }
    }
}

/// A producer that another one has replaced must not be able to write any more.
async fn check_fenced(mut producer: TransactionalProducer, random: &mut Random) -> Result<()> {
    let entry = Entry { producer: u32::MAX, transaction: 0, number: 0 };
    let sent = producer.send(TRANSACTIONS[0], vec![(0, vec![entry.record(random)])]).await;
    let refusal = sent.as_ref().err().and_then(|error| error.refusal());
    let is_fenced = matches!(
        refusal,
        Some(ResponseError::InvalidProducerEpoch | ResponseError::ProducerFenced)
    );
    ensure!(is_fenced, "a fenced producer was answered {sent:?}");
    Ok(())
}
