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
use crate::stage::{
    Act, BRIEF, INPUT, KEYED, PARTITION_COUNT, PLAIN, Patience, Stage, TRANSACTIONS, add, count,
};

/// Maximum number of batches of one partition in flight.
const IN_FLIGHT_MAX: u64 = 5;
const RECORDS_PER_BATCH_MAX: u64 = 6;
const SENDS_PER_TRANSACTION_MAX: u64 = 4;

/// Number of records of each partition that fill several segments.
const ALONE_COUNT_MIN: u64 = 600;

/// Longer than any client waits for the broker, so that no transaction times out.
const TRANSACTION_TIME_MAX: Duration = Duration::from_secs(300);

/// Role of a client in a storm.
#[derive(Clone, Debug)]
pub(crate) struct Cast {
    pub(crate) name: String,
    /// Number that identifies its records.
    pub(crate) number: u32,
    pub(crate) seed: u64,
}

/// Next record numbers of a producer for each partition of a topic.
#[derive(Default)]
struct Numbers {
    next: [u64; PARTITION_COUNT as usize],
}

impl Numbers {
    fn batch(&mut self, producer: u32, partition: i32, random: &mut Random) -> Vec<Entry> {
        let length = 1 + random.below(RECORDS_PER_BATCH_MAX);
        let next = &mut self.next[usize::try_from(partition).unwrap_or_default()];
        let numbers = *next..*next + length;
        *next += length;
        numbers.map(|number| Entry { producer, transaction: 0, number }).collect()
    }

    /// Records that all numbered records may exist.
    fn attempt(&self, stage: &Stage, topic: &str, producer: u32) {
        for (partition, count) in (0..).zip(self.next) {
            stage.books.attempt((topic.to_owned(), partition), producer, count);
        }
    }

    /// Records that all numbered records are acknowledged.
    fn acknowledge(&self, stage: &Stage, topic: &str, producer: u32) {
        for (partition, count) in (0..).zip(self.next) {
            stage.books.acknowledge((topic.to_owned(), partition), producer, count);
        }
    }
}

/// Sends several batches in flight to each partition, which the client repeats until they are
/// answered.
pub(crate) async fn send_idempotently(stage: Arc<Stage>, cast: Cast) -> Result<()> {
    let mut random = Random::new(cast.seed);
    let settings = ProducerSettings {
        is_idempotent: true,
        compression: random.pick(&Compression::ALL),
        ..ProducerSettings::default()
    };
    let mut producer = Producer::new(stage.client(&cast.name), INPUT, settings).await?;
    let mut numbers = Numbers::default();
    while stage.act() == Act::Producing {
        let mut batches = Vec::new();
        for partition in 0..PARTITION_COUNT {
            for _ in 0..random.below(IN_FLIGHT_MAX + 1) {
                let batch = numbers.batch(cast.number, partition, &mut random);
                batches.push((partition, records(&batch)));
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

/// Sends batches that are repeated if they were not answered, and may be stored twice.
pub(crate) async fn send_plainly(stage: Arc<Stage>, cast: Cast) -> Result<()> {
    let mut random = Random::new(cast.seed);
    let compression = random.pick(&Compression::ALL);
    let settings = ProducerSettings { compression, ..ProducerSettings::default() };
    let client = stage.client(&cast.name);
    let mut producer = Producer::new(Arc::clone(&client), PLAIN, settings).await?;
    let mut numbers = Numbers::default();
    while stage.act() == Act::Producing {
        let mut batches = Vec::new();
        for partition in 0..PARTITION_COUNT {
            let batch = numbers.batch(cast.number, partition, &mut random);
            batches.push((partition, records(&batch)));
        }
        let record_count = batches.iter().map(|(_, records)| records.len()).sum();
        let mut patience = Patience::new("cannot send plainly");
        while let Err(error) = producer.send(batches.clone()).await {
            patience.after(error).await?;
            count(&stage.counts.repeated);
            // The previous connection may have ended with the broker.
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

fn records(entries: &[Entry]) -> Vec<NewRecord> {
    entries.iter().map(|entry| entry.record()).collect()
}

/// Sends batches as the only producer of `KEYED` or `BRIEF`, so that a record's offset is its
/// number.
pub(crate) async fn send_alone(stage: Arc<Stage>, cast: Cast, topic: &'static str) -> Result<()> {
    let mut random = Random::new(cast.seed);
    // Retention by size is verified with uncompressed sizes.
    let compression =
        if topic == BRIEF { Compression::None } else { random.pick(&Compression::ALL) };
    let settings =
        ProducerSettings { is_idempotent: true, compression, ..ProducerSettings::default() };
    let mut producer = Producer::new(stage.client(&cast.name), topic, settings).await?;
    let mut numbers = Numbers::default();
    let is_little = |numbers: &Numbers| numbers.next.iter().any(|it| *it < ALONE_COUNT_MIN);
    while stage.act() == Act::Producing || is_little(&numbers) {
        let (mut batches, mut expected) = (Vec::new(), Vec::new());
        for partition in 0..PARTITION_COUNT {
            for _ in 0..random.below(IN_FLIGHT_MAX + 1) {
                let batch = numbers.batch(cast.number, partition, &mut random);
                expected.push((partition, i64::try_from(batch[0].number)?));
                let records = batch.iter().map(|it| match topic {
                    KEYED => it.record_or_tombstone(),
                    _ => it.record(),
                });
                batches.push((partition, records.collect()));
            }
        }
        numbers.attempt(&stage, topic, cast.number);
        let offsets = producer.send(batches).await.context("cannot send alone")?;
        ensure!(offsets == expected, "{topic:?}: {offsets:?} instead of {expected:?}");
        numbers.acknowledge(&stage, topic, cast.number);
        stage.step(&cast.name).await;
    }
    Ok(())
}

/// Outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Commit,
    Abort,
    /// Another producer with the same id takes over in the middle.
    Takeover,
}

/// Sends transactions over several topics and partitions.
pub(crate) async fn send_in_transactions(stage: Arc<Stage>, cast: Cast) -> Result<()> {
    let mut random = Random::new(cast.seed);
    let mut producer = transactional(&stage, &cast.name, &mut random).await?;
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
                    records.push(entry.record());
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
                let next = transactional(&stage, &cast.name, &mut random).await?;
                let before = std::mem::replace(&mut producer, next);
                check_fenced(before).await?;
                count(&stage.counts.takeovers);
            }
        }
        stage.step(&cast.name).await;
    }
    Ok(())
}

pub(crate) async fn transactional(
    stage: &Stage,
    id: &str,
    random: &mut Random,
) -> Result<TransactionalProducer> {
    let compression = random.pick(&Compression::ALL);
    let settings = TransactionSettings { compression, time_max: TRANSACTION_TIME_MAX };
    let client = stage.client(id);
    let mut patience = Patience::new("cannot begin as transactional producer");
    loop {
        match TransactionalProducer::new(Arc::clone(&client), id, settings).await {
            Ok(producer) => return Ok(producer),
            Err(error) => patience.after(error).await?,
        }
    }
}

/// Checks that a replaced producer cannot write any more.
async fn check_fenced(mut producer: TransactionalProducer) -> Result<()> {
    let entry = Entry { producer: u32::MAX, transaction: 0, number: 0 };
    let sent = producer.send(TRANSACTIONS[0], vec![(0, vec![entry.record()])]).await;
    let refusal = sent.as_ref().err().and_then(|error| error.refusal());
    let is_fenced = matches!(
        refusal,
        Some(ResponseError::InvalidProducerEpoch | ResponseError::ProducerFenced)
    );
    ensure!(is_fenced, "a fenced producer was answered {sent:?}");
    Ok(())
}
