//! File locks between processes (flock(2)).

use std::fs::{File, TryLockError};
use std::io;
use std::time::{Duration, Instant};

/// Interval between attempts to take a lock.
const RETRY: Duration = Duration::from_millis(2);

/// A locked file. Dropping it unlocks the file. The kernel also unlocks it when the process exits
/// in any way.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Locks a file. `None` if another process holds the lock. Does not block.
    pub fn try_take(file: File) -> io::Result<Option<Self>> {
        Self::take_within(file, Duration::ZERO)
    }

    /// Locks a file, and waits at most `time_max` for another process to release it. `None` after a
    /// timeout.
    pub fn take_within(file: File, time_max: Duration) -> io::Result<Option<Self>> {
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Self(file))),
                Err(TryLockError::WouldBlock) if begun.elapsed() < time_max => {
                    std::thread::sleep(RETRY);
                }
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }
}

impl Drop for FileLock {
    /// Unlocks the file. Closing it is not sufficient: a child that another thread has just forked
    /// shares the lock until it calls exec.
    fn drop(&mut self) {
        // Only a closed descriptor cannot be unlocked.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_lock_is_let_go_also_where_a_child_shares_it() {
        let place = tempfile::NamedTempFile::new().expect("there is room");
        let open = || place.reopen().expect("it is there");
        let take = || FileLock::try_take(open()).expect("it can be locked");
        let first = take().expect("it is free");
        assert!(take().is_none());
        // A child forked meanwhile would hold the lock in the same way.
        let inherited = first.0.try_clone().expect("a descriptor can be had");
        drop(first);
        let second = take().expect("it is free again");
        drop(inherited);
        let waiter = thread::spawn({
            let file = open();
            move || FileLock::take_within(file, Duration::from_secs(60))
        });
        thread::sleep(Duration::from_millis(20));
        drop(second);
        let taken = waiter.join().expect("it does not panic").expect("it can be locked");
        assert!(taken.is_some() && take().is_none());
    }
}
