//! PostgreSQL from the host's packages and pgbench on it, wherever its files shall be.

mod commits;
mod pgbench;
mod postgres;

pub use commits::Commits;
pub use pgbench::{Load, Rush, check_books, fill, now, run};
pub use postgres::{Postgres, Server};
