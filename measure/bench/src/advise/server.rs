//! Connection to a running server.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio_postgres::Config;

use crate::tpcc::Connection;

const CONNECT_TIME_LIMIT: Duration = Duration::from_secs(10);
const STATEMENT_TIME_LIMIT: &str = "60s";
const DATABASE: &str = "postgres";

/// First version with statistics of the log.
const VERSION_MIN: u32 = 140_000;

/// A read-only session.
pub(super) struct Server {
    connection: Connection,
    /// Version as in `server_version_num`: 150004.
    pub(super) version: u32,
}

impl Server {
    /// Connects to the server running on this data directory.
    pub(super) fn of_folder(folder: &Path, user: &str) -> Result<Self> {
        let shown = folder.display();
        ensure!(
            folder.join("PG_VERSION").exists(),
            "{shown} is not a PostgreSQL data directory, or cannot be read: PG_VERSION is missing"
        );
        let path = folder.join("postmaster.pid");
        let text = fs::read_to_string(&path).with_context(|| {
            format!("no server runs on {shown}: cannot read {}", path.display())
        })?;
        let (host, port) = address(&text)
            .with_context(|| format!("{} contains no address to connect to", path.display()))?;
        let mut config = Config::new();
        config.host(&host).port(port).user(user).dbname(DATABASE);
        Self::connect(config).with_context(|| {
            format!(
                "cannot query the server of {shown} as {user}; use another --user, or --connection"
            )
        })
    }

    /// Connects to the server of a connection string.
    pub(super) fn of_words(words: &str) -> Result<Self> {
        let config: Config =
            words.parse().with_context(|| format!("invalid connection string {words:?}"))?;
        Self::connect(config).context("cannot query the server of --connection")
    }

    fn connect(mut config: Config) -> Result<Self> {
        config.connect_timeout(CONNECT_TIME_LIMIT).application_name("memlane advise");
        config.options(format!(
            "-c default_transaction_read_only=on -c statement_timeout={STATEMENT_TIME_LIMIT}"
        ));
        let connection = Connection::open(&config)?;
        let version = connection.number("SELECT current_setting('server_version_num')::int8")?;
        let version = u32::try_from(version).context("the server reports no version")?;
        if version < VERSION_MIN {
            bail!(
                "PostgreSQL {} is too old: version 14 or later is required for statistics of the \
                 log",
                version / 10_000
            );
        }
        Ok(Self { connection, version })
    }

    /// Queries one row of numbers.
    pub(super) fn numbers<const COUNT: usize>(&self, query: &str) -> Result<[f64; COUNT]> {
        let row = self.connection.wait(self.connection.client().query_one(query, &[]));
        let row = row.with_context(|| format!("the query failed: {query}"))?;
        let mut numbers = [0.0; COUNT];
        for (index, number) in numbers.iter_mut().enumerate() {
            let value: Option<f64> = row
                .try_get(index)
                .with_context(|| format!("column {index} of {query} is not a number"))?;
            *number = value.unwrap_or(0.0);
        }
        Ok(numbers)
    }

    /// Returns the server's data directory, on its host.
    pub(super) fn folder(&self) -> Result<PathBuf> {
        let query = "SELECT current_setting('data_directory')";
        let row = self.connection.wait(self.connection.client().query_one(query, &[]));
        let row = row.context("cannot get the server's data directory")?;
        let text: String = row.try_get(0).context("the server's data directory is not text")?;
        Ok(PathBuf::from(text))
    }
}

/// Parses the socket folder (preferred) or address, and the port, from `postmaster.pid`.
fn address(text: &str) -> Option<(String, u16)> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let port = lines.get(3)?.parse().ok()?;
    let named = |index: usize| lines.get(index).filter(|line| !line.is_empty());
    let host = match (named(4), named(5)) {
        (Some(folder), _) => (*folder).to_owned(),
        (None, Some(&"*")) => "127.0.0.1".to_owned(),
        (None, Some(host)) => (*host).to_owned(),
        (None, None) => return None,
    };
    Some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_comes_before_the_address() {
        let text = "812\n/var/lib/pg\n1795000000\n5433\n/run/postgresql\nlocalhost\n 1 2\nready\n";
        assert_eq!(address(text), Some(("/run/postgresql".to_owned(), 5433)));
        let text = "812\n/var/lib/pg\n1795000000\n5432\n\n*\n";
        assert_eq!(address(text), Some(("127.0.0.1".to_owned(), 5432)));
        assert_eq!(address("812\n/var/lib/pg\n"), None);
    }

    #[test]
    fn what_is_no_server_is_refused_with_its_name() {
        let refused = |folder: &Path| {
            let error = Server::of_folder(folder, "postgres").err().expect("there is none");
            format!("{error:#}")
        };
        assert!(
            refused(Path::new("/nowhere")).contains("/nowhere is not a PostgreSQL data directory")
        );
        let folder = tempfile::tempdir().expect("there is room for a folder");
        fs::write(folder.path().join("PG_VERSION"), "15\n").expect("it can be written");
        assert!(refused(folder.path()).contains("no server runs on"));
        let error = Server::of_words("host").err().expect("it is none");
        assert!(format!("{error:#}").contains("invalid connection string"), "{error:#}");
    }
}
