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
    listening: Option<Listening>,
}

/// Socket, and the end of its listener.
struct Listening {
    socket: PathBuf,
    _stop: oneshot::Sender<()>,
}

impl Interface {
    /// Starts the threads of the interface.
    pub(crate) fn prepare() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(BLOCKING_THREAD_COUNT_MAX)
            .enable_all()
            .build()
            .context("cannot start the threads of the REST interface")?;
        Ok(Self { runtime: Some(runtime), readiness: Arc::new(Readiness::new()), listening: None })
    }

    /// Listens at `socket` for the processes that `rule` admits. Until the service is ready,
    /// requests are answered with the state of the start.
    pub(crate) fn listen(&mut self, socket: &Path, rule: &AccessRule) -> anyhow::Result<()> {
        let (stop, stopped) = oneshot::channel();
        let listener = {
            let _inside = self.runtime().enter();
            program::bind_in_place(socket, |new_path| rule.restrict(new_path))?
        };
        let until = async move {
            // An error means that the owner was dropped, which also stops it.
            let _told = stopped.await;
        };
        let readiness = Arc::clone(&self.readiness);
        self.runtime().spawn(listener::serve(listener, readiness, rule.clone(), until));
        self.listening = Some(Listening { socket: socket.to_owned(), _stop: stop });
        Ok(())
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
        if let Some(Listening { socket, _stop }) = self.listening.take()
            && let Err(error) = program::remove_if_there(&socket)
        {
            tracing::warn!(%error, socket = %socket.display(), "cannot remove the socket");
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(END_TIME_MAX);
        }
    }
}
