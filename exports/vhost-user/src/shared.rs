//! State shared by all threads of one export.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use adaptive_polling::SpinPermits;
use block_device::BlockDevice;
use export_kit::{Counters, LogLimit, Peer, StopSignal};

use crate::late::LateWork;
use crate::request::SERIAL_BYTES;
use crate::server::Server;
use crate::threads::Reserved;

/// Threads of a disk besides its workers: one control thread, two for late work.
pub(crate) const OTHER_THREAD_COUNT: usize = 3;

/// Access check for the process that connects, called once for each connection.
pub type Admission = Arc<dyn Fn(&Peer) -> bool + Send + Sync>;

/// State that all connections share.
pub(crate) struct Shared {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) serial: [u8; SERIAL_BYTES],
    pub(crate) queue_count: u16,
    pub(crate) spin_permits: Arc<SpinPermits>,
    pub(crate) spin_max: Duration,
    pub(crate) late: Arc<LateWork>,
    /// Counters of each worker. Workers are started anew for each connection.
    pub(crate) worker_counters: Vec<Arc<Counters>>,
    /// Counters of the control thread and of the threads for late work.
    pub(crate) other_counters: [Arc<Counters>; OTHER_THREAD_COUNT],
    pub(crate) admits: Admission,
    /// Rate limit of log messages that front ends and guests can cause.
    pub(crate) log: Arc<LogLimit>,
    pub(crate) sockets: Mutex<Sockets>,
    pub(crate) is_connected: AtomicBool,
    pub(crate) stop: StopSignal,
    pub(crate) _reserved: Reserved,
}

/// Sockets of the connected front end.
#[derive(Default)]
pub(crate) struct Sockets {
    pub(crate) messages: Option<UnixStream>,
    /// Back-end channel for notifications of configuration changes.
    pub(crate) changes: Option<UnixStream>,
}

impl Shared {
    pub(crate) fn server(&self, counters: &Arc<Counters>) -> Server {
        Server::new(Arc::clone(&self.device), self.serial, Arc::clone(counters))
    }

    /// Sets the back-end channel of the connected front end.
    pub(crate) fn set_changes(&self, changes: UnixStream) {
        self.sockets().changes = Some(changes);
    }

    pub(crate) fn sockets(&self) -> MutexGuard<'_, Sockets> {
        self.sockets.lock().expect("nothing panics while it holds this lock")
    }

    /// Disconnects the front end. Returns whether one was connected.
    pub(crate) fn disconnect(&self) -> bool {
        let sockets = self.sockets();
        // The front end may have disconnected already.
        sockets.messages.as_ref().is_some_and(|socket| socket.shutdown(Shutdown::Both).is_ok())
    }

    pub(crate) fn end(&self) {
        self.stop.give();
        self.late.end();
        self.disconnect();
    }
}
