//! Subscriptions: existing rows, then each change of them exactly once.
//!
//! ```text
//! snapshot rows, changes ─▶ View ─▶ top n ─▶ conflation ─▶ envelope ─▶ queue ─▶ client
//!                          (rows of  (ORDER   (EVERY, or a  (diffs or
//!                          a result)  BY …)    slow client)  upserts)
//! ```

mod layout;
mod machine;
mod pending;
mod queue;
mod replay;
mod rows;

pub use layout::Layout;
pub use machine::{Step, Subscription};
pub use queue::QueueLimits;
pub use replay::Replay;
pub use rows::{Event, OutputRow, OutputRows, RowReader};
