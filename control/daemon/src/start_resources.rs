//! Resources that a start makes on the host, and that are undone if the start is refused or stopped
//! before it serves.
//!
//! Until exports start, a signal to stop undoes them and ends the process. From then on clients can
//! write to the pool, and the kernel can have devices: the stop follows the start.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::mount::UnmountFlags;

use crate::events::EventLog;

/// Resources of the current start.
#[derive(Debug)]
pub(crate) struct StartResources {
    /// Socket of the REST interface.
    socket: PathBuf,
    made: Mutex<Made>,
}

#[derive(Debug, Default)]
struct Made {
    /// File system that was mounted for a new pool.
    mounted: Option<PathBuf>,
    events: Option<Arc<EventLog>>,
    has_exports: bool,
}

/// Evidence that the resources were undone. While it exists, the start mounts nothing.
#[derive(Debug)]
pub(crate) struct Undone<'it> {
    _made: MutexGuard<'it, Made>,
}

impl StartResources {
    /// Resources of a daemon whose interface will listen at `socket`.
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self { socket, made: Mutex::default() }
    }

    /// Records the open event log, to which a stop during the start is reported.
    pub(crate) fn note_events(&self, events: &Arc<EventLog>) {
        self.made().events = Some(Arc::clone(events));
    }

    /// Mounts a file system for a new pool by `mount`.
    pub(crate) fn mount(
        &self,
        dir: &Path,
        mount: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut made = self.made();
        mount()?;
        made.mounted = Some(dir.to_owned());
        Ok(())
    }

    /// Records that a start begins, also one after another in the same process.
    pub(crate) fn begin(&self) {
        self.made().has_exports = false;
    }

    /// Records that exports and devices are starting.
    pub(crate) fn start_exports(&self) {
        self.made().has_exports = true;
    }

    /// Keeps the mounted file system from now on: the start has succeeded.
    pub(crate) fn keep(&self) {
        self.made().mounted = None;
    }

    /// Unmounts what a refused start has mounted, so that the next one begins like this one.
    pub(crate) fn undo(&self) {
        self.made().unmount();
    }

    /// Undoes everything after a signal to stop, unless exports have started. The process must end
    /// then.
    pub(crate) fn stop(&self) -> Option<Undone<'_>> {
        let mut made = self.made();
        if made.has_exports {
            return None;
        }
        tracing::info!("stopped during the start; the next start repeats it");
        made.unmount();
        if let Err(error) = program::remove_if_there(&self.socket) {
            let socket = self.socket.display();
            tracing::warn!(%error, %socket, "cannot remove the socket");
        }
        made.events.iter().for_each(|events| events.stopped());
        Some(Undone { _made: made })
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().expect("no thread panics with this lock")
    }
}

impl Made {
    fn unmount(&mut self) {
        let Some(dir) = self.mounted.take() else { return };
        // Lazily, because threads that end may still have the pool mapped.
        if let Err(error) = rustix::mount::unmount(&dir, UnmountFlags::DETACH) {
            tracing::warn!(%error, "cannot unmount {}", dir.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_can_be_stopped_until_exports_start_also_a_later_one_of_the_process() {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("api.sock");
        let resources = StartResources::new(socket.clone());
        let events = Arc::new(EventLog::default());
        resources.note_events(&events);
        std::fs::write(&socket, "").expect("there is room");
        resources.begin();
        resources.start_exports();
        assert!(resources.stop().is_none() && socket.exists() && events.after(0).is_empty());
        resources.begin();
        assert!(resources.stop().is_some() && !socket.exists());
        assert_eq!(events.after(0).len(), 1, "the stop is an event");
    }
}
