//! Snapshots and clones, which share memory with their source.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::volume::SectorBytes;

/// Snapshots to take, of one volume or of several at the same instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotCreate {
    /// Volumes, each named once. All snapshots are taken at the same instant.
    #[schema(example = json!(["db", "wal"]))]
    pub volumes: Vec<String>,
    /// Part of the snapshots' names after the `@`; the rules of volume names apply.
    #[schema(example = "before-upgrade", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    pub snapshot: String,
}

/// Changes to a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotPatch {
    /// New part of its name after the `@`.
    #[schema(example = "before-upgrade", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    pub snapshot: String,
}

/// A snapshot: a read-only copy of a volume at one instant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    /// `VOLUME@SNAPSHOT`: the name in paths, of the NBD export, and for `attach` and `clone`.
    #[schema(example = "db@before-upgrade")]
    pub name: String,
    /// Current name of its volume.
    pub volume: String,
    pub snapshot: String,
    /// Unique id, which is never reused in the pool.
    pub id: u64,
    /// When it was taken, in seconds since 1970.
    pub created_unix_seconds: u64,
    #[schema(minimum = 4096)]
    pub size_bytes: u64,
    pub sector_bytes: SectorBytes,
    /// Readable bytes of the snapshot.
    pub written_bytes: u64,
    /// RAM used by the snapshot: its map, and its share of each page.
    #[serde(default)]
    pub ram_bytes: u64,
    /// The kernel block device that the snapshot is attached as.
    #[schema(required)]
    pub device: Option<String>,
    /// NBD URI of the snapshot.
    #[schema(required)]
    pub nbd_uri: Option<String>,
    /// NBD clients that have the snapshot open.
    pub nbd_connections: u64,
    /// Clients of the ring that have the snapshot open.
    pub ring_clients: u64,
}

/// A clone to make of a volume or a snapshot: a volume of its own that shares memory with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CloneCreate {
    /// The name of the new volume.
    #[schema(example = "db-test", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    pub name: String,
}

/// A range of bytes that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangedRange {
    pub offset: u64,
    #[schema(minimum = 1)]
    pub length: u64,
}

/// Differences between two states of a volume, in whole blocks of 4096 bytes. A block that was
/// rewritten with equal contents may count as changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Diff {
    /// The snapshot that is compared.
    pub from: String,
    /// State that it is compared with: another snapshot, or a volume as it is now.
    pub to: String,
    /// Changed ranges in ascending order; none is adjacent to another.
    pub changed: Vec<ChangedRange>,
    /// Offset of the next request if this response is limited; null if it is complete.
    #[schema(required)]
    pub next_offset: Option<u64>,
}
