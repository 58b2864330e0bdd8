//! The pool as a thing with settings: how much memory it may take, and for how long that lasts.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::size::ByteSize;

/// The limits of the pool, and where it is heading.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Pool {
    /// The memory that the pool has: all of it is taken.
    pub max_memory_bytes: u64,
    /// Bytes to which that can be changed at most: decided when the pool was made.
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    /// Set aside for volumes of the capacity class `guaranteed` and not used by them yet.
    pub guaranteed_bytes: u64,
    /// Kept back so that overwrites and housekeeping go on in a full pool.
    pub reserve_bytes: u64,
    /// Memory of the daemon itself, without the pool.
    pub daemon_bytes: u64,
    /// Fill levels at which warnings and events come, in percent.
    pub thresholds_percent: Vec<u64>,
    /// The highest threshold that is passed.
    #[schema(required)]
    pub passed_percent: Option<u64>,
    /// Trend of the pool's fill, as far as that is known.
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
    /// It was watched for too short a time, or was emptied just now.
    #[default]
    Unknown,
    /// It did not grow lately, or so slowly that it would not be full within a year.
    Steady,
    Filling,
}

/// When the pool will be full if it goes on filling as it did lately.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Forecast {
    pub full_in_seconds: u64,
    /// Rate at which the pool fills.
    pub bytes_per_second: u64,
    /// The span of time that this was seen over.
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

/// Changes of the pool. What is left out stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolPatch {
    /// The memory that the pool is to have, in steps of 2 MiB. More is taken at once, or refused.
    /// Less is given back when nothing lies in it any more, or refused when that does not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory: Option<ByteSize>,
}
