//! Valid and invalid records of producers: acknowledged ones can be read, are found by time and
//! retained as configured.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use kafka_client::{
    Acks, Client, ConfigChange, FetchLimits, FetchPipe, FetchTarget, Isolation, NewTopic, OffsetAt,
    PreparedProduce, ProducePipe, ProduceTarget, Settings, error_name,
};
use record_batch::{
    BatchHeader, BatchOptions, Codec, HEADER_BYTES, NewRecord, encode_batch, set_max_timestamp,
};
use system::{Broker, wait_for};
use tokio::runtime::Runtime;

const TIME_LIMIT: Duration = Duration::from_secs(60);
const WEEK_MS: i64 = 7 * 24 * 3600 * 1000;

fn now_ms() -> Result<i64> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}

/// Returns a batch of records with these timestamps, with keys.
fn batch(times: &[i64], compression: Codec) -> Vec<u8> {
    let record = |time: &i64| NewRecord {
        timestamp_ms: *time,
        key: Some(vec![1, 2].into()),
        value: Some(vec![b'v'; 20].into()),
        ..NewRecord::default()
    };
    let records: Vec<_> = times.iter().map(record).collect();
    let options = BatchOptions { compression, ..BatchOptions::default() };
    encode_batch(&records, &options).expect("a batch").to_vec()
}

/// Returns a batch with the same header and other records.
fn with_records(batch: &[u8], records: &[u8]) -> Vec<u8> {
    BatchHeader::read(batch).expect("a header").with_records(records)
}

/// Returns a batch with the same records and a changed header.
fn with_header(batch: &[u8], change: impl FnOnce(&mut BatchHeader)) -> Vec<u8> {
    let mut header = BatchHeader::read(batch).expect("a header");
    change(&mut header);
    header.with_records(&batch[HEADER_BYTES..])
}

struct Topic {
    client: Client,
    name: &'static str,
}

impl Topic {
    async fn new(broker: &Broker, name: &'static str, configs: &[(&str, &str)]) -> Result<Self> {
        let client = Client::new(broker.address(), Settings::default());
        let configs = configs.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let topic = NewTopic { name: name.into(), partitions: Some(1), configs: configs.collect() };
        client.create_topic(&topic).await?;
        Ok(Self { client, name })
    }

    /// Sends one batch. Returns the offset of its first record, or the name of the error.
    async fn produce(&self, batch: &[u8]) -> Result<Result<i64, String>> {
        let target = ProduceTarget { topic: self.name.into(), partition: 0, acks: Acks::All };
        let mut pipe = ProducePipe::open(&self.client, &target).await?;
        pipe.sender.send(&mut PreparedProduce::new(&target, batch)?)?;
        match pipe.receiver.receive() {
            Ok(offset) => Ok(Ok(offset)),
            Err(error) => Ok(Err(error_name(error.refusal().context("no answer")?))),
        }
    }

    async fn offset(&self, at: OffsetAt) -> Result<Option<i64>> {
        let offsets = self.client.topic_offsets(self.name, at, Isolation::ReadUncommitted).await?;
        Ok(offsets.first().context("one partition")?.offset)
    }
}

#[test]
fn what_no_consumer_could_read_is_refused_and_not_kept() -> Result<()> {
    let mut broker = Broker::start("--embedded 128M")?;
    let now = now_ms()?;
    let good = batch(&[now, now], Codec::None);
    let zipped = batch(&[now, now], Codec::Gzip);
    let records = &good[HEADER_BYTES..];
    let first_bytes = usize::from(records[0] >> 1) + 1;
    let mut renumbered = records.to_vec();
    // The second record's offset delta is the third byte after its length.
    renumbered[first_bytes + 3] = 6;
    let mut backwards = records.to_vec();
    (backwards[3], backwards[first_bytes + 3]) = (records[first_bytes + 3], records[3]);
    let mut bad: Vec<(&str, Vec<u8>)> = vec![
        ("garbage under gzip", with_records(&zipped, b"this is not gzip")),
        ("gzip that is cut", with_records(&zipped, &zipped[HEADER_BYTES..zipped.len() - 9])),
        ("no records", with_records(&good, &[])),
        ("one record of two", with_records(&good, &records[..first_bytes])),
        ("three records of two", with_records(&good, &[records, &records[..first_bytes]].concat())),
        ("offsets with a gap", with_records(&good, &renumbered)),
        ("offsets that go backwards", with_records(&good, &backwards)),
        ("a record that is cut", with_records(&good, &records[..records.len() - 1])),
        ("no codec", with_header(&good, |it| it.attributes |= 7)),
        ("a delete horizon", with_header(&good, |it| it.attributes |= 1 << 6)),
        ("a count that is wrong", with_header(&good, |it| it.record_count = 3)),
        ("a last offset before the first", with_header(&good, |it| it.last_offset_delta = -1)),
    ];
    for codec in [Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let whole = batch(&[now, now], codec);
        bad.push((codec.name(), with_records(&whole, &[0x55; 40])));
    }
    Runtime::new()?.block_on(async {
        let topic = Topic::new(&broker, "checked", &[]).await?;
        for (what, batch) in &bad {
            let answer = topic.produce(batch).await?;
            ensure!(answer == Err("INVALID_RECORD".into()), "{what}: {answer:?}");
        }
        for (number, codec) in Codec::ALL.into_iter().enumerate() {
            let answer = topic.produce(&batch(&[now, now], codec)).await?;
            ensure!(answer == Ok(2 * i64::try_from(number)?), "{codec:?}: {answer:?}");
        }
        Ok(())
    })?;
    broker.stop()
}

#[test]
fn a_topics_rules_for_keys_and_times_hold() -> Result<()> {
    let mut broker = Broker::start("--embedded 128M")?;
    let now = now_ms()?;
    let day = 24 * 3600 * 1000;
    let without_key = {
        let record = NewRecord { timestamp_ms: now, ..NewRecord::default() };
        encode_batch(&[record], &BatchOptions::default())?.to_vec()
    };
    // The last of three records, with each codec.
    let with_one_of_three = |compression: Codec| -> Result<Vec<u8>> {
        let keys = [Some("a"), Some("b"), None];
        let record = |key: Option<&'static str>| NewRecord {
            timestamp_ms: now,
            key: key.map(Into::into),
            value: Some("v".into()),
            ..NewRecord::default()
        };
        let options = BatchOptions { compression, ..BatchOptions::default() };
        Ok(encode_batch(&keys.map(record), &options)?.to_vec())
    };
    let append_time = with_header(&batch(&[now], Codec::None), |it| it.attributes |= 1 << 3);
    Runtime::new()?.block_on(async {
        let compacted = Topic::new(&broker, "compacted", &[("cleanup.policy", "compact")]).await?;
        let answer = compacted.produce(&without_key).await?;
        ensure!(answer == Err("INVALID_RECORD".into()), "without a key: {answer:?}");
        for codec in Codec::ALL {
            let answer = compacted.produce(&with_one_of_three(codec)?).await?;
            ensure!(answer == Err("INVALID_RECORD".into()), "one without a key: {answer:?}");
        }
        ensure!(compacted.produce(&batch(&[now], Codec::None)).await? == Ok(0), "all with keys");
        // The rule is the topic's current one, also if the topic was created without it.
        let later = Topic::new(&broker, "later", &[]).await?;
        ensure!(later.produce(&without_key).await? == Ok(0), "no rule");
        let policy = ConfigChange { name: "cleanup.policy".into(), value: Some("compact".into()) };
        later.client.alter_topic_configs(later.name, &[policy]).await?;
        let answer = later.produce(&without_key).await?;
        ensure!(answer == Err("INVALID_RECORD".into()), "since it is compacted: {answer:?}");
        let plain = Topic::new(&broker, "plain", &[]).await?;
        ensure!(plain.produce(&without_key).await? == Ok(0), "no rule");
        for codec in Codec::ALL {
            let late = plain.produce(&batch(&[now, now + 3_650 * day], codec)).await?;
            ensure!(late == Err("INVALID_TIMESTAMP".into()), "ten years ahead: {late:?}");
        }
        let answer = plain.produce(&append_time).await?;
        ensure!(answer == Err("INVALID_TIMESTAMP".into()), "the broker's time: {answer:?}");
        ensure!(plain.produce(&batch(&[now - 3_650 * day], Codec::None)).await? == Ok(1), "old");
        let rule = ("message.timestamp.before.max.ms", "86400000");
        let recent = Topic::new(&broker, "recent", &[rule]).await?;
        let answer = recent.produce(&batch(&[now - 2 * day], Codec::None)).await?;
        ensure!(answer == Err("INVALID_TIMESTAMP".into()), "two days old: {answer:?}");
        let rule = ("message.timestamp.after.max.ms", "172800000");
        let ahead = Topic::new(&broker, "ahead", &[rule]).await?;
        for (days, expected) in [(1, Ok(0)), (3, Err("INVALID_TIMESTAMP".to_owned()))] {
            let answer = ahead.produce(&batch(&[now + days * day], Codec::None)).await?;
            ensure!(answer == expected, "{days} days ahead of two: {answer:?}");
        }
        let times = [("message.timestamp.type", "LogAppendTime")];
        let appended = Topic::new(&broker, "appended", &times).await?;
        let answer = appended.produce(&batch(&[now + 3_650 * day], Codec::None)).await?;
        ensure!(answer == Ok(0), "the producer's time does not count: {answer:?}");
        Ok(())
    })?;
    broker.stop()
}

/// Sarama and others leave the header's maximum timestamp unset.
#[test]
fn records_are_kept_and_found_by_their_own_times() -> Result<()> {
    let mut broker = Broker::start("--embedded 128M --topic-default retention.ms=604800000")?;
    let now = now_ms()?;
    Runtime::new()?.block_on(async {
        let topic = Topic::new(&broker, "unset", &[("segment.bytes", "1048576")]).await?;
        for (number, codec) in Codec::ALL.into_iter().enumerate() {
            let at = now - 1_000 + 10 * i64::try_from(number)?;
            let mut unset = batch(&[at, at + 2, at + 1], codec);
            set_max_timestamp(&mut unset, [-1, 0, i64::MAX][number % 3]);
            let offset = 3 * i64::try_from(number)?;
            ensure!(topic.produce(&unset).await? == Ok(offset), "{codec:?}");
            let found = topic.offset(OffsetAt::Time(at + 2)).await?;
            ensure!(found == Some(offset + 1), "{codec:?}: {found:?}");
        }
        let target =
            FetchTarget { topic: "unset".into(), partition: 0, limits: FetchLimits::default() };
        let mut pipe = FetchPipe::open(&topic.client, &target).await?;
        pipe.sender.send(0)?;
        let mut batches = pipe.receiver.receive()?.batches;
        let mut number = 0;
        while let Some(batch) = batches.next_batch()? {
            let header = BatchHeader::read(batch.bytes).context("a header")?;
            ensure!(header.max_timestamp == now - 1_000 + 10 * number + 2, "{header:?}");
            ensure!(record_batch::has_valid_checksum(batch.bytes), "the checksum of {header:?}");
            number += 1;
        }
        ensure!(number == 5, "{number} batches");
        Ok(())
    })?;
    broker.stop()
}

#[test]
fn records_without_times_are_kept_for_as_long_as_the_topic_says() -> Result<()> {
    let mut broker = Broker::start("--embedded 128M --topic-default segment.ms=1")?;
    Runtime::new()?.block_on(async {
        let week = WEEK_MS.to_string();
        let kept = Topic::new(&broker, "kept", &[("retention.ms", &week)]).await?;
        let undated = batch(&[-1, -1], Codec::None);
        // Each pass of retention, after which another topic is empty, closes a segment of this one.
        for (number, brief) in (0..).zip(["first", "second"]) {
            ensure!(kept.produce(&undated).await? == Ok(2 * number), "batch {number}");
            let topic = Topic::new(&broker, brief, &[("retention.ms", "1000")]).await?;
            ensure!(topic.produce(&undated).await? == Ok(0), "the topic {brief}");
            wait_for("the other topic to be empty", TIME_LIMIT, || {
                let metrics = broker.ask("/metrics")?;
                let size = format!("memlane_broker_topic_size_bytes{{topic=\"{brief}\"}} 0\n");
                Ok(metrics.contains(&size))
            })?;
        }
        let start = kept.offset(OffsetAt::Earliest).await?;
        ensure!(start == Some(0), "begins at {start:?}");
        Ok(())
    })?;
    broker.stop()
}

#[test]
fn a_batch_may_be_as_long_as_the_topic_or_the_broker_says_up_to_31_mib() -> Result<()> {
    const MOST: usize = 31 << 20;
    let long = |bytes: usize| {
        let record = |length| NewRecord {
            key: Some("k".into()),
            value: Some(vec![b'v'; length].into()),
            ..NewRecord::default()
        };
        let encoded = |length| encode_batch(&[record(length)], &BatchOptions::default());
        let extra = encoded(bytes - 100).expect("a batch").len() - (bytes - 100);
        encoded(bytes - extra).expect("a batch").to_vec()
    };
    let mut broker = Broker::start("--embedded 256M --topic-default max.message.bytes=2000")?;
    Runtime::new()?.block_on(async {
        let by_default = Topic::new(&broker, "default", &[]).await?;
        let own = [("max.message.bytes", &*MOST.to_string())];
        let own = Topic::new(&broker, "own", &own).await?;
        for (topic, most) in [(by_default, 2_000), (own, MOST)] {
            ensure!(long(most).len() == most);
            ensure!(topic.produce(&long(most)).await? == Ok(0), "{most} bytes");
            let answer = topic.produce(&long(most + 1)).await?;
            ensure!(answer == Err("MESSAGE_TOO_LARGE".into()), "{} bytes: {answer:?}", most + 1);
        }
        let more = (MOST + 1).to_string();
        let refused = Topic::new(&broker, "more", &[("max.message.bytes", &*more)]).await;
        let told = format!("{:#}", refused.err().context("it is refused")?);
        ensure!(told.contains("max.message.bytes"), "{told}");
        Ok(())
    })?;
    broker.stop()
}
