//! Threads that serve one connection.
//!
//! All memory is allocated before the first request. A panic of a worker ends the process. The fd
//! store keeps the connection, and the next process answers the requests in flight.
//!
//! A worker whose flush does not complete cannot be stopped. A pool that is dropped waits for it
//! for a bounded time and then abandons it. The worker answers its request if the flush ever
//! completes, and exits.

use std::io;
use std::os::fd::AsFd;
use std::process;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use adaptive_polling::{Machine, SpinPermits, ThisMachine, Waiter};
use export_kit::Traffic;

use crate::connection::{Connection, Look};
use crate::file_users::OpenFiles;
use crate::files::Files;
use crate::in_flight::{BUFFERS_MAX, Flush, InFlight, MessageBuffer};
use crate::reply::Failure;
use crate::request::{self, Header, Malformed, Operation};
use crate::schedule::{
    Assignment, AssignmentEnd, BATCH_MAX, Role, Schedule, SlowWork, WORKER_COUNT_MAX,
};
use crate::server::{SCRATCH_BYTES, Server};

mod shared;

use shared::Shared;

/// Amount of work that a leader serves without finding the queue empty, before it unparks a helper.
/// It takes about a hundred microseconds.
const HELP_FROM_BYTES: usize = 512 << 10;

/// Fixed cost of a request, as the number of bytes of data with the same cost.
const REQUEST_COST_BYTES: usize = 4096;

// Each worker needs a buffer.
const _: () = assert!(WORKER_COUNT_MAX <= BUFFERS_MAX);

/// Settings of a worker pool.
#[derive(Clone)]
pub(crate) struct WorkerPoolOptions {
    pub(crate) worker_count: usize,
    pub(crate) permits: Arc<SpinPermits>,
    pub(crate) spin_max: Duration,
    /// Time that a dropped worker pool waits for its workers.
    pub(crate) stop_patience: Duration,
    /// Called by each worker before its first request.
    pub(crate) thread_start: Arc<dyn Fn() + Send + Sync>,
}

/// The running workers. Dropping the worker pool stops them after their current requests.
pub(crate) struct WorkerPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    stop_patience: Duration,
}

impl WorkerPool {
    /// Starts workers, which first serve the unanswered requests of `in_flight`. It has a buffer
    /// for each worker.
    pub(crate) fn start(
        options: &WorkerPoolOptions,
        connection: Arc<Connection>,
        files: Arc<dyn Files>,
        open: Arc<OpenFiles>,
        in_flight: InFlight,
    ) -> io::Result<Self> {
        let InFlight { mut buffers, flushes, unanswered_flushes, .. } = in_flight;
        let worker_count = options.worker_count;
        let schedule = Schedule::new(worker_count, flushes, unanswered_flushes);
        // Buffers with unanswered requests come first.
        buffers.sort_by_key(|buffer| buffer.unanswered.is_none());
        let mut unanswered = buffers.split_off(worker_count);
        unanswered.retain(|buffer| buffer.unanswered.is_some());
        let shared = Arc::new(Shared::new(schedule, unanswered, connection, files, open)?);
        let stop_patience = options.stop_patience;
        let mut pool = Self { shared, threads: Vec::new(), stop_patience };
        for (index, buffer) in buffers.into_iter().enumerate() {
            let (options, shared) = (options.clone(), Arc::clone(&pool.shared));
            pool.spawn(format!("fuse-{index}"), move || {
                Worker::new(index, &options, &shared, buffer).run(&options);
            })?;
        }
        let shared = Arc::clone(&pool.shared);
        pool.spawn("fuse-watch".to_owned(), move || {
            shared.schedule.watch(|| shared.is_over());
        })?;
        Ok(pool)
    }

    fn spawn(&mut self, name: String, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        shared.count_running(|running| *running += 1);
        let body = move || {
            let _bomb = AbortOnPanic;
            work();
            shared.count_running(|running| *running -= 1);
            shared.one_ended.notify_all();
        };
        match thread::Builder::new().name(name).spawn(body) {
            Ok(thread) => self.threads.push(thread),
            Err(error) => {
                self.shared.count_running(|running| *running -= 1);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns whether the connection exists.
    pub(crate) fn is_serving(&self) -> bool {
        !self.shared.is_over()
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.shared.schedule.traffic()
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        rustix::io::write(&self.shared.stop, &1_u64.to_ne_bytes()).expect("it was zero before");
        self.shared.schedule.end();
        let running = self.shared.running.lock().unwrap_or_else(PoisonError::into_inner);
        let waited =
            self.shared.one_ended.wait_timeout_while(running, self.stop_patience, |n| *n > 0);
        let left_count = *waited.unwrap_or_else(PoisonError::into_inner).0;
        if left_count > 0 {
            tracing::warn!(left_count, "abandoning FUSE workers stuck in flush");
            return;
        }
        for thread in self.threads.drain(..) {
            thread.join().expect("workers that panic end the process");
        }
    }
}

/// State of one worker thread.
struct Worker<'shared> {
    index: usize,
    shared: &'shared Shared,
    waiter: Waiter,
    machine: ThisMachine,
    buffer: MessageBuffer,
    scratch: Vec<u8>,
    /// Flushes that are served together.
    batch: Vec<Flush>,
    /// Work served as the leader since the queue was last empty.
    backlog_bytes: usize,
    /// Work for which the worker was just aside.
    was_aside: Option<SlowWork>,
}

impl<'shared> Worker<'shared> {
    fn new(
        index: usize,
        options: &WorkerPoolOptions,
        shared: &'shared Shared,
        buffer: MessageBuffer,
    ) -> Self {
        let mut scratch = vec![0; SCRATCH_BYTES];
        // Touch the pages now, so that no request waits for memory.
        scratch.fill(1);
        Self {
            index,
            shared,
            waiter: Waiter::new(Arc::clone(&options.permits), options.spin_max),
            machine: ThisMachine::new(),
            buffer,
            scratch,
            batch: Vec::with_capacity(BATCH_MAX),
            backlog_bytes: 0,
            was_aside: None,
        }
    }

    fn run(mut self, options: &WorkerPoolOptions) {
        if let Err(error) = kernel::serve_block_io() {
            // The program warns of this once, when it sets the flag before it starts threads.
            tracing::debug!(
                %error, "cannot mark a thread that serves a block device (PR_SET_IO_FLUSHER)"
            );
        }
        (options.thread_start)();
        let shared = self.shared;
        shared.schedule.register(self.index);
        self.serve_unanswered();
        while !shared.is_over() {
            if shared.schedule.try_lead(self.index) || self.help() {
                self.lead();
            } else {
                shared.schedule.park(self.index, || shared.is_over());
            }
        }
    }

    /// Serves the requests that an earlier process read and did not answer, if the kernel does not
    /// resend them.
    fn serve_unanswered(&mut self) {
        let shared = self.shared;
        while let Some(length) = self.buffer.unanswered.take() {
            self.serve(length, Role::Called);
            if let Some(next) = shared.next_unanswered() {
                self.buffer = next;
            }
        }
        let assignment = shared.schedule.assign(self.index, Role::Called);
        let before_wait = || assignment.will_wait();
        let flushed = |node, has_succeeded| shared.schedule.flushed(node, has_succeeded);
        let server = shared.server(self.index, &before_wait, &flushed);
        assignment.will_wait();
        serve_waiting(&assignment, &server, &mut self.batch);
        assignment.end();
    }

    /// Waits for requests and serves them, until a slow request arrives, another worker leads, or
    /// the pool stops.
    fn lead(&mut self) {
        self.backlog_bytes = 0;
        while !self.shared.is_over() {
            let awaited = match self.was_aside.take() {
                Some(work) => self.look_after(work),
                None => self.wait_for_message(),
            };
            let still_leads = match awaited {
                Awaited::Message(length) => self.serve(length, Role::Leader),
                Awaited::Nothing => true,
                Awaited::Relief => false,
            };
            if !still_leads {
                return;
            }
        }
        self.shared.schedule.resign();
    }

    /// Serves requests as long as there are any and another worker leads. Returns whether this
    /// worker leads from now on.
    fn help(&mut self) -> bool {
        let mut usefulness = Usefulness::new();
        while usefulness.is_left() && self.shared.schedule.has_leader() && !self.shared.is_over() {
            let look = self.shared.connection.look(self.buffer.bytes());
            match self.message_length(look) {
                Some(length) => {
                    usefulness.found_request();
                    self.serve(length, Role::Called);
                    if self.shared.relieve_leader(self.index) {
                        return true;
                    }
                }
                None => {
                    usefulness.found_nothing();
                    self.machine.offer_core();
                }
            }
        }
        false
    }

    /// Checks whether a request, other than the expected flush, had to wait for a leader that was
    /// aside.
    fn look_after(&mut self, work: SlowWork) -> Awaited {
        let look = self.shared.connection.look(self.buffer.bytes());
        let found = self.message_length(look);
        let has_company = found.is_some_and(|length| {
            let message = request::parse(self.buffer.message(length));
            work != SlowWork::WriteBack || !matches!(message, Ok((_, Operation::Sync)))
        });
        self.shared.schedule.saw_company(has_company);
        found.map_or(Awaited::Nothing, Awaited::Message)
    }

    fn wait_for_message(&mut self) -> Awaited {
        let (shared, index, bytes) = (self.shared, self.index, self.buffer.bytes());
        let (mut look_count, mut still_leads) = (0_u32, true);
        let poll = || {
            look_count += 1;
            match shared.connection.look(bytes) {
                Ok(Look::Nothing) => Poll::Pending,
                found => Poll::Ready(found),
            }
        };
        let sleep = || {
            shared.schedule.fall_asleep(index);
            let slept = shared.connection.sleep([shared.stop.as_fd(), shared.relief.as_fd()]);
            still_leads = shared.schedule.wake_up(index);
            if !still_leads {
                shared.note_relieved();
            }
            slept.map(|()| Look::Nothing)
        };
        let mut look = self.waiter.wait(poll, sleep);
        if look_count > 1 {
            self.backlog_bytes = 0;
        }
        if matches!(look, Ok(Look::Nothing)) {
            if !still_leads {
                return Awaited::Relief;
            }
            self.backlog_bytes = 0;
            look = shared.connection.look(self.buffer.bytes());
        }
        self.message_length(look).map_or(Awaited::Nothing, Awaited::Message)
    }

    fn message_length(&self, look: io::Result<Look>) -> Option<usize> {
        match look {
            Ok(Look::Message(length)) => return Some(length),
            Ok(Look::Nothing) => return None,
            Ok(Look::Ended) => tracing::info!("the FUSE connection has ended"),
            Err(error) => tracing::error!(%error, "cannot read FUSE requests"),
        }
        self.shared.end();
        None
    }

    /// Serves the message in the buffer. Returns whether a leader still leads.
    fn serve(&mut self, length: usize, role: Role) -> bool {
        let shared = self.shared;
        let assignment = shared.schedule.assign(self.index, role);
        let before_wait = || assignment.will_wait();
        let flushed = |node, has_succeeded| shared.schedule.flushed(node, has_succeeded);
        let server = shared.server(self.index, &before_wait, &flushed);
        let (header, operation) = match request::parse(self.buffer.message(length)) {
            Ok(request) => request,
            Err(Malformed::Body(header)) => {
                report(server.refuse(header, Failure::Invalid));
                return true;
            }
            Err(Malformed::NoHeader) => {
                tracing::error!(length, "the kernel sent a FUSE message without a header");
                return true;
            }
        };
        if role == Role::Leader {
            self.backlog_bytes += REQUEST_COST_BYTES + data_bytes(&operation);
            if self.backlog_bytes >= HELP_FROM_BYTES {
                self.backlog_bytes = 0;
                shared.schedule.call_help();
            }
        }
        let (machine, scratch) = (&self.machine, &mut self.scratch);
        answer(&assignment, &server, Request { header, operation, machine, scratch });
        serve_waiting(&assignment, &server, &mut self.batch);
        let AssignmentEnd { still_leads, was_aside } = assignment.end();
        self.was_aside = was_aside;
        still_leads
    }
}

/// A parsed request, with resources for serving it.
struct Request<'worker> {
    header: Header,
    operation: Operation<'worker>,
    machine: &'worker ThisMachine,
    scratch: &'worker mut [u8],
}

/// Answers a request, or leaves its flush to another worker.
fn answer(assignment: &Assignment<'_>, server: &Server<'_>, request: Request<'_>) {
    let Request { header, operation, machine, scratch } = request;
    let pace = assignment.pace_of(header.node, &operation);
    let begun = pace.as_ref().map(|_| machine.now());
    let served = server.serve(header, &operation, scratch);
    if let (Some(pace), Some(begun)) = (pace, begun) {
        pace.learn(machine.now().saturating_sub(begun));
    }
    match served {
        Ok(Some(flush)) if !flush.may_wait => report(server.serve_flushes(&[flush])),
        Ok(Some(flush)) => {
            if assignment.begin_flush(flush) {
                report(server.serve_flushes(&[flush]));
                assignment.end_flush();
            }
        }
        Ok(None) => {
            if matches!(operation, Operation::Write { .. })
                && assignment.begin_write_back(header.node)
            {
                server.write_back(header.node);
            }
        }
        Err(error) => report(Err(error)),
    }
}

/// Serves queued flushes as long as the worker has its slot.
fn serve_waiting(assignment: &Assignment<'_>, server: &Server<'_>, batch: &mut Vec<Flush>) {
    loop {
        assignment.next_flushes(batch);
        if batch.is_empty() {
            break;
        }
        report(server.serve_flushes(batch));
        assignment.answered(batch);
    }
}

fn report(sent: io::Result<()>) {
    if let Err(error) = sent {
        // The end of the connection is noticed at the next read.
        tracing::warn!(%error, "cannot send a FUSE reply");
    }
}

/// Score that decides when a helper parks again.
///
/// A helper must not stay for a client with serial requests. If two workers share such requests,
/// the leader sleeps, and each request wakes it for nothing.
struct Usefulness {
    left: u32,
}

impl Usefulness {
    const MAX: u32 = 32;

    /// Number of reads with a request that outweigh one without.
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

/// Result of a leader's wait.
enum Awaited {
    /// A message of this length is in the buffer.
    Message(usize),
    Nothing,
    /// Another worker leads now.
    Relief,
}

fn data_bytes(operation: &Operation<'_>) -> usize {
    match operation {
        Operation::Read { length, .. } => usize::try_from(*length).unwrap_or(0),
        Operation::Write { data, .. } => data.len(),
        _ => 0,
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

    /// Checks for how many requests a helper stays, at most a hundred, if this number of empty
    /// reads precedes each request.
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
