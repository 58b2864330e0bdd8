//! Small numbers for threads. Each live thread has a unique number, which is reused after the
//! thread has ended.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Numbers that no live thread has.
struct Numbers {
    /// All numbers below this one were assigned before.
    next: usize,
    returned: Vec<usize>,
}

static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers { next: 0, returned: Vec::new() });

fn numbers() -> MutexGuard<'static, Numbers> {
    // A panic cannot leave the numbers inconsistent.
    NUMBERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of a live thread.
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

/// Number of this thread, unique among live threads. `None` while the thread ends and its number
/// was already returned.
#[inline]
pub fn thread_number() -> Option<usize> {
    OWN.try_with(|own| own.0).ok()
}

/// A mark of this thread, unique among live threads, also while the thread ends. Not zero.
#[cfg(not(loom))]
pub(crate) fn thread_mark(_number: Option<usize>) -> usize {
    // Address of a thread-local variable. It has no destructor, so it always exists.
    thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// Loom runs its threads on one, so the number that a test assigns is the mark.
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
