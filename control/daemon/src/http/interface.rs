//! The running REST interface. It responds from the beginning of the daemon's start to the end of
//! its stop.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::oneshot;

use crate::http::places::BLOCKING_THREAD_COUNT_MAX;
use crate::http::{AccessRule, Readiness, listener};

/// Maximum time for threads to end at the stop.
const END_TIME_MAX: Duration = Duration::from_secs(1);

/// The running interface. Dropping it removes its socket and closes its connections.
pub(crate) struct Interface {
    runtime: Option<Runtime>,
    readiness: Arc<Readiness>,
    socket: PathBuf,
    stop: Option<oneshot::Sender<()>>,
}

impl Interface {
    /// Listens at `socket` for the processes that `rule` admits. Until the service is ready,
    /// requests are answered with the state of the start.
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
            // An error means that the owner was dropped, which also stops it.
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
