//! Options of commands on volumes.

use api::{ByteSize, Capacity, Durability, Reduction, SectorBytes, VolumeMirror, VolumePatch};
use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};

use super::{
    CAPACITIES, DURABILITIES, MIRRORS, REDUCTIONS, Word, known_word, sector, size, word, words,
};
use crate::table::View;

#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// Create an empty volume
    Create(Create),

    /// List all volumes
    #[command(visible_alias = "ls")]
    List(ListVolumes),

    /// Show one volume
    Show {
        /// The volume
        name: String,
    },

    /// Resize a volume, also while it is in use
    Resize {
        /// The volume
        name: String,

        /// New size, for example 20GiB
        #[arg(long, value_parser = size)]
        size: ByteSize,

        /// Discard data beyond the new end, also if the volume has an owner
        #[arg(long)]
        force: bool,
    },

    /// Rename a volume
    Rename {
        /// The volume
        name: String,

        /// Its new name
        new_name: String,

        /// Rename the volume although it has an owner, such as a broker, which needs the old name
        #[arg(long)]
        force: bool,
    },

    /// Change settings of a volume, also while it is in use
    Set {
        /// The volume
        name: String,

        /// reduction=full|compress|dedup|none, durability=ram|image|journal,
        /// capacity=thin|guaranteed, mirror=yes|no, users=NAME,… (users who may open it),
        /// owner=NAME, label.KEY=TEXT (an empty value removes it)
        #[arg(required = true, value_name = "KEY=VALUE", value_parser = setting)]
        settings: Vec<Setting>,
    },

    /// Delete a volume that is not in use
    #[command(visible_alias = "rm")]
    Delete {
        /// The volume
        name: String,

        /// Delete the volume although it has an owner, such as a broker, and disconnect its
        /// clients; a device must be detached first
        #[arg(long)]
        force: bool,
    },

    /// Disconnect the clients of a volume; they may reconnect
    Disconnect {
        /// The volume
        name: String,
    },
}

const SECTORS: [Word; 2] = [
    ("512", "For programs and disk images that expect sectors of 512 bytes"),
    ("4096", "No program can write less than 4096 bytes at once"),
];

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// 1 to 63 of a-z A-Z 0-9 . _ -
    pub(crate) name: String,

    /// Size, for example 10GiB; memory is allocated as data is written
    #[arg(long, value_parser = size)]
    pub(crate) size: ByteSize,

    /// Logical sector size in bytes; the physical sector size is 4096
    #[arg(long, default_value = "512", value_parser = words(&SECTORS).map(sector))]
    pub(crate) sector: SectorBytes,

    /// Data reduction by deduplication and compression
    #[arg(long, default_value = "full", value_parser = words(&REDUCTIONS).map(word::<Reduction>))]
    pub(crate) reduction: Reduction,

    /// Durability of flushed data
    #[arg(long, default_value = "ram", value_parser = words(&DURABILITIES).map(word::<Durability>))]
    pub(crate) durability: Durability,

    /// Behaviour when the pool is full
    #[arg(long, default_value = "thin", value_parser = words(&CAPACITIES).map(word::<Capacity>))]
    pub(crate) capacity: Capacity,

    /// Mirroring of flushes of class journal to the image store, if the daemon mirrors them
    #[arg(long, default_value = "yes", value_parser = words(&MIRRORS).map(word::<VolumeMirror>))]
    pub(crate) mirror: VolumeMirror,

    /// Owner; a volume with an owner is deleted, renamed, shrunk or restored only with --force
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(crate) owner: String,

    /// Label; may be repeated
    #[arg(long = "label", value_name = "KEY=TEXT", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
}

/// Volumes to list, and their order.
#[derive(Debug, Args)]
pub(crate) struct ListVolumes {
    /// List only volumes of this owner
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,

    /// List only volumes with this label; may be repeated
    #[arg(long = "label", value_name = "KEY=TEXT", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,

    #[command(flatten)]
    pub(crate) view: View,
}

/// A `key=value` argument of `volume set`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    Reduction(Reduction),
    Durability(Durability),
    Capacity(Capacity),
    Mirror(VolumeMirror),
    Users(Vec<String>),
    Owner(String),
    Label(String, String),
}

impl Setting {
    /// Returns the key as it is written on the command line.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Reduction(_) => "reduction".to_owned(),
            Self::Durability(_) => "durability".to_owned(),
            Self::Capacity(_) => "capacity".to_owned(),
            Self::Mirror(_) => "mirror".to_owned(),
            Self::Users(_) => "users".to_owned(),
            Self::Owner(_) => "owner".to_owned(),
            Self::Label(key, _) => format!("label.{key}"),
        }
    }

    pub(crate) fn apply_to(self, patch: &mut VolumePatch) {
        match self {
            Self::Reduction(reduction) => patch.reduction = Some(reduction),
            Self::Durability(durability) => patch.durability = Some(durability),
            Self::Capacity(capacity) => patch.capacity = Some(capacity),
            Self::Mirror(mirror) => patch.mirror = Some(mirror),
            Self::Users(users) => patch.users = Some(users),
            Self::Owner(owner) => patch.owner = Some(owner),
            Self::Label(key, text) => drop(patch.labels.insert(key, text)),
        }
    }
}

fn setting(text: &str) -> Result<Setting, String> {
    let (key, value) = text.split_once('=').ok_or("write key=value")?;
    let value = value.to_owned();
    match key {
        "reduction" => known_word(value, &REDUCTIONS).map(Setting::Reduction),
        "durability" => known_word(value, &DURABILITIES).map(Setting::Durability),
        "capacity" => known_word(value, &CAPACITIES).map(Setting::Capacity),
        "mirror" => known_word(value, &MIRRORS).map(Setting::Mirror),
        "size" => Err("use memlane volume resize to change the size".to_owned()),
        "name" => Err("use memlane volume rename to change the name".to_owned()),
        "users" => {
            let names = value.split(',').filter(|name| !name.is_empty());
            Ok(Setting::Users(names.map(str::to_owned).collect()))
        }
        "owner" => Ok(Setting::Owner(value)),
        _ => match key.strip_prefix("label.") {
            Some(key) => Ok(Setting::Label(key.to_owned(), value)),
            None => Err(format!(
                "unknown setting {key:?}; volumes have: reduction, durability, capacity, mirror, \
                 users, owner, label.KEY"
            )),
        },
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, text) = text.split_once('=').ok_or("write KEY=TEXT")?;
    Ok((key.to_owned(), text.to_owned()))
}
