//! Attached volumes, kept on disk so that they come back by themselves.

use api::AttachAs;
use serde::{Deserialize, Serialize};

use crate::volume_list::{Listed, VolumeList};

/// The attached volumes. After a start their devices are not known yet.
pub(crate) type AttachmentList = VolumeList<Attached>;

/// An attached volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Attached {
    pub(crate) volume_id: u64,
    /// The name when it was last attached or renamed.
    #[serde(rename = "volume")]
    pub(crate) name: String,
    #[serde(rename = "as")]
    pub(crate) attach_as: AttachAs,
    /// Others may write to the volume besides.
    #[serde(default, rename = "share")]
    pub(crate) is_shared: bool,
    /// Each write is flushed before it is answered. Absent where it is not, so that an earlier
    /// version reads the list.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) flush_each_write: bool,
    /// The block device; `None` when the host refused it at the last start.
    #[serde(skip)]
    pub(crate) device: Option<String>,
}

impl Listed for Attached {
    const KEY: &str = "attachments";
    const FILE_NAME: &str = "attachments.json";
    const REMEDY: &str = "delete it to start without attachments";

    fn volume_id(&self) -> u64 {
        self.volume_id
    }
}
