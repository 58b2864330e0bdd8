//! Readiness of the daemon, for watchers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Readiness of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// It opens its pool, or restores it.
    Starting,
    Serving,
    /// It ends its exports and saves a last image.
    Stopping,
}

/// Answer of `/healthz` and `/readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    pub stage: Stage,
    /// Current step of the start or the stop.
    #[schema(required)]
    pub doing: Option<String>,
}
