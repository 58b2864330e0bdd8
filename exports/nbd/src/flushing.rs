//! Deferred flushes: they wait for a disk while their connection continues.
//!
//! ```text
//! connection's thread ── LateQueue ──▶ flush thread ── BlockDevice::flush
//!        │            cookies, bounded      │
//!        └────────────▶ Sender ◀────────────┘
//! ```
//!
//! In the protocol, replies may come in any order, and a flush covers the writes that were answered
//! before it was sent. The flush thread therefore takes all queued flushes, flushes once for them,
//! and answers each. Flushes that arrive meanwhile are part of its next round. A connection gets a
//! flush thread with its first flush of a device with a write cache. No thread waits for it: a
//! flush that never returns holds its thread and its connection's registration, and nothing else.

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

/// Maximum number of pending flushes per connection. Clients keep far fewer requests in flight.
pub(crate) const FLUSH_COUNT_MAX: usize = 1024;

// All replies of one round must fit the output.
const _: () = assert!(FLUSH_COUNT_MAX * replies::ERROR_CHUNK_BYTES_MAX <= OUTPUT_STEP_BYTES_MAX);

/// Cookies of a connection's flushes that have not started yet. The queue is drained if the
/// connection ends in order, and dropped if the client has disconnected.
pub(crate) type FlushQueue = LateQueue<u64>;

/// Data of a session that its flush thread needs.
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
    /// Starts the thread, which runs until the connection has ended and all flushes are answered.
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
                // The connection's own thread notices the failure as well.
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
