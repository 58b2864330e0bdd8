//! Small numbers for threads: each live thread has one of its own, and the number of a thread that
//! has ended is given out again.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The numbers that no live thread has.
struct Numbers {
    /// Below this, all numbers were given out once.
    next: usize,
    returned: Vec<usize>,
}

static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers { next: 0, returned: Vec::new() });

fn numbers() -> MutexGuard<'static, Numbers> {
    // Nothing in here panics between two steps that belong together.
    NUMBERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number while its thread lives.
struct Own(usize);

impl Own {
    fn take() -> Self {
        let mut numbers = numbers();
        Self(numbers.returned.pop().unwrap_or_else(|| {
            numbers.next += 1;
            numbers.next - 1
        }))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        numbers().returned.push(self.0);
    }
}

thread_local! {
    static OWN: Own = Own::take();
}

/// The number of this thread, which no other live thread has. `None` while the thread ends, when
/// its number has gone to others already.
#[inline]
pub fn thread_number() -> Option<usize> {
    OWN.try_with(|own| own.0).ok()
}

/// A number of any size that no other live thread has, also while the thread ends. Not zero.
#[cfg(not(loom))]
pub(crate) fn thread_mark(_number: Option<usize>) -> usize {
    // Where a variable of the thread lies. It is never dropped, so it is always there.
    thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// Loom runs its threads on one: there the number that a test gives its thread is the mark.
#[cfg(loom)]
pub(crate) fn thread_mark(number: Option<usize>) -> usize {
    number.map_or(usize::MAX, |number| number + 1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn live_threads_have_different_marks() {
        let own = thread_mark(None);
        let other = std::thread::scope(|scope| {
            scope.spawn(|| thread_mark(None)).join().expect("the thread ends")
        });
        assert_ne!(own, 0);
        assert_ne!(own, other);
        assert_eq!(own, thread_mark(None));
    }

    #[test]
    fn live_threads_have_different_numbers() {
        let own = thread_number();
        let other = std::thread::spawn(thread_number).join().expect("the thread ends");
        assert!(own.is_some());
        assert_ne!(own, other);
        assert_eq!(own, thread_number());
    }
}
