//! Committed offsets: of groups, of consumers without a group, and of transactions.

mod support;

use consumer_groups::{LoadErrorKind, Options, Topics, TransactionEnd};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic,
};
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    DeleteGroupsRequest, ListGroupsRequest, OffsetDeleteRequest, OffsetFetchRequest, ProducerId,
    TxnOffsetCommitRequest,
};
use support::catalog::{Catalog, EveryTopic};
use support::{Owner, commit_request, group_id, options, text, topic_name};

const DAY_MS: i64 = 24 * 3_600 * 1_000;

#[test]
fn a_consumer_without_a_group_commits_and_fetches() {
    let mut owner = Owner::new(options());
    assert_eq!(owner.fetch("news", 0, false), (-1, 0));
    assert_eq!(owner.commit(&commit_request("news", 7)), 0);
    assert_eq!(owner.fetch("news", 0, false), (7, 0));
    assert_eq!(owner.fetch("news", 1, false), (-1, 0));
    owner.restart(owner.log.clone());
    assert_eq!(owner.fetch("news", 0, false), (7, 0));
}

#[test]
fn every_version_is_answered_in_its_form() {
    let mut owner = Owner::new(options());
    for version in 2..=9 {
        let request = commit_request("news", i64::from(version));
        let ticket = owner.call(version, |groups, caller, out| {
            groups.offset_commit(caller, &request, &EveryTopic, out)
        });
        assert_eq!(answer!(owner, ticket, OffsetCommit).topics[0].partitions[0].error_code, 0);
    }
    for version in 1..8 {
        let asked = OffsetFetchRequestTopic::default()
            .with_name(topic_name("news"))
            .with_partition_indexes(vec![0]);
        let some = (version == 1).then(|| vec![asked]);
        let request = OffsetFetchRequest::default().with_group_id(group_id()).with_topics(some);
        let ticket =
            owner.call(version, |groups, caller, out| groups.offset_fetch(caller, &request, out));
        let response = answer!(owner, ticket, OffsetFetch);
        assert_eq!(response.topics[0].partitions[0].committed_offset, 9, "version {version}");
    }
    for version in 0..=5 {
        let request = ListGroupsRequest::default();
        let ticket = owner.call(version, |groups, caller, out| groups.list(caller, &request, out));
        assert_eq!(answer!(owner, ticket, ListGroups).groups.len(), 1);
    }
}

fn txn_request(producer_id: i64, epoch: i16, offset: i64) -> TxnOffsetCommitRequest {
    let partition = TxnOffsetCommitRequestPartition::default()
        .with_partition_index(0)
        .with_committed_offset(offset);
    let topic = TxnOffsetCommitRequestTopic::default()
        .with_name(topic_name("news"))
        .with_partitions(vec![partition]);
    TxnOffsetCommitRequest::default()
        .with_group_id(group_id())
        .with_producer_id(ProducerId(producer_id))
        .with_producer_epoch(epoch)
        .with_generation_id(-1)
        .with_topics(vec![topic])
}

fn commit_in_transaction(owner: &mut Owner, request: &TxnOffsetCommitRequest) -> i16 {
    let ticket = owner
        .call(5, |groups, caller, out| groups.txn_offset_commit(caller, request, &EveryTopic, out));
    answer!(owner, ticket, TxnOffsetCommit).topics[0].partitions[0].error_code
}

fn end(owner: &mut Owner, producer_id: i64, epoch: i16, end: TransactionEnd) {
    let mut out = Vec::new();
    owner.groups.end_transaction(producer_id, epoch, end, &mut out);
    owner.keep(out);
}

#[test]
fn offsets_of_a_transaction_wait_for_its_end() {
    for (how, offset) in [(TransactionEnd::Commit, 9), (TransactionEnd::Abort, 3)] {
        let mut owner = Owner::new(options());
        owner.commit(&commit_request("news", 3));
        assert_eq!(commit_in_transaction(&mut owner, &txn_request(40, 2, 9)), 0);
        let unstable = ResponseError::UnstableOffsetCommit.code();
        assert_eq!(owner.fetch("news", 0, true), (-1, unstable));
        assert_eq!(owner.fetch("news", 0, false), (3, 0));
        owner.restart(owner.log.clone());
        assert_eq!(owner.fetch("news", 0, true), (-1, unstable));
        end(&mut owner, 40, 1, TransactionEnd::Commit);
        assert_eq!(owner.fetch("news", 0, true), (-1, unstable), "an older incarnation ended");
        end(&mut owner, 40, 2, how);
        assert_eq!(owner.fetch("news", 0, true), (offset, 0));
        let length = owner.log.len();
        end(&mut owner, 40, 2, how);
        assert_eq!(owner.log.len(), length, "an end that is repeated changes nothing");
        owner.restart(owner.groups.state().collect());
        assert_eq!(owner.fetch("news", 0, true), (offset, 0));
    }
}

#[test]
fn a_commit_beside_a_transaction_wins_if_it_is_later() {
    let mut owner = Owner::new(options());
    commit_in_transaction(&mut owner, &txn_request(40, 0, 9));
    owner.commit(&commit_request("news", 12));
    owner.restart(owner.log.clone());
    end(&mut owner, 40, 0, TransactionEnd::Commit);
    assert_eq!(owner.fetch("news", 0, true), (12, 0));
}

#[test]
fn an_older_incarnation_of_a_producer_is_refused() {
    let mut owner = Owner::new(options());
    commit_in_transaction(&mut owner, &txn_request(40, 2, 9));
    let older = commit_in_transaction(&mut owner, &txn_request(40, 1, 10));
    assert_eq!(older, ResponseError::InvalidProducerEpoch.code());
    let newer = commit_in_transaction(&mut owner, &txn_request(40, 3, 10));
    assert_eq!(newer, ResponseError::ConcurrentTransactions.code());
    end(&mut owner, 40, 2, TransactionEnd::Abort);
    assert_eq!(commit_in_transaction(&mut owner, &txn_request(40, 3, 10)), 0);
}

#[test]
fn offsets_that_do_not_fit_are_refused() {
    let limits = Options { group_offsets_max: 1, offset_metadata_bytes_max: 1, ..options() };
    let mut owner = Owner::new(limits);
    assert_eq!(owner.commit(&commit_request("news", 1)), 0);
    assert_eq!(owner.commit(&commit_request("news", 2)), 0, "it takes no more room");
    let full = ResponseError::InvalidCommitOffsetSize.code();
    assert_eq!(owner.commit(&commit_request("more", 1)), full);
    let mut long = commit_request("news", 3);
    long.topics[0].partitions[0].committed_metadata = Some(text("too long"));
    assert_eq!(owner.commit(&long), ResponseError::OffsetMetadataTooLarge.code());
    assert_eq!(owner.fetch("news", 0, false), (2, 0));
    let mut owner = Owner::new(Options { groups_max: 0, ..options() });
    assert_eq!(owner.groups.take_refusal(), None, "nothing was refused");
    assert_eq!(owner.commit(&commit_request("news", 1)), full);
    let usage = owner.groups.take_refusal().expect("a commit was refused");
    assert_eq!((usage.group_count, usage.groups_max, usage.largest), (0, 0, None));
    assert_eq!(owner.groups.take_refusal(), None, "it was told");
    let mut owner = Owner::new(Options { total_bytes_max: 200, ..options() });
    assert_eq!(owner.commit(&commit_request("news", 1)), full);
}

#[test]
fn one_owner_leaves_groups_and_their_memory_to_others() {
    let group = |number: i64| {
        let group_id = kafka_protocol::messages::GroupId(text(&format!("group-{number}")));
        commit_request("news", 1).with_group_id(group_id)
    };
    let few = Options { groups_max: 8, ..options() };
    let small = Options { total_bytes_max: 3_000, ..options() };
    for limits in [few, small] {
        let mut owner = Owner::new(limits);
        owner.owner = shares::Owner(1);
        let taken = (0..100).take_while(|it| owner.commit(&group(*it)) == 0).count();
        assert!((1..=5).contains(&taken), "{taken}");
        owner.owner = shares::Owner(2);
        assert_eq!(owner.commit(&group(100)), 0, "there is room for it");
        // After a start, a group belongs to the owner that first uses it, and others still have
        // room.
        owner.restart(owner.log.clone());
        owner.owner = shares::Owner(1);
        for number in 0..100 {
            owner.commit(&group(number));
        }
        owner.owner = shares::Owner(3);
        assert_eq!(owner.commit(&group(101)), 0, "there is room for it");
    }
}

#[test]
fn the_id_of_a_group_counts_for_each_of_its_offsets() {
    let mut owner = Owner::new(Options { total_bytes_max: 20_000, ..options() });
    let id = kafka_protocol::messages::GroupId(text(&"g".repeat(1_000)));
    let is_taken = |number: &i64| {
        let request = commit_request(&format!("news-{number}"), 1).with_group_id(id.clone());
        owner.commit(&request) == 0
    };
    let taken = (0..100).take_while(is_taken).count();
    assert!((5..20).contains(&taken), "{taken}");
    assert!(owner.groups.bytes() > taken * 1_000, "{}", owner.groups.bytes());
}

#[test]
fn a_group_goes_on_with_what_it_has_when_others_have_come() {
    let mut owner = Owner::new(Options { total_bytes_max: 20_000, ..options() });
    owner.owner = shares::Owner(1);
    let ids = owner.stable_group(2);
    let generation = owner.rebalance(&ids);
    let by = |topic: &str, offset| {
        commit_request(topic, offset)
            .with_member_id(ids[0].clone())
            .with_generation_id_or_member_epoch(generation)
    };
    assert_eq!(owner.commit(&by("news", 1)), 0);
    let is_taken = |it: &i64| owner.commit(&by(&format!("news-{it}"), 1)) == 0;
    assert!((0..1_000).take_while(is_taken).count() > 10);
    owner.owner = shares::Owner(2);
    let is_taken = |it: &i64| {
        let group_id = kafka_protocol::messages::GroupId(text(&format!("group-{it}")));
        owner.commit(&commit_request("news", 1).with_group_id(group_id)) == 0
    };
    assert!((0..1_000).take_while(is_taken).count() > 3);
    owner.owner = shares::Owner(1);
    let none = ResponseError::CoordinatorNotAvailable.code();
    let full = ResponseError::InvalidCommitOffsetSize.code();
    assert_eq!(owner.commit(&by("more", 1)), full, "it has more than is left");
    let largest = owner.groups.take_refusal().and_then(|usage| usage.largest);
    assert!(largest.is_some_and(|(_, bytes)| bytes > 1_000), "a group has several offsets");
    assert_eq!(owner.commit(&by("news-0", 2)), 0);
    let in_transaction = |producer_id| {
        txn_request(producer_id, 0, 5).with_member_id(ids[0].clone()).with_generation_id(generation)
    };
    assert_eq!(commit_in_transaction(&mut owner, &in_transaction(7)), 0);
    assert_eq!(commit_in_transaction(&mut owner, &in_transaction(7)), 0, "once more");
    assert_eq!(commit_in_transaction(&mut owner, &in_transaction(8)), none, "a second one");
    end(&mut owner, 7, 0, TransactionEnd::Commit);
    assert_eq!(owner.fetch("news", 0, false), (5, 0));
    let generation = owner.rebalance(&ids);
    assert_eq!(owner.heartbeat(&ids[0], generation), 0);
}

#[test]
fn offsets_of_an_empty_group_are_forgotten_in_time() {
    let mut owner = Owner::new(options());
    owner.commit(&commit_request("news", 1));
    owner.pass(6 * DAY_MS);
    owner.commit(&commit_request("more", 1));
    owner.pass(DAY_MS + 3_600_000);
    assert_eq!(owner.fetch("news", 0, false), (-1, 0));
    assert_eq!(owner.fetch("more", 0, false), (1, 0));
    owner.pass(7 * DAY_MS);
    assert_eq!(owner.groups.count(), 0);
    assert_eq!(owner.groups.bytes(), 0);
    owner.restart(owner.log.clone());
    assert_eq!(owner.groups.count(), 0);
}

#[test]
fn offsets_of_members_are_kept() {
    let mut owner = Owner::new(options());
    let ids = owner.stable_group(1);
    let generation = owner.rebalance(&ids);
    let by = commit_request("news", 5)
        .with_member_id(ids[0].clone())
        .with_generation_id_or_member_epoch(generation);
    owner.commit(&by);
    for _ in 0..(10 * DAY_MS / 7_200_000) {
        // Time jumps, and the heartbeat arrives before the tick.
        owner.now_ms += 7_200_000;
        assert_eq!(owner.heartbeat(&ids[0], generation), 0);
        owner.tick();
    }
    assert_eq!(owner.fetch("news", 0, false), (5, 0));
}

fn delete_offset(owner: &mut Owner, topic: &str) -> (i16, Option<i16>) {
    delete_offset_of(owner, topic, &EveryTopic)
}

fn delete_offset_of(owner: &mut Owner, topic: &str, known: &dyn Topics) -> (i16, Option<i16>) {
    let partition = OffsetDeleteRequestPartition::default().with_partition_index(0);
    let topic = OffsetDeleteRequestTopic::default()
        .with_name(topic_name(topic))
        .with_partitions(vec![partition]);
    let request = OffsetDeleteRequest::default().with_group_id(group_id()).with_topics(vec![topic]);
    let ticket =
        owner.call(0, |groups, caller, out| groups.offset_delete(caller, &request, known, out));
    let response = answer!(owner, ticket, OffsetDelete);
    (response.error_code, response.topics.first().map(|it| it.partitions[0].error_code))
}

#[test]
fn only_offsets_of_topics_that_no_member_reads_are_deleted() {
    let mut owner = Owner::new(options());
    let none = ResponseError::GroupIdNotFound.code();
    assert_eq!(delete_offset(&mut owner, "news"), (none, None));
    owner.commit(&commit_request("news", 1));
    owner.commit(&commit_request("old", 1));
    owner.stable_group(1);
    let subscribed = ResponseError::GroupSubscribedToTopic.code();
    assert_eq!(delete_offset(&mut owner, "news"), (0, Some(subscribed)));
    assert_eq!(delete_offset(&mut owner, "old"), (0, Some(0)));
    owner.restart(owner.log.clone());
    assert_eq!(owner.fetch("news", 0, false), (1, 0));
    assert_eq!(owner.fetch("old", 0, false), (-1, 0));
}

#[test]
fn offsets_of_partitions_that_are_not_there_are_not_deleted() {
    let mut owner = Owner::new(options());
    owner.commit(&commit_request("news", 1));
    let unknown = ResponseError::UnknownTopicOrPartition.code();
    for known in [Catalog::of(&[]), Catalog::of(&[("news", 0)])] {
        assert_eq!(delete_offset_of(&mut owner, "news", &known), (0, Some(unknown)));
    }
    assert_eq!(owner.fetch("news", 0, false), (1, 0));
    let known = Catalog::of(&[("news", 1)]);
    assert_eq!(delete_offset_of(&mut owner, "news", &known), (0, Some(0)));
    assert_eq!(owner.fetch("news", 0, false), (-1, 0));
}

#[test]
fn a_deleted_offset_does_not_come_back_with_the_end_of_a_transaction() {
    let mut owner = Owner::new(options());
    owner.commit(&commit_request("news", 1));
    owner.commit(&commit_request("more", 1));
    commit_in_transaction(&mut owner, &txn_request(40, 0, 9));
    assert_eq!(delete_offset(&mut owner, "news"), (0, Some(0)));
    assert_eq!(owner.fetch("news", 0, true), (-1, 0));
    owner.restart(owner.log.clone());
    end(&mut owner, 40, 0, TransactionEnd::Commit);
    assert_eq!(owner.fetch("news", 0, true), (-1, 0));
    assert_eq!(delete_offset(&mut owner, "more"), (0, Some(0)));
    assert_eq!((owner.groups.count(), owner.groups.bytes()), (0, 0), "nothing is left");
}

#[test]
fn all_offsets_of_a_group_are_those_that_were_committed() {
    let mut owner = Owner::new(options());
    let all = |owner: &mut Owner, require_stable| {
        let group = OffsetFetchRequestGroup::default().with_group_id(group_id()).with_topics(None);
        let request = OffsetFetchRequest::default()
            .with_groups(vec![group])
            .with_require_stable(require_stable);
        let ticket =
            owner.call(8, |groups, caller, out| groups.offset_fetch(caller, &request, out));
        let topics = answer!(owner, ticket, OffsetFetch).groups[0].topics.clone();
        let partitions = topics.into_iter().flat_map(|topic| topic.partitions);
        partitions.map(|it| (it.committed_offset, it.error_code)).collect::<Vec<_>>()
    };
    commit_in_transaction(&mut owner, &txn_request(40, 0, 9));
    assert_eq!([all(&mut owner, false), all(&mut owner, true)], [vec![], vec![]]);
    owner.commit(&commit_request("news", 1));
    let unstable = ResponseError::UnstableOffsetCommit.code();
    assert_eq!(all(&mut owner, false), [(1, 0)]);
    assert_eq!(all(&mut owner, true), [(-1, unstable)]);
}

#[test]
fn a_deleted_topic_takes_its_offsets_with_it() {
    let mut owner = Owner::new(options());
    owner.commit(&commit_request("news", 1));
    owner.commit(&commit_request("more", 1));
    commit_in_transaction(&mut owner, &txn_request(40, 0, 9));
    let mut out = Vec::new();
    owner.groups.delete_topic("news", &mut out);
    owner.keep(out);
    end(&mut owner, 40, 0, TransactionEnd::Commit);
    assert_eq!(owner.fetch("news", 0, true), (-1, 0));
    assert_eq!(owner.fetch("more", 0, true), (1, 0));
}

#[test]
fn offsets_are_taken_for_partitions_that_are_there_alone() {
    let mut owner = Owner::new(options());
    let unknown = ResponseError::UnknownTopicOrPartition.code();
    for (topics, code) in [(Catalog::of(&[]), unknown), (Catalog::of(&[("news", 1)]), 0)] {
        let request = commit_request("news", 1);
        let ticket = owner.call(9, |groups, caller, out| {
            groups.offset_commit(caller, &request, &topics, out);
        });
        let answered = answer!(owner, ticket, OffsetCommit);
        assert_eq!(answered.topics[0].partitions[0].error_code, code);
        let request = txn_request(40, 0, 9);
        let ticket = owner.call(5, |groups, caller, out| {
            groups.txn_offset_commit(caller, &request, &topics, out);
        });
        let answered = answer!(owner, ticket, TxnOffsetCommit);
        assert_eq!(answered.topics[0].partitions[0].error_code, code);
    }
    let mut request = commit_request("news", 1);
    for (index, code) in [(-1, unknown), (1, unknown), (0, 0)] {
        request.topics[0].partitions[0].partition_index = index;
        let topics = Catalog::of(&[("news", 1)]);
        let ticket = owner.call(9, |groups, caller, out| {
            groups.offset_commit(caller, &request, &topics, out);
        });
        let answered = answer!(owner, ticket, OffsetCommit);
        assert_eq!(answered.topics[0].partitions[0].error_code, code, "partition {index}");
    }
}

#[test]
fn only_groups_without_members_are_deleted() {
    let mut owner = Owner::new(options());
    let delete = |owner: &mut Owner| {
        let request = DeleteGroupsRequest::default().with_groups_names(vec![group_id()]);
        let ticket = owner.call(2, |groups, caller, out| groups.delete(caller, &request, out));
        answer!(owner, ticket, DeleteGroups).results[0].error_code
    };
    assert_eq!(delete(&mut owner), ResponseError::GroupIdNotFound.code());
    owner.commit(&commit_request("news", 1));
    commit_in_transaction(&mut owner, &txn_request(40, 0, 9));
    owner.stable_group(1);
    assert_eq!(delete(&mut owner), ResponseError::NonEmptyGroup.code());
    owner.pass(3_600_000);
    assert_eq!(delete(&mut owner), 0);
    assert_eq!((owner.groups.count(), owner.groups.bytes()), (0, 0));
    owner.restart(owner.log.clone());
    assert_eq!(owner.groups.count(), 0);
    end(&mut owner, 40, 0, TransactionEnd::Commit);
    assert_eq!(owner.fetch("news", 0, false), (-1, 0));
}

#[test]
fn records_that_are_damaged_or_of_a_later_version_are_told_of() {
    let mut owner = Owner::new(options());
    owner.commit(&commit_request("news", 1));
    owner.stable_group(1);
    for record in owner.log.clone() {
        let value = record.value.expect("nothing was deleted");
        for length in 0..record.key.len() {
            let error = owner.groups.load(&record.key[..length], Some(&value)).expect_err("cut");
            assert_eq!(error.kind, LoadErrorKind::Key);
        }
        for length in 0..value.len() {
            let error = owner.groups.load(&record.key, Some(&value[..length])).expect_err("cut");
            assert_eq!(error.kind, LoadErrorKind::Value);
        }
        let later = [&[record.key[0] + 1][..], &record.key[1..]].concat();
        let error = owner.groups.load(&later, Some(&value)).expect_err("of a later version");
        assert_eq!(error.kind, LoadErrorKind::Key);
        assert!(error.to_string().contains("later version"), "{error}");
    }
}

#[test]
fn offsets_are_forgotten_by_the_hosts_clock() {
    let mut owner = Owner::new(options());
    // A host without a real-time clock learns the date after the broker has started.
    let ahead_ms = 50 * 365 * DAY_MS;
    owner.groups.set_host_ahead(ahead_ms);
    owner.commit(&commit_request("news", 1));
    owner.pass(6 * DAY_MS);
    assert_eq!(owner.fetch("news", 0, false), (1, 0));
    // From the next start on, the owner's clock agrees with the host's.
    owner.now_ms += ahead_ms;
    owner.restart(owner.log.clone());
    owner.pass(DAY_MS / 2);
    assert_eq!(owner.fetch("news", 0, false), (1, 0));
    owner.pass(DAY_MS);
    assert_eq!(owner.groups.count(), 0);
}
