//! Commands on virtual machines. They are sent to `memlane-machines`, not to the daemon.

use std::path::PathBuf;

use api::{ByteSize, DiskProtocol, MachineNetwork};
use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};

use crate::table::View;

/// Create, start and stop virtual machines whose disks are volumes
#[derive(Debug, Args)]
pub(crate) struct Machines {
    /// Socket of memlane-machines [default: $MEMLANE_MACHINES_SOCKET, or
    /// /run/memlane-machines/api.sock]
    #[arg(long, value_name = "SOCKET", global = true)]
    pub(crate) machines_socket: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) command: MachineCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MachineCommand {
    /// Create a machine whose disk is a volume, or several machines with a clone each
    Create(Box<CreateMachine>),

    /// List all machines of this host, also those created by other tools
    #[command(alias = "ls")]
    List(View),

    /// Show a machine
    Show {
        /// Name of the machine
        name: String,
    },

    /// Start machines
    Start {
        /// Names of the machines
        #[arg(required = true)]
        names: Vec<String>,
    },

    /// Ask the guests to shut down (ACPI), without waiting
    Stop {
        /// Names of the machines
        #[arg(required = true)]
        names: Vec<String>,
    },

    /// Power off machines at once
    Kill {
        /// Names of the machines
        #[arg(required = true)]
        names: Vec<String>,
    },

    /// Attach a volume to a machine as a disk, also while it runs
    Attach {
        /// Name of the machine
        name: String,

        /// Volume, or VOLUME@SNAPSHOT for a read-only disk
        volume: String,

        /// Protocol of the disk
        #[arg(long, value_name = "PROTOCOL", default_value = "vhost-user")]
        #[arg(value_parser = protocols())]
        protocol: DiskProtocol,
    },

    /// Detach a volume from a machine, also while it runs; the volume is kept
    Detach {
        /// Name of the machine
        name: String,

        /// Volume, or VOLUME@SNAPSHOT
        volume: String,
    },

    /// Create snapshots of all volumes of a machine at the same instant
    Snapshot {
        /// Name of the machine
        name: String,

        /// Name of the snapshots, the part after @
        snapshot: String,

        /// Fail if the guest agent cannot freeze the file systems
        #[arg(long)]
        freeze: bool,
    },

    /// Open the serial console of a machine; Ctrl-] ends it
    Console {
        /// Name of the machine
        name: String,

        /// Disconnect the client that has the console now
        #[arg(long)]
        force: bool,
    },

    /// Delete stopped machines that Memlane created; their volumes are kept
    #[command(alias = "rm")]
    Delete {
        /// Names of the machines
        #[arg(required = true)]
        names: Vec<String>,

        /// Delete their volumes too
        #[arg(long)]
        with_volumes: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CreateMachine {
    /// Name; with --count, the prefix of the names NAME-1, NAME-2 and so on
    pub(crate) name: String,

    /// Use this volume as the disk
    #[arg(long, value_name = "VOLUME", required_unless_present_any = ["clone", "size"])]
    pub(crate) volume: Option<String>,

    /// Use a clone of this volume or VOLUME@SNAPSHOT as the disk; it gets the machine's name
    #[arg(long, value_name = "SOURCE", conflicts_with = "volume")]
    pub(crate) clone: Option<String>,

    /// Use a new empty volume of this size as the disk; it gets the machine's name
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["volume", "clone"])]
    #[arg(value_parser = super::size)]
    pub(crate) size: Option<ByteSize>,

    /// Protocol of the disk
    #[arg(long, value_name = "PROTOCOL", default_value = "vhost-user", value_parser = protocols())]
    pub(crate) protocol: DiskProtocol,

    /// CD-ROM image, a file name in the folder of boot files; the machine boots from it if its disk
    /// is empty
    #[arg(long, value_name = "FILE")]
    pub(crate) cdrom: Option<String>,

    /// Network device: user, network=NAME (of libvirt) or bridge=NAME; may be repeated
    #[arg(long = "network", value_name = "NETWORK", value_parser = network)]
    pub(crate) networks: Vec<MachineNetwork>,

    /// Add a graphical display (VNC)
    #[arg(long)]
    pub(crate) graphics: bool,

    /// File with cloud-init user-data
    #[arg(long, value_name = "FILE")]
    pub(crate) user_data: Option<PathBuf>,

    /// File with cloud-init network configuration
    #[arg(long, value_name = "FILE", requires = "user_data")]
    pub(crate) network_config: Option<PathBuf>,

    /// Number of machines to create, each with its own clone
    #[arg(long, value_name = "NUMBER", conflicts_with = "volume")]
    pub(crate) count: Option<u32>,

    /// Processors
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) cpus: u32,

    /// Memory, such as 2GiB
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = super::size)]
    pub(crate) memory: ByteSize,

    /// Boot this kernel, a file name in the folder of boot files, instead of the disk
    #[arg(long, value_name = "FILE")]
    pub(crate) kernel: Option<String>,

    /// Initial RAM disk of the kernel, in the same folder
    #[arg(long, value_name = "FILE", requires = "kernel")]
    pub(crate) initrd: Option<String>,

    /// Kernel command line
    #[arg(long, value_name = "ARGUMENTS", requires = "kernel")]
    pub(crate) kernel_args: Option<String>,

    /// Start the machine after creating it
    #[arg(long)]
    pub(crate) start: bool,
}

fn network(text: &str) -> Result<MachineNetwork, String> {
    match text.split_once('=') {
        None if text == "user" => Ok(MachineNetwork::User),
        Some(("network", name)) => Ok(MachineNetwork::Network(name.to_owned())),
        Some(("bridge", name)) => Ok(MachineNetwork::Bridge(name.to_owned())),
        _ => Err("invalid network; use user, network=NAME or bridge=NAME".to_owned()),
    }
}

fn protocols() -> impl TypedValueParser<Value = DiskProtocol> {
    let known = [
        ("vhost-user", "The fastest; the machine's memory is shared with the daemon"),
        ("nbd", "QEMU connects to the daemon's NBD socket; works without shared memory"),
    ];
    super::words(&known).map(super::word)
}
