//! Where a device comes from, and how its client behaves.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use shared_ring::{Access, Target};

/// Behaviour of a client.
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// Time that a request waits for a daemon that has gone, before it fails with `EIO`.
    pub patience: Duration,
    /// Time for which opening a volume is tried again when the daemon has no place for another
    /// client, before it fails with `EUSERS`.
    pub room_patience: Duration,
    /// Called around what may take longer than some 20 ms: an answer that is late, a daemon that is
    /// away, a lane that other threads hold meanwhile. For programs whose threads serve others too.
    /// It calls what it is given, once.
    pub around_waits: fn(&mut dyn FnMut()),
    /// Called with each socket of the client before it is used: for programs with an opinion on
    /// which numbers their descriptors have. Returns the socket to use.
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

/// Where a device is, in all processes.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) path: PathBuf,
    pub(crate) volume_id: u64,
    pub(crate) name: String,
    /// Access that the first connection was given, which later ones do not exceed.
    pub(crate) access: Access,
    pub(crate) options: ClientOptions,
}

impl Origin {
    /// The volume, whatever its name is now.
    pub(crate) fn target(&self) -> Target {
        Target::Again { volume_id: self.volume_id, access: self.access }
    }
}
