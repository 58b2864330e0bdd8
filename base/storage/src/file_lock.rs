//! Locks of files between processes (flock(2)).

use std::fs::{File, TryLockError};
use std::io;
use std::time::{Duration, Instant};

/// Before a lock is asked for once more.
const RETRY: Duration = Duration::from_millis(2);

/// A file that is locked for as long as this lives. The kernel unlocks it when the process ends in
/// any way.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Locks a file; `None` while another has it. Never waits.
    pub fn try_take(file: File) -> io::Result<Option<Self>> {
        Self::take_within(file, Duration::ZERO)
    }

    /// Locks a file, and waits so long for another to let go of it; `None` where that does not.
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
    /// Unlocks the file, as to close it is not enough: a child that another thread has just forked
    /// shares its lock until the child executes a program.
    fn drop(&mut self) {
        // Only a descriptor that is closed could not be unlocked.
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
        // A child that was forked meanwhile would hold it in the same way.
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
