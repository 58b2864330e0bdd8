//! Survival of volumes over a loss of power: the durable set, for this daemon's configuration.
//!
//! What belongs together and what is restored is the set's own matter (`durable_set`). Here it is
//! opened where the configuration says, saved and tended when its time has come, and told of in
//! events and in the status.
//!
//! Lock order: the change lock of the service, what is known, the set's own.

mod encryption;
mod jobs;
mod keeper;
mod saving;
mod shipping;
mod state;
mod status;

pub(crate) use jobs::{ended, moved};
pub(crate) use keeper::Keeper;
pub(crate) use saving::name_runs;
pub(crate) use state::{Durable, Parts, causes, place_of, store_writer};
