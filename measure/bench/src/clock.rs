//! Clocks and random numbers for measurements.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Duration of the calibration of the time stamp counter.
const CALIBRATION: Duration = Duration::from_millis(20);

/// Returns the rate of the time stamp counter, the unit of cycle figures, or `None` if it is not
/// constant. Measured once.
pub(crate) fn tsc_hz() -> Option<u64> {
    static HZ: OnceLock<Option<u64>> = OnceLock::new();
    *HZ.get_or_init(|| {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        cpuinfo.split_whitespace().any(|flag| flag == "constant_tsc").then(measured_hz)
    })
}

fn measured_hz() -> u64 {
    let clock = quanta::Clock::new();
    let (begun, first) = (Instant::now(), clock.raw());
    std::thread::sleep(CALIBRATION);
    let (ns, last) = (begun.elapsed().as_nanos(), clock.raw());
    u64::try_from(u128::from(last - first) * 1_000_000_000 / ns).unwrap_or(u64::MAX)
}

/// Returns the duration of `work` in nanoseconds.
pub(crate) fn nanoseconds(work: impl FnOnce()) -> u64 {
    let begun = Instant::now();
    work();
    u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Seeded pseudorandom number generator (xorshift64*).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Returns a number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        let product = u128::from(self.next()) * u128::from(limit);
        u64::try_from(product >> 64).expect("below the limit")
    }
}
