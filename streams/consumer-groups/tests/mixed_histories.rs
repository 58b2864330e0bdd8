//! Random histories of groups that are converted between protocols: members of both join, leave,
//! crash and are replaced, replies are lost, the state log rejects records, and the coordinator
//! crashes after any effect. Invariants: no partition has two readers at once, and no client
//! receives a fatal error. Without faults, the group becomes stable with a reader for each
//! partition.

mod support;

use std::sync::atomic::{AtomicU64, Ordering};

use consumer_groups::{MigrationPolicy, Options};
use kafka_protocol::messages::ResponseKind;
use kafka_protocol::protocol::StrBytes;
use model::{Random, for_each_seed_at_once};
use support::catalog::{Catalog, Consumer, Owned};
use support::subscriber::Subscriber;
use support::{Owner, commit_request, options, text};

const STEP_COUNT: usize = 600;
const MODERN_SESSION_MS: i64 = 45_000;

/// Interval of members' actions without faults. Crashed members are removed when their sessions
/// expire.
const ROUND_MS: i64 = 1_000;
const ROUNDS_MAX: usize = 100;
const STABLE_ROUNDS: usize = 20;

struct Reader {
    consumer: Consumer,
    lives_until_ms: i64,
}

struct History {
    owner: Owner,
    classic: Vec<Subscriber>,
    modern: Vec<Reader>,
    is_cooperative: bool,
    /// Number of ten joining members that use the protocol of KIP-848.
    modern_share: u64,
    came_count: usize,
    /// Number of conversions of the group.
    change_count: u64,
    last_kind: &'static str,
}

impl History {
    fn new(random: &mut Random) -> Self {
        // With other policies, members of the KIP-848 protocol may be rejected.
        let policies = [MigrationPolicy::Bidirectional, MigrationPolicy::Upgrade];
        let migration_policy = random.pick(&[policies[0], policies[0], policies[1]]);
        let mut owner = Owner::new(Options { migration_policy, ..options() });
        owner.catalog = Catalog::of(&[("a", 4), ("b", 3)]);
        Self {
            owner,
            classic: Vec::new(),
            modern: Vec::new(),
            is_cooperative: random.one_in(2),
            modern_share: 0,
            came_count: 0,
            change_count: 0,
            last_kind: "classic",
        }
    }

    fn count(&self) -> usize {
        self.classic.len() + self.modern.len()
    }

    fn come(&mut self, random: &mut Random, instance: Option<StrBytes>) {
        self.came_count += 1;
        let topics = random.pick(&[&["a"][..], &["b"], &["a", "b"], &["a", "b"]]);
        let is_static = random.one_in(3);
        let instance =
            instance.or_else(|| is_static.then(|| text(&format!("i{}", self.came_count))));
        if random.below(10) < self.modern_share {
            let mut consumer = Consumer::new(&format!("m{}", self.came_count), topics);
            consumer.assignor = random.pick(&[None, Some("range"), Some("uniform")]).map(text);
            consumer.instance = instance;
            // Only session timeouts apply.
            consumer.rebalance_timeout_ms = i32::MAX;
            self.modern.push(Reader { consumer, lives_until_ms: 0 });
            return;
        }
        let mut member = Subscriber::new(topics, self.is_cooperative);
        member.join_version = match instance {
            Some(_) => random.pick(&[5, 9]),
            None => random.pick(&[3, 4, 9]),
        };
        member.instance = instance;
        member.says_version =
            if self.is_cooperative { random.pick(&[1, 2, 3]) } else { random.pick(&[0, 1, 3]) };
        self.classic.push(member);
    }

    fn beat(&mut self, index: usize, is_lost: bool) {
        let Self { owner, modern, .. } = self;
        let reader = &mut modern[index];
        let request = reader.consumer.request();
        let catalog = owner.catalog.clone();
        let ticket = owner.call(1, |groups, caller, out| {
            groups.consumer_heartbeat(caller, &request, &catalog, out);
        });
        let reply = owner.replies.remove(&ticket);
        if let Some(ResponseKind::ConsumerGroupHeartbeat(response)) = reply
            && !is_lost
        {
            let ends_clients = kafka_protocol::error::ResponseError::GroupIdNotFound.code();
            assert_ne!(response.error_code, ends_clients, "epoch {}", request.member_epoch);
            reader.consumer.obey(&response);
            reader.lives_until_ms = owner.now_ms + MODERN_SESSION_MS;
        }
    }

    /// A member leaves permanently or crashes, or a static one leaves to return.
    fn go(&mut self, random: &mut Random) {
        let index = random.index(self.count());
        if index >= self.classic.len() {
            let index = index - self.classic.len();
            let is_static = self.modern[index].consumer.instance.is_some();
            let comes_back = is_static && random.one_in(2);
            if random.one_in(2) || comes_back {
                self.modern[index].consumer.epoch = if comes_back { -2 } else { -1 };
                self.beat(index, true);
            }
            let gone = self.modern.swap_remove(index).consumer;
            if comes_back {
                self.come(random, gone.instance);
            }
            return;
        }
        let gone = self.classic.swap_remove(index);
        if gone.instance.is_some() && random.one_in(2) {
            self.come(random, gone.instance);
        } else if random.one_in(2) && !gone.id.is_empty() {
            gone.leave(&mut self.owner);
        }
    }

    fn step(&mut self, random: &mut Random) {
        match random.below(30) {
            0 | 1 if self.count() < 6 => self.come(random, None),
            2 if random.one_in(3) => self.modern_share = random.pick(&[0, 0, 5, 10, 10]),
            _ if self.count() == 0 => {}
            3 | 4 if random.one_in(2) => self.go(random),
            5 | 6 => self.owner.pass(i64::try_from(random.below(3_000)).expect("small")),
            _ => {
                let index = random.index(self.count());
                match index.checked_sub(self.classic.len()) {
                    Some(index) => self.beat(index, random.one_in(8)),
                    None => self.classic[index].advance(&mut self.owner),
                }
            }
        }
    }

    fn maybe_doom(&mut self, random: &mut Random) {
        if random.one_in(30) {
            self.owner.dies_after = Some(random.index(12));
        } else if random.one_in(30) {
            self.owner.fails_after = Some(random.index(8));
        }
    }

    fn maybe_restart(&mut self, random: &mut Random) {
        let log = match self.owner.is_dead() {
            true => self.owner.log.clone(),
            false if random.one_in(80) => self.owner.groups.state().collect(),
            false => return,
        };
        self.owner.restart(log);
    }

    fn check(&mut self) {
        let now_ms = self.owner.now_ms;
        let classic = self.classic.iter().map(|it| (it.lives_until_ms(&self.owner), &it.owned));
        let modern = self.modern.iter().map(|it| (it.lives_until_ms, &it.consumer.owned));
        let mut owned = Owned::new();
        for (_, its) in classic.chain(modern).filter(|(until_ms, _)| now_ms < *until_ms) {
            for partition in its {
                assert!(owned.insert(*partition), "{partition:?} has two readers");
            }
        }
        if let Some(view) = self.owner.groups.views().next()
            && view.kind != self.last_kind
            && view.member_count > 0
        {
            self.last_kind = view.kind;
            self.change_count += 1;
        }
    }

    /// All remaining members act without faults.
    fn round(&mut self) {
        for index in 0..self.classic.len() {
            self.classic[index].advance(&mut self.owner);
            self.check();
        }
        for index in 0..self.modern.len() {
            self.beat(index, false);
            self.check();
        }
        self.owner.pass(ROUND_MS);
        self.check();
    }

    fn is_stable(&self) -> bool {
        let view = self.owner.groups.views().next();
        let is_stable =
            view.is_some_and(|it| it.state == "Stable" && it.member_count == self.count());
        is_stable && self.classic.iter().all(|it| it.generation().is_some())
    }

    fn finish(mut self, random: &mut Random) -> u64 {
        self.owner.spare();
        // Classic members only learn of added partitions in a rebalance.
        self.come(random, None);
        self.round();
        let mut rounds = 0;
        while !self.is_stable() {
            assert!(rounds < ROUNDS_MAX, "the group does not come to rest");
            self.round();
            rounds += 1;
        }
        let facts = |it: &Self| -> Vec<Owned> {
            let modern = it.modern.iter().map(|it| it.consumer.owned.clone());
            it.classic.iter().map(|it| it.owned.clone()).chain(modern).collect()
        };
        let before = facts(&self);
        for _ in 0..STABLE_ROUNDS {
            self.round();
            assert!(self.is_stable() && facts(&self) == before, "it does not stay at rest");
        }
        let topics = self.classic.iter().map(|it| &it.topics);
        let topics = topics.chain(self.modern.iter().map(|it| &it.consumer.topics));
        let expected: Owned =
            topics.flatten().flat_map(|it| self.owner.catalog.partitions(it)).collect();
        let owned: Owned = before.into_iter().flatten().collect();
        assert_eq!(owned, expected, "each partition has a reader");
        self.commit();
        assert!(self.owner.waiting.is_empty(), "every request is answered");
        self.change_count
    }

    /// Checks that members of a stable group can commit with either protocol.
    fn commit(&mut self) {
        let classic = self.classic.iter().map(|it| (it.id.clone(), it.generation()));
        let modern = self.modern.iter().map(|it| &it.consumer);
        let modern = modern.map(|it| (it.id.clone(), Some(it.epoch)));
        for (id, epoch) in classic.chain(modern).collect::<Vec<_>>() {
            let request = commit_request("a", 1)
                .with_member_id(id)
                .with_generation_id_or_member_epoch(epoch.expect("it is stable"));
            assert_eq!(self.owner.commit(&request), 0);
        }
    }
}

#[test]
fn no_partition_has_two_readers_while_members_change_their_protocol() {
    let replay = "cargo test -p consumer-groups --test mixed_histories no_partition";
    let change_count = AtomicU64::new(0);
    for_each_seed_at_once(replay, 100, |seed| {
        let random = &mut Random::new(seed);
        let mut history = History::new(random);
        for _ in 0..STEP_COUNT {
            history.maybe_doom(random);
            history.step(random);
            history.maybe_restart(random);
            history.check();
        }
        change_count.fetch_add(history.finish(random), Ordering::Relaxed);
    });
    let count = change_count.into_inner();
    eprintln!("{count} changes from one protocol to the other");
    // A replayed single seed reaches fewer.
    assert!(std::env::var_os(model::SEED_VARIABLE).is_some() || count >= 100, "only {count}");
}
