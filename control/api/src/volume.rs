//! Volumes in requests and responses.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::size::ByteSize;

/// Owner of all volumes of a broker.
pub const BROKER_OWNER: &str = "memlane-broker";

/// Reduction of contents as they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Reduction {
    /// Deduplication and compression.
    #[default]
    Full,
    Compress,
    Dedup,
    None,
}

/// Promise of a flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Written data survives a crash of the daemon, but not a power loss.
    #[default]
    Ram,
    /// Data up to the last image survives a power loss, otherwise as `ram`.
    Image,
    /// Flushed data survives a power loss.
    Journal,
}

/// Behaviour when the pool is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Capacity {
    /// Writes of new data fail with "no space".
    #[default]
    Thin,
    /// Writes never fail for lack of space, because the full size is reserved at creation.
    Guaranteed,
}

/// Participation of a volume of class `journal` in mirrored flushes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VolumeMirror {
    /// Flushes wait for the image store, if the daemon mirrors them (`mirror-flushes`).
    #[default]
    Yes,
    /// Flushes never wait for the image store. A promotion may lose the last of them.
    No,
}

/// Logical sector size of a volume: 512 or 4096 bytes. The physical sector size is 4096 bytes in
/// both cases, if the protocol of the export can express it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub enum SectorBytes {
    #[default]
    Bytes512,
    Bytes4096,
}

impl From<SectorBytes> for u32 {
    fn from(sector: SectorBytes) -> Self {
        match sector {
            SectorBytes::Bytes512 => 512,
            SectorBytes::Bytes4096 => 4096,
        }
    }
}

impl TryFrom<u32> for SectorBytes {
    type Error = String;

    fn try_from(bytes: u32) -> Result<Self, String> {
        match bytes {
            512 => Ok(Self::Bytes512),
            4096 => Ok(Self::Bytes4096),
            other => Err(format!("invalid sector size {other}; use 512 or 4096")),
        }
    }
}

impl PartialSchema for SectorBytes {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::Integer)
            .enum_values(Some([512, 4096]))
            .description(Some("The logical sector that a volume shows; 512 unless it is asked for"))
            .into()
    }
}

impl ToSchema for SectorBytes {}

/// A volume to create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeCreate {
    /// 1 to 63 of `a-z A-Z 0-9 . _ -`, beginning with a letter or a digit.
    #[schema(example = "db", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    pub name: String,
    /// A multiple of 4 KiB, from 4 KiB to 64 TiB. Memory is allocated as blocks are written.
    pub size: ByteSize,
    #[serde(default)]
    pub sector_bytes: SectorBytes,
    #[serde(default)]
    pub reduction: Reduction,
    #[serde(default)]
    pub durability: Durability,
    #[serde(default)]
    pub capacity: Capacity,
    // Left out by default, so that earlier daemons take the request.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mirror: VolumeMirror,
    /// Owner of the volume, such as a broker. Others need `force` to delete, rename, shrink or
    /// restore it. Empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(example = "memlane-broker", pattern = "^([A-Za-z0-9][A-Za-z0-9._/-]{0,62})?$")]
    pub owner: String,
    /// Labels: text by key, for people and scripts. A key is 1 to 63 of `a-z A-Z 0-9 . _ / -`,
    /// beginning with a letter or a digit. Its text is up to 255 bytes without control characters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// Changes of a volume. Omitted fields keep their values. All changes are made, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumePatch {
    /// Reduction of new contents from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduction: Option<Reduction>,
    /// Promise of flushes from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// Behaviour when the pool is full, from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// Mirroring of flushes from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<VolumeMirror>,
    /// Names or numbers of users who may open the volume over the ring, besides root, the daemon's
    /// own user and the group `memlane`. Open connections are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users: Option<Vec<String>>,
    /// The new size. Attached devices follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<ByteSize>,
    /// New owner of the volume. Empty for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Labels to set. An empty text removes the label; other labels are kept.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// With `size`: drop data past the new end. With `name` or `size`: rename or shrink a volume
    /// that has an owner. Without it both are refused.
    #[serde(default, skip_serializing_if = "is_false")]
    pub force: bool,
    /// The new name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

fn is_default(mirror: &VolumeMirror) -> bool {
    *mirror == VolumeMirror::default()
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// Clients whose connections to a volume were ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Disconnected {
    /// NBD connections.
    pub nbd: u64,
    /// Clients of the ring.
    pub ring: u64,
    /// Front ends of virtual machines.
    pub vhost_user: u64,
}

/// A volume with its settings and memory usage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    pub name: String,
    /// Unique id, which is never reused in the pool.
    pub id: u64,
    #[schema(minimum = 4096)]
    pub size_bytes: u64,
    pub sector_bytes: SectorBytes,
    pub reduction: Reduction,
    pub durability: Durability,
    pub capacity: Capacity,
    #[serde(default)]
    #[schema(required)]
    pub mirror: VolumeMirror,
    /// Readable bytes that were written and not discarded.
    pub written_bytes: u64,
    /// Part of `written_bytes` that is stored as a fill pattern, without memory.
    pub fill_bytes: u64,
    /// RAM used by the volume: its map, and its share of each page.
    pub ram_bytes: u64,
    /// `written_bytes` over `ram_bytes`; null while nothing is written.
    #[schema(required)]
    #[schema(minimum = 0)]
    pub ratio: Option<f64>,
    /// The kernel block device that the volume is attached as.
    #[schema(required)]
    pub device: Option<String>,
    /// NBD URI of the volume.
    #[schema(required)]
    pub nbd_uri: Option<String>,
    /// NBD clients that have the volume open.
    pub nbd_connections: u64,
    /// Clients of the ring that have the volume open.
    pub ring_clients: u64,
    /// Users who may open the volume over the ring, besides those who may use the daemon.
    pub users: Vec<String>,
    /// Owner of the volume. Deleting, renaming, shrinking or restoring it requires `force`.
    #[serde(default)]
    #[schema(required)]
    pub owner: Option<String>,
    /// Labels: text by key, for people and scripts.
    #[serde(default)]
    #[schema(required)]
    pub labels: BTreeMap<String, String>,
}
