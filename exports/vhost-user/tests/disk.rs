//! The disk as a guest sees it.

mod support;

use std::sync::atomic::Ordering;

use block_device::ByteRange;
use front_end::{Answer, Ask, Driver, FrontEnd, Options, Request, Status};
use support::{Exported, MemoryDevice, PATIENCE, SERIAL};

const MIB: usize = 1 << 20;

fn machine(exported: &Exported, options: Options) -> FrontEnd {
    FrontEnd::connected(options, &exported.socket()).expect("the export is there")
}

fn ask(driver: &mut Driver, request: impl Into<Request>) -> Answer {
    driver.submit(request).expect("there is room");
    driver.wait(PATIENCE).expect("an answer")
}

#[track_caller]
fn check_done(driver: &mut Driver, request: impl Into<Request>) -> Vec<u8> {
    let answer = ask(driver, request);
    assert_eq!(answer.status, Status::Done);
    answer.data
}

fn pattern(salt: u8, length: usize) -> Vec<u8> {
    (0..=250).cycle().take(length).map(|byte: u8| byte ^ salt).collect()
}

#[test]
fn what_is_written_is_read_back_in_every_kind_of_ring() {
    let exported = Exported::new(MemoryDevice::new(MIB), 1);
    for has_event_index in [false, true] {
        let mut machine = machine(&exported, Options { has_event_index, ..Options::default() });
        for is_indirect in [false, true] {
            let data = pattern(u8::from(is_indirect), 12 << 10);
            let write = Ask::Write { offset: 4096 + 512, data: data.clone() };
            check_done(machine.driver(), Request { ask: write, is_indirect });
            let read = Ask::Read { offset: 4096 + 512, length: 12 << 10 };
            assert_eq!(check_done(machine.driver(), Request { ask: read, is_indirect }), data);
        }
        machine.disconnect();
    }
    assert_eq!(exported.export().traffic().written_bytes, 4 * (12 << 10));
}

#[test]
fn rings_go_round_many_times() {
    let exported = Exported::new(MemoryDevice::new(MIB), 1);
    let mut machine = machine(&exported, Options { ring_size: 8, ..Options::default() });
    for round in 0..40_000_u64 {
        let offset = round % 256 * 4096;
        let driver = machine.driver();
        if round % 7 == 0 {
            check_done(driver, Ask::Write { offset, data: pattern(7, 4096) });
        } else {
            check_done(driver, Ask::Read { offset, length: 512 });
        }
    }
}

#[test]
fn several_queues_are_served_at_once() {
    const QUEUES: usize = 4;
    let exported = Exported::new(MemoryDevice::new(MIB), 4);
    let mut machine = machine(&exported, Options { queue_count: QUEUES, ..Options::default() });
    std::thread::scope(|scope| {
        for (queue, mut driver) in (0_u8..).zip(machine.take_drivers()) {
            scope.spawn(move || {
                let base = u64::from(queue) * (64 << 10);
                for round in 0..200 {
                    let data = pattern(queue ^ round, 4096);
                    for block in 0..8 {
                        let offset = base + block * 4096;
                        driver.submit(Ask::Write { offset, data: data.clone() }).expect("room");
                    }
                    for _ in 0..8 {
                        let answer = driver.wait(PATIENCE).expect("an answer");
                        assert_eq!(answer.status, Status::Done);
                    }
                    let offset = base + 7 * 4096;
                    let found = check_done(&mut driver, Ask::Read { offset, length: 4096 });
                    assert_eq!(found, data);
                }
            });
        }
    });
    let traffic = exported.export().traffic();
    assert_eq!((traffic.writes, traffic.reads, traffic.errors), (6400, 800, 0));
}

#[test]
fn a_guest_learns_the_shape_and_the_name_of_its_disk() {
    let exported = Exported::new(MemoryDevice::new(MIB), 3);
    let mut machine = machine(&exported, Options::default());
    assert_eq!(machine.size_bytes().expect("a size"), MIB as u64);
    assert_eq!(machine.configuration(34, 2).expect("queues"), [3, 0]);
    assert_eq!(check_done(machine.driver(), Ask::Identify), SERIAL);
}

#[test]
fn a_resized_disk_is_told_of_and_seen() {
    let exported = Exported::new(MemoryDevice::new(MIB), 1);
    let mut machine = machine(&exported, Options::default());
    let beyond = Ask::Read { offset: MIB as u64, length: 512 };
    assert_eq!(ask(machine.driver(), beyond.clone()).status, Status::Failed);
    exported.device.resize(2 * MIB);
    exported.export().resized();
    machine.wait_for_change(PATIENCE).expect("it is told");
    assert_eq!(machine.size_bytes().expect("a size"), 2 * MIB as u64);
    check_done(machine.driver(), beyond);
}

#[test]
fn discarded_and_zeroed_blocks_read_as_zeros() {
    let exported = Exported::new(MemoryDevice::new(16 * MIB), 1);
    let mut machine = machine(&exported, Options::default());
    let driver = machine.driver();
    let requests = |length| {
        [
            Ask::Discard { offset: 0, length },
            Ask::WriteZeroes { offset: 0, length, may_unmap: true },
            Ask::WriteZeroes { offset: 0, length, may_unmap: false },
        ]
    };
    // The longer ones are late work.
    for request in requests(8192).into_iter().chain(requests(16 << 20)) {
        check_done(driver, Ask::Write { offset: 0, data: pattern(1, 8192) });
        check_done(driver, request);
        assert_eq!(check_done(driver, Ask::Read { offset: 0, length: 8192 }), [0; 8192]);
    }
    let beyond = Ask::Discard { offset: 16 << 20, length: 4096 };
    assert_eq!(ask(driver, beyond).status, Status::Failed);
    let traffic = exported.export().traffic();
    assert_eq!((traffic.discards, traffic.zeroes), (3, 4));
}

#[test]
fn requests_that_the_disk_does_not_know_are_answered_so() {
    let exported = Exported::new(MemoryDevice::new(MIB), 1);
    let mut machine = machine(&exported, Options::default());
    for kind in [2, 5, 14, 25, u32::MAX] {
        assert_eq!(ask(machine.driver(), Ask::Other { kind }).status, Status::Unsupported);
    }
    assert_eq!(exported.export().traffic().errors, 5);
}

#[test]
fn a_read_only_disk_says_so_and_takes_no_changes() {
    let mut device = MemoryDevice::new(MIB);
    device.is_read_only = true;
    let exported = Exported::new(device, 1);
    let mut machine = machine(&exported, Options::default());
    const READ_ONLY: u64 = 1 << 5;
    const DISCARD: u64 = 1 << 13;
    assert_eq!(machine.features() & (READ_ONLY | DISCARD), READ_ONLY);
    let write = Ask::Write { offset: 0, data: pattern(1, 512) };
    assert_eq!(ask(machine.driver(), write).status, Status::Failed);
    check_done(machine.driver(), Ask::Read { offset: 0, length: 512 });
    check_done(machine.driver(), Ask::Flush);
}

#[test]
fn flushes_that_wait_for_a_disk_hold_nobody_up_and_are_done_together() {
    let exported = Exported::new(MemoryDevice::new(MIB), 1);
    let mut machine = machine(&exported, Options::default());
    let driver = machine.driver();
    exported.device.flushes.close();
    let first = driver.submit(Ask::Flush).expect("there is room");
    exported.device.flushes.wait_for_somebody();
    let others: Vec<u16> =
        (0..3).map(|_| driver.submit(Ask::Flush).expect("there is room")).collect();
    for _ in 0..10 {
        check_done(driver, Ask::Write { offset: 0, data: pattern(3, 4096) });
        check_done(driver, Ask::Read { offset: 0, length: 4096 });
        check_done(driver, Ask::WriteZeroes { offset: 0, length: 4096, may_unmap: true });
        check_done(driver, Ask::Discard { offset: 0, length: 4096 });
        check_done(driver, Ask::Identify);
    }
    assert_eq!(driver.in_flight(), 4);
    exported.device.flushes.open();
    let mut answered: Vec<u16> = Vec::new();
    while answered.len() < 4 {
        answered.push(driver.wait(PATIENCE).expect("an answer").slot);
    }
    answered.sort_unstable();
    let mut expected = [vec![first], others].concat();
    expected.sort_unstable();
    assert_eq!(answered, expected);
    assert_eq!(exported.device.flush_count.load(Ordering::SeqCst), 2);
}

#[test]
fn data_that_are_away_hold_nobody_up_but_their_own_request() {
    let exported = Exported::new(MemoryDevice::new(MIB), 1);
    let mut machine = machine(&exported, Options::default());
    let driver = machine.driver();
    check_done(driver, Ask::Write { offset: 0, data: pattern(9, 4096) });
    exported.device.away.close();
    exported.device.is_away.store(true, Ordering::SeqCst);
    let slot = driver.submit(Ask::Read { offset: 0, length: 4096 }).expect("there is room");
    exported.device.away.wait_for_somebody();
    assert_eq!(check_done(driver, Ask::Identify), SERIAL);
    exported.device.away.open();
    let answer = driver.wait(PATIENCE).expect("an answer");
    assert_eq!((answer.slot, answer.data), (slot, pattern(9, 4096)));
}

#[test]
fn writes_of_a_driver_that_cannot_flush_are_durable_when_they_are_answered() {
    let exported = Exported::new(MemoryDevice::new(MIB), 1);
    let mut machine = machine(&exported, Options { can_flush: false, ..Options::default() });
    exported.device.flushes.close();
    let write = Ask::Write { offset: 0, data: pattern(4, 512) };
    machine.driver().submit(write).expect("there is room");
    exported.device.flushes.wait_for_somebody();
    assert_eq!(machine.driver().poll().expect("the ring is well"), None);
    exported.device.flushes.open();
    assert_eq!(machine.driver().wait(PATIENCE).expect("an answer").status, Status::Done);
    let written = exported.device.contents(ByteRange::new(0, 512));
    assert_eq!(written, pattern(4, 512));
}

#[test]
fn a_disk_without_a_write_cache_flushes_nothing() {
    let mut device = MemoryDevice::new(MIB);
    device.has_write_cache = false;
    let exported = Exported::new(device, 1);
    let mut machine = machine(&exported, Options { can_flush: false, ..Options::default() });
    check_done(machine.driver(), Ask::Write { offset: 0, data: pattern(4, 512) });
    assert_eq!(exported.device.flush_count.load(Ordering::SeqCst), 0);
}
