//! Byte transport: a plain socket or TLS.
//!
//! One thread receives. Several threads may send, one message at a time. The lock of [`Sender`] is
//! held while a client does not read its replies, but not while a thread waits for the next
//! request. The same lock covers the TLS state that both directions need.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::Poll;
use std::time::{Duration, Instant};

use adaptive_polling::Waiter;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{RecvFlags, SendFlags};
use rustls::{ServerConfig, ServerConnection};
use tls::ClientCertificate;

/// Idle time before TCP keepalive probes, which detect dead peers.
const TCP_KEEPALIVE_AFTER: Duration = Duration::from_secs(60);

/// Requested size of the socket's send buffer, so that a long reply takes few system calls. The
/// kernel may grant less.
const SEND_BUFFER_BYTES: usize = 1 << 20;

/// Maximum amount of ciphertext per receive call: a few TLS records.
const CIPHERTEXT_BYTES: usize = 64 << 10;

/// Receiving side of a connection, with a handle to its sending side.
pub(crate) struct Transport {
    wire: Wire,
    sender: Arc<Sender>,
    /// Received data that are not yet decrypted. Empty without TLS.
    ciphertext: Box<[u8]>,
    undecrypted: Range<usize>,
}

/// Position in the stream of replies at which a message ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageEnd {
    BetweenReplies,
    /// Inside a reply, whose rest must be sent before anything else.
    InsideReply,
}

impl Transport {
    /// Creates a plain connection. All waits end at `deadline`.
    pub(crate) fn new(socket: Socket, waiter: Waiter, deadline: Instant) -> Self {
        let deadline = Some(deadline);
        let sender = Sender::new(Outgoing { socket: socket.clone(), deadline, tls: None });
        Self {
            wire: Wire { socket, waiter, deadline },
            sender: Arc::new(sender),
            ciphertext: Box::default(),
            undecrypted: 0..0,
        }
    }

    /// Sending side, for other threads that send replies.
    pub(crate) fn sender(&self) -> &Arc<Sender> {
        &self.sender
    }

    /// Removes the time limit on waits for the client.
    pub(crate) fn lift_deadline(&mut self) -> io::Result<()> {
        self.wire.deadline = None;
        self.sender.lock().outgoing.deadline = None;
        self.wire.socket.set_time_max(None)
    }

    /// Performs the TLS handshake and continues over TLS. Returns the client's certificate, if it
    /// presented one.
    pub(crate) fn start_tls(
        &mut self,
        config: Arc<ServerConfig>,
    ) -> io::Result<Option<ClientCertificate>> {
        let mut tls = Box::new(ServerConnection::new(config).map_err(io::Error::other)?);
        while tls.is_handshaking() {
            tls.complete_io(&mut self.wire)?;
        }
        let certificate = ClientCertificate::of(&tls);
        self.sender.lock().outgoing.tls = Some(tls);
        self.ciphertext = vec![0; CIPHERTEXT_BYTES].into_boxed_slice();
        Ok(certificate)
    }

    /// Pauses briefly for a busy client, so that its requests arrive together; see
    /// [`Waiter::gather`].
    pub(crate) fn gather(&mut self, request_count: u32) {
        self.wire.waiter.gather(request_count);
    }

    /// Waits for bytes. Returns 0 if the client has disconnected.
    pub(crate) fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.ciphertext.is_empty() {
            return self.wire.wait_for_bytes(into);
        }
        loop {
            if let Some(received) = self.decrypt(into) {
                return received;
            }
            let count = self.wire.wait_for_bytes(&mut self.ciphertext)?;
            if count == 0 {
                return Ok(0);
            }
            self.undecrypted = 0..count;
        }
    }

    /// Decrypts what has been received so far. Returns `None` if more bytes are needed.
    fn decrypt(&mut self, into: &mut [u8]) -> Option<io::Result<usize>> {
        let mut state = self.sender.lock();
        let outgoing = &mut state.outgoing;
        loop {
            let tls = outgoing.tls.as_mut().expect("there is ciphertext after TLS has started");
            match tls.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return Some(outcome),
            }
            let mut bytes = &self.ciphertext[self.undecrypted.clone()];
            if bytes.is_empty() {
                return None;
            }
            match tls.read_tls(&mut bytes) {
                Ok(count) => self.undecrypted.start += count,
                Err(error) => return Some(Err(error)),
            }
            let processed = tls.process_new_packets().map_err(io::Error::other);
            // Sends the TLS alert that tells the client the reason for the failure.
            if let Err(error) = outgoing.send_tls().and(processed.map(|_| ())) {
                return Some(Err(error));
            }
        }
    }
}

/// Sending side of a connection, shared by all threads that send to its client.
pub(crate) struct Sender {
    state: Mutex<SendState>,
    reply_ended: Condvar,
}

struct SendState {
    outgoing: Outgoing,
    last_end: MessageEnd,
    /// Nothing more may be sent, because the client could not interpret it.
    is_over: bool,
}

impl Sender {
    fn new(outgoing: Outgoing) -> Self {
        let last_end = MessageEnd::BetweenReplies;
        let state = SendState { outgoing, last_end, is_over: false };
        Self { state: Mutex::new(state), reply_ended: Condvar::new() }
    }

    /// Sends all of `bytes`, and waits for a client that does not read. Only for the thread that
    /// may send replies in pieces.
    pub(crate) fn send(&self, bytes: &[u8], end: MessageEnd) -> io::Result<()> {
        let mut state = self.lock();
        let last_end = std::mem::replace(&mut state.last_end, end);
        state.outgoing.send_all(bytes)?;
        if last_end == MessageEnd::InsideReply && end == MessageEnd::BetweenReplies {
            self.reply_ended.notify_all();
        }
        Ok(())
    }

    /// Sends whole replies, from any thread. Waits until no reply is incomplete.
    pub(crate) fn send_between_replies(&self, bytes: &[u8]) -> io::Result<()> {
        let must_wait =
            |state: &mut SendState| state.last_end == MessageEnd::InsideReply && !state.is_over;
        let mut state = self.reply_ended.wait_while(self.lock(), must_wait).expect(NOT_POISONED);
        if state.is_over {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        state.outgoing.send_all(bytes)
    }

    /// Ends a TLS session in order (close_notify).
    pub(crate) fn close(&self) -> io::Result<()> {
        self.lock().outgoing.close()
    }

    /// Prevents all further sends, and wakes threads that wait for the end of a reply.
    pub(crate) fn give_up(&self) {
        self.lock().is_over = true;
        self.reply_ended.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, SendState> {
        self.state.lock().expect(NOT_POISONED)
    }
}

const NOT_POISONED: &str = "nothing panics while it holds this lock";

/// Socket to send on, and its TLS state.
struct Outgoing {
    socket: Socket,
    deadline: Option<Instant>,
    tls: Option<Box<ServerConnection>>,
}

impl Outgoing {
    fn send_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if self.tls.is_none() {
            return PlainSocket::of(&self.socket, self.deadline).write_all(bytes);
        }
        while !bytes.is_empty() {
            let tls = self.tls.as_mut().expect("just looked");
            let count = tls.writer().write(bytes)?;
            bytes = &bytes[count..];
            self.send_tls()?;
        }
        Ok(())
    }

    fn send_tls(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        let mut socket = PlainSocket::of(&self.socket, self.deadline);
        while tls.wants_write() {
            tls.write_tls(&mut socket)?;
        }
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
        self.send_tls()
    }
}

/// Plain socket to write to, until the deadline if there is one.
struct PlainSocket<'socket> {
    socket: &'socket Socket,
    deadline: Option<Instant>,
}

impl<'socket> PlainSocket<'socket> {
    fn of(socket: &'socket Socket, deadline: Option<Instant>) -> Self {
        Self { socket, deadline }
    }
}

impl Write for PlainSocket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        obey_deadline(self.socket, self.deadline)?;
        self.socket.send(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Socket to receive from, with the policy of waiting.
struct Wire {
    socket: Socket,
    waiter: Waiter,
    deadline: Option<Instant>,
}

impl Wire {
    /// Waits for bytes. This is the only place where a connection waits for its client: it polls
    /// while there is traffic, then sleeps.
    fn wait_for_bytes(&mut self, into: &mut [u8]) -> io::Result<usize> {
        obey_deadline(&self.socket, self.deadline)?;
        let socket = &self.socket;
        // Only one of the closures runs at a time, which the compiler cannot prove.
        let into = RefCell::new(into);
        self.waiter.wait(
            || socket.receive_now(&mut into.borrow_mut()),
            || socket.receive(&mut into.borrow_mut()),
        )
    }
}

/// Limits the next wait for the peer to the time left. Fails if no time is left.
fn obey_deadline(socket: &Socket, deadline: Option<Instant>) -> io::Result<()> {
    let Some(deadline) = deadline else {
        return Ok(());
    };
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    socket.set_time_max(Some(left))
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.wait_for_bytes(into)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        PlainSocket::of(&self.socket, self.deadline).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connected stream socket, Unix or TCP.
#[derive(Clone)]
pub(crate) struct Socket {
    descriptor: Arc<OwnedFd>,
}

impl Socket {
    pub(crate) fn unix(descriptor: OwnedFd) -> Self {
        let socket = Self { descriptor: Arc::new(descriptor) };
        socket.tune("enlarge the send buffer", |socket| {
            sockopt::set_socket_send_buffer_size(socket, SEND_BUFFER_BYTES)
        });
        socket
    }

    pub(crate) fn tcp(descriptor: OwnedFd) -> Self {
        let socket = Self { descriptor: Arc::new(descriptor) };
        socket.tune("send at once", |socket| sockopt::set_tcp_nodelay(socket, true));
        socket.tune("watch for dead peers", |socket| {
            sockopt::set_socket_keepalive(socket, true)?;
            sockopt::set_tcp_keepidle(socket, TCP_KEEPALIVE_AFTER)
        });
        socket
    }

    /// Receives what has arrived. Returns 0 bytes if the peer has closed the connection. Never
    /// blocks.
    fn receive_now(&self, into: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            match rustix::net::recv(&self.descriptor, &mut *into, RecvFlags::DONTWAIT) {
                Ok((_, count)) => return Poll::Ready(Ok(count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// Receives as [`Socket::receive_now`] does, but blocks until there is something.
    fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::net::recv(&self.descriptor, &mut *into, RecvFlags::empty()) {
                Ok((_, count)) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends at least one byte. Blocks while the peer does not read.
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::net::send(&self.descriptor, bytes, SendFlags::NOSIGNAL) {
                Ok(count) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sets the timeout of each [`Socket::receive`] and [`Socket::send`], which then fail with
    /// `WouldBlock`. `None` means no timeout.
    fn set_time_max(&self, time_max: Option<Duration>) -> io::Result<()> {
        sockopt::set_socket_timeout(&self.descriptor, Timeout::Recv, time_max)?;
        sockopt::set_socket_timeout(&self.descriptor, Timeout::Send, time_max)?;
        Ok(())
    }

    /// Descriptor for the registry, which ends connections by shutting it down.
    pub(crate) fn descriptor(&self) -> &Arc<OwnedFd> {
        &self.descriptor
    }

    /// Sets an optional socket option. Failures are logged and ignored.
    fn tune(&self, what: &str, set: impl Fn(&OwnedFd) -> rustix::io::Result<()>) {
        if let Err(error) = set(&self.descriptor) {
            tracing::debug!(%error, "cannot configure an NBD connection: {what}");
        }
    }
}
