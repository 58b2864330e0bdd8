//! Origin of a device, and options of its client.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use shared_ring::{Access, Target};

/// Options of a client.
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// Time that a request waits for the restart of the daemon, before it fails with `EIO`.
    pub patience: Duration,
    /// Time for which opening a volume is retried while the daemon has no room for another client,
    /// before it fails with `EUSERS`.
    pub room_patience: Duration,
    /// Wrapper around waits that may take longer than about 20 ms: for a late answer, an absent
    /// daemon, or a lane that other threads hold. Intended for programs whose threads also serve
    /// other work. It must call its argument exactly once.
    pub around_waits: fn(&mut dyn FnMut()),
    /// Called with each socket of the client before its use. Returns the socket to use. Intended
    /// for programs that reserve descriptor numbers.
    pub place_socket: fn(OwnedFd) -> OwnedFd,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(60),
            room_patience: Duration::from_secs(5),
            around_waits: |wait| wait(),
            place_socket: |socket| socket,
        }
    }
}

/// Identity of a device, the same in all processes.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) path: PathBuf,
    pub(crate) volume_id: u64,
    pub(crate) name: String,
    /// Access that the first connection was granted. Later connections do not exceed it.
    pub(crate) access: Access,
    pub(crate) options: ClientOptions,
}

impl Origin {
    /// Target that identifies the volume even if it was renamed.
    pub(crate) fn target(&self) -> Target {
        Target::Again { volume_id: self.volume_id, access: self.access }
    }
}
