//! Number of visits of volumes, maps and records, for tests of the work that operations do. Not
//! compiled into programs.

#[cfg(test)]
std::thread_local! {
    static VISITS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts visits by this thread.
#[inline(always)]
pub(crate) fn note(_count: usize) {
    #[cfg(test)]
    VISITS.with(|visits| visits.set(visits.get() + _count));
}

/// Returns the number of visits by this thread during a call.
#[cfg(test)]
pub(crate) fn during(call: impl FnOnce()) -> usize {
    let before = VISITS.get();
    call();
    VISITS.get() - before
}
