//! Consoles over HTTP. A request with `Upgrade: tcp` turns its connection into a machine's terminal
//! or VNC display, as container runtimes do for terminals. After the response 101, bytes pass
//! unchanged.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::{CONSOLE_PROTOCOL, Problem, ProblemKind};
use axum::body::Body;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::answer::{Answer, Shared, blocking};
use crate::libvirt::{Console, Takeover};
use crate::service::Service;

/// Maximum number of open terminals and displays.
const CONSOLE_COUNT_MAX: usize = 64;

/// Time limit for libvirt to notice that a terminal was closed, and the interval of retries.
const HANDOVER_TIME_MAX: Duration = Duration::from_secs(5);
const HANDOVER_PAUSE: Duration = Duration::from_millis(20);

static PERMITS: LazyLock<Arc<Semaphore>> =
    LazyLock::new(|| Arc::new(Semaphore::new(CONSOLE_COUNT_MAX)));

/// Open terminals by machine. Notifying an entry ends its terminal.
static TERMINALS: LazyLock<Mutex<HashMap<String, Arc<Notify>>>> = LazyLock::new(Mutex::default);

fn terminals() -> MutexGuard<'static, HashMap<String, Arc<Notify>>> {
    TERMINALS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registration of an open terminal. Dropping it removes the entry, unless another terminal has
/// replaced it.
struct Terminal {
    machine: String,
    end: Arc<Notify>,
}

impl Terminal {
    fn enter(machine: String) -> Self {
        let end = Arc::<Notify>::default();
        terminals().insert(machine.clone(), Arc::clone(&end));
        Self { machine, end }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut terminals = terminals();
        if terminals.get(&self.machine).is_some_and(|end| Arc::ptr_eq(end, &self.end)) {
            terminals.remove(&self.machine);
        }
    }
}

pub(super) async fn serial(
    State(service): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Answer {
    let takeover = match query.as_deref() {
        None | Some("force=false") => Takeover::Refused,
        Some("force=true") => Takeover::Forced,
        Some(_) => {
            let problem = Problem::new(ProblemKind::InvalidField, "force must be true or false");
            return Err(problem.in_field("force").into());
        }
    };
    let (upgrade, permit) = asked(request)?;
    let console = open_terminal(service, name.clone(), takeover).await?;
    let terminal = Terminal::enter(name);
    Ok(switching(upgrade, permit, |client| async move {
        tokio::select! {
            passed = console.pass(client) => passed,
            () = terminal.end.notified() => Ok(()),
        }
    }))
}

/// Opens the terminal of a machine. With a takeover, this process first ends its own terminal of
/// the machine, because libvirtd 9.0 may crash if it disconnects a client that is using it.
async fn open_terminal(
    service: Arc<Service>,
    name: String,
    takeover: Takeover,
) -> Result<Console, Problem> {
    let open = |takeover| {
        let (service, name) = (Arc::clone(&service), name.clone());
        blocking(move || service.serial(&name, takeover))
    };
    let own = terminals().get(&name).map(Arc::clone).filter(|_| takeover == Takeover::Forced);
    if let Some(own) = own {
        own.notify_one();
        let deadline = Instant::now() + HANDOVER_TIME_MAX;
        while Instant::now() < deadline {
            match open(Takeover::Refused).await {
                Err(problem) if problem.kind == ProblemKind::InUse => {}
                opened => return opened,
            }
            tokio::time::sleep(HANDOVER_PAUSE).await;
        }
    }
    open(takeover).await
}

pub(super) async fn screen(
    State(service): Shared,
    Path(name): Path<String>,
    request: Request,
) -> Answer {
    let (upgrade, permit) = asked(request)?;
    let screen = blocking(move || service.screen(&name)).await?;
    let passing = |mut client: TokioIo<Upgraded>| async move {
        screen.set_nonblocking(true)?;
        let mut screen = tokio::net::UnixStream::from_std(screen)?;
        tokio::io::copy_bidirectional(&mut client, &mut screen).await.map(drop)
    };
    Ok(switching(upgrade, permit, passing))
}

/// Extracts the upgrade request. Called before anything is opened.
fn asked(mut request: Request) -> Result<(OnUpgrade, OwnedSemaphorePermit), Problem> {
    let protocol = request.headers().get(header::UPGRADE).and_then(|it| it.to_str().ok());
    let is_asked_for = protocol == Some(CONSOLE_PROTOCOL);
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    let upgrade = upgrade.filter(|_| is_asked_for).ok_or_else(|| {
        let detail = format!(
            "this path needs an upgrade: send Connection: Upgrade and Upgrade: {CONSOLE_PROTOCOL}"
        );
        Problem::new(ProblemKind::InvalidRequest, detail)
    })?;
    let permit = Arc::clone(&PERMITS).try_acquire_owned().map_err(|_| {
        let detail = format!("too many open consoles: the limit is {CONSOLE_COUNT_MAX}; close one");
        Problem::new(ProblemKind::Busy, detail)
    })?;
    Ok((upgrade, permit))
}

/// Returns the response 101. After it, the connection is the console.
fn switching<P, F>(upgrade: OnUpgrade, permit: OwnedSemaphorePermit, passing: P) -> Response
where
    P: FnOnce(TokioIo<Upgraded>) -> F + Send + 'static,
    F: Future<Output = io::Result<()>> + Send,
{
    tokio::spawn(async move {
        let passed = match upgrade.await {
            Ok(client) => passing(TokioIo::new(client)).await.map_err(|it| it.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = passed {
            tracing::debug!(%error, "console connection closed");
        }
        drop(permit);
    });
    let upgrading = [(header::CONNECTION, "upgrade"), (header::UPGRADE, CONSOLE_PROTOCOL)];
    (StatusCode::SWITCHING_PROTOCOLS, upgrading, Body::empty()).into_response()
}
