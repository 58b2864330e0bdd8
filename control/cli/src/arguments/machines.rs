//! Commands about virtual machines, which `memlane-machines` is asked, not the daemon.

use std::path::PathBuf;

use api::{ByteSize, DiskProtocol, MachineNetwork};
use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};

use crate::table::View;

/// Make, start and stop virtual machines on volumes
#[derive(Debug, Args)]
pub(crate) struct Machines {
    /// The socket of memlane-machines; else MEMLANE_MACHINES_SOCKET, or
    /// /run/memlane-machines/api.sock
    #[arg(long, value_name = "SOCKET", global = true)]
    pub(crate) machines_socket: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) command: MachineCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MachineCommand {
    /// Make a machine whose disk is a volume, or several whose disks are clones of one
    Create(Box<CreateMachine>),

    /// List all machines of this host, also those that others made
    #[command(alias = "ls")]
    List(View),

    /// Show a machine
    Show { name: String },

    /// Start machines
    Start {
        #[arg(required = true)]
        names: Vec<String>,
    },

    /// Ask the guests of machines to shut down, and do not wait for that
    Stop {
        #[arg(required = true)]
        names: Vec<String>,
    },

    /// Take the power of machines
    Kill {
        #[arg(required = true)]
        names: Vec<String>,
    },

    /// Make a volume a disk of a machine, also while it runs
    Attach {
        name: String,
        /// The volume, or VOLUME@SNAPSHOT for a disk that takes no changes
        volume: String,

        /// Protocol to its disk: vhost-user or nbd
        #[arg(long, value_name = "PROTOCOL", default_value = "vhost-user")]
        #[arg(value_parser = protocols())]
        protocol: DiskProtocol,
    },

    /// Take a volume from a machine, also while it runs; the volume stays
    Detach { name: String, volume: String },

    /// Take a snapshot of all volumes of a machine at one instant
    Snapshot {
        name: String,

        /// What follows the @ in the names of the snapshots
        snapshot: String,

        /// Take none where the guest's agent does not freeze its file systems
        #[arg(long)]
        freeze: bool,
    },

    /// Become the terminal at a machine's serial port; Ctrl-] ends that
    Console {
        name: String,

        /// Take the terminal from who has it now
        #[arg(long)]
        force: bool,
    },

    /// Delete machines that are off and were made here; their volumes stay
    #[command(alias = "rm")]
    Delete {
        #[arg(required = true)]
        names: Vec<String>,

        /// Delete their volumes too
        #[arg(long)]
        with_volumes: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CreateMachine {
    /// The name; with --count, what comes before -1, -2 and so on
    pub(crate) name: String,

    /// The volume that is to be its disk
    #[arg(long, value_name = "VOLUME", required_unless_present_any = ["clone", "size"])]
    pub(crate) volume: Option<String>,

    /// Make its disk a clone of this volume or VOLUME@SNAPSHOT, with the machine's name
    #[arg(long, value_name = "SOURCE", conflicts_with = "volume")]
    pub(crate) clone: Option<String>,

    /// Make its disk an empty volume of this size, with the machine's name
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["volume", "clone"])]
    #[arg(value_parser = super::size)]
    pub(crate) size: Option<ByteSize>,

    /// Protocol to its disk: vhost-user or nbd
    #[arg(long, value_name = "PROTOCOL", default_value = "vhost-user", value_parser = protocols())]
    pub(crate) protocol: DiskProtocol,

    /// A CD-ROM image, by its name in the folder of boot files; an empty disk starts from it
    #[arg(long, value_name = "FILE")]
    pub(crate) cdrom: Option<String>,

    /// A network device: user, network=NAME (of libvirt) or bridge=NAME; can be repeated
    #[arg(long = "network", value_name = "NETWORK", value_parser = network)]
    pub(crate) networks: Vec<MachineNetwork>,

    /// Give it a screen, for VNC
    #[arg(long)]
    pub(crate) graphics: bool,

    /// A file that says what cloud-init in the guest is to do
    #[arg(long, value_name = "FILE")]
    pub(crate) user_data: Option<PathBuf>,

    /// A file with the guest's network, in cloud-init's format
    #[arg(long, value_name = "FILE", requires = "user_data")]
    pub(crate) network_config: Option<PathBuf>,

    /// Make so many machines, each with a clone of its own
    #[arg(long, value_name = "NUMBER", conflicts_with = "volume")]
    pub(crate) count: Option<u32>,

    /// Processors
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) cpus: u32,

    /// Memory, such as 2GiB
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = super::size)]
    pub(crate) memory: ByteSize,

    /// Start this kernel, by its name in the folder of boot files, not what is on the disk
    #[arg(long, value_name = "FILE")]
    pub(crate) kernel: Option<String>,

    /// The kernel's initial RAM disk, in the same folder
    #[arg(long, value_name = "FILE", requires = "kernel")]
    pub(crate) initrd: Option<String>,

    /// The kernel's command line
    #[arg(long, value_name = "ARGUMENTS", requires = "kernel")]
    pub(crate) kernel_args: Option<String>,

    /// Start it at once
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
    super::words(&["vhost-user", "nbd"]).map(super::word)
}
