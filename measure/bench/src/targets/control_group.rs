//! Control groups of the kernel: where they are, how a program enters one, how one goes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// For how long ended processes may stay in a group that is taken down.
const EMPTY_TIME_LIMIT: Duration = Duration::from_secs(2);
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Version 1 has a tree for each controller, version 2 one for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    /// That of this controller.
    V1(&'static str),
    V2,
}

impl Tree {
    /// The folder of the group that holds all processes.
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

    /// The folder of the group that this process is in.
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

/// Folder name of a group of this process.
pub(super) fn folder_name(name: &str) -> String {
    format!("memlane-bench-{}-{name}", std::process::id())
}

/// The words that a command line is put behind so that the program and its children are in the
/// group.
pub(super) fn starter(folder: &Path) -> Vec<String> {
    let procs = folder.join("cgroup.procs").to_string_lossy().into_owned();
    let enter = "echo $$ > \"$0\" && exec \"$@\"".to_owned();
    vec!["sh".to_owned(), "-c".to_owned(), enter, procs]
}

/// Takes a group down whose processes have ended, or end within a moment.
pub(super) fn remove(folder: &Path) {
    let deadline = Instant::now() + EMPTY_TIME_LIMIT;
    while let Err(error) = fs::remove_dir(folder) {
        if Instant::now() >= deadline {
            eprintln!("the group {} is left: {error}", folder.display());
            return;
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}
