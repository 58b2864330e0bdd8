//! Queue of tasks that wait for a unit of a limit. The owner with the fewest units is served first;
//! of several such owners, the one that was served least recently.
//!
//! The queue does not check the limit. Each operation takes logarithmic time in the number of
//! waiting tasks.

use std::collections::{BTreeMap, BTreeSet};

use crate::Owner;

/// Waiting tasks by owner. `T` is the channel on which a task receives its unit.
#[derive(Debug)]
pub(crate) struct Waiting<T> {
    by_owner: BTreeMap<Owner, WaitingOwner<T>>,
    /// Owners in the order in which they are served.
    turns: BTreeSet<Turn>,
    last_number: u64,
}

/// Units of an owner, sequence number of its last service or arrival, and the owner.
type Turn = (usize, u64, Owner);

#[derive(Debug)]
struct WaitingOwner<T> {
    own: usize,
    served: u64,
    /// Tasks in order of arrival; never empty.
    tasks: BTreeMap<u64, T>,
}

impl<T> WaitingOwner<T> {
    fn turn(&self, owner: Owner) -> Turn {
        (self.own, self.served, owner)
    }
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self { by_owner: BTreeMap::new(), turns: BTreeSet::new(), last_number: 0 }
    }
}

impl<T> Waiting<T> {
    /// Adds a task of an owner with `own` units. Returns a number for [`Self::leave`].
    pub(crate) fn enter(&mut self, owner: Owner, own: usize, task: T) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        let new = || WaitingOwner { own, served: number, tasks: BTreeMap::new() };
        let waiting = self.by_owner.entry(owner).or_insert_with(new);
        waiting.tasks.insert(number, task);
        self.turns.insert(waiting.turn(owner));
        number
    }

    /// Removes a task that stopped waiting, unless it has been served.
    pub(crate) fn leave(&mut self, owner: Owner, number: u64) {
        let Some(waiting) = self.by_owner.get_mut(&owner) else { return };
        waiting.tasks.remove(&number);
        if waiting.tasks.is_empty() {
            self.turns.remove(&waiting.turn(owner));
            self.by_owner.remove(&owner);
        }
    }

    /// Updates the number of units of an owner.
    pub(crate) fn note(&mut self, owner: Owner, own: usize) {
        if let Some(waiting) = self.by_owner.get_mut(&owner) {
            self.turns.remove(&waiting.turn(owner));
            waiting.own = own;
            self.turns.insert(waiting.turn(owner));
        }
    }

    /// Returns the owner to be served next.
    pub(crate) fn next(&self) -> Option<Owner> {
        self.turns.first().map(|(.., owner)| *owner)
    }

    /// Removes the oldest task of an owner, to serve it.
    pub(crate) fn serve(&mut self, owner: Owner) -> Option<T> {
        let waiting = self.by_owner.get_mut(&owner)?;
        let (_, task) = waiting.tasks.pop_first()?;
        self.turns.remove(&waiting.turn(owner));
        if waiting.tasks.is_empty() {
            self.by_owner.remove(&owner);
        } else {
            self.last_number += 1;
            waiting.served = self.last_number;
            self.turns.insert(waiting.turn(owner));
        }
        Some(task)
    }
}
