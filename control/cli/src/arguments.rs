//! Command line arguments.

pub(crate) mod connection;
pub(crate) mod console;
mod machines;
pub(crate) mod sql;
pub(crate) mod streams;
mod volumes;

use std::ffi::OsString;
use std::path::PathBuf;

use api::{AttachAs, ByteSize, PoolPatch, SectorBytes, SizeError, counted};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use serde::de::DeserializeOwned;

use self::connection::ConnectionOptions;
use self::console::ConsoleCommand;
pub(crate) use self::machines::{CreateMachine, MachineCommand, Machines};
use self::sql::SqlCommand;
use self::streams::StreamsCommand;
pub(crate) use self::volumes::{Create, ListVolumes, Setting, VolumeCommand};
use crate::output::Form;
use crate::table::View;

/// Manage volumes in RAM that are deduplicated and compressed, and survive a kill of their daemon.
#[derive(Debug, Parser)]
#[command(name = "memlane", version, propagate_version = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) connection: ConnectionOptions,

    /// Print JSON, also for errors
    #[arg(long, global = true, display_order = 900)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Arguments {
    pub(crate) fn form(&self) -> Form {
        if self.json { Form::Json } else { Form::Text }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create, show, change and delete volumes
    #[command(subcommand)]
    Volume(VolumeCommand),

    /// Create, list, restore and delete snapshots of volumes
    #[command(subcommand)]
    Snapshot(SnapshotCommand),

    /// Create a writable copy of a volume or snapshot that shares memory with it
    Clone {
        /// The volume, or VOLUME@SNAPSHOT
        source: String,

        /// The name of the copy
        name: String,
    },

    /// Save images of volumes to disk or an object store, and restore them
    #[command(subcommand)]
    Image(ImageCommand),

    /// Administer a console: users, projects, tokens and sessions, with --url and --token-file
    #[command(subcommand)]
    Console(ConsoleCommand),

    /// List, wait for and cancel long operations
    #[command(subcommand)]
    Task(TaskCommand),

    /// Show and change the limits of the pool
    #[command(subcommand)]
    Pool(PoolCommand),

    /// Show the lag of a standby, and promote it
    #[command(subcommand)]
    Standby(StandbyCommand),

    /// List recent events of the daemon
    Events {
        /// Only events with a higher id
        #[arg(long, value_name = "ID", default_value_t = 0)]
        after: u64,

        #[command(flatten)]
        view: View,
    },

    /// Attach a volume as a block device of this host, also after restarts; prints its path
    Attach {
        /// The volume
        name: String,

        /// The kernel driver
        #[arg(long = "as", default_value = "auto")]
        #[arg(value_parser = words(&DRIVERS).map(word::<AttachAs>))]
        attach_as: AttachAs,

        /// Attach the volume although it is exported to virtual machines; needs a cluster file
        /// system
        #[arg(long)]
        share: bool,

        /// Flush each write before it completes; for volumes with the log of a database
        #[arg(long)]
        flush_each_write: bool,
    },

    /// Remove the block device of a volume
    Detach {
        /// The volume
        name: String,
    },

    /// Export volumes as disks of virtual machines of this host
    #[command(subcommand)]
    Export(ExportCommand),

    Vm(Machines),

    #[command(flatten)]
    Streams(StreamsCommand),

    #[command(flatten)]
    Sql(SqlCommand),

    /// Run an unmodified program whose I/O on volumes bypasses the kernel
    Run(Run),

    /// Show the status of the daemon, its pool and its exports
    Status {
        /// Refresh the status every SECONDS seconds until Ctrl-C
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2")]
        #[arg(value_parser = clap::value_parser!(u64).range(1..))]
        watch: Option<u64>,
    },

    /// Check this host for kernel features, memory and permissions; needs no daemon
    Doctor,

    /// Run benchmarks of Memlane and its competitors on this machine
    #[command(disable_help_flag = true)]
    Bench {
        /// Arguments of memlane-bench; see --help
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },

    /// Advise which part of a running PostgreSQL database to place on a volume
    #[command(disable_help_flag = true)]
    Advise {
        /// PGDATA, or --connection STRING; see --help
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },

    /// Print shell completions
    Completions {
        /// The shell
        shell: Shell,
    },

    /// Write a manual page for each command
    Man {
        /// The folder of all sections, such as /usr/local/share/man
        folder: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum StandbyCommand {
    /// Show the state of a standby, and its lag
    Status,

    /// Promote the standby: take over the image store from the writer, which must have stopped.
    /// Waits until volumes are writable
    Promote {
        /// Promote although the writer seems to be running, or although the lag is unknown
        #[arg(long)]
        force: bool,

        /// Promote although flushes that the writer acknowledged are or may be lost
        #[arg(long)]
        accept_loss: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExportCommand {
    /// Export a volume as a disk, also after restarts; prints its socket and the options for QEMU
    /// and libvirt
    VhostUser {
        /// The volume, or VOLUME@SNAPSHOT
        name: String,

        /// Number of queues, best one per processor of the machine [default: up to 4]
        #[arg(long, value_name = "COUNT")]
        queues: Option<u16>,

        /// Export the volume although it is attached to this host; needs a cluster file system
        #[arg(long)]
        share: bool,

        /// Owner of the socket, usually the user that runs the machine [default: the volume's first
        /// user, or the daemon's]
        #[arg(long, value_name = "USER")]
        owner: Option<String>,

        /// Group of the socket, whose members may connect [default: memlane]
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,

        /// Mode of the socket [default: 660]
        #[arg(long, value_name = "MODE")]
        mode: Option<String>,
    },

    /// List all exports
    #[command(visible_alias = "ls")]
    List(View),

    /// Show the socket of an export and the options for QEMU and libvirt
    Show {
        /// The volume
        name: String,
    },

    /// Delete an export that no machine uses
    #[command(visible_alias = "rm")]
    Delete {
        /// The volume
        name: String,

        /// Delete the export although a machine uses it
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Create a snapshot of a volume, or of several at the same instant
    Create {
        /// Snapshots; several must have the same name, for example db@monday wal@monday
        #[arg(required = true, value_name = "VOLUME@SNAPSHOT")]
        names: Vec<String>,
    },

    /// List snapshots
    #[command(visible_alias = "ls")]
    List {
        /// List only snapshots of this volume
        volume: Option<String>,

        #[command(flatten)]
        view: View,
    },

    /// Rename a snapshot
    Rename {
        /// The snapshot
        #[arg(value_name = "VOLUME@SNAPSHOT")]
        name: String,

        /// New name, without the volume's name
        new_name: String,
    },

    /// Delete a snapshot that is not in use
    #[command(visible_alias = "rm")]
    Delete {
        /// The snapshot
        #[arg(value_name = "VOLUME@SNAPSHOT")]
        name: String,
    },

    /// Restore a volume from a snapshot; the volume must not be in use
    Restore {
        /// The snapshot
        #[arg(value_name = "VOLUME@SNAPSHOT")]
        name: String,

        /// Name of the snapshot, if the first argument names only the volume
        #[arg(hide = true)]
        snapshot: Option<String>,

        /// Restore the volume although it has an owner, such as a broker
        #[arg(long)]
        force: bool,
    },

    /// List the byte ranges that differ between snapshots
    Diff {
        /// The snapshot
        #[arg(value_name = "VOLUME@SNAPSHOT")]
        from: String,

        /// Another snapshot, or a volume [default: the snapshot's volume as it is now]
        to: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Save an image of all volumes of class image and journal
    Save {
        /// Volumes of class ram to include in the image
        #[arg(value_name = "VOLUME")]
        also: Vec<String>,

        /// Label of the image; a labelled image is kept until it is deleted
        #[arg(long)]
        label: Option<String>,

        /// Print the id of the task and return without waiting
        #[arg(long)]
        background: bool,
    },

    /// Restore volumes from an image; they are served at once
    Restore {
        /// The number of the image [default: the newest]
        #[arg(long, value_name = "NUMBER")]
        image: Option<u64>,

        /// The volumes [default: all in the image]
        #[arg(value_name = "VOLUME")]
        volumes: Vec<String>,

        /// New name, if one volume is restored
        #[arg(long = "as", value_name = "NAME")]
        name: Option<String>,

        /// Print the id of the task and return without waiting for all data to be fetched
        #[arg(long)]
        background: bool,
    },

    /// List all images in the store
    #[command(visible_alias = "ls")]
    List(View),

    /// Delete an image, and the data that no other image uses
    #[command(visible_alias = "rm")]
    Delete {
        /// The number of the image
        #[arg(value_name = "NUMBER")]
        image: u64,
    },

    /// Read an image and verify every checksum
    Verify {
        /// The number of the image [default: the newest]
        #[arg(value_name = "NUMBER")]
        image: Option<u64>,

        /// Print the id of the task and return without waiting
        #[arg(long)]
        background: bool,
    },

    /// Accept the loss of blocks that cannot be fetched from the image store
    AcceptLoss {
        /// The volume, or VOLUME@SNAPSHOT
        #[arg(value_name = "VOLUME")]
        volume: String,
    },

    /// Measure the write throughput of the image store; saves nothing
    Rehearse {
        /// Print the id of the task and return without waiting
        #[arg(long)]
        background: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// List running and recently finished tasks
    #[command(visible_alias = "ls")]
    List(View),

    /// Wait for a task, and print its result
    Wait {
        /// The task
        id: u64,
    },

    /// Cancel a task
    Cancel {
        /// The task
        id: u64,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Show the limits and use of the pool, and forecast the time at which it is full
    Show,

    /// Change the limits of the pool while it is in use
    Set {
        /// max-memory=SIZE
        #[arg(required = true, value_name = "KEY=VALUE", value_parser = pool_setting)]
        settings: Vec<PoolSetting>,

        /// Print the id of the task and return without waiting
        #[arg(long)]
        background: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Serve only this volume, which must exist; may be repeated [default: all volumes]
    #[arg(long = "volume", value_name = "NAME")]
    pub(crate) volumes: Vec<String>,

    /// Serve only files and devices that are opened with O_DIRECT
    #[arg(long)]
    pub(crate) direct_only: bool,

    /// Suppress messages on standard error
    #[arg(long)]
    pub(crate) quiet: bool,

    /// Append a line to this file for each descriptor that bypasses the kernel
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
}

/// A word for the value of an option, and its help text.
type Word = (&'static str, &'static str);

const DRIVERS: [Word; 3] = [
    ("auto", "ublk where the kernel has it, otherwise loop"),
    ("ublk", "A device of the kernel's ublk driver, the fastest"),
    ("loop", "A loop device, on every kernel"),
];
const REDUCTIONS: [Word; 4] = [
    ("full", "Deduplicate as data is written, and compress it in the background"),
    ("compress", "Only compress, in the background"),
    ("dedup", "Only deduplicate"),
    ("none", "Store data as it is"),
];
const DURABILITIES: [Word; 3] = [
    ("ram", "Kept while the host runs; a reboot loses it"),
    ("image", "After a reboot, the state of the last image"),
    ("journal", "Written to disk by each flush: after a power loss, everything that was flushed"),
];
const CAPACITIES: [Word; 2] = [
    ("thin", "Take memory as data is written; new data is refused when there is none"),
    ("guaranteed", "Reserve the full size, so that no write fails for lack of memory"),
];

const MIRRORS: [Word; 2] = [
    ("yes", "Flushes wait for the image store"),
    ("no", "Flushes do not wait for it; promoting a standby may lose the last of them"),
];

fn words(known: &[Word]) -> PossibleValuesParser {
    let values = known.iter().map(|(word, help)| PossibleValue::new(*word).help(*help));
    PossibleValuesParser::new(values)
}

/// Parses a word of the API.
fn word<T: DeserializeOwned>(text: String) -> T {
    parse_word(text).expect("the words on the command line are those of the interface")
}

/// Parses one of these words. The error lists them.
fn known_word<T: DeserializeOwned>(text: String, known: &[Word]) -> Result<T, String> {
    let words = || known.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
    parse_word(text.clone()).map_err(|_| format!("unknown value {text:?}; use one of: {}", words()))
}

fn parse_word<T: DeserializeOwned>(text: String) -> Result<T, serde_json::Error> {
    serde_json::from_value(serde_json::Value::String(text))
}

/// Parses a size. A bare number below the size of a block is refused, because its unit is probably
/// missing.
fn size(text: &str) -> Result<ByteSize, String> {
    const BLOCK_BYTES: u64 = 4096;
    let size: ByteSize = text.parse().map_err(|error: SizeError| error.to_string())?;
    let is_bare = text.bytes().all(|byte| byte.is_ascii_digit());
    if is_bare && (1..BLOCK_BYTES).contains(&size.0) {
        let bytes = counted(size.0, "byte");
        return Err(format!("{text} means {bytes}; did you mean {text}GiB?"));
    }
    Ok(size)
}

fn sector(text: String) -> SectorBytes {
    match text.as_str() {
        "512" => SectorBytes::Bytes512,
        _ => SectorBytes::Bytes4096,
    }
}

/// A `key=value` argument of `pool set`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolSetting {
    MaxMemory(ByteSize),
}

impl PoolSetting {
    pub(crate) fn key(self) -> &'static str {
        let Self::MaxMemory(_) = self;
        "max-memory"
    }

    pub(crate) fn apply_to(self, patch: &mut PoolPatch) {
        let Self::MaxMemory(size) = self;
        patch.max_memory = Some(size);
    }
}

fn pool_setting(text: &str) -> Result<PoolSetting, String> {
    let (key, value) = text.split_once('=').ok_or("write key=value")?;
    match key {
        "max-memory" => size(value).map(PoolSetting::MaxMemory),
        _ => Err(format!("unknown setting {key:?}; pools have one setting: max-memory")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_has_every_option() {
        program::check_reference::<Arguments>(
            concat!(env!("CARGO_MANIFEST_DIR"), "/../..").as_ref(),
        );
    }

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_command_line_is_well_formed() {
        <Arguments as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn the_options_of_a_command_stand_before_those_of_the_connection() {
        let mut program = <Arguments as clap::CommandFactory>::command();
        program.build();
        for names in [&["volume", "create"][..], &["topic", "create"], &["produce"], &["sql"]] {
            let command = names.iter().fold(&mut program, |command, name| {
                command.find_subcommand_mut(name).expect("it is a command")
            });
            let help = command.render_long_help().to_string();
            let (own, connection) = help.split_once("Connection to the").expect("a heading");
            assert!(own.contains("--json") && connection.contains("--socket"), "{help}");
        }
    }

    #[test]
    fn every_word_on_the_command_line_is_one_of_the_interface() {
        for (flag, values) in [
            ("reduction", &REDUCTIONS[..]),
            ("durability", &DURABILITIES),
            ("capacity", &CAPACITIES),
            ("mirror", &MIRRORS),
        ] {
            for (value, _) in values {
                parse(&format!("memlane volume create a --size 1G --{flag} {value}")).expect(value);
                parse(&format!("memlane volume set a {flag}={value}")).expect(value);
            }
        }
        for (value, _) in DRIVERS {
            parse(&format!("memlane attach a --as {value}")).expect(value);
        }
    }

    #[test]
    fn what_is_wrong_on_the_command_line_is_refused() {
        for line in [
            "memlane",
            "memlane volume create a",
            "memlane volume create a --size 1GB",
            "memlane volume create a --size 1G --sector 1024",
            "memlane volume set a",
            "memlane volume set a reduction",
            "memlane volume set a reduction=some",
            "memlane volume set a colour=red",
            "memlane attach a --as scsi",
            "memlane --socket a --url http://b status",
            "memlane --url https://b --pin 12 status",
            "memlane --url https://b --pin 12 --ca c status",
            "memlane volume create a --size 10",
            "memlane pool set max-memory=4",
            "memlane snapshot create",
            "memlane snapshot restore",
            "memlane status --watch 0",
            "memlane image delete",
            "memlane image accept-loss",
            "memlane pool set max-memory=1GB",
            "memlane pool set colour=red",
            "memlane task wait first",
        ] {
            assert!(parse(line).is_err_and(|error| error.use_stderr()), "{line}");
        }
    }

    #[test]
    fn flags_for_all_commands_may_come_last() {
        let arguments = parse("memlane volume list --json --socket /s").expect("good arguments");
        assert!(arguments.json);
        assert_eq!(arguments.connection.socket.as_deref(), Some("/s".as_ref()));
    }

    #[test]
    fn lists_and_deletions_have_their_short_names() {
        for kind in ["volume", "snapshot", "image", "export"] {
            parse(&format!("memlane {kind} ls --sort -size -o name,size")).expect(kind);
            parse(&format!("memlane {kind} rm 1")).expect(kind);
        }
        parse("memlane task ls").expect("good arguments");
    }

    #[track_caller]
    fn check_refusal(line: &str, reason: &str) {
        let message = parse(line).expect_err("it is refused").to_string();
        assert!(message.contains(reason), "{message}");
    }

    #[test]
    fn a_size_that_has_lost_its_unit_is_asked_about() {
        let line = "memlane volume create a --size";
        check_refusal(&format!("{line} 10"), "10 means 10 bytes; did you mean 10GiB?");
        check_refusal(&format!("{line} 1"), "1 means 1 byte; did you mean 1GiB?");
    }

    #[test]
    fn a_setting_that_is_refused_names_what_to_use() {
        let line = "memlane volume set a";
        let words = "unknown value \"disk\"; use one of: ram, image, journal";
        check_refusal(&format!("{line} durability=disk"), words);
        check_refusal(&format!("{line} size=2GiB"), "use memlane volume resize");
        check_refusal(&format!("{line} name=b"), "use memlane volume rename");
    }

    #[test]
    fn everything_after_bench_or_advise_is_handed_on() {
        let arguments = parse("memlane bench engine --json --help").expect("good arguments");
        let Command::Bench { arguments } = arguments.command else { panic!("another command") };
        assert_eq!(arguments, ["engine", "--json", "--help"]);
        let arguments = parse("memlane advise /srv/pg --sample-mib 8").expect("good arguments");
        let Command::Advise { arguments } = arguments.command else { panic!("another command") };
        assert_eq!(arguments, ["/srv/pg", "--sample-mib", "8"]);
    }
}
