//! Volumes that are exported to virtual machines, kept on disk so that their sockets are there
//! again before the machines try to come back.

use api::ExportProtocol;
use serde::{Deserialize, Serialize};

use crate::volume_list::{Listed, VolumeList};

/// The exported volumes.
pub(crate) type ExportList = VolumeList<ExportEntry>;

/// An exported volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportEntry {
    pub(crate) volume_id: u64,
    pub(crate) volume: String,
    pub(crate) protocol: ExportProtocol,
    pub(crate) queues: u16,
    /// Others may write to the volume besides.
    #[serde(default)]
    pub(crate) share: bool,
    #[serde(default, skip_serializing_if = "SocketRights::are_usual")]
    pub(crate) rights: SocketRights,
}

/// Users that reach the socket of an export, where that is not as usual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SocketRights {
    pub(crate) owner_uid: Option<u32>,
    pub(crate) group_gid: Option<u32>,
    pub(crate) mode: Option<u32>,
}

impl SocketRights {
    fn are_usual(&self) -> bool {
        *self == Self::default()
    }
}

impl Listed for ExportEntry {
    const KEY: &str = "exports";
    const FILE_NAME: &str = "exports.json";
    const REMEDY: &str = "delete it to start without exports";

    fn volume_id(&self) -> u64 {
        self.volume_id
    }
}
