//! What makes volumes survive a loss of power: journal, images and engine joined.
//!
//! ```text
//!            start                                    while serving
//!  newest image ─▶ volumes of absent blocks     flush ─▶ journal ──┐ long?
//!  journal      ─▶ what came after it                              ▼
//!  pages of the image, fetched meanwhile        copy of one instant ─▶ image ─▶ journal cut
//! ```
//!
//! Pool, journal and images carry the id of one durable set. A pool that has it is alive and goes
//! on; a pool that has none and holds nothing was lost, and is restored; anything else is refused.
//!
//! Lock order: the turn of the service, the saver, filling, the journal's and the engine's own.

mod healing;
mod journaling;
mod keeper;
mod replay;
mod restore;
mod saving;
mod set;
mod state;
mod status;

pub(crate) use keeper::{Keeper, ended};
pub(crate) use restore::name_runs;
pub(crate) use saving::SaveWish;
pub(crate) use state::{Durable, Parts};
