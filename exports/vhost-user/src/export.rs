//! One volume as a disk of a virtual machine: who listens, who serves, how it ends.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use adaptive_polling::SpinPermits;
use block_device::BlockDevice;
use peers::{LogLimit, Peer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::channel;
use crate::connection::Connection;
use crate::desk::Desk;
use crate::error::ExportError;
use crate::event::Event;
use crate::listener::Listener;
use crate::request::SERIAL_BYTES;
use crate::server::Server;
use crate::traffic::{Counters, Traffic};

/// Queues of one disk, at most.
pub const QUEUE_COUNT_MAX: u16 = 16;

/// Threads that serve the rings of one disk, at most.
const WORKER_COUNT_MAX: usize = 8;

/// Threads of a disk besides its workers: one for its front end, two at the desk.
const OTHER_THREAD_COUNT: usize = 3;

/// How long nobody is accepted after the system had no descriptor or thread for one.
const ACCEPT_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

const NOT_POISONED: &str = "nothing panics while it holds this lock";

/// The threads that all exports of a process may have together. Each has one buffer of 1 MiB.
#[derive(Debug)]
pub struct ThreadBudget {
    limit: usize,
    free: AtomicUsize,
}

impl ThreadBudget {
    pub fn new(thread_count_max: usize) -> Self {
        Self { limit: thread_count_max, free: AtomicUsize::new(thread_count_max) }
    }

    fn take(self: &Arc<Self>, count: usize) -> Result<Reserved, ExportError> {
        let left = |free: usize| free.checked_sub(count);
        match self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left) {
            Ok(_) => Ok(Reserved { budget: Arc::clone(self), count }),
            Err(_) => Err(ExportError::TooManyThreads { thread_count_max: self.limit }),
        }
    }
}

/// Threads that an export may have, until the last of them has ended.
struct Reserved {
    budget: Arc<ThreadBudget>,
    count: usize,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.budget.free.fetch_add(self.count, Ordering::Relaxed);
    }
}

/// Who may connect, asked for each front end when it has connected.
pub type Admission = Arc<dyn Fn(&Peer) -> bool + Send + Sync>;

/// How a volume is exported.
pub struct Config {
    /// Where front ends connect to. Its directory exists.
    pub socket: PathBuf,
    pub admits: Admission,
    /// What drivers are told as the disk's serial number.
    pub serial: [u8; SERIAL_BYTES],
    pub queue_count: u16,
    pub threads: Arc<ThreadBudget>,
    pub spin_permits: Arc<SpinPermits>,
    pub spin_max: Duration,
}

/// What is the same for every connection.
pub(crate) struct Shared {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) serial: [u8; SERIAL_BYTES],
    pub(crate) queue_count: u16,
    pub(crate) spin_permits: Arc<SpinPermits>,
    pub(crate) spin_max: Duration,
    pub(crate) desk: Arc<Desk>,
    /// One for each worker; they begin anew with each connection.
    pub(crate) worker_counters: Vec<Arc<Counters>>,
    /// Those of the control thread, and of the desk's threads.
    pub(crate) other_counters: [Arc<Counters>; OTHER_THREAD_COUNT],
    admits: Admission,
    /// Bounds what front ends and guests can have logged.
    pub(crate) log: Arc<LogLimit>,
    line: Mutex<Line>,
    is_connected: AtomicBool,
    connection_count: AtomicUsize,
    stop: Event,
    is_over: AtomicBool,
    _reserved: Reserved,
}

/// The sockets of the front end that is connected.
#[derive(Default)]
struct Line {
    socket: Option<UnixStream>,
    /// Where it wants to be told of changes.
    changes: Option<UnixStream>,
}

/// A disk that front ends may connect to, one at a time. Dropping it ends it without patience.
pub struct Export {
    shared: Arc<Shared>,
    socket: PathBuf,
    /// Nothing is sent: it ends when the last thread has.
    threads: Mutex<Option<Receiver<()>>>,
}

impl Export {
    pub fn start(config: Config, device: Arc<dyn BlockDevice>) -> Result<Self, ExportError> {
        let Config { socket, admits, serial, queue_count, .. } = config;
        let Config { threads, spin_permits, spin_max, .. } = config;
        if !(1..=QUEUE_COUNT_MAX).contains(&queue_count) {
            return Err(ExportError::QueueCount { count: queue_count });
        }
        let core_count = thread::available_parallelism().map_or(1, usize::from);
        let worker_count = usize::from(queue_count).min(core_count).min(WORKER_COUNT_MAX);
        let reserved = threads.take(worker_count + OTHER_THREAD_COUNT)?;
        let failed = |source| ExportError::Start { source };
        let listener = Listener::new(&socket)?;
        let shared = Arc::new(Shared {
            device,
            serial,
            queue_count,
            spin_permits,
            spin_max,
            desk: Arc::default(),
            worker_counters: (0..worker_count).map(|_| Arc::default()).collect(),
            other_counters: std::array::from_fn(|_| Arc::default()),
            admits,
            log: Arc::default(),
            line: Mutex::default(),
            is_connected: AtomicBool::new(false),
            connection_count: AtomicUsize::new(0),
            stop: Event::new().map_err(failed)?,
            is_over: AtomicBool::new(false),
            _reserved: reserved,
        });
        let (alive, all_ended) = mpsc::channel();
        let export = Self { shared, socket, threads: Mutex::new(Some(all_ended)) };
        export.start_threads(listener, &alive).map_err(failed)?;
        Ok(export)
    }

    fn start_threads(&self, listener: Listener, alive: &Sender<()>) -> io::Result<()> {
        let [_, of_flushes, of_others] = &self.shared.other_counters;
        let shared = Arc::clone(&self.shared);
        let server = shared.server(of_flushes);
        spawn("vhost-flush", alive, move || shared.desk.run_flushes(&server))?;
        let shared = Arc::clone(&self.shared);
        let mut server = shared.server(of_others);
        spawn("vhost-desk", alive, move || shared.desk.run_others(&mut server))?;
        let shared = Arc::clone(&self.shared);
        spawn("vhost-front", alive, move || shared.run(listener))
    }

    /// Where front ends connect to.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn queue_count(&self) -> u16 {
        self.shared.queue_count
    }

    /// Whether a front end is there now.
    pub fn is_connected(&self) -> bool {
        self.shared.is_connected.load(Ordering::Relaxed)
    }

    pub fn traffic(&self) -> Traffic {
        let shared = &self.shared;
        let mut sum = Traffic::default();
        let all = shared.worker_counters.iter().chain(&shared.other_counters);
        all.for_each(|counters| sum += counters.traffic());
        sum
    }

    /// Tells the virtual machine that the disk has another size.
    pub fn resized(&self) {
        let line = self.shared.line();
        let Some(changes) = &line.changes else { return };
        if let Err(error) = channel::tell_change(changes) {
            tracing::warn!(%error, "a virtual machine was not told of its disk's new size");
        }
    }

    /// Ends the connection of the front end, which may come back. Returns whether there was one.
    pub fn disconnect(&self) -> bool {
        let line = self.shared.line();
        // It may be gone already, which is as good.
        line.socket.as_ref().is_some_and(|socket| socket.shutdown(Shutdown::Both).is_ok())
    }

    /// Asks all threads to end and waits for none, so that several disks end at the same time. What
    /// is left to do is [`Export::stop`]'s.
    pub fn end(&self) {
        self.shared.end();
    }

    /// Answers what is being served, for `patience` at most, and takes the socket away. Returns
    /// whether all threads have ended; others are left alone with the requests that hold them up.
    pub fn stop(self, patience: Duration) -> bool {
        self.stop_within(patience)
    }

    fn stop_within(&self, patience: Duration) -> bool {
        let taken = self.threads.lock().expect(NOT_POISONED).take();
        let Some(threads) = taken else { return true };
        self.shared.end();
        threads.recv_timeout(patience) != Err(RecvTimeoutError::Timeout)
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        self.stop_within(Duration::ZERO);
    }
}

/// Starts a thread that is known to live by its copy of `alive`.
pub(crate) fn spawn(
    name: &str,
    alive: &Sender<()>,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let alive = alive.clone();
    let work = move || {
        work();
        drop(alive);
    };
    thread::Builder::new().name(name.to_owned()).spawn(work)?;
    Ok(())
}

impl Shared {
    pub(crate) fn server(&self, counters: &Arc<Counters>) -> Server {
        Server::new(Arc::clone(&self.device), self.serial, Arc::clone(counters))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Remembers where the front end that is connected wants to be told of changes.
    pub(crate) fn set_changes(&self, changes: UnixStream) {
        self.line().changes = Some(changes);
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().expect(NOT_POISONED)
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.stop.signal();
        self.desk.end();
        if let Some(socket) = &self.line().socket {
            // It may be gone already, which is as good.
            let _gone = socket.shutdown(Shutdown::Both);
        }
    }

    /// Serves one front end after the other.
    fn run(&self, listener: Listener) {
        let mut pause = None;
        while !self.is_over() {
            let stop = PollFd::new(&self.stop, PollFlags::IN);
            let incoming = PollFd::new(&listener, PollFlags::IN);
            let mut events = if pause.is_some() { vec![stop] } else { vec![stop, incoming] };
            match poll(&mut events, pause.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("cannot wait for front ends: {error}"),
            }
            pause = match listener.accept().and_then(|socket| self.serve(socket)) {
                Ok(()) => None,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::Interrupted => None,
                    _ => {
                        if let Some(left_out) = self.log.admit() {
                            let path = listener.path().display();
                            let message = "a front end could not be served";
                            tracing::warn!(%path, %error, left_out, message);
                        }
                        Some(ACCEPT_PAUSE)
                    }
                },
            };
        }
    }

    /// Serves a front end until it goes.
    fn serve(&self, socket: UnixStream) -> io::Result<()> {
        let peer = Peer::of(&socket)?;
        if !(self.admits)(&peer) {
            if let Some(left_out) = self.log.admit() {
                let uid = peer.uid;
                tracing::warn!(uid, left_out, "a front end was refused: its user may not");
            }
            return Ok(());
        }
        let copy = socket.try_clone()?;
        self.line().socket = Some(copy);
        if self.is_over() {
            return Ok(());
        }
        self.is_connected.store(true, Ordering::Relaxed);
        let number = self.connection_count.fetch_add(1, Ordering::Relaxed);
        let served = Connection::start(self, socket, number as u64).map(|it| it.serve(self));
        self.is_connected.store(false, Ordering::Relaxed);
        *self.line() = Line::default();
        served
    }
}
