//! Settings and state of the pool: memory limits, fill level and forecast.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::size::ByteSize;

/// Limits, fill level and forecast of the pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Pool {
    /// Size of the pool's memory.
    pub max_memory_bytes: u64,
    /// Upper limit of `max_memory_bytes`, fixed when the pool was created.
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    /// Memory reserved for volumes of capacity class `guaranteed`, and not used yet.
    pub guaranteed_bytes: u64,
    /// Reserve for overwrites and housekeeping in a full pool.
    pub reserve_bytes: u64,
    /// Memory of the daemon itself, without the pool.
    pub daemon_bytes: u64,
    /// Fill levels, in percent, that raise warnings and events.
    pub thresholds_percent: Vec<u64>,
    /// Highest threshold that the fill level exceeds.
    #[schema(required)]
    pub passed_percent: Option<u64>,
    /// Trend of the pool's fill level.
    #[serde(default)]
    pub fill_state: FillState,
    /// Null unless the pool fills.
    #[schema(required)]
    pub forecast: Option<Forecast>,
}

/// Trend of a pool's fill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FillState {
    /// The observation period is too short, or the pool was emptied recently.
    #[default]
    Unknown,
    /// The pool has not grown recently, or would not be full within a year.
    Steady,
    Filling,
}

/// Forecast of when the pool is full, from its recent growth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Forecast {
    pub full_in_seconds: u64,
    /// Rate at which the pool fills.
    pub bytes_per_second: u64,
    /// Period that the forecast is based on.
    pub window_seconds: u64,
    /// The volumes that grow, the fastest first, three at most.
    pub volumes: Vec<Growth>,
}

/// A volume that grows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Growth {
    pub volume: String,
    /// Rate at which it is written to, before reduction.
    pub bytes_per_second: u64,
}

/// Changes of the pool. Omitted fields keep their values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolPatch {
    /// New size of the pool's memory, in steps of 2 MiB. Growing allocates the memory at once, or
    /// fails. Shrinking moves data first, and fails if the data does not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory: Option<ByteSize>,
}
