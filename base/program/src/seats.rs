//! Limit on connections. Idle connections are closed in favour of new ones.
//!
//! ```text
//! entered ─▶ held ◀──▶ spare ─▶ ended, for a new connection when all seats are taken:
//!                               the oldest spare seat of the owner with the most of them
//! ```
//!
//! The seat of a connection is spare before its first request and between requests. Held seats are
//! shared among owners like all limits: an owner must leave at least as many free as it holds.
//! However, each owner may always hold one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shares::{Owner, Shares};
use tokio::sync::{Notify, oneshot};

/// Seats of one listener.
#[derive(Debug)]
pub struct Seats {
    count_max: usize,
    taken: Mutex<Taken>,
    /// Notified when a seat becomes free or spare.
    freed: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    next_id: u64,
    count: usize,
    held: Shares,
    /// Spare seats of each owner, the oldest first. Dropping an entry closes its connection.
    spare: BTreeMap<Owner, BTreeMap<u64, oneshot::Sender<()>>>,
}

/// Seat of one connection. Dropping it frees the seat. Initially nobody holds it.
#[derive(Debug)]
pub struct Seat {
    seats: Arc<Seats>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Held(Owner, oneshot::Sender<()>),
    Spare(Owner, u64),
    /// The seat was taken by another connection.
    Ended,
}

/// Completes when the seat was taken by another connection. Nothing is sent; the sender is dropped.
pub type SeatEnd = oneshot::Receiver<()>;

impl Seats {
    pub fn new(count_max: usize) -> Arc<Self> {
        Arc::new(Self { count_max, taken: Mutex::default(), freed: Notify::new() })
    }

    /// Takes a free seat, or replaces the oldest spare one. `None` if all seats are held.
    pub fn try_enter(self: &Arc<Self>) -> Option<(Arc<Seat>, SeatEnd)> {
        let mut taken = self.lock();
        if taken.count >= self.count_max && !taken.end_oldest_of_most() {
            return None;
        }
        taken.count += 1;
        taken.held.take(Owner::NOBODY, 1);
        drop(taken);
        let (keep, end) = oneshot::channel();
        let state = Mutex::new(State::Held(Owner::NOBODY, keep));
        Some((Arc::new(Seat { seats: Arc::clone(self), state }), end))
    }

    /// Waits until a seat can be taken.
    pub async fn enter(self: &Arc<Self>) -> (Arc<Seat>, SeatEnd) {
        loop {
            let freed = self.freed.notified();
            if let Some(entered) = self.try_enter() {
                return entered;
            }
            freed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Makes the seat spare, as the newest of `owner`.
    pub fn spare(&self, owner: Owner) {
        self.change(|taken, state| match state {
            State::Held(holder, keep) => {
                taken.held.give_back(holder, 1);
                taken.add_spare(owner, keep)
            }
            State::Spare(before, id) => match taken.remove_spare(before, id) {
                Some(keep) => taken.add_spare(owner, keep),
                None => State::Ended,
            },
            State::Ended => State::Ended,
        });
        self.seats.freed.notify_one();
    }

    /// Makes the seat held. Returns false without a change if the owner's share would be exceeded,
    /// or if the seat was taken by another connection.
    pub fn hold(&self, owner: Owner) -> bool {
        let count_max = self.seats.count_max;
        let mut is_held = false;
        self.change(|taken, state| {
            let has_room =
                |taken: &Taken, own: usize| own == 0 || taken.held.has_room(owner, 1, count_max);
            match state {
                State::Spare(spared_by, id) if has_room(taken, taken.held.of(owner)) => {
                    let Some(keep) = taken.remove_spare(spared_by, id) else {
                        return State::Ended;
                    };
                    taken.held.take(owner, 1);
                    is_held = true;
                    State::Held(owner, keep)
                }
                State::Held(holder, keep) => {
                    taken.held.give_back(holder, 1);
                    is_held = has_room(taken, taken.held.of(owner));
                    let holder = if is_held { owner } else { holder };
                    taken.held.take(holder, 1);
                    State::Held(holder, keep)
                }
                other => other,
            }
        });
        is_held
    }

    fn change(&self, change: impl FnOnce(&mut Taken, State) -> State) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = self.seats.lock();
        let before = std::mem::replace(&mut *state, State::Ended);
        *state = change(&mut taken, before);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.change(|taken, state| {
            match state {
                State::Held(holder, _) => {
                    taken.held.give_back(holder, 1);
                    taken.count -= 1;
                }
                State::Spare(owner, id) => {
                    taken.count -= usize::from(taken.remove_spare(owner, id).is_some());
                }
                State::Ended => {}
            }
            State::Ended
        });
        self.seats.freed.notify_one();
    }
}

impl Taken {
    fn add_spare(&mut self, owner: Owner, keep: oneshot::Sender<()>) -> State {
        let id = self.next_id;
        self.next_id += 1;
        self.spare.entry(owner).or_default().insert(id, keep);
        State::Spare(owner, id)
    }

    fn remove_spare(&mut self, owner: Owner, id: u64) -> Option<oneshot::Sender<()>> {
        let of_owner = self.spare.get_mut(&owner)?;
        let keep = of_owner.remove(&id);
        if of_owner.is_empty() {
            self.spare.remove(&owner);
        }
        keep
    }

    /// Closes the oldest connection of the owner with the most spare seats. Of equally many, the
    /// owner with the oldest one is chosen. Returns false if there is no spare seat.
    fn end_oldest_of_most(&mut self) -> bool {
        let age = |seats: &BTreeMap<u64, _>| seats.keys().next().map(|id| u64::MAX - id);
        let most = self.spare.iter().max_by_key(|(_, seats)| (seats.len(), age(seats)));
        let oldest = most.and_then(|(owner, seats)| Some((*owner, *seats.keys().next()?)));
        let ended = oldest.and_then(|(owner, id)| self.remove_spare(owner, id));
        self.count -= usize::from(ended.is_some());
        ended.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Owner = Owner(1);
    const TWO: Owner = Owner(2);

    fn enter_spare(seats: &Arc<Seats>, owner: Owner) -> (Arc<Seat>, SeatEnd) {
        let (seat, end) = seats.try_enter().expect("a seat");
        seat.spare(owner);
        (seat, end)
    }

    fn is_open(end: &mut SeatEnd) -> bool {
        matches!(end.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }

    #[test]
    fn whoever_comes_gets_the_oldest_seat_of_who_has_most_to_spare() {
        let seats = Seats::new(4);
        let (_two, mut of_two) = enter_spare(&seats, TWO);
        let mut of_one: Vec<_> = (0..3).map(|_| enter_spare(&seats, ONE)).collect();
        assert!(of_one[1].0.hold(ONE), "it is asked for something");
        let _third = enter_spare(&seats, Owner(3));
        assert_eq!(
            of_one.iter_mut().map(|it| is_open(&mut it.1)).collect::<Vec<_>>(),
            [false, true, true]
        );
        assert!(is_open(&mut of_two));
        assert!(!of_one[0].0.hold(ONE), "it is somebody else's now");
        drop(of_one);
        assert_eq!(seats.lock().count, 2);
    }

    #[tokio::test]
    async fn who_finds_all_seats_held_waits_until_one_is_free_or_to_spare() {
        let seats = Seats::new(2);
        let (first, _end) = seats.enter().await;
        let (second, mut end) = seats.enter().await;
        assert!(seats.try_enter().is_none());
        let entering = tokio::spawn({
            let seats = Arc::clone(&seats);
            async move { seats.enter().await }
        });
        tokio::task::yield_now().await;
        second.spare(ONE);
        let (third, _end) = entering.await.expect("a seat");
        assert!(!is_open(&mut end) && seats.try_enter().is_none());
        drop(first);
        assert!(seats.try_enter().is_some());
        drop((second, third));
        assert_eq!(seats.lock().count, 0);
    }

    #[test]
    fn an_owner_holds_as_many_seats_as_it_leaves_to_others_and_one_at_least() {
        let seats = Seats::new(8);
        let hold_all = |owner| {
            let mut held = Vec::new();
            while let Some((seat, end)) = seats.try_enter() {
                seat.spare(owner);
                if !seat.hold(owner) {
                    break;
                }
                held.push((seat, end));
            }
            held
        };
        let (of_one, of_two) = (hold_all(ONE), hold_all(TWO));
        assert_eq!((of_one.len(), of_two.len()), (4, 2));
        let others: Vec<_> = (3..9).map(|number| hold_all(Owner(number))).collect();
        assert_eq!(others.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 0, 0, 0, 0]);
        drop((of_one, of_two, others));
        let taken = seats.lock();
        assert_eq!((taken.count, &taken.held), (0, &Shares::default()));
    }
}
