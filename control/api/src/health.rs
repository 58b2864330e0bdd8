//! Readiness of the daemon, for monitoring.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Readiness of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Opening or restoring the pool.
    Starting,
    Serving,
    /// Closing exports and saving a last image.
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
