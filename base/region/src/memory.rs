//! Copies that know where they go.

use std::ptr::NonNull;

/// Copies `from` to `to` with stores that go past the cache: a page that is stored is not read
/// again soon, and its old lines need not be fetched.
///
/// # Safety
/// `to` is valid for `from.len()` bytes, aligned to 16, nobody else looks at it or stores to it,
/// and it does not overlap `from`.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) unsafe fn stream(to: NonNull<u8>, from: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};

    let (units, rest) = from.as_chunks::<16>();
    for (index, unit) in units.iter().enumerate() {
        #[expect(clippy::cast_ptr_alignment, reason = "the load needs no alignment")]
        let source = unit.as_ptr().cast::<__m128i>();
        // SAFETY:
        // - in bounds: `unit` is sixteen bytes long.
        let value = unsafe { _mm_loadu_si128(source) };
        // SAFETY:
        // - in bounds: the caller's `to` is as long as `from`.
        let at = unsafe { to.add(index * 16) };
        let at = at.cast::<__m128i>();
        // SAFETY:
        // - in bounds, aligned, exclusive: the caller's `to`, in steps of 16.
        unsafe { _mm_stream_si128(at.as_ptr(), value) };
    }
    // SAFETY:
    // - in bounds: what is left of the caller's `to` is as long as `rest`.
    let at = unsafe { to.add(units.len() * 16) };
    // SAFETY:
    // - in bounds, exclusive: the rest of the caller's `to`, which `from` does not overlap.
    unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), at.as_ptr(), rest.len()) };
}

/// Copies `from` to `to`.
///
/// # Safety
/// `to` is valid for `from.len()` bytes, nobody else looks at it or stores to it, and it does not
/// overlap `from`.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(crate) unsafe fn stream(to: NonNull<u8>, from: &[u8]) {
    // SAFETY:
    // - in bounds, exclusive: the caller's `to`; `from` does not overlap.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) };
}

/// Orders streamed stores before later stores.
#[inline]
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY:
    // - same type: every x86-64 processor has the instruction; it touches no memory.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Asks for the line at `at` to be brought near.
#[inline]
pub(crate) fn prefetch(at: NonNull<u8>) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY:
        // - in bounds: prefetching reads nothing that the program sees; any address may be given.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.as_ptr().cast::<i8>()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at; // Other processors are left to their own prefetching.
}
