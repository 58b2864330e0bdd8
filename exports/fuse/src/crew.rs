//! The threads that serve one connection.
//!
//! All memory that they need is there before the first request. A worker that panics ends the
//! process: the connection is kept elsewhere, and the next process answers what was in flight.
//!
//! A worker whose flush does not end cannot be stopped. A crew that is dropped waits for it for a
//! bounded time, and then leaves it alone: it answers its request if it ever can, and goes.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use waiting::{Machine, SpinPermits, ThisMachine, Waiter};

use crate::connection::{Connection, Look};
use crate::counters::{Counters, Traffic};
use crate::files::Files;
use crate::flush_desk::{BATCH_MAX, Flush, FlushDesk, Turn};
use crate::pace::Pace;
use crate::reply::Failure;
use crate::request::{self, Malformed, Operation};
use crate::roster::Roster;
use crate::server::{DATA_BYTES_MAX, SCRATCH_BYTES, Server};

/// What a leader serves in one go, without finding the queue empty, before it calls for help.
/// About a hundred microseconds of work.
const HELP_FROM_BYTES: usize = 512 << 10;

/// What a request costs besides its data, in bytes of data that cost as much.
const REQUEST_COST_BYTES: usize = 4096;

/// How a crew is made up.
#[derive(Clone)]
pub(crate) struct CrewPlan {
    pub(crate) worker_count: usize,
    pub(crate) permits: Arc<SpinPermits>,
    pub(crate) spin_max: Duration,
    /// How long a crew that is dropped waits for its workers.
    pub(crate) stop_patience: Duration,
    /// Called by each worker before its first request.
    pub(crate) thread_start: Arc<dyn Fn() + Send + Sync>,
}

/// Running workers. Dropping the crew stops them after the requests that they are at.
pub(crate) struct Crew {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    stop_patience: Duration,
}

struct Shared {
    connection: Arc<Connection>,
    files: Arc<dyn Files>,
    counters: Vec<Counters>,
    roster: Roster,
    pace: Pace,
    desk: FlushDesk,
    /// Workers that have not ended.
    running: Mutex<usize>,
    one_ended: Condvar,
    core_count: usize,
    is_over: AtomicBool,
    /// Readable once the crew shall stop.
    stop: OwnedFd,
}

impl Crew {
    pub(crate) fn start(
        plan: &CrewPlan,
        connection: Arc<Connection>,
        files: Arc<dyn Files>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            connection,
            files,
            counters: (0..plan.worker_count).map(|_| Counters::default()).collect(),
            roster: Roster::new(plan.worker_count),
            pace: Pace::new(),
            desk: FlushDesk::new(plan.worker_count),
            running: Mutex::new(0),
            one_ended: Condvar::new(),
            core_count: thread::available_parallelism().map_or(1, usize::from),
            is_over: AtomicBool::new(false),
            stop: eventfd(0, EventfdFlags::CLOEXEC)?,
        });
        let stop_patience = plan.stop_patience;
        let mut crew = Self { shared, threads: Vec::new(), stop_patience };
        for index in 0..plan.worker_count {
            let (plan, shared) = (plan.clone(), Arc::clone(&crew.shared));
            let body = move || {
                Worker::new(index, &plan, &shared).run(&plan);
                shared.count_running(|running| *running -= 1);
                shared.one_ended.notify_all();
            };
            crew.shared.count_running(|running| *running += 1);
            match thread::Builder::new().name(format!("fuse-{index}")).spawn(body) {
                Ok(thread) => crew.threads.push(thread),
                Err(error) => {
                    crew.shared.count_running(|running| *running -= 1);
                    return Err(error);
                }
            }
        }
        Ok(crew)
    }

    /// False once the connection has ended.
    pub(crate) fn is_serving(&self) -> bool {
        !self.shared.is_over()
    }

    pub(crate) fn traffic(&self) -> Traffic {
        let mut sum = Traffic::default();
        self.shared.counters.iter().for_each(|counters| counters.add_to(&mut sum));
        sum
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        rustix::io::write(&self.shared.stop, &1_u64.to_ne_bytes()).expect("it was zero before");
        self.shared.roster.call_all();
        let running = self.shared.running.lock().unwrap_or_else(PoisonError::into_inner);
        let waited =
            self.shared.one_ended.wait_timeout_while(running, self.stop_patience, |n| *n > 0);
        let left_count = *waited.unwrap_or_else(PoisonError::into_inner).0;
        if left_count > 0 {
            tracing::warn!(left_count, "threads are left alone whose flushes do not end");
            return;
        }
        for thread in self.threads.drain(..) {
            thread.join().expect("workers that panic end the process");
        }
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn count_running(&self, change: impl FnOnce(&mut usize)) {
        change(&mut self.running.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Ends the whole crew, because there will be no more requests.
    fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.roster.call_all();
    }
}

/// One thread's own things.
struct Worker<'shared> {
    index: usize,
    shared: &'shared Shared,
    waiter: Waiter,
    machine: ThisMachine,
    buffer: MessageBuffer,
    scratch: Vec<u8>,
    /// Flushes that are done together.
    batch: Vec<Flush>,
    /// What was served as leader since the queue was last found empty.
    backlog_bytes: usize,
}

impl<'shared> Worker<'shared> {
    fn new(index: usize, plan: &CrewPlan, shared: &'shared Shared) -> Self {
        let mut scratch = vec![0; SCRATCH_BYTES];
        // Touched now, so that no request waits for the memory.
        scratch.fill(1);
        Self {
            index,
            shared,
            waiter: Waiter::new(Arc::clone(&plan.permits), plan.spin_max),
            machine: ThisMachine::new(),
            buffer: MessageBuffer::new(),
            scratch,
            batch: Vec::with_capacity(BATCH_MAX),
            backlog_bytes: 0,
        }
    }

    fn run(mut self, plan: &CrewPlan) {
        let _bomb = AbortOnPanic;
        if let Err(error) = kernel::serve_block_io() {
            // The program's to warn of, once, when it marks itself before it starts threads.
            tracing::debug!(%error, "memory that serving needs may be written to a served device");
        }
        (plan.thread_start)();
        let shared = self.shared;
        shared.roster.sign_on(self.index);
        while !shared.is_over() {
            if shared.roster.try_lead() {
                self.lead();
            } else {
                self.help();
                shared.roster.park(self.index, || shared.is_over());
            }
        }
    }

    /// Waits for requests and serves them, until a slow one comes or the crew stops.
    fn lead(&mut self) {
        self.backlog_bytes = 0;
        while !self.shared.is_over() {
            let Some(length) = self.wait_for_message() else { continue };
            if !self.serve(length, Role::Leader) {
                return;
            }
        }
        self.shared.roster.resign();
    }

    /// Serves requests as long as there are any and somebody else leads.
    fn help(&mut self) {
        let mut usefulness = Usefulness::new();
        while usefulness.is_left() && self.shared.roster.has_leader() && !self.shared.is_over() {
            let look = self.shared.connection.look(self.buffer.bytes());
            match self.message_length(look) {
                Some(length) => {
                    usefulness.found_request();
                    self.serve(length, Role::Called);
                }
                None => {
                    usefulness.found_nothing();
                    self.machine.offer_core();
                }
            }
        }
    }

    fn wait_for_message(&mut self) -> Option<usize> {
        let (shared, bytes) = (self.shared, self.buffer.bytes());
        let mut look_count = 0_u32;
        let poll = || {
            look_count += 1;
            match shared.connection.look(bytes) {
                Ok(Look::Nothing) => Poll::Pending,
                found => Poll::Ready(found),
            }
        };
        let sleep = || shared.connection.sleep(shared.stop.as_fd()).map(|()| Look::Nothing);
        let mut look = self.waiter.wait(poll, sleep);
        if look_count > 1 {
            self.backlog_bytes = 0;
        }
        if matches!(look, Ok(Look::Nothing)) {
            self.backlog_bytes = 0;
            look = shared.connection.look(self.buffer.bytes());
        }
        self.message_length(look)
    }

    fn message_length(&self, look: io::Result<Look>) -> Option<usize> {
        match look {
            Ok(Look::Message(length)) => return Some(length),
            Ok(Look::Nothing) => return None,
            Ok(Look::Ended) => tracing::info!("the connection for volumes as files has ended"),
            Err(error) => tracing::error!(%error, "cannot read requests for volumes as files"),
        }
        self.shared.end();
        None
    }

    /// Serves the message in the buffer. Says whether a leader still leads.
    fn serve(&mut self, length: usize, role: Role) -> bool {
        let shared = self.shared;
        let seat = Seat { shared, role, is_taken: Cell::new(false) };
        let server = Server {
            files: shared.files.as_ref(),
            counters: &shared.counters[self.index],
            sink: shared.connection.as_ref(),
            before_wait: &|| seat.take(),
        };
        let (header, operation) = match request::parse(self.buffer.message(length)) {
            Ok(request) => request,
            Err(Malformed::Body(header)) => {
                report(server.refuse(header, Failure::Invalid));
                return true;
            }
            Err(Malformed::NoHeader) => {
                tracing::error!(length, "the kernel sent a message without a header");
                return true;
            }
        };
        if role == Role::Leader {
            self.backlog_bytes += REQUEST_COST_BYTES + data_bytes(&operation);
            if self.backlog_bytes >= HELP_FROM_BYTES {
                self.backlog_bytes = 0;
                // More busy workers than cores would only stand in each other's way.
                if shared.roster.awake_count() < shared.core_count {
                    shared.roster.call_one();
                }
            }
        }
        match server.begin_flush(header, &operation) {
            Ok(Some(flush)) => seat.serve_flush(&server, flush),
            Ok(None) => match shared.pace.of(header.node, &operation) {
                None => report(server.serve(header, &operation, &mut self.scratch)),
                Some(pace) => {
                    if pace.is_slow() {
                        seat.take();
                    }
                    let start = self.machine.now();
                    report(server.serve(header, &operation, &mut self.scratch));
                    pace.learn(self.machine.now().saturating_sub(start));
                }
            },
            Err(failure) => report(server.refuse(header, failure)),
        }
        if seat.is_taken.get() {
            serve_waiting(shared, &server, &mut self.batch);
        }
        seat.leader_still_leads()
    }
}

/// A worker's seat for slow work, which it takes when it comes to such.
struct Seat<'shared> {
    shared: &'shared Shared,
    role: Role,
    is_taken: Cell<bool>,
}

impl Seat<'_> {
    /// Takes the seat, if one is free: somebody else leads from now on.
    fn take(&self) {
        if !self.is_taken.get() && self.shared.desk.try_sit() {
            self.sit();
        }
    }

    fn sit(&self) {
        self.is_taken.set(true);
        if self.role == Role::Leader {
            self.shared.roster.resign();
        }
    }

    fn leader_still_leads(&self) -> bool {
        self.role != Role::Leader || !self.is_taken.get()
    }

    /// Does a flush, or leaves it to others.
    fn serve_flush(&self, server: &Server<'_>, flush: Flush) {
        if !self.is_taken.get() {
            match self.shared.desk.begin(flush) {
                Turn::Seated => self.sit(),
                Turn::NoRoom => {}
                Turn::Waits => return,
            }
        }
        report(server.serve_flushes(&[flush]));
    }
}

/// Does the flushes that found no seat, until none is left, and leaves the worker's own seat.
fn serve_waiting(shared: &Shared, server: &Server<'_>, batch: &mut Vec<Flush>) {
    loop {
        shared.desk.next(batch);
        if batch.is_empty() {
            return;
        }
        report(server.serve_flushes(batch));
    }
}

/// Whether a worker that was called had better go back to sleep.
///
/// It must not stay for a client that asks for one thing at a time: shared out between two workers,
/// such requests leave the leader asleep, and each of them wakes it for nothing.
struct Usefulness {
    left: u32,
}

impl Usefulness {
    const MAX: u32 = 32;

    /// So many looks that find a request make up for one that does not.
    const REQUESTS_PER_EMPTY_LOOK: u32 = 2;

    fn new() -> Self {
        Self { left: Self::MAX }
    }

    fn is_left(&self) -> bool {
        self.left > 0
    }

    fn found_request(&mut self) {
        self.left = (self.left + 1).min(Self::MAX);
    }

    fn found_nothing(&mut self) {
        self.left = self.left.saturating_sub(Self::REQUESTS_PER_EMPTY_LOOK);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Leader,
    Called,
}

fn report(sent: io::Result<()>) {
    if let Err(error) = sent {
        // The end of the connection is noticed when it is read next.
        tracing::warn!(%error, "the kernel did not take a reply");
    }
}

fn data_bytes(operation: &Operation<'_>) -> usize {
    match operation {
        Operation::Read { length, .. } => usize::try_from(*length).unwrap_or(0),
        Operation::Write { data, .. } => data.len(),
        _ => 0,
    }
}

/// Room for the longest message, placed so that the data of a write begins at a page.
struct MessageBuffer {
    memory: Vec<u8>,
    start: usize,
}

impl MessageBuffer {
    const FIELDS_BYTES: usize = request::HEADER_BYTES + request::WRITE_BYTES;
    const LENGTH: usize = Self::FIELDS_BYTES + DATA_BYTES_MAX;
    const PAGE_BYTES: usize = 4096;

    fn new() -> Self {
        let mut memory = vec![0; Self::LENGTH + 2 * Self::PAGE_BYTES];
        // Touched now, so that no request waits for the memory.
        memory.fill(1);
        let to_page = memory.as_ptr().align_offset(Self::PAGE_BYTES);
        let start = to_page + Self::PAGE_BYTES - Self::FIELDS_BYTES;
        Self { memory, start }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + Self::LENGTH]
    }

    fn message(&self, length: usize) -> &[u8] {
        &self.memory[self.start..self.start + length]
    }
}

struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_a_write_begins_at_a_page() {
        let mut buffer = MessageBuffer::new();
        let data = &buffer.bytes()[MessageBuffer::FIELDS_BYTES..];
        assert_eq!(data.as_ptr().align_offset(MessageBuffer::PAGE_BYTES), 0);
        assert_eq!(data.len(), DATA_BYTES_MAX);
    }

    /// For how many requests a called worker stays, a hundred at most, when so many looks that
    /// find nothing go before each.
    #[track_caller]
    fn check_stay(empty_looks_per_request: u32, requests: std::ops::RangeInclusive<u32>) {
        let mut usefulness = Usefulness::new();
        let mut stayed_for = 0;
        while usefulness.is_left() && stayed_for < 100 {
            for _ in 0..empty_looks_per_request {
                usefulness.found_nothing();
            }
            if usefulness.is_left() {
                usefulness.found_request();
                stayed_for += 1;
            }
        }
        assert!(requests.contains(&stayed_for), "{stayed_for} requests");
    }

    #[test]
    fn a_called_worker_stays_while_requests_pile_up() {
        check_stay(0, 100..=100);
    }

    #[test]
    fn a_called_worker_leaves_requests_that_come_one_by_one_to_the_leader() {
        check_stay(1, 16..=40);
    }
}
