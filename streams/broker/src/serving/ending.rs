//! Why connections end, other than by their clients.

use std::io;
use std::time::Duration;

use kafka::WireError;
use kafka_protocol::error::ResponseError;

/// A client that takes nothing for so long is not there any more.
pub(super) const SEND_TIME_MAX: Duration = Duration::from_secs(60);

/// Why a connection ends, unless the client ended it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ending {
    #[error("{0}")]
    Network(#[from] io::Error),
    #[error("{0}")]
    Wire(#[from] WireError),
    #[error("a request cannot be read")]
    Unreadable,
    #[error("the client took nothing for {} s", SEND_TIME_MAX.as_secs())]
    Stalled,
    #[error("the client asked for nothing for too long")]
    Idle,
    #[error("the client has not logged in, or not again in time")]
    NotLoggedIn,
    #[error("records that nobody waits to be acknowledged were refused: {0:?}")]
    Unacknowledged(ResponseError),
    #[error("the login was refused")]
    Refused,
    #[error("the broker stops")]
    Stopping,
    #[error("{0}")]
    Quota(#[from] access::QuotaError),
}
