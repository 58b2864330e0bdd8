//! State of the daemon and its pool.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::durability::{DurabilityStatus, VolumeBytes};
use crate::standby::Standby;
use crate::store_server::StoreServerStatus;

/// Progress of the clean-up after an unclean end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RecoveryState {
    /// Recovery is complete.
    Complete,
    /// Leaked pages are being collected in the background.
    Sweeping,
}

/// The daemon, its pool and its exports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    pub version: String,
    #[schema(minimum = 1)]
    pub pid: u32,
    /// Number of times that the pool was opened: increases with each start.
    pub run_epoch: u64,
    pub uptime_seconds: u64,
    pub recovery: RecoveryState,
    pub volume_count: u64,
    pub attachment_count: u64,
    pub snapshot_count: u64,
    /// Tasks that run.
    pub task_count: u64,
    pub pool: PoolStatus,
    pub durability: DurabilityStatus,
    /// Null unless the daemon follows another.
    #[serde(default)]
    #[schema(required)]
    pub standby: Option<Standby>,
    /// Null unless the daemon serves an image store.
    #[serde(default)]
    #[schema(required)]
    pub store_server: Option<StoreServerStatus>,
    /// Certificates that the daemon presents to others, or trusts.
    #[serde(default)]
    #[schema(required)]
    pub certificates: Vec<Certificate>,
    pub damage: DamageStatus,
    pub exports: ExportsStatus,
    pub cpu_latency: CpuLatencyStatus,
    /// Warnings for the operator; empty when all is well.
    pub warnings: Vec<Warning>,
}

/// State of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CertificateState {
    Valid,
    /// It expires within 30 days.
    Expiring,
    Expired,
}

/// A file of certificates in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Certificate {
    /// Service that uses it. With "for clients" or "for the server": the authorities whose
    /// certificates are accepted.
    #[schema(example = "NBD")]
    pub used_for: String,
    pub file: String,
    /// Time at which it expires, in seconds since 1970: the first certificate of a chain, or the
    /// last of several authorities.
    pub expires_unix_seconds: u64,
    pub state: CertificateState,
}

/// The memory of the pool. Everything is counted once: `used_bytes` is the sum of `page_bytes`,
/// `map_bytes`, `index_bytes`, `table_bytes` and `slack_bytes`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PoolStatus {
    /// File of the pool.
    pub path: String,
    /// The whole region.
    pub size_bytes: u64,
    /// Part of the region that is not free for new data.
    pub used_bytes: u64,
    pub free_bytes: u64,
    /// Page contents.
    pub page_bytes: u64,
    /// The volumes' maps.
    pub map_bytes: u64,
    /// The dedup index.
    pub index_bytes: u64,
    /// Superblocks, tables and counts.
    pub table_bytes: u64,
    /// Free slots in slabs that are in use.
    pub slack_bytes: u64,
    /// Sum of the sizes of all volumes, except those of a broker.
    #[serde(default)]
    pub provisioned_bytes: u64,
    /// Readable bytes that were written and not discarded, over all volumes.
    pub written_bytes: u64,
    /// Part of `written_bytes` that is stored as a fill pattern, without a page.
    pub fill_bytes: u64,
    /// Part of `written_bytes` that is stored uncompressed and waits for compression.
    pub pending_bytes: u64,
    /// Pages that hold contents.
    pub page_count: u64,
    /// Part of `page_count`: pages that were idle and are compressed once more.
    #[serde(default)]
    pub idle_page_count: u64,
    /// Memory that the compression of idle pages saves now.
    #[serde(default)]
    pub idle_saved_bytes: u64,
    /// Upper bound of the memory that overwriting all data of thin volumes could need: for blocks
    /// that share a page, are compressed, are fill patterns, or are not fetched yet.
    pub overwrite_need_bytes: u64,
    /// Memory that is guaranteed to overwrites. While `overwrite_need_bytes` is not above it, no
    /// overwrite fails for lack of memory.
    pub overwrite_room_bytes: u64,
    /// `written_bytes` over `used_bytes`; null while nothing is written.
    #[schema(required)]
    #[schema(minimum = 0)]
    pub ratio: Option<f64>,
}

/// Contents that are lost: reads of them fail until they are overwritten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DamageStatus {
    /// The volumes and snapshots that have such contents.
    pub lost: Vec<VolumeBytes>,
    /// Memory of the pool that is retired because it was damaged.
    pub withheld_bytes: u64,
}

/// Exported volumes; null for an export that is switched off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExportsStatus {
    #[schema(required)]
    pub nbd: Option<NbdStatus>,
    pub ring: RingStatus,
    #[schema(required)]
    pub fuse: Option<FuseStatus>,
    /// Null also where this host's kernel has no ublk.
    #[schema(required)]
    pub ublk: Option<UblkStatus>,
    pub vhost_user: VhostUserStatus,
}

/// The disks of virtual machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VhostUserStatus {
    /// The folder of the sockets.
    pub folder: String,
    /// Volumes that are exported.
    pub exports: u64,
    /// Number of exports with a connected virtual machine.
    pub connected: u64,
}

/// The NBD server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NbdStatus {
    /// The path of the Unix socket.
    pub socket: String,
    /// The address of the TCP listener.
    #[schema(required)]
    pub tcp: Option<String>,
    pub connections: u64,
}

/// The server of rings in shared memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RingStatus {
    /// The path of the Unix socket.
    pub socket: String,
    pub clients: u64,
}

/// The file system under the loop devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FuseStatus {
    pub mount_point: String,
}

/// The devices of the kernel's ublk driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UblkStatus {
    pub device_count: u64,
}

/// State of the CPU latency request (PM QoS).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CpuLatencyStatus {
    pub state: CpuLatencyState,
    /// Why the request failed; null if it is in force, or none is wanted.
    #[schema(required)]
    pub reason: Option<String>,
}

/// Request of the daemon to idle cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CpuLatencyState {
    /// Low wake-up latency, because of recent traffic.
    Low,
    /// No request, because there was no recent traffic.
    Any,
    /// No request, by configuration.
    Unmanaged,
    /// No request, because the host does not permit it.
    Unavailable,
}

/// A condition that needs the operator's attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Warning {
    /// A stable word to match on, such as `pool_filling`.
    pub kind: String,
    pub message: String,
}
