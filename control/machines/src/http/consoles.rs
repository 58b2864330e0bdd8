//! Connections that become a machine's terminal or screen: a request with `Upgrade: tcp`, as other
//! programs have it for terminals of containers. After the answer 101 bytes pass as they are.

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

/// Terminals and screens that are open at once.
const CONSOLE_COUNT_MAX: usize = 64;

/// How long libvirt may take to notice that a terminal was given up, and how often it is asked.
const HANDOVER_TIME_MAX: Duration = Duration::from_secs(5);
const HANDOVER_PAUSE: Duration = Duration::from_millis(20);

static PERMITS: LazyLock<Arc<Semaphore>> =
    LazyLock::new(|| Arc::new(Semaphore::new(CONSOLE_COUNT_MAX)));

/// Open terminals by machine. Who is notified ends.
static TERMINALS: LazyLock<Mutex<HashMap<String, Arc<Notify>>>> = LazyLock::new(Mutex::default);

fn terminals() -> MutexGuard<'static, HashMap<String, Arc<Notify>>> {
    TERMINALS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Entry of an open terminal, removed when it is dropped unless another one took its place.
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

/// Opens the terminal of a machine. One of this process that is taken over ends first: libvirtd
/// (9.0) may crash when it takes a terminal from a client that uses it.
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

/// The upgrade that was asked for, before anything is opened.
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

/// The answer after which the connection is the console.
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
