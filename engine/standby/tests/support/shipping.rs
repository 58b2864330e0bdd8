//! Writers that ship their journal, with or without mirrored flushes, and promotions after it.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use block_device::{BlockDevice, DeviceError};
use durable_set::{Shipped, Shipper};
use standby::{LossPolicy, Promoted, StandbyError};
use volumes::{Durability, Volume};

use super::{Shared, Standby, Writer};

/// Time of shipping, in microseconds.
pub(crate) const NOW: u64 = 1_700_000_000_000_000;

/// Time limit of flushes that nothing reaches.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// Time limit of flushes that fail, or are acknowledged alone.
pub(crate) const SHORT: Duration = Duration::from_millis(20);

/// Time limit of waits that only a hang exceeds.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Creates a writer with volumes of class `journal` that has saved an image under its claim, and
/// its shipper.
pub(crate) fn begin(shared: &Shared, names: &[&str]) -> (Writer, Shipper) {
    let writer = shared.writer();
    for name in names {
        writer.create(name, Durability::Journal);
    }
    writer.save();
    let shipper = Shipper::new(Arc::clone(&writer.set));
    (writer, shipper)
}

#[track_caller]
pub(crate) fn ship(shipper: &mut Shipper) {
    ship_at(shipper, NOW);
}

/// Ships the journal at a time. Returns the number of extracts.
#[track_caller]
pub(crate) fn ship_at(shipper: &mut Shipper, now: u64) -> usize {
    match shipper.ship(now).expect("the store answers") {
        Shipped::All { extracts, .. } => extracts,
        other => panic!("{other:?}"),
    }
}

/// Waits until this many flushes and changes wait for the store.
#[track_caller]
pub(crate) fn await_waiting(writer: &Writer, count: usize) {
    let begun = Instant::now();
    loop {
        let waiting = writer.set.mirror().status().waiting;
        if waiting == count {
            return;
        }
        assert!(begun.elapsed() < TIME_LIMIT, "{waiting} wait for the store, not {count}");
        thread::yield_now();
    }
}

/// Flushes on another thread, and calls `work` once the flush waits for the store.
pub(crate) fn flush_during(
    writer: &Writer,
    volume: &Arc<Volume>,
    work: impl FnOnce(),
) -> Result<(), DeviceError> {
    let before = writer.set.mirror().status().waiting;
    let flushed = Arc::clone(volume);
    let flush = thread::spawn(move || flushed.flush());
    while writer.set.mirror().status().waiting == before && !flush.is_finished() {
        thread::yield_now();
    }
    assert!(!flush.is_finished(), "a flush did not wait: {:?}", flush.join());
    work();
    flush.join().expect("no panic")
}

pub(crate) fn promote(standby: &Standby, loss: LossPolicy) -> Result<Promoted, StandbyError> {
    standby.follower().promote_after(1_u128 << 100, loss, &mut |_| Ok(()), &mut |_| Ok(()))
}
