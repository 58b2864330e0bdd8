//! OffsetCommit, OffsetDelete, and the offsets of transactions.
//!
//! The owner authorizes access to topics. Their existence is checked here: offsets of deleted
//! topics are not accepted.

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::offset_commit_request::OffsetCommitRequestPartition;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::{
    GroupId, OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse,
    TxnOffsetCommitRequest, TxnOffsetCommitResponse,
};
use kafka_protocol::protocol::StrBytes;

use crate::classic::Committer;
use crate::effect::{CallContext, Caller, Effect, code};
use crate::fields::own;
use crate::groups::{Group, Groups, Kind};
use crate::offsets::{self, Offset, Place, Producer};
use crate::options::{ENTRY_BYTES, ID_BYTES_MAX, TOPIC_BYTES_MAX};
use crate::subscriptions::Subscriptions;
use crate::topics::Topics;

/// Outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionEnd {
    Commit,
    Abort,
}

/// Destination of a commit.
#[derive(Clone, Copy)]
enum Target {
    Committed { expire_ms: Option<i64> },
    Pending(Producer),
}

/// Replaces the error of a full limit by one that consumers report instead of retrying. Producers
/// would fail for good with it, so commits in transactions keep the other.
fn final_if_full(error: ResponseError) -> ResponseError {
    match error {
        ResponseError::CoordinatorNotAvailable => ResponseError::InvalidCommitOffsetSize,
        error => error,
    }
}

/// Offset of one partition in a request.
struct Given<'a> {
    topic: &'a StrBytes,
    /// Partition count of the topic; 0 if it does not exist.
    partition_count: u32,
    partition: i32,
    offset: i64,
    leader_epoch: i32,
    metadata: Option<&'a StrBytes>,
}

impl Groups {
    /// OffsetCommit, versions 2 to 9, by members and by consumers without a group.
    pub fn offset_commit(
        &mut self,
        caller: Caller<'_>,
        request: &OffsetCommitRequest,
        known: &dyn Topics,
        out: &mut Vec<Effect>,
    ) {
        let mut context = Self::context(self.options, self.host_ahead_ms, caller.now_ms, out);
        let committer = Committer {
            member_id: &request.member_id,
            instance: request.group_instance_id.as_ref(),
            epoch: request.generation_id_or_member_epoch,
            is_transactional: false,
        };
        let group_id = &request.group_id.0;
        let checked = self.check_commit(group_id, &committer, &caller).map_err(final_if_full);
        let keep_ms = Some(request.retention_time_ms).filter(|it| *it >= 0);
        let expire_ms = keep_ms.map(|it| context.unix_ms.saturating_add(it));
        let mut topics = Vec::with_capacity(request.topics.len());
        for topic in &request.topics {
            let partition_count = known.by_name(&topic.name).map_or(0, |it| it.partition_count);
            let partitions = topic.partitions.iter().map(|it: &OffsetCommitRequestPartition| {
                let given = Given {
                    topic: &topic.name.0,
                    partition_count,
                    partition: it.partition_index,
                    offset: it.committed_offset,
                    leader_epoch: it.committed_leader_epoch,
                    metadata: it.committed_metadata.as_ref(),
                };
                let target = Target::Committed { expire_ms };
                let mut commit = || self.commit(group_id, &given, target, &mut context);
                let result = checked.and_then(|()| commit().map_err(final_if_full));
                OffsetCommitResponsePartition::default()
                    .with_partition_index(it.partition_index)
                    .with_error_code(code(result))
            });
            let partitions = partitions.collect();
            let answered = OffsetCommitResponseTopic::default().with_name(topic.name.clone());
            topics.push(answered.with_partitions(partitions));
        }
        context.reply(caller.ticket, OffsetCommitResponse::default().with_topics(topics));
        self.settle(group_id);
    }

    /// TxnOffsetCommit, versions 0 to 5: the offsets take effect when the transaction is committed.
    /// The owner has verified that the producer is current and its transaction is open.
    pub fn txn_offset_commit(
        &mut self,
        caller: Caller<'_>,
        request: &TxnOffsetCommitRequest,
        known: &dyn Topics,
        out: &mut Vec<Effect>,
    ) {
        let mut context = Self::context(self.options, self.host_ahead_ms, caller.now_ms, out);
        let committer = Committer {
            member_id: &request.member_id,
            instance: request.group_instance_id.as_ref(),
            epoch: request.generation_id,
            is_transactional: true,
        };
        let producer = Producer { id: request.producer_id.0, epoch: request.producer_epoch };
        let group_id = &request.group_id.0;
        let checked = check_group_or_empty(group_id)
            .and_then(|()| self.check_producer(group_id, producer))
            .and_then(|()| self.check_commit(group_id, &committer, &caller));
        let mut topics = Vec::with_capacity(request.topics.len());
        for topic in &request.topics {
            let partition_count = known.by_name(&topic.name).map_or(0, |it| it.partition_count);
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for it in &topic.partitions {
                let given = Given {
                    topic: &topic.name.0,
                    partition_count,
                    partition: it.partition_index,
                    offset: it.committed_offset,
                    leader_epoch: it.committed_leader_epoch,
                    metadata: it.committed_metadata.as_ref(),
                };
                let target = Target::Pending(producer);
                let result =
                    checked.and_then(|()| self.commit(group_id, &given, target, &mut context));
                let answered = TxnOffsetCommitResponsePartition::default();
                partitions.push(
                    answered.with_partition_index(it.partition_index).with_error_code(code(result)),
                );
            }
            let answered = TxnOffsetCommitResponseTopic::default().with_name(topic.name.clone());
            topics.push(answered.with_partitions(partitions));
        }
        context.reply(caller.ticket, TxnOffsetCommitResponse::default().with_topics(topics));
        self.settle(group_id);
    }

    /// Ends a producer's transaction in all groups: pending offsets are committed or dropped. Has
    /// no effects if nothing is pending, or only offsets of a later epoch, so it is repeatable.
    pub fn end_transaction(
        &mut self,
        producer_id: i64,
        producer_epoch: i16,
        end: TransactionEnd,
        out: &mut Vec<Effect>,
    ) {
        let groups = self.transactions.get(&producer_id).cloned().unwrap_or_default();
        for id in groups {
            let group = self.groups.get_mut(&id).expect("groups of transactions are there");
            if group.offsets.pending_epoch(producer_id).is_none_or(|it| it > producer_epoch) {
                continue;
            }
            for (place, offset) in group.offsets.take_pending(producer_id) {
                let is_latest =
                    group.offsets.get(&place).is_none_or(|before| before.order < offset.order);
                if end == TransactionEnd::Commit && is_latest {
                    out.push(Effect::Persist(offsets::record(&id, &place, &offset)));
                    group.offsets.commit(place.clone(), offset);
                }
                let pending = offsets::pending_key(&id, producer_id, &place);
                out.push(Effect::Persist(pending.gone()));
            }
            self.forget_transaction(producer_id, &id);
            self.settle(&id);
        }
    }

    /// Returns the topics of the pending offsets of a producer's transaction, possibly with
    /// duplicates.
    pub fn pending_topics(&self, producer_id: i64) -> impl Iterator<Item = &StrBytes> {
        let ids = self.transactions.get(&producer_id).into_iter().flatten();
        let groups = ids.filter_map(|id| self.groups.get(id));
        groups.flat_map(move |group| group.offsets.pending_topics(producer_id))
    }

    /// Returns the topics for which a group has committed offsets.
    pub fn committed_topics(&self, group: &GroupId) -> impl Iterator<Item = &StrBytes> {
        let group = self.groups.get(&group.0);
        group.into_iter().flat_map(|group| group.offsets.committed_topics())
    }

    /// OffsetDelete, version 0: only for topics to which no member subscribes. Pending offsets of
    /// open transactions are deleted too.
    pub fn offset_delete(
        &mut self,
        caller: Caller<'_>,
        request: &OffsetDeleteRequest,
        known: &dyn Topics,
        out: &mut Vec<Effect>,
    ) {
        let mut context = Self::context(self.options, self.host_ahead_ms, caller.now_ms, out);
        let id = &request.group_id.0;
        let checked = self.subscriptions(id);
        let mut topics = Vec::with_capacity(request.topics.len());
        let subscribed = checked.as_ref().ok();
        for topic in request.topics.iter().filter(|_| checked.is_ok()) {
            let is_subscribed = subscribed.is_some_and(|it| it.contains(&topic.name.0));
            let partition_count = known.by_name(&topic.name).map_or(0, |it| it.partition_count);
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for partition in &topic.partitions {
                let index = partition.partition_index;
                let place = Place { topic: own(&topic.name.0), partition: index };
                let is_there = u32::try_from(index).is_ok_and(|it| it < partition_count);
                let result = match (is_there, is_subscribed) {
                    (false, _) => Err(ResponseError::UnknownTopicOrPartition),
                    (true, true) => Err(ResponseError::GroupSubscribedToTopic),
                    (true, false) => {
                        self.delete_offset(id, &place, &mut context);
                        Ok(())
                    }
                };
                let answered = OffsetDeleteResponsePartition::default();
                partitions.push(answered.with_partition_index(index).with_error_code(code(result)));
            }
            let answered = OffsetDeleteResponseTopic::default().with_name(topic.name.clone());
            topics.push(answered.with_partitions(partitions));
        }
        let response = OffsetDeleteResponse::default()
            .with_error_code(code(checked.map(|_| ())))
            .with_topics(topics);
        context.reply(caller.ticket, response);
        self.settle(id);
    }

    /// Deletes all offsets of a deleted topic, including those of open transactions. Must be
    /// repeated before a topic of that name is created, because the owner may have crashed in
    /// between.
    pub fn delete_topic(&mut self, name: &str, out: &mut Vec<Effect>) {
        let topic = StrBytes::from_string(name.to_owned());
        let has_some = |(_, group): &(&StrBytes, &Group)| group.offsets.has_topic(&topic);
        let ids: Vec<StrBytes> =
            self.groups.iter().filter(has_some).map(|(id, _)| id.clone()).collect();
        for id in ids {
            let group = self.groups.get_mut(&id).expect("the id is of a group");
            let committed: Vec<Place> = group.offsets.of_topic(&topic).cloned().collect();
            for place in committed {
                group.offsets.remove(&place);
                out.push(Effect::Persist(offsets::key(&id, &place).gone()));
            }
            let producers: Vec<i64> = group.offsets.producers().collect();
            for producer_id in producers {
                for place in group.offsets.pending_of(producer_id, &topic) {
                    group.offsets.release(producer_id, &place);
                    let pending = offsets::pending_key(&id, producer_id, &place);
                    out.push(Effect::Persist(pending.gone()));
                }
                if group.offsets.pending_epoch(producer_id).is_none() {
                    // The list contains this group's producers, and this was the producer's last
                    // offset in it.
                    let groups = self.transactions.get_mut(&producer_id);
                    groups.expect("pending offsets are listed").remove(&id);
                }
            }
            self.settle(&id);
        }
        self.transactions.retain(|_, groups| !groups.is_empty());
    }

    fn check_commit(
        &mut self,
        id: &StrBytes,
        committer: &Committer<'_>,
        caller: &Caller<'_>,
    ) -> Result<(), ResponseError> {
        check_group_or_empty(id)?;
        if !self.groups.contains_key(id) && committer.epoch >= 0 {
            return Err(ResponseError::IllegalGeneration);
        }
        let group = match &mut self.classic_or_new(id, caller)?.kind {
            Kind::Classic(group) => return group.check_commit(committer, caller.now_ms),
            Kind::Consumer(group) => group,
        };
        let names_member = !committer.member_id.is_empty() || committer.instance.is_some();
        let is_of_no_member = committer.epoch < 0 && !names_member && committer.is_transactional;
        if is_of_no_member || (committer.epoch < 0 && group.members.is_empty()) {
            return Ok(());
        }
        group.check_epoch(committer.member_id, committer.epoch).map_err(|error| match error {
            // Only members with epochs support this error.
            ResponseError::StaleMemberEpoch if committer.is_transactional => {
                ResponseError::IllegalGeneration
            }
            ResponseError::StaleMemberEpoch if caller.api_version < 9 => {
                ResponseError::UnsupportedVersion
            }
            error => error,
        })
    }

    fn check_producer(&self, id: &StrBytes, producer: Producer) -> Result<(), ResponseError> {
        let pending = self.groups.get(id).and_then(|it| it.offsets.pending_epoch(producer.id));
        match pending {
            Some(epoch) if epoch > producer.epoch => Err(ResponseError::InvalidProducerEpoch),
            // The previous transaction has not been ended here yet.
            Some(epoch) if epoch < producer.epoch => Err(ResponseError::ConcurrentTransactions),
            _ => Ok(()),
        }
    }

    fn commit(
        &mut self,
        id: &StrBytes,
        given: &Given<'_>,
        target: Target,
        context: &mut CallContext<'_>,
    ) -> Result<(), ResponseError> {
        let metadata = given.metadata.map_or_else(StrBytes::default, own);
        if metadata.len() > self.options.offset_metadata_bytes_max {
            return Err(ResponseError::OffsetMetadataTooLarge);
        }
        let has_partition =
            u32::try_from(given.partition).is_ok_and(|it| it < given.partition_count);
        if !(1..=TOPIC_BYTES_MAX).contains(&given.topic.len()) || !has_partition {
            return Err(ResponseError::UnknownTopicOrPartition);
        }
        let place = Place { topic: own(given.topic), partition: given.partition };
        let group = self.groups.get(id).expect("made by the check of the commit");
        let producer_id = match &target {
            Target::Committed { .. } => None,
            Target::Pending(producer) => Some(producer.id),
        };
        // Replacing an offset is always allowed; only its growth counts against the limit.
        let replaced = group.offsets.replaced(&place, producer_id);
        let replaced_bytes = replaced.map(|it| it.size(&place.topic) + id.len());
        if replaced.is_none() && group.offsets.count() >= self.options.group_offsets_max {
            return Err(ResponseError::InvalidCommitOffsetSize);
        }
        let bytes = ENTRY_BYTES + id.len() + place.topic.len() + metadata.len();
        let (owner, more) = (group.owner, bytes.saturating_sub(replaced_bytes.unwrap_or(0)));
        self.check_bytes(owner, more)?;
        self.order += 1;
        let mut offset = Offset {
            offset: given.offset,
            leader_epoch: given.leader_epoch,
            metadata,
            commit_ms: context.unix_ms,
            expire_ms: None,
            order: self.order,
        };
        let group = self.groups.get_mut(id).expect("made by the check of the commit");
        let bytes_before = group.offset_bytes(id);
        match target {
            Target::Committed { expire_ms } => {
                offset.expire_ms = expire_ms;
                context.persist(offsets::record(id, &place, &offset));
                group.offsets.commit(place, offset);
            }
            Target::Pending(producer) => {
                context.persist(offsets::pending_record(id, producer, &place, &offset));
                group.offsets.hold(producer.id, producer.epoch, place, offset);
                self.transactions.entry(producer.id).or_default().insert(own(id));
            }
        }
        self.count_offsets(id, bytes_before);
        Ok(())
    }

    fn delete_offset(&mut self, id: &StrBytes, place: &Place, context: &mut CallContext<'_>) {
        let Some(group) = self.groups.get_mut(id) else { return };
        if group.offsets.remove(place) {
            context.persist(offsets::key(id, place).gone());
        }
        let mut ended = Vec::new();
        for producer_id in group.offsets.producers_of(place) {
            group.offsets.release(producer_id, place);
            context.persist(offsets::pending_key(id, producer_id, place).gone());
            if group.offsets.pending_epoch(producer_id).is_none() {
                ended.push(producer_id);
            }
        }
        for producer_id in ended {
            self.forget_transaction(producer_id, id);
        }
    }

    /// Returns the subscriptions of a group whose offsets may be deleted.
    fn subscriptions(&self, id: &StrBytes) -> Result<Subscriptions, ResponseError> {
        let group = self.groups.get(id).ok_or(ResponseError::GroupIdNotFound)?;
        match &group.kind {
            Kind::Classic(group) if !group.is_empty() && !group.is_of_consumers() => {
                Err(ResponseError::NonEmptyGroup)
            }
            kind => Ok(kind.subscriptions()),
        }
    }
}

/// Commits without a group have an empty group id, for historical reasons.
fn check_group_or_empty(id: &StrBytes) -> Result<(), ResponseError> {
    match id.len() <= ID_BYTES_MAX {
        true => Ok(()),
        false => Err(ResponseError::InvalidGroupId),
    }
}
