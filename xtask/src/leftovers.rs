//! Removal of test folders that killed tests left in memory.
//!
//! A test that is killed cannot remove its folder in `/dev/shm`, and the folder's pool takes memory
//! until the host restarts. Only folders with a name that tests create, that no process uses and
//! that have not changed for an hour are removed: another run may be in progress.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// File system in memory in which tests create folders.
const MEMORY: &str = "/dev/shm";

/// Minimum time since the last change of a folder that is removed.
const AGE_MIN: Duration = Duration::from_secs(3600);

/// Number of random characters at the end of a temporary name.
const RANDOM_CHARACTERS: usize = 6;

/// Removes the folders of killed tests, and reports their number.
pub(crate) fn remove() {
    let removed = remove_from(Path::new(MEMORY), AGE_MIN);
    if removed > 0 {
        eprintln!("removed what killed tests had left in {MEMORY}: {removed} folder(s)");
    }
}

/// Returns the number of removed folders.
fn remove_from(memory: &Path, age_min: Duration) -> usize {
    let Ok(entries) = fs::read_dir(memory) else { return 0 };
    let of_tests: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter(|entry| entry.file_name().to_str().is_some_and(is_of_a_test))
        .map(|entry| entry.path())
        .filter(|folder| has_aged(folder, age_min))
        .collect();
    if of_tests.is_empty() {
        return 0;
    }
    let used = used_paths();
    let is_used = |folder: &Path| used.iter().any(|path| path.starts_with(folder));
    let unused = of_tests.iter().filter(|folder| !is_used(folder));
    // A folder of another user is left to that user.
    unused.filter(|folder| fs::remove_dir_all(folder).is_ok()).count()
}

/// Returns whether tests create folders with such names: `.tmpJ4x0Qa`, `memlane-log-J4x0Qa`. The
/// pools of daemons without root have longer names.
fn is_of_a_test(name: &str) -> bool {
    let random = match name.strip_prefix(".tmp") {
        Some(random) => random,
        None if name.starts_with("memlane-") => name.rsplit('-').next().unwrap_or_default(),
        None => return false,
    };
    random.len() == RANDOM_CHARACTERS && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Returns whether neither the folder nor an entry of it has changed for a time.
fn has_aged(folder: &Path, age_min: Duration) -> bool {
    let inside = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    std::iter::once(folder.to_owned()).chain(inside).all(|path| {
        let changed = fs::symlink_metadata(path).and_then(|found| found.modified());
        let age = changed.ok().and_then(|time| SystemTime::now().duration_since(time).ok());
        age.is_some_and(|age| age >= age_min)
    })
}

/// Returns the paths that processes have open, mapped or as their working directory.
fn used_paths() -> BTreeSet<PathBuf> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeSet::new() };
    let processes = entries.flatten().map(|entry| entry.path());
    processes.filter(|process| process.join("stat").exists()).flat_map(|it| paths_of(&it)).collect()
}

fn paths_of(process: &Path) -> Vec<PathBuf> {
    let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let links = descriptors.map(|entry| entry.path()).chain([process.join("cwd")]);
    let mut paths: Vec<_> = links.filter_map(|link| fs::read_link(link).ok()).collect();
    let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
    // A path is the last field of a line, and the only one with a slash.
    let mapped = maps.lines().filter_map(|line| line.find('/').map(|start| &line[start..]));
    paths.extend(mapped.map(PathBuf::from));
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_tests_are_told_from_others() {
        for name in [".tmpJ4x0Qa", "memlane-J4x0Qa", "memlane-sql-guide-J4x0Qa"] {
            assert!(is_of_a_test(name), "{name}");
        }
        for name in [".tmp", ".tmpJ4x0Qab", "memlane-00112233aabbccdd", "lane-J4x0Qa", "memlane-"] {
            assert!(!is_of_a_test(name), "{name}");
        }
    }

    #[test]
    fn what_nobody_uses_is_removed_and_nothing_else() {
        let memory = tempfile::tempdir().expect("a directory");
        let folder = |name: &str| {
            let path = memory.path().join(name);
            fs::create_dir(&path).expect("there is room");
            fs::write(path.join("region"), "x").expect("there is room");
            path
        };
        let (left, used, foreign) = (folder(".tmpaaaaaa"), folder(".tmpbbbbbb"), folder("mine"));
        let _open = fs::File::open(used.join("region")).expect("it was written");
        assert_eq!(remove_from(memory.path(), AGE_MIN), 0, "another run may be in progress");
        assert_eq!(remove_from(memory.path(), Duration::ZERO), 1);
        assert!(!left.exists() && used.exists() && foreign.exists());
    }
}
