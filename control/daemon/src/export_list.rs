//! List of volumes that are exported to virtual machines, stored on disk so that the sockets exist
//! again before the machines reconnect.

use api::ExportProtocol;
use serde::{Deserialize, Serialize};

use crate::volume_list::{Listed, VolumeList};

/// List of exported volumes.
pub(crate) type ExportList = VolumeList<ExportEntry>;

/// An exported volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportEntry {
    pub(crate) volume_id: u64,
    pub(crate) volume: String,
    pub(crate) protocol: ExportProtocol,
    pub(crate) queues: u16,
    /// Other writers may use the volume while it is exported.
    #[serde(default)]
    pub(crate) share: bool,
    #[serde(default, skip_serializing_if = "SocketRights::are_usual")]
    pub(crate) rights: SocketRights,
}

/// Owner, group and mode of an export's socket, where they differ from the default.
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
