//! The command line, as data.

use std::ffi::OsString;
use std::path::PathBuf;

use api::{AttachAs, ByteSize, Capacity, Durability, Reduction, SectorBytes, VolumePatch};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use serde::de::DeserializeOwned;

/// Volumes in RAM: deduplicated, compressed, and still there when their daemon is killed.
#[derive(Debug, Parser)]
#[command(name = "memlane", version, propagate_version = true)]
pub(crate) struct Arguments {
    /// The daemon's socket [default: $MEMLANE_SOCKET, or /run/memlane/api.sock]
    #[arg(long, global = true, value_name = "PATH", conflicts_with = "url")]
    pub(crate) socket: Option<PathBuf>,

    /// The daemon's address where its socket is forwarded over TCP, as http://localhost:8080
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,

    /// Print one JSON value, also for an error
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make, show, change and delete volumes
    #[command(subcommand)]
    Volume(VolumeCommand),

    /// Make a volume a block device of this host, now and after restarts; prints its path
    Attach {
        /// The volume
        name: String,

        /// The kernel driver
        #[arg(long = "as", default_value = "auto")]
        #[arg(value_parser = words(&DRIVERS).map(word::<AttachAs>))]
        attach_as: AttachAs,
    },

    /// Take the block device of a volume away
    Detach {
        /// The volume
        name: String,
    },

    /// Show the daemon, its pool and its exports
    Status,

    /// Measure this machine and the engine on it
    #[command(disable_help_flag = true)]
    Bench {
        /// What memlane-bench is told; try --help
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },

    /// Print completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// Make an empty volume
    Create(Create),

    /// List all volumes
    List,

    /// Show one volume
    Show {
        /// The volume
        name: String,
    },

    /// Change the size of a volume, also while it is in use
    Resize {
        /// The volume
        name: String,

        /// The new size, as 20GiB
        #[arg(long)]
        size: ByteSize,

        /// Drop data behind the new end
        #[arg(long)]
        force: bool,
    },

    /// Give a volume another name
    Rename {
        /// The volume
        name: String,

        /// Its new name
        new_name: String,
    },

    /// Change settings of a volume, also while it is in use
    Set {
        /// The volume
        name: String,

        /// reduction=full|compress|dedup|none, durability=ram, capacity=thin
        #[arg(required = true, value_name = "KEY=VALUE", value_parser = setting)]
        settings: Vec<Setting>,
    },

    /// Delete a volume that nobody uses
    Delete {
        /// The volume
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// 1 to 63 of a-z A-Z 0-9 . _ -
    pub(crate) name: String,

    /// The size, as 10GiB; memory is taken as it is written
    #[arg(long)]
    pub(crate) size: ByteSize,

    /// Bytes in a logical sector
    #[arg(long, default_value = "4096", value_parser = words(&["512", "4096"]).map(sector))]
    pub(crate) sector: SectorBytes,

    /// How contents are made smaller
    #[arg(long, default_value = "full", value_parser = words(&REDUCTIONS).map(word::<Reduction>))]
    pub(crate) reduction: Reduction,

    /// What a flush promises
    #[arg(long, default_value = "ram", value_parser = words(&DURABILITIES).map(word::<Durability>))]
    pub(crate) durability: Durability,

    /// What happens when the pool is full
    #[arg(long, default_value = "thin", value_parser = words(&CAPACITIES).map(word::<Capacity>))]
    pub(crate) capacity: Capacity,
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

fn sector(text: String) -> SectorBytes {
    match text.as_str() {
        "512" => SectorBytes::Bytes512,
        _ => SectorBytes::Bytes4096,
    }
}

/// One `key=value` of `volume set`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    Reduction(Reduction),
    Durability(Durability),
    Capacity(Capacity),
}

impl Setting {
    pub(crate) fn apply_to(self, patch: &mut VolumePatch) {
        match self {
            Self::Reduction(reduction) => patch.reduction = Some(reduction),
            Self::Durability(durability) => patch.durability = Some(durability),
            Self::Capacity(capacity) => patch.capacity = Some(capacity),
        }
    }
}

fn setting(text: &str) -> Result<Setting, String> {
    let (key, value) = text.split_once('=').ok_or("write key=value")?;
    let value = value.to_owned();
    let unknown = |error: serde_json::Error| error.to_string();
    match key {
        "reduction" => parse_word(value).map(Setting::Reduction).map_err(unknown),
        "durability" => parse_word(value).map(Setting::Durability).map_err(unknown),
        "capacity" => parse_word(value).map(Setting::Capacity).map_err(unknown),
        _ => Err(format!("{key:?} is no setting; there are reduction, durability and capacity")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            "memlane snapshot list",
        ] {
            assert!(parse(line).is_err_and(|error| error.use_stderr()), "{line}");
        }
    }

    #[test]
    fn flags_for_all_commands_may_come_last() {
        let arguments = parse("memlane volume list --json --socket /s").expect("good arguments");
        assert!(arguments.json);
        assert_eq!(arguments.socket.as_deref(), Some("/s".as_ref()));
    }

    #[test]
    fn everything_behind_bench_is_handed_on() {
        let arguments = parse("memlane bench engine --json --help").expect("good arguments");
        let Command::Bench { arguments } = arguments.command else { panic!("another command") };
        assert_eq!(arguments, ["engine", "--json", "--help"]);
    }
}
