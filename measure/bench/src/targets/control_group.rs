//! Kernel control groups: locating, entering and removing them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum time for ended processes to leave a group that is removed.
const EMPTY_TIME_LIMIT: Duration = Duration::from_secs(2);
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Hierarchy. Version 1 has one per controller, version 2 a single one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    /// The hierarchy of this controller.
    V1(&'static str),
    V2,
}

impl Tree {
    /// Returns the folder of the root group.
    pub(super) fn root(self) -> Option<PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let is_asked = |line: &&str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, _, kind, options, ..] = fields[..] else { return false };
            match self {
                Self::V1(controller) => {
                    kind == "cgroup" && options.split(',').any(|option| option == controller)
                }
                Self::V2 => kind == "cgroup2",
            }
        };
        let line = mounts.lines().find(is_asked)?;
        line.split_whitespace().nth(1).map(PathBuf::from)
    }

    /// Returns the folder of this process's group.
    pub(super) fn own(self) -> Option<PathBuf> {
        let text = fs::read_to_string("/proc/self/cgroup").ok()?;
        let path = text.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let is_asked = match self {
                Self::V1(controller) => controllers.split(',').any(|it| it == controller),
                Self::V2 => controllers.is_empty(),
            };
            is_asked.then_some(path)
        })?;
        Some(self.root()?.join(path.trim_start_matches('/')))
    }
}

/// Returns the folder name of a group of this process.
pub(super) fn folder_name(name: &str) -> String {
    format!("memlane-bench-{}-{name}", std::process::id())
}

/// Returns the command prefix that starts a program, with its children, in the group.
pub(super) fn starter(folder: &Path) -> Vec<String> {
    let procs = folder.join("cgroup.procs").to_string_lossy().into_owned();
    let enter = "echo $$ > \"$0\" && exec \"$@\"".to_owned();
    vec!["sh".to_owned(), "-c".to_owned(), enter, procs]
}

/// Removes a group whose processes have ended or will end shortly.
pub(super) fn remove(folder: &Path) {
    let deadline = Instant::now() + EMPTY_TIME_LIMIT;
    while let Err(error) = fs::remove_dir(folder) {
        if Instant::now() >= deadline {
            eprintln!("cannot remove the control group {}: {error}", folder.display());
            return;
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}
