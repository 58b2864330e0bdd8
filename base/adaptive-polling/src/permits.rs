//! State shared by all waiters of a process: the limit on spinning threads, and the request for low
//! CPU latency.

use std::sync::Arc;
use std::thread;

use sync::atomic::{AtomicUsize, Ordering};

use crate::cpu_latency::CpuLatencyRequest;

/// Limit on the number of spinning threads, shared by all waiters of a process.
#[derive(Debug)]
pub struct SpinPermits {
    free: AtomicUsize,
    cpu_latency: Option<Arc<CpuLatencyRequest>>,
}

impl SpinPermits {
    /// Allows at most `thread_count_max` spinning threads. With zero, every wait blocks.
    pub fn new(thread_count_max: usize) -> Self {
        Self { free: AtomicUsize::new(thread_count_max), cpu_latency: None }
    }

    /// Leaves one core to all other threads, but allows one spinning thread even on a single core.
    pub fn for_this_machine() -> Self {
        let core_count = thread::available_parallelism().map_or(1, usize::from);
        Self::new((core_count - 1).max(1))
    }

    /// Makes waiters request low CPU latency while they see traffic, whether they spin or block.
    pub fn with_cpu_latency(self, request: Arc<CpuLatencyRequest>) -> Self {
        Self { cpu_latency: Some(request), ..self }
    }

    /// Reports a request during busy traffic.
    pub(crate) fn saw_traffic(&self) {
        if let Some(request) = &self.cpu_latency {
            request.saw_traffic();
        }
    }

    /// Takes a permit to spin, which is held until it is dropped. `None` if all are taken.
    pub(crate) fn take(&self) -> Option<SpinPermit<'_>> {
        // Relaxed: the count protects no other memory.
        self.free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(1))
            .ok()
            .map(|_| SpinPermit { permits: self })
    }
}

/// Permit of one thread to spin.
pub(crate) struct SpinPermit<'permits> {
    permits: &'permits SpinPermits,
}

impl Drop for SpinPermit<'_> {
    fn drop(&mut self) {
        self.permits.free.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_permits_than_the_limit() {
        let permits = SpinPermits::new(2);
        let _first = permits.take().expect("two are free");
        let _second = permits.take().expect("one is free");
        assert!(permits.take().is_none());
    }

    #[test]
    fn a_dropped_permit_can_be_taken_again() {
        let permits = SpinPermits::new(1);
        drop(permits.take());
        assert!(permits.take().is_some());
    }

    #[test]
    fn every_machine_lets_one_thread_spin() {
        assert!(SpinPermits::for_this_machine().take().is_some());
    }
}
