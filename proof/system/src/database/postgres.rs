//! PostgreSQL from the host's packages, with any data directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::daemon::wait_for;
use crate::interruption::Interruption;
use crate::process::Background;
use crate::tool::Tool;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

const START_TIME_LIMIT: Duration = Duration::from_secs(60);
const STOP_TIME_LIMIT: Duration = Duration::from_secs(60);
const TOOL_TIME_LIMIT: Duration = Duration::from_secs(600);

const AS_POSTGRES: &str = "setpriv --reuid=postgres --regid=postgres --init-groups --";

/// Settings that are equal for all compared locations.
const SETTINGS: &[&str] = &[
    "listen_addresses=",
    "shared_buffers=256MB",
    "max_wal_size=1GB",
    "wal_compression=off",
    "logging_collector=off",
];

/// Programs of one installed version.
#[derive(Clone, Debug)]
pub struct Postgres {
    folder: PathBuf,
}

impl Postgres {
    /// Finds the newest version of Debian's packages, or the one in `PATH`.
    pub fn find() -> Result<Self> {
        let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let newest = versions
            .map(|version| version.path().join("bin"))
            .filter(|folder| folder.join("initdb").exists())
            .max_by_key(|folder| version_of(folder));
        if let Some(folder) = newest {
            return Ok(Self { folder });
        }
        let printed = Tool::new("sh -c").arg("dirname $(command -v initdb)").check();
        let folder = printed.ok().map(|text| PathBuf::from(text.trim()));
        match folder.filter(|folder| folder.join("initdb").exists()) {
            Some(folder) => Ok(Self { folder }),
            None => bail!("PostgreSQL is not installed (Debian: apt-get install postgresql)"),
        }
    }

    /// Returns a command of one of its programs, as the user of this process.
    pub fn program(&self, name: &str) -> Tool {
        Tool::new(&self.folder.join(name).to_string_lossy())
    }

    /// Returns a command of one of its programs, as the user `postgres`.
    pub fn tool(&self, program: &str) -> Tool {
        self.tool_behind(&[], program)
    }

    fn tool_behind(&self, starter: &[String], program: &str) -> Tool {
        let mut words = starter.iter().map(String::as_str).chain(AS_POSTGRES.split(' '));
        Tool::new(words.next().unwrap_or_default())
            .args(words)
            .arg(self.folder.join(program))
            .env("LC_ALL", "C")
            .current_dir(Path::new("/"))
            .time_limit(TOOL_TIME_LIMIT)
    }
}

fn version_of(folder: &Path) -> u32 {
    let name = folder.parent().and_then(Path::file_name).unwrap_or_default();
    name.to_string_lossy().parse().unwrap_or(0)
}

/// Options of a server.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// `name=value`, in addition to the common settings, or replacing them.
    pub settings: Vec<String>,
    /// Prefix of the server's command line, run as the user of this process.
    pub starter: Vec<String>,
}

/// A running server. Dropping it stops it.
pub struct Server {
    postgres: Postgres,
    options: ServerOptions,
    data: PathBuf,
    sockets: PathBuf,
    log: PathBuf,
    process: Option<Background>,
}

impl Server {
    /// Creates a database cluster with checksums in `folder` and starts a server.
    pub fn create(postgres: &Postgres, folder: &Path) -> Result<Self> {
        Self::create_with(postgres, folder, ServerOptions::default())
    }

    /// Same, with options of the server.
    pub fn create_with(postgres: &Postgres, folder: &Path, options: ServerOptions) -> Result<Self> {
        Tool::new("chown postgres:postgres").arg(folder).check()?;
        let data = folder.join("data");
        postgres
            .tool("initdb")
            .args("--data-checksums --auth=trust --encoding=UTF8 --no-locale -D".split(' '))
            .arg(&data)
            .check()?;
        Self::on(postgres, data, options)
    }

    /// Starts a server on a cluster that another one created in `folder` and has left, cleanly or
    /// not.
    pub fn open(postgres: &Postgres, folder: &Path) -> Result<Self> {
        Self::open_with(postgres, folder, ServerOptions::default())
    }

    /// Same, with options of the server.
    pub fn open_with(postgres: &Postgres, folder: &Path, options: ServerOptions) -> Result<Self> {
        let data = folder.join("data");
        ensure!(data.is_dir(), "{} holds no database cluster", folder.display());
        Self::on(postgres, data, options)
    }

    fn on(postgres: &Postgres, data: PathBuf, options: ServerOptions) -> Result<Self> {
        let sockets = tempfile_folder()?;
        let log = sockets.join("server.log");
        let postgres = postgres.clone();
        let mut server = Self { postgres, options, data, sockets, log, process: None };
        server.start()?;
        Ok(server)
    }

    /// Folder of the socket for clients.
    pub fn sockets(&self) -> &Path {
        &self.sockets
    }

    fn start(&mut self) -> Result<()> {
        let log = fs::File::create(&self.log).context("cannot create the server's log")?;
        let ServerOptions { settings, starter } = &self.options;
        let mut tool = self.postgres.tool_behind(starter, "postgres").arg("-D").arg(&self.data);
        for setting in SETTINGS.iter().copied().chain(settings.iter().map(String::as_str)) {
            tool = tool.arg("-c").arg(setting);
        }
        let sockets = format!("unix_socket_directories={}", self.sockets.display());
        tool = tool.arg("-c").arg(sockets).output_to(log)?.own_group();
        self.process = Some(Background::start(tool)?);
        wait_for("PostgreSQL to answer", START_TIME_LIMIT, || {
            let process = self.process.as_mut().context("it was just started")?;
            if let Some(status) = process.has_ended()? {
                bail!("PostgreSQL ended with {status}: {}", self.log_text());
            }
            Ok(self.client("pg_isready").run()?.exit_code == Some(0))
        })
    }

    /// Returns a command of one of PostgreSQL's clients, for this server.
    pub fn client(&self, program: &str) -> Tool {
        self.client_behind(&[], program)
    }

    /// Same, with a prefix of the command line.
    pub fn client_behind(&self, starter: &[String], program: &str) -> Tool {
        let tool = self.postgres.tool_behind(starter, program);
        let tool = tool.env("PGHOST", &self.sockets.to_string_lossy());
        // The port is part of the socket's name.
        let port = self.options.settings.iter().rev().find_map(|it| it.strip_prefix("port="));
        match port {
            Some(port) => tool.env("PGPORT", port),
            None => tool,
        }
    }

    /// Runs one statement and returns its output.
    pub fn query(&self, database: &str, statement: &str) -> Result<String> {
        let printed = self.client("psql").args(["-XAtd", database, "-c", statement]).check()?;
        Ok(printed.trim().to_owned())
    }

    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Errors in the server's log concerning its files.
    pub fn complaints(&self) -> Vec<String> {
        let is_complaint = |line: &&str| {
            let words = ["PANIC", "Input/output error", "could not write", "could not fsync"];
            words.iter().any(|word| line.contains(word))
        };
        self.log_text().lines().filter(is_complaint).map(str::to_owned).collect()
    }

    /// Id of the server's main process.
    pub fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Background::id)
    }

    /// Stops the server cleanly.
    pub fn stop(&mut self) -> Result<()> {
        let mut process = self.process.take().context("PostgreSQL does not run")?;
        // SIGINT is its fast shutdown: open transactions are aborted, and everything is written.
        let status = process.end(Signal::INT, STOP_TIME_LIMIT)?;
        ensure!(status.success(), "PostgreSQL ended with {status}: {}", self.log_text());
        Ok(())
    }

    fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _cleaning_up = Interruption::begin_to_clean_up();
        if self.process.is_some() {
            // If it does not stop cleanly, it is killed when the process is dropped.
            let _ = self.stop();
        }
        // Remains are small and in a folder for temporary files.
        let _ = fs::remove_dir_all(&self.sockets);
    }
}

/// Creates a folder that PostgreSQL may write, short enough for the path of a socket.
pub(crate) fn tempfile_folder() -> Result<PathBuf> {
    let folder = tempfile::Builder::new().prefix("memlane-pg-").tempdir_in("/tmp");
    let folder = folder.context("cannot make a temporary folder")?.keep();
    Tool::new("chown postgres:postgres").arg(&folder).check()?;
    Ok(folder)
}
