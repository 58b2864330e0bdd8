//! MariaDB from the host's packages, with any data directory.

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
const STOP_TIME_LIMIT: Duration = Duration::from_secs(120);
const TOOL_TIME_LIMIT: Duration = Duration::from_secs(600);
/// Folder beside the data directory.
const TEMPORARY: &str = "temporary";
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Debian's program folders, some of which are missing in an ordinary user's `PATH`.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];

/// Settings that are equal for all compared locations.
const SETTINGS: &[&str] = &[
    "skip-networking",
    "skip-name-resolve",
    "innodb-buffer-pool-size=256M",
    "innodb-log-file-size=256M",
    "innodb-flush-log-at-trx-commit=1",
];

/// Programs of the installed version.
#[derive(Clone, Debug)]
pub struct Mariadb {
    server: PathBuf,
    installer: PathBuf,
    user: &'static str,
}

impl Mariadb {
    /// Finds the programs of Debian's packages.
    pub fn find() -> Result<Self> {
        let find = |program: &str| {
            let places = FOLDERS.iter().map(|folder| Path::new(folder).join(program));
            places.into_iter().find(|path| path.exists()).with_context(|| {
                format!(
                    "MariaDB is not installed: no {program} (Debian: apt-get install \
                     mariadb-server-core mariadb-client-core)"
                )
            })
        };
        // The installer runs it.
        find("my_print_defaults")?;
        let (server, installer) = (find("mariadbd")?, find("mariadb-install-db")?);
        let has_own_user = Tool::new("id -u mysql").check().is_ok();
        Ok(Self { server, installer, user: if has_own_user { "mysql" } else { "nobody" } })
    }

    fn as_user(&self) -> String {
        format!("--user={}", self.user)
    }

    /// Changes the owner of a folder and its contents to the user of servers.
    pub fn own(&self, folder: &Path) -> Result<()> {
        Tool::new("chown --recursive").arg(self.user).arg(folder).check().map(|_| ())
    }
}

/// Options of a server.
#[derive(Clone, Debug, Default)]
pub struct MariadbOptions {
    /// `name=value`, in addition to the common settings, or replacing them.
    pub settings: Vec<String>,
    /// Prefix of the server's command line.
    pub starter: Vec<String>,
}

/// A running server, whose user `root` needs no password. Dropping it stops it.
pub struct MariadbServer {
    mariadb: Mariadb,
    options: MariadbOptions,
    data: PathBuf,
    temporary: PathBuf,
    /// Folder of the socket and the log.
    own: PathBuf,
    process: Option<Background>,
}

impl MariadbServer {
    /// Creates a data directory in `folder` and starts a server on it.
    pub fn create(mariadb: &Mariadb, folder: &Path) -> Result<Self> {
        let data = folder.join("data");
        let temporary = folder.join(TEMPORARY);
        fs::create_dir(&temporary).context("cannot make a folder for temporary files")?;
        mariadb.own(folder)?;
        Tool::new(&mariadb.installer.to_string_lossy())
            .args(["--no-defaults", &mariadb.as_user(), "--auth-root-authentication-method=normal"])
            .args(["--skip-test-db", "--skip-name-resolve"])
            .arg(format!("--datadir={}", data.display()))
            .env("TMPDIR", &temporary.to_string_lossy())
            .current_dir(Path::new("/"))
            .time_limit(TOOL_TIME_LIMIT)
            .check()?;
        Self::open(mariadb, folder, MariadbOptions::default())
    }

    /// Starts a server on a data directory that another, stopped one created in `folder`. Its
    /// temporary files are beside it, unless a setting changes that.
    pub fn open(mariadb: &Mariadb, folder: &Path, options: MariadbOptions) -> Result<Self> {
        let data = folder.join("data");
        ensure!(data.is_dir(), "{} holds no data directory", folder.display());
        // Short enough for the path of a socket.
        let own = tempfile::Builder::new().prefix("memlane-my-").tempdir_in("/tmp");
        let own = own.context("cannot make a temporary folder")?.keep();
        mariadb.own(&own)?;
        let temporary = folder.join(TEMPORARY);
        if !temporary.exists() {
            fs::create_dir(&temporary).context("cannot make a folder for temporary files")?;
            mariadb.own(&temporary)?;
        }
        let mariadb = mariadb.clone();
        let mut server = Self { mariadb, options, data, temporary, own, process: None };
        server.start()?;
        Ok(server)
    }

    fn start(&mut self) -> Result<()> {
        let log = fs::File::create(self.log()).context("cannot create the server's log")?;
        let MariadbOptions { settings, starter } = &self.options;
        let program = self.mariadb.server.to_string_lossy().into_owned();
        let mut words = starter.iter().map(String::as_str).chain([&*program]);
        let mut tool = Tool::new(words.next().unwrap_or_default())
            .args(words)
            .args(["--no-defaults", &self.mariadb.as_user()])
            .arg(format!("--datadir={}", self.data.display()))
            .arg(format!("--socket={}", self.socket().display()))
            .arg(format!("--pid-file={}", self.own.join("pid").display()))
            .arg(format!("--tmpdir={}", self.temporary.display()))
            .env("LC_ALL", "C")
            .current_dir(Path::new("/"));
        for setting in SETTINGS.iter().copied().chain(settings.iter().map(String::as_str)) {
            tool = tool.arg(format!("--{setting}"));
        }
        self.process = Some(Background::start(tool.output_to(log)?.own_group())?);
        wait_for("MariaDB to listen", START_TIME_LIMIT, || {
            let process = self.process.as_mut().context("it was just started")?;
            if let Some(status) = process.has_ended()? {
                bail!("MariaDB ended with {status}: {}", self.log_text());
            }
            std::thread::sleep(LOOK_INTERVAL);
            Ok(self.log_text().contains("ready for connections"))
        })
    }

    /// Socket for clients.
    pub fn socket(&self) -> PathBuf {
        self.own.join("socket")
    }

    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Id of the server's process.
    pub fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Background::id)
    }

    /// Stops the server cleanly.
    pub fn stop(&mut self) -> Result<()> {
        let mut process = self.process.take().context("MariaDB does not run")?;
        let status = process.end(Signal::TERM, STOP_TIME_LIMIT)?;
        ensure!(status.success(), "MariaDB ended with {status}: {}", self.log_text());
        Ok(())
    }

    fn log(&self) -> PathBuf {
        self.own.join("server.log")
    }

    fn log_text(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }
}

impl Drop for MariadbServer {
    fn drop(&mut self) {
        let _cleaning_up = Interruption::begin_to_clean_up();
        if self.process.is_some() {
            // If it does not stop cleanly, it is killed when the process is dropped.
            let _ = self.stop();
        }
        // Remains are small and in a folder for temporary files.
        let _ = fs::remove_dir_all(&self.own);
    }
}
