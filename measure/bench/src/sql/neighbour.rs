//! PostgreSQL for comparison with the broker: the same data in its cache, queried over TCP like the
//! broker.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use system::database::{Postgres, Server, ServerOptions};
use system::{Ability, Interruption, free_address, missing};
use tokio_postgres::Config;

use super::cores::Cores;
use crate::durability::DiskFolder;
use crate::tpcc::{Connection, Copy, Fill};

const HOST: &str = "127.0.0.1";
const USER: &str = "postgres";
const DATABASE: &str = "postgres";

/// Size of a piece of a copy.
const PIECE_BYTES: usize = 256 << 10;

/// Ratio of cache to data: headers, free space and the index.
const CACHE_TIMES: u64 = 2;
const CACHE_BYTES_MIN: u64 = 256 << 20;

/// Returns the shared memory for this much data with its index.
pub(super) fn cache_bytes(data_bytes: u64) -> u64 {
    CACHE_BYTES_MIN + data_bytes * CACHE_TIMES
}

/// Returns the reason why it is unavailable here, or `None`.
pub(super) fn missing_here() -> Option<String> {
    let needed = [Ability::Program("setpriv"), Ability::Program("taskset")];
    if !rustix::process::geteuid().is_root() {
        return Some("PostgreSQL is started as user postgres; run as root".to_owned());
    }
    missing(&needed).or_else(|| Postgres::find().err().map(|error| format!("{error:#}")))
}

/// A server on the servers' core. It is stopped and its files removed when dropped.
pub(super) struct Neighbour {
    server: Server,
    port: u16,
    settings: Vec<String>,
    folder: DiskFolder,
}

impl Neighbour {
    /// Starts a server with a cache for this much data.
    pub(super) fn start(cores: &Cores, data_bytes: u64) -> Result<Self> {
        let folder = DiskFolder::new()?;
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), open)
            .context("cannot change the mode of a directory for PostgreSQL")?;
        let home = folder.path().join("postgresql");
        fs::create_dir(&home).with_context(|| format!("cannot make {}", home.display()))?;
        let port = free_address()?.port();
        let settings = vec![
            format!("listen_addresses={HOST}"),
            format!("port={port}"),
            format!("shared_buffers={}MB", cache_bytes(data_bytes) >> 20),
            "max_parallel_workers_per_gather=0".to_owned(),
            "max_wal_size=8GB".to_owned(),
            // Nothing changes after the data was loaded.
            "autovacuum=off".to_owned(),
        ];
        let options = ServerOptions { settings: settings.clone(), starter: cores.server_starter() };
        let server = Server::create_with(&Postgres::find()?, &home, options)?;
        Ok(Self { server, port, settings, folder })
    }

    pub(super) fn connect(&self) -> Result<Connection> {
        let mut config = Config::new();
        config.host(HOST).port(self.port).user(USER).dbname(DATABASE);
        Connection::open(&config)
    }

    /// Fills an existing table with the rows of a copy.
    pub(super) fn fill(
        &self,
        own: &Connection,
        table: &'static str,
        rows: impl Iterator<Item = String>,
    ) -> Result<()> {
        let mut copy = Copy::new(self.connect()?);
        copy.begin(table)?;
        let mut piece = String::with_capacity(PIECE_BYTES * 2);
        for row in rows {
            piece.push_str(&row);
            if piece.len() >= PIECE_BYTES {
                copy.take(&piece)?;
                piece.clear();
                ensure!(!Interruption::is_asked_for(), "interrupted while PostgreSQL was filled");
            }
        }
        copy.take(&piece)?;
        copy.end()?;
        own.batch(&format!("VACUUM (FREEZE, ANALYZE) {table}"))?;
        own.batch("CHECKPOINT")
    }

    /// Loads a table or index into the cache. A scan alone would not fill it.
    pub(super) fn warm(&self, own: &Connection, relation: &str) -> Result<()> {
        own.batch("CREATE EXTENSION IF NOT EXISTS pg_prewarm")?;
        own.number(&format!("SELECT pg_prewarm('{relation}')")).map(|_| ())
    }

    pub(super) fn version(&self, own: &Connection) -> Result<String> {
        let number = own.number("SELECT current_setting('server_version_num')::int8")?;
        Ok(format!("{}.{}", number / 10_000, number % 10_000))
    }

    /// Returns its settings, without the listening address.
    pub(super) fn settings(&self) -> String {
        self.settings[2..].join(" ")
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    /// Returns pgbench's arguments for connecting to the server.
    pub(super) fn pgbench_words(&self) -> Vec<String> {
        let port = self.port.to_string();
        ["-h", HOST, "-p", &port, "-U", USER, DATABASE].map(str::to_owned).into()
    }

    /// Writes a file that its user can read.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.path().join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}
