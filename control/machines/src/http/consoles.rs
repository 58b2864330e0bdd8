//! Connections that become a machine's terminal or screen: a request with `Upgrade: tcp`, as other
//! programs have it for terminals of containers. After the answer 101 bytes pass as they are.

use std::io;
use std::sync::{Arc, LazyLock};

use api::{CONSOLE_PROTOCOL, Problem, ProblemKind};
use axum::body::Body;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::answer::{Answer, Shared, blocking};
use crate::libvirt::Takeover;

/// Terminals and screens that are open at once.
const CONSOLE_COUNT_MAX: usize = 64;

static PERMITS: LazyLock<Arc<Semaphore>> =
    LazyLock::new(|| Arc::new(Semaphore::new(CONSOLE_COUNT_MAX)));

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
    let console = blocking(move || service.serial(&name, takeover)).await?;
    Ok(switching(upgrade, permit, |client| console.pass(client)))
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
