//! Other processes as servers see them: who is at the other end of a socket ([`Peer`]), how many
//! may be there at once ([`Quota`]), and how much of what they do is logged ([`LogLimit`]).
//!
//! Nothing here decides who may use a volume: that is the owner's business.
#![forbid(unsafe_code)]

mod log_limit;
mod peer;
mod quota;

pub use log_limit::{LINES_PER_WINDOW_MAX, LogLimit, WINDOW};
pub use peer::Peer;
pub use quota::Quota;
