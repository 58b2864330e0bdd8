//! Server-side assignors `uniform` and `range` of KIP-848.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::group::{Partition, Partitions};

/// Distributes partitions evenly and minimizes movements. The default.
pub(crate) const UNIFORM: &str = "uniform";

/// Divides each topic into ranges, one for each member. Equal indexes are assigned to the same
/// member.
pub(crate) const RANGE: &str = "range";

/// Maximum balancing passes over all partitions if subscriptions differ.
const BALANCING_PASS_COUNT: usize = 16;

pub(crate) fn is_known_assignor(name: &str) -> bool {
    [UNIFORM, RANGE].contains(&name)
}

/// Input of an assignor for one member.
pub(super) struct Subscriber<'a> {
    /// Sort key of members. A static one keeps its position under a new id.
    pub(super) rank: &'a StrBytes,
    pub(super) topics: BTreeSet<Uuid>,
    /// Current target assignment.
    pub(super) current: Option<&'a Partitions>,
}

/// Returns the partitions of each subscriber, in order. `counts` are the partition counts of
/// topics.
pub(super) fn assign(
    assignor: &str,
    subscribers: &[Subscriber<'_>],
    counts: &BTreeMap<Uuid, i32>,
) -> Vec<Partitions> {
    let is_alike = subscribers.windows(2).all(|pair| pair[0].topics == pair[1].topics);
    match assignor {
        RANGE => range(subscribers, counts),
        _ if is_alike => uniform_alike(subscribers, counts),
        _ => uniform_mixed(subscribers, counts),
    }
}

fn range(subscribers: &[Subscriber<'_>], counts: &BTreeMap<Uuid, i32>) -> Vec<Partitions> {
    let mut order: Vec<usize> = (0..subscribers.len()).collect();
    order.sort_by_key(|it| subscribers[*it].rank);
    let mut assigned = vec![Partitions::new(); subscribers.len()];
    for (topic, count) in counts {
        let readers: Vec<usize> =
            order.iter().copied().filter(|it| subscribers[*it].topics.contains(topic)).collect();
        let mut start = 0;
        for (place, reader) in readers.iter().enumerate() {
            let left = i32::try_from(readers.len() - place).expect("members are limited");
            let length = (count - start + left - 1) / left;
            let indexes = start..start + length;
            assigned[*reader].extend(indexes.map(|index| Partition { topic: *topic, index }));
            start += length;
        }
    }
    assigned
}

/// Iterates over the partitions of all subscribed topics.
fn partitions(
    subscribers: &[Subscriber<'_>],
    counts: &BTreeMap<Uuid, i32>,
) -> impl Iterator<Item = Partition> {
    let read: BTreeSet<Uuid> =
        subscribers.iter().flat_map(|it| it.topics.iter().copied()).collect();
    let topics = counts.iter().filter(move |(topic, _)| read.contains(topic));
    topics.flat_map(|(topic, count)| (0..*count).map(|index| Partition { topic: *topic, index }))
}

/// Iterates over the partitions of its target that a member can keep.
fn kept<'a>(
    subscriber: &'a Subscriber<'_>,
    counts: &'a BTreeMap<Uuid, i32>,
) -> impl Iterator<Item = Partition> + 'a {
    let current = subscriber.current.into_iter().flatten().copied();
    current.filter(|it| {
        subscriber.topics.contains(&it.topic)
            && counts.get(&it.topic).is_some_and(|count| it.index < *count)
    })
}

/// Assigns if subscriptions are equal: each member keeps partitions up to its share, and free ones
/// fill up the others.
fn uniform_alike(subscribers: &[Subscriber<'_>], counts: &BTreeMap<Uuid, i32>) -> Vec<Partitions> {
    let mut free: Partitions = partitions(subscribers, counts).collect();
    let share = free.len() / subscribers.len().max(1);
    let mut larger_count = free.len() % subscribers.len().max(1);
    let mut assigned = Vec::with_capacity(subscribers.len());
    for subscriber in subscribers {
        let mut partitions = Partitions::new();
        for partition in kept(subscriber, counts) {
            if partitions.len() >= share + usize::from(larger_count > 0) {
                break;
            }
            if free.remove(&partition) {
                larger_count -= usize::from(partitions.len() == share);
                partitions.insert(partition);
            }
        }
        assigned.push(partitions);
    }
    for partitions in &mut assigned {
        while partitions.len() < share {
            partitions.insert(free.pop_first().expect("shares add up to all partitions"));
        }
    }
    let shares = assigned.iter_mut().filter(|it| it.len() == share);
    for (partitions, partition) in shares.zip(free) {
        partitions.insert(partition);
    }
    assigned
}

/// Assigns if subscriptions differ: free partitions go to the least loaded subscribers. Then
/// members hand over partitions to subscribers that have at least two fewer.
fn uniform_mixed(subscribers: &[Subscriber<'_>], counts: &BTreeMap<Uuid, i32>) -> Vec<Partitions> {
    let mut readers: BTreeMap<Uuid, Vec<usize>> = BTreeMap::new();
    for (index, subscriber) in subscribers.iter().enumerate() {
        for topic in &subscriber.topics {
            readers.entry(*topic).or_default().push(index);
        }
    }
    let mut owners: BTreeMap<Partition, usize> = BTreeMap::new();
    let mut loads = vec![0_usize; subscribers.len()];
    for (index, subscriber) in subscribers.iter().enumerate() {
        for partition in kept(subscriber, counts) {
            if owners.insert(partition, index).is_none() {
                loads[index] += 1;
            }
        }
    }
    let mut free: Vec<Partition> =
        partitions(subscribers, counts).filter(|it| !owners.contains_key(it)).collect();
    // Partitions with few subscribers are assigned first.
    free.sort_by_key(|it| (readers[&it.topic].len(), *it));
    let least = |loads: &[usize], topic: &Uuid| {
        readers[topic].iter().copied().min_by_key(|it| loads[*it]).expect("somebody reads it")
    };
    for partition in free {
        let reader = least(&loads, &partition.topic);
        owners.insert(partition, reader);
        loads[reader] += 1;
    }
    for _ in 0..BALANCING_PASS_COUNT {
        let mut moved = false;
        for (partition, owner) in &mut owners {
            let reader = least(&loads, &partition.topic);
            if loads[reader] + 1 < loads[*owner] {
                loads[*owner] -= 1;
                loads[reader] += 1;
                *owner = reader;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    let mut assigned = vec![Partitions::new(); subscribers.len()];
    for (partition, owner) in owners {
        assigned[owner].insert(partition);
    }
    assigned
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Random, for_each_seed};

    fn topic(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    /// Computes a new assignment for members with these topics and targets.
    fn assign_to(
        assignor: &str,
        members: &[(BTreeSet<Uuid>, Partitions)],
        counts: &BTreeMap<Uuid, i32>,
    ) -> Vec<Partitions> {
        let ranks: Vec<StrBytes> =
            (0..members.len()).map(|it| StrBytes::from_string(format!("{it:04}"))).collect();
        let subscribers: Vec<Subscriber<'_>> = members
            .iter()
            .zip(&ranks)
            .map(|((topics, current), rank)| Subscriber {
                rank,
                topics: topics.clone(),
                current: Some(current),
            })
            .collect();
        assign(assignor, &subscribers, counts)
    }

    #[test]
    fn ranges_put_equal_indexes_together() {
        let counts = BTreeMap::from([(topic(1), 5), (topic(2), 5)]);
        let both: BTreeSet<Uuid> = counts.keys().copied().collect();
        let assigned = assign_to(RANGE, &vec![(both, Partitions::new()); 2], &counts);
        let indexes: Vec<Vec<i32>> =
            assigned.iter().map(|it| it.iter().map(|it| it.index).collect()).collect();
        assert_eq!(indexes, [vec![0, 1, 2, 0, 1, 2], vec![3, 4, 3, 4]]);
    }

    /// Generates members with random topics, some of whose targets are outdated.
    fn check(random: &mut Random, assignor: &str, alike: bool) {
        let all: Vec<Uuid> = (0..1 + random.below(4)).map(|it| topic(it.into())).collect();
        let mut counts: BTreeMap<Uuid, i32> = BTreeMap::new();
        let mut members: Vec<(BTreeSet<Uuid>, Partitions)> = Vec::new();
        for _ in 0..6 {
            for id in &all {
                counts.insert(*id, i32::try_from(random.below(12)).expect("small"));
            }
            for _ in 0..random.below(4) {
                let topics = all.iter().copied().filter(|_| alike || random.one_in(2)).collect();
                members.push((topics, Partitions::new()));
            }
            if !members.is_empty() && random.one_in(3) {
                members.remove(random.index(members.len()));
            }
            let assigned = assign_to(assignor, &members, &counts);
            for ((topics, _), partitions) in members.iter().zip(&assigned) {
                assert!(partitions.iter().all(|it| topics.contains(&it.topic)));
            }
            let wanted: Partitions = counts
                .iter()
                .filter(|(id, _)| members.iter().any(|(topics, _)| topics.contains(id)))
                .flat_map(|(id, count)| (0..*count).map(|index| Partition { topic: *id, index }))
                .collect();
            let given: usize = assigned.iter().map(BTreeSet::len).sum();
            assert_eq!(given, wanted.len(), "each partition is given once");
            assert_eq!(assigned.iter().flatten().copied().collect::<Partitions>(), wanted);
            if alike && assignor == UNIFORM {
                let loads: Vec<usize> = assigned.iter().map(BTreeSet::len).collect();
                let most = loads.iter().max().copied().unwrap_or(0);
                let least = loads.iter().min().copied().unwrap_or(0);
                assert!(most - least <= 1, "{loads:?} is not even");
                let moved: usize = members
                    .iter()
                    .zip(&assigned)
                    .map(|((_, before), after)| {
                        before.intersection(&wanted).count().min(most)
                            - before.intersection(after).count().min(most)
                    })
                    .sum();
                assert!(moved <= members.len(), "{moved} partitions moved without need");
            }
            for (member, partitions) in members.iter_mut().zip(assigned) {
                member.1 = partitions;
            }
            let again = assign_to(assignor, &members, &counts);
            assert!(members.iter().zip(&again).all(|((_, before), after)| before == after));
        }
    }

    #[test]
    fn every_partition_is_given_to_one_reader_and_stays_there() {
        let replay = "cargo test -p consumer-groups --lib every_partition";
        for_each_seed(replay, 200, |seed| {
            let random = &mut Random::new(seed);
            check(random, UNIFORM, true);
            check(random, UNIFORM, false);
            check(random, RANGE, false);
        });
    }
}
