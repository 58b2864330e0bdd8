//! Images: consistent copies of volumes on disk or in an object store.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An image to save.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageSave {
    /// Volumes and snapshots to save; by default all volumes that are not of the class `ram`,
    /// with their snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<String>>,
}

/// What of an image to bring back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageRestore {
    /// The volumes and snapshots to restore; by default all of the image. Names that exist already
    /// are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<String>>,
    /// With exactly one volume: the name to restore it under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// An image in the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Image {
    /// Rises with every image of a store, and is never given twice.
    pub number: u64,
    /// When it was saved, in seconds since 1970.
    pub saved_unix_seconds: u64,
    /// The image that it took unchanged contents from; null when it was made without one.
    #[schema(required)]
    pub base: Option<u64>,
    /// Readable bytes of all volumes in it.
    pub written_bytes: u64,
    /// What saving it wrote to the store.
    pub saved_bytes: u64,
    pub volumes: Vec<ImageVolume>,
}

/// A volume or snapshot inside an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageVolume {
    pub name: String,
    pub size_bytes: u64,
    pub written_bytes: u64,
}
