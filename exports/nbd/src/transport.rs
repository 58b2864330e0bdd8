//! What a connection receives and sends with: a socket, with or without TLS on it.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Instant;

use rustls::{ServerConfig, ServerConnection};
use waiting::Waiter;

use crate::socket::Socket;

pub(crate) struct Transport {
    wire: Wire,
    tls: Option<Box<ServerConnection>>,
}

impl Transport {
    /// A plain connection, on which every wait ends at `deadline`.
    pub(crate) fn new(socket: Arc<Socket>, waiter: Waiter, deadline: Instant) -> Self {
        Self { wire: Wire { socket, waiter, deadline: Some(deadline) }, tls: None }
    }

    /// From now on, clients may take all the time they like.
    pub(crate) fn lift_deadline(&mut self) -> io::Result<()> {
        self.wire.deadline = None;
        self.wire.socket.set_time_max(None)
    }

    pub(crate) fn has_deadline(&self) -> bool {
        self.wire.deadline.is_some()
    }

    /// Shakes hands and goes on over TLS.
    pub(crate) fn start_tls(&mut self, config: Arc<ServerConfig>) -> io::Result<()> {
        let mut tls = Box::new(ServerConnection::new(config).map_err(io::Error::other)?);
        while tls.is_handshaking() {
            tls.complete_io(&mut self.wire)?;
        }
        self.tls = Some(tls);
        Ok(())
    }

    /// Leaves a busy client alone for a moment, so that its requests come together; see
    /// [`Waiter::gather`].
    pub(crate) fn gather(&mut self, request_count: u32) {
        self.wire.waiter.gather(request_count);
    }

    /// Waits for bytes; none means that the client has gone.
    pub(crate) fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return self.wire.wait_for_bytes(into);
        };
        loop {
            match tls.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return outcome,
            }
            if tls.read_tls(&mut self.wire)? == 0 {
                return Ok(0);
            }
            let processed = tls.process_new_packets().map_err(io::Error::other);
            // An alert tells the client why it is left.
            send_tls(tls, &mut self.wire)?;
            processed?;
        }
    }

    /// Hands over all of `bytes`, waiting for a client that does not take them.
    pub(crate) fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return self.wire.write_all(bytes);
        };
        while !bytes.is_empty() {
            let count = tls.writer().write(bytes)?;
            bytes = &bytes[count..];
            send_tls(tls, &mut self.wire)?;
        }
        Ok(())
    }

    /// Says good-bye as TLS wants it.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            send_tls(tls, &mut self.wire)?;
        }
        Ok(())
    }
}

fn send_tls(tls: &mut ServerConnection, wire: &mut Wire) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(wire)?;
    }
    Ok(())
}

/// The socket, and how to wait for it.
struct Wire {
    socket: Arc<Socket>,
    waiter: Waiter,
    deadline: Option<Instant>,
}

impl Wire {
    /// The one place where a connection waits for its client: it looks again and again while
    /// traffic is recent, then sleeps.
    fn wait_for_bytes(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.obey_deadline()?;
        let socket = &self.socket;
        // One of the two closures runs at a time, which the compiler cannot know.
        let into = RefCell::new(into);
        self.waiter.wait(
            || socket.receive_now(&mut into.borrow_mut()),
            || socket.receive(&mut into.borrow_mut()),
        )
    }

    fn obey_deadline(&self) -> io::Result<()> {
        let Some(deadline) = self.deadline else {
            return Ok(());
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_time_max(Some(left))
    }
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.wait_for_bytes(into)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.obey_deadline()?;
        self.socket.send(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
