//! Flushes that wait for a disk while their connection goes on.
//!
//! ```text
//! connection's thread ── LateQueue ──▶ flush thread ── BlockDevice::flush
//!        │            cookies, bounded      │
//!        └────────────▶ Sender ◀────────────┘
//! ```
//!
//! The protocol lets replies come in any order, and has a flush cover what was answered before it
//! was sent. So one thread takes everything that waits, flushes once for all of it, and answers
//! each request; what comes meanwhile is for its next round. A connection has one such thread from
//! its first flush of a device with a write cache on, and none without. No thread waits for it: a
//! flush that never ends keeps it, its entry among the connections, and nothing else.

use std::io;
use std::sync::Arc;
use std::thread;

use block_device::BlockDevice;
use export_kit::{LateQueue, QueueEnd, Registration};

use crate::agreement::Replies;
use crate::buffer::{OUTPUT_STEP_BYTES_MAX, Output};
use crate::failure::Failure;
use crate::replies;
use crate::transport::Sender;

/// Flushes of one connection that wait, at most. Clients keep far fewer requests in flight.
pub(crate) const FLUSH_COUNT_MAX: usize = 1024;

// The replies to all of them are sent together.
const _: () = assert!(FLUSH_COUNT_MAX * replies::ERROR_CHUNK_BYTES_MAX <= OUTPUT_STEP_BYTES_MAX);

/// The cookies of the flushes of one connection that were not begun yet. When it ends in order,
/// with everything answered, the queue is drained; when the client has gone, it is dropped.
pub(crate) type FlushQueue = LateQueue<u64>;

/// Session data for a flush thread.
pub(crate) struct FlushOrder {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) replies: Replies,
}

/// State of a flush thread.
pub(crate) struct Flusher {
    pub(crate) queue: Arc<FlushQueue>,
    pub(crate) order: FlushOrder,
    pub(crate) sender: Arc<Sender>,
    pub(crate) registration: Arc<Registration<String>>,
}

impl Flusher {
    /// Works on a thread of its own until the connection has ended and everything is answered.
    pub(crate) fn start(self, thread_start: fn()) -> io::Result<()> {
        let work = move || {
            thread_start();
            self.run();
        };
        thread::Builder::new().name("nbd-flush".to_owned()).spawn(work).map(drop)
    }

    fn run(&self) {
        let mut output = Output::new();
        let ended = self.queue.serve_together(|cookies| {
            if let Err(error) = self.flush(cookies.into_iter(), &mut output) {
                // The connection's own thread notices, too.
                tracing::debug!(%error, "NBD client does not read the replies to its flushes");
                self.queue.close(QueueEnd::Dropped);
            }
        });
        if ended == QueueEnd::Drained
            && let Err(error) = self.sender.close()
        {
            tracing::debug!(%error, "NBD connection lost while closing");
        }
    }

    /// Flushes once and answers all of `cookies`.
    fn flush(
        &self,
        cookies: impl ExactSizeIterator<Item = u64>,
        output: &mut Output,
    ) -> io::Result<()> {
        let outcome = self.order.device.flush().map_err(Failure::from);
        if outcome.is_err() {
            self.registration.counters().count_errors(cookies.len() as u64);
        }
        for cookie in cookies {
            replies::put_outcome(cookie, self.order.replies, outcome.as_ref().err(), output);
        }
        let sent = self.sender.send_between_replies(output.data());
        output.clear();
        sent
    }
}
