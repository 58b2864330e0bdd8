//! SQL and live queries of `memlane-broker`, compared with PostgreSQL and with a Kafka consumer.
//!
//! Servers use one core, and clients the others. Compared systems take turns. Both receive the same
//! records, JSON of 300 bytes generated from the seed, and every result is verified: a wrong
//! answer, or a missing or duplicate row, makes it invalid.

mod broker_server;
mod consumer;
mod cores;
mod cursors;
mod delivery;
mod extent;
mod filters;
mod follow;
mod keys;
mod many;
mod neighbour;
mod point;
mod produce;
mod publish;
mod record;
mod records;
mod scan;
mod suite;
mod tables;
mod turns;

pub(crate) use broker_server::missing as missing_broker;
pub(crate) use suite::{Arguments, plan};
pub(crate) use tables::describe;
