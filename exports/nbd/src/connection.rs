//! One client connection: moves bytes between its transport and its session.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use adaptive_polling::Waiter;
use export_kit::{Inside, QueueEnd, Registration, end_socket};
use rustix::net::Shutdown;
use rustls::ServerConfig;

use crate::agreement::{Progress, TlsPolicy};
use crate::buffer::{BufferShare, Input, Output};
use crate::exports::{Client, Exports};
use crate::flushing::{FlushQueue, Flusher};
use crate::session::Session;
use crate::transport::{MessageEnd, Socket, Transport};

/// State of a connection before it is served.
pub(crate) struct Connection {
    pub(crate) socket: Socket,
    pub(crate) exports: Arc<dyn Exports>,
    /// Identity of the client, as far as it is known before TLS.
    pub(crate) client: Client,
    /// TLS configuration. If set, clients must use TLS.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) waiter: Waiter,
    pub(crate) handshake_time_max: Duration,
    pub(crate) registration: Registration<String>,
    /// Called first on the flush thread, if one is started.
    pub(crate) thread_start: fn(),
}

impl Connection {
    /// Serves the client until it disconnects, violates the protocol, or its socket is shut down.
    /// Flushes may still be in progress afterwards; then the flush thread ends the connection.
    pub(crate) fn serve(self) {
        let policy = if self.tls.is_some() { TlsPolicy::Required } else { TlsPolicy::Absent };
        let deadline = Instant::now() + self.handshake_time_max;
        let queue = Arc::new(FlushQueue::default());
        let exports = Arc::clone(&self.exports);
        let session = Session::new(exports, self.client, policy)
            .leaving_flushes_to(Arc::clone(&queue))
            .counted_by(Arc::clone(self.registration.counters()));
        let mut line = Line {
            transport: Transport::new(self.socket.clone(), self.waiter, deadline),
            session,
            input: Input::new(),
            output: Output::new(),
            registration: Arc::new(self.registration),
            inside: None,
            leaving_time_max: self.handshake_time_max,
            begun_before: 0,
            flush_queue: queue,
            flush_thread_start: self.thread_start,
            has_flush_thread: false,
        };
        let ran = line.run(self.tls);
        // No request can change data any more. What remains may wait for the client, or for a
        // flush.
        line.inside = None;
        match &ran {
            Ok(()) => tracing::debug!("NBD client disconnected"),
            Err(error) => tracing::debug!(%error, "NBD connection lost"),
        }
        let in_order = ran.is_ok() && line.session.message_end() == MessageEnd::BetweenReplies;
        line.end(if in_order { QueueEnd::Drained } else { QueueEnd::Dropped });
        if !in_order {
            // Shut the socket down, because a flush thread would keep it open.
            end_socket(&**self.socket.descriptor(), Shutdown::Both);
        }
    }
}

struct Line {
    transport: Transport,
    session: Session,
    input: Input,
    output: Output,
    registration: Arc<Registration<String>>,
    /// Registration with the export, once one is selected.
    inside: Option<Inside<String>>,
    leaving_time_max: Duration,
    /// Number of requests started before the last batch.
    begun_before: u64,
    /// Flushes for the flush thread, which is started by the first of them.
    flush_queue: Arc<FlushQueue>,
    flush_thread_start: fn(),
    has_flush_thread: bool,
}

impl Line {
    fn run(&mut self, tls: Option<Arc<ServerConfig>>) -> io::Result<()> {
        loop {
            let share = BufferShare::among(self.registration.open_count());
            self.input.set_share(share);
            self.output.set_share(share);
            let progress = self.session.advance(&mut self.input, &mut self.output);
            if !self.has_flush_thread {
                self.start_flusher_if_needed()?;
            }
            self.note_export()?;
            if !self.output.is_empty() {
                let end = self.session.message_end();
                self.transport.sender().send(self.output.data(), end)?;
                self.output.clear();
            }
            match progress {
                Progress::SendOutput => {}
                Progress::ReceiveInput => {
                    let begun = self.newly_begun();
                    self.transport.gather(begun);
                    let count = self.transport.receive(self.input.space())?;
                    if count == 0 {
                        return Ok(());
                    }
                    self.input.filled(count);
                }
                Progress::StartTls => {
                    let config = tls.clone().expect("a session starts TLS only if required");
                    let certificate = self.transport.start_tls(config)?;
                    let client = certificate.map_or(Client::Anybody, Client::Certified);
                    self.session.tls_started(client);
                }
                Progress::Close => return Ok(()),
            }
        }
    }

    /// Ends the connection, or leaves that to the flush thread if flushes are unanswered.
    fn end(&self, end: QueueEnd) {
        let sender = self.transport.sender();
        if end == QueueEnd::Dropped {
            sender.give_up();
        }
        self.flush_queue.close(end);
        if end == QueueEnd::Drained
            && !self.has_flush_thread
            && let Err(error) = sender.close()
        {
            tracing::debug!(%error, "NBD connection lost while closing");
        }
    }

    /// Starts the flush thread if needed. Fails if the system has no thread left.
    fn start_flusher_if_needed(&mut self) -> io::Result<()> {
        let Some(order) = self.session.flush_order() else {
            return Ok(());
        };
        let flusher = Flusher {
            queue: Arc::clone(&self.flush_queue),
            order,
            sender: Arc::clone(self.transport.sender()),
            registration: Arc::clone(&self.registration),
        };
        flusher.start(self.flush_thread_start)?;
        self.has_flush_thread = true;
        Ok(())
    }

    /// Returns the number of requests started since the last call.
    fn newly_begun(&mut self) -> u32 {
        let begun = self.registration.counters().request_count();
        let count = begun - std::mem::replace(&mut self.begun_before, begun);
        u32::try_from(count).expect("the input holds no more than some thousand requests")
    }

    /// Registers the connection with its export. Called before the first reply and request of the
    /// transmission phase, so that the client finds the connection counted, and so that requests of
    /// earlier connections have ended.
    fn note_export(&mut self) -> io::Result<()> {
        if self.inside.is_none()
            && let Some(export_name) = self.session.export_name()
        {
            let inside = self.registration.open(export_name.to_owned(), (), self.leaving_time_max);
            let still_leaving = || {
                let message = "requests of a closed connection are still in progress";
                tracing::warn!(export_name, "NBD client rejected: {message}");
                io::Error::new(io::ErrorKind::TimedOut, message)
            };
            self.inside = Some(inside.ok_or_else(still_leaving)?);
            self.transport.lift_deadline()?;
        }
        Ok(())
    }
}
