//! The durable set of this daemon: the journal and images that preserve volumes over a power loss.
//!
//! The crate `durable_set` decides what belongs to a set and what is restored. This module opens
//! the set according to the configuration, schedules saves and maintenance, and reports events and
//! status.
//!
//! Lock order: the volumes that the service has locked, `Known`, the locks of the set.

mod encryption;
mod jobs;
mod keeper;
mod last_known;
mod saving;
mod shipping;
mod state;
mod status;

pub(crate) use jobs::{ended, moved};
pub(crate) use keeper::Keeper;
pub(crate) use last_known::SetRecord;
pub(crate) use saving::name_runs;
pub(crate) use state::{
    Durable, Parts, causes, open_elsewhere, open_journal_folder, place_of, store_writer,
};
