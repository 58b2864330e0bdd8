//! Attachments: volumes that are kernel block devices on this host.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Kernel driver of the block device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AttachAs {
    /// The best driver that this host supports.
    #[default]
    Auto,
    /// The kernel's ublk driver. Requires Linux 6.1 or later, with the driver loaded.
    Ublk,
    /// A loop device over a file in the daemon's FUSE file system.
    Loop,
}

/// A volume to attach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttachmentCreate {
    /// The name of the volume.
    pub volume: String,
    #[serde(default, rename = "as")]
    pub attach_as: AttachAs,
    /// Attach the volume although it is exported to virtual machines. Only file systems and
    /// databases for shared disks allow this; two writers corrupt others.
    #[serde(default)]
    pub share: bool,
    /// Flush each write before it is answered, for a volume that holds a database's log. A loop
    /// device has all writes wait behind a flush; with this, durable writes of several threads
    /// share one. Not for ublk devices, whose flushes hold up no writes.
    #[serde(default)]
    pub flush_each_write: bool,
}

/// An attached volume. It stays attached over restarts of the daemon, until it is detached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Attachment {
    /// The name of the volume.
    pub volume: String,
    /// The driver that was chosen; never `auto`.
    #[serde(rename = "as")]
    pub attach_as: AttachAs,
    /// Path of the block device; null if attaching failed at the last start.
    #[schema(example = "/dev/loop0", required)]
    pub device: Option<String>,
    /// Each write is flushed before it is answered. Absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub flush_each_write: bool,
}
