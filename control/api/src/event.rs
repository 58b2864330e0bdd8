//! Events: what happened lately that operators may want to know.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EventLevel {
    Info,
    /// The operator should look at it.
    Warning,
    /// Data is lost or not as safe as it should be.
    Error,
}

/// Something that happened. The daemon remembers the last 1000, also over restarts; the log has
/// them all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Higher than that of every earlier event, also of earlier runs of the daemon; some numbers
    /// are left out.
    #[schema(minimum = 1)]
    pub id: u64,
    /// In seconds since 1970.
    pub unix_seconds: u64,
    pub level: EventLevel,
    /// A stable word to match on, such as `pool_filling` or `image_saved`.
    pub kind: String,
    pub message: String,
    /// The volume or snapshot that it is about.
    #[schema(required)]
    pub volume: Option<String>,
}
