//! Fair sharing of limited slots among users: event streams, queries, terminals, password hashing.
//!
//! Each user has a limit. If all slots are taken, a user with fewer slots than another one takes
//! over the oldest slot of the user with the most. So no user can exhaust the slots.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

/// Reason for which no slot is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// The caller has reached the limit per user.
    OfOne(usize),
    /// All slots are taken, and no other user has more than the caller.
    OfAll(usize),
}

/// Slots of one kind.
#[derive(Debug)]
pub(crate) struct Shares<K: Eq + Hash + Clone> {
    places_max: usize,
    of_one_max: usize,
    held: Mutex<Held<K>>,
}

#[derive(Debug)]
struct Held<K> {
    next_id: u64,
    count: usize,
    /// Slots of each user, oldest first. Dropping a sender revokes the slot.
    of: HashMap<K, BTreeMap<u64, oneshot::Sender<()>>>,
}

/// A slot, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place<K: Eq + Hash + Clone> {
    shares: Arc<Shares<K>>,
    key: K,
    id: u64,
    taken: oneshot::Receiver<()>,
}

impl<K: Eq + Hash + Clone> Shares<K> {
    pub(crate) fn new(places_max: usize, of_one_max: usize) -> Arc<Self> {
        let held = Held { next_id: 0, count: 0, of: HashMap::new() };
        Arc::new(Self { places_max, of_one_max, held: Mutex::new(held) })
    }

    /// Takes a slot for `key`. Never blocks.
    pub(crate) fn enter(self: &Arc<Self>, key: &K) -> Result<Place<K>, Full> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let own = held.of.get(key).map_or(0, BTreeMap::len);
        if own >= self.of_one_max {
            return Err(Full::OfOne(self.of_one_max));
        }
        if held.count >= self.places_max {
            let most = held.of.iter().max_by_key(|(_, places)| places.len());
            let most = most.filter(|(_, places)| places.len() > own + 1);
            let most = most.map(|(key, _)| key.clone()).ok_or(Full::OfAll(self.places_max))?;
            let oldest = held.of.get(&most).and_then(|it| it.keys().next().copied());
            oldest.into_iter().for_each(|id| held.end(&most, id));
        }
        let (told, taken) = oneshot::channel();
        let id = held.next_id;
        held.next_id += 1;
        held.count += 1;
        held.of.entry(key.clone()).or_default().insert(id, told);
        drop(held);
        Ok(Place { shares: Arc::clone(self), key: key.clone(), id, taken })
    }
}

impl<K: Eq + Hash> Held<K> {
    fn end(&mut self, key: &K, id: u64) {
        let Some(places) = self.of.get_mut(key) else { return };
        self.count -= usize::from(places.remove(&id).is_some());
        if places.is_empty() {
            self.of.remove(key);
        }
    }
}

impl<K: Eq + Hash + Clone> Place<K> {
    /// Returns when the slot is revoked.
    pub(crate) async fn taken(&mut self) {
        // Carries no messages. Revoking drops the sender.
        let _dropped = (&mut self.taken).await;
    }
}

impl<K: Eq + Hash + Clone> Drop for Place<K> {
    fn drop(&mut self) {
        self.shares.held.lock().unwrap_or_else(PoisonError::into_inner).end(&self.key, self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_holds_few_takes_the_oldest_place_of_who_holds_many() {
        let shares = Shares::new(6, 5);
        let mut of_ann: Vec<_> = (0..5).map(|_| shares.enter(&"ann").expect("room")).collect();
        assert_eq!(shares.enter(&"ann").expect_err("a share"), Full::OfOne(5));
        let _of_bob = shares.enter(&"bob").expect("room");
        let _second = shares.enter(&"bob").expect("ann has more");
        of_ann[0].taken().await;
        let _third = shares.enter(&"bob").expect("ann has more");
        of_ann[1].taken().await;
        assert_eq!(shares.enter(&"bob").expect_err("as many"), Full::OfAll(6));
        let _of_cid = shares.enter(&"cid").expect("others have more");
        drop(of_ann);
        assert!(shares.enter(&"ann").is_ok());
    }

    #[test]
    fn a_place_that_is_left_is_there_for_others() {
        let shares = Shares::new(2, 2);
        for _ in 0..5 {
            let places = [shares.enter(&1).expect("room"), shares.enter(&2).expect("room")];
            assert_eq!(shares.enter(&3).expect_err("full"), Full::OfAll(2));
            drop(places);
        }
        let held = shares.held.lock().expect("no panic");
        assert!(held.of.is_empty() && held.count == 0);
    }
}
