//! Devices that clients may open, provided by the server's owner.

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

/// Refusal to open a device: an errno for programs, and a message for people that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub errno: i32,
    pub message: String,
}

/// Lookup and access control of devices.
pub trait Volumes: Send + Sync {
    /// Returns whether the peer may open any volume at all. Called on the accepting thread, before
    /// the client counts against the quota. Must not block or start a process.
    fn admits(&self, peer: &Peer) -> bool;

    /// Looks up a device and checks access. Called once for each connection, on the client's
    /// thread.
    fn open(&self, target: &Target, peer: &Peer) -> Result<OpenVolume, Refusal>;
}
