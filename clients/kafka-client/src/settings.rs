//! Settings of a client towards its brokers.

use std::fmt;
use std::time::Duration;

use sasl::Mechanism;

use crate::tls::TlsTrust;

/// Addresses at which the brokers of a cluster are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// Those that they advertise.
    Advertised,
    /// The one that the client begins with, for a broker that is alone: what it advertises may be
    /// for other hosts.
    First,
}

/// Settings of all connections of a client.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name that the broker knows this program by.
    pub client_id: String,
    pub addresses: Addresses,
    /// Whose certificates are believed; without it nothing is encrypted.
    pub tls: Option<TlsTrust>,
    pub sasl: Option<SaslSettings>,
    /// For a connection, its encryption and authentication together.
    pub connect_time_max: Duration,
    /// From the moment that a request is handed over until its response is there.
    pub request_time_max: Duration,
    /// A longer response ends the connection.
    pub response_bytes_max: usize,
    /// Requests of one connection that wait for their responses; further ones wait to be sent.
    pub in_flight_max: usize,
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
        }
    }
}

/// A user and its password.
#[derive(Clone)]
pub struct SaslSettings {
    pub mechanism: Mechanism,
    pub user: String,
    pub password: String,
}

impl fmt::Debug for SaslSettings {
    /// Leaves the password out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} as {:?}", self.mechanism.name(), self.user)
    }
}
