//! The AMPS test: a log of messages with one appending thread and several replaying ones.
//!
//! Messages of 512 bytes, numbered and checksummed, 128 per append of 64 KiB. The mixes are appends
//! only (100/0) and 80 % sequential reads from random positions in the log (80/20). Readers verify
//! each message. Runs as fast as possible first, then at constant rates below that. The log is on a
//! medium, or in a broker that is accessed over TCP.

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
