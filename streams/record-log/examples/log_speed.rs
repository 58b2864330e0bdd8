//! Throughput at which one thread appends to a log and reads from it, on a pool in this process:
//! messages of 512 bytes, 128 per batch of 64 KiB. The baseline copies each batch and computes its
//! CRC-32C.
//!
//! ```sh
//! cargo run --release -p record-log --example log_speed [SECONDS]
//! ```
//!
//! Rates are per second of thread CPU time. Other load on the machine affects only the CPU caches.

use std::sync::Arc;
use std::time::Duration;

use block_device::BlockDevice;
use random::Random;
use record_batch::HEADER_BYTES;
use record_log::{Batch, NewTopic, Partition, Topic, TopicOptions};
use region::{Region, RegionSpec};
use volumes::{Engine, EngineOptions, Reduction, VolumeSpec};

const MESSAGE_BYTES: usize = 512;
const MESSAGES: i32 = 128;
const BATCH_BYTES: usize = 64 << 10;

/// Number of different batches, so that deduplication finds few equal pages. They exceed the size
/// of CPU caches.
const BATCH_COUNT: usize = 1_024;

/// Retention: older records are deleted.
const LOG_BYTES_MAX: i64 = 512 << 20;
const POOL_BYTES: u64 = 1 << 30;

fn main() {
    let seconds = std::env::args().nth(1).map_or(3, |it| it.parse().expect("a number of seconds"));
    let duration = Duration::from_secs(seconds);
    let mut batches: Vec<Vec<u8>> = (0..BATCH_COUNT as u64).map(batch).collect();
    let mut copy = vec![0; BATCH_BYTES * BATCH_COUNT];
    let mut number = 0;
    show("floor: copy and CRC-32C", duration, || {
        let bytes = &batches[number % BATCH_COUNT];
        let place = number % BATCH_COUNT * BATCH_BYTES;
        copy[place..place + BATCH_BYTES].copy_from_slice(bytes);
        std::hint::black_box(crc32c(&bytes[21..]));
        number += 1;
        1
    });
    for reduction in [Reduction::None, Reduction::Full] {
        let memory = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
        let path = memory.path().join("region");
        let region = Region::open(&RegionSpec { path, size_bytes: POOL_BYTES });
        let options = EngineOptions { lane_count: 1, fresh_secret: [7; 32] };
        let engine = Engine::open(region.expect("the region opens"), options);
        let engine = Arc::new(engine.expect("the pool opens"));
        let name = "log".parse().expect("a good name");
        let spec = VolumeSpec { reduction, ..VolumeSpec::new(name, 64 << 40) };
        let device: Arc<dyn BlockDevice> = engine.create_volume(spec).expect("there is room");
        measure(device, &format!("{reduction:?}"), &mut batches, duration);
    }
}

fn measure(
    device: Arc<dyn BlockDevice>,
    reduction: &str,
    batches: &mut [Vec<u8>],
    duration: Duration,
) {
    let options = TopicOptions { segment_bytes: 64 << 20 };
    let new = NewTopic { id: [1; 16], partition_count: 1, options, properties: &[] };
    let topic = Topic::create(device, &new).expect("it is made");
    let partition = topic.partition(0).expect("it is there");
    let mut number = 0;
    show(&format!("append, reduction {reduction}"), duration, || {
        append(&partition, &mut batches[number % BATCH_COUNT]);
        number += 1;
        // Like a broker: one flush for many requests, and retention.
        if number.is_multiple_of(64) {
            topic.flush().expect("it flushes");
            let batch_bytes = i64::try_from(BATCH_BYTES).expect("small");
            let kept = LOG_BYTES_MAX / batch_bytes * i64::from(MESSAGES);
            let start = partition.stable_offset() - kept;
            if number.is_multiple_of(1_024) && start > 0 {
                partition.delete_before(start).expect("it deletes");
            }
        }
        1
    });
    topic.flush().expect("it flushes");
    let (mut offset, mut buffer) = (partition.start_offset(), Vec::new());
    show(&format!("read, reduction {reduction}"), duration, || {
        let range = partition.read(offset, 1 << 20, &mut buffer).expect("it reads");
        let mut count = 0;
        for header in record_batch::headers(&buffer[range]) {
            offset = header.next_offset();
            count += 1;
        }
        if offset >= partition.stable_offset() {
            offset = partition.start_offset();
        }
        count
    });
}

/// Verifies and appends a batch, like a broker.
fn append(partition: &Partition, bytes: &mut [u8]) {
    let (mut batch, _) = Batch::split_first(bytes).expect("a good batch");
    partition.append(&mut batch, 0).expect("there is room");
}

/// Calls `work`, which returns its number of batches, until the thread's CPU time is used up.
fn show(what: &str, duration: Duration, mut work: impl FnMut() -> u64) {
    let (begin, mut batches) = (thread_time(), 0);
    let seconds = loop {
        for _ in 0..64 {
            batches += work();
        }
        let passed = thread_time() - begin;
        if passed >= duration {
            break passed.as_secs_f64();
        }
    };
    let rate = batches as f64 * f64::from(MESSAGES) / seconds / 1e6;
    let batch_us = seconds * 1e6 / batches as f64;
    eprintln!("{what:<28} {rate:8.2} M messages/s a core, {batch_us:7.2} us a batch");
}

/// Returns the CPU time of this thread.
fn thread_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    let nanoseconds = stat.split_whitespace().next().expect("the first number");
    Duration::from_nanos(nanoseconds.parse().expect("a number"))
}

fn crc32c(bytes: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes)
}

/// Builds a batch of random records of 512 bytes each. The first one contains the batch's header.
fn batch(seed: u64) -> Vec<u8> {
    let message_count = usize::try_from(MESSAGES).expect("small");
    assert_eq!(message_count * MESSAGE_BYTES, BATCH_BYTES);
    let mut bytes = vec![0; BATCH_BYTES];
    Random::new(seed).fill(&mut bytes[HEADER_BYTES..]);
    let length = i32::try_from(BATCH_BYTES - 12).expect("short");
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    bytes[16] = 2;
    bytes[23..27].copy_from_slice(&(MESSAGES - 1).to_be_bytes());
    bytes[43..51].copy_from_slice(&(-1_i64).to_be_bytes());
    bytes[57..61].copy_from_slice(&MESSAGES.to_be_bytes());
    let crc = u32::try_from(crc32c(&bytes[21..])).expect("32 bits");
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes
}
