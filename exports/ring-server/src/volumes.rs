//! The devices that clients may open, as the owner of a server provides them.

use std::sync::Arc;

use block_device::BlockDevice;
use export_kit::Peer;
use shared_ring::Target;

/// A device that a client has opened.
#[derive(Clone)]
pub struct OpenVolume {
    /// Id of the volume; never reused.
    pub id: u64,
    pub name: String,
    pub device: Arc<dyn BlockDevice>,
}

/// Refusal to open a device: an error number for programs, and a text for people that says what to
/// do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub errno: i32,
    pub message: String,
}

/// The devices that clients may open.
pub trait Volumes: Send + Sync {
    /// Whether there is anything that the peer may open. Asked on the accepting thread, before the
    /// client has a place: an answer takes no process and waits for no other thread.
    fn admits(&self, peer: &Peer) -> bool;

    /// Asked once for each connection, from its own thread.
    fn open(&self, target: &Target, peer: &Peer) -> Result<OpenVolume, Refusal>;
}
