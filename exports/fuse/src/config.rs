//! Settings of an export.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use adaptive_polling::{SPIN_MAX_DEFAULT, SpinPermits};

use crate::helper_runner::HelperRunner;

/// More than the cores of most hosts, because idle workers sleep, and up to eight flushes that wait
/// for a disk occupy one worker each. A worker takes 2 MiB.
const WORKER_COUNT_DEFAULT: usize = 9;

/// Longer than any healthy disk takes for a flush.
const STOP_PATIENCE_DEFAULT: Duration = Duration::from_secs(5);

/// Settings of an export.
#[derive(Clone)]
pub struct Config {
    /// Directory that contains one file for each volume. Created if it is missing.
    pub mount_point: PathBuf,
    /// Socket of the fd store.
    pub fd_store_socket: PathBuf,
    pub helpers: HelperRunner,
    /// Number of threads that serve requests, 64 at most. One of them waits for requests, and the
    /// others sleep until it cannot keep up. Flushes that wait for a disk occupy at most all
    /// workers but one; further flushes are queued.
    pub worker_count: usize,
    pub permits: Arc<SpinPermits>,
    /// Maximum time for which a worker polls for a request.
    pub spin_max: Duration,
    /// Time that a stopping export waits for flushes in progress. A flush that takes longer is
    /// abandoned with its thread, which also keeps the device.
    pub stop_patience: Duration,
    /// Called by each worker before its first request.
    pub thread_start: Arc<dyn Fn() + Send + Sync>,
    /// Source of unanswered requests after a kill.
    pub resume: Resume,
}

/// Source of the requests that a killed process had read and not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// The kernel resends them. On kernels before 6.9 they are read from the memory of the killed
    /// process.
    Automatic,
    /// The memory of the killed process, as on kernels before 6.9. For tests.
    MemoryOnly,
}

impl Config {
    /// Settings suitable for most hosts. The paths and the helper program have no default.
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
