//! Virtual machines whose disks are volumes: what `memlane-machines` is asked and answers. The
//! daemon knows nothing of them.

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
    /// A volume over memory that the machine shares with the daemon.
    VhostUser,
    /// A volume, or a disk of another server, over NBD.
    Nbd,
    /// A file of this host, such as a CD-ROM image.
    File,
    /// Something else that libvirt knows.
    Other,
}

/// The protocol of a volume that becomes a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DiskProtocol {
    /// Over memory that the machine shares with the daemon: the fastest.
    #[default]
    VhostUser,
    /// Over the daemon's Unix socket of NBD.
    Nbd,
}

/// A network device, on a network that there is already.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MachineNetwork {
    /// One of QEMU itself, for the guest alone: it gets an address there, and reaches nobody.
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
    /// The volume of the daemon that it is, or null.
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
    /// True if it was made here. Machines of others are started and stopped, not deleted.
    pub is_own: bool,
    /// True if QEMU interprets its instructions, since this host has no KVM: it is slow.
    pub is_emulated: bool,
    /// Its disks now: those that it runs with, or will start with.
    pub disks: Vec<MachineDisk>,
    /// The volumes among its disks.
    pub volumes: Vec<String>,
    pub has_serial_console: bool,
    /// True if it has a screen that VNC shows.
    pub has_graphical_console: bool,
}

/// One machine to make, or several that are alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineCreate {
    /// The name; with a `count`, what comes before `-1`, `-2` and so on.
    pub name: String,
    /// Number of machines; each then has a clone of its own.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 64)]
    pub count: Option<u32>,
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 255)]
    pub cpus: u32,
    pub memory: ByteSize,
    /// The volume that is to be its disk. One of `volume`, `clone_of` and `size` is needed.
    #[serde(default)]
    pub volume: Option<String>,
    /// The volume or VOLUME@SNAPSHOT of which its disk is a clone, with the machine's name.
    #[serde(default)]
    pub clone_of: Option<String>,
    /// The size of an empty volume with the machine's name, to install a system on.
    #[serde(default)]
    pub size: Option<ByteSize>,
    /// Protocol by which the machine reaches its disk.
    #[serde(default)]
    pub protocol: DiskProtocol,
    /// A CD-ROM image in the folder of boot files. A machine whose disk is empty starts from it.
    #[serde(default)]
    pub cdrom: Option<String>,
    #[serde(default)]
    pub networks: Vec<MachineNetwork>,
    /// True if it has a screen.
    #[serde(default)]
    pub graphics: bool,
    /// Instructions for cloud-init in the guest, in any of its formats. It is put on a small volume
    /// of its own, `NAME-seed`.
    #[serde(default)]
    pub user_data: Option<String>,
    /// The guest's network, in cloud-init's format.
    #[serde(default)]
    pub network_config: Option<String>,
    /// A kernel in the folder of boot files, to start in the place of what is on the disk.
    #[serde(default)]
    pub kernel: Option<String>,
    /// An initial RAM disk in that folder, for the kernel.
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

/// Machines that were made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MachinesCreated {
    pub machines: Vec<Machine>,
    /// Warnings for the owner, such as that the machines are emulated.
    pub warnings: Vec<String>,
}

/// A volume that is to become a disk of a machine, also while it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskAttach {
    /// The volume; over vhost-user also VOLUME@SNAPSHOT, which takes no changes.
    pub volume: String,
    #[serde(default)]
    pub protocol: DiskProtocol,
}

/// A volume that is to be no disk of a machine any more. The volume stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskDetach {
    pub volume: String,
}

/// A snapshot to take of all volumes of a machine at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineSnapshotCreate {
    /// Text behind the `@` in the names of the snapshots.
    #[schema(example = "before-upgrade", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    pub snapshot: String,
    /// True to take none where the guest's agent does not freeze its file systems. They are then as
    /// after a loss of power, which journalling file systems and databases recover from.
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
