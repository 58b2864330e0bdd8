//! Wishes that the daemon's first thread takes up.

use std::sync::mpsc::Sender;

/// Something that the daemon is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Stop,
    /// All but the interface ends and starts anew.
    Restart,
    Reload,
}

/// Asks that the daemon start anew.
#[derive(Clone, Debug)]
pub(crate) struct Restart(pub(crate) Sender<Wanted>);

impl Restart {
    pub(crate) fn ask(&self) {
        // A daemon that ends does not start anew.
        let _heard = self.0.send(Wanted::Restart);
    }
}
