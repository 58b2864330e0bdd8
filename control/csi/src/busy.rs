//! Mutual exclusion of calls for the same volume. A call that is repeated while it is running is
//! rejected.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tonic::Status;

/// Volumes and targets with a call in progress.
#[derive(Debug, Default)]
pub(crate) struct Busy(Mutex<BTreeSet<String>>);

/// Guard of a call in progress. Dropping it ends the exclusion.
#[derive(Debug)]
pub(crate) struct BusyGuard<'a> {
    busy: &'a Busy,
    name: String,
}

impl Busy {
    /// Fails with `ABORTED` if a call for the same name is in progress.
    pub(crate) fn begin(&self, name: &str) -> Result<BusyGuard<'_>, Status> {
        match self.names().insert(name.to_owned()) {
            true => Ok(BusyGuard { busy: self, name: name.to_owned() }),
            false => Err(Status::aborted(format!(
                "another call for {name:?} is in progress; retry later"
            ))),
        }
    }

    fn names(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BusyGuard<'_> {
    fn drop(&mut self) {
        self.busy.names().remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_for_one_volume_come_one_after_the_other() {
        let busy = Busy::default();
        let guard = busy.begin("a").expect("it is free");
        assert_eq!(busy.begin("a").expect_err("refused").code(), tonic::Code::Aborted);
        busy.begin("b").expect("another volume");
        drop(guard);
        busy.begin("a").expect("it is free again");
    }
}
