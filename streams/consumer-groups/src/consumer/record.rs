//! Storage of a consumer group in the state log: records of the group, each member, each target.

use kafka_protocol::protocol::StrBytes;

use super::group::{ClassicTerms, ConsumerGroup, Member, Partition, Partitions, Profile, by_topic};
use crate::classic::Protocol;
use crate::effect::{CallContext, Record};
use crate::fields::{Reader, Writer};
use crate::keys::Key;

/// First byte of a consumer group's record.
pub(crate) const KIND_CONSUMER: u8 = 2;

/// First byte if the record converts a classic group. It contains the members, so that no prefix of
/// the log contains only some of them.
pub(crate) const KIND_CONVERTED: u8 = 3;

impl ConsumerGroup {
    /// Stores the group without its members.
    pub(super) fn persist(&mut self, context: &mut CallContext<'_>) {
        self.is_stored = true;
        context.persist(self.group_record());
    }

    /// Stores the group with all members that were converted from a classic group.
    pub(crate) fn persist_conversion(&mut self, context: &mut CallContext<'_>) {
        self.is_stored = true;
        let mut value = Writer::default();
        self.put_group(KIND_CONVERTED, &mut value);
        value.count(self.members.len());
        for (id, member) in &self.members {
            let mut fields = Writer::default();
            put_member(&mut fields, member);
            value.text(id).bytes(&fields.done());
        }
        context.persist(Key::Group(self.id.clone()).with(value));
        // A later record of the group, without members, replaces this one.
        for (id, member) in &self.members {
            context.persist(self.member_record(id, member));
            context.persist(self.target_record(id, &self.targets[id]));
        }
    }

    pub(super) fn persist_member(&self, member_id: &StrBytes, context: &mut CallContext<'_>) {
        context.persist(self.member_record(member_id, &self.members[member_id]));
    }

    pub(crate) fn persist_removal(&self, member_id: &StrBytes, context: &mut CallContext<'_>) {
        context.persist(Key::Target(self.id.clone(), member_id.clone()).gone());
        context.persist(Key::Member(self.id.clone(), member_id.clone()).gone());
    }

    fn group_record(&self) -> Record {
        let mut value = Writer::default();
        self.put_group(KIND_CONSUMER, &mut value);
        Key::Group(self.id.clone()).with(value)
    }

    fn put_group(&self, kind: u8, value: &mut Writer) {
        value.u8(kind).i64(self.since_ms).i32(self.epoch).i32(self.assignment_epoch);
        value.u64(self.shapes_hash).text(&self.assignor);
    }

    fn member_record(&self, member_id: &StrBytes, member: &Member) -> Record {
        let mut value = Writer::default();
        put_member(&mut value, member);
        Key::Member(self.id.clone(), member_id.clone()).with(value)
    }

    pub(super) fn target_record(&self, member_id: &StrBytes, target: &Partitions) -> Record {
        let mut value = Writer::default();
        put_partitions(&mut value, target);
        Key::Target(self.id.clone(), member_id.clone()).with(value)
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        if !self.is_stored {
            return Vec::new();
        }
        let members = self.members.iter().map(|(id, it)| self.member_record(id, it));
        let targets = self.targets.iter().map(|(id, it)| self.target_record(id, it));
        std::iter::once(self.group_record()).chain(members).chain(targets).collect()
    }

    /// Loads the group's record. Members may have been loaded before it.
    pub(crate) fn load(&mut self, value: &[u8]) -> Option<()> {
        let mut value = Reader::new(value);
        let kind = value.u8()?;
        if ![KIND_CONSUMER, KIND_CONVERTED].contains(&kind) {
            return None;
        }
        let since_ms = value.i64()?;
        let (epoch, assignment_epoch) = (value.i32()?, value.i32()?);
        let (shapes_hash, assignor) = (value.u64()?, value.text()?);
        if kind == KIND_CONVERTED {
            for (id, member) in value.list(|it| Some((it.text()?, decode_member(&it.bytes()?)?)))? {
                self.targets.insert(id.clone(), member.assigned.clone());
                self.members.insert(id, member);
            }
        }
        if !value.is_done() {
            return None;
        }
        (self.since_ms, self.epoch, self.assignment_epoch) = (since_ms, epoch, assignment_epoch);
        (self.shapes_hash, self.assignor, self.is_stored) = (shapes_hash, assignor, true);
        Some(())
    }

    /// Completes the state after loading, and starts new sessions of all members.
    pub(crate) fn revive(&mut self, session_timeout_ms: i32, now_ms: i64) {
        self.targets.retain(|id, _| self.members.contains_key(id));
        for (id, member) in &mut self.members {
            if let Some(instance) = &member.profile.instance {
                self.instances.insert(instance.clone(), id.clone());
            }
            for partition in member.assigned.union(&member.revoking) {
                self.owners.insert(*partition, id.clone());
            }
            member.begin_session(session_timeout_ms, now_ms);
            let revoke_until_ms = now_ms + i64::from(member.profile.rebalance_timeout_ms);
            member.revoke_until_ms = (!member.revoking.is_empty()).then_some(revoke_until_ms);
        }
    }
}

fn put_member(value: &mut Writer, member: &Member) {
    let profile = &member.profile;
    value.maybe_text(profile.instance.as_ref()).maybe_text(profile.rack.as_ref());
    value.text(&profile.client_id).text(&profile.host).i32(profile.rebalance_timeout_ms);
    value.count(profile.names.len());
    for name in &profile.names {
        value.text(name);
    }
    value.maybe_text(profile.pattern.as_ref()).maybe_text(profile.assignor.as_ref());
    value.i32(member.epoch).i32(member.previous_epoch);
    put_partitions(value, &member.assigned);
    put_partitions(value, &member.revoking);
    value.text(&profile.principal);
    // Omitted for others, in the format of earlier releases.
    if let Some(terms) = &member.classic {
        value.i32(terms.session_timeout_ms).count(terms.protocols.len());
        for protocol in &terms.protocols {
            value.text(&protocol.name).bytes(&protocol.metadata);
        }
    }
}

fn take_terms(value: &mut Reader<'_>) -> Option<ClassicTerms> {
    let session_timeout_ms = value.i32()?;
    let protocols =
        value.list(|value| Some(Protocol { name: value.text()?, metadata: value.bytes()? }))?;
    Some(ClassicTerms { session_timeout_ms, protocols })
}

fn put_partitions(value: &mut Writer, partitions: &Partitions) {
    let topics = by_topic(partitions);
    value.count(topics.len());
    for (topic, indexes) in topics {
        value.id(topic).count(indexes.len());
        for index in indexes {
            value.i32(index);
        }
    }
}

fn take_partitions(value: &mut Reader<'_>) -> Option<Partitions> {
    let topics = value.list(|value| {
        let topic = value.id()?;
        value.list(|value| Some(Partition { topic, index: value.i32()? }))
    })?;
    Some(topics.into_iter().flatten().collect())
}

pub(crate) fn decode_member(value: &[u8]) -> Option<Member> {
    let mut value = Reader::new(value);
    let mut profile = Profile {
        instance: value.maybe_text()?,
        rack: value.maybe_text()?,
        client_id: value.text()?,
        host: value.text()?,
        principal: StrBytes::default(),
        rebalance_timeout_ms: value.i32()?,
        names: value.list(Reader::text)?.into_iter().collect(),
        pattern: value.maybe_text()?,
        assignor: value.maybe_text()?,
    };
    let (epoch, previous_epoch) = (value.i32()?, value.i32()?);
    let assigned = take_partitions(&mut value)?;
    let revoking = take_partitions(&mut value)?;
    // Absent in older records.
    if !value.is_done() {
        profile.principal = value.text()?;
    }
    let classic = if value.is_done() { None } else { Some(take_terms(&mut value)?) };
    let (session_until_ms, revoke_until_ms) = (0, None);
    let member = Member {
        profile,
        epoch,
        previous_epoch,
        assigned,
        revoking,
        session_until_ms,
        revoke_until_ms,
        classic,
        owes_until_ms: None,
    };
    value.is_done().then_some(member)
}

pub(crate) fn decode_target(value: &[u8]) -> Option<Partitions> {
    let mut value = Reader::new(value);
    let target = take_partitions(&mut value)?;
    value.is_done().then_some(target)
}
