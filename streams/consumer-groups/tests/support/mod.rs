//! An owner of the coordinator, which maintains the state log, the time and the replies.

// Each test file uses a part of it.
#![allow(dead_code, reason = "each file of tests uses a part")]

pub(crate) mod catalog;
pub(crate) mod subscriber;

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use consumer_groups::{Caller, Effect, Groups, Options, Record, TickTime, Ticket};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    GroupId, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    OffsetCommitRequest, OffsetFetchRequest, ResponseKind, SyncGroupRequest, SyncGroupResponse,
    TopicName,
};
use kafka_protocol::protocol::StrBytes;

use self::catalog::{Catalog, EveryTopic};

pub(crate) const GROUP: &str = "readers";
pub(crate) const SESSION_MS: i64 = 10_000;
pub(crate) const REBALANCE_MS: i64 = 60_000;

pub(crate) fn options() -> Options {
    Options { initial_rebalance_delay_ms: 0, ..Options::default() }
}

pub(crate) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub(crate) fn group_id() -> GroupId {
    GroupId(text(GROUP))
}

pub(crate) fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

/// Returns the reply to a request as a response of one kind.
#[macro_export]
macro_rules! answer {
    ($owner:expr, $ticket:expr, $kind:ident) => {
        match $owner.reply($ticket) {
            kafka_protocol::messages::ResponseKind::$kind(response) => response,
            other => panic!("a {} is due, not {other:?}", stringify!($kind)),
        }
    };
}

/// Records that a coordinator would write to a compacted state log.
type Remembered = BTreeMap<Bytes, Option<Bytes>>;

pub(crate) struct Owner {
    pub(crate) groups: Groups,
    pub(crate) options: Options,
    pub(crate) now_ms: i64,
    pub(crate) log: Vec<Record>,
    /// Versions of waiting requests.
    pub(crate) waiting: BTreeMap<Ticket, i16>,
    pub(crate) replies: BTreeMap<Ticket, ResponseKind>,
    /// Time at which each request was answered.
    pub(crate) answered_ms: BTreeMap<Ticket, i64>,
    /// Number of effects after which the process crashes.
    pub(crate) dies_after: Option<usize>,
    /// Number of records after which the state log rejects records. Later effects are not
    /// performed.
    pub(crate) fails_after: Option<usize>,
    has_failed: bool,
    /// State before a call all of whose records the log rejected.
    before_failure: Option<Remembered>,
    /// Number of such calls.
    pub(crate) failed_count: u64,
    /// Principal of the requests.
    pub(crate) principal: String,
    pub(crate) owner: shares::Owner,
    /// Topics as classic members and deadlines see them.
    pub(crate) catalog: Catalog,
    next_ticket: u64,
}

impl Owner {
    pub(crate) fn new(options: Options) -> Self {
        let mut groups = Groups::new(options, 1);
        groups.start(1_000_000);
        Self {
            groups,
            options,
            now_ms: 1_000_000,
            log: Vec::new(),
            waiting: BTreeMap::new(),
            replies: BTreeMap::new(),
            answered_ms: BTreeMap::new(),
            dies_after: None,
            fails_after: None,
            has_failed: false,
            before_failure: None,
            failed_count: 0,
            principal: "User:one".to_owned(),
            owner: shares::Owner::NOBODY,
            catalog: Catalog::default(),
            next_ticket: 0,
        }
    }

    /// Performs a request and collects its effects.
    pub(crate) fn call(
        &mut self,
        api_version: i16,
        request: impl FnOnce(&mut Groups, Caller<'_>, &mut Vec<Effect>),
    ) -> Ticket {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.waiting.insert(ticket, api_version);
        let principal = self.principal.clone();
        let caller = Caller {
            ticket,
            api_version,
            client_id: "c",
            host: "127.0.0.1",
            principal: &principal,
            owner: self.owner,
            now_ms: self.now_ms,
        };
        self.carry_out(|groups, out| request(groups, caller, out));
        let is_answered = !self.is_waiting(ticket);
        assert!(!(self.has_failed && is_answered), "an answer stands before what it relies on");
        ticket
    }

    /// Collects the effects of a call. If the log rejects its first record, the call must leave no
    /// trace.
    fn carry_out(&mut self, call: impl FnOnce(&mut Groups, &mut Vec<Effect>)) {
        let before = self.fails_after.map(|_| self.remembered());
        let (had_failed, kept_before) = (self.has_failed, self.log.len());
        let mut out = Vec::new();
        call(&mut self.groups, &mut out);
        self.keep(out);
        if self.has_failed && !had_failed && self.log.len() == kept_before {
            self.before_failure = before;
        }
    }

    fn remembered(&self) -> Remembered {
        self.groups.state().map(|it| (it.key, it.value)).collect()
    }

    pub(crate) fn keep(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            if self.has_failed {
                return;
            }
            match &mut self.dies_after {
                Some(0) => return,
                Some(left) => *left -= 1,
                None => {}
            }
            match effect {
                Effect::Persist(record) => match &mut self.fails_after {
                    Some(0) => self.has_failed = true,
                    after => {
                        after.iter_mut().for_each(|left| *left -= 1);
                        self.log.push(record);
                    }
                },
                Effect::Reply(ticket, response) => {
                    let version =
                        self.waiting.remove(&ticket).expect("each request is answered once");
                    let mut bytes = BytesMut::new();
                    response.encode(&mut bytes, version).expect("a reply fits its version");
                    self.replies.insert(ticket, response);
                    self.answered_ms.insert(ticket, self.now_ms);
                }
            }
        }
    }

    pub(crate) fn reply(&mut self, ticket: Ticket) -> ResponseKind {
        self.replies.remove(&ticket).expect("the request was answered")
    }

    pub(crate) fn is_waiting(&self, ticket: Ticket) -> bool {
        self.waiting.contains_key(&ticket)
    }

    pub(crate) fn tick(&mut self) {
        self.tick_after_requests_until(self.now_ms);
    }

    /// Ticks while requests received after this time have not been passed in yet.
    pub(crate) fn tick_after_requests_until(&mut self, heard_ms: i64) {
        let time = TickTime { now_ms: self.now_ms, heard_ms };
        let catalog = self.catalog.clone();
        self.carry_out(|groups, out| groups.tick(time, &catalog, out));
    }

    /// Lets time pass, and handles all deadlines on the way.
    pub(crate) fn pass(&mut self, ms: i64) {
        let until_ms = self.now_ms + ms;
        while let Some(at_ms) = self.groups.next_deadline_ms().filter(|it| *it <= until_ms) {
            self.now_ms = at_ms.max(self.now_ms);
            self.tick();
        }
        self.now_ms = until_ms;
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dies_after == Some(0) || self.has_failed
    }

    /// Disables faults.
    pub(crate) fn spare(&mut self) {
        (self.dies_after, self.fails_after) = (None, None);
    }

    /// Restarts from the log, or from a compacted one.
    pub(crate) fn restart(&mut self, log: Vec<Record>) {
        let mut groups = Groups::new(self.options, self.next_ticket + 1_000);
        for record in &log {
            groups.load(&record.key, record.value.as_deref()).expect("records can be read");
        }
        groups.start(self.now_ms);
        self.groups = groups;
        if let Some(before) = self.before_failure.take() {
            assert_eq!(self.remembered(), before, "what was not kept has left something behind");
            self.failed_count += 1;
        }
        self.log = log;
        self.waiting.clear();
        self.has_failed = false;
        self.spare();
    }

    pub(crate) fn join(&mut self, api_version: i16, request: &JoinGroupRequest) -> Ticket {
        let catalog = self.catalog.clone();
        self.call(api_version, |groups, caller, out| groups.join(caller, request, &catalog, out))
    }

    pub(crate) fn joined(
        &mut self,
        api_version: i16,
        request: &JoinGroupRequest,
    ) -> JoinGroupResponse {
        let ticket = self.join(api_version, request);
        answer!(self, ticket, JoinGroup)
    }

    pub(crate) fn sync(&mut self, request: &SyncGroupRequest) -> Ticket {
        let catalog = self.catalog.clone();
        self.call(5, |groups, caller, out| groups.sync(caller, request, &catalog, out))
    }

    pub(crate) fn leave(&mut self, api_version: i16, request: &LeaveGroupRequest) -> Ticket {
        let catalog = self.catalog.clone();
        self.call(api_version, |groups, caller, out| groups.leave(caller, request, &catalog, out))
    }

    pub(crate) fn synced(&mut self, request: &SyncGroupRequest) -> SyncGroupResponse {
        let ticket = self.sync(request);
        answer!(self, ticket, SyncGroup)
    }

    pub(crate) fn heartbeat(&mut self, member_id: &StrBytes, generation: i32) -> i16 {
        let request = HeartbeatRequest::default()
            .with_group_id(group_id())
            .with_member_id(member_id.clone())
            .with_generation_id(generation);
        let ticket = self.call(4, |groups, caller, out| groups.heartbeat(caller, &request, out));
        answer!(self, ticket, Heartbeat).error_code
    }

    pub(crate) fn commit(&mut self, request: &OffsetCommitRequest) -> i16 {
        let ticket = self
            .call(9, |groups, caller, out| groups.offset_commit(caller, request, &EveryTopic, out));
        answer!(self, ticket, OffsetCommit).topics[0].partitions[0].error_code
    }

    /// Returns the offset and error code of a partition.
    pub(crate) fn fetch(
        &mut self,
        topic: &str,
        partition: i32,
        require_stable: bool,
    ) -> (i64, i16) {
        let asked = OffsetFetchRequestTopics::default()
            .with_name(topic_name(topic))
            .with_partition_indexes(vec![partition]);
        let group = OffsetFetchRequestGroup::default()
            .with_group_id(group_id())
            .with_topics(Some(vec![asked]));
        let request = OffsetFetchRequest::default()
            .with_groups(vec![group])
            .with_require_stable(require_stable);
        let ticket = self.call(8, |groups, caller, out| groups.offset_fetch(caller, &request, out));
        let partition = &answer!(self, ticket, OffsetFetch).groups[0].topics[0].partitions[0];
        (partition.committed_offset, partition.error_code)
    }

    /// Creates a stable generation of dynamic members, each of which is assigned its own id.
    pub(crate) fn stable_group(&mut self, count: usize) -> Vec<StrBytes> {
        let mut ids = Vec::new();
        for _ in 0..count {
            let invited = self.joined(5, &join_request("", &["range"]));
            ids.push(invited.member_id);
        }
        self.rebalance(&ids);
        ids
    }

    /// Lets all members join again and assigns them their own ids. Returns the generation.
    pub(crate) fn rebalance(&mut self, ids: &[StrBytes]) -> i32 {
        let request = |id: &StrBytes| join_request(id, &["range"]);
        let mut tickets: Vec<Ticket> = ids.iter().map(|id| self.join(5, &request(id))).collect();
        // Members answered in an earlier round join again.
        while tickets.iter().any(|it| self.is_waiting(*it)) {
            for (ticket, id) in tickets.iter_mut().zip(ids) {
                if self.replies.remove(ticket).is_some() {
                    *ticket = self.join(5, &request(id));
                }
            }
        }
        let joined: Vec<_> = tickets.into_iter().map(|it| answer!(self, it, JoinGroup)).collect();
        let generation = joined[0].generation_id;
        let leader = joined[0].leader.clone();
        let followers = ids.iter().filter(|id| **id != leader);
        let waiting: Vec<Ticket> =
            followers.map(|id| self.sync(&sync_request(id, generation, &[]))).collect();
        let own: Vec<_> = ids.iter().map(|id| (id.clone(), id.clone())).collect();
        assert_eq!(self.synced(&sync_request(&leader, generation, &own)).error_code, 0);
        for ticket in waiting {
            assert_eq!(answer!(self, ticket, SyncGroup).error_code, 0);
        }
        generation
    }
}

/// Builds a JoinGroup request whose protocols contain a subscription to topic `news`.
pub(crate) fn join_request(member_id: &str, protocols: &[&str]) -> JoinGroupRequest {
    let mut subscription = vec![0, 0, 0, 0, 0, 1, 0, 4];
    subscription.extend(b"news");
    subscription.extend([0xFF; 4]);
    let protocols = protocols.iter().map(|name| {
        JoinGroupRequestProtocol::default()
            .with_name(text(name))
            .with_metadata(Bytes::from(subscription.clone()))
    });
    JoinGroupRequest::default()
        .with_group_id(group_id())
        .with_session_timeout_ms(i32::try_from(SESSION_MS).expect("small"))
        .with_rebalance_timeout_ms(i32::try_from(REBALANCE_MS).expect("small"))
        .with_member_id(text(member_id))
        .with_protocol_type(text("consumer"))
        .with_protocols(protocols.collect())
}

pub(crate) fn sync_request(
    member_id: &StrBytes,
    generation: i32,
    assignments: &[(StrBytes, StrBytes)],
) -> SyncGroupRequest {
    let assignments = assignments.iter().map(|(id, assignment)| {
        SyncGroupRequestAssignment::default()
            .with_member_id(id.clone())
            .with_assignment(assignment.clone().into_bytes())
    });
    SyncGroupRequest::default()
        .with_group_id(group_id())
        .with_member_id(member_id.clone())
        .with_generation_id(generation)
        .with_assignments(assignments.collect())
}

pub(crate) fn commit_request(topic: &str, offset: i64) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(0)
        .with_committed_offset(offset)
        .with_committed_metadata(Some(text("m")));
    let topic = OffsetCommitRequestTopic::default()
        .with_name(topic_name(topic))
        .with_partitions(vec![partition]);
    OffsetCommitRequest::default()
        .with_group_id(group_id())
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic])
}
