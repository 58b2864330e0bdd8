//! Random histories of groups, in which members join, leave and crash, replies are lost, the state
//! log rejects records, and the coordinator crashes after any effect and restarts from its records.
//! Invariants: no partition has two owners at once, acknowledged commits are never lost, calls
//! whose records were rejected are never answered and leave no state, static members are only
//! fenced when replaced, and each request is answered once. Without faults, a group becomes stable
//! within a number of rounds, and remains so.

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use consumer_groups::Options;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{JoinGroupResponse, LeaveGroupRequest, ResponseKind};
use kafka_protocol::protocol::StrBytes;
use model::{Random, for_each_seed_at_once};
use support::catalog::{Catalog, Consumer, EveryTopic, Owned};
use support::{Owner, commit_request, group_id, join_request, options, sync_request, text};

const STEP_COUNT: usize = 400;
const PARTITION_COUNT: u8 = 8;
const CONSUMER_SESSION_MS: i64 = 45_000;

/// Interval of heartbeats without faults. Crashed members are removed when their sessions expire;
/// their partitions are revoked and reassigned within a few more rounds.
const CONSUMER_ROUND_MS: i64 = 5_000;
const CONSUMER_ROUNDS_MAX: usize = 9 + 6;

/// Same for a classic group, in which a join may wait for the rebalance timeout.
const CLASSIC_ROUND_MS: i64 = 1_000;
const CLASSIC_ROUNDS_MAX: usize = 100;

/// Number of rounds for which a stable group is observed.
const STABLE_ROUNDS: usize = 5;

/// Last and highest acknowledged offset. Commits only increase.
#[derive(Default)]
struct Commits {
    last: i64,
    acknowledged: i64,
}

impl Commits {
    fn commit(&mut self, owner: &mut Owner, member_id: &StrBytes, epoch: i32) {
        self.last += 1;
        let request = commit_request("a", self.last)
            .with_member_id(member_id.clone())
            .with_generation_id_or_member_epoch(epoch);
        let ticket = owner.call(9, |groups, caller, out| {
            groups.offset_commit(caller, &request, &EveryTopic, out)
        });
        let Some(ResponseKind::OffsetCommit(response)) = owner.replies.remove(&ticket) else {
            return;
        };
        if response.topics[0].partitions[0].error_code == 0 {
            self.acknowledged = self.last;
        }
    }

    /// Checks that a member of a stable group can commit, and that acknowledged commits exist.
    fn finish(&mut self, owner: &mut Owner, member: Option<(&StrBytes, i32)>) {
        if let Some((id, epoch)) = member {
            self.commit(owner, id, epoch);
            assert_eq!(self.acknowledged, self.last, "a member of a stable group may commit");
        }
        self.check(owner);
    }

    fn check(&self, owner: &mut Owner) {
        let (offset, _) = owner.fetch("a", 0, false);
        assert!(offset.max(0) >= self.acknowledged, "{offset} is before {}", self.acknowledged);
        assert!(offset <= self.last);
    }
}

/// Sometimes lets the coordinator crash, or its log reject records, soon.
fn maybe_doom(owner: &mut Owner, random: &mut Random) {
    if random.one_in(15) {
        owner.dies_after = Some(random.index(7));
    } else if random.one_in(15) {
        owner.fails_after = Some(random.index(3));
    }
}

/// Checks the number of calls that the log rejected, in all histories.
fn check_failures(count: AtomicU64) {
    let count = count.into_inner();
    eprintln!("{count} calls of which the log took nothing");
    // A replayed single seed reaches fewer.
    assert!(std::env::var_os(model::SEED_VARIABLE).is_some() || count >= 20, "only {count}");
}

/// Returns the group's state and member count as the owner sees them.
fn shown(owner: &Owner) -> Option<(&'static str, usize)> {
    owner.groups.views().next().map(|it| (it.state, it.member_count))
}

fn restart_if_dead(owner: &mut Owner, commits: &Commits, random: &mut Random) {
    let log = match owner.is_dead() {
        true => owner.log.clone(),
        false if random.one_in(40) => owner.groups.state().collect(),
        false => return,
    };
    owner.restart(log);
    commits.check(owner);
}

struct Reader {
    consumer: Consumer,
    /// Earliest time at which the group may remove the member.
    lives_until_ms: i64,
}

struct ConsumerHistory {
    owner: Owner,
    catalog: Catalog,
    readers: Vec<Reader>,
    commits: Commits,
    came_count: usize,
}

impl ConsumerHistory {
    fn new() -> Self {
        Self {
            owner: Owner::new(options()),
            catalog: Catalog::of(&[("a", 4), ("b", 3)]),
            readers: Vec::new(),
            commits: Commits::default(),
            came_count: 0,
        }
    }

    fn come(&mut self, random: &mut Random, instance: Option<StrBytes>) {
        self.came_count += 1;
        let topics = random.pick(&[&["a"][..], &["b"], &["a", "b"], &["a", "c"]]);
        let mut consumer = Consumer::new(&format!("m{}", self.came_count), topics);
        consumer.assignor = random.pick(&[None, Some("range"), Some("uniform")]).map(text);
        consumer.instance =
            instance.or_else(|| random.one_in(3).then(|| text(&format!("i{}", self.came_count))));
        // Prevents the removal of members that learn of a revocation too late: only session
        // timeouts apply.
        consumer.rebalance_timeout_ms = i32::MAX;
        consumer.pattern = random.one_in(4).then(|| text("[bc]"));
        self.readers.push(Reader { consumer, lives_until_ms: 0 });
    }

    fn beat(&mut self, index: usize, is_lost: bool) {
        let Self { owner, catalog, readers, .. } = self;
        let reader = &mut readers[index];
        let request = reader.consumer.request();
        let ticket = owner.call(1, |groups, caller, out| {
            groups.consumer_heartbeat(caller, &request, catalog, out);
        });
        if let Some(ResponseKind::ConsumerGroupHeartbeat(response)) = owner.replies.remove(&ticket)
            && !is_lost
        {
            reader.consumer.obey(&response);
            reader.lives_until_ms = owner.now_ms + CONSUMER_SESSION_MS;
        }
    }

    /// A member leaves permanently, leaves temporarily, or crashes.
    fn go(&mut self, random: &mut Random) {
        let index = random.index(self.readers.len());
        let epoch = random.pick(&[-1, -2]);
        let says_so = random.one_in(2);
        if epoch == -2 && self.readers[index].consumer.instance.is_none() {
            return;
        }
        self.readers[index].consumer.epoch = epoch;
        if says_so {
            self.beat(index, true);
        }
        let gone = self.readers.swap_remove(index);
        if epoch == -2 {
            self.come(random, gone.consumer.instance);
        }
    }

    fn step(&mut self, random: &mut Random) {
        match random.below(24) {
            0 | 1 if self.readers.len() < 6 => self.come(random, None),
            _ if self.readers.is_empty() => {}
            2 => self.go(random),
            3 if random.one_in(4) => {
                let name = random.pick(&["a", "b", "c"]);
                self.catalog.set(name, u32::try_from(2 + random.below(6)).expect("small"));
            }
            4 => {
                let index = random.index(self.readers.len());
                self.readers[index].consumer.topics = vec!["b".to_owned()];
            }
            5 | 6 => self.owner.pass(i64::try_from(random.below(20_000)).expect("small")),
            7 | 8 => {
                let consumer = &self.readers[random.index(self.readers.len())].consumer;
                self.commits.commit(&mut self.owner, &consumer.id, consumer.epoch);
            }
            _ => self.beat(random.index(self.readers.len()), random.one_in(6)),
        }
    }

    fn check_owners(&self) {
        let mut owned = Owned::new();
        for reader in &self.readers {
            if self.owner.now_ms < reader.lives_until_ms {
                for partition in &reader.consumer.owned {
                    assert!(owned.insert(*partition), "{partition:?} has two owners");
                }
            }
        }
    }

    /// All remaining members send a heartbeat without faults.
    fn round(&mut self) {
        for index in 0..self.readers.len() {
            self.beat(index, false);
        }
        self.owner.pass(CONSUMER_ROUND_MS);
        self.check_owners();
    }

    /// Returns whether exactly the remaining members are in the group, in the same epoch.
    fn is_stable(&self) -> bool {
        let mut epochs = self.readers.iter().map(|it| it.consumer.epoch);
        let first = epochs.next();
        let is_stable = shown(&self.owner) == Some(("Stable", self.readers.len()));
        first.is_none() || is_stable && epochs.all(|it| Some(it) == first)
    }

    fn finish(mut self) -> u64 {
        self.owner.spare();
        // Members report subscriptions changed since their last heartbeat first.
        self.round();
        let mut rounds = 1;
        while !self.is_stable() {
            assert!(rounds < CONSUMER_ROUNDS_MAX, "the group does not come to rest");
            self.round();
            rounds += 1;
        }
        let facts = |it: &Self| -> Vec<(i32, Owned)> {
            it.readers.iter().map(|it| (it.consumer.epoch, it.consumer.owned.clone())).collect()
        };
        let before = facts(&self);
        for _ in 0..STABLE_ROUNDS {
            self.round();
            assert!(self.is_stable() && facts(&self) == before, "it does not stay at rest");
        }
        let read = |reader: &Reader, name: &str| {
            reader.consumer.topics.iter().any(|it| it == name)
                || (reader.consumer.pattern.is_some() && name != "a")
        };
        let mut expected = Owned::new();
        for name in ["a", "b", "c"] {
            if self.readers.iter().any(|it| read(it, name)) {
                expected.extend(self.catalog.partitions(name));
            }
        }
        let owned = self.readers.iter().flat_map(|it| it.consumer.owned.iter().copied());
        assert_eq!(owned.collect::<Owned>(), expected, "each partition has an owner");
        for reader in &self.readers {
            for name in ["a", "b", "c"].into_iter().filter(|name| !read(reader, name)) {
                assert!(reader.consumer.owned.is_disjoint(&self.catalog.partitions(name)));
            }
        }
        assert!(self.owner.waiting.is_empty());
        let member = self.readers.first().map(|it| (&it.consumer.id, it.consumer.epoch));
        self.commits.finish(&mut self.owner, member);
        self.owner.failed_count
    }
}

#[test]
fn no_partition_has_two_owners_in_a_consumer_group() {
    let replay = "cargo test -p consumer-groups --test histories no_partition";
    let failed_count = AtomicU64::new(0);
    for_each_seed_at_once(replay, 60, |seed| {
        let random = &mut Random::new(seed);
        let mut history = ConsumerHistory::new();
        for _ in 0..STEP_COUNT {
            maybe_doom(&mut history.owner, random);
            history.step(random);
            restart_if_dead(&mut history.owner, &history.commits, random);
            history.check_owners();
        }
        failed_count.fetch_add(history.finish(), Ordering::Relaxed);
    });
    check_failures(failed_count);
}

#[derive(Clone, Copy)]
enum Stage {
    Idle,
    Joining(consumer_groups::Ticket),
    Syncing(consumer_groups::Ticket, i32),
    Stable(i32),
}

impl Stage {
    fn generation(self) -> Option<i32> {
        if let Self::Stable(generation) = self { Some(generation) } else { None }
    }
}

/// Simulated client of a classic group.
struct Client {
    id: StrBytes,
    instance: Option<StrBytes>,
    api_version: i16,
    stage: Stage,
    assigned: Vec<u8>,
}

struct ClassicHistory {
    owner: Owner,
    clients: Vec<Client>,
    commits: Commits,
    /// Member to which a partition was assigned in a generation.
    given: BTreeMap<(i32, u8), StrBytes>,
    came_count: usize,
}

impl ClassicHistory {
    fn new(random: &mut Random) -> Self {
        let initial_rebalance_delay_ms = random.pick(&[0, 3_000]);
        Self {
            owner: Owner::new(Options { initial_rebalance_delay_ms, ..Options::default() }),
            clients: Vec::new(),
            commits: Commits::default(),
            given: BTreeMap::new(),
            came_count: 0,
        }
    }

    fn come(&mut self, random: &mut Random, instance: Option<StrBytes>) {
        self.came_count += 1;
        let is_static = random.one_in(3);
        let instance =
            instance.or_else(|| is_static.then(|| text(&format!("i{}", self.came_count))));
        let api_version = match instance {
            Some(_) => random.pick(&[5, 8, 9]),
            None => random.pick(&[0, 3, 5, 9]),
        };
        let (id, stage) = (StrBytes::default(), Stage::Idle);
        self.clients.push(Client { id, instance, api_version, stage, assigned: Vec::new() });
    }

    /// Performs the next action of a client.
    fn advance(&mut self, index: usize) {
        match self.clients[index].stage {
            Stage::Idle => self.join(index),
            Stage::Joining(ticket) => match self.take_reply(ticket) {
                Some(Some(ResponseKind::JoinGroup(joined))) => self.joined(index, &joined),
                Some(_) => self.clients[index].stage = Stage::Idle,
                None => {}
            },
            Stage::Syncing(ticket, generation) => match self.take_reply(ticket) {
                Some(Some(ResponseKind::SyncGroup(synced))) if synced.error_code == 0 => {
                    self.synced(index, generation, &synced.assignment);
                }
                Some(Some(ResponseKind::SyncGroup(synced))) => {
                    self.clients[index].start_over(synced.error_code);
                }
                Some(_) => self.clients[index].stage = Stage::Idle,
                None => {}
            },
            Stage::Stable(generation) => {
                let client = &mut self.clients[index];
                let request = kafka_protocol::messages::HeartbeatRequest::default()
                    .with_group_id(group_id())
                    .with_member_id(client.id.clone())
                    .with_group_instance_id(client.instance.clone())
                    .with_generation_id(generation);
                let ticket = self
                    .owner
                    .call(4, |groups, caller, out| groups.heartbeat(caller, &request, out));
                if let Some(Some(ResponseKind::Heartbeat(reply))) = self.take_reply(ticket)
                    && reply.error_code != 0
                {
                    self.clients[index].start_over(reply.error_code);
                }
            }
        }
    }

    /// Returns `None` while the request is waiting, and `Some(None)` if the coordinator crashed
    /// with it.
    fn take_reply(&mut self, ticket: consumer_groups::Ticket) -> Option<Option<ResponseKind>> {
        let reply = self.owner.replies.remove(&ticket);
        (reply.is_some() || !self.owner.is_waiting(ticket)).then_some(reply)
    }

    fn join(&mut self, index: usize) {
        let client = &self.clients[index];
        let request =
            join_request(&client.id, &["range"]).with_group_instance_id(client.instance.clone());
        let ticket = self.owner.join(client.api_version, &request);
        self.clients[index].stage = Stage::Joining(ticket);
    }

    fn joined(&mut self, index: usize, joined: &JoinGroupResponse) {
        let client = &mut self.clients[index];
        if joined.error_code == ResponseError::MemberIdRequired.code() {
            client.id = joined.member_id.clone();
            client.stage = Stage::Idle;
            return;
        }
        if joined.error_code != 0 {
            client.start_over(joined.error_code);
            return;
        }
        client.id = joined.member_id.clone();
        let count = joined.members.len();
        let leads = joined.leader == client.id && !joined.skip_assignment;
        let members = joined.members.iter().enumerate().filter(|_| leads);
        let assignments: Vec<(StrBytes, StrBytes)> = members
            .map(|(place, member)| {
                let share = (0..PARTITION_COUNT).filter(|it| usize::from(*it) % count == place);
                let share: Vec<u8> = share.collect();
                let assignment = String::from_utf8(share).expect("small numbers are ASCII");
                (member.member_id.clone(), text(&assignment))
            })
            .collect();
        let request = sync_request(&client.id, joined.generation_id, &assignments)
            .with_group_instance_id(client.instance.clone());
        let ticket = self.owner.sync(&request);
        self.clients[index].stage = Stage::Syncing(ticket, joined.generation_id);
    }

    fn synced(&mut self, index: usize, generation: i32, assignment: &[u8]) {
        let client = &mut self.clients[index];
        client.stage = Stage::Stable(generation);
        client.assigned = assignment.to_vec();
        let name = client.instance.as_ref().unwrap_or(&client.id);
        for partition in assignment {
            let before = self.given.insert((generation, *partition), name.clone());
            let is_alone = before.is_none_or(|it| it == *name);
            assert!(is_alone, "partition {partition} has two owners in generation {generation}");
        }
    }

    /// A client leaves or crashes. A static one may return without its member id.
    fn go(&mut self, random: &mut Random) {
        let gone = self.clients.swap_remove(random.index(self.clients.len()));
        if gone.instance.is_some() && random.one_in(2) {
            self.come(random, gone.instance);
        } else if random.one_in(2) && !gone.id.is_empty() {
            let request =
                LeaveGroupRequest::default().with_group_id(group_id()).with_member_id(gone.id);
            self.owner.leave(2, &request);
        }
    }

    fn step(&mut self, random: &mut Random) {
        match random.below(30) {
            0 | 1 if self.clients.len() < 5 => self.come(random, None),
            _ if self.clients.is_empty() => {}
            2 if random.one_in(2) => self.go(random),
            // The client has timed out or was disconnected, and repeats its request.
            3 if random.one_in(3) => self.join(random.index(self.clients.len())),
            4 | 5 => self.owner.pass(i64::try_from(random.below(4_000)).expect("small")),
            6 | 7 => {
                let client = &self.clients[random.index(self.clients.len())];
                if let Stage::Stable(generation) = client.stage {
                    self.commits.commit(&mut self.owner, &client.id, generation);
                }
            }
            _ => self.advance(random.index(self.clients.len())),
        }
    }

    /// All remaining clients perform an action without faults.
    fn round(&mut self) {
        for index in 0..self.clients.len() {
            self.advance(index);
        }
        self.owner.pass(CLASSIC_ROUND_MS);
    }

    /// Returns the generation of all remaining clients, if exactly they are in the group.
    fn stable_generation(&self) -> Option<i32> {
        let mut generations = self.clients.iter().map(|it| it.stage.generation());
        let first = generations.next()??;
        let is_stable = shown(&self.owner) == Some(("Stable", self.clients.len()));
        (is_stable && generations.all(|it| it == Some(first))).then_some(first)
    }

    fn finish(mut self) -> u64 {
        self.owner.spare();
        let mut rounds = 0;
        while !self.clients.is_empty() && self.stable_generation().is_none() {
            assert!(rounds < CLASSIC_ROUNDS_MAX, "the group does not come to rest");
            self.round();
            rounds += 1;
        }
        let before = self.stable_generation();
        for _ in 0..STABLE_ROUNDS {
            self.round();
            assert_eq!(self.stable_generation(), before, "it does not stay at rest");
        }
        let mut owned: Vec<u8> = self.clients.iter().flat_map(|it| it.assigned.clone()).collect();
        owned.sort_unstable();
        if !self.clients.is_empty() {
            assert_eq!(owned, (0..PARTITION_COUNT).collect::<Vec<_>>());
        }
        let member = self.clients.first().map(|it| (&it.id, before.expect("it is stable")));
        self.commits.finish(&mut self.owner, member);
        self.owner.pass(3_600_000);
        assert!(self.owner.waiting.is_empty(), "every request is answered");
        self.commits.check(&mut self.owner);
        self.owner.failed_count
    }
}

impl Client {
    fn start_over(&mut self, error_code: i16) {
        let fenced = ResponseError::FencedInstanceId.code();
        assert_ne!(error_code, fenced, "a client is fenced whose instance nobody else has");
        let rejoins = [ResponseError::RebalanceInProgress, ResponseError::IllegalGeneration];
        if !rejoins.iter().any(|it| it.code() == error_code) {
            self.id = StrBytes::default();
        }
        self.stage = Stage::Idle;
        self.assigned.clear();
    }
}

#[test]
fn no_partition_has_two_owners_in_a_generation_of_a_classic_group() {
    let replay = "cargo test -p consumer-groups --test histories classic";
    let failed_count = AtomicU64::new(0);
    for_each_seed_at_once(replay, 60, |seed| {
        let random = &mut Random::new(seed);
        let mut history = ClassicHistory::new(random);
        for _ in 0..STEP_COUNT {
            maybe_doom(&mut history.owner, random);
            history.step(random);
            restart_if_dead(&mut history.owner, &history.commits, random);
        }
        failed_count.fetch_add(history.finish(), Ordering::Relaxed);
    });
    check_failures(failed_count);
}
