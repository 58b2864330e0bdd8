//! Faults that can be injected into a disk.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use storage::StorageAction;

/// Maximum wait at a gate. A test that takes longer hangs.
const GATE_WAIT_MAX: Duration = Duration::from_secs(120);

/// Effect on a call.
#[derive(Clone, Debug)]
pub enum Effect {
    /// It fails with an I/O error. A write may have been written in part.
    Io,
    /// It fails for lack of space. A write may have been written in part.
    NoSpace,
    /// It waits until the gate is opened. Then it succeeds.
    Hold(Gate),
}

/// A fault of some calls.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Affected calls. Empty: all.
    pub actions: Vec<StorageAction>,
    /// Number of affected calls that succeed first.
    pub skipped: u64,
    /// Number of calls that fail.
    pub count: u64,
    pub effect: Effect,
}

impl Fault {
    /// Affects every call of these actions, until the disk is healed.
    pub fn always(actions: &[StorageAction], effect: Effect) -> Self {
        Self { actions: actions.to_vec(), skipped: 0, count: u64::MAX, effect }
    }

    /// Affects one call of these actions, after `skipped` others.
    pub fn once(actions: &[StorageAction], skipped: u64, effect: Effect) -> Self {
        Self { actions: actions.to_vec(), skipped, count: 1, effect }
    }
}

/// A gate at which calls wait until it is opened.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    shared: Arc<(Mutex<GateState>, Condvar)>,
}

#[derive(Debug, Default)]
struct GateState {
    waiting: u64,
    is_open: bool,
}

impl Gate {
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets all calls pass, now and later.
    pub fn open(&self) {
        self.change(|state| state.is_open = true);
    }

    /// Waits until `count` calls wait at the gate.
    pub fn wait_until_reached_by(&self, count: u64) {
        self.wait(|state| state.waiting >= count);
    }

    /// Blocks the caller until the gate is opened.
    pub(crate) fn pass(&self) {
        self.change(|state| state.waiting += 1);
        self.wait(|state| state.is_open);
        self.change(|state| state.waiting -= 1);
    }

    fn change(&self, change: impl FnOnce(&mut GateState)) {
        let (state, changed) = &*self.shared;
        change(&mut state.lock().unwrap_or_else(PoisonError::into_inner));
        changed.notify_all();
    }

    fn wait(&self, is_over: impl Fn(&GateState) -> bool) {
        let (state, changed) = &*self.shared;
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(state, GATE_WAIT_MAX, |state| !is_over(state));
        let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(state);
        assert!(!timeout.timed_out(), "no call came to the gate, or it was not opened");
    }
}

/// Faults of a disk.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    faults: Vec<Fault>,
    /// Number of calls of each action.
    calls: Vec<(StorageAction, u64)>,
}

impl Faults {
    pub(crate) fn add(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    pub(crate) fn clear(&mut self) {
        self.faults.clear();
    }

    /// Returns the number of calls of this action so far.
    pub(crate) fn calls(&self, action: StorageAction) -> u64 {
        self.calls.iter().find(|(of, _)| *of == action).map_or(0, |&(_, count)| count)
    }

    /// Returns the effect on the next call of this action. Must be called once for each call.
    pub(crate) fn strike(&mut self, action: StorageAction) -> Option<Effect> {
        match self.calls.iter_mut().find(|(of, _)| *of == action) {
            Some((_, count)) => *count += 1,
            None => self.calls.push((action, 1)),
        }
        let mut effect = None;
        for fault in &mut self.faults {
            let applies = fault.actions.is_empty() || fault.actions.contains(&action);
            if !applies || fault.count == 0 {
                continue;
            }
            if fault.skipped > 0 {
                fault.skipped -= 1;
            } else if effect.is_none() {
                fault.count -= 1;
                effect = Some(fault.effect.clone());
            }
        }
        effect
    }
}
