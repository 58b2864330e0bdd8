//! List of attached volumes, stored on disk so that they are attached again after a restart.

use api::AttachAs;
use serde::{Deserialize, Serialize};

use crate::volume_list::{Listed, VolumeList};

/// List of attached volumes. After a start their devices are not known yet.
pub(crate) type AttachmentList = VolumeList<Attached>;

/// An attached volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Attached {
    pub(crate) volume_id: u64,
    /// Volume name when it was last attached or renamed.
    #[serde(rename = "volume")]
    pub(crate) name: String,
    #[serde(rename = "as")]
    pub(crate) attach_as: AttachAs,
    /// Other writers may use the volume while it is attached.
    #[serde(default, rename = "share")]
    pub(crate) is_shared: bool,
    /// Each write is flushed before it is answered. Omitted from the file when false, so that an
    /// earlier version can read it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) flush_each_write: bool,
    /// Block device path; `None` if the host could not attach it at the last start.
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
