//! Storage of a classic group in the state log: one record with all members.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use super::group::{ClassicGroup, Member, Phase, Protocol};
use crate::effect::{CallContext, Record};
use crate::fields::{Reader, Writer};
use crate::keys::Key;

/// First byte of a classic group's record.
const KIND_CLASSIC: u8 = 1;

impl ClassicGroup {
    /// Stores the group after a rebalance.
    pub(super) fn persist(&mut self, context: &mut CallContext<'_>) {
        let record = self.encode();
        self.durable.clone_from(&record.value);
        context.persist(record);
        // The group's record now contains all member ids.
        if !std::mem::take(&mut self.told).is_empty() {
            context.persist(self.generation_record());
        }
    }

    /// Stores members that must join before they have a generation, without a protocol.
    pub(super) fn persist_unassigned(&mut self, context: &mut CallContext<'_>) {
        let protocol = self.protocol.take();
        self.persist(context);
        self.protocol = protocol;
        context.persist(self.generation_record());
    }

    /// Stores what members learn before the generation is stable: its number, and the latest ids of
    /// static members.
    pub(super) fn persist_generation(&mut self, context: &mut CallContext<'_>) {
        // Members that left after the group was stored reappear after a restart, with these ids.
        let stored = self.durable.as_deref().and_then(|it| Self::decode(self.id.clone(), it));
        let returning = stored.map(|it| it.instances).unwrap_or_default();
        self.told.retain(|instance, _| returning.contains_key(instance));
        self.told.extend(self.instances.clone());
        context.persist(self.generation_record());
    }

    fn generation_record(&self) -> Record {
        let mut value = Writer::default();
        value.i32(self.generation_max);
        // Omitted if empty, in the format of earlier releases.
        if !self.told.is_empty() {
            value.count(self.told.len());
            for (instance, id) in &self.told {
                value.text(instance).text(id);
            }
        }
        Key::Generation(self.id.clone()).with(value)
    }

    /// Loads the generation's record.
    pub(crate) fn load_generation(&mut self, bytes: &[u8]) -> Option<()> {
        let mut value = Reader::new(bytes);
        let generation = value.i32()?;
        let told = match value.is_done() {
            true => Vec::new(),
            false => value.list(|value| Some((value.text()?, value.text()?)))?,
        };
        if !value.is_done() {
            return None;
        }
        self.generation_max = generation.max(self.generation);
        for (instance, id) in &told {
            self.rename(instance, id);
        }
        self.told = told.into_iter().collect();
        Some(())
    }

    /// Sets a static member's id to the last one that it was told.
    fn rename(&mut self, instance: &StrBytes, id: &StrBytes) {
        let Some(current) = self.instances.get_mut(instance).filter(|it| *it != id) else { return };
        let before = std::mem::replace(current, id.clone());
        let member = self.members.remove(&before).expect("an instance has its member");
        self.members.insert(id.clone(), member);
        if self.is_leader(&before) {
            self.leader = Some(id.clone());
        }
    }

    /// Returns the records of the group: the last stable generation and the highest generation
    /// number.
    pub(crate) fn records(&self) -> Vec<Record> {
        let Some(value) = self.durable.clone() else { return Vec::new() };
        let group = Record { key: Key::Group(self.id.clone()).encode(), value: Some(value) };
        vec![group, self.generation_record()]
    }

    /// Creates an empty classic group in place of a consumer group. Its generations continue from
    /// `epoch`.
    pub(crate) fn take_over(id: StrBytes, epoch: i32, context: &mut CallContext<'_>) -> Self {
        let mut group = Self::new(id, epoch, context.unix_ms);
        group.persist(context);
        group
    }

    /// Returns the deletion of the highest generation, which a consumer group stores as its epoch.
    pub(crate) fn generation_gone(&self) -> Record {
        Key::Generation(self.id.clone()).gone()
    }

    /// Returns records that delete the group.
    pub(crate) fn gone(&self) -> Vec<Record> {
        vec![self.generation_gone(), Key::Group(self.id.clone()).gone()]
    }

    fn encode(&self) -> Record {
        let mut value = Writer::default();
        value.u8(KIND_CLASSIC).i64(self.since_ms).i32(self.generation);
        value.maybe_text(self.protocol_type.as_ref()).maybe_text(self.protocol.as_ref());
        value.maybe_text(self.leader.as_ref()).count(self.members.len());
        for (id, member) in &self.members {
            value.text(id).maybe_text(member.instance.as_ref());
            value.text(&member.client_id).text(&member.host);
            value.i32(member.session_timeout_ms).i32(member.rebalance_timeout_ms);
            value.bytes(&member.assignment).count(member.protocols.len());
            for protocol in &member.protocols {
                value.text(&protocol.name).bytes(&protocol.metadata);
            }
        }
        Key::Group(self.id.clone()).with(value)
    }

    /// Decodes a group. Sessions start with `revive`.
    pub(crate) fn decode(id: StrBytes, bytes: &[u8]) -> Option<Self> {
        let mut value = Reader::new(bytes);
        if value.u8()? != KIND_CLASSIC {
            return None;
        }
        let since_ms = value.i64()?;
        let generation = value.i32()?;
        let mut group = Self::new(id, generation, since_ms);
        group.protocol_type = value.maybe_text()?;
        group.protocol = value.maybe_text()?;
        group.leader = value.maybe_text()?;
        group.members = value.list(decode_member)?.into_iter().collect();
        for (id, member) in &group.members {
            if let Some(instance) = &member.instance {
                group.instances.insert(instance.clone(), id.clone());
            }
        }
        if !group.members.is_empty() {
            group.phase = Phase::Stable;
            if group.protocol.is_none() {
                group.phase = Phase::PreparingRebalance;
                group.protocol = group.select_protocol();
            }
        }
        group.durable = Some(Bytes::copy_from_slice(bytes));
        value.is_done().then_some(group)
    }
}

fn decode_member(value: &mut Reader<'_>) -> Option<(StrBytes, Member)> {
    let id = value.text()?;
    let member = Member {
        instance: value.maybe_text()?,
        client_id: value.text()?,
        host: value.text()?,
        session_timeout_ms: value.i32()?,
        rebalance_timeout_ms: value.i32()?,
        assignment: value.bytes()?,
        protocols: value
            .list(|value| Some(Protocol { name: value.text()?, metadata: value.bytes()? }))?,
        session_until_ms: 0,
        is_new: false,
        owes_sync: false,
        former_epoch: None,
        join: None,
        sync: None,
    };
    Some((id, member))
}
