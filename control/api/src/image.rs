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

/// Part of an image to bring back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageRestore {
    /// The volumes to restore; by default all of the image. Names that exist already
    /// are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<String>>,
    /// With exactly one volume: the name to restore it under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// An image in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Image {
    /// Rises with every image of a store, and is never given twice.
    #[schema(minimum = 1)]
    pub number: u64,
    /// When it was saved, in seconds since 1970; zero when it cannot be read.
    pub saved_unix_seconds: u64,
    /// Empty for none.
    pub label: String,
    /// Bytes that it takes in the store; images share what is the same.
    pub stored_bytes: u64,
    pub volumes: Vec<ImageVolume>,
    /// Bytes whose contents were lost before it was saved.
    pub lost_bytes: u64,
    /// Why it cannot be read; null when it can.
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
    /// Lost for good: reads of it fail until it is overwritten.
    pub lost_bytes: u64,
    /// Could be fetched after all.
    pub fetched_bytes: u64,
    /// Is still to be fetched: the store cannot be read now, which says nothing of its objects.
    pub to_fetch_bytes: u64,
}
