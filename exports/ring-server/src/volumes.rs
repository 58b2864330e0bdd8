//! What the owner of a server hands in: who may open which device.

use std::sync::Arc;

use block_device::BlockDevice;
use shared_ring::Target;

/// Who is at the other end, as the kernel noted when the client connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
}

/// A device that a client has opened.
#[derive(Clone)]
pub struct OpenVolume {
    /// The volume's for good.
    pub id: u64,
    pub name: String,
    pub device: Arc<dyn BlockDevice>,
}

/// Why a client may not open what it asked for: a number for programs, a text for people that says
/// what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub errno: i32,
    pub message: String,
}

/// The devices that clients may open. Asked once for each connection, from its own thread.
pub trait Volumes: Send + Sync {
    fn open(&self, target: &Target, peer: Peer) -> Result<OpenVolume, Refusal>;
}
