//! Target assignments: lookup of topics, matching of patterns, assignment.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use kafka_protocol::protocol::StrBytes;
use random::scramble;
use uuid::Uuid;

use super::assignors::{Subscriber, UNIFORM, assign};
use super::group::{ConsumerGroup, Member, Partitions};
use crate::effect::CallContext;
use crate::subscriptions::compile;
use crate::topics::{TopicShape, Topics};

impl ConsumerGroup {
    /// Looks up topics again if they or the subscriptions have changed. Returns whether the targets
    /// are outdated.
    pub(super) fn refresh(&mut self, topics: &dyn Topics) -> bool {
        if self.topics_version != Some(topics.version()) {
            self.topics_version = Some(topics.version());
            self.matches.clear();
        }
        self.match_patterns(topics);
        let hash = self.hash(&self.shapes(topics), topics);
        std::mem::replace(&mut self.shapes_hash, hash) != hash
    }

    fn match_patterns(&mut self, topics: &dyn Topics) {
        let members = self.members.values();
        let used: BTreeSet<&StrBytes> =
            members.filter_map(|it| it.profile.pattern.as_ref()).collect();
        self.matches.retain(|pattern, _| used.contains(pattern));
        for pattern in used {
            if self.matches.contains_key(pattern) {
                continue;
            }
            let mut names = BTreeSet::new();
            // Patterns were validated before. One that no longer compiles matches nothing.
            if let Ok(compiled) = compile(pattern) {
                topics.each_name(&mut |name| {
                    if compiled.is_match(name) {
                        names.insert(StrBytes::from_string(name.to_owned()));
                    }
                    ControlFlow::Continue(())
                });
            }
            self.matches.insert(pattern.clone(), names);
        }
    }

    /// Returns the names of topics to which a member subscribes, existing or not. Patterns match
    /// only topics that the member is authorized to see.
    fn names_of<'a>(
        &'a self,
        member: &'a Member,
        topics: &'a dyn Topics,
    ) -> impl Iterator<Item = &'a StrBytes> {
        let is_seen = topics.sight(member.profile.viewer());
        let shown = self.matches_of(member).filter(move |name| is_seen(name));
        member.profile.names.iter().chain(shown)
    }

    fn matches_of<'a>(&'a self, member: &Member) -> impl Iterator<Item = &'a StrBytes> {
        let pattern = member.profile.pattern.as_ref();
        pattern.and_then(|it| self.matches.get(it)).into_iter().flatten()
    }

    /// Returns the existing topics to which members subscribe.
    fn shapes(&self, topics: &dyn Topics) -> BTreeMap<StrBytes, TopicShape> {
        let names: BTreeSet<&StrBytes> =
            self.members.values().flat_map(|it| self.names_of(it, topics)).collect();
        let shape = |name: &StrBytes| topics.by_name(name).map(|it| (name.clone(), it));
        names.into_iter().filter_map(shape).collect()
    }

    /// Returns the assignor that most members request.
    fn favourite_assignor(&self) -> StrBytes {
        let mut votes: BTreeMap<&StrBytes, usize> = BTreeMap::new();
        for assignor in self.members.values().filter_map(|it| it.profile.assignor.as_ref()) {
            *votes.entry(assignor).or_default() += 1;
        }
        let most = votes.into_iter().max_by_key(|(_, count)| *count);
        most.map_or(StrBytes::from_static_str(UNIFORM), |(name, _)| name.clone())
    }

    /// Computes the targets of the group's epoch.
    pub(super) fn assign(&mut self, topics: &dyn Topics, context: &mut CallContext<'_>) {
        let shapes = self.shapes(topics);
        let assignor = self.favourite_assignor();
        let subscribers: Vec<Subscriber<'_>> = self
            .members
            .iter()
            .map(|(id, member)| Subscriber {
                rank: member.profile.instance.as_ref().unwrap_or(id),
                topics: self
                    .names_of(member, topics)
                    .filter_map(|it| Some(shapes.get(it)?.id))
                    .collect(),
                current: self.targets.get(id),
            })
            .collect();
        let count = |shape: &TopicShape| i32::try_from(shape.partition_count).unwrap_or(i32::MAX);
        let counts: BTreeMap<Uuid, i32> = shapes.values().map(|it| (it.id, count(it))).collect();
        let assigned = assign(&assignor, &subscribers, &counts);
        let ids: Vec<StrBytes> = self.members.keys().cloned().collect();
        for (id, target) in ids.into_iter().zip(assigned) {
            self.set_target(id, target, context);
        }
        self.assignor = assignor;
        self.shapes_hash = self.hash(&shapes, topics);
        self.assignment_epoch = self.epoch;
        self.persist(context);
    }

    /// Hashes the topics, their sizes, and which of them are hidden from which members. The hash is
    /// stored, so the algorithm must not change.
    fn hash(&self, shapes: &BTreeMap<StrBytes, TopicShape>, topics: &dyn Topics) -> u64 {
        let mut hash = hash(shapes);
        for (id, member) in self.members.iter().filter(|(_, it)| it.profile.pattern.is_some()) {
            let is_seen = topics.sight(member.profile.viewer());
            for name in self.matches_of(member).filter(|name| !is_seen(name)) {
                hash = hash_text(hash_text(hash, id), name);
            }
        }
        hash
    }

    fn set_target(
        &mut self,
        member_id: StrBytes,
        target: Partitions,
        context: &mut CallContext<'_>,
    ) {
        if self.targets.get(&member_id).is_some_and(|it| *it == target) {
            return;
        }
        context.persist(self.target_record(&member_id, &target));
        self.targets.insert(member_id, target);
    }
}

fn hash_text(hash: u64, text: &str) -> u64 {
    text.bytes().fold(hash, |hash, byte| scramble(hash ^ u64::from(byte)))
}

fn hash(shapes: &BTreeMap<StrBytes, TopicShape>) -> u64 {
    shapes.values().fold(0, |hash, shape| {
        let (high, low) = shape.id.as_u64_pair();
        let mixed = scramble(scramble(hash ^ high) ^ low);
        scramble(mixed ^ u64::from(shape.partition_count))
    })
}
