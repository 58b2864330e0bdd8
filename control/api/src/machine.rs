//! Virtual machines whose disks are volumes: requests and responses of `memlane-machines`. The
//! daemon does not know about machines.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::size::ByteSize;

/// State of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MachineState {
    Running,
    Paused,
    ShuttingDown,
    Off,
    Crashed,
    Unknown,
}

/// Kind of a machine's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DiskKind {
    /// A volume over vhost-user.
    VhostUser,
    /// A volume, or a disk of another server, over NBD.
    Nbd,
    /// A file of this host, such as a CD-ROM image.
    File,
    /// Any other type of libvirt disk.
    Other,
}

/// Protocol between a machine and its disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DiskProtocol {
    /// vhost-user, over memory shared with the daemon. The fastest protocol.
    #[default]
    VhostUser,
    /// NBD, over the daemon's Unix socket.
    Nbd,
}

/// A network device on an existing network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MachineNetwork {
    /// Isolated user-mode network of QEMU: the guest gets an address, and reaches no other host.
    User,
    /// A network of libvirt, by its name.
    Network(String),
    /// A bridge of this host, by its name.
    Bridge(String),
}

/// A disk of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MachineDisk {
    /// Its name in libvirt; guests may number their disks differently.
    #[schema(example = "vda")]
    pub target: String,
    pub kind: DiskKind,
    /// Volume of the daemon, or null for another disk.
    #[schema(required)]
    pub volume: Option<String>,
}

/// A virtual machine of this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Machine {
    pub name: String,
    pub state: MachineState,
    #[schema(minimum = 1)]
    pub cpus: u32,
    #[schema(minimum = 1)]
    pub memory_bytes: u64,
    /// True if Memlane created it. Other machines can be started and stopped, but not deleted.
    pub is_own: bool,
    /// True if QEMU emulates the CPU because the host has no KVM, which is slow.
    pub is_emulated: bool,
    /// Disks that the machine runs with, or will start with.
    pub disks: Vec<MachineDisk>,
    /// The volumes among its disks.
    pub volumes: Vec<String>,
    pub has_serial_console: bool,
    /// True if it has a graphical console (VNC).
    pub has_graphical_console: bool,
}

/// One machine to create, or several identical ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineCreate {
    /// Name; with a `count`, the prefix before `-1`, `-2` and so on.
    pub name: String,
    /// Number of machines, each with its own clone.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 64)]
    pub count: Option<u32>,
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 255)]
    pub cpus: u32,
    pub memory: ByteSize,
    /// Existing volume to use as the disk. One of `volume`, `clone_of` and `size` is required.
    #[serde(default)]
    pub volume: Option<String>,
    /// Volume or VOLUME@SNAPSHOT to clone as the disk. The clone has the machine's name.
    #[serde(default)]
    pub clone_of: Option<String>,
    /// Size of a new empty volume with the machine's name.
    #[serde(default)]
    pub size: Option<ByteSize>,
    /// Protocol by which the machine reaches its disk.
    #[serde(default)]
    pub protocol: DiskProtocol,
    /// CD-ROM image in the boot file folder. A machine with an empty disk boots from it.
    #[serde(default)]
    pub cdrom: Option<String>,
    #[serde(default)]
    pub networks: Vec<MachineNetwork>,
    /// True to add a graphical console.
    #[serde(default)]
    pub graphics: bool,
    /// User data for cloud-init in the guest. It is stored on the small volume `NAME-seed`.
    #[serde(default)]
    pub user_data: Option<String>,
    /// The guest's network, in cloud-init's format.
    #[serde(default)]
    pub network_config: Option<String>,
    /// Kernel in the boot file folder, to boot instead of the disk.
    #[serde(default)]
    pub kernel: Option<String>,
    /// Initial RAM disk in the boot file folder.
    #[serde(default)]
    pub initrd: Option<String>,
    /// The kernel's command line.
    #[serde(default)]
    pub kernel_args: Option<String>,
    /// True to start it at once.
    #[serde(default)]
    pub start: bool,
}

fn one() -> u32 {
    1
}

/// Machines that were created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MachinesCreated {
    pub machines: Vec<Machine>,
    /// Warnings, such as that the machines are emulated.
    pub warnings: Vec<String>,
}

/// A volume to attach to a machine as a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskAttach {
    /// The volume; over vhost-user also VOLUME@SNAPSHOT, which is read-only.
    pub volume: String,
    #[serde(default)]
    pub protocol: DiskProtocol,
}

/// A volume to detach from a machine. The volume is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskDetach {
    pub volume: String,
}

/// A snapshot to take of all volumes of a machine at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineSnapshotCreate {
    /// Part of the snapshots' names after the `@`.
    #[schema(example = "before-upgrade", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    pub snapshot: String,
    /// True to fail unless the guest agent freezes the file systems. Otherwise the snapshots are
    /// crash-consistent, which journaling file systems and databases recover from.
    #[serde(default)]
    pub needs_freeze: bool,
}

/// The snapshots that were taken of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MachineSnapshot {
    /// Names of the form `VOLUME@SNAPSHOT`.
    pub snapshots: Vec<String>,
    /// True if the guest's file systems were frozen meanwhile.
    pub is_frozen: bool,
    pub warnings: Vec<String>,
}
