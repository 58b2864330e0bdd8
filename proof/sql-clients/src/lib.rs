//! PostgreSQL's clients as their users have them (psql, pgbench, psycopg, asyncpg, JDBC), run
//! against the SQL of `memlane-broker`, with Kafka's clients at its other end; and PostgreSQL
//! itself, which gets the same data and the same queries.
//!
//! Nothing here speaks PostgreSQL's protocol itself. Clients come from their registries in the
//! versions and with the hashes that are written down beside them.
#![forbid(unsafe_code)]

mod clients;
mod fixture;
mod generator;
mod integers;
mod relations;
mod script;
mod texts;

pub use clients::{jdbc, python};
pub use fixture::{Fixture, Reference, SharedSite, file_of};
pub use generator::Generator;
pub use integers::Integers;
pub use relations::Relations;
pub use script::{Answer, Script};
pub use texts::Texts;
