//! Memory usage of an open topic, without its batches.

mod support;

use std::sync::Arc;

use block_device::BlockDevice;
use record_log::{NewTopic, SEGMENT_BYTES_MAX, Topic, TopicOptions};
use support::{Disk, NO_PRODUCER, append, batch, new_topic};

const PARTITION_COUNT: u32 = 1_000;

/// Memory limit of the broker for this number of partitions, without the pool.
const BYTES_MAX: u64 = 60 << 20;

/// Returns the resident memory of this process.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages = statm.split_whitespace().nth(1).expect("the second number");
    4096 * pages.parse::<u64>().expect("a number")
}

#[test]
fn a_thousand_partitions_that_are_written_to_fit_the_brokers_memory() {
    let disk = Disk::new();
    let device: Arc<dyn BlockDevice> = Arc::clone(&disk) as _;
    let options = TopicOptions { segment_bytes: SEGMENT_BYTES_MAX };
    let new = NewTopic { options, ..new_topic(PARTITION_COUNT) };
    let topic = Topic::create(device, &new).expect("it is made");
    let (resident, blocks) = (resident_bytes(), disk.block_count());
    for number in 0..PARTITION_COUNT {
        let partition = topic.partition(number).expect("it is there");
        for _ in 0..4 {
            append(&partition, &mut batch(NO_PRODUCER, 100, 0, &[1; 20_000])).expect("room");
        }
    }
    topic.flush().expect("it flushes");
    // The simulated disk stores current and stable blocks.
    let disk_bytes = 2 * 4096 * (disk.block_count() - blocks) as u64;
    let taken = resident_bytes().saturating_sub(resident + disk_bytes);
    eprintln!("{PARTITION_COUNT} partitions take {} KiB beside their batches", taken >> 10);
    assert!(taken < BYTES_MAX, "{taken} bytes");
}
