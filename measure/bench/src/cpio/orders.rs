//! Order processing on PostgreSQL, derived from TPC-C. The server counts as the application, and
//! pgbench, which calls the stored procedures, as the driver.

use std::time::Duration;

use anyhow::{Result, ensure};
use system::database::{Postgres, Server, ServerOptions};

use super::application::{Application, ON_FOLDERS};
use super::workdir::Workdir;
use crate::tpcc::{
    Constants, Database, Engine, Extent, Host, Load, Mix, Pacing, Postgresql, Way, load, rush,
    violated,
};

const FOLDER: &str = "database";
const USERS: u32 = 4;
/// Size of rows and indexes.
const BYTES_PER_WAREHOUSE: u64 = 110 << 20;
/// Number of the next order in a newly loaded district.
const FIRST_ORDER: i64 = 3_001;
const DISTRICTS: i64 = 10;

/// Minimum size of a target for one warehouse. Its log may be as large as its rows.
pub(super) const TARGET_BYTES_MIN: u64 = 1 << 30;

pub(super) const NAME: &str = "tpcc";

pub(super) const ALL: &[Application] = &[Application {
    name: NAME,
    stands_for: "TPC-C",
    programs: &["pgbench", "setpriv"],
    install_hint: "apt install postgresql",
    prepare: |workdir| {
        let host = Host::create(Engine::Postgresql, &workdir.path(FOLDER))?;
        let extent = Extent { warehouses: warehouses(workdir), seed: workdir.seed };
        load(&*host.database(), extent)?;
        host.stop()
    },
    run: |workdir| {
        let settings = vec!["shared_buffers=64MB".to_owned(), "max_wal_size=256MB".to_owned()];
        let mut server =
            open(workdir, ServerOptions { settings, starter: workdir.starter.clone() })?;
        let load = Load {
            users: USERS,
            warehouses: warehouses(workdir),
            mix: Mix::Hammerdb,
            way: Way::Procedures,
            pacing: Pacing::Closed,
            constants: Constants::new(workdir.seed),
            seed: workdir.seed,
            warmed: Duration::ZERO,
            ramp: Duration::ZERO,
            duration: Duration::from_secs(workdir.seconds),
        };
        rush(&server, &load, &workdir.driver)?;
        server.stop()
    },
    verify: |workdir| {
        let server = open(workdir, ServerOptions::default())?;
        let mut observer = Postgresql::of(&server).observer()?;
        let violated = violated(&mut *observer)?;
        ensure!(violated.is_empty(), "{}", violated.join("; "));
        let next = observer.number("SELECT sum(d_next_o_id) FROM district")?;
        let orders = next - FIRST_ORDER * DISTRICTS * i64::from(warehouses(workdir));
        ensure!(orders > 0, "no order was entered");
        Ok(())
    },
    ..ON_FOLDERS
}];

fn warehouses(workdir: &Workdir) -> u32 {
    u32::try_from(workdir.bytes / BYTES_PER_WAREHOUSE).unwrap_or(u32::MAX).max(1)
}

fn open(workdir: &Workdir, options: ServerOptions) -> Result<Server> {
    Server::open_with(&Postgres::find()?, &workdir.path(FOLDER), options)
}
