//! Thread of one queue. It receives requests, serves those that do not block, and passes the others
//! to [`LateWork`](crate::late::LateWork).

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use adaptive_polling::{SPIN_MAX_DEFAULT, SpinPermits, Waiter};
use block_device::BlockDevice;
use export_kit::Counters;
use kernel::{UblkChannel, UblkEvent, UblkOperation, UblkQueue, UblkRequest};

use crate::late::{Inbox, LateWork, mark_thread};
use crate::serving::{Outcome, Scratch, Work, result_of, work_of};

/// Maximum number of requests that are served before their results are submitted.
const BATCH_MAX: u32 = 16;

/// State that all queues of a device share.
pub(crate) struct Shared {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) inboxes: Arc<[Inbox]>,
    pub(crate) counters: Box<[Counters]>,
    pub(crate) late: Arc<LateWork>,
    pub(crate) permits: Arc<SpinPermits>,
    /// The device is being left to its next server.
    pub(crate) is_left: AtomicBool,
}

/// Decision that the prepared threads of all queues wait for.
pub(crate) type StartSignal = OnceLock<Start>;

/// Decision to serve the device or to abandon its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    Serve,
    Abandon,
}

/// Channel on which a thread reports its start.
pub(crate) struct Beginning {
    /// Reports that preparation is complete and then, after [`Start::Serve`], that the queue is
    /// served.
    pub(crate) told: SyncSender<io::Result<()>>,
    pub(crate) start: Arc<StartSignal>,
}

/// Serves a queue until the device is stopped or left to the next server.
pub(crate) fn run(channel: &UblkChannel, number: u16, shared: &Shared, beginning: &Beginning) {
    mark_thread();
    let waker = shared.inboxes[usize::from(number)].waker().clone();
    let Some(queue) = begin(UblkQueue::prepare(channel, number, waker), beginning) else { return };
    let mut thread = QueueThread {
        queue,
        shared,
        inbox: &shared.inboxes[usize::from(number)],
        counters: &shared.counters[usize::from(number)],
        scratch: Scratch::new(),
        withdrawn_count: 0,
    };
    if let Err(error) = thread.serve() {
        tracing::error!(number, %error, "stopped serving a ublk queue");
    }
}

/// Starts to serve the queue. All queues start together, because a process that is killed between
/// the first and the last leaves a device that some kernels cannot hand over.
fn begin(prepared: io::Result<UblkQueue>, beginning: &Beginning) -> Option<UblkQueue> {
    let tell = |result| {
        // After a timeout there is no receiver.
        let _ = beginning.told.send(result);
    };
    match prepared {
        Ok(mut queue) => {
            tell(Ok(()));
            if *beginning.start.wait() == Start::Abandon {
                return None;
            }
            let fetched = queue.fetch();
            let is_served = fetched.is_ok();
            tell(fetched);
            is_served.then_some(queue)
        }
        Err(error) => {
            tell(Err(error));
            None
        }
    }
}

struct QueueThread<'shared> {
    queue: UblkQueue,
    shared: &'shared Shared,
    inbox: &'shared Inbox,
    counters: &'shared Counters,
    scratch: Scratch,
    withdrawn_count: u16,
}

impl QueueThread<'_> {
    fn serve(&mut self) -> io::Result<()> {
        let mut waiter = Waiter::new(Arc::clone(&self.shared.permits), SPIN_MAX_DEFAULT);
        loop {
            let found = self.wait(&mut waiter)?;
            if let Some(event) = found {
                self.take(event)?;
                for _ in 1..BATCH_MAX {
                    match self.queue.look()? {
                        Some(event) => self.take(event)?,
                        None => break,
                    }
                }
            }
            // PAIRS-WITH: Served::leave, "the device is left".
            let is_left = self.shared.is_left.load(Ordering::Acquire);
            if is_left || self.withdrawn_count == self.queue.depth() {
                return Ok(());
            }
            self.queue.send()?;
        }
    }

    fn wait(&mut self, waiter: &mut Waiter) -> io::Result<Option<UblkEvent>> {
        let queue = RefCell::new(&mut self.queue);
        let poll = || match queue.borrow_mut().look() {
            Ok(None) => Poll::Pending,
            result => Poll::Ready(result),
        };
        waiter.wait(poll, || queue.borrow_mut().wait().map(|()| None))
    }

    fn take(&mut self, event: UblkEvent) -> io::Result<()> {
        match event {
            UblkEvent::Request(request) => self.take_request(request),
            UblkEvent::Withdrawn => {
                self.withdrawn_count += 1;
                Ok(())
            }
            UblkEvent::Woken => {
                let answered = self.inbox.take();
                answered
                    .into_iter()
                    .try_for_each(|(request, outcome)| self.answer(request, outcome))
            }
        }
    }

    fn take_request(&mut self, mut request: UblkRequest) -> io::Result<()> {
        let device = &*self.shared.device;
        match work_of(&request, device) {
            Work::Elsewhere => self.shared.late.serve(request),
            Work::Here => {
                let outcome = self.scratch.serve(&mut request, device);
                return self.answer(request, outcome);
            }
            Work::Flush => match self.scratch.serve(&mut request, device) {
                Ok(bytes) => self.shared.late.flush(request, bytes),
                failed => return self.answer(request, failed),
            },
        }
        Ok(())
    }

    fn answer(&mut self, request: UblkRequest, outcome: Outcome) -> io::Result<()> {
        let (counters, bytes) = (self.counters, request.length_bytes());
        match request.operation() {
            _ if outcome.is_err() => counters.count_error(),
            UblkOperation::Read => {
                counters.reads.add(1);
                counters.read_bytes.add(bytes);
            }
            UblkOperation::Write => {
                counters.writes.add(1);
                counters.written_bytes.add(bytes);
            }
            UblkOperation::Flush => counters.flushes.add(1),
            UblkOperation::Discard => counters.discards.add(1),
            UblkOperation::WriteZeroes => counters.zeroes.add(1),
            UblkOperation::Other(_) => {}
        }
        self.queue.complete(request, result_of(outcome))
    }
}
