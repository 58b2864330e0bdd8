//! Settings from environment variables, read once, when the first descriptor that may be a volume
//! is classified.
//!
//! | variable | meaning |
//! |---|---|
//! | `MEMLANE_RING` | path of the daemon's ring socket; default `/run/memlane/ring.sock` |
//! | `MEMLANE_VOLUMES` | comma-separated names: only these volumes |
//! | `MEMLANE_DIRECT_ONLY` | `1`: files of volumes only if they are opened for direct I/O |
//! | `MEMLANE_QUIET` | `1`: no messages on standard error |
//! | `MEMLANE_REPORT` | file to which lines about descriptors are appended |

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

const SOCKET_DEFAULT: &str = "/run/memlane/ring.sock";

/// Settings in the environment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) socket: &'static Path,
    /// Empty: all volumes.
    volumes: &'static [u8],
    pub(crate) direct_only: bool,
    pub(crate) quiet: bool,
    pub(crate) report: Option<&'static CStr>,
}

impl Settings {
    /// Returns the settings of this process. They never change and are never freed.
    pub(crate) fn get() -> &'static Self {
        static SETTINGS: AtomicPtr<Settings> = AtomicPtr::new(ptr::null_mut());
        // PAIRS-WITH: Settings::get, "the settings were read"
        let known = SETTINGS.load(Ordering::Acquire);
        // SAFETY:
        // - alive, aligned, initialised: only what was leaked below is stored there.
        // - exclusive: it never changes.
        if let Some(settings) = unsafe { known.as_ref() } {
            return settings;
        }
        let settings: &'static Self = Box::leak(Box::new(Self::of_environment(variable)));
        // Two threads may read at once: the same, so either may stay.
        // PAIRS-WITH: Settings::get, "the settings were read"
        SETTINGS.store(ptr::from_ref(settings).cast_mut(), Ordering::Release);
        settings
    }

    fn of_environment(variable: impl Fn(&CStr) -> Option<&'static CStr>) -> Self {
        let is_set = |name| variable(name).is_some_and(|value| value == c"1");
        let path = |value: &'static CStr| Path::new(OsStr::from_bytes(value.to_bytes()));
        Self {
            socket: variable(c"MEMLANE_RING").map_or(Path::new(SOCKET_DEFAULT), path),
            volumes: variable(c"MEMLANE_VOLUMES").map_or(b"", CStr::to_bytes),
            direct_only: is_set(c"MEMLANE_DIRECT_ONLY"),
            quiet: is_set(c"MEMLANE_QUIET"),
            report: variable(c"MEMLANE_REPORT").filter(|path| !path.is_empty()),
        }
    }

    /// Returns whether the volume of this name should be bypassed.
    pub(crate) fn wants(&self, volume: &str) -> bool {
        let mut names = self.volumes.split(|&byte| byte == b',');
        self.volumes.is_empty() || names.any(|name| name == volume.as_bytes())
    }
}

/// Copies an environment variable, because programs may change it.
fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY:
    // - alive: the name ends with a zero byte.
    // - exclusive: programs that change the environment while others read it have lost anyhow.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY:
    // - alive, initialised: the C library returns text that ends with a zero byte.
    let value = unsafe { CStr::from_ptr(value) };
    Some(Box::leak(value.to_owned().into_boxed_c_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &'static [(&'static CStr, &'static CStr)]) -> Settings {
        let find = |name: &CStr| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1);
        Settings::of_environment(find)
    }

    #[test]
    fn without_an_environment_all_volumes_of_the_usual_daemon_are_wanted() {
        let settings = settings(&[]);
        assert_eq!(settings.socket, Path::new(SOCKET_DEFAULT));
        assert!(settings.wants("db"));
        assert!(!settings.direct_only && !settings.quiet && settings.report.is_none());
    }

    #[test]
    fn only_the_volumes_that_are_named_are_wanted() {
        let settings = settings(&[(c"MEMLANE_VOLUMES", c"db,log"), (c"MEMLANE_QUIET", c"1")]);
        assert!(settings.wants("db") && settings.wants("log"));
        assert!(!settings.wants("d") && !settings.wants("db,log"));
        assert!(settings.quiet);
    }
}
