//! Locks that may be held during slow I/O of a device.

use std::sync::{LockResult, Mutex, MutexGuard, OnceLock, TryLockError};

/// Wrapper around a wait for a lock. It must call its argument once.
type AroundWaits = fn(&mut dyn FnMut());

static AROUND_WAITS: OnceLock<AroundWaits> = OnceLock::new();

/// Sets a wrapper for each wait for a lock of a log, whose holder may wait for the device. For
/// programs whose threads also serve others. Set once.
pub fn set_around_waits(around: AroundWaits) {
    // Later calls have no effect.
    AROUND_WAITS.get_or_init(|| around);
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> LockResult<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(poisoned)) => Err(poisoned),
        Err(TryLockError::WouldBlock) => wait(mutex),
    }
}

#[cold]
fn wait<T>(mutex: &Mutex<T>) -> LockResult<MutexGuard<'_, T>> {
    let Some(around) = AROUND_WAITS.get() else { return mutex.lock() };
    let mut locked = None;
    around(&mut || locked = Some(mutex.lock()));
    locked.unwrap_or_else(|| mutex.lock())
}
