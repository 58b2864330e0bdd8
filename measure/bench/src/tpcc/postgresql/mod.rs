//! The suite's database on PostgreSQL, over its Unix socket.

mod client;
mod connection;
mod copy;
mod database;

pub(crate) use connection::Connection;
pub(crate) use copy::Copy;
pub(crate) use database::Postgresql;
