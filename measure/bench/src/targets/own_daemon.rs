//! A daemon of the bench's own.

use system::{Daemon, Interruption};

/// A daemon that is shut down cleanly when dropped.
pub(crate) struct OwnDaemon(Option<Daemon>);

impl OwnDaemon {
    pub(crate) fn new(daemon: Daemon) -> Self {
        Self(Some(daemon))
    }

    pub(crate) fn get(&self) -> &Daemon {
        self.0.as_ref().expect("it goes only when this is dropped")
    }

    pub(crate) fn get_mut(&mut self) -> &mut Daemon {
        self.0.as_mut().expect("it goes only when this is dropped")
    }
}

impl Drop for OwnDaemon {
    fn drop(&mut self) {
        let _cleaning_up = Interruption::begin_to_clean_up();
        if let Some(daemon) = self.0.take()
            && let Err(error) = daemon.finish()
        {
            eprintln!("cannot stop a daemon cleanly: {error:#}");
        }
    }
}
