//! Single steps of online conversions between protocols (KIP-848).

mod support;

use consumer_groups::{MigrationPolicy, Options};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, DescribeGroupsRequest, LeaveGroupRequest,
};
use support::catalog::{Catalog, Consumer, Owned};
use support::subscriber::{Stage, Subscriber};
use support::{Owner, commit_request, group_id, join_request, options, text};

const TOPICS: &[&str] = &["news", "more"];

/// Creates a coordinator with topics and a stable classic group.
fn classic_group(count: usize, is_cooperative: bool) -> (Owner, Vec<Subscriber>) {
    classic_group_of(count, is_cooperative, MigrationPolicy::Bidirectional)
}

fn classic_group_of(
    count: usize,
    is_cooperative: bool,
    migration_policy: MigrationPolicy,
) -> (Owner, Vec<Subscriber>) {
    let mut owner = Owner::new(Options { migration_policy, ..options() });
    owner.catalog = Catalog::of(&[("news", 6), ("more", 3)]);
    let mut classic: Vec<Subscriber> =
        (0..count).map(|_| Subscriber::new(TOPICS, is_cooperative)).collect();
    settle(&mut owner, &mut classic, &mut []);
    (owner, classic)
}

/// Lets all members act until the group is stable and each partition has one reader.
#[track_caller]
fn settle(owner: &mut Owner, classic: &mut [Subscriber], modern: &mut [Consumer]) {
    let catalog = owner.catalog.clone();
    for _ in 0..60 {
        for index in 0..classic.len() {
            classic[index].advance(owner);
            check_one_reader(classic_and(classic, modern));
        }
        for index in 0..modern.len() {
            modern[index].beat(owner, &catalog);
            check_one_reader(classic_and(classic, modern));
        }
        owner.pass(200);
    }
    let view = owner.groups.views().next().expect("the group is there");
    assert_eq!((view.state, view.member_count), ("Stable", classic.len() + modern.len()));
    assert!(classic.iter().all(|it| it.generation().is_some()));
    let all: Owned = classic_and(classic, modern).flatten().copied().collect();
    assert_eq!(all, catalog.all(), "each partition has a reader");
}

fn classic_and<'a>(
    classic: &'a [Subscriber],
    modern: &'a [Consumer],
) -> impl Iterator<Item = &'a Owned> {
    classic.iter().map(|it| &it.owned).chain(modern.iter().map(|it| &it.owned))
}

#[track_caller]
fn check_one_reader<'a>(owned: impl Iterator<Item = &'a Owned>) {
    let mut seen = Owned::new();
    for partition in owned.flatten() {
        assert!(seen.insert(*partition), "{partition:?} has two readers");
    }
}

fn kind(owner: &Owner) -> &'static str {
    owner.groups.views().next().expect("the group is there").kind
}

fn leave_modern(owner: &mut Owner, mut consumer: Consumer) {
    let catalog = owner.catalog.clone();
    consumer.epoch = -1;
    assert_eq!(consumer.beat(owner, &catalog), 0);
}

#[test]
fn members_are_replaced_one_by_one_and_back() {
    for is_cooperative in [false, true] {
        let (mut owner, mut classic) = classic_group(3, is_cooperative);
        let mut modern = Vec::new();
        assert_eq!(kind(&owner), "classic");
        for number in 0..3 {
            modern.push(Consumer::new(&format!("m{number}"), TOPICS));
            settle(&mut owner, &mut classic, &mut modern);
            assert_eq!(kind(&owner), "consumer");
            classic.remove(0).leave(&mut owner);
            settle(&mut owner, &mut classic, &mut modern);
        }
        for _ in 0..3 {
            classic.push(Subscriber::new(TOPICS, is_cooperative));
            settle(&mut owner, &mut classic, &mut modern);
            assert_eq!(kind(&owner), "consumer");
            leave_modern(&mut owner, modern.remove(0));
            settle(&mut owner, &mut classic, &mut modern);
        }
        assert_eq!(kind(&owner), "classic");
        assert!(classic.iter().all(|it| it.errors.is_empty()), "nobody was thrown out");
    }
}

#[test]
fn a_group_with_members_is_upgraded_only_where_the_policy_has_that() {
    for policy in MigrationPolicy::ALL {
        let is_allowed =
            matches!(policy, MigrationPolicy::Bidirectional | MigrationPolicy::Upgrade);
        let (mut owner, mut classic) = classic_group_of(2, false, policy);
        let catalog = owner.catalog.clone();
        let mut modern = [Consumer::new("m", TOPICS)];
        if is_allowed {
            settle(&mut owner, &mut classic, &mut modern);
            assert_eq!(kind(&owner), "consumer", "{policy:?}");
            continue;
        }
        let before = (owner.log.clone(), owner.groups.bytes());
        // Nor may a former member of the consumer group join.
        for epoch in [0, 5] {
            modern[0].epoch = epoch;
            let refused = ResponseError::GroupIdNotFound.code();
            assert_eq!(modern[0].beat(&mut owner, &catalog), refused, "{policy:?}");
        }
        assert_eq!((owner.log.clone(), owner.groups.bytes()), before);
        settle(&mut owner, &mut classic, &mut []);
        // Without members the group can be converted.
        classic.into_iter().for_each(|it| it.leave(&mut owner));
        settle(&mut owner, &mut [], &mut modern);
        assert_eq!(kind(&owner), "consumer", "{policy:?}");
    }
}

#[test]
fn a_group_with_members_is_downgraded_only_where_the_policy_has_that() {
    for policy in MigrationPolicy::ALL {
        let is_allowed =
            matches!(policy, MigrationPolicy::Bidirectional | MigrationPolicy::Downgrade);
        let mut owner = Owner::new(Options { migration_policy: policy, ..options() });
        owner.catalog = Catalog::of(&[("news", 6), ("more", 3)]);
        let mut modern = vec![Consumer::new("m", TOPICS)];
        settle(&mut owner, &mut [], &mut modern);
        let mut classic = vec![Subscriber::new(TOPICS, true), Subscriber::new(TOPICS, true)];
        settle(&mut owner, &mut classic, &mut modern);
        leave_modern(&mut owner, modern.remove(0));
        settle(&mut owner, &mut classic, &mut []);
        let expected = if is_allowed { "classic" } else { "consumer" };
        assert_eq!(kind(&owner), expected, "{policy:?}");
        // A group that is not converted accepts the other protocol, also after a restart.
        classic.push(Subscriber::new(TOPICS, true));
        settle(&mut owner, &mut classic, &mut []);
        let log = owner.log.clone();
        owner.restart(log);
        settle(&mut owner, &mut classic, &mut []);
        assert_eq!(kind(&owner), expected, "{policy:?}");
        assert!(classic.iter().all(|it| it.errors.is_empty()), "nobody was thrown out");
        // Without members the group can be converted.
        classic.into_iter().for_each(|it| it.leave(&mut owner));
        settle(&mut owner, &mut [Subscriber::new(TOPICS, false)], &mut []);
        assert_eq!(kind(&owner), "classic", "{policy:?}");
    }
}

#[test]
fn a_static_member_changes_its_protocol_alone_where_the_group_may_not() {
    let policy = MigrationPolicy::Upgrade;
    let mut owner = Owner::new(Options { migration_policy: policy, ..options() });
    owner.catalog = Catalog::of(&[("news", 6), ("more", 3)]);
    let mut modern = Consumer::new("m", TOPICS);
    modern.instance = Some(text("i"));
    settle(&mut owner, &mut [], std::slice::from_mut(&mut modern));
    // The only member is replaced.
    let mut classic = Subscriber::new(TOPICS, false);
    classic.instance = modern.instance.clone();
    settle(&mut owner, std::slice::from_mut(&mut classic), &mut []);
    assert_eq!(kind(&owner), "consumer");
    let fenced = ResponseError::FencedInstanceId.code();
    let catalog = owner.catalog.clone();
    assert_eq!(owner.beat(&modern.request(), &catalog).error_code, fenced);
}

#[test]
fn a_partition_moves_between_protocols_only_once_it_was_given_up() {
    let (mut owner, mut classic) = classic_group(1, true);
    let catalog = owner.catalog.clone();
    let mut modern = Consumer::new("m", TOPICS);
    assert_eq!(modern.beat(&mut owner, &catalog), 0);
    assert_eq!((modern.owned.len(), classic[0].owned.len()), (0, 9));
    let generation = classic[0].generation().expect("it is stable");
    let rebalance = ResponseError::RebalanceInProgress.code();
    assert_eq!(owner.heartbeat(&classic[0].id, generation), rebalance);
    // It learns of the rebalance, joins with its partitions, and must revoke half of them.
    classic[0].advance(&mut owner);
    classic[0].advance(&mut owner);
    classic[0].advance(&mut owner);
    modern.beat(&mut owner, &catalog);
    assert_eq!((modern.owned.len(), classic[0].owned.len()), (0, 9));
    classic[0].advance(&mut owner);
    assert_eq!((classic[0].stage, classic[0].owned.len()), (Stage::Idle, 5));
    modern.beat(&mut owner, &catalog);
    assert_eq!(modern.owned.len(), 0, "it has not said yet that it gave anything up");
    classic[0].advance(&mut owner);
    modern.beat(&mut owner, &catalog);
    assert_eq!(modern.owned.len(), 4);
    settle(&mut owner, &mut classic, std::slice::from_mut(&mut modern));
}

#[test]
fn a_group_in_a_rebalance_is_upgraded_too() {
    let (mut owner, mut classic) = classic_group(2, false);
    let catalog = owner.catalog.clone();
    // One member joins and waits for the others.
    classic.push(Subscriber::new(TOPICS, false));
    for _ in 0..3 {
        classic[2].advance(&mut owner);
    }
    assert!(matches!(classic[2].stage, Stage::Joining(ticket) if owner.is_waiting(ticket)));
    let mut modern = Consumer::new("m", TOPICS);
    assert_eq!(modern.beat(&mut owner, &catalog), 0);
    assert!(owner.waiting.is_empty(), "nobody waits in the new group");
    classic[2].advance(&mut owner);
    assert!(matches!(classic[2].stage, Stage::Syncing(..)), "its join was answered");
    settle(&mut owner, &mut classic, std::slice::from_mut(&mut modern));
}

#[test]
fn what_a_cooperative_member_is_about_to_give_up_is_not_free() {
    let (mut owner, mut classic) = classic_group(1, true);
    let catalog = owner.catalog.clone();
    let mut second = Subscriber::new(TOPICS, true);
    // In this generation, the first member must revoke partitions, but does not know it yet.
    for _ in 0..3 {
        second.advance(&mut owner);
    }
    for _ in 0..3 {
        classic[0].advance(&mut owner);
    }
    second.advance(&mut owner);
    second.advance(&mut owner);
    assert!(second.generation().is_some(), "the generation is stable");
    assert_eq!(kind(&owner), "classic");
    assert_eq!(classic[0].owned.len(), 9, "it still reads all");
    let mut modern = Consumer::new("m", TOPICS);
    for _ in 0..3 {
        assert_eq!(modern.beat(&mut owner, &catalog), 0);
    }
    assert_eq!((modern.owned.len(), second.owned.len()), (0, 0));
    classic.push(second);
    settle(&mut owner, &mut classic, std::slice::from_mut(&mut modern));
}

#[test]
fn a_group_of_others_and_one_that_says_nonsense_keep_their_protocol() {
    let refused = ResponseError::GroupIdNotFound.code();
    let request = join_request("", &["range"]);
    for (protocol_type, says) in [("connect", None), ("consumer", Some(&b"\0\0\0\0"[..]))] {
        let mut request = request.clone().with_protocol_type(text(protocol_type));
        if let Some(says) = says {
            request.protocols[0].metadata = bytes::Bytes::from_static(says);
        }
        let mut owner = Owner::new(options());
        let catalog = Catalog::of(&[("news", 6)]);
        let joined = owner.joined(3, &request);
        let before = (owner.log.clone(), owner.groups.bytes());
        let mut modern = Consumer::new("m", &["news"]);
        assert_eq!(modern.beat(&mut owner, &catalog), refused, "{protocol_type}");
        assert_eq!((owner.log.clone(), owner.groups.bytes()), before);
        assert_eq!(owner.heartbeat(&joined.member_id, joined.generation_id), 0);
    }
    // The opposite direction.
    let mut owner = Owner::new(options());
    owner.catalog = Catalog::of(&[("news", 6)]);
    let catalog = owner.catalog.clone();
    let mut modern = Consumer::new("m", &["news"]);
    modern.beat(&mut owner, &catalog);
    let before = owner.log.clone();
    let inconsistent = ResponseError::InconsistentGroupProtocol.code();
    let other = request.clone().with_protocol_type(text("connect"));
    assert_eq!(owner.joined(3, &other).error_code, inconsistent);
    let mut nonsense = request.clone();
    nonsense.protocols[0].metadata = bytes::Bytes::from_static(b"?");
    assert_eq!(owner.joined(3, &nonsense).error_code, inconsistent);
    assert_eq!(owner.log, before);
    // Classic members must support a common protocol, for a later downgrade.
    assert_eq!(owner.joined(3, &request).error_code, 0);
    let strange = join_request("", &["sticky"]);
    assert_eq!(owner.joined(3, &strange).error_code, inconsistent);
}

#[test]
fn static_members_change_their_protocol_and_keep_their_partitions() {
    let (mut owner, mut classic) = classic_group(2, false);
    let catalog = owner.catalog.clone();
    let mut stays = Subscriber::new(TOPICS, false);
    stays.instance = Some(text("i"));
    classic.push(stays);
    settle(&mut owner, &mut classic, &mut []);
    let old = classic.pop().expect("three");
    // A classic static member does not announce its leave: its assignment is kept.
    let mut new = Consumer::new("new", TOPICS);
    new.instance = old.instance.clone();
    assert_eq!(new.beat(&mut owner, &catalog), 0);
    assert_eq!(new.owned, old.owned);
    let mut old = old;
    let fenced = ResponseError::FencedInstanceId.code();
    let request = kafka_protocol::messages::HeartbeatRequest::default()
        .with_group_id(group_id())
        .with_member_id(old.id.clone())
        .with_group_instance_id(old.instance.clone())
        .with_generation_id(old.generation().expect("it was stable"));
    let ticket = owner.call(4, |groups, caller, out| groups.heartbeat(caller, &request, out));
    assert_eq!(answer!(owner, ticket, Heartbeat).error_code, fenced);
    let mut modern = vec![new];
    settle(&mut owner, &mut classic, &mut modern);
    // In reverse: the last member of the new protocol is replaced, and the group becomes classic.
    let new = modern.pop().expect("one");
    old.id = text("");
    old.stage = Stage::Idle;
    old.owned.clear();
    classic.push(old);
    settle(&mut owner, &mut classic, &mut []);
    assert_eq!(kind(&owner), "classic");
    assert_eq!(owner.beat(&new.request(), &catalog).error_code, fenced);
    assert_eq!(kind(&owner), "classic");
}

#[test]
fn members_of_both_protocols_commit_by_their_own_epochs() {
    let (mut owner, mut classic) = classic_group(1, false);
    let mut modern = vec![Consumer::new("m", TOPICS)];
    let by = |id: &str, epoch| {
        commit_request("news", 5).with_member_id(text(id)).with_generation_id_or_member_epoch(epoch)
    };
    let catalog = owner.catalog.clone();
    modern[0].beat(&mut owner, &catalog);
    // It may commit offsets of its partitions until it has joined again.
    let generation = classic[0].generation().expect("it is stable");
    assert_eq!(owner.commit(&by(&classic[0].id, generation)), 0);
    settle(&mut owner, &mut classic, &mut modern);
    let now = classic[0].generation().expect("it is stable");
    assert_eq!(owner.commit(&by(&classic[0].id, now)), 0);
    let illegal = ResponseError::IllegalGeneration.code();
    assert_eq!(owner.commit(&by(&classic[0].id, generation)), illegal);
    let stale = ResponseError::StaleMemberEpoch.code();
    assert_eq!(owner.commit(&by("m", modern[0].epoch)), 0);
    assert_eq!(owner.commit(&by("m", modern[0].epoch - 1)), stale);
    // The other members leave one by one, before it learns of either.
    modern.push(Consumer::new("n", TOPICS));
    settle(&mut owner, &mut classic, &mut modern);
    let generation = classic[0].generation().expect("it is stable");
    leave_modern(&mut owner, modern.remove(0));
    modern[0].beat(&mut owner, &catalog);
    leave_modern(&mut owner, modern.remove(0));
    assert_eq!(kind(&owner), "classic");
    assert_eq!(owner.commit(&by(&classic[0].id, generation)), 0);
    let rebalance = ResponseError::RebalanceInProgress.code();
    assert_eq!(owner.heartbeat(&classic[0].id, generation), rebalance);
    settle(&mut owner, &mut classic, &mut []);
    assert_eq!(owner.commit(&by(&classic[0].id, generation)), illegal);
    assert!(classic[0].errors.is_empty());
}

#[test]
fn groups_of_both_are_described_as_consumer_groups() {
    let (mut owner, mut classic) = classic_group(1, false);
    let catalog = owner.catalog.clone();
    let mut modern = [Consumer::new("m", TOPICS)];
    settle(&mut owner, &mut classic, &mut modern);
    let request = ConsumerGroupDescribeRequest::default().with_group_ids(vec![group_id()]);
    for (version, expected) in [(1, [0, 1]), (0, [-1, -1])] {
        let ticket = owner.call(version, |groups, caller, out| {
            groups.consumer_group_describe(caller, &request, &catalog, out);
        });
        let group = answer!(owner, ticket, ConsumerGroupDescribe).groups.remove(0);
        let mut types: Vec<(bool, i8)> =
            group.members.iter().map(|it| (it.member_id.as_str() == "m", it.member_type)).collect();
        types.sort_unstable();
        assert_eq!(types, [(false, expected[0]), (true, expected[1])]);
        for member in &group.members {
            assert_eq!(member.subscribed_topic_names.len(), 2);
            assert_eq!(member.assignment, member.target_assignment);
            assert!(!member.assignment.topic_partitions.is_empty());
        }
    }
    let request = DescribeGroupsRequest::default().with_groups(vec![group_id()]);
    let ticket = owner.call(6, |groups, caller, out| groups.describe(caller, &request, out));
    let group = answer!(owner, ticket, DescribeGroups).groups.remove(0);
    assert_eq!(group.error_code, ResponseError::GroupIdNotFound.code());
}

#[test]
fn a_silent_member_of_either_protocol_is_dropped() {
    let (mut owner, mut classic) = classic_group(2, false);
    let mut modern = vec![Consumer::new("m", TOPICS)];
    settle(&mut owner, &mut classic, &mut modern);
    classic.pop();
    owner.pass(support::SESSION_MS);
    settle(&mut owner, &mut classic, &mut modern);
    let gone = modern.pop().expect("one");
    for _ in 0..10 {
        classic[0].catch_up(&mut owner);
        owner.pass(5_000);
    }
    settle(&mut owner, &mut classic, &mut []);
    assert_eq!(kind(&owner), "classic");
    // The client was only paused: it may join again, and is not rejected as unknown to the group.
    let catalog = owner.catalog.clone();
    let unknown = ResponseError::UnknownMemberId.code();
    assert_eq!(owner.beat(&gone.request(), &catalog).error_code, unknown);
    let leave = gone.request().with_member_epoch(-1);
    let not_found = ResponseError::GroupIdNotFound.code();
    assert_eq!(owner.beat(&leave, &catalog).error_code, not_found);
}

#[test]
fn a_member_that_is_told_to_join_and_does_not_is_dropped() {
    let (mut owner, mut classic) = classic_group(1, false);
    let catalog = owner.catalog.clone();
    let request = join_request(&classic[0].id, &["range"]).with_rebalance_timeout_ms(30_000);
    let joined = owner.joined(9, &request);
    let generation = joined.generation_id;
    let assignment = [(joined.member_id.clone(), text(""))];
    owner.synced(&support::sync_request(&joined.member_id, generation, &assignment));
    let id = classic.pop().expect("one").id;
    let mut modern = Consumer::new("m", &["news"]);
    let rebalance = ResponseError::RebalanceInProgress.code();
    for _ in 0..6 {
        assert_eq!(modern.beat(&mut owner, &catalog), 0);
        assert_eq!(owner.heartbeat(&id, generation), rebalance);
        owner.pass(5_000);
    }
    let unknown = ResponseError::UnknownMemberId.code();
    assert_eq!(owner.heartbeat(&id, generation), unknown);
}

#[test]
fn one_that_was_dropped_gives_up_what_it_reads_before_it_is_a_member_again() {
    let (mut owner, mut classic) = classic_group(2, true);
    let mut modern = [Consumer::new("m", TOPICS)];
    settle(&mut owner, &mut classic, &mut modern);
    let mut silent = classic.pop().expect("two");
    let catalog = owner.catalog.clone();
    for _ in 0..3 {
        owner.pass(4_000);
        classic[0].catch_up(&mut owner);
        modern[0].beat(&mut owner, &catalog);
    }
    // A reply that it received before told it to join.
    assert!(!silent.owned.is_empty());
    silent.stage = Stage::Idle;
    silent.advance(&mut owner);
    silent.advance(&mut owner);
    assert_eq!(silent.errors, [ResponseError::UnknownMemberId.code()]);
    assert!(silent.owned.is_empty());
    classic.push(silent);
    settle(&mut owner, &mut classic, &mut modern);
}

#[test]
fn administrators_remove_members_of_both() {
    let (mut owner, mut classic) = classic_group(2, false);
    let mut modern = vec![Consumer::new("m", TOPICS), Consumer::new("n", TOPICS)];
    settle(&mut owner, &mut classic, &mut modern);
    let gone = [classic.pop().expect("two").id, text("m"), text("n"), text("m")];
    let members = gone.map(|it| MemberIdentity::default().with_member_id(it));
    let request =
        LeaveGroupRequest::default().with_group_id(group_id()).with_members(members.to_vec());
    let ticket = owner.leave(5, &request);
    let codes: Vec<i16> =
        answer!(owner, ticket, LeaveGroup).members.iter().map(|it| it.error_code).collect();
    assert_eq!(codes[..3], [0; 3]);
    settle(&mut owner, &mut classic, &mut []);
    assert_eq!(kind(&owner), "classic");
}

#[test]
fn both_ways_survive_a_restart_after_any_record() {
    // More than the maximum number of records and replies of a conversion.
    for is_cooperative in [false, true] {
        for survived in 0..24 {
            let (mut owner, mut classic) = classic_group(3, is_cooperative);
            let catalog = owner.catalog.clone();
            let mut modern = vec![Consumer::new("m", TOPICS)];
            owner.dies_after = Some(survived);
            let request = modern[0].request();
            owner.call(1, |groups, caller, out| {
                groups.consumer_heartbeat(caller, &request, &catalog, out);
            });
            owner.replies.clear();
            let log = owner.log.clone();
            owner.restart(log);
            settle(&mut owner, &mut classic, &mut modern);
            assert_eq!(kind(&owner), "consumer");
            // A compacted log has the same result.
            let log = owner.groups.state().collect();
            owner.restart(log);
            settle(&mut owner, &mut classic, &mut modern);
            let leaves = modern.pop().expect("one").request().with_member_epoch(-1);
            owner.dies_after = Some(survived);
            owner.call(1, |groups, caller, out| {
                groups.consumer_heartbeat(caller, &leaves, &catalog, out);
            });
            owner.replies.clear();
            let log = owner.log.clone();
            owner.restart(log);
            // The client is gone, whether or not its leave was stored.
            for _ in 0..10 {
                classic.iter_mut().for_each(|it| it.catch_up(&mut owner));
                owner.pass(5_000);
            }
            settle(&mut owner, &mut classic, &mut []);
            assert_eq!(kind(&owner), "classic", "after {survived}");
            let log = owner.groups.state().collect();
            owner.restart(log);
            settle(&mut owner, &mut classic, &mut []);
        }
    }
}
