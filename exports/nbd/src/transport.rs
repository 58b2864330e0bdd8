//! Transport of bytes: over the socket itself, or through TLS.
//!
//! One thread receives. Sending is for several, one message at a time: the lock of [`Sender`] is
//! held while a client does not take what it is sent, and never while a thread waits for its next
//! request. What TLS needs of both directions is under that lock, too.

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

/// Probes of a TCP peer begin after so much silence, so that dead peers do not stay for ever.
const TCP_KEEPALIVE_AFTER: Duration = Duration::from_secs(60);

/// Bytes the kernel is asked to keep for the peer, so that a long reply is handed over in few
/// pieces. The kernel may grant less.
const SEND_BUFFER_BYTES: usize = 1 << 20;

/// Encrypted bytes that are received with one system call, at most: a few TLS records.
const CIPHERTEXT_BYTES: usize = 64 << 10;

/// The receiving end of a connection, and the way to its sending end.
pub(crate) struct Transport {
    wire: Wire,
    sender: Arc<Sender>,
    /// What was received and not decrypted yet. Without TLS there is none, nor room for any.
    ciphertext: Box<[u8]>,
    undecrypted: Range<usize>,
}

/// Where in the stream of replies a message ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageEnd {
    BetweenReplies,
    /// The rest of the last reply follows, before anything else.
    InsideReply,
}

impl Transport {
    /// A plain connection, on which every wait ends at `deadline`.
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

    /// The end for threads that have something to send as well.
    pub(crate) fn sender(&self) -> &Arc<Sender> {
        &self.sender
    }

    /// Removes the time limit on waits for the client.
    pub(crate) fn lift_deadline(&mut self) -> io::Result<()> {
        self.wire.deadline = None;
        self.sender.lock().outgoing.deadline = None;
        self.wire.socket.set_time_max(None)
    }

    /// Shakes hands and goes on over TLS. Returns the client's certificate, if it has shown one.
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

    /// Leaves a busy client alone for a moment, so that its requests come together; see
    /// [`Waiter::gather`].
    pub(crate) fn gather(&mut self, request_count: u32) {
        self.wire.waiter.gather(request_count);
    }

    /// Waits for bytes; none means that the client has gone.
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

    /// What the bytes received so far hold, or `None` when that needs more of them.
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
            // An alert tells the client why it is left.
            if let Err(error) = outgoing.send_tls().and(processed.map(|_| ())) {
                return Some(Err(error));
            }
        }
    }
}

/// The sending end of a connection, for all threads that have something to say to its client.
pub(crate) struct Sender {
    state: Mutex<SendState>,
    reply_ended: Condvar,
}

struct SendState {
    outgoing: Outgoing,
    last_end: MessageEnd,
    /// Nothing that is sent now would be understood.
    is_over: bool,
}

impl Sender {
    fn new(outgoing: Outgoing) -> Self {
        let last_end = MessageEnd::BetweenReplies;
        let state = SendState { outgoing, last_end, is_over: false };
        Self { state: Mutex::new(state), reply_ended: Condvar::new() }
    }

    /// Hands over all of `bytes`, waiting for a client that does not take them. For the one thread
    /// that may send replies in pieces.
    pub(crate) fn send(&self, bytes: &[u8], end: MessageEnd) -> io::Result<()> {
        let mut state = self.lock();
        let last_end = std::mem::replace(&mut state.last_end, end);
        state.outgoing.send_all(bytes)?;
        if last_end == MessageEnd::InsideReply && end == MessageEnd::BetweenReplies {
            self.reply_ended.notify_all();
        }
        Ok(())
    }

    /// Sends as [`Sender::send`] does, for any thread; `bytes` are whole replies.
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

    /// Lets no thread send anything any more, nor wait for the rest of a reply that will not come.
    pub(crate) fn give_up(&self) {
        self.lock().is_over = true;
        self.reply_ended.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, SendState> {
        self.state.lock().expect(NOT_POISONED)
    }
}

const NOT_POISONED: &str = "nothing panics while it holds this lock";

/// The socket as the place where bytes go, and what encrypts them.
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

/// Bytes straight into the socket, before the deadline if there is one.
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

/// The socket as the place where bytes come from, and how to wait for them.
struct Wire {
    socket: Socket,
    waiter: Waiter,
    deadline: Option<Instant>,
}

impl Wire {
    /// The one place where a connection waits for its client: it looks again and again while
    /// traffic is recent, then sleeps.
    fn wait_for_bytes(&mut self, into: &mut [u8]) -> io::Result<usize> {
        obey_deadline(&self.socket, self.deadline)?;
        let socket = &self.socket;
        // One of the two closures runs at a time, which the compiler cannot know.
        let into = RefCell::new(into);
        self.waiter.wait(
            || socket.receive_now(&mut into.borrow_mut()),
            || socket.receive(&mut into.borrow_mut()),
        )
    }
}

/// Lets the next wait for the peer end in time. Fails when there is no time left.
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

    /// What has arrived, or zero bytes when the peer has ended the connection. Never waits.
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

    /// As [`Socket::receive_now`], but waits until there is something to say.
    fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::net::recv(&self.descriptor, &mut *into, RecvFlags::empty()) {
                Ok((_, count)) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Hands over at least one byte, waiting for a peer that does not take any.
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::net::send(&self.descriptor, bytes, SendFlags::NOSIGNAL) {
                Ok(count) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Bounds each wait of [`Socket::receive`] and [`Socket::send`], which then fail with
    /// `WouldBlock`. `None` waits for ever.
    fn set_time_max(&self, time_max: Option<Duration>) -> io::Result<()> {
        sockopt::set_socket_timeout(&self.descriptor, Timeout::Recv, time_max)?;
        sockopt::set_socket_timeout(&self.descriptor, Timeout::Send, time_max)?;
        Ok(())
    }

    /// For the registry, which ends connections through it.
    pub(crate) fn descriptor(&self) -> &Arc<OwnedFd> {
        &self.descriptor
    }

    /// Settings that make a connection better, and without which it works.
    fn tune(&self, what: &str, set: impl Fn(&OwnedFd) -> rustix::io::Result<()>) {
        if let Err(error) = set(&self.descriptor) {
            tracing::debug!(%error, "cannot configure an NBD connection: {what}");
        }
    }
}
