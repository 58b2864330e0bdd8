//! An image store that the daemon serves to other hosts.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A served image store and its clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreServerStatus {
    pub address: String,
    pub directory: String,
    /// Maximum size of the store; null if it is not limited.
    #[schema(required)]
    pub max_bytes: Option<u64>,
    /// Size of the store; null if it was not counted, which happens only with a maximum.
    #[schema(required)]
    pub used_bytes: Option<u64>,
    /// Connections that were refused since the daemon started.
    pub refused: u64,
    /// Clients since the daemon started.
    pub clients: Vec<StoreClient>,
}

/// A client of a served image store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreClient {
    /// First DNS name in its certificate.
    pub name: String,
    /// Address of its newest connection.
    pub address: String,
    /// Open connections. Idle ones are closed after some minutes.
    pub connections: u64,
    pub requests: u64,
    /// Bytes that it stored.
    pub received_bytes: u64,
    /// Bytes that it read.
    pub sent_bytes: u64,
    #[schema(required)]
    pub last_request_unix_seconds: Option<u64>,
}
