//! PostgreSQL and MariaDB from the host's packages, and pgbench on the former, with files in any
//! location.

mod commits;
mod mariadb;
mod pgbench;
mod postgres;

pub use commits::Commits;
pub use mariadb::{Mariadb, MariadbOptions, MariadbServer};
pub use pgbench::{Load, Rush, Told, check_books, fill, now, run, told_in};
pub use postgres::{Postgres, Server, ServerOptions};
