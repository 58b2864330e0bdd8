//! Single steps of the protocol of KIP-848.

mod support;

use consumer_groups::Options;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, ListGroupsRequest,
};
use support::catalog::{Catalog, Consumer, Owned};
use support::{Owner, commit_request, group_id, join_request, options, sync_request, text};

fn two_topics() -> Catalog {
    Catalog::of(&[("news", 4), ("more", 2)])
}

fn settled(owner: &mut Owner, catalog: &Catalog, count: usize) -> Vec<Consumer> {
    let mut consumers: Vec<Consumer> =
        (0..count).map(|it| Consumer::new(&format!("m{it}"), &["news", "more"])).collect();
    owner.settle(&mut consumers, catalog);
    consumers
}

#[track_caller]
fn check_all_owned_once(consumers: &[Consumer], catalog: &Catalog) {
    let all: Owned = consumers.iter().flat_map(|it| it.owned.iter().copied()).collect();
    assert_eq!(all, catalog.all());
    assert_eq!(consumers.iter().map(|it| it.owned.len()).sum::<usize>(), all.len());
}

fn describe(owner: &mut Owner, catalog: &Catalog) -> (String, i32, i32) {
    let request = ConsumerGroupDescribeRequest::default().with_group_ids(vec![group_id()]);
    let ticket = owner.call(1, |groups, caller, out| {
        groups.consumer_group_describe(caller, &request, catalog, out);
    });
    let group = answer!(owner, ticket, ConsumerGroupDescribe).groups.remove(0);
    (group.group_state.to_string(), group.group_epoch, group.assignment_epoch)
}

#[test]
fn members_share_all_partitions_evenly() {
    let catalog = two_topics();
    for assignor in ["uniform", "range"] {
        let mut owner = Owner::new(options());
        let mut consumers = settled(&mut owner, &catalog, 3);
        for consumer in &mut consumers {
            consumer.assignor = Some(text(assignor));
        }
        owner.settle(&mut consumers, &catalog);
        check_all_owned_once(&consumers, &catalog);
        assert_eq!(describe(&mut owner, &catalog).0, "Stable");
        if assignor == "uniform" {
            assert!(consumers.iter().all(|it| it.owned.len() == 2));
        }
    }
}

#[test]
fn a_partition_is_given_only_once_its_former_owner_gave_it_up() {
    let catalog = Catalog::of(&[("news", 2)]);
    let mut owner = Owner::new(options());
    let mut first = Consumer::new("a", &["news"]);
    first.beat(&mut owner, &catalog);
    assert_eq!(first.owned.len(), 2);
    let mut second = Consumer::new("b", &["news"]);
    second.beat(&mut owner, &catalog);
    assert_eq!((second.epoch, second.owned.len()), (2, 0));
    let told = owner.beat(&first.request(), &catalog);
    assert_eq!(told.member_epoch, 1, "it hears of the epoch once it gave up");
    second.beat(&mut owner, &catalog);
    assert_eq!(second.owned.len(), 0, "the first may still read both");
    first.obey(&told);
    first.beat(&mut owner, &catalog);
    assert_eq!((first.epoch, first.owned.len()), (2, 1));
    second.beat(&mut owner, &catalog);
    assert_eq!((second.epoch, second.owned.len()), (2, 1));
}

#[test]
fn a_member_that_keeps_what_it_is_to_lose_is_dropped_after_its_rebalance_timeout() {
    let catalog = Catalog::of(&[("news", 2)]);
    let mut owner = Owner::new(options());
    let mut first = Consumer::new("a", &["news"]);
    first.beat(&mut owner, &catalog);
    let mut second = Consumer::new("b", &["news"]);
    second.beat(&mut owner, &catalog);
    let light = ConsumerGroupHeartbeatRequest::default()
        .with_group_id(group_id())
        .with_member_id(text("a"))
        .with_member_epoch(1)
        .with_rebalance_timeout_ms(-1);
    for _ in 0..6 {
        assert_eq!(owner.beat(&light, &catalog).error_code, 0);
        second.beat(&mut owner, &catalog);
        owner.pass(10_000);
    }
    let unknown = ResponseError::UnknownMemberId.code();
    assert_eq!(owner.beat(&light, &catalog).error_code, unknown);
    second.beat(&mut owner, &catalog);
    assert_eq!(second.owned.len(), 2);
}

#[test]
fn a_silent_member_is_dropped_and_a_leaving_one_at_once() {
    let catalog = two_topics();
    let mut owner = Owner::new(options());
    let mut consumers = settled(&mut owner, &catalog, 3);
    let mut leaving = consumers.pop().expect("three");
    leaving.epoch = -1;
    assert_eq!(leaving.beat(&mut owner, &catalog), 0);
    owner.settle(&mut consumers, &catalog);
    check_all_owned_once(&consumers, &catalog);
    consumers.pop();
    for _ in 0..3 {
        owner.pass(20_000);
        owner.settle(&mut consumers, &catalog);
    }
    check_all_owned_once(&consumers, &catalog);
}

#[test]
fn sessions_end_evenly_when_the_hosts_clock_is_set() {
    for set_ms in [-3_600_000, 3_600_000] {
        let (mut owner, catalog) = (Owner::new(options()), two_topics());
        let mut consumers = settled(&mut owner, &catalog, 2);
        let silent = consumers.pop().expect("two");
        let before = owner.now_ms;
        owner.groups.set_host_ahead(set_ms);
        for _ in 0..8 {
            owner.pass(5_000);
            assert_eq!(consumers[0].beat(&mut owner, &catalog), 0, "set by {set_ms} ms");
        }
        // The session timeout is 45 s.
        let members =
            |owner: &Owner| owner.groups.views().next().expect("it is there").member_count;
        assert_eq!((owner.now_ms - before, members(&owner)), (40_000, 2), "set by {set_ms} ms");
        owner.pass(5_000);
        assert_eq!(members(&owner), 1, "set by {set_ms} ms");
        let unknown = ResponseError::UnknownMemberId.code();
        assert_eq!(owner.beat(&silent.request(), &catalog).error_code, unknown);
        owner.settle(&mut consumers, &catalog);
        assert_eq!(consumers[0].owned, catalog.all(), "set by {set_ms} ms");
    }
}

#[test]
fn a_reply_that_was_lost_is_made_up_for() {
    let catalog = two_topics();
    let mut owner = Owner::new(options());
    let mut consumers = settled(&mut owner, &catalog, 2);
    consumers.push(Consumer::new("m2", &["news"]));
    for round in 0..20 {
        for consumer in &mut consumers {
            match round % 2 {
                0 => drop(owner.beat(&consumer.request(), &catalog)),
                _ => assert_eq!(consumer.beat(&mut owner, &catalog), 0),
            }
        }
    }
    check_all_owned_once(&consumers, &catalog);
}

#[test]
fn wrong_epochs_are_fenced() {
    let catalog = two_topics();
    let mut owner = Owner::new(options());
    let consumers = settled(&mut owner, &catalog, 2);
    let fenced = ResponseError::FencedMemberEpoch.code();
    for epoch in [consumers[1].epoch + 1, 1] {
        let request = consumers[1].request().with_member_epoch(epoch);
        assert_eq!(owner.beat(&request, &catalog).error_code, fenced, "epoch {epoch}");
    }
    assert_eq!(owner.beat(&consumers[1].request(), &catalog).error_code, 0);
}

#[test]
fn a_static_member_leaves_for_a_while_and_keeps_its_partitions() {
    let catalog = two_topics();
    let mut owner = Owner::new(options());
    let mut consumers = settled(&mut owner, &catalog, 1);
    let mut old = Consumer::new("old", &["news", "more"]);
    old.instance = Some(text("i"));
    consumers.push(old);
    owner.settle(&mut consumers, &catalog);
    let old = consumers.pop().expect("two");
    let mut new = Consumer::new("new", &["news", "more"]);
    new.instance = old.instance.clone();
    let unreleased = ResponseError::UnreleasedInstanceId.code();
    assert_eq!(owner.beat(&new.request(), &catalog).error_code, unreleased);
    let left = owner.beat(&old.request().with_member_epoch(-2), &catalog);
    assert_eq!((left.error_code, left.member_epoch), (0, -2));
    owner.settle(&mut consumers, &catalog);
    owner.restart(owner.log.clone());
    assert_eq!(new.beat(&mut owner, &catalog), 0);
    assert_eq!(new.owned, old.owned);
    let fenced = ResponseError::FencedInstanceId.code();
    assert_eq!(owner.beat(&old.request(), &catalog).error_code, fenced);
    consumers.push(new);
    owner.settle(&mut consumers, &catalog);
    check_all_owned_once(&consumers, &catalog);
}

#[test]
fn patterns_match_whole_names_and_topics_that_come_later() {
    let mut catalog = Catalog::of(&[("news-a", 1), ("old-news-a", 1)]);
    let mut owner = Owner::new(options());
    let mut consumer = Consumer::new("a", &[]);
    consumer.pattern = Some(text("news-[ab]"));
    consumer.beat(&mut owner, &catalog);
    assert_eq!(consumer.owned.len(), 1);
    catalog.set("news-b", 2);
    owner.settle(std::slice::from_mut(&mut consumer), &catalog);
    assert_eq!(consumer.owned.len(), 3);
    let invalid = ResponseError::InvalidRegularExpression.code();
    for pattern in ["(", "a)|(b", "(?=a)"] {
        consumer.pattern = Some(text(pattern));
        let refused = owner.beat(&consumer.request(), &catalog);
        assert_eq!(refused.error_code, invalid, "{pattern}");
    }
}

#[test]
fn a_pattern_shows_no_topic_that_the_member_may_not_know_of() {
    let mut catalog = Catalog::of(&[("news-a", 2), ("news-b", 2)]);
    catalog.hide("User:two", "news-b");
    let mut owner = Owner::new(options());
    let mut members = ["one", "two"].map(|name| {
        let mut consumer = Consumer::new(name, &[]);
        consumer.pattern = Some(text("news-.*"));
        (format!("User:{name}"), consumer)
    });
    let mut settle = |owner: &mut Owner, catalog: &Catalog| {
        for _ in 0..10 {
            for (principal, consumer) in &mut members {
                owner.principal.clone_from(principal);
                assert_eq!(consumer.beat(owner, catalog), 0);
            }
        }
        members.each_ref().map(|(_, consumer)| consumer.owned.clone())
    };
    let secret = catalog.partitions("news-b");
    let [one, two] = settle(&mut owner, &catalog);
    assert!(two.is_disjoint(&secret), "{two:?}");
    assert!(one.is_superset(&secret), "{one:?}");
    // This also holds for a loaded group and a heartbeat without changes.
    owner.restart(owner.log.clone());
    assert_eq!(settle(&mut owner, &catalog), [one, two]);
    // Visibility changes, but the topics do not.
    catalog.show_all();
    catalog.hide("User:one", "news-b");
    let [one, two] = settle(&mut owner, &catalog);
    assert!(one.is_disjoint(&secret), "{one:?}");
    assert!(two.is_superset(&secret), "{two:?}");
}

#[test]
fn topics_that_grow_are_assigned_anew() {
    let mut catalog = two_topics();
    let mut owner = Owner::new(options());
    let mut consumers = settled(&mut owner, &catalog, 2);
    let epoch = consumers[0].epoch;
    catalog.set("other", 1);
    owner.settle(&mut consumers, &catalog);
    assert_eq!(consumers[0].epoch, epoch, "nobody reads it");
    catalog.set("news", 8);
    owner.settle(&mut consumers, &catalog);
    let news = consumers.iter().map(|it| it.owned.len()).sum::<usize>();
    assert_eq!(news, 8 + 2);
}

#[test]
fn bad_heartbeats_are_refused_and_change_nothing() {
    let catalog = two_topics();
    let mut owner = Owner::new(Options { members_max: 1, ..options() });
    let good = Consumer::new("a", &["news"]).request();
    let invalid = ResponseError::InvalidRequest.code();
    let cases = [
        (good.clone().with_group_id(Default::default()), invalid),
        (good.clone().with_member_id(text("")), invalid),
        (good.clone().with_member_epoch(-3), invalid),
        (good.clone().with_member_epoch(-2), invalid),
        (good.clone().with_rebalance_timeout_ms(-1), invalid),
        (good.clone().with_topic_partitions(None), invalid),
        (good.clone().with_subscribed_topic_names(None), invalid),
        (good.clone().with_instance_id(Some(text(""))), invalid),
        (
            good.clone().with_server_assignor(Some(text("x"))),
            ResponseError::UnsupportedAssignor.code(),
        ),
        (good.clone().with_member_epoch(1), ResponseError::GroupIdNotFound.code()),
    ];
    for (request, code) in cases {
        assert_eq!(owner.beat(&request, &catalog).error_code, code, "{request:?}");
    }
    assert_eq!((owner.groups.count(), owner.groups.bytes()), (0, 0));
    assert_eq!(owner.log, []);
    assert_eq!(owner.beat(&good, &catalog).error_code, 0);
    let full = ResponseError::GroupMaxSizeReached.code();
    let another = good.with_member_id(text("b"));
    assert_eq!(owner.beat(&another, &catalog).error_code, full);
}

#[test]
fn members_carry_on_after_a_restart() {
    let catalog = two_topics();
    let mut owner = Owner::new(options());
    let mut consumers = settled(&mut owner, &catalog, 3);
    let before: Vec<_> = consumers.iter().map(|it| (it.epoch, it.owned.clone())).collect();
    let rewritten: Vec<_> = owner.groups.state().collect();
    for log in [owner.log.clone(), rewritten] {
        owner.restart(log);
        owner.settle(&mut consumers, &catalog);
        let after: Vec<_> = consumers.iter().map(|it| (it.epoch, it.owned.clone())).collect();
        assert_eq!(after, before);
    }
}

#[test]
fn commits_and_fetches_are_checked_against_the_members_epoch() {
    let catalog = two_topics();
    let mut owner = Owner::new(options());
    let consumers = settled(&mut owner, &catalog, 1);
    let by = |id: &str, epoch| {
        commit_request("news", 5).with_member_id(text(id)).with_generation_id_or_member_epoch(epoch)
    };
    assert_eq!(owner.commit(&by("m0", consumers[0].epoch)), 0);
    let stale = ResponseError::StaleMemberEpoch.code();
    assert_eq!(owner.commit(&by("m0", consumers[0].epoch - 1)), stale);
    let unknown = ResponseError::UnknownMemberId.code();
    assert_eq!(owner.commit(&by("x", 1)), unknown);
    assert_eq!(owner.commit(&commit_request("news", 6)), unknown);
    assert_eq!(owner.fetch("news", 0, true), (5, 0));
}

#[test]
fn an_empty_group_changes_its_protocol_and_keeps_its_offsets() {
    let catalog = two_topics();
    let mut owner = Owner::new(options());
    let ids = owner.stable_group(1);
    let refused = ResponseError::GroupIdNotFound.code();
    let mut consumer = Consumer::new("a", &["news"]);
    assert_eq!(consumer.beat(&mut owner, &catalog), refused);
    let generation = owner.rebalance(&ids);
    owner.commit(
        &commit_request("news", 5)
            .with_member_id(ids[0].clone())
            .with_generation_id_or_member_epoch(generation),
    );
    owner.pass(600_000);
    assert_eq!(consumer.beat(&mut owner, &catalog), 0);
    assert!(consumer.epoch > generation, "epochs go on from generations");
    owner.restart(owner.log.clone());
    let epoch = consumer.epoch;
    consumer.epoch = -1;
    consumer.beat(&mut owner, &catalog);
    let joined = owner.joined(3, &join_request("", &["range"]));
    assert!(joined.generation_id > epoch);
    owner.synced(&sync_request(&joined.member_id, joined.generation_id, &[]));
    owner.restart(owner.log.clone());
    assert_eq!(owner.heartbeat(&joined.member_id, joined.generation_id), 0);
    assert_eq!(owner.fetch("news", 0, false), (5, 0));
}

#[test]
fn groups_are_listed_by_state_and_type() {
    let catalog = two_topics();
    let mut owner = Owner::new(options());
    settled(&mut owner, &catalog, 1);
    for (states, types, count) in [
        (vec![], vec![], 1),
        (vec!["stable"], vec!["Consumer"], 1),
        (vec!["Empty"], vec![], 0),
        (vec![], vec!["classic"], 0),
    ] {
        let texts = |list: Vec<&str>| list.into_iter().map(text).collect();
        let request = ListGroupsRequest::default()
            .with_states_filter(texts(states))
            .with_types_filter(texts(types));
        let ticket = owner.call(5, |groups, caller, out| groups.list(caller, &request, out));
        assert_eq!(answer!(owner, ticket, ListGroups).groups.len(), count);
    }
}
