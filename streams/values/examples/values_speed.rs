//! Benchmark of memory and speed of current values of many keys, on a pool in this process: keys of
//! 16 bytes, values of 300 bytes, 100 records per batch.
//!
//! ```sh
//! cargo run --release -p values --example values_speed [KEYS] [SECONDS]
//! ```
//!
//! Rates are per second of thread CPU time. Other load on the machine affects only the CPU caches.

use std::sync::Arc;
use std::time::{Duration, Instant};

use block_device::BlockDevice;
use random::Random;
use record_batch::{BatchOptions, NewRecord, encode_batch};
use record_log::{Batch, NewTopic, Partition, Topic, TopicOptions};
use region::{Region, RegionSpec};
use values::{CheckpointStep, Follower, Opening, ScanStep, Secret};
use volumes::{Engine, EngineOptions, Reduction, VolumeSpec};

const VALUE_BYTES: usize = 300;
const BATCH_RECORDS: u64 = 100;
const SECRET: Secret = Secret([5; 16]);

/// Maximum bytes that a follower reads in one call.
const FOLLOW_BYTES: usize = 1 << 20;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|it| it.parse().expect("a number"));
    let key_count: u64 = arguments.next().unwrap_or(10_000_000);
    let duration = Duration::from_secs(arguments.next().unwrap_or(3));
    let memory = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
    let topic = make_topic(memory.path(), (key_count * 450).next_multiple_of(2 << 20) + (1 << 30));
    let partition = topic.partition(0).expect("it is there");
    let batch = publish(&topic, &partition, key_count);

    measure_produce(&partition, batch, duration);
    let before = resident_bytes();
    let (mut follower, _) = Follower::open(Arc::clone(&partition), SECRET).expect("it opens");
    let (mut records, begin) = (0, thread_time());
    loop {
        let followed = follower.follow(FOLLOW_BYTES, None).expect("it follows");
        records += followed.record_count;
        if !followed.is_behind {
            break;
        }
    }
    show("follow", records, thread_time() - begin);
    let figures = follower.values().figures();
    let keys = figures.key_count as f64;
    let resident = resident_bytes().saturating_sub(before);
    eprintln!("{:<24} {:8.2} bytes a key", "index", figures.index_bytes as f64 / keys);
    eprintln!("{:<24} {:8.2} bytes a key", "index, resident", resident as f64 / keys);
    measure_get(&follower, key_count, duration);
    measure_scan(&follower);
    measure_checkpoint(follower, &partition);
}

fn make_topic(folder: &std::path::Path, size_bytes: u64) -> Topic {
    let region = Region::open(&RegionSpec { path: folder.join("region"), size_bytes });
    let options = EngineOptions { lane_count: 1, fresh_secret: [7; 32] };
    let engine = Engine::open(region.expect("the region opens"), options);
    let engine = Arc::new(engine.expect("the pool opens"));
    let name = "log".parse().expect("a good name");
    let spec = VolumeSpec { reduction: Reduction::None, ..VolumeSpec::new(name, 64 << 40) };
    let device: Arc<dyn BlockDevice> = engine.create_volume(spec).expect("there is room");
    let options = TopicOptions { segment_bytes: 1 << 30 };
    let new = NewTopic { id: [1; 16], partition_count: 1, options, properties: &[] };
    Topic::create(device, &new).expect("it is made")
}

fn key(number: u64) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Publishes one record for each key. Returns the last batch.
fn publish(topic: &Topic, partition: &Partition, key_count: u64) -> Vec<u8> {
    let mut random = Random::new(1);
    let (mut value, mut batch) = (vec![0; VALUE_BYTES], Vec::new());
    for first in (0..key_count).step_by(usize::try_from(BATCH_RECORDS).expect("small")) {
        let records: Vec<NewRecord> = (first..key_count.min(first + BATCH_RECORDS))
            .map(|number| {
                random.fill(&mut value);
                NewRecord {
                    key: Some(key(number).to_vec().into()),
                    value: Some(value.clone().into()),
                    ..NewRecord::default()
                }
            })
            .collect();
        batch = encode_batch(&records, &BatchOptions::default()).expect("some records").to_vec();
        append(partition, &mut batch);
    }
    topic.flush().expect("it flushes");
    batch
}

fn append(partition: &Partition, bytes: &mut [u8]) {
    let (mut batch, _) = Batch::split_first(bytes).expect("a good batch");
    partition.append(&mut batch, 0).expect("there is room");
}

/// Measures the cost of appending a batch without a follower, as the baseline.
fn measure_produce(partition: &Partition, mut batch: Vec<u8>, duration: Duration) {
    let (begin, mut records) = (thread_time(), 0);
    while thread_time() - begin < duration && records < 2_000_000 {
        for _ in 0..64 {
            append(partition, &mut batch);
            records += usize::try_from(BATCH_RECORDS).expect("small");
        }
    }
    show("append", records, thread_time() - begin);
}

fn measure_get(follower: &Follower, key_count: u64, duration: Duration) {
    let (mut random, mut buffer, mut count) = (Random::new(2), Vec::new(), 0);
    let begin = thread_time();
    while thread_time() - begin < duration {
        for _ in 0..64 {
            let key = key(random.below(key_count));
            let found = follower.values().get(&key, 0, &mut buffer, |record| {
                assert_eq!(record.value.map(<[u8]>::len), Some(VALUE_BYTES));
            });
            assert!(found.expect("it reads").is_some());
            count += 1;
        }
    }
    show("get", count, thread_time() - begin);
}

fn measure_scan(follower: &Follower) {
    let (mut count, begin) = (0, thread_time());
    let snapshot = follower.values().snapshot().expect("it is there");
    eprintln!("{:<24} {:8.3} s", "snapshot", (thread_time() - begin).as_secs_f64());
    let mut scan = snapshot.scan_all();
    while scan.step(0, &mut |_| count += 1).expect("it reads") == ScanStep::More {}
    show("scan", count, thread_time() - begin);
}

fn measure_checkpoint(mut follower: Follower, partition: &Arc<Partition>) {
    let begin = Instant::now();
    assert!(follower.begin_checkpoint(1).expect("there is room"));
    let mut longest = Duration::ZERO;
    loop {
        let step_begin = Instant::now();
        let step = follower.step_checkpoint().expect("it writes");
        longest = longest.max(step_begin.elapsed());
        if step == CheckpointStep::Done {
            break;
        }
    }
    eprintln!("{:<24} {:8.3} s", "checkpoint, write", begin.elapsed().as_secs_f64());
    eprintln!("{:<24} {:8.3} s", "  its longest step", longest.as_secs_f64());
    drop(follower);
    let begin = Instant::now();
    let (mut follower, opening) = Follower::open(Arc::clone(partition), SECRET).expect("it opens");
    assert!(matches!(opening, Opening::FromCheckpoint { .. }), "{opening:?}");
    follower.follow(FOLLOW_BYTES, None).expect("it follows");
    assert!(follower.values().figures().is_ready);
    eprintln!("{:<24} {:8.3} s", "checkpoint, read", begin.elapsed().as_secs_f64());
}

fn show(what: &str, count: usize, time: Duration) {
    let rate = count as f64 / time.as_secs_f64() / 1e6;
    eprintln!("{what:<24} {rate:8.3} M/s a core");
}

/// Returns the CPU time of this thread.
fn thread_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    let nanoseconds = stat.split_whitespace().next().expect("the first number");
    Duration::from_nanos(nanoseconds.parse().expect("a number"))
}

/// Returns the resident memory of this process, without memory shared with the pool's file.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: Vec<u64> =
        statm.split_whitespace().map(|it| it.parse().expect("a number")).collect();
    4096 * (pages[1] - pages[2])
}
