//! Export of one volume as a disk of a virtual machine: listening thread, workers, shutdown.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use adaptive_polling::SpinPermits;
use block_device::BlockDevice;
use export_kit::{Peer, SocketPlan, StartError, StopSignal, Traffic, UnixSocket, accept_until};
use rustix::net::SocketType;

use crate::channel;
use crate::connection::Connection;
use crate::disk::QUEUE_COUNT_MAX;
use crate::error::ExportError;
use crate::request::SERIAL_BYTES;
use crate::shared::{Admission, OTHER_THREAD_COUNT, Shared, Sockets};
use crate::threads::{ThreadBudget, spawn};

/// The socket's owner and group may connect. One front end is served at a time; others wait in the
/// backlog.
const SOCKET: SocketPlan = SocketPlan { kind: SocketType::STREAM, mode: 0o660, backlog: 4 };

/// Maximum number of worker threads per disk.
const WORKER_COUNT_MAX: usize = 8;

const NOT_POISONED: &str = "nothing panics while it holds this lock";

/// Settings of a volume's export.
pub struct Config {
    /// Path of the socket. Its directory must exist.
    pub socket: PathBuf,
    pub admits: Admission,
    /// Serial number of the disk, as the guest sees it.
    pub serial: [u8; SERIAL_BYTES],
    pub queue_count: u16,
    pub threads: Arc<ThreadBudget>,
    pub spin_permits: Arc<SpinPermits>,
    pub spin_max: Duration,
}

/// A disk that front ends connect to, one at a time. Dropping it stops the export without waiting.
pub struct Export {
    shared: Arc<Shared>,
    socket: PathBuf,
    /// Carries no messages. Disconnects when the last thread has ended.
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
        let failed = |source| StartError::Thread { source };
        let listener = UnixSocket::bind(&socket, SOCKET)?;
        let shared = Arc::new(Shared {
            device,
            serial,
            queue_count,
            spin_permits,
            spin_max,
            late: Arc::default(),
            worker_counters: (0..worker_count).map(|_| Arc::default()).collect(),
            other_counters: std::array::from_fn(|_| Arc::default()),
            admits,
            log: Arc::default(),
            sockets: Mutex::default(),
            is_connected: AtomicBool::new(false),
            stop: StopSignal::new().map_err(failed)?,
            _reserved: reserved,
        });
        let (alive, all_ended) = mpsc::channel();
        let export = Self { shared, socket, threads: Mutex::new(Some(all_ended)) };
        export.start_threads(listener, &alive).map_err(failed)?;
        Ok(export)
    }

    fn start_threads(&self, listener: UnixSocket, alive: &Sender<()>) -> io::Result<()> {
        let [_, of_flushes, of_others] = &self.shared.other_counters;
        let shared = Arc::clone(&self.shared);
        let server = shared.server(of_flushes);
        spawn("vhost-flush", alive, move || shared.late.run_flushes(&server))?;
        let shared = Arc::clone(&self.shared);
        let mut server = shared.server(of_others);
        spawn("vhost-late", alive, move || shared.late.run_others(&mut server))?;
        let shared = Arc::clone(&self.shared);
        let listeners = [listener];
        spawn("vhost-front", alive, move || {
            accept_until(&shared.stop, &listeners, "front ends", |listener| {
                match listener.accept()? {
                    Some(socket) => serve(&shared, socket.into(), listener.as_fd()),
                    None => Ok(()),
                }
            });
        })
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn queue_count(&self) -> u16 {
        self.shared.queue_count
    }

    /// Returns whether a front end is connected.
    pub fn is_connected(&self) -> bool {
        self.shared.is_connected.load(Ordering::Relaxed)
    }

    pub fn traffic(&self) -> Traffic {
        let shared = &self.shared;
        let all = shared.worker_counters.iter().chain(&shared.other_counters);
        all.map(|counters| counters.traffic()).sum()
    }

    /// Notifies the virtual machine of the disk's new size.
    pub fn resized(&self) {
        let sockets = self.shared.sockets();
        let Some(changes) = &sockets.changes else { return };
        if let Err(error) = channel::tell_change(changes) {
            tracing::warn!(%error, "cannot notify a vhost-user front end of its disk's new size");
        }
    }

    /// Disconnects the front end, which may reconnect. Returns whether one was connected.
    pub fn disconnect(&self) -> bool {
        self.shared.disconnect()
    }

    /// Asks all threads to end, without waiting. Several disks can so be stopped at the same time;
    /// [`Export::stop`] waits for the threads.
    pub fn end(&self) {
        self.shared.end();
    }

    /// Finishes requests in progress, for at most `patience`, and removes the socket. Returns
    /// whether all threads have ended. Otherwise the remaining threads are abandoned with their
    /// requests.
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

/// Serves a front end until it disconnects, or is replaced by one that waits at `listener`.
fn serve(shared: &Shared, socket: UnixStream, listener: BorrowedFd<'_>) -> io::Result<()> {
    let peer = Peer::of(&socket)?;
    if !(shared.admits)(&peer) {
        if let Some(left_out) = shared.log.admit() {
            let uid = peer.uid;
            tracing::warn!(
                uid,
                left_out,
                "vhost-user connection refused: its user has no access to the volume"
            );
        }
        return Ok(());
    }
    let copy = socket.try_clone()?;
    shared.sockets().messages = Some(copy);
    if shared.stop.is_given() {
        return Ok(());
    }
    shared.is_connected.store(true, Ordering::Relaxed);
    let served = Connection::start(shared, socket).map(|it| it.serve(shared, listener));
    shared.is_connected.store(false, Ordering::Relaxed);
    *shared.sockets() = Sockets::default();
    served
}
