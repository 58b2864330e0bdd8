//! Front ends and drivers that break the protocol harm only themselves.

mod support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use block_device::ByteRange;
use front_end::{Ask, Descriptor, Driver, FrontEnd, Options, Status};
use support::{Exported, MemoryDevice, PATIENCE, SERIAL, config, wait_until};
use vhost_user::Export;
use vmm_sys_util::eventfd::EventFd;

const MIB: usize = 1 << 20;

fn machine(exported: &Exported) -> FrontEnd {
    FrontEnd::connected(Options::default(), &exported.socket()).expect("the export is there")
}

/// Checks that the export serves the next front end.
#[track_caller]
fn check_alive(exported: &Exported) {
    let mut machine = machine(exported);
    machine.driver().submit(Ask::Identify).expect("there is room");
    let answer = machine.driver().wait(PATIENCE).expect("an answer");
    assert_eq!((answer.status, &answer.data[..]), (Status::Done, &SERIAL[..]));
}

fn errors(exported: &Exported) -> u64 {
    exported.export().traffic().errors
}

/// Submits chains whose first descriptor is 200, which no request of the driver uses, and waits
/// until the export has dropped each.
#[track_caller]
fn check_dropped(chains: &[&[Descriptor]]) {
    let exported = Exported::new(MemoryDevice::new(MIB), 1);
    let mut machine = machine(&exported);
    for chain in chains {
        let before = errors(&exported);
        for (index, descriptor) in (200..).zip(*chain) {
            machine.driver().put_descriptor(index, *descriptor).expect("inside");
        }
        machine.driver().offer(200).expect("inside");
        wait_until("the chain is dropped", || errors(&exported) > before);
        machine.driver().poll().expect_err("an answer comes that no slot waits for");
    }
    // The ring still works.
    machine.driver().submit(Ask::Identify).expect("there is room");
    assert_eq!(machine.driver().wait(PATIENCE).expect("an answer").data, SERIAL);
    machine.disconnect();
    check_alive(&exported);
}

const NEXT: u16 = Descriptor::NEXT;
const WRITE: u16 = Descriptor::WRITE;
const INDIRECT: u16 = Descriptor::INDIRECT;

const fn descriptor(address: u64, bytes: u32, flags: u16, next: u16) -> Descriptor {
    Descriptor { address, bytes, flags, next }
}

#[test]
fn chains_that_go_in_circles_are_dropped() {
    check_dropped(&[
        &[descriptor(0, 16, NEXT, 200)],
        &[descriptor(0, 16, NEXT, 201), descriptor(0, 1, NEXT | WRITE, 201)],
        &[descriptor(0, u32::MAX, NEXT, 201), descriptor(0, u32::MAX, NEXT, 200)],
    ]);
}

#[test]
fn chains_that_lead_outside_are_dropped() {
    check_dropped(&[
        &[descriptor(0, 16, NEXT, u16::MAX)],
        &[descriptor(u64::MAX - 8, 16, NEXT, 201), descriptor(0, 1, WRITE, 0)],
        &[descriptor(1 << 40, 16, NEXT, 201), descriptor(0, 1, WRITE, 0)],
        &[descriptor(0, 16, NEXT, 201), descriptor(1 << 40, 1, WRITE, 0)],
        &[descriptor(0, 16, NEXT, 201), descriptor(u64::MAX, u32::MAX, WRITE, 0)],
        &[descriptor(u64::MAX - 15, 4096, INDIRECT, 0)],
    ]);
}

#[test]
fn chains_without_what_a_request_needs_are_dropped() {
    check_dropped(&[
        &[descriptor(0, 16, 0, 0)],
        &[descriptor(0, 15, NEXT, 201), descriptor(0, 1, WRITE, 0)],
        &[descriptor(0, 1, WRITE, 0)],
        &[descriptor(0, 0, NEXT, 201), descriptor(0, 0, WRITE, 0)],
        &[descriptor(0, 1, NEXT | WRITE, 201), descriptor(0, 16, 0, 0)],
        &[descriptor(0, 17, INDIRECT, 0)],
        &[descriptor(0, 0, INDIRECT, 0)],
        &[descriptor(0, 16, INDIRECT | NEXT, 201)],
    ]);
}

/// Checks that a driver that corrupts its ring is no longer served, and that the next front end is.
#[track_caller]
fn check_broken_ring(break_it: impl FnOnce(&mut Driver)) {
    let exported = Exported::new(MemoryDevice::new(MIB), 1);
    let mut machine = machine(&exported);
    machine.driver().submit(Ask::Identify).expect("there is room");
    machine.driver().wait(PATIENCE).expect("an answer");
    break_it(machine.driver());
    machine.driver().kick().expect("an event");
    // Control messages are still answered.
    machine.stop_queue(0).expect("it stops");
    machine.disconnect();
    check_alive(&exported);
}

#[test]
fn a_ring_with_an_impossible_index_is_given_up() {
    check_broken_ring(|driver| driver.set_available_index(9999).expect("inside"));
}

#[test]
fn a_ring_that_offers_what_is_no_descriptor_is_given_up() {
    check_broken_ring(|driver| driver.offer(u16::MAX).expect("inside"));
}

#[test]
fn a_request_that_is_offered_twice_is_taken_once() {
    let exported = Exported::new(MemoryDevice::new(MIB), 1);
    let mut machine = machine(&exported);
    exported.device.flushes.close();
    let slot = machine.driver().submit(Ask::Flush).expect("there is room");
    machine.driver().offer(slot * 4).expect("inside");
    exported.device.flushes.open();
    let answer = machine.driver().wait(PATIENCE).expect("an answer");
    assert_eq!((answer.slot, answer.status), (slot, Status::Done));
    machine.disconnect();
    check_alive(&exported);
}

#[test]
fn disks_beside_one_whose_driver_breaks_the_rules_go_on() {
    const ROUNDS: usize = 50;
    let (neighbour, exported) =
        (Exported::new(MemoryDevice::new(MIB), 1), Exported::new(MemoryDevice::new(MIB), 1));
    let (mut well, mut hostile) = (machine(&neighbour), machine(&exported));
    let mut check_answered = || {
        well.driver().submit(Ask::Identify).expect("there is room");
        let answer = well.driver().wait(PATIENCE).expect("an answer");
        assert_eq!((answer.status, &answer.data[..]), (Status::Done, &SERIAL[..]));
    };
    for _ in 0..ROUNDS {
        let before = errors(&exported);
        let circle = descriptor(0, 16, NEXT, 200);
        hostile.driver().put_descriptor(200, circle).expect("inside");
        hostile.driver().offer(200).expect("inside");
        check_answered();
        wait_until("the chain is dropped", || errors(&exported) > before);
    }
    hostile.driver().set_available_index(9999).expect("inside");
    hostile.driver().kick().expect("an event");
    check_answered();
    assert_eq!(errors(&neighbour), 0);
}

#[test]
fn a_call_event_whose_count_is_full_holds_nobody_up() {
    let exported = Exported::new(MemoryDevice::new(MIB), 1);
    let mut machine = machine(&exported);
    // A blocking eventfd, as front ends may use.
    let call = EventFd::new(0).expect("an event");
    call.write(u64::MAX - 1).expect("there is room");
    machine.set_call(0, &call).expect("it is taken");
    // The second time, the counter starts from one.
    call.write(u64::MAX - 2).expect("there is room");
    machine.driver().submit(Ask::Identify).expect("there is room");
    wait_until("it is answered", || machine.driver().poll().expect("a ring").is_some());
    machine.stop_queue(0).expect("it stops");
    machine.disconnect();
    check_alive(&exported);
}

fn machine_without_seals(exported: &Exported) -> FrontEnd {
    let options = Options { can_seal: false, ..Options::default() };
    FrontEnd::connected(options, &exported.socket()).expect("the export is there")
}

#[test]
fn memory_that_is_taken_away_breaks_its_own_disk_alone() {
    let exported = Exported::new(MemoryDevice::new(MIB), 1);
    let other = Exported::new(MemoryDevice::new(MIB), 1);
    let mut neighbour = machine(&other);
    let mut machine = machine_without_seals(&exported);
    machine.driver().submit(Ask::Identify).expect("there is room");
    machine.driver().wait(PATIENCE).expect("an answer");
    machine.cut_memory(0).expect("no process could seal it");
    machine.driver().kick().expect("an event");
    machine.stop_queue(0).expect("messages are answered");
    machine.disconnect();
    check_alive(&exported);
    neighbour.driver().submit(Ask::Identify).expect("there is room");
    assert_eq!(neighbour.driver().wait(PATIENCE).expect("an answer").data, SERIAL);
}

#[test]
fn what_lay_in_memory_that_is_taken_away_is_not_written() {
    let exported = Exported::new(MemoryDevice::new(MIB), 1);
    let mut machine = machine_without_seals(&exported);
    let data = vec![7; 512];
    machine.driver().submit(Ask::Write { offset: 0, data }).expect("there is room");
    assert_eq!(machine.driver().wait(PATIENCE).expect("an answer").status, Status::Done);
    let layout = machine.driver().layout();
    // Header of a write to sector 0, whose data are in the last slot's memory.
    let last_slot = layout.slot_count() - 1;
    let header = [&1_u32.to_le_bytes()[..], &[0; 12]].concat();
    machine.driver().write(layout.header(0), &header).expect("inside");
    let chain = [
        descriptor(layout.header(0), 16, NEXT, 201),
        descriptor(layout.header(last_slot), 512, NEXT, 202),
        descriptor(layout.status(0), 1, WRITE, 0),
    ];
    for (index, descriptor) in (200..).zip(chain) {
        machine.driver().put_descriptor(index, descriptor).expect("inside");
    }
    let before = errors(&exported);
    machine.cut_memory(layout.header(last_slot)).expect("no process could seal it");
    machine.driver().offer(200).expect("inside");
    wait_until("it is refused", || errors(&exported) > before);
    assert_eq!(exported.device.contents(ByteRange::new(0, 512)), [7; 512]);
    machine.disconnect();
    check_alive(&exported);
}

#[test]
fn a_front_end_of_a_user_who_may_not_is_left_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(folder.path(), 1);
    let socket = config.socket.clone();
    config.admits = Arc::new(|peer| peer.pid != std::process::id());
    let _export = Export::start(config, Arc::new(MemoryDevice::new(MIB))).expect("a disk");
    let mut stream = UnixStream::connect(&socket).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    assert_eq!(stream.read(&mut [0]).expect("it ends"), 0);
}

/// Sends arbitrary bytes instead of messages.
#[track_caller]
fn check_garbage(bytes: &[u8]) {
    let exported = Exported::new(MemoryDevice::new(MIB), 1);
    let mut socket = UnixStream::connect(exported.socket()).expect("it listens");
    socket.write_all(bytes).expect("there is room");
    socket.shutdown(std::net::Shutdown::Write).expect("it is open");
    // Whatever the export replies, it ends the connection.
    socket.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    let mut answer = Vec::new();
    if let Err(error) = socket.read_to_end(&mut answer) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    }
    check_alive(&exported);
}

fn message(code: u32, flags: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("short");
    let header = [code, flags, length].map(u32::to_le_bytes).concat();
    [header, body.to_vec()].concat()
}

#[test]
fn garbage_on_the_socket_ends_the_connection() {
    check_garbage(&[]);
    check_garbage(&[0xFF; 11]);
    check_garbage(&[0xFF; 4096]);
    check_garbage(&message(1, 1, &[]));
    check_garbage(&message(9999, 1, &[]));
    check_garbage(&message(1, 7, &[1; 64]));
    // An empty memory table, invalid ring addresses, a status that was not negotiated.
    check_garbage(&message(5, 1, &[1; 8]));
    check_garbage(&message(8, 1, &[0xFF; 8]));
    check_garbage(&message(9, 1, &[0xFF; 40]));
    check_garbage(&message(11, 1, &[0xFF; 8]));
    check_garbage(&message(12, 1, &[0xFF; 8]));
    check_garbage(&message(21, 1, &[]));
    check_garbage(&message(24, 1, &[0xFF; 12]));
    check_garbage(&message(31, 1, &[0xFF; 24]));
    check_garbage(&message(39, 1, &[1; 8]));
}

/// Checks that a front end that has not claimed the disk does not lock out the next one.
#[track_caller]
fn check_gives_way(keep_out: impl Fn(&mut UnixStream)) {
    let exported = Exported::new(MemoryDevice::new(MIB), 1);
    let mut first = UnixStream::connect(exported.socket()).expect("the export is there");
    keep_out(&mut first);
    // The next front end, because front ends are served in order of connection.
    check_alive(&exported);
    first.set_read_timeout(Some(PATIENCE)).expect("a time");
    // Replies come before the end. Unread messages of the front end reset the connection.
    let ended = std::io::copy(&mut first, &mut std::io::sink()).map_err(|error| error.kind());
    assert!(matches!(ended, Ok(_) | Err(std::io::ErrorKind::ConnectionReset)), "{ended:?}");
}

#[test]
fn a_front_end_that_says_nothing_gives_way_to_the_next() {
    check_gives_way(|_| {});
}

#[test]
fn a_front_end_that_says_half_a_message_gives_way_to_the_next() {
    // Half a header, then a header without its payload.
    check_gives_way(|first| first.write_all(&[1, 0, 0, 0, 1]).expect("it is sent"));
    let set_features = [2, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0];
    check_gives_way(|first| first.write_all(&set_features).expect("it is sent"));
}

#[test]
fn a_front_end_that_asks_and_takes_no_answer_gives_way_to_the_next() {
    let get_features = [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    check_gives_way(|first| {
        first.set_nonblocking(true).expect("a socket");
        // Send until the export reads nothing more, not only until the socket's buffer is full
        // once.
        let mut refusals = 0;
        while refusals < 100 {
            match first.write_all(&get_features) {
                Ok(()) => refusals = 0,
                Err(_) => refusals += 1,
            }
            if refusals > 0 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        first.set_nonblocking(false).expect("a socket");
    });
}

#[test]
fn a_front_end_that_uses_the_disk_keeps_it_while_others_wait() {
    let exported = Exported::new(MemoryDevice::new(MIB), 1);
    let mut machine = machine(&exported);
    let _waiting = UnixStream::connect(exported.socket()).expect("the export is there");
    let begun = std::time::Instant::now();
    // Longer than the time limit of a front end that has not claimed the disk.
    while begun.elapsed() < std::time::Duration::from_millis(1500) {
        machine.driver().submit(Ask::Identify).expect("there is room");
        assert_eq!(machine.driver().wait(PATIENCE).expect("an answer").status, Status::Done);
        std::thread::yield_now();
    }
}
