//! Flushes that wait for a disk while their connection goes on.
//!
//! ```text
//! connection's thread ── FlushQueue ──▶ flush thread ── BlockDevice::flush
//!        │            cookies, bounded       │
//!        └─────────────▶ Sender ◀────────────┘
//! ```
//!
//! The protocol lets replies come in any order, and has a flush cover what was answered before it
//! was sent. So one thread takes everything that waits, flushes once for all of it, and answers
//! each request; what comes meanwhile is for its next round. A connection has one such thread from
//! its first flush of a device with a write cache on, and none without. It is nobody's child: a
//! flush that never ends keeps it, its entry among the connections, and nothing else.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use block_device::BlockDevice;

use crate::agreement::Replies;
use crate::buffer::{OUTPUT_STEP_BYTES_MAX, Output};
use crate::failure::Failure;
use crate::registry::Registration;
use crate::replies;
use crate::transport::Sender;
use crate::wire::Errno;

/// Flushes of one connection that wait, at most. Clients keep far fewer requests in flight.
const FLUSH_COUNT_MAX: usize = 1024;

// The replies to all of them are sent together.
const _: () = assert!(FLUSH_COUNT_MAX * replies::ERROR_CHUNK_BYTES_MAX <= OUTPUT_STEP_BYTES_MAX);

/// Who waits for flushes that may take long.
#[derive(Clone)]
pub(crate) enum Flushes {
    /// The session itself, before it goes on.
    Awaited,
    LeftTo(Arc<FlushQueue>),
}

/// What a flush thread must know of its session.
pub(crate) struct FlushOrder {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) replies: Replies,
}

/// The flushes of one connection that nobody has begun yet.
#[derive(Default)]
pub(crate) struct FlushQueue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The requests' cookies, in the order in which they came.
    waiting: Vec<u64>,
    /// The end of the connection, once it has come: no flush is added any more.
    end: Option<End>,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With everything answered that was asked.
    InOrder,
    /// The client has gone, or was cut off.
    Lost,
}

impl FlushQueue {
    /// Has a request answered after a flush that begins from now on.
    pub(crate) fn push(&self, cookie: u64) -> Result<(), Failure> {
        let mut state = self.lock();
        if state.waiting.len() >= FLUSH_COUNT_MAX {
            let message = format!("{FLUSH_COUNT_MAX} flushes wait on this connection already");
            return Err(Failure::new(Errno::NoMemory, message));
        }
        state.waiting.push(cookie);
        self.changed.notify_one();
        Ok(())
    }

    /// Tells the flush thread that nothing more will come.
    pub(crate) fn close(&self, end: End) {
        self.lock().end = Some(end);
        self.changed.notify_one();
    }

    /// Everything that waits, once there is something; or the end, after which there is nothing.
    fn take(&self) -> Result<Vec<u64>, End> {
        let mut state = self.lock();
        loop {
            match state.end {
                Some(End::Lost) => return Err(End::Lost),
                _ if !state.waiting.is_empty() => return Ok(std::mem::take(&mut state.waiting)),
                Some(End::InOrder) => return Err(End::InOrder),
                None => state = self.changed.wait(state).expect(NOT_POISONED),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(NOT_POISONED)
    }
}

const NOT_POISONED: &str = "nothing panics while it holds this lock";

/// What a flush thread works with.
pub(crate) struct Flusher {
    pub(crate) queue: Arc<FlushQueue>,
    pub(crate) order: FlushOrder,
    pub(crate) sender: Arc<Sender>,
    pub(crate) registration: Arc<Registration>,
}

impl Flusher {
    /// Works on a thread of its own until the connection has ended and everything is answered.
    pub(crate) fn start(self, thread_start: fn()) -> io::Result<()> {
        let work = move || {
            thread_start();
            self.run();
        };
        thread::Builder::new().name("nbd-flush".to_owned()).spawn(work)?;
        Ok(())
    }

    fn run(&self) {
        let mut output = Output::new();
        let ended = loop {
            let answered = match self.queue.take() {
                Ok(cookies) => self.flush(&cookies, &mut output),
                Err(end) => break end,
            };
            if let Err(error) = answered {
                // The connection's own thread notices, too.
                tracing::debug!(%error, "an NBD client did not take the replies to its flushes");
                break End::Lost;
            }
        };
        if ended == End::InOrder
            && let Err(error) = self.sender.close()
        {
            tracing::debug!(%error, "an NBD connection was lost at its end");
        }
    }

    /// Flushes once and answers all of `cookies`.
    fn flush(&self, cookies: &[u64], output: &mut Output) -> io::Result<()> {
        let outcome = self.order.device.flush().map_err(Failure::from);
        if outcome.is_err() {
            self.registration.count_late_errors(cookies.len() as u64);
        }
        for &cookie in cookies {
            replies::put_outcome(cookie, self.order.replies, outcome.as_ref().err(), output);
        }
        let sent = self.sender.send_between_replies(output.data());
        output.clear();
        sent
    }
}
