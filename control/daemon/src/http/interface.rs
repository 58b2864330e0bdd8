//! The REST interface as a part of the daemon: it answers from the beginning of the start to the
//! end of the stop.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::oneshot;

use crate::http::{AccessRule, Readiness, listener};

/// Threads that operations may block at once.
const BLOCKING_THREAD_COUNT_MAX: usize = 8;

/// How long threads may take to end when all that matters is done.
const END_TIME_MAX: Duration = Duration::from_secs(1);

/// The running interface. Dropped, it takes its socket away and ends its connections.
pub(crate) struct Interface {
    runtime: Option<Runtime>,
    readiness: Arc<Readiness>,
    socket: PathBuf,
    stop: Option<oneshot::Sender<()>>,
}

impl Interface {
    /// Listens at `socket` for the processes that `rule` admits. They hear that the daemon starts
    /// until the service is there.
    pub(crate) fn start(socket: &Path, rule: &AccessRule) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(BLOCKING_THREAD_COUNT_MAX)
            .enable_all()
            .build()
            .context("cannot start the threads of the REST interface")?;
        let readiness = Arc::new(Readiness::new());
        let (stop, stopped) = oneshot::channel();
        let listener = {
            let _inside = runtime.enter();
            program::bind_in_place(socket, |new_path| rule.restrict(new_path))?
        };
        let until = async move {
            // The owner has gone, which is as good.
            let _told = stopped.await;
        };
        runtime.spawn(listener::serve(listener, Arc::clone(&readiness), rule.clone(), until));
        Ok(Self { runtime: Some(runtime), readiness, socket: socket.to_owned(), stop: Some(stop) })
    }

    pub(crate) fn readiness(&self) -> &Arc<Readiness> {
        &self.readiness
    }

    pub(crate) fn runtime(&self) -> &Handle {
        self.runtime.as_ref().expect("it runs until it is dropped").handle()
    }
}

impl Drop for Interface {
    fn drop(&mut self) {
        if let Err(error) = program::remove_if_there(&self.socket) {
            let socket = self.socket.display();
            tracing::warn!(%error, %socket, "cannot remove the socket");
        }
        drop(self.stop.take());
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(END_TIME_MAX);
        }
    }
}
