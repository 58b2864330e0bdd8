//! Tests that flushes of volumes that are not mirrored do not wait for the image store, and that a
//! promotion never claims to have them.

mod support;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use block_device::BlockDevice;
use durable_set::{DurableError, DurableErrorKind, MirrorPolicy, Shipped, Shipper};
use standby::{LossPolicy, Promoted};
use support::{Shared, Standby, Writer, noise, read, write};
use volumes::{Durability, Volume, VolumeMirror};

const NOW: u64 = 1_700_000_000_000_000;
const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(20);

/// Creates a writer with two volumes, which has saved an image under its claim.
fn begin(shared: &Shared) -> (Writer, Shipper, Arc<Volume>) {
    let writer = shared.writer();
    writer.create("log", Durability::Journal);
    let scratch = writer.create("scratch", Durability::Journal);
    writer.save();
    let shipper = Shipper::new(Arc::clone(&writer.set));
    (writer, shipper, scratch)
}

fn ship(shipper: &mut Shipper) {
    let shipped = shipper.ship(NOW).expect("the store answers");
    assert!(matches!(shipped, Shipped::All { .. }), "{shipped:?}");
}

fn await_waiting(writer: &Writer, count: usize) {
    while writer.set.mirror().status().waiting != count {
        thread::yield_now();
    }
}

/// Changes the setting of a volume. `work` is called while the change waits for the store.
fn set_during(
    writer: &Writer,
    name: &'static str,
    mirror: VolumeMirror,
    work: impl FnOnce(),
) -> Result<(), DurableError> {
    let set = Arc::clone(&writer.set);
    let change = thread::spawn(move || set.set_mirror(name, mirror));
    await_waiting(writer, 1);
    work();
    change.join().expect("no panic")
}

/// Excludes the volume `scratch` with the store's knowledge.
fn exclude(writer: &Writer, shipper: &mut Shipper) {
    let set = set_during(writer, "scratch", VolumeMirror::No, || ship(shipper));
    set.expect("the store has it");
}

/// Flushes on another thread, and checks that it waits for the store until `work` is done.
fn check_waits(writer: &Writer, volume: &Arc<Volume>, work: impl FnOnce()) {
    let before = writer.set.mirror().status().waiting;
    let flushed = Arc::clone(volume);
    let flush = thread::spawn(move || flushed.flush());
    while writer.set.mirror().status().waiting == before && !flush.is_finished() {
        thread::yield_now();
    }
    assert!(!flush.is_finished(), "a flush did not wait: {:?}", flush.join());
    work();
    flush.join().expect("no panic").expect("the store has it");
}

fn promote(standby: &Standby) -> Promoted {
    let (loss, writer) = (LossPolicy::Refuse, 1_u128 << 100);
    let promoted = standby.follower().promote_after(writer, loss, &mut |_| Ok(()), &mut |_| Ok(()));
    promoted.expect("nothing is missing")
}

#[test]
fn flushes_of_a_volume_that_is_not_mirrored_do_not_wait_and_a_promotion_names_it() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, scratch) = begin(&shared);
    exclude(&writer, &mut shipper);
    let log = writer.volume("log");
    write(&log, 1, 1);
    check_waits(&writer, &log, || ship(&mut shipper));
    // The store gets nothing of this.
    write(&scratch, 1, 1);
    scratch.flush().expect("the journal has it");
    let standby = shared.standby();
    let promoted = promote(&standby);
    assert!(promoted.is_complete, "{promoted:?}");
    assert_eq!(promoted.unmirrored, ["scratch"]);
    let log = standby.engine().volume("log").expect("it is there");
    assert_eq!(log.mirror(), VolumeMirror::Yes);
    assert!(read(&log, 1) == Ok(noise(1)), "a mirrored flush is lost");
}

#[test]
fn flushes_wait_until_the_store_has_the_setting() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, scratch) = begin(&shared);
    let set = set_during(&writer, "scratch", VolumeMirror::No, || {
        write(&scratch, 1, 1);
        check_waits(&writer, &scratch, || ship(&mut shipper));
    });
    set.expect("the store has it");
    let standby = shared.standby();
    assert_eq!(promote(&standby).unmirrored, ["scratch"]);
    let scratch = standby.engine().volume("scratch").expect("it is there");
    assert!(read(&scratch, 1) == Ok(noise(1)), "a mirrored flush is lost");
}

#[test]
fn a_setting_that_is_not_in_the_store_is_not_relied_on_after_a_restart_either() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, SHORT);
    let (writer, shipper, scratch) = begin(&shared);
    let refused = writer.set.set_mirror("scratch", VolumeMirror::No).expect_err("nobody ships");
    assert_eq!(refused.kind, DurableErrorKind::NotMirrored);
    assert_eq!(scratch.mirror(), VolumeMirror::No);
    writer.set.maintain().expect("the disk works");
    writer.set.maintain().expect("the disk works");
    drop((shipper, scratch));
    let writer = shared.restart(writer);
    let scratch = writer.volume("scratch");
    let mut shipper = Shipper::new(Arc::clone(&writer.set));
    write(&scratch, 1, 1);
    check_waits(&writer, &scratch, || {
        writer.save();
        ship(&mut shipper);
    });
    // Now the store has it. Maintenance notes what to wait for, and finds it there.
    writer.set.maintain().expect("the disk works");
    ship(&mut shipper);
    writer.set.maintain().expect("the disk works");
    write(&scratch, 2, 2);
    scratch.flush().expect("it does not wait");
    drop((shipper, scratch));
    let writer = shared.restart(writer);
    let scratch = writer.volume("scratch");
    write(&scratch, 3, 3);
    scratch.flush().expect("the store knew it before the restart");
}

#[test]
fn a_volume_that_is_mirrored_again_loses_nothing_that_was_flushed_before() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, scratch) = begin(&shared);
    exclude(&writer, &mut shipper);
    write(&scratch, 1, 1);
    scratch.flush().expect("it does not wait");
    let set = set_during(&writer, "scratch", VolumeMirror::Yes, || {
        write(&scratch, 2, 2);
        check_waits(&writer, &scratch, || ship(&mut shipper));
    });
    set.expect("the store has it");
    let standby = shared.standby();
    let promoted = promote(&standby);
    assert_eq!((promoted.is_complete, promoted.unmirrored), (true, Vec::new()));
    let scratch = standby.engine().volume("scratch").expect("it is there");
    for block in 1..=2 {
        assert!(read(&scratch, block) == Ok(noise(block)), "block {block}");
    }
}

#[test]
fn a_clone_is_as_its_source_once_the_store_has_it() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, _) = begin(&shared);
    exclude(&writer, &mut shipper);
    let set = Arc::clone(&writer.set);
    let cloning =
        thread::spawn(move || set.clone_volume("scratch", "copy".parse().expect("a good name")));
    await_waiting(&writer, 1);
    // Flushes of a clone need an image that has it.
    writer.save();
    ship(&mut shipper);
    let copy = cloning.join().expect("no panic").expect("the store has it");
    assert_eq!(copy.mirror(), VolumeMirror::No);
    write(&copy, 1, 1);
    copy.flush().expect("it does not wait");
    // One that the store has not seen is not relied on.
    writer
        .engine
        .clone_volume("copy", "other".parse().expect("a good name"))
        .expect("there is room");
    assert!(writer.engine.has_leaving());
}

#[test]
fn the_setting_comes_with_images_and_with_a_change_of_the_class() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, _) = begin(&shared);
    exclude(&writer, &mut shipper);
    let number = writer.save();
    let standby = shared.standby();
    standby.follow_to(number);
    let of_standby = |name| standby.engine().volume(name).expect("it is there").mirror();
    assert_eq!(of_standby("scratch"), VolumeMirror::No);
    assert_eq!(of_standby("log"), VolumeMirror::Yes);
    // As class `ram` it is in no later image, so the store does not know it any more.
    writer.engine.set_durability("scratch", Durability::Ram).expect("it is there");
    writer.engine.set_durability("scratch", Durability::Journal).expect("it is there");
    assert!(writer.engine.has_leaving());
}

#[test]
fn flushes_of_a_volume_that_is_not_mirrored_fail_once_the_store_was_taken_over() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, scratch) = begin(&shared);
    exclude(&writer, &mut shipper);
    promote(&shared.standby());
    write(&scratch, 1, 1);
    scratch.flush().expect("the writer does not know it yet");
    shipper.ship(NOW).expect_err("another has claimed the store");
    scratch.flush().expect_err("another has claimed the store");
}
