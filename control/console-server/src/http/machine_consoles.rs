//! Terminals and displays of virtual machines as WebSockets (RFC 6455). Each binary message carries
//! raw bytes, in both directions.
//!
//! Pages cannot read the error response of a WebSocket. Therefore only authorization errors are
//! HTTP responses; later failures close the WebSocket with a reason.

use std::sync::Arc;
use std::time::Duration;

use api::{MACHINE_SERIAL_PATH, MACHINE_VNC_PATH, Problem};
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::request::Parts;
use axum::response::Response;
use rest_client::Answer;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{interval, timeout};

use crate::gateway::check_console;
use crate::http::caller::{Known, check_origin};
use crate::http::console::Console;
use crate::refusal::{Kind, Refusal};
use crate::shares;

/// Maximum length of a message, far more than browsers send at once.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Operation ids.
const SERIAL: &str = "serial_console";
const SCREEN: &str = "graphical_console";

const READ_BYTES: usize = 16 << 10;

/// Time limit for writes to the browser or the machine.
const WRITE_TIME_MAX: Duration = Duration::from_secs(30);

/// Time limit for the closing handshake.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(2);

/// Interval at which the session is checked.
const SESSION_INTERVAL: Duration = Duration::from_secs(2);

/// Maximum length of the reason in a WebSocket close frame.
const REASON_BYTES_MAX: usize = 123;

/// Reason for closing a WebSocket. Codes from 4000 on are for applications.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// The machine closed the console, or has stopped.
    Machine,
    /// The browser has disconnected.
    Browser,
    Failed(String),
    Session,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SerialQuery {
    force: Option<bool>,
}

/// A request for a machine console: the caller, and the WebSocket upgrade if it is one.
pub(super) struct Asked {
    known: Known,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
}

impl FromRequestParts<Arc<Console>> for Asked {
    type Rejection = Refusal;

    async fn from_request_parts(
        parts: &mut Parts,
        console: &Arc<Console>,
    ) -> Result<Self, Refusal> {
        let known = Known::of(console, &parts.method, &parts.headers)?;
        // Any site can open a WebSocket, and browsers send cookies with it.
        check_origin(console, &parts.headers)?;
        let upgrade = WebSocketUpgrade::from_request_parts(parts, console).await;
        Ok(Self { known, upgrade })
    }
}

pub(super) async fn serial(
    asked: Asked,
    State(console): State<Arc<Console>>,
    Path(name): Path<String>,
    query: Result<Query<SerialQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    check_console(&asked.known.caller, SERIAL)?;
    let query = query.map_err(|error| Refusal::new(Kind::Invalid, &error.to_string()))?.0;
    let force = if query.force == Some(true) { "true" } else { "false" };
    let query = vec![("force", force)];
    open(asked, console, Place { operation: SERIAL, path: MACHINE_SERIAL_PATH, name, query })
}

pub(super) async fn screen(
    asked: Asked,
    State(console): State<Arc<Console>>,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    check_console(&asked.known.caller, SCREEN)?;
    let query = Vec::new();
    open(asked, console, Place { operation: SCREEN, path: MACHINE_VNC_PATH, name, query })
}

/// Console of a machine, as `memlane-machines` addresses it.
struct Place {
    operation: &'static str,
    path: &'static str,
    name: String,
    query: Vec<(&'static str, &'static str)>,
}

fn open(asked: Asked, console: Arc<Console>, place: Place) -> Result<Response, Refusal> {
    let Asked { known, upgrade } = asked;
    let upgrade = upgrade.map_err(|error| Refusal::new(Kind::Invalid, &error.to_string()))?;
    let held = console.consoles.enter(&known.caller.user);
    let held = held.map_err(|full| Refusal::full("open consoles", full))?;
    let upgrade = upgrade.max_message_size(MESSAGE_BYTES_MAX).max_frame_size(MESSAGE_BYTES_MAX);
    Ok(upgrade.on_upgrade(move |socket| serve(socket, known, console, (place, held))))
}

async fn serve(
    mut socket: WebSocket,
    known: Known,
    console: Arc<Console>,
    (place, mut held): (Place, shares::Place<String>),
) {
    let opened = console.gateway.open_console((place.path, &place.name), &place.query).await;
    let end = match opened {
        Ok(Answer { upgraded: Some(machine), .. }) => {
            let may = |caller| check_console(&caller, place.operation).is_ok();
            let passing = pass(&mut socket, machine, || known.now(&console).is_some_and(may));
            tokio::select! {
                end = passing => end,
                () = held.taken() => End::Failed("closed: too many open consoles".to_owned()),
            }
        }
        Ok(answer) => End::Failed(detail_of(&answer.body)),
        Err(refusal) => End::Failed(refusal.detail().to_owned()),
    };
    let (code, reason) = match end {
        // The next read answers the browser's close frame.
        End::Browser => return drop(timeout(CLOSE_TIME_MAX, socket.recv()).await),
        End::Machine => (1000, "the machine closed the console".to_owned()),
        End::Failed(why) => (4000, why),
        End::Session => (4001, "the session has ended".to_owned()),
    };
    let frame = CloseFrame { code, reason: shortened(&reason).into() };
    let closing = async {
        // The browser may have disconnected.
        if socket.send(Message::Close(Some(frame))).await.is_ok() {
            while let Some(Ok(_)) = socket.recv().await {}
        }
    };
    // Do not wait for a browser that does not respond.
    let _answered = timeout(CLOSE_TIME_MAX, closing).await;
}

/// Copies bytes in both directions until one side closes or the session ends.
async fn pass(
    socket: &mut WebSocket,
    mut machine: impl AsyncRead + AsyncWrite + Unpin,
    goes_on: impl Fn() -> bool,
) -> End {
    let mut buffer = vec![0; READ_BYTES];
    let mut ticks = interval(SESSION_INTERVAL);
    loop {
        tokio::select! {
            read = machine.read(&mut buffer) => {
                let read = match read {
                    Ok(0) => return End::Machine,
                    Ok(read) => read,
                    Err(error) => return End::Failed(error.to_string()),
                };
                let message = Message::Binary(Bytes::copy_from_slice(&buffer[..read]));
                if !matches!(timeout(WRITE_TIME_MAX, socket.send(message)).await, Ok(Ok(()))) {
                    return End::Browser;
                }
            }
            received = socket.recv() => {
                let bytes = match received {
                    Some(Ok(Message::Binary(bytes))) => bytes,
                    Some(Ok(Message::Text(text))) => Bytes::from(text),
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return End::Browser,
                };
                match timeout(WRITE_TIME_MAX, machine.write_all(&bytes)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => return End::Failed(error.to_string()),
                    Err(_) => return End::Failed("the machine does not read its input".to_owned()),
                }
            }
            _ = ticks.tick() => {
                if !goes_on() {
                    return End::Session;
                }
            }
        }
    }
}

/// Returns the detail of a problem.
fn detail_of(body: &[u8]) -> String {
    let problem = serde_json::from_slice::<Problem>(body);
    problem.map_or_else(|_| "refused without a reason".to_owned(), |it| it.detail)
}

fn shortened(reason: &str) -> &str {
    let end = reason.char_indices().map(|(at, it)| at + it.len_utf8());
    let end = end.take_while(|&end| end <= REASON_BYTES_MAX).last().unwrap_or(0);
    &reason[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_fits_into_its_frame() {
        assert_eq!(shortened("off"), "off");
        let long = "ä".repeat(REASON_BYTES_MAX);
        assert_eq!(shortened(&long), "ä".repeat(REASON_BYTES_MAX / 2));
    }
}
