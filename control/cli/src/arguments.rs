//! The command line, as data.

pub(crate) mod connection;
pub(crate) mod console;
mod machines;
pub(crate) mod sql;
pub(crate) mod streams;
mod volumes;

use std::ffi::OsString;
use std::path::PathBuf;

use api::{AttachAs, ByteSize, PoolPatch, SectorBytes, SizeError};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use serde::de::DeserializeOwned;

use self::connection::ConnectionOptions;
use self::console::ConsoleCommand;
pub(crate) use self::machines::{CreateMachine, MachineCommand, Machines};
use self::sql::SqlCommand;
use self::streams::StreamsCommand;
pub(crate) use self::volumes::{Create, ListVolumes, VolumeCommand};
use crate::output::Form;
use crate::table::View;

/// Volumes in RAM: deduplicated, compressed, and still there when their daemon is killed.
#[derive(Debug, Parser)]
#[command(name = "memlane", version, propagate_version = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) connection: ConnectionOptions,

    /// Print one JSON value, also for an error
    #[arg(long, global = true)]
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
    /// Make, show, change and delete volumes
    #[command(subcommand)]
    Volume(VolumeCommand),

    /// Keep volumes as they are at one instant, and go back to it
    #[command(subcommand)]
    Snapshot(SnapshotCommand),

    /// Make a writable copy of a volume or a snapshot, at once and without its memory
    Clone {
        /// The volume, or VOLUME@SNAPSHOT
        source: String,

        /// The name of the copy
        name: String,
    },

    /// Save volumes to disk or an object store, and bring them back
    #[command(subcommand)]
    Image(ImageCommand),

    /// Administer a console: users, projects, tokens and sessions, with --url and --token-file
    #[command(subcommand)]
    Console(ConsoleCommand),

    /// Watch and cancel what takes longer
    #[command(subcommand)]
    Task(TaskCommand),

    /// Show and change the limits of the pool
    #[command(subcommand)]
    Pool(PoolCommand),

    /// Show how far a standby is behind the daemon that it follows, and have it take over
    #[command(subcommand)]
    Standby(StandbyCommand),

    /// Show what happened lately
    Events {
        /// Only events with a higher id
        #[arg(long, value_name = "ID", default_value_t = 0)]
        after: u64,

        #[command(flatten)]
        view: View,
    },

    /// Make a volume a block device of this host, now and after restarts; prints its path
    Attach {
        /// The volume
        name: String,

        /// The kernel driver
        #[arg(long = "as", default_value = "auto")]
        #[arg(value_parser = words(&DRIVERS).map(word::<AttachAs>))]
        attach_as: AttachAs,

        /// Attach it although it is exported to virtual machines; what is on it must allow that
        #[arg(long)]
        share: bool,

        /// Flush each write before it is answered: for a volume that holds a database's log
        #[arg(long)]
        flush_each_write: bool,
    },

    /// Take the block device of a volume away
    Detach {
        /// The volume
        name: String,
    },

    /// Make volumes disks of virtual machines of this host
    #[command(subcommand)]
    Export(ExportCommand),

    Vm(Machines),

    #[command(flatten)]
    Streams(StreamsCommand),

    #[command(flatten)]
    Sql(SqlCommand),

    /// Run a program whose reads and writes of volumes go through memory, past the kernel
    Run(Run),

    /// Show the daemon, its pool and its exports
    Status {
        /// Show it again and again, every so many seconds, until Ctrl-C
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2")]
        #[arg(value_parser = clap::value_parser!(u64).range(1..))]
        watch: Option<u64>,
    },

    /// Look at what this host offers the daemon, and what is missing; takes no daemon
    Doctor,

    /// Measure this machine and the engine on it
    #[command(disable_help_flag = true)]
    Bench {
        /// What memlane-bench is told; try --help
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },

    /// Say which part of a running PostgreSQL would be worth memory, without moving any
    #[command(disable_help_flag = true)]
    Advise {
        /// PGDATA, or --connection STRING; try --help
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },

    /// Print completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },

    /// Write a manual page for each command
    Man {
        /// The folder, such as /usr/local/share/man/man1
        folder: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum StandbyCommand {
    /// Show what it follows, and what would be lost with the writer
    Status,

    /// Take the image store over from its writer, which must have stopped; waits until volumes can
    /// be written to
    Promote {
        /// Take over although the writer seems to be running, or it is not known what is lost
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExportCommand {
    /// Make a volume a disk, now and after restarts; prints its socket and how machines use it
    VhostUser {
        /// The volume, or VOLUME@SNAPSHOT
        name: String,

        /// Queues of the disk; as many as the machine has processors are best [default: up to 4]
        #[arg(long, value_name = "COUNT")]
        queues: Option<u16>,

        /// Export it although it is attached to this host; what is on it must allow that
        #[arg(long)]
        share: bool,

        /// Who owns the socket and may connect, as the machine's user [default: the volume's first
        /// user, or the daemon's]
        #[arg(long, value_name = "USER")]
        owner: Option<String>,

        /// The socket's group, whose members may connect [default: memlane]
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,

        /// The socket's mode [default: 660]
        #[arg(long, value_name = "MODE")]
        mode: Option<String>,
    },

    /// List all exports
    #[command(visible_alias = "ls")]
    List(View),

    /// Show the socket of an export and how machines use it
    Show {
        /// The volume
        name: String,
    },

    /// Take the disk away that no machine uses any more
    #[command(visible_alias = "rm")]
    Delete {
        /// The volume
        name: String,

        /// Take it away although a machine uses it
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Keep one volume, or several at the same instant
    Create {
        /// The snapshots; several have one name, as in db@monday wal@monday
        #[arg(required = true, value_name = "VOLUME@SNAPSHOT")]
        names: Vec<String>,
    },

    /// List snapshots
    #[command(visible_alias = "ls")]
    List {
        /// Only those of this volume
        volume: Option<String>,

        #[command(flatten)]
        view: View,
    },

    /// Give a snapshot another name
    Rename {
        /// The snapshot
        #[arg(value_name = "VOLUME@SNAPSHOT")]
        name: String,

        /// Its new name, without the volume's
        new_name: String,
    },

    /// Delete a snapshot that is not in use
    #[command(visible_alias = "rm")]
    Delete {
        /// The snapshot
        #[arg(value_name = "VOLUME@SNAPSHOT")]
        name: String,
    },

    /// Let a volume that is not in use be as it was
    Restore {
        /// The snapshot
        #[arg(value_name = "VOLUME@SNAPSHOT")]
        name: String,

        /// The name of the snapshot, where only the volume was named before
        #[arg(hide = true)]
        snapshot: Option<String>,

        /// Restore it although it belongs to somebody, such as a broker
        #[arg(long)]
        force: bool,
    },

    /// List the ranges of bytes that differ
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
    /// Save all volumes that are not of the class ram, as they are now
    Save {
        /// Volumes of the class ram to be saved too
        #[arg(value_name = "VOLUME")]
        also: Vec<String>,

        /// Keep the image, under this label, until it is deleted
        #[arg(long)]
        label: Option<String>,

        /// Print the id of the task, and do not wait for it
        #[arg(long)]
        background: bool,
    },

    /// Bring volumes back; they are served at once
    Restore {
        /// The number of the image [default: the newest]
        #[arg(long, value_name = "NUMBER")]
        image: Option<u64>,

        /// The volumes [default: all in the image]
        #[arg(value_name = "VOLUME")]
        volumes: Vec<String>,

        /// With one volume: the name to restore it under
        #[arg(long = "as", value_name = "NAME")]
        name: Option<String>,

        /// Print the id of the task, and do not wait until all contents are fetched
        #[arg(long)]
        background: bool,
    },

    /// List all images in the store
    #[command(visible_alias = "ls")]
    List(View),

    /// Delete an image, and what no other image needs of it
    #[command(visible_alias = "rm")]
    Delete {
        /// The number of the image
        #[arg(value_name = "NUMBER")]
        image: u64,
    },

    /// Read all of an image and compare every checksum
    Verify {
        /// The number of the image [default: the newest]
        #[arg(value_name = "NUMBER")]
        image: Option<u64>,

        /// Print the id of the task, and do not wait for it
        #[arg(long)]
        background: bool,
    },

    /// Give up what cannot be fetched of a restored volume, when its object is lost for good
    AcceptLoss {
        /// The volume, or VOLUME@SNAPSHOT
        #[arg(value_name = "VOLUME")]
        volume: String,
    },

    /// Measure how fast the store takes an image
    Rehearse {
        /// Print the id of the task, and do not wait for it
        #[arg(long)]
        background: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// List tasks that run, and the last that are over
    #[command(visible_alias = "ls")]
    List(View),

    /// Wait until a task is over, and say what it came to
    Wait {
        /// The task
        id: u64,
    },

    /// Ask a task to end early
    Cancel {
        /// The task
        id: u64,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Show the limits of the pool, and when it will be full
    Show,

    /// Change the limits of the pool while it is in use
    Set {
        /// max-memory=SIZE
        #[arg(required = true, value_name = "KEY=VALUE", value_parser = pool_setting)]
        settings: Vec<PoolSetting>,

        /// Print the id of the task, and do not wait for it
        #[arg(long)]
        background: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Only this volume, which must be there; may be given several times [default: all]
    #[arg(long = "volume", value_name = "NAME")]
    pub(crate) volumes: Vec<String>,

    /// Only files and devices that are opened for direct I/O
    #[arg(long)]
    pub(crate) direct_only: bool,

    /// Say nothing on standard error
    #[arg(long)]
    pub(crate) quiet: bool,

    /// Add a line to this file for each descriptor that is taken past the kernel
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
}

const DRIVERS: [&str; 3] = ["auto", "ublk", "loop"];
const REDUCTIONS: [&str; 4] = ["full", "compress", "dedup", "none"];
const DURABILITIES: [&str; 3] = ["ram", "image", "journal"];
const CAPACITIES: [&str; 2] = ["thin", "guaranteed"];

fn words(known: &[&'static str]) -> PossibleValuesParser {
    PossibleValuesParser::new(known.iter().copied())
}

/// The value that a word stands for in the interface.
fn word<T: DeserializeOwned>(text: String) -> T {
    parse_word(text).expect("the words on the command line are those of the interface")
}

fn parse_word<T: DeserializeOwned>(text: String) -> Result<T, serde_json::Error> {
    serde_json::from_value(serde_json::Value::String(text))
}

/// Nothing here is as small as a block: a bare number like that has lost its unit.
fn size(text: &str) -> Result<ByteSize, String> {
    const BLOCK_BYTES: u64 = 4096;
    let size: ByteSize = text.parse().map_err(|error: SizeError| error.to_string())?;
    let is_bare = text.bytes().all(|byte| byte.is_ascii_digit());
    if is_bare && (1..BLOCK_BYTES).contains(&size.0) {
        return Err(format!("{text} means {text} bytes; did you mean {text}GiB?"));
    }
    Ok(size)
}

fn sector(text: String) -> SectorBytes {
    match text.as_str() {
        "512" => SectorBytes::Bytes512,
        _ => SectorBytes::Bytes4096,
    }
}

/// One `key=value` of `pool set`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolSetting {
    MaxMemory(ByteSize),
}

impl PoolSetting {
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
    fn every_word_on_the_command_line_is_one_of_the_interface() {
        for (flag, values) in [
            ("reduction", &REDUCTIONS[..]),
            ("durability", &DURABILITIES),
            ("capacity", &CAPACITIES),
        ] {
            for value in values {
                parse(&format!("memlane volume create a --size 1G --{flag} {value}")).expect(value);
                parse(&format!("memlane volume set a {flag}={value}")).expect(value);
            }
        }
        for value in DRIVERS {
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

    #[test]
    fn a_size_that_has_lost_its_unit_is_asked_about() {
        let error = parse("memlane volume create a --size 10").expect_err("it is no size");
        let message = error.to_string();
        assert!(message.contains("10 means 10 bytes; did you mean 10GiB?"), "{message}");
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
