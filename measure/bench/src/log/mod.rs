//! The AMPS test: a log of messages that one thread appends to while others replay it.
//!
//! Messages of 512 bytes, numbered and checksummed, 128 to an append of 64 KiB; operations are
//! appends alone (100/0) or 80 % reads that begin anywhere in the log and go on in its order
//! (80/20). Readers check each message. As fast as possible first, then at steady rates below that.
//! The log lies on a medium, or a broker keeps it and is reached over TCP.

mod backend;
mod batch_form;
mod broker;
mod delivery;
mod drive;
mod due;
mod embedded;
mod fan_out;
mod medium;
mod memory;
mod message;
mod meter;
mod mix;
mod positions;
mod record;
mod stop;
mod suite;
mod tables;
mod wire;

pub(crate) use suite::{Arguments, plan};
pub(crate) use tables::describe;
