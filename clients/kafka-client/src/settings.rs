//! Client settings.

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use sasl::Mechanism;
use tokio::time::timeout;

use crate::error::ClientError;
use crate::tls::TlsTrust;

/// Addresses at which the client connects to brokers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// The advertised listeners.
    Advertised,
    /// Only the bootstrap address, for a single broker whose advertised listener may not be
    /// reachable from this host.
    First,
}

/// Report of a long wait, for programs whose users would otherwise see nothing until a timeout.
#[derive(Clone, Copy, Debug)]
pub struct WaitNotice {
    /// Time after which an operation is reported. Each operation is reported once.
    pub after: Duration,
    /// Called with the reason of the wait: the error of the last attempt, or the missing response.
    pub tell: fn(&ClientError),
}

/// Settings of all connections of a client.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Client id, which appears in broker logs and quotas.
    pub client_id: String,
    pub addresses: Addresses,
    /// Trusted authorities. `None` disables TLS.
    pub tls: Option<TlsTrust>,
    pub sasl: Option<SaslSettings>,
    /// Time limit for each step of a connection: TCP, TLS, and the exchange of versions.
    pub connect_time_max: Duration,
    /// Time limit from the submission of a request to its response, and for an operation with all
    /// its attempts.
    pub request_time_max: Duration,
    /// Size limit of a response. A longer one ends the connection.
    pub response_bytes_max: usize,
    /// Maximum number of requests in flight per connection. Further requests wait.
    pub in_flight_max: usize,
    /// Report of long waits. `None` reports nothing.
    pub wait_notice: Option<WaitNotice>,
}

impl Settings {
    /// Waits for `work`, and reports `reason` if that takes long.
    pub(crate) async fn noticing<T>(
        &self,
        reason: impl FnOnce() -> ClientError,
        work: impl Future<Output = T>,
    ) -> T {
        let Some(WaitNotice { after, tell }) = self.wait_notice else { return work.await };
        let mut work = pin!(work);
        match timeout(after, &mut work).await {
            Ok(done) => done,
            Err(_) => {
                tell(&reason());
                work.await
            }
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            client_id: "memlane".to_owned(),
            addresses: Addresses::Advertised,
            tls: None,
            sasl: None,
            connect_time_max: Duration::from_secs(10),
            request_time_max: Duration::from_secs(30),
            response_bytes_max: 128 << 20,
            in_flight_max: 32,
            wait_notice: None,
        }
    }
}

/// SASL user name and password.
#[derive(Clone)]
pub struct SaslSettings {
    pub mechanism: Mechanism,
    pub user: String,
    pub password: String,
}

impl fmt::Debug for SaslSettings {
    /// Formats without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} as {:?}", self.mechanism.name(), self.user)
    }
}
