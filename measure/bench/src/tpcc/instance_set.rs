//! Databases on a target, each with its own target and, depending on the engine, its own server,
//! created on first use.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use results::StoreUse;
use system::database::{MariadbServer, Postgres, Server};
use system::{Ability, missing};

use super::database::{Database, Engine, NAME};
use super::load::{Extent, load};
use super::mariadb::Mariadb;
use super::postgresql::Postgresql;
use super::sqlite::Sqlite;
use crate::targets::{Place, Spec, Target};

/// Space for the log, which PostgreSQL limits to 1 GiB and others to less, for index builds, and a
/// margin.
const OWN_BYTES: u64 = 2 << 30;
/// Space for rows, indexes and growth during runs.
const BYTES_PER_WAREHOUSE: u64 = 256 << 20;

/// Memory of a server: buffers and processes.
pub(crate) const SERVER_MEMORY_BYTES: u64 = 512 << 20;

/// Approximate bytes written by loading: rows, indexes and their log.
pub(crate) const LOADED_BYTES_PER_WAREHOUSE: u64 = 300 << 20;
/// Approximate duration of loading, for plans.
pub(crate) const LOAD_SECONDS: f64 = 5.0;
pub(crate) const LOAD_SECONDS_PER_WAREHOUSE: f64 = 4.0;

pub(crate) fn place(warehouses: u32) -> Place {
    Place::new(size_bytes(warehouses), None)
}

pub(crate) fn size_bytes(warehouses: u32) -> u64 {
    OWN_BYTES + u64::from(warehouses) * BYTES_PER_WAREHOUSE
}

/// Returns the reason why the engine cannot run here, or `None`.
pub(crate) fn missing_server(engine: Engine) -> Option<String> {
    let needed: &[Ability] = match engine {
        Engine::Postgresql => &[Ability::BlockDevices, Ability::Program("setpriv")],
        Engine::Mariadb => &[Ability::BlockDevices],
        // It needs no separate user.
        Engine::Sqlite => return None,
    };
    if let Some(reason) = missing(needed) {
        return Some(format!("cannot start {} as its own user: {reason}", engine.name()));
    }
    let found = match engine {
        Engine::Postgresql => Postgres::find().map(|_| ()),
        Engine::Mariadb => system::database::Mariadb::find().map(|_| ()),
        Engine::Sqlite => Ok(()),
    };
    found.err().map(|error| format!("{error:#}"))
}

/// A database's server, or the location of its files.
pub(crate) enum Host {
    Postgresql(Server),
    Mariadb(MariadbServer),
    Sqlite(PathBuf),
}

impl Host {
    /// Creates one in a new folder.
    pub(crate) fn create(engine: Engine, folder: &Path) -> Result<Self> {
        std::fs::create_dir(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        match engine {
            Engine::Postgresql => Server::create(&Postgres::find()?, folder).map(Self::Postgresql),
            Engine::Mariadb => {
                let mariadb = system::database::Mariadb::find()?;
                MariadbServer::create(&mariadb, folder).map(Self::Mariadb)
            }
            Engine::Sqlite => Ok(Self::Sqlite(folder.to_owned())),
        }
    }

    pub(crate) fn database(&self) -> Box<dyn Database> {
        match self {
            Self::Postgresql(server) => Box::new(Postgresql::of(server)),
            Self::Mariadb(server) => Box::new(Mariadb::of(server)),
            Self::Sqlite(folder) => Box::new(Sqlite::in_folder(folder.clone())),
        }
    }

    /// Flushes a run's pending work, so that it does not affect the next run: dirty pages, and for
    /// PostgreSQL dead rows and stale statistics.
    pub(crate) fn settle(&self) -> Result<()> {
        match self {
            Self::Postgresql(server) => {
                server.query(NAME, "VACUUM ANALYZE")?;
                server.query(NAME, "CHECKPOINT").map(|_| ())
            }
            Self::Mariadb(server) => Mariadb::of(server).connect()?.checkpoint(),
            Self::Sqlite(folder) => Sqlite::in_folder(folder.clone()).checkpoint(),
        }
    }

    /// Disables PostgreSQL's autovacuum until [`Host::settle`] cleans up, because it would affect
    /// runs at random.
    pub(crate) fn stop_autovacuum(&self) -> Result<()> {
        if let Self::Postgresql(server) = self {
            server.query(NAME, "ALTER SYSTEM SET autovacuum = off")?;
            server.query(NAME, "SELECT pg_reload_conf()")?;
        }
        Ok(())
    }

    /// Stops the server, if there is one. Its files remain.
    pub(crate) fn stop(self) -> Result<()> {
        match self {
            Self::Postgresql(mut server) => server.stop(),
            Self::Mariadb(mut server) => server.stop(),
            Self::Sqlite(_) => Ok(()),
        }
    }

    /// Returns the server's process id.
    pub(crate) fn id(&self) -> Option<u32> {
        match self {
            Self::Postgresql(server) => server.id(),
            Self::Mariadb(server) => server.id(),
            Self::Sqlite(_) => None,
        }
    }

    fn data(&self) -> &Path {
        match self {
            Self::Postgresql(server) => server.data(),
            Self::Mariadb(server) => server.data(),
            Self::Sqlite(folder) => folder,
        }
    }

    /// Returns the server if it is PostgreSQL.
    pub(crate) fn postgresql(&self) -> Option<&Server> {
        match self {
            Self::Postgresql(server) => Some(server),
            Self::Mariadb(_) | Self::Sqlite(_) => None,
        }
    }
}

/// Databases on targets of one kind.
pub(crate) struct InstanceSet {
    pub(crate) spec: Spec,
    engine: Engine,
    extent: Extent,
    instances: RefCell<Vec<DatabaseInstance>>,
}

/// A database with its target. Fields are dropped in order.
pub(crate) struct DatabaseInstance {
    pub(crate) host: Host,
    pub(crate) target: Target,
}

impl InstanceSet {
    pub(crate) fn new(spec: Spec, engine: Engine, extent: Extent) -> Self {
        Self { spec, engine, extent, instances: RefCell::default() }
    }

    /// Runs `work` with the first `count` databases, creating missing ones.
    pub(crate) fn with<T>(
        &self,
        count: usize,
        work: impl FnOnce(&[DatabaseInstance]) -> Result<T>,
    ) -> Result<T> {
        let mut instances = self.instances.borrow_mut();
        while instances.len() < count {
            let instance = self.make();
            let failed = || format!("cannot run {} on {}", self.engine.name(), self.spec);
            instances.push(instance.with_context(failed)?);
        }
        work(&instances[..count])
    }

    /// Drops all databases, so that a void run is followed by a new load.
    pub(crate) fn clear(&self) {
        self.instances.borrow_mut().clear();
    }

    fn make(&self) -> Result<DatabaseInstance> {
        let target = self.spec.open(&place(self.extent.warehouses))?;
        let host = Host::create(self.engine, &target.folder()?.join("database"))?;
        load(&*host.database(), self.extent)?;
        host.settle()?;
        Ok(DatabaseInstance { host, target })
    }
}

impl DatabaseInstance {
    /// Returns the size of its files, and the space that they use.
    pub(crate) fn store_use(&self) -> Result<Option<StoreUse>> {
        let used_bytes = self.target.used_bytes()?;
        let written_bytes = folder_bytes(self.host.data())?;
        Ok(used_bytes
            .filter(|_| self.target.reduces())
            .map(|used_bytes| StoreUse { written_bytes, used_bytes }))
    }
}

/// Returns the size of the files below a folder.
pub(crate) fn folder_bytes(folder: &Path) -> Result<u64> {
    let printed = system::Tool::new("du --summarize --bytes").arg(folder).check()?;
    let first = printed.split_whitespace().next().context("du prints a size")?;
    first.parse().with_context(|| format!("du printed {printed:?}"))
}
