//! Images: consistent copies of volumes on disk or in an object store.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::volume::Durability;

/// An image to save: of all volumes that are not of the class `ram`, as they are at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageSave {
    /// Volumes of the class `ram` to be saved too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// An image with a label, of 63 bytes at most, is kept until it is deleted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
}

/// Volumes to restore from an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageRestore {
    /// Volumes to restore; by default all volumes of the image. Fails if a name exists already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<String>>,
    /// New name; allowed with exactly one volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// An image in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Image {
    /// Number of the image: increases with each image of a store, and is never reused.
    #[schema(minimum = 1)]
    pub number: u64,
    /// Time of the save, in seconds since 1970; zero if the image cannot be read.
    pub saved_unix_seconds: u64,
    /// Empty for none.
    pub label: String,
    /// Bytes in the image store; images share equal contents.
    pub stored_bytes: u64,
    pub volumes: Vec<ImageVolume>,
    /// Bytes whose contents were lost before it was saved.
    pub lost_bytes: u64,
    /// Why the image cannot be read; null if it can.
    #[schema(required)]
    pub failure: Option<String>,
}

/// A volume or snapshot inside an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageVolume {
    pub name: String,
    #[schema(minimum = 4096)]
    pub size_bytes: u64,
    pub durability: Durability,
}

/// Outcome for the contents of a volume that could not be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AcceptedLoss {
    /// Bytes lost: reads of them fail until they are overwritten.
    pub lost_bytes: u64,
    /// Bytes that could be fetched this time.
    pub fetched_bytes: u64,
    /// Bytes still to be fetched, since the image store cannot be read now.
    pub to_fetch_bytes: u64,
}
