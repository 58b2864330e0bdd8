//! Locks that may be held during slow I/O of a device.

use std::cell::Cell;
use std::sync::{LockResult, Mutex, MutexGuard, OnceLock, TryLockError};

/// Wait for a lock. The first function tries to take it, and returns whether it has. It may be
/// called any number of times. Unless it has returned true, the second one, which waits, must be
/// called once.
type AroundWaits = fn(&mut dyn FnMut() -> bool, &mut dyn FnMut());

static AROUND_WAITS: OnceLock<AroundWaits> = OnceLock::new();

/// Sets how to wait for each lock of a log, whose holder may wait for the device. For programs
/// whose threads also serve others. Set once.
pub fn set_around_waits(around: AroundWaits) {
    // Later calls have no effect.
    AROUND_WAITS.get_or_init(|| around);
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> LockResult<MutexGuard<'_, T>> {
    lock_if_free(mutex).unwrap_or_else(|| wait(mutex))
}

fn lock_if_free<T>(mutex: &Mutex<T>) -> Option<LockResult<MutexGuard<'_, T>>> {
    match mutex.try_lock() {
        Ok(guard) => Some(Ok(guard)),
        Err(TryLockError::Poisoned(poisoned)) => Some(Err(poisoned)),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cold]
fn wait<T>(mutex: &Mutex<T>) -> LockResult<MutexGuard<'_, T>> {
    let Some(around) = AROUND_WAITS.get() else { return mutex.lock() };
    let locked = Cell::new(None);
    let mut try_lock = || {
        let taken = lock_if_free(mutex);
        let is_taken = taken.is_some();
        locked.set(taken);
        is_taken
    };
    around(&mut try_lock, &mut || locked.set(Some(mutex.lock())));
    locked.take().unwrap_or_else(|| mutex.lock())
}
