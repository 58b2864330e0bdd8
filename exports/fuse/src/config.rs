//! Settings of an export.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use adaptive_polling::{SPIN_MAX_DEFAULT, SpinPermits};

use crate::helper_runner::HelperRunner;

/// More than most machines have cores, because all but the busy ones sleep, and each flush that
/// waits for a disk takes one, up to eight. A worker takes 2 MiB.
const WORKER_COUNT_DEFAULT: usize = 9;

/// Longer than a disk takes for a flush, unless something is wrong with it.
const STOP_PATIENCE_DEFAULT: Duration = Duration::from_secs(5);

/// Settings of an export.
#[derive(Clone)]
pub struct Config {
    /// Directory that shows one file for each volume. Created when it is missing.
    pub mount_point: PathBuf,
    /// Socket of the file descriptor store.
    pub fd_store_socket: PathBuf,
    pub helpers: HelperRunner,
    /// Number of threads that serve requests, 64 at most. One of them waits for requests, and the
    /// others sleep until one cannot keep up. Flushes that wait for a disk occupy all of them but
    /// one; further flushes wait for those.
    pub worker_count: usize,
    pub permits: Arc<SpinPermits>,
    /// Maximum time for which a worker polls for a request.
    pub spin_max: Duration,
    /// Time that an export that is stopped waits for flushes in progress. A flush that has not
    /// ended by then is abandoned with its thread, which also keeps the device.
    pub stop_patience: Duration,
    /// Called by each worker before its first request.
    pub thread_start: Arc<dyn Fn() + Send + Sync>,
    /// Source of the requests that a killed process had taken.
    pub resume: Resume,
}

/// Source of the requests that a killed process had taken and not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// The kernel, or the memory of the killed process on kernels before 6.9.
    Automatic,
    /// The memory of the killed process, as on kernels before 6.9. For tests.
    MemoryOnly,
}

impl Config {
    /// Settings that suit most machines. The paths and the program have no default.
    pub fn new(mount_point: PathBuf, fd_store_socket: PathBuf, helpers: HelperRunner) -> Self {
        Self {
            mount_point,
            fd_store_socket,
            helpers,
            worker_count: WORKER_COUNT_DEFAULT,
            permits: Arc::new(SpinPermits::for_this_machine()),
            spin_max: SPIN_MAX_DEFAULT,
            stop_patience: STOP_PATIENCE_DEFAULT,
            thread_start: Arc::new(|| ()),
            resume: Resume::Automatic,
        }
    }
}
