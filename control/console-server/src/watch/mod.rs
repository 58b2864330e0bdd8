//! Sampling of the daemon every second: for browsers while there are any, and for the history.

mod busiest;
mod history;
mod latencies;
mod live;
mod recorder;
mod told;
mod volumes;

pub(crate) use history::History;
pub(crate) use live::Watch;
pub(crate) use recorder::record;
pub(crate) use told::Told;
pub(crate) use volumes::{Shown, VolumeHistory};
