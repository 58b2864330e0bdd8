//! PM QoS requests to the kernel for a low CPU wake-up latency while there is traffic.
//!
//! A client sleeps while it waits for a reply, as the kernel's workers do between requests. Waking
//! a halted core costs more than all the work on a small request, especially in a virtual machine,
//! where the hypervisor is involved on both sides. The kernel accepts latency limits at
//! `/dev/cpu_dma_latency`: while the file is open, no core enters an idle state with an exit
//! latency above the number of microseconds last written.
//!
//! That costs power. Therefore the request is held only while waiters see traffic, and a dedicated
//! thread withdraws it soon after. The only system call of waiters for it is the one that wakes
//! this thread when traffic begins. The request ends with the process in any case.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use sync::atomic::{AtomicBool, Ordering};

use crate::hold::{Hold, Next};

const REQUEST_PATH: &str = "/dev/cpu_dma_latency";

const IDLE_DRIVER_PATH: &str = "/sys/devices/system/cpu/cpuidle/current_driver";

const CPU_INFO_PATH: &str = "/proc/cpuinfo";

/// The kernel's default, no limit.
const ANY_LATENCY_US: i32 = 2_000_000_000;

/// Limit in virtual machines: cores poll instead of halting, because leaving a halt involves the
/// hypervisor.
const VIRTUAL_LATENCY_US: i32 = 0;

/// Limit on physical hosts: cores use only the first halt state, which they leave within two
/// microseconds and which saves some power.
const PHYSICAL_LATENCY_US: i32 = 2;

/// State of the request for low CPU latency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuLatencyState {
    /// There was recent traffic, so the limit is in force.
    Held,
    /// There was no recent traffic, so no limit is in force.
    Released,
    /// The kernel no longer accepts the request, for the given reason. No limit is in force.
    Failed(String),
}

/// Error of a host that does not accept the request. All other functions work without it.
#[derive(Debug)]
pub struct CpuLatencyError {
    problem: &'static str,
    source: Option<io::Error>,
}

impl std::fmt::Display for CpuLatencyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.problem)
    }
}

impl std::error::Error for CpuLatencyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| -> &(dyn std::error::Error + 'static) { source })
    }
}

/// Request of one process for low CPU latency while its waiters see traffic.
///
/// One per process is sufficient, because the kernel applies the strictest of all requests.
#[derive(Debug)]
pub struct CpuLatencyRequest {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// Set by waiters that see traffic, cleared at each check.
    has_traffic: AtomicBool,
    /// The thread sleeps until traffic wakes it.
    is_asleep: AtomicBool,
    is_over: AtomicBool,
    state: Mutex<CpuLatencyState>,
}

impl CpuLatencyRequest {
    /// Prepares the request with a suitable limit for this host. It is not held yet.
    pub fn start() -> Result<Self, CpuLatencyError> {
        let driver = fs::read_to_string(IDLE_DRIVER_PATH).unwrap_or_default();
        if matches!(driver.trim(), "" | "none") {
            let problem = "this kernel has no cpuidle driver, so the request has no effect";
            return Err(CpuLatencyError { problem, source: None });
        }
        let file = OpenOptions::new().write(true).open(REQUEST_PATH).map_err(|error| {
            let problem = "cannot open /dev/cpu_dma_latency for writing; run as root, and give \
                           containers and services access to this device";
            CpuLatencyError { problem, source: Some(error) }
        })?;
        let cpu_info = fs::read_to_string(CPU_INFO_PATH).unwrap_or_default();
        Self::on_file(file, wanted_latency_us(&cpu_info)).map_err(|error| {
            let problem = "cannot start the CPU latency thread";
            CpuLatencyError { problem, source: Some(error) }
        })
    }

    /// Starts as [`CpuLatencyRequest::start`] does, with a given file for the requests.
    pub(crate) fn on_file(file: File, low_us: i32) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            has_traffic: AtomicBool::new(false),
            is_asleep: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            state: Mutex::new(CpuLatencyState::Released),
        });
        let theirs = Arc::clone(&shared);
        let body = move || theirs.run(file, low_us);
        let thread = thread::Builder::new().name("cpu-latency".to_owned()).spawn(body)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    pub fn state(&self) -> CpuLatencyState {
        self.shared.state().clone()
    }

    /// Reports traffic. Waiters call this for each request during busy traffic. It costs a load of
    /// shared memory.
    pub(crate) fn saw_traffic(&self) {
        // Relaxed: a thread that sees a stale value checks again at the next request.
        if !self.shared.has_traffic.load(Ordering::Relaxed) {
            self.tell_of_traffic();
        }
    }

    #[cold]
    fn tell_of_traffic(&self) {
        // PAIRS-WITH: Shared::sleep, "traffic is seen, or the sleeper is".
        self.shared.has_traffic.store(true, Ordering::SeqCst);
        if self.shared.is_asleep.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    fn wake(&self) {
        let thread = self.thread.as_ref().expect("it is taken when the request is dropped");
        thread.thread().unpark();
    }
}

impl Drop for CpuLatencyRequest {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.wake();
        let thread = self.thread.take().expect("dropped once");
        thread.join().expect("the thread does not panic");
    }
}

impl Shared {
    fn run(&self, mut file: File, low_us: i32) {
        let start = Instant::now();
        let mut hold = Hold::default();
        while !self.is_over.load(Ordering::SeqCst) {
            let was_held = hold.is_held();
            let next = hold.look(start.elapsed(), self.has_traffic.swap(false, Ordering::SeqCst));
            if hold.is_held() != was_held {
                let (latency_us, state) = match hold.is_held() {
                    true => (low_us, CpuLatencyState::Held),
                    false => (ANY_LATENCY_US, CpuLatencyState::Released),
                };
                if let Err(error) = file.write_all(&latency_us.to_ne_bytes()) {
                    // Closing the file withdraws any earlier request.
                    *self.state() = CpuLatencyState::Failed(error.to_string());
                    return;
                }
                *self.state() = state;
            }
            match next {
                Next::LookIn(interval) => thread::park_timeout(interval),
                Next::SleepUntilTraffic => self.sleep(),
            }
        }
    }

    fn sleep(&self) {
        // PAIRS-WITH: CpuLatencyRequest::tell_of_traffic, "traffic is seen, or the sleeper is".
        self.is_asleep.store(true, Ordering::SeqCst);
        while !self.has_traffic.load(Ordering::SeqCst) && !self.is_over.load(Ordering::SeqCst) {
            thread::park();
        }
        self.is_asleep.store(false, Ordering::SeqCst);
    }

    fn state(&self) -> MutexGuard<'_, CpuLatencyState> {
        // The state is always replaced as a whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Limit for the host that `cpu_info` describes.
fn wanted_latency_us(cpu_info: &str) -> i32 {
    let flags = cpu_info.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    match flags.split_whitespace().any(|flag| flag == "hypervisor") {
        true => VIRTUAL_LATENCY_US,
        false => PHYSICAL_LATENCY_US,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tempfile::NamedTempFile;

    /// Timeout of tests, longer than any condition takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    const LOW_US: i32 = 7;

    fn request_on(file: &NamedTempFile) -> CpuLatencyRequest {
        let file = file.reopen().expect("a file");
        CpuLatencyRequest::on_file(file, LOW_US).expect("a thread")
    }

    /// All limits that were requested so far.
    fn wishes(file: &NamedTempFile) -> Vec<i32> {
        let bytes = fs::read(file.path()).expect("a readable file");
        let words = bytes.chunks_exact(4);
        words.map(|word| i32::from_ne_bytes(word.try_into().expect("four bytes"))).collect()
    }

    #[track_caller]
    fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < PATIENCE, "{what}");
            thread::yield_now();
        }
    }

    fn bring_traffic_until_held(request: &CpuLatencyRequest) {
        wait_until("lasting traffic makes the wish", || {
            request.saw_traffic();
            request.state() == CpuLatencyState::Held
        });
    }

    #[test]
    fn nothing_is_asked_for_without_traffic() {
        let file = NamedTempFile::new().expect("a file");
        let request = request_on(&file);
        wait_until("the thread sleeps", || request.shared.is_asleep.load(Ordering::SeqCst));
        drop(request);
        assert_eq!(wishes(&file), []);
    }

    /// Goal: the request is withdrawn after each period of traffic. Method: two periods of traffic.
    /// On a busy host the test may pause so long that one period becomes several, so requests are
    /// not counted.
    #[test]
    fn lasting_traffic_makes_the_wish_and_silence_takes_it_back() {
        let file = NamedTempFile::new().expect("a file");
        let request = request_on(&file);
        for _ in 0..2 {
            bring_traffic_until_held(&request);
            wait_until("silence takes it back", || request.state() == CpuLatencyState::Released);
        }
        wait_until("the thread sleeps", || request.shared.is_asleep.load(Ordering::SeqCst));
        let wishes = wishes(&file);
        assert!(wishes.len() >= 4, "{wishes:?}");
        let (pairs, rest) = wishes.as_chunks();
        assert!(rest.is_empty(), "{wishes:?}");
        assert!(pairs.iter().all(|pair| *pair == [LOW_US, ANY_LATENCY_US]), "{wishes:?}");
    }

    #[test]
    fn a_request_that_is_held_can_be_dropped() {
        let file = NamedTempFile::new().expect("a file");
        let request = request_on(&file);
        bring_traffic_until_held(&request);
        drop(request);
        assert_eq!(wishes(&file)[0], LOW_US);
    }

    #[test]
    fn a_kernel_that_refuses_the_wish_is_reported() {
        let file = NamedTempFile::new().expect("a file");
        let read_only = File::open(file.path()).expect("a file");
        let request = CpuLatencyRequest::on_file(read_only, LOW_US).expect("a thread");
        wait_until("the refusal shows", || {
            request.saw_traffic();
            matches!(request.state(), CpuLatencyState::Failed(_))
        });
    }

    #[track_caller]
    fn check_wanted(cpu_info: &str, expected_us: i32) {
        assert_eq!(wanted_latency_us(cpu_info), expected_us);
    }

    #[test]
    fn virtual_cores_poll_and_physical_ones_halt_lightly() {
        check_wanted("model name\t: x\nflags\t\t: fpu hypervisor lm\n", VIRTUAL_LATENCY_US);
        check_wanted("model name\t: hypervisor\nflags\t\t: fpu lm\n", PHYSICAL_LATENCY_US);
        check_wanted("", PHYSICAL_LATENCY_US);
    }
}
