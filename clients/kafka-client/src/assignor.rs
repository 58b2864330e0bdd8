//! Range assignor: each member that subscribes to a topic gets a contiguous range of its
//! partitions.
//!
//! Members are sorted by id. If the number of partitions is not a multiple of the number of
//! members, the first members get one partition more. Source: Apache Kafka, `RangeAssignor`.

use std::collections::{BTreeMap, BTreeSet};

/// Partitions by topic.
pub(crate) type Assignment = BTreeMap<String, Vec<i32>>;

/// Name of the assignor in the group protocol.
pub(crate) const NAME: &str = "range";

/// Assigns partitions to members. `subscriptions` are the topics of each member, `counts` the
/// numbers of partitions of existing topics.
pub(crate) fn assign(
    subscriptions: &BTreeMap<String, BTreeSet<String>>,
    counts: &BTreeMap<String, i32>,
) -> BTreeMap<String, Assignment> {
    let mut assignments: BTreeMap<String, Assignment> =
        subscriptions.keys().map(|member| (member.clone(), Assignment::new())).collect();
    for (topic, &count) in counts {
        let wants = |(_, topics): &(&String, &BTreeSet<String>)| topics.contains(topic);
        let members: Vec<_> = subscriptions.iter().filter(wants).map(|(id, _)| id).collect();
        let Ok(member_count) = i32::try_from(members.len()) else { continue };
        let mut start = 0;
        for (index, member) in (0..).zip(members) {
            let length = count / member_count + i32::from(index < count % member_count);
            if let (1.., Some(assignment)) = (length, assignments.get_mut(member)) {
                assignment.insert(topic.clone(), (start..start + length).collect());
            }
            start += length;
        }
    }
    assignments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(members: &[(&str, &str)], counts: &[(&str, i32)], expected: &[(&str, &str, &[i32])]) {
        let topics = |topics: &str| topics.split(' ').map(str::to_owned).collect();
        let members = members.iter().map(|(id, it)| ((*id).to_owned(), topics(it))).collect();
        let counts = counts.iter().map(|(topic, count)| ((*topic).to_owned(), *count)).collect();
        let found = assign(&members, &counts);
        let found: Vec<_> = found
            .iter()
            .flat_map(|(member, it)| it.iter().map(move |(topic, them)| (member, topic, them)))
            .map(|(member, topic, them)| (member.as_str(), topic.as_str(), &them[..]))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn members_get_runs_of_partitions() {
        check(&[("a", "t"), ("b", "t")], &[("t", 3)], &[("a", "t", &[0, 1]), ("b", "t", &[2])]);
        check(
            &[("a", "t u"), ("b", "t u")],
            &[("t", 2), ("u", 1)],
            &[("a", "t", &[0]), ("a", "u", &[0]), ("b", "t", &[1])],
        );
    }

    #[test]
    fn a_member_gets_nothing_of_a_topic_that_it_did_not_ask_for() {
        check(
            &[("a", "t"), ("b", "u")],
            &[("t", 2), ("u", 1)],
            &[("a", "t", &[0, 1]), ("b", "u", &[0])],
        );
        check(&[("a", "gone")], &[("t", 2)], &[]);
    }

    #[test]
    fn members_without_a_partition_stay_members() {
        let members = ["a", "b"].map(|it| (it.to_owned(), BTreeSet::from(["t".to_owned()])));
        let found = assign(&members.into(), &BTreeMap::from([("t".to_owned(), 1)]));
        assert!(found["b"].is_empty());
    }
}
