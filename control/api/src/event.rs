//! Recent events that may concern operators.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EventLevel {
    Info,
    /// The operator should investigate.
    Warning,
    /// Data are lost, or less durable than configured.
    Error,
}

/// An event. The daemon keeps the last 1000 across restarts; the log has all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Increases with each event, also across restarts; numbers may be skipped.
    #[schema(minimum = 1)]
    pub id: u64,
    /// In seconds since 1970.
    pub unix_seconds: u64,
    pub level: EventLevel,
    /// A stable word to match on, such as `pool_filling` or `image_saved`.
    pub kind: String,
    pub message: String,
    /// Volume or snapshot of the event.
    #[schema(required)]
    pub volume: Option<String>,
}
