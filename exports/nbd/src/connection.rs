//! One client: moves bytes between its transport and its session until either has had enough.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use waiting::Waiter;

use crate::agreement::{Progress, TlsPolicy};
use crate::buffer::{Input, Output};
use crate::exports::Exports;
use crate::registry::Registration;
use crate::session::Session;
use crate::socket::Socket;
use crate::transport::Transport;

/// What a connection is made of.
pub(crate) struct Connection {
    pub(crate) socket: Arc<Socket>,
    pub(crate) exports: Arc<dyn Exports>,
    /// Clients must use TLS when this is set.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) waiter: Waiter,
    pub(crate) handshake_time_max: Duration,
    pub(crate) registration: Registration,
}

impl Connection {
    /// Serves the client until it goes, breaks the protocol, or is ended through its socket.
    pub(crate) fn serve(self) {
        let Self { socket, exports, tls, waiter, handshake_time_max, registration } = self;
        let policy = if tls.is_some() { TlsPolicy::Required } else { TlsPolicy::Absent };
        let deadline = Instant::now() + handshake_time_max;
        let mut line = Line {
            transport: Transport::new(socket, waiter, deadline),
            session: Session::new(exports, policy),
            input: Input::new(),
            output: Output::new(),
            registration,
            begun_before: 0,
        };
        match line.run(tls) {
            Ok(()) => tracing::debug!("an NBD client has gone"),
            Err(error) => tracing::debug!(%error, "an NBD connection was lost"),
        }
    }
}

struct Line {
    transport: Transport,
    session: Session,
    input: Input,
    output: Output,
    registration: Registration,
    /// Requests that were begun before the last batch.
    begun_before: u64,
}

impl Line {
    fn run(&mut self, tls: Option<Arc<ServerConfig>>) -> io::Result<()> {
        loop {
            let progress = self.session.advance(&mut self.input, &mut self.output);
            self.tell_registry()?;
            if !self.output.is_empty() {
                self.transport.send(self.output.data())?;
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
                    self.transport.start_tls(config)?;
                    self.session.tls_started();
                }
                Progress::Close => return self.transport.close(),
            }
        }
    }

    /// Requests that were begun since this was last asked.
    fn newly_begun(&mut self) -> u32 {
        let begun = self.session.traffic().request_count();
        let count = begun - std::mem::replace(&mut self.begun_before, begun);
        u32::try_from(count).expect("the input holds no more than some thousand requests")
    }

    /// Before a reply is sent, so that whoever has it finds it counted.
    fn tell_registry(&mut self) -> io::Result<()> {
        let Some(export_name) = self.session.export_name() else {
            return Ok(());
        };
        if self.transport.has_deadline() {
            self.registration.chose_export(export_name);
            self.transport.lift_deadline()?;
        }
        self.registration.report(self.session.traffic());
        Ok(())
    }
}
