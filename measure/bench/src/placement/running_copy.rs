//! A copy of the loaded database with its parts in place, and its server with limited memory.

use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use results::placement::Placement;
use system::{Interruption, Tool, wait_for};

use super::engines::{self, Parts};
use super::fast::{Size, used_bytes};
use super::survival::survives;
use crate::run::show_part;
use crate::targets::{MemoryGroup, Spec, Target};
use crate::tpcc::{self, Database, Engine, Extent, Host, Reporting};

/// Minimum memory per session of a server.
const LIMIT_BYTES_PER_USER: u64 = 6 << 20;

/// Maximum time for a target to reduce written data.
const REDUCTION_TIME_LIMIT: Duration = Duration::from_secs(120);
const COPY_TIME_LIMIT: Duration = Duration::from_secs(1_800);

/// The database from which all copies are made, loaded on first use. A failure is not retried.
pub(super) struct Original {
    pub(super) engine: Engine,
    slow: Spec,
    size: Size,
    extent: Extent,
    loaded: OnceCell<Result<Loaded, String>>,
}

/// Its files on slow storage, without a server. Dropping it removes them.
struct Loaded {
    folder: PathBuf,
    database_bytes: u64,
    _target: Target,
}

impl Original {
    pub(super) fn new(engine: Engine, slow: Spec, size: Size, extent: Extent) -> Self {
        Self { engine, slow, size, extent, loaded: OnceCell::new() }
    }

    fn get(&self) -> Result<&Loaded> {
        let loaded = self.loaded.get_or_init(|| self.load().map_err(|error| format!("{error:#}")));
        loaded.as_ref().map_err(|error| anyhow!("{error}"))
    }

    fn load(&self) -> Result<Loaded> {
        let target = self.slow.open(&self.size.slow_place())?;
        let folder = target.folder()?.join("database");
        let host = Host::create(self.engine, &folder)?;
        let database = host.database();
        tpcc::load(&*database, self.extent)?;
        let bytes = database.observer()?.number(engines::size_query(self.engine))?;
        let database_bytes = u64::try_from(bytes).context("a database has a negative size")?;
        host.stop()?;
        Ok(Loaded { folder, database_bytes, _target: target })
    }
}

/// Memory limit of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) bytes: u64,
    /// True if the limit was raised to the minimum.
    pub(super) is_least: bool,
}

impl Limit {
    /// Computes the limit as a percentage of the database's size, but at least what the users need.
    pub(super) fn new(engine: Engine, (bytes, percent): (u64, u32), users_max: u32) -> Self {
        let asked = bytes / 100 * u64::from(percent);
        let least = engines::least_bytes(engine) + u64::from(users_max) * LIMIT_BYTES_PER_USER;
        Self { bytes: asked.max(least), is_least: asked < least }
    }
}

/// Location of the parts.
#[derive(Clone, Debug)]
pub(super) struct Layout<'spec> {
    pub(super) placement: Placement,
    pub(super) fast: Option<&'spec Spec>,
    pub(super) slow: &'spec Spec,
    pub(super) size: Size,
    pub(super) memory_percent: u32,
}

/// A running copy. Fields are dropped in order: the server before its storage, and its group after
/// its processes.
pub(super) struct RunningCopy {
    pub(super) engine: Engine,
    pub(super) host: Host,
    fast: Option<(Target, Spec)>,
    slow: Option<Target>,
    group: Result<MemoryGroup, String>,
    pub(super) limit: Limit,
    pub(super) database_bytes: u64,
    pub(super) settings: Vec<String>,
    /// Folder of its part on fast storage.
    fast_folder: Option<PathBuf>,
    pub(super) survives: String,
}

impl RunningCopy {
    pub(super) fn new(original: &Original, layout: &Layout<'_>) -> Result<Self> {
        let loaded = original.get()?;
        let Layout { placement, size, .. } = *layout;
        let engine = original.engine;
        let asked = (loaded.database_bytes, layout.memory_percent);
        let limit = Limit::new(engine, asked, size.users_max);
        let group = MemoryGroup::new("database", limit.bytes).map_err(|error| format!("{error:#}"));
        let starter = group.as_ref().map(MemoryGroup::starter).unwrap_or_default();
        let slow = match placement {
            Placement::Whole => None,
            _ => Some(layout.slow.open(&size.slow_place())?),
        };
        let fast = match layout.fast {
            Some(spec) => Some((spec.open(&size.fast_place(placement))?, spec.clone())),
            None => None,
        };
        let home = slow.as_ref().or(fast.as_ref().map(|(target, _)| target));
        let home = home.context("a database lies somewhere")?.folder()?.join("database");
        show_part("copying the database");
        fs::create_dir(&home).with_context(|| format!("cannot make {}", home.display()))?;
        copy(&starter, &loaded.folder.join("data"), &home.join("data"))?;
        let part = fast.as_ref().map(|(target, _)| target.folder()).transpose()?;
        let parts = Parts {
            home: &home,
            log: part.filter(|_| placement == Placement::Logs),
            temporary: part.filter(|_| placement == Placement::Temporary),
        };
        let logs = parts.move_logs(engine, |from, to| copy(&starter, from, to))?;
        Tool::new("sync").time_limit(COPY_TIME_LIMIT).check()?;
        let mut settings = engines::settings(engine, limit.bytes);
        settings.extend(logs);
        let (host, settings) = parts.open(engine, (settings, starter))?;
        let fast_folder = match placement {
            Placement::Whole => Some(home.clone()),
            _ => parts.on_fast_storage(),
        };
        // If there is no slow target, everything is on fast storage.
        let durability = |target: &Target| target.durability();
        let fast_durability = fast.as_ref().map(|(target, _)| durability(target));
        let rest = slow.as_ref().map(durability).or(fast_durability);
        let rest = rest.context("a database lies somewhere")?;
        let survives = survives(placement, fast_durability, rest);
        let database_bytes = loaded.database_bytes;
        Ok(Self {
            engine,
            host,
            fast,
            slow,
            group,
            limit,
            database_bytes,
            settings,
            fast_folder,
            survives,
        })
    }

    pub(super) fn database(&self) -> Box<dyn Database> {
        self.host.database()
    }

    pub(super) fn reporting(&self) -> Result<Box<dyn Reporting>> {
        engines::reporting(&self.host)
    }

    /// Flushes a run's pending writes, so that they do not delay the next run.
    pub(super) fn settle(&self) -> Result<()> {
        engines::settle(&self.host)
    }

    /// Returns the processes that serve the targets.
    pub(super) fn server_ids(&self) -> Vec<u32> {
        let fast = self.fast.as_ref().map(|(target, _)| target);
        fast.into_iter().chain(&self.slow).flat_map(Target::server_ids).collect()
    }

    /// Returns the reason why its memory is not limited, or `None`.
    pub(super) fn unlimited(&self) -> Option<&str> {
        self.group.as_ref().err().map(String::as_str)
    }

    pub(super) fn group(&self) -> Option<&MemoryGroup> {
        self.group.as_ref().ok()
    }

    /// Returns the bytes used on fast storage after reduction, and whether reduction has completed.
    pub(super) fn fast_used_bytes(&self) -> Result<Option<(u64, bool)>> {
        let (Some((target, spec)), Some(folder)) = (&self.fast, &self.fast_folder) else {
            return Ok(None);
        };
        self.settle()?;
        show_part("waiting until data reduction is complete");
        let waited = wait_for("data reduction to complete", REDUCTION_TIME_LIMIT, || {
            let is_done = target.pending_bytes()? == 0;
            if !is_done {
                std::thread::sleep(Duration::from_millis(100));
            }
            Ok(is_done)
        });
        ensure!(!Interruption::is_asked_for(), "interrupted while data is made smaller");
        Ok(Some((used_bytes(target, spec, folder)?, waited.is_ok())))
    }
}

/// Copies a folder. The page cache of the copy is charged to the server's group, which can reclaim
/// it, and to no other group.
fn copy(starter: &[String], from: &Path, to: &Path) -> Result<()> {
    behind(starter, "cp --archive --reflink=never").arg(from).arg(to).check().map(|_| ())
}

fn behind(starter: &[String], words: &str) -> Tool {
    let mut words = starter.iter().map(String::as_str).chain(words.split(' '));
    let tool = Tool::new(words.next().unwrap_or_default());
    tool.args(words).time_limit(COPY_TIME_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_a_share_of_the_database_or_what_the_server_needs() {
        let large = Limit::new(Engine::Postgresql, (4 << 30, 25), 32);
        assert!(!large.is_least && large.bytes.abs_diff(1 << 30) < 100, "{large:?}");
        let small = Limit::new(Engine::Postgresql, (100 << 20, 25), 4);
        assert_eq!(small, Limit { bytes: (64 + 24) << 20, is_least: true });
    }
}
