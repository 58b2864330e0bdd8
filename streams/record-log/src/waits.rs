//! Locks that may be held while a device takes nothing.

use std::sync::{LockResult, Mutex, MutexGuard, OnceLock, TryLockError};

/// Wrapping of a wait for a lock: calls what it is given, once.
type AroundWaits = fn(&mut dyn FnMut());

static AROUND_WAITS: OnceLock<AroundWaits> = OnceLock::new();

/// Has each wait for a lock of a log run so: the thread that holds it may wait for the device. For
/// programs whose threads serve others too; set once.
pub fn set_around_waits(around: AroundWaits) {
    // The first one stays.
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
