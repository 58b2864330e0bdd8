//! Hostile clients: they lose at most their own connection and do not affect other clients.

mod support {
    pub(crate) mod storm;
}

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use model::Random;
use rustix::net::{SendFlags, send};
use shared_ring::{Answer, Target, operation, receive_answer, send_request};
use support::storm::{self, Fixture, PATIENCE};

fn random_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Random::new(seed).fill(&mut bytes);
    bytes
}

#[test]
fn random_clients_do_no_harm_to_others() {
    for seed in 0..300 {
        eprintln!("seed {seed}");
        let step_count = 1 + usize::try_from(seed).expect("they are few") % 70;
        storm::play(&random_bytes(seed, storm::STEP_BYTES * step_count));
    }
    let traffic = storm::traffic_played();
    eprintln!("measured: {traffic:?}");
    assert!(traffic.errors > 0, "nothing was refused");
    assert!(traffic.errors < traffic.reads + traffic.writes, "nothing was done");
}

#[test]
fn entries_may_change_while_they_are_read() {
    let fixture = Fixture::new();
    let raw = fixture.open("hostile");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut seed = 0;
            while !is_over.load(Ordering::Relaxed) {
                seed += 1;
                // Overwrite the lane's entries repeatedly, but not their sequence numbers.
                for line in 0..64 {
                    let bytes = random_bytes(seed, 32);
                    raw.store(4096 + 4096 + line * 64 + 8, &bytes);
                }
            }
        });
        for position in 0..2000 {
            raw.store_entry(position, operation::WRITE, position % 64, [0, 4096]);
            raw.ring();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    fixture.check_good_client(3);
}

#[track_caller]
fn check_ended(act: impl FnOnce(&storm::Raw)) {
    let fixture = Fixture::new();
    let raw = fixture.open("hostile");
    act(&raw);
    raw.ring();
    raw.wait_for_end();
    fixture.check_good_client(5);
}

#[test]
fn a_slot_that_does_not_exist_ends_the_connection() {
    check_ended(|raw| raw.store_entry(0, operation::READ, 64, [0, 4096]));
    check_ended(|raw| raw.store_entry(0, operation::READ, u64::MAX, [0, 4096]));
}

#[test]
fn doorbells_without_entries_are_only_noise() {
    let fixture = Fixture::new();
    let raw = fixture.open("hostile");
    (0..20_000).for_each(|_| raw.ring());
    let start = Instant::now();
    while fixture.server.status().traffic.doorbells == 0 {
        assert!(start.elapsed() < PATIENCE, "the server hears the bell");
        thread::yield_now();
    }
    fixture.check_good_client(9);
}

#[test]
fn the_memory_cannot_be_cut_off_under_the_server() {
    let fixture = Fixture::new();
    let raw = fixture.open("hostile");
    raw.memory.set_len(0).expect_err("it is sealed");
    raw.memory.set_len(1 << 40).expect_err("it is sealed");
    fixture.check_good_client(1);
}

#[test]
fn another_version_is_refused_with_both_numbers() {
    let fixture = Fixture::new();
    let socket = fixture.connect();
    let mut message = [0; 64];
    message[..8].copy_from_slice(b"mlnring\0");
    message[8..12].copy_from_slice(&99_u32.to_le_bytes());
    send(&socket, &message, SendFlags::NOSIGNAL).expect("it is sent");
    match receive_answer(socket.as_fd()).expect("an answer") {
        Answer::Refused { errno, message } => {
            assert_eq!(errno, rustix::io::Errno::PROTONOSUPPORT.raw_os_error());
            assert!(message.contains("99") && message.contains('1'), "{message}");
        }
        Answer::Opened(..) => panic!("it speaks another language"),
    }
}

#[test]
fn clients_may_go_at_any_moment() {
    let fixture = Fixture::new();
    for _ in 0..50 {
        drop(fixture.connect());
        let socket = fixture.connect();
        send_request(socket.as_fd(), &Target::Name("good".to_owned()), 16).expect("it is sent");
        drop(socket);
        let raw = fixture.open("hostile");
        (0..64).for_each(|it| raw.store_entry(it, operation::FLUSH, it, [0, 0]));
        raw.ring();
        // Disconnect with all requests in flight.
        drop(raw);
    }
    let start = Instant::now();
    while !fixture.server.status().clients.is_empty() {
        assert!(start.elapsed() < PATIENCE, "all of them have gone");
        thread::yield_now();
    }
    fixture.check_good_client(7);
}
