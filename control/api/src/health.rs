//! How far the daemon is, for watchers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How far the daemon is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// It opens its pool, or restores it.
    Starting,
    Serving,
    /// It ends its exports and saves a last image.
    Stopping,
}

/// What `/healthz` and `/readyz` answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    pub stage: Stage,
    /// What it is at while it starts or stops.
    #[schema(required)]
    pub doing: Option<String>,
}
