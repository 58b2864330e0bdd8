//! Model checking of the protocol between both sides of a lane, over all interleavings.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p shared-ring --test loom --release`.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use shared_ring::{CompletionLine, Entry, SleepLine, SubmissionLine, after_publishing, operation};

/// Explores `body` with at most three preemptions, which suffices for the known kinds of races.
fn explore(body: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(body);
}

/// Doorbell that stays rung until it is read, as a socket does.
#[derive(Default)]
struct Doorbell {
    was_rung: Mutex<bool>,
    rung: Condvar,
}

impl Doorbell {
    fn ring(&self) {
        *self.was_rung.lock().expect("no thread panics") = true;
        self.rung.notify_one();
    }

    fn wait(&self) {
        let mut was_rung = self.was_rung.lock().expect("no thread panics");
        while !*was_rung {
            was_rung = self.rung.wait(was_rung).expect("no thread panics");
        }
        *was_rung = false;
    }
}

/// A lane with one slot.
struct Lane {
    submission: SubmissionLine,
    completion: CompletionLine,
    buffer: UnsafeCell<u64>,
    server_sleep: SleepLine,
    client_sleep: SleepLine,
    doorbell: Doorbell,
    futex: (Mutex<()>, Condvar),
}

fn lane() -> Arc<Lane> {
    Arc::new(Lane {
        submission: SubmissionLine::new(),
        completion: CompletionLine::new(),
        buffer: UnsafeCell::new(0),
        server_sleep: SleepLine::new(),
        client_sleep: SleepLine::new(),
        doorbell: Doorbell::default(),
        futex: (Mutex::new(()), Condvar::new()),
    })
}

fn entry(offset: u64) -> Entry {
    Entry { operation: operation::WRITE, offset, length: 8, ..Entry::default() }
}

impl Lane {
    fn submit(&self, position: u64) {
        self.buffer.with_mut(|buffer| unsafe { *buffer = 10 + position });
        self.submission.publish(position, &entry(position));
        after_publishing();
        if self.server_sleep.must_be_woken() {
            self.doorbell.ring();
        }
    }

    /// Takes the entry, sleeping until it arrives, and completes it.
    fn serve(&self, position: u64) {
        let taken = loop {
            if let Some(taken) = self.submission.take(position) {
                break taken;
            }
            self.server_sleep.announce();
            if !self.submission.holds(position) {
                self.doorbell.wait();
            }
            self.server_sleep.awake();
        };
        assert_eq!(taken, entry(position), "an entry is whole");
        self.buffer.with_mut(|buffer| unsafe {
            assert_eq!(*buffer, 10 + position, "a buffer is whole");
            *buffer = 20 + position;
        });
        self.completion.complete(position, 7);
        after_publishing();
        if self.client_sleep.must_be_woken() {
            // As in the kernel, a waiting thread is registered under a lock.
            let _entered = self.futex.0.lock().expect("no thread panics");
            self.futex.1.notify_one();
        }
    }

    /// Sleeps until the entry has completed.
    fn receive(&self, position: u64) {
        while self.completion.status_of(position).is_none() {
            self.client_sleep.announce();
            if self.completion.status_of(position).is_none() {
                let entered = self.futex.0.lock().expect("no thread panics");
                if self.client_sleep.is_announced() {
                    drop(self.futex.1.wait(entered).expect("no thread panics"));
                }
            }
            self.client_sleep.awake();
        }
        assert_eq!(self.completion.status_of(position), Some(7));
        self.buffer.with(|buffer| assert_eq!(unsafe { *buffer }, 20 + position));
    }
}

#[test]
fn a_request_and_its_answer_pass_whole_and_wake_whoever_sleeps() {
    explore(|| {
        let lane = lane();
        let server = {
            let lane = Arc::clone(&lane);
            thread::spawn(move || lane.serve(0))
        };
        lane.submit(0);
        lane.receive(0);
        server.join().expect("the server ends");
    });
}

#[test]
fn a_sleeping_server_is_woken_by_one_of_two_clients() {
    explore(|| {
        let (one, other) = (lane(), lane());
        let submit = |lane: &Lane, position: u64, doors: &Lane| {
            lane.submission.publish(position, &entry(position));
            after_publishing();
            if doors.server_sleep.must_be_woken() {
                doors.doorbell.ring();
            }
        };
        let client = {
            let (one, other) = (Arc::clone(&one), Arc::clone(&other));
            thread::spawn(move || submit(&other, 0, &one))
        };
        let second = {
            let one = Arc::clone(&one);
            thread::spawn(move || submit(&one, 0, &one))
        };
        let mut is_served = [false; 2];
        while is_served != [true; 2] {
            let mut look = || {
                is_served[0] |= one.submission.take(0).is_some();
                is_served[1] |= other.submission.take(0).is_some();
                is_served == [true; 2]
            };
            if look() {
                break;
            }
            let before = is_served;
            one.server_sleep.announce();
            let holds = [one.submission.holds(0), other.submission.holds(0)];
            if holds == before {
                one.doorbell.wait();
            }
            one.server_sleep.awake();
        }
        client.join().expect("the client ends");
        second.join().expect("the client ends");
    });
}

#[test]
fn a_line_is_used_again_after_its_slot_came_back() {
    explore(|| {
        let lane = lane();
        let server = {
            let lane = Arc::clone(&lane);
            thread::spawn(move || {
                for position in 0..2 {
                    while lane.submission.take(position).is_none() {
                        loom::thread::yield_now();
                    }
                    lane.buffer.with_mut(|buffer| unsafe { *buffer += 1 });
                    lane.completion.complete(position, 0);
                }
            })
        };
        for position in 0..2 {
            lane.buffer.with_mut(|buffer| unsafe { *buffer = 40 });
            lane.submission.publish(position, &entry(position));
            while lane.completion.status_of(position).is_none() {
                loom::thread::yield_now();
            }
            lane.buffer.with(|buffer| assert_eq!(unsafe { *buffer }, 41));
        }
        server.join().expect("the server ends");
    });
}
