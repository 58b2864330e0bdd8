//! SQL and live queries of `memlane-broker`, beside PostgreSQL and beside a Kafka consumer.
//!
//! Servers have one core, and clients the others. What two systems are compared in they do in turn.
//! Both are given the same records, JSON of 300 bytes that follow from the seed, and every answer
//! is held against what must come: a wrong one, a row that lacks or comes twice makes it invalid.

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
