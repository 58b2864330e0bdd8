//! Reasons why the broker closes a connection.

use std::io;
use std::time::Duration;

use kafka::WireError;
use kafka_protocol::error::ResponseError;

/// Maximum time for which a client may read nothing while a reply is being sent.
pub(super) const SEND_TIME_MAX: Duration = Duration::from_secs(60);

/// Reason why a connection ends, unless the client closed it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ending {
    #[error(transparent)]
    Network(#[from] io::Error),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("malformed request")]
    Unreadable,
    #[error("timed out: the client did not read responses for {} s", SEND_TIME_MAX.as_secs())]
    Stalled,
    #[error("the connection was idle for too long")]
    Idle,
    #[error("timed out waiting for the client's authentication or re-authentication")]
    NotLoggedIn,
    #[error("records with acks=0 were refused: {0:?}")]
    Unacknowledged(ResponseError),
    #[error("authentication failed")]
    Refused,
    #[error("the broker is stopping")]
    Stopping,
    #[error(transparent)]
    Quota(#[from] access::QuotaError),
}
