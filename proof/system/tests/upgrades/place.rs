//! Folders of a stopped daemon and broker: packed, unpacked, and used again.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use sdk::{Client, Device, Target};
use system::{Broker, Daemon, Tool, free_address, product_path};
use tempfile::TempDir;

const POOL_SIZE: &str = "32MiB";
const FLAGS: &str = "--no-fuse --journal-max-bytes 4MiB --pool-size-max 64MiB";

/// Files with the broker's users and their rights, beside the region.
const USERS: &str = "users.toml";
const ACLS: &str = "acls.toml";

/// A daemon that is not started yet, and the files of its broker.
pub(crate) struct Place {
    /// Folder of the region, unless the daemon has a separate one.
    folder: TempDir,
    region: PathBuf,
    pub(crate) daemon: Daemon,
}

impl Place {
    pub(crate) fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("memlane-").tempdir_in("/dev/shm")?;
        let mut daemon = Daemon::prepare(POOL_SIZE.to_owned(), FLAGS.to_owned())?;
        let mut region = daemon.pool_file();
        if region.starts_with(daemon.run_dir()) {
            // A daemon running as root mounts a file system over that.
            region = folder.path().join("region");
            daemon.set_flags(&format!("{FLAGS} --pool-path {}", region.display()));
        }
        Ok(Self { folder, region, daemon })
    }

    /// Unpacks the archive, as if its contents had been left here.
    pub(crate) fn unpack(archive: &Path) -> Result<Self> {
        let place = Self::new()?;
        for (folder, names) in place.parts()? {
            let unpacked = tar("--extract").arg(archive).arg("--no-same-owner");
            unpacked.arg("-C").arg(folder).args(names).check()?;
        }
        Ok(place)
    }

    /// Packs the files, after the daemon was killed, into an archive.
    pub(crate) fn pack(&self, archive: &Path) -> Result<()> {
        let mut packed = tar("--create").arg(archive);
        packed = packed.args(["--sparse", "--hole-detection=raw", "--sort=name"]);
        packed = packed.args(["--owner=0", "--group=0"]);
        for (folder, names) in self.parts()? {
            packed = packed.arg("-C").arg(folder).args(names);
        }
        packed.check().map(drop)
    }

    /// Returns folders, and their parts to be packed.
    fn parts(&self) -> Result<[(&Path, &'static [&'static str]); 3]> {
        let beside = self.region.parent().context("the region lies in a folder")?;
        ensure!(self.region.ends_with("region"), "the region has another name");
        Ok([
            (self.daemon.folder(), &["state"]),
            (beside, &["region"]),
            (self.folder.path(), &[USERS, ACLS]),
        ])
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn lose_memory(&mut self) -> Result<()> {
        fs::remove_file(&self.region).context("cannot remove the region")
    }

    /// Starts a broker without access control.
    pub(crate) fn open_broker(&self) -> Result<Served<'_>> {
        self.broker("")
    }

    /// Starts a broker with users and access lists.
    pub(crate) fn guarded_broker(&self) -> Result<Served<'_>> {
        let (users, acls) = (self.file(USERS), self.file(ACLS));
        let files = format!("--user-file {} --acl-file {}", users.display(), acls.display());
        self.broker(&format!("{files} --super-user User:admin"))
    }

    fn broker(&self, flags: &str) -> Result<Served<'_>> {
        let sql = free_address()?.to_string();
        let flags = format!("--sql {sql} --log info,memlane_broker=debug {flags}");
        let broker = Broker::on_daemon(&self.daemon.run_dir(), &flags)?;
        Ok(Served { place: self, broker, sql })
    }

    /// Opens a volume, or a snapshot as `VOLUME@SNAPSHOT`.
    pub(crate) fn volume(&self, name: &str) -> Result<Device> {
        let client = Client::connect(&self.daemon.run_dir().join("ring.sock"))?;
        client.open(&Target::Name(name.to_owned())).with_context(|| format!("volume {name}"))
    }

    /// Creates a shell command for the daemon.
    pub(crate) fn shell(&self, words: &str) -> Tool {
        let programs = product_path("memlane").parent().map(Path::to_owned).unwrap_or_default();
        let search = std::env::var("PATH").unwrap_or_default();
        Tool::new("sh -euc")
            .arg(words)
            .current_dir(self.folder.path())
            .env("PATH", &format!("{}:{search}", programs.display()))
            .env("MEMLANE_SOCKET", &self.daemon.api_socket().to_string_lossy())
    }
}

/// A broker that serves the contents of a place.
pub(crate) struct Served<'a> {
    place: &'a Place,
    pub(crate) broker: Broker,
    sql: String,
}

impl Served<'_> {
    /// Creates a shell command for the broker or the daemon.
    pub(crate) fn shell(&self, words: &str) -> Tool {
        let tool = self.place.shell(words);
        tool.env("MEMLANE_BROKER", &self.broker.address()).env("MEMLANE_SQL", &self.sql)
    }
}

fn tar(action: &str) -> Tool {
    Tool::new("tar --gzip --numeric-owner").arg(action).arg("--file")
}

/// Returns a text of commands, each after `$ `, with the current output of `shell` for each of
/// them. Lines with `#` before the first command are kept.
pub(crate) fn answered(text: &str, shell: impl Fn(&str) -> Tool) -> Result<String> {
    let mut found = String::new();
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            let output = shell(command).check()?;
            found += &format!("\n{line}\n{output}");
            if !output.is_empty() && !output.ends_with('\n') {
                bail!("{command} prints a line without an end: {output}");
            }
        } else if line.starts_with('#') {
            found += &format!("{line}\n");
        }
    }
    Ok(found)
}

/// Reports the first different line.
#[track_caller]
pub(crate) fn check_same(name: &str, found: &str, expected: &str) {
    let mut command = "";
    let mut lines = found.lines();
    for (number, expected) in (1..).zip(expected.lines()) {
        let found = lines.next().unwrap_or_default();
        command = if expected.starts_with("$ ") { expected } else { command };
        assert_eq!(found, expected, "line {number} of {name}, below {command}");
    }
    assert_eq!(lines.next(), None, "more lines than in {name}, below {command}");
}
