//! Sender of frames to the host, shared by all threads of the agent.

use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use guest::{Frame, FrameKind};

/// Serial port through which the agent's threads send whole frames to the host.
pub(crate) type Sender = Arc<Mutex<File>>;

/// Sends a frame. A failure means that the host is gone, and cannot be reported.
pub(crate) fn send(sender: &Sender, kind: FrameKind, id: u32, bytes: &[u8]) {
    let mut port = sender.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = Frame::new(kind, id, bytes).write(&mut *port);
}
