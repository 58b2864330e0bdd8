//! Tasks that wait for a part of a limit, and whose turn it is: that of the owner who has least,
//! and among several of these of the one who was not served for longest.
//!
//! It knows nothing of the limit. Each operation takes a logarithm of the number of those that
//! wait.

use std::collections::{BTreeMap, BTreeSet};

use crate::Owner;

/// Those who wait. `T` is what serves a task.
#[derive(Debug)]
pub(crate) struct Waiting<T> {
    by_owner: BTreeMap<Owner, WaitingOwner<T>>,
    /// Each owner, by its turn.
    turns: BTreeSet<Turn>,
    last_number: u64,
}

/// The parts that an owner has, when it was served or came, and who it is.
type Turn = (usize, u64, Owner);

#[derive(Debug)]
struct WaitingOwner<T> {
    own: usize,
    served: u64,
    /// In the order in which they came. There is one at least.
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
    /// Adds a task of an owner that has so many parts. Returns the number to [`Self::leave`] with.
    pub(crate) fn enter(&mut self, owner: Owner, own: usize, task: T) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        let new = || WaitingOwner { own, served: number, tasks: BTreeMap::new() };
        let waiting = self.by_owner.entry(owner).or_insert_with(new);
        waiting.tasks.insert(number, task);
        self.turns.insert(waiting.turn(owner));
        number
    }

    /// Takes a task out that does not wait any more, if it was not served.
    pub(crate) fn leave(&mut self, owner: Owner, number: u64) {
        let Some(waiting) = self.by_owner.get_mut(&owner) else { return };
        waiting.tasks.remove(&number);
        if waiting.tasks.is_empty() {
            self.turns.remove(&waiting.turn(owner));
            self.by_owner.remove(&owner);
        }
    }

    /// Notes that an owner has so many parts now.
    pub(crate) fn note(&mut self, owner: Owner, own: usize) {
        if let Some(waiting) = self.by_owner.get_mut(&owner) {
            self.turns.remove(&waiting.turn(owner));
            waiting.own = own;
            self.turns.insert(waiting.turn(owner));
        }
    }

    /// The owner whose turn it is.
    pub(crate) fn next(&self) -> Option<Owner> {
        self.turns.first().map(|(.., owner)| *owner)
    }

    /// Takes the first task of an owner out, which is served.
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
