//! Quotas for topics by owner.
//!
//! Topics found at a start count, but belong to no owner.

use std::collections::HashMap;

use kafka_protocol::error::ResponseError;
use shares::{Owner, Shares};
use uuid::Uuid;
use volumes::{DURABLE_COUNT_MAX, Durability};

use super::{MERGING_COUNT_MAX, Refusal, TopicSettings};

/// Maximum number of topics of a broker: twice as many as one owner can have.
const TOPIC_COUNT_MAX: usize = 20_000;

/// Maximum number of topics on durable volumes. The broker's state has two more.
const DURABLE_TOPIC_COUNT_MAX: usize = DURABLE_COUNT_MAX - 2;

/// Kinds of places and their maximum numbers.
const KINDS: [(usize, &str); 3] = [
    (TOPIC_COUNT_MAX, "topics"),
    (DURABLE_TOPIC_COUNT_MAX, "topics of class image or journal"),
    (MERGING_COUNT_MAX, "topics with memlane.values=merge"),
];

/// Number of places of each kind that a topic takes.
type Taken = [usize; KINDS.len()];

const NOTHING: Taken = [0; KINDS.len()];

#[derive(Debug, Default)]
pub(super) struct Places {
    by_topic: HashMap<Uuid, (Owner, Taken)>,
    shares: [Shares; KINDS.len()],
}

impl Places {
    /// Rejects a topic whose owner has used up its share.
    pub(super) fn check(&self, owner: Owner, settings: &TopicSettings) -> Result<(), Refusal> {
        self.check_more(owner, NOTHING, taken_by(settings))
    }

    /// Same, for a change of an existing topic.
    pub(super) fn check_change(&self, id: Uuid, settings: &TopicSettings) -> Result<(), Refusal> {
        match self.by_topic.get(&id) {
            Some((owner, before)) => self.check_more(*owner, *before, taken_by(settings)),
            None => Ok(()),
        }
    }

    fn check_more(&self, owner: Owner, before: Taken, after: Taken) -> Result<(), Refusal> {
        for (kind, (most, what)) in KINDS.into_iter().enumerate() {
            let shares = &self.shares[kind];
            if after[kind] > before[kind] && !shares.has_room(owner, 1, most) {
                let taken = shares.total();
                let message = format!(
                    "too many {what}: {taken} of {most} are in use, and this user has used up its \
                     share; delete some"
                );
                return Err(Refusal::new(ResponseError::PolicyViolation, message));
            }
        }
        Ok(())
    }

    /// Counts a topic for its owner.
    pub(super) fn take(&mut self, id: Uuid, owner: Owner, settings: &TopicSettings) {
        self.give_back(id);
        let taken = taken_by(settings);
        self.by_topic.insert(id, (owner, taken));
        self.shares.iter_mut().zip(taken).for_each(|(shares, amount)| shares.take(owner, amount));
    }

    /// Updates the places of an existing topic after a change of its settings.
    pub(super) fn change(&mut self, id: Uuid, settings: &TopicSettings) {
        if let Some((owner, _)) = self.by_topic.get(&id) {
            self.take(id, *owner, settings);
        }
    }

    pub(super) fn give_back(&mut self, id: Uuid) {
        if let Some((owner, taken)) = self.by_topic.remove(&id) {
            let each = self.shares.iter_mut().zip(taken);
            each.for_each(|(shares, amount)| shares.give_back(owner, amount));
        }
    }
}

fn taken_by(settings: &TopicSettings) -> Taken {
    let is_durable = settings.class.durability != Durability::Ram;
    [1, usize::from(is_durable), usize::from(settings.merges_values)]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn settings(own: &[(&str, &str)]) -> TopicSettings {
        let own = own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        TopicSettings::new(own.collect(), &BTreeMap::new()).expect("they are valid")
    }

    fn of_class(durability: &str) -> TopicSettings {
        settings(&[("memlane.durability", durability)])
    }

    /// Takes places until the owner's share is used up. Returns their number.
    fn take_all(places: &mut Places, owner: Owner, settings: &TopicSettings) -> usize {
        let mut taken = 0;
        while places.check(owner, settings).is_ok() {
            places.take(Uuid::from_u128(places.by_topic.len() as u128), owner, settings);
            taken += 1;
        }
        taken
    }

    #[test]
    fn whoever_makes_topics_without_end_leaves_as_many_to_others() {
        let (one, two) = (Owner(1), Owner(2));
        let (mut places, ram, journal) = (Places::default(), of_class("ram"), of_class("journal"));
        assert_eq!(take_all(&mut places, one, &journal), 1_023);
        assert_eq!(take_all(&mut places, two, &journal), 511);
        let of_one = 1_023 + take_all(&mut places, one, &ram);
        assert!((9_500..10_000).contains(&of_one), "{of_one}");
        assert!(take_all(&mut places, two, &ram) > 4_000);
        places.check(Owner(3), &of_class("image")).expect("there is room");
        let merging = settings(&[("memlane.values", "merge")]);
        assert_eq!(take_all(&mut places, Owner(3), &merging), MERGING_COUNT_MAX / 2);
        places.check(Owner(4), &merging).expect("there is room");
    }

    #[test]
    fn a_topic_is_counted_once_by_its_settings_until_it_is_deleted() {
        let mut places = Places::default();
        let (id, owner) = (Uuid::from_u128(7), Owner(1));
        places.take(id, owner, &of_class("ram"));
        for (class, durable) in [("journal", 1), ("image", 1), ("ram", 0)] {
            places.check_change(id, &of_class(class)).expect("there is room");
            places.change(id, &of_class(class));
            assert_eq!(places.shares.each_ref().map(|it| it.of(owner)), [1, durable, 0]);
        }
        places.give_back(id);
        places.give_back(id);
        places.change(id, &of_class("journal"));
        assert_eq!(places.shares.each_ref().map(Shares::total), NOTHING);
    }
}
