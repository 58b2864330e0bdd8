//! Lifetimes of front ends and exports.

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use front_end::{Ask, FrontEnd, Options, Status};
use support::{Exported, MemoryDevice, PATIENCE, config, wait_until};
use vhost_user::{Export, ExportError, StartError, ThreadBudget};

const MIB: usize = 1 << 20;

fn machine(exported: &Exported) -> FrontEnd {
    FrontEnd::connected(Options::default(), &exported.socket()).expect("the export is there")
}

fn write(salt: u8) -> Ask {
    Ask::Write { offset: u64::from(salt) * 4096, data: vec![salt; 4096] }
}

#[test]
fn requests_in_flight_are_done_again_after_a_reconnection_and_answered_once() {
    let exported = Exported::new(MemoryDevice::new(MIB), 1);
    let mut machine = machine(&exported);
    exported.device.flushes.close();
    // The flushes come first, so that they are taken before the writes are answered.
    for salt in 0..4 {
        machine.driver().submit(Ask::Flush).expect("there is room");
        machine.driver().submit(write(salt)).expect("there is room");
    }
    let mut written = 0;
    while written < 4 {
        assert_eq!(machine.driver().wait(PATIENCE).expect("an answer").status, Status::Done);
        written += 1;
    }
    assert_eq!(machine.driver().in_flight(), 4);
    machine.disconnect();
    // Submitted while no export is listening.
    machine.driver().submit(write(9)).expect("there is room");
    machine.connect(&exported.socket(), PATIENCE).expect("it is served again");
    let answer = machine.driver().wait(PATIENCE).expect("an answer");
    assert_eq!(answer.status, Status::Done, "the write is answered, the flushes wait");
    exported.device.flushes.open();
    for _ in 0..4 {
        assert_eq!(machine.driver().wait(PATIENCE).expect("an answer").status, Status::Done);
    }
    let soon = Instant::now() + Duration::from_millis(50);
    assert_eq!(machine.driver().wait_until(soon).expect("the ring is well"), None);
    assert_eq!(exported.export().traffic().repeated, 4);
}

#[test]
fn an_export_that_begins_again_finds_what_was_in_flight() {
    let mut exported = Exported::new(MemoryDevice::new(MIB), 1);
    let mut machine = machine(&exported);
    exported.device.flushes.close();
    machine.driver().submit(Ask::Flush).expect("there is room");
    exported.device.flushes.wait_for_somebody();
    exported.start_again(1);
    exported.device.flushes.open();
    machine.driver().submit(write(1)).expect("there is room");
    machine.connect(&exported.socket(), PATIENCE).expect("it is served again");
    for _ in 0..2 {
        assert_eq!(machine.driver().wait(PATIENCE).expect("an answer").status, Status::Done);
    }
    assert_eq!(exported.export().traffic().repeated, 1);
}

#[test]
fn a_write_that_is_still_being_done_is_over_before_the_next_front_end_comes() {
    let exported = Exported::new(MemoryDevice::new(MIB), 1);
    let mut machine = machine(&exported);
    exported.device.away.close();
    exported.device.is_away.store(true, Ordering::SeqCst);
    machine.driver().submit(write(1)).expect("there is room");
    exported.device.away.wait_for_somebody();
    machine.disconnect();
    std::thread::scope(|scope| {
        let socket = exported.socket();
        let connecting = scope.spawn(move || {
            machine.connect(&socket, PATIENCE).expect("it is served again");
            machine.driver().wait(PATIENCE).expect("an answer").status
        });
        assert!(!connecting.is_finished());
        exported.device.is_away.store(false, Ordering::SeqCst);
        exported.device.away.open();
        assert_eq!(connecting.join().expect("the thread ends"), Status::Done);
    });
}

#[test]
fn memory_is_shared_anew_while_requests_are_in_flight() {
    let exported = Exported::new(MemoryDevice::new(MIB), 1);
    let mut machine = machine(&exported);
    exported.device.flushes.close();
    machine.driver().submit(Ask::Flush).expect("there is room");
    for salt in 0..50 {
        for other in 0..8 {
            machine.driver().submit(write(other)).expect("there is room");
        }
        machine.share_memory_again().unwrap_or_else(|error| panic!("round {salt}: {error:#}"));
        for _ in 0..8 {
            assert_eq!(machine.driver().wait(PATIENCE).expect("an answer").status, Status::Done);
        }
    }
    exported.device.flushes.open();
    assert_eq!(machine.driver().wait(PATIENCE).expect("an answer").status, Status::Done);
}

#[test]
fn a_queue_that_is_stopped_has_answered_everything_and_goes_on_where_it_was() {
    let exported = Exported::new(MemoryDevice::new(MIB), 1);
    let mut machine = machine(&exported);
    for round in 0..20_u8 {
        for salt in 0..8 {
            machine.driver().submit(write(salt)).expect("there is room");
        }
        machine.driver().submit(Ask::Flush).expect("there is room");
        let base = machine.stop_queue(0).expect("it stops");
        let mut answered = 0;
        while machine.driver().poll().expect("the ring is well").is_some() {
            answered += 1;
        }
        // Requests not yet taken are taken after the queue is restarted.
        let left = machine.driver().in_flight();
        assert_eq!(answered + left, 9, "round {round}");
        machine.start_queue(0, u16::try_from(base).expect("an index")).expect("it goes on");
        for _ in 0..left {
            assert_eq!(machine.driver().wait(PATIENCE).expect("an answer").status, Status::Done);
        }
    }
}

#[test]
fn a_reset_device_serves_nothing_until_it_is_set_up_again() {
    let exported = Exported::new(MemoryDevice::new(MIB), 1);
    let mut machine = machine(&exported);
    machine.driver().submit(write(1)).expect("there is room");
    machine.driver().wait(PATIENCE).expect("an answer");
    machine.reset_device().expect("it is reset");
    machine.driver().submit(write(2)).expect("there is room");
    machine.driver().kick().expect("an event");
    let soon = Instant::now() + Duration::from_millis(50);
    assert_eq!(machine.driver().wait_until(soon).expect("the ring is well"), None);
    machine.start_queue(0, 1).expect("it goes on");
    machine.driver().wait(PATIENCE).expect("an answer");
}

#[test]
fn a_second_front_end_waits_until_the_first_has_gone() {
    let exported = Exported::new(MemoryDevice::new(MIB), 1);
    let mut first = machine(&exported);
    assert!(exported.export().is_connected());
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            let mut second = machine(&exported);
            second.driver().submit(write(1)).expect("there is room");
            second.driver().wait(PATIENCE).expect("an answer");
        });
        for _ in 0..100 {
            first.driver().submit(write(2)).expect("there is room");
            first.driver().wait(PATIENCE).expect("an answer");
        }
        assert!(!second.is_finished());
        first.disconnect();
        second.join().expect("it is served");
    });
    wait_until("no front end is connected", || !exported.export().is_connected());
}

#[test]
fn a_flush_that_does_not_end_holds_up_only_its_thread_when_an_export_ends() {
    let mut exported = Exported::new(MemoryDevice::new(MIB), 1);
    let mut machine = machine(&exported);
    exported.device.flushes.close();
    machine.driver().submit(Ask::Flush).expect("there is room");
    exported.device.flushes.wait_for_somebody();
    let export = exported.export.take().expect("it runs");
    assert!(!export.stop(Duration::from_millis(1)));
    wait_until("the socket is gone", || !exported.socket().exists());
}

#[test]
fn an_export_that_ends_has_served_what_it_had_begun_and_takes_its_socket_along() {
    let mut exported = Exported::new(MemoryDevice::new(MIB), 2);
    let mut machine = machine(&exported);
    machine.driver().submit(write(1)).expect("there is room");
    machine.driver().wait(PATIENCE).expect("an answer");
    let export = exported.export.take().expect("it runs");
    assert!(export.stop(PATIENCE));
    assert!(!exported.socket().exists());
    wait_until("the front end is left", || machine.is_left());
}

#[test]
fn threads_are_bounded_for_all_exports_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let threads = Arc::new(ThreadBudget::new(4));
    let start = |name: &str| {
        let mut config = config(folder.path(), 1);
        config.socket = folder.path().join(name);
        config.threads = Arc::clone(&threads);
        Export::start(config, Arc::new(MemoryDevice::new(MIB)))
    };
    let first = start("a").expect("four threads are enough for one");
    let error = start("b").err().expect("they are taken");
    assert!(matches!(error, ExportError::TooManyThreads { .. }), "{error}");
    assert!(first.stop(PATIENCE));
    wait_until("the threads are free again", || start("b").is_ok());
}

#[test]
fn sockets_in_the_way_are_told_apart() {
    let exported = Exported::new(MemoryDevice::new(MIB), 1);
    let device = || Arc::new(MemoryDevice::new(MIB));
    let taken = Export::start(config(exported.folder.path(), 1), device());
    assert!(matches!(taken.err(), Some(ExportError::Start(StartError::SocketInUse { .. }))));
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("disk.sock"), "mine").expect("a file");
    let file = Export::start(config(folder.path(), 1), device());
    assert!(matches!(file.err(), Some(ExportError::Start(StartError::NotASocket { .. }))));
    let lost = Export::start(config(&folder.path().join("missing"), 1), device());
    assert!(matches!(lost.err(), Some(ExportError::Start(StartError::Listen { .. }))));
    let many = Export::start(config(folder.path(), 17), device());
    assert!(matches!(many.err(), Some(ExportError::QueueCount { count: 17 })));
}
