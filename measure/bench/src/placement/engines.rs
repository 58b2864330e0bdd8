//! Server-specific parts of the suite: location of database parts, memory settings, and reports
//! that need temporary files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use system::Tool;
use system::database::{
    Mariadb as MariadbPrograms, MariadbOptions, MariadbServer, Postgres, Server, ServerOptions,
};

use crate::tpcc::{self, Engine, Host, Mariadb, Postgresql, Reporting};

const TABLESPACE: &str = "memlane_temporary";

/// Inverse of the share of PostgreSQL's memory limit for shared buffers. The rest is for its
/// processes and the page cache.
const SHARED_BUFFERS_SHARE: u64 = 4;
const POSTGRESQL_BYTES_MIN: u64 = 64 << 20;

/// Minimum memory of MariaDB, and the part besides its buffer pool. It uses direct I/O.
const MARIADB_BYTES_MIN: u64 = 192 << 20;
const MARIADB_OWN_BYTES: u64 = 128 << 20;

/// Returns the minimum memory of a server without users.
pub(super) fn least_bytes(engine: Engine) -> u64 {
    match engine {
        Engine::Postgresql => POSTGRESQL_BYTES_MIN,
        Engine::Mariadb | Engine::Sqlite => MARIADB_BYTES_MIN,
    }
}

/// Returns the server's settings for a memory limit.
pub(super) fn settings(engine: Engine, limit_bytes: u64) -> Vec<String> {
    match engine {
        Engine::Postgresql => vec![
            format!("shared_buffers={}kB", (limit_bytes / SHARED_BUFFERS_SHARE) >> 10),
            // Several autovacuum workers may each use this amount.
            "maintenance_work_mem=8MB".to_owned(),
        ],
        Engine::Mariadb | Engine::Sqlite => {
            let pool_bytes = limit_bytes.saturating_sub(MARIADB_OWN_BYTES) / 2;
            vec![
                format!("innodb-buffer-pool-size={pool_bytes}"),
                "innodb-buffer-pool-dump-at-shutdown=OFF".to_owned(),
                "innodb-buffer-pool-load-at-startup=OFF".to_owned(),
                "key-buffer-size=1M".to_owned(),
                "aria-pagecache-buffer-size=8M".to_owned(),
                "server-id=1".to_owned(),
                "sync-binlog=1".to_owned(),
                "binlog-format=ROW".to_owned(),
            ]
        }
    }
}

/// Returns the query for the size of the loaded database according to its server.
pub(super) fn size_query(engine: Engine) -> &'static str {
    match engine {
        Engine::Postgresql => "SELECT pg_database_size(current_database())",
        Engine::Mariadb | Engine::Sqlite => {
            "SELECT sum(data_length + index_length) FROM information_schema.tables
            WHERE table_schema = database()"
        }
    }
}

pub(super) fn reporting(host: &Host) -> Result<Box<dyn Reporting>> {
    match host {
        Host::Postgresql(server) => Ok(Box::new(Postgresql::of(server))),
        Host::Mariadb(server) => Ok(Box::new(Mariadb::of(server))),
        Host::Sqlite(_) => bail!("SQLite has no parts that can be placed separately"),
    }
}

/// Flushes a run's pending writes, so that they do not delay the next run, and deletes the binary
/// log.
pub(super) fn settle(host: &Host) -> Result<()> {
    if let Host::Mariadb(server) = host {
        Mariadb::of(server).connect()?.batch("RESET MASTER")?;
    }
    host.settle()
}

/// Locations of a copy's parts: its own folder, and folders of parts that are elsewhere.
pub(super) struct Parts<'layout> {
    pub(super) home: &'layout Path,
    /// Folder on a target for logs.
    pub(super) log: Option<&'layout Path>,
    /// Folder on a target for temporary files.
    pub(super) temporary: Option<&'layout Path>,
}

impl Parts<'_> {
    /// Returns the folder of the part that is elsewhere.
    pub(super) fn on_fast_storage(&self) -> Option<PathBuf> {
        self.log.map(|it| it.join("log")).or(self.temporary.map(|it| it.join("temporary")))
    }

    /// Moves logs to their location before the server starts. Returns the corresponding settings.
    pub(super) fn move_logs(
        &self,
        engine: Engine,
        copy: impl Fn(&Path, &Path) -> Result<()>,
    ) -> Result<Vec<String>> {
        let data = self.home.join("data");
        match engine {
            Engine::Postgresql => {
                let Some(folder) = self.log else { return Ok(Vec::new()) };
                // Equivalent to `initdb --waldir`.
                let (log, folder) = (data.join("pg_wal"), folder.join("log"));
                copy(&log, &folder)?;
                let removed = fs::remove_dir_all(&log);
                removed.with_context(|| format!("cannot remove {}", log.display()))?;
                symlink(&folder, &log).with_context(|| format!("cannot link {}", log.display()))?;
                Ok(Vec::new())
            }
            Engine::Mariadb | Engine::Sqlite => {
                let folder = self.log.unwrap_or(self.home).join("log");
                make(&folder)?;
                let (redo, moved) = (data.join("ib_logfile0"), folder.join("ib_logfile0"));
                copy(&redo, &moved)?;
                let removed = fs::remove_file(&redo);
                removed.with_context(|| format!("cannot remove {}", redo.display()))?;
                MariadbPrograms::find()?.own(&folder)?;
                Ok(vec![
                    format!("innodb-log-group-home-dir={}", folder.display()),
                    format!("log-bin={}", folder.join("binlog").display()),
                ])
            }
        }
    }

    /// Starts the server with settings and a command prefix. Returns its settings.
    pub(super) fn open(
        &self,
        engine: Engine,
        (mut settings, starter): (Vec<String>, Vec<String>),
    ) -> Result<(Host, Vec<String>)> {
        let temporary = self.temporary.map(|it| it.join("temporary"));
        if let Some(folder) = &temporary {
            make(folder)?;
        }
        match engine {
            Engine::Postgresql => {
                let options = ServerOptions { settings: settings.clone(), starter };
                let server = Server::open_with(&Postgres::find()?, self.home, options)?;
                if let Some(folder) = temporary {
                    put_temporary_tables(&server, &folder)?;
                }
                Ok((Host::Postgresql(server), settings))
            }
            Engine::Mariadb | Engine::Sqlite => {
                let mariadb = MariadbPrograms::find()?;
                if let Some(folder) = temporary {
                    mariadb.own(&folder)?;
                    settings.push(format!("tmpdir={}", folder.display()));
                }
                let options = MariadbOptions { settings: settings.clone(), starter };
                let server = MariadbServer::open(&mariadb, self.home, options)?;
                Ok((Host::Mariadb(server), settings))
            }
        }
    }
}

fn make(folder: &Path) -> Result<()> {
    fs::create_dir(folder).with_context(|| format!("cannot make {}", folder.display()))
}

fn put_temporary_tables(server: &Server, folder: &Path) -> Result<()> {
    Tool::new("chown postgres:postgres").arg(folder).check()?;
    let shown = folder.display();
    server.query("postgres", &format!("CREATE TABLESPACE {TABLESPACE} LOCATION '{shown}'"))?;
    let database = tpcc::NAME;
    let setting = format!("ALTER DATABASE {database} SET temp_tablespaces = '{TABLESPACE}'");
    server.query("postgres", &setting).map(|_| ())
}

/// Measure of temporary work: a figure, and queries that are summed.
pub(super) struct TemporaryWork {
    pub(super) figure: &'static str,
    pub(super) queries: &'static [&'static str],
}

pub(super) fn temporary_work(engine: Engine) -> TemporaryWork {
    match engine {
        Engine::Postgresql => TemporaryWork {
            figure: "temporary_bytes_per_report",
            queries: &["SELECT temp_bytes FROM pg_stat_database WHERE datname = 'tpcc'"],
        },
        Engine::Mariadb | Engine::Sqlite => TemporaryWork {
            figure: "temporary_files_per_report",
            queries: &[
                "SHOW GLOBAL STATUS LIKE 'Created_tmp_files'",
                "SHOW GLOBAL STATUS LIKE 'Created_tmp_disk_tables'",
            ],
        },
    }
}

/// Returns the settings of each session. A user is one process or thread, and temporary tables are
/// files in the server's folder for temporary files.
pub(super) fn session_settings(engine: Engine) -> &'static str {
    match engine {
        Engine::Postgresql => POSTGRESQL_SETTINGS,
        Engine::Mariadb | Engine::Sqlite => {
            "SET default_tmp_storage_engine = Aria; SET sort_buffer_size = 1048576;
            SET tmp_memory_table_size = 1048576; SET max_heap_table_size = 1048576"
        }
    }
}

/// A report of warehouse `$w`.
pub(super) struct Report {
    pub(super) name: &'static str,
    /// Settings that determine the query plan.
    pub(super) settings: &'static str,
    pub(super) query: &'static str,
    /// Query for the expected number of rows.
    pub(super) rows: &'static str,
}

pub(super) fn reports(engine: Engine) -> &'static [Report] {
    match engine {
        Engine::Postgresql => &POSTGRESQL_REPORTS,
        Engine::Mariadb | Engine::Sqlite => &MARIADB_REPORTS,
    }
}

const POSTGRESQL_SETTINGS: &str = "SET statement_timeout = '10min'; SET work_mem = '1MB';
    SET temp_buffers = '800kB'; SET max_parallel_workers_per_gather = 0";

const POSTGRESQL_REPORTS: [Report; 3] = [
    Report {
        name: "sort",
        settings: "RESET enable_hashjoin; RESET enable_mergejoin; RESET enable_nestloop",
        query: "SELECT * FROM order_line WHERE ol_w_id = $w ORDER BY ol_dist_info, ol_i_id",
        rows: "SELECT count(*) FROM order_line WHERE ol_w_id = $w",
    },
    Report {
        name: "merge join",
        settings: "SET enable_hashjoin = off; RESET enable_mergejoin; SET enable_nestloop = off",
        query: "SELECT ol_i_id, ol_o_id, ol_d_id, ol_amount, s_quantity, s_data
            FROM order_line JOIN stock ON s_i_id = ol_i_id WHERE ol_w_id = $w AND s_w_id = $w",
        rows: "SELECT count(*) FROM order_line WHERE ol_w_id = $w",
    },
    Report {
        name: "hash join",
        settings: "RESET enable_hashjoin; SET enable_mergejoin = off; SET enable_nestloop = off",
        query: "SELECT o_id, o_d_id, o_entry_d, c_last, c_credit, c_data FROM orders
            JOIN customer ON c_d_id = o_d_id AND c_id = o_c_id
            WHERE o_w_id = $w AND c_w_id = $w",
        rows: "SELECT count(*) FROM orders WHERE o_w_id = $w",
    },
];

const MARIADB_REPORTS: [Report; 3] = [
    Report {
        name: "sort",
        settings: "",
        query: "SELECT * FROM order_line WHERE ol_w_id = $w ORDER BY ol_dist_info, ol_i_id",
        rows: "SELECT count(*) FROM order_line WHERE ol_w_id = $w",
    },
    Report {
        name: "sorted join",
        settings: "",
        query: "SELECT o_id, o_d_id, o_entry_d, c_last, c_credit, c_data FROM orders
            JOIN customer ON c_w_id = o_w_id AND c_d_id = o_d_id AND c_id = o_c_id
            WHERE o_w_id = $w ORDER BY c_last, c_data",
        rows: "SELECT count(*) FROM orders WHERE o_w_id = $w",
    },
    Report {
        name: "groups",
        settings: "",
        query: "SELECT ol_dist_info, count(*) AS line_count, sum(ol_amount) AS amount
            FROM order_line WHERE ol_w_id = $w GROUP BY ol_dist_info, ol_i_id",
        rows: "SELECT count(DISTINCT ol_dist_info, ol_i_id) FROM order_line WHERE ol_w_id = $w",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_within_the_limit() {
        let of = |engine| settings(engine, 256 << 20)[0].clone();
        assert_eq!(of(Engine::Postgresql), "shared_buffers=65536kB");
        assert_eq!(of(Engine::Mariadb), format!("innodb-buffer-pool-size={}", 64 << 20));
    }
}
