//! Copies with non-temporal stores, which bypass the cache: for data that this core does not access
//! again soon.

use std::ptr::NonNull;

/// Copies `from` to `to` with non-temporal stores, so that the old cache lines of `to` need not be
/// read. The stores are ordered only by [`fence`].
///
/// # Safety
/// `to` must be valid for `from.len()` bytes and aligned to 16, no other thread may load or store
/// it, and it must not overlap `from`.
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn stream(to: NonNull<u8>, from: &[u8]) {
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
/// `to` must be valid for `from.len()` bytes, no other thread may load or store it, and it must not
/// overlap `from`.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub unsafe fn stream(to: NonNull<u8>, from: &[u8]) {
    // SAFETY:
    // - in bounds, exclusive: the caller's `to`; `from` does not overlap.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) };
}

/// Number of bytes of `next` that are prefetched with each step of [`stream_before`].
const STEP_BYTES: usize = 64;

/// Copies as [`stream`] does, and prefetches `next`, which is copied afterwards.
///
/// # Safety
/// As for [`stream`].
#[inline]
pub unsafe fn stream_before(to: NonNull<u8>, from: &[u8], next: &[u8]) {
    for (index, step) in from.chunks(STEP_BYTES).enumerate() {
        if let Some(byte) = next.get(index * STEP_BYTES) {
            prefetch(NonNull::from(byte));
        }
        // SAFETY:
        // - in bounds: the caller's `to` is as long as `from`, of which this is a part.
        let at = unsafe { to.add(index * STEP_BYTES) };
        // SAFETY:
        // - in bounds, aligned, exclusive: a part of the caller's `to`, a multiple of 16 into it.
        unsafe { stream(at, step) };
    }
}

/// Orders non-temporal stores before later stores.
#[inline]
pub fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY:
    // - same type: every x86-64 processor has the instruction; it touches no memory.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Prefetches the cache line at `at`.
#[inline]
pub fn prefetch(at: NonNull<u8>) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[repr(align(64))]
    struct Aligned([u8; 8192]);

    proptest! {
        #[test]
        fn what_is_streamed_arrives_and_nothing_else_changes(
            from in prop::collection::vec(any::<u8>(), 0..5000),
            unit in 0_usize..100,
            next_length in 0_usize..5000,
        ) {
            let start = unit * 16;
            let mut memory = Box::new(Aligned([0xA5; 8192]));
            let next = vec![0; next_length];
            let to = NonNull::from(&mut memory.0[start]);
            // SAFETY:
            // - in bounds: 1,600 and 5,000 are less than 8,192.
            // - aligned, exclusive: a multiple of 16 into memory of this test's own.
            unsafe { stream_before(to, &from, &next) };
            fence();
            prop_assert_eq!(&memory.0[start..start + from.len()], &from[..]);
            prop_assert!(memory.0[..start].iter().all(|&byte| byte == 0xA5));
            prop_assert!(memory.0[start + from.len()..].iter().all(|&byte| byte == 0xA5));
        }
    }
}
