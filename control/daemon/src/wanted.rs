//! Requests that the daemon's main thread handles.

use std::sync::mpsc::Sender;

/// A request to the main thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Stop,
    /// Stops everything except the REST interface, and starts again.
    Restart,
    Reload,
}

/// Handle that restarts the daemon.
#[derive(Clone, Debug)]
pub(crate) struct Restart(pub(crate) Sender<Wanted>);

impl Restart {
    pub(crate) fn ask(&self) {
        // A stopping daemon does not restart.
        let _heard = self.0.send(Wanted::Restart);
    }
}
