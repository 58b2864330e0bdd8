//! Memory bandwidth counters, if available.
//!
//! Resource control of Intel's and AMD's processors counts traffic per last-level cache. It is used
//! if mounted, but never mounted here, because that is the machine owner's decision.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const ROOT: &str = "/sys/fs/resctrl";
const COUNTER: &str = "mbm_total_bytes";

/// The counters of all last-level caches.
#[derive(Debug)]
pub(super) struct Bandwidth {
    counters: Vec<PathBuf>,
}

impl Bandwidth {
    /// Finds the counters. The error says why they are unavailable.
    pub(super) fn find() -> Result<Self> {
        Self::below(Path::new(ROOT))
    }

    fn below(root: &Path) -> Result<Self> {
        let folder = root.join("mon_data");
        let caches = fs::read_dir(&folder).with_context(|| match root.exists() {
            true => format!("{} is not mounted: mount -t resctrl resctrl {ROOT}", root.display()),
            false => "this processor or kernel has no resctrl".to_owned(),
        })?;
        let counters = caches.flatten().map(|cache| cache.path().join(COUNTER)).collect();
        let own = Self { counters };
        own.bytes()?;
        Ok(own)
    }

    /// Returns the bytes read and written since the counters started.
    pub(super) fn bytes(&self) -> Result<u64> {
        let mut sum = 0_u64;
        for path in &self.counters {
            let text = fs::read_to_string(path)
                .with_context(|| format!("resctrl has no {}", path.display()))?;
            // The text is `Unavailable` if the hardware lost count.
            let count: u64 =
                text.trim().parse().with_context(|| format!("{} is {text:?}", path.display()))?;
            sum = sum.wrapping_add(count);
        }
        anyhow::ensure!(!self.counters.is_empty(), "resctrl counts no memory traffic");
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(caches: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for (cache, count) in caches {
            let folder = root.path().join("mon_data").join(cache);
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(folder.join(COUNTER), count).expect("a counter");
        }
        root
    }

    #[test]
    fn caches_are_summed_up() {
        let root = root(&[("mon_L3_00", "100\n"), ("mon_L3_01", "23\n")]);
        let bandwidth = Bandwidth::below(root.path()).expect("both count");
        assert_eq!(bandwidth.bytes().expect("both count"), 123);
    }

    #[test]
    fn what_cannot_be_counted_is_said() {
        let check = |caches: &[(&str, &str)], expected: &str| {
            let error = Bandwidth::below(root(caches).path()).expect_err("nothing is counted");
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        };
        check(&[], "not mounted");
        check(&[("mon_L3_00", "Unavailable\n")], "Unavailable");
        let gone = Bandwidth::below(Path::new("/nowhere")).expect_err("there is nothing");
        assert!(gone.to_string().contains("no resctrl"), "{gone:#}");
    }
}
