//! Resource limits of a principal, configured in the file of users.

use std::num::{NonZeroU32, NonZeroU64};

use serde::{Deserialize, Serialize};

/// Default number of connections.
const CONNECTIONS: u32 = 1000;
const BYTES_IN_FLIGHT: u64 = 256 << 20;
/// Default size of a request, as Kafka's `socket.request.max.bytes`.
const REQUEST_BYTES: u64 = 100 << 20;

/// Quota settings in the file. Omitted settings have the defaults of the file or, without them, the
/// built-in defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct QuotaSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<NonZeroU32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_in_flight: Option<NonZeroU64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_bytes: Option<NonZeroU64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub produce_bytes_per_second: Option<NonZeroU64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetch_bytes_per_second: Option<NonZeroU64>,
}

impl QuotaSettings {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Limits of the resources that one principal may use at once, and of its rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaLimits {
    pub connections: u32,
    /// Bytes of requests that were read and not yet answered, over all connections.
    pub bytes_in_flight: u64,
    /// Size of one request, without its length prefix.
    pub request_bytes: u64,
    /// `None`: unlimited.
    pub produce_bytes_per_second: Option<NonZeroU64>,
    pub fetch_bytes_per_second: Option<NonZeroU64>,
}

impl QuotaLimits {
    pub(crate) fn resolve(own: &QuotaSettings, defaults: &QuotaSettings) -> Self {
        let connections = own.connections.or(defaults.connections);
        let bytes_in_flight = own.bytes_in_flight.or(defaults.bytes_in_flight);
        let request_bytes = own.request_bytes.or(defaults.request_bytes);
        Self {
            connections: connections.map_or(CONNECTIONS, NonZeroU32::get),
            bytes_in_flight: bytes_in_flight.map_or(BYTES_IN_FLIGHT, NonZeroU64::get),
            request_bytes: request_bytes.map_or(REQUEST_BYTES, NonZeroU64::get),
            produce_bytes_per_second: own
                .produce_bytes_per_second
                .or(defaults.produce_bytes_per_second),
            fetch_bytes_per_second: own.fetch_bytes_per_second.or(defaults.fetch_bytes_per_second),
        }
    }
}
