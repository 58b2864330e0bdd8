//! The suite's database on a PostgreSQL server.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use system::database::Server;
use tokio_postgres::Config;

use super::client::User;
use super::connection::Connection;
use super::copy::Copy;
use crate::tpcc::database::{
    Clerk, Database, Fill, LONG_STATEMENT_MINUTES_MAX, NAME, OBSERVER, Observe, Reporting, Session,
    USERS, Way,
};
use crate::tpcc::schema::{KEYS, SCHEMA};

const MAINTENANCE: &str = "postgres";
const CONNECT_TIME_LIMIT: Duration = Duration::from_secs(30);
const FILLERS_MAX: u32 = 4;

const PROCEDURES: &str = include_str!("procedures.sql");

/// Location of a database.
#[derive(Clone, Debug)]
pub(crate) struct Postgresql {
    sockets: PathBuf,
}

impl Postgresql {
    /// Returns the suite's database on the server, which may not exist yet.
    pub(crate) fn of(server: &Server) -> Self {
        Self { sockets: server.sockets().to_owned() }
    }

    pub(crate) fn connect(&self, program: &str) -> Result<Connection> {
        self.connect_to(NAME, program)
    }

    fn connect_to(&self, name: &str, program: &str) -> Result<Connection> {
        let mut config = Config::new();
        config.host_path(&self.sockets).user("postgres").dbname(name).application_name(program);
        config.connect_timeout(CONNECT_TIME_LIMIT);
        config.options(format!("-c statement_timeout={LONG_STATEMENT_MINUTES_MAX}min"));
        Connection::open(&config)
    }
}

impl Database for Postgresql {
    fn create(&self) -> Result<()> {
        let own = self.connect_to(MAINTENANCE, OBSERVER)?;
        own.batch(&format!("DROP DATABASE IF EXISTS {NAME}"))?;
        own.batch(&format!("CREATE DATABASE {NAME}"))?;
        self.connect(OBSERVER)?.batch(SCHEMA)
    }

    fn fillers_max(&self) -> u32 {
        FILLERS_MAX
    }

    fn filler(&self) -> Result<Box<dyn Fill>> {
        Ok(Box::new(Copy::new(self.connect(OBSERVER)?)))
    }

    fn complete(&self) -> Result<()> {
        let own = self.connect(OBSERVER)?;
        [KEYS, PROCEDURES, "VACUUM ANALYZE", "CHECKPOINT"].iter().try_for_each(|it| own.batch(it))
    }

    fn observer(&self) -> Result<Box<dyn Observe>> {
        Ok(Box::new(self.connect(OBSERVER)?))
    }

    fn user(&self, way: Way) -> Result<Box<dyn Session>> {
        Ok(Box::new(User::new(self.connect(USERS)?, way)?))
    }
}

impl Reporting for Postgresql {
    fn clerk(&self) -> Result<Box<dyn Clerk>> {
        Ok(Box::new(self.connect(USERS)?))
    }
}
