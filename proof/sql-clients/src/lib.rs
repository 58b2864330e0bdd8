//! PostgreSQL's clients as users have them (psql, pgbench, psycopg, asyncpg, JDBC), run against the
//! SQL of `memlane-broker`, with Kafka's clients at the log's other end. A PostgreSQL server gets
//! the same data and queries for comparison.
//!
//! This crate does not implement PostgreSQL's protocol. Clients come from their registries, pinned
//! to the versions and hashes in the files beside them.
#![forbid(unsafe_code)]

mod clients;
mod fixture;
mod generator;
mod integers;
mod numerics;
mod relations;
mod script;
mod texts;

pub use clients::{jdbc, python};
pub use fixture::{Fixture, Reference, SharedFixture, file_of};
pub use generator::Generator;
pub use integers::Integers;
pub use numerics::Numerics;
pub use relations::Relations;
pub use script::{Answer, Script};
pub use texts::Texts;
