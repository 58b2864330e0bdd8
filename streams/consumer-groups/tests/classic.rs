//! Single steps of the classic protocol.

mod support;

use consumer_groups::Options;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::{DescribeGroupsRequest, HeartbeatRequest, LeaveGroupRequest};
use support::{
    Owner, REBALANCE_MS, SESSION_MS, commit_request, group_id, join_request, options, sync_request,
    text,
};

fn code(error: ResponseError) -> i16 {
    error.code()
}

#[test]
fn a_member_without_an_id_is_given_one_and_joins_with_it() {
    let mut owner = Owner::new(options());
    let invited = owner.joined(4, &join_request("", &["range"]));
    assert_eq!(invited.error_code, code(ResponseError::MemberIdRequired));
    let joined = owner.joined(4, &join_request(&invited.member_id, &["range"]));
    assert_eq!(joined.error_code, 0);
    assert_eq!(joined.leader, joined.member_id);
    assert_eq!(joined.members.len(), 1);
}

#[test]
fn an_old_client_joins_at_once() {
    let mut owner = Owner::new(options());
    for version in 0..4 {
        let joined = owner.joined(
            version,
            &join_request("", &["range"])
                .with_group_id(kafka_protocol::messages::GroupId(text(&format!("old-{version}")))),
        );
        assert_eq!((joined.error_code, joined.generation_id), (0, 1), "version {version}");
    }
}

#[test]
fn the_leader_hears_of_all_members_and_each_gets_what_it_assigns() {
    let mut owner = Owner::new(options());
    let ids = owner.stable_group(3);
    let generation = owner.rebalance(&ids);
    for id in &ids {
        let synced = owner.synced(&sync_request(id, generation, &[]));
        assert_eq!(synced.assignment, id.clone().into_bytes());
        assert_eq!(owner.heartbeat(id, generation), 0);
    }
}

#[test]
fn a_protocol_is_chosen_that_all_know() {
    let mut owner = Owner::new(options());
    let first = owner.joined(3, &join_request("", &["sticky", "range"]));
    assert_eq!(first.protocol_name, Some(text("sticky")));
    let second = owner.join(3, &join_request("", &["range"]));
    assert!(owner.is_waiting(second));
    let again = owner.joined(3, &join_request(&first.member_id, &["sticky", "range"]));
    assert_eq!(again.protocol_name, Some(text("range")));
    let stranger = owner.joined(3, &join_request("", &["other"]));
    assert_eq!(stranger.error_code, code(ResponseError::InconsistentGroupProtocol));
}

#[test]
fn a_first_rebalance_waits_for_more_members() {
    let mut owner = Owner::new(Options::default());
    let first = owner.join(3, &join_request("", &["range"]));
    owner.pass(2_000);
    let second = owner.join(3, &join_request("", &["range"]));
    owner.pass(2_000);
    assert!(owner.is_waiting(first), "a member came, so it waits another time");
    owner.pass(2_000);
    let generations = [first, second].map(|it| answer!(owner, it, JoinGroup).generation_id);
    assert_eq!(generations, [1, 1]);
}

#[test]
fn wrong_generations_and_members_are_refused_and_change_nothing() {
    let mut owner = Owner::new(options());
    let ids = owner.stable_group(2);
    let generation = owner.rebalance(&ids);
    let log_length = owner.log.len();
    assert_eq!(owner.heartbeat(&ids[0], generation + 1), code(ResponseError::IllegalGeneration));
    assert_eq!(owner.heartbeat(&text("x"), generation), code(ResponseError::UnknownMemberId));
    let stale = sync_request(&ids[0], generation - 1, &[]);
    assert_eq!(owner.synced(&stale).error_code, code(ResponseError::IllegalGeneration));
    let unknown = owner.joined(5, &join_request("x", &["range"]));
    assert_eq!(unknown.error_code, code(ResponseError::UnknownMemberId));
    let hasty = join_request("", &["range"]).with_session_timeout_ms(1);
    let refused = owner.joined(5, &hasty);
    assert_eq!(refused.error_code, code(ResponseError::InvalidSessionTimeout));
    assert_eq!(owner.log.len(), log_length);
    assert_eq!(owner.heartbeat(&ids[0], generation), 0);
}

#[test]
fn a_rebalance_tells_the_others_to_join_again() {
    let mut owner = Owner::new(options());
    let ids = owner.stable_group(2);
    let generation = owner.rebalance(&ids);
    let joining = owner.join(5, &join_request(&ids[0], &["sticky", "range"]));
    let rebalancing = code(ResponseError::RebalanceInProgress);
    assert_eq!(owner.heartbeat(&ids[1], generation), rebalancing);
    let late = owner.synced(&sync_request(&ids[1], generation, &[]));
    assert_eq!(late.error_code, rebalancing);
    owner.pass(SESSION_MS / 2);
    assert!(owner.is_waiting(joining));
    owner.joined(5, &join_request(&ids[1], &["range"]));
    assert_eq!(answer!(owner, joining, JoinGroup).generation_id, generation + 1);
}

#[test]
fn a_silent_member_is_dropped_after_its_session() {
    let mut owner = Owner::new(options());
    let ids = owner.stable_group(2);
    let generation = owner.rebalance(&ids);
    for _ in 0..3 {
        owner.pass(SESSION_MS / 2);
        owner.heartbeat(&ids[0], generation);
    }
    let unknown = owner.heartbeat(&ids[1], generation);
    assert_eq!(unknown, code(ResponseError::UnknownMemberId));
    let alone = owner.joined(5, &join_request(&ids[0], &["range"]));
    assert_eq!((alone.generation_id, alone.members.len()), (generation + 1, 1));
}

#[test]
fn sessions_end_evenly_when_the_hosts_clock_is_set() {
    for set_ms in [-3_600_000, 3_600_000] {
        let mut owner = Owner::new(options());
        let ids = owner.stable_group(2);
        let generation = owner.rebalance(&ids);
        owner.groups.set_host_ahead(set_ms);
        owner.pass(SESSION_MS / 2);
        assert_eq!(owner.heartbeat(&ids[0], generation), 0, "set by {set_ms} ms");
        assert_eq!(owner.heartbeat(&ids[1], generation), 0, "set by {set_ms} ms");
        for _ in 0..3 {
            owner.pass(SESSION_MS / 2);
            owner.heartbeat(&ids[0], generation);
        }
        let unknown = owner.heartbeat(&ids[1], generation);
        assert_eq!(unknown, code(ResponseError::UnknownMemberId), "set by {set_ms} ms");
    }
}

#[test]
fn a_member_that_joins_no_more_holds_a_rebalance_up_only_for_its_timeout() {
    let mut owner = Owner::new(options());
    let ids = owner.stable_group(2);
    let generation = owner.rebalance(&ids);
    let joining = owner.join(5, &join_request(&ids[0], &["sticky", "range"]));
    for _ in 0..(REBALANCE_MS / SESSION_MS * 2) {
        assert!(owner.is_waiting(joining));
        owner.heartbeat(&ids[1], generation);
        owner.pass(SESSION_MS / 2);
    }
    assert_eq!(answer!(owner, joining, JoinGroup).members.len(), 1);
}

#[test]
fn a_leader_that_does_not_assign_is_dropped() {
    let mut owner = Owner::new(options());
    let leader = owner.joined(3, &join_request("", &["range"]));
    for _ in 0..(REBALANCE_MS / SESSION_MS * 2) {
        assert_eq!(owner.heartbeat(&leader.member_id, 1), 0);
        owner.pass(SESSION_MS / 2);
    }
    assert_eq!(owner.heartbeat(&leader.member_id, 1), code(ResponseError::UnknownMemberId));
}

#[test]
fn members_leave_in_one_request_each_with_its_result() {
    let mut owner = Owner::new(options());
    let ids = owner.stable_group(3);
    let member = |id: &str| MemberIdentity::default().with_member_id(text(id));
    let request = LeaveGroupRequest::default().with_group_id(group_id()).with_members(vec![
        member(&ids[0]),
        member("x"),
        member(&ids[1]),
    ]);
    let ticket = owner.leave(5, &request);
    let codes: Vec<i16> =
        answer!(owner, ticket, LeaveGroup).members.iter().map(|it| it.error_code).collect();
    assert_eq!(codes, [0, code(ResponseError::UnknownMemberId), 0]);
    let single =
        LeaveGroupRequest::default().with_group_id(group_id()).with_member_id(ids[2].clone());
    let ticket = owner.leave(1, &single);
    assert_eq!(answer!(owner, ticket, LeaveGroup).error_code, 0);
    assert_eq!(state(&mut owner), "Empty");
}

fn state(owner: &mut Owner) -> String {
    let request = DescribeGroupsRequest::default().with_groups(vec![group_id()]);
    let ticket = owner.call(6, |groups, caller, out| groups.describe(caller, &request, out));
    answer!(owner, ticket, DescribeGroups).groups[0].group_state.to_string()
}

/// Joins as a static member of instance `i`.
fn join_static(owner: &mut Owner, version: i16, id: &str) -> (String, i32, bool, String) {
    let request = join_request(id, &["range"]).with_group_instance_id(Some(text("i")));
    let joined = owner.joined(version, &request);
    assert_eq!(joined.error_code, 0);
    let leader = joined.leader.to_string();
    (joined.member_id.to_string(), joined.generation_id, joined.skip_assignment, leader)
}

/// Sends a heartbeat of instance `i`.
fn beat_static(owner: &mut Owner, id: &str, generation: i32) -> i16 {
    let request = HeartbeatRequest::default()
        .with_group_id(group_id())
        .with_group_instance_id(Some(text("i")))
        .with_member_id(text(id))
        .with_generation_id(generation);
    let ticket = owner.call(4, |groups, caller, out| groups.heartbeat(caller, &request, out));
    answer!(owner, ticket, Heartbeat).error_code
}

#[test]
fn a_static_member_comes_back_without_a_rebalance_and_fences_the_old_one() {
    let mut owner = Owner::new(options());
    let (first, generation, ..) = join_static(&mut owner, 9, "");
    let own = (text(&first), text("all"));
    owner.synced(&sync_request(&text(&first), generation, &[own]));
    let (second, same, skips, leader) = join_static(&mut owner, 9, "");
    assert_eq!((same, skips), (generation, true));
    assert_eq!(leader, second);
    let synced = owner.synced(&sync_request(&text(&second), generation, &[]));
    assert_eq!(synced.assignment, "all");
    let stale = join_request(&first, &["range"]).with_group_instance_id(Some(text("i")));
    assert_eq!(owner.joined(9, &stale).error_code, code(ResponseError::FencedInstanceId));
    let (third, .., leader) = join_static(&mut owner, 8, "");
    assert_eq!(leader, second, "a client that cannot skip is not told that it leads");
    assert_eq!(owner.heartbeat(&text(&third), generation), 0);
}

#[test]
fn a_static_member_is_removed_by_its_instance() {
    let mut owner = Owner::new(options());
    join_static(&mut owner, 9, "");
    let instance = MemberIdentity::default().with_group_instance_id(Some(text("i")));
    let request =
        LeaveGroupRequest::default().with_group_id(group_id()).with_members(vec![instance]);
    let ticket = owner.leave(5, &request);
    assert_eq!(answer!(owner, ticket, LeaveGroup).members[0].error_code, 0);
    assert_eq!(state(&mut owner), "Empty");
}

#[test]
fn a_join_that_is_repeated_answers_the_first_one_too() {
    let mut owner = Owner::new(options());
    let ids = owner.stable_group(2);
    let request = join_request(&ids[0], &["sticky", "range"]);
    let first = owner.join(5, &request);
    let second = owner.join(5, &request);
    let rebalancing = code(ResponseError::RebalanceInProgress);
    assert_eq!(answer!(owner, first, JoinGroup).error_code, rebalancing);
    assert!(owner.is_waiting(second));
}

#[test]
fn a_full_group_takes_no_more_members() {
    let mut owner = Owner::new(Options { members_max: 1, ..options() });
    owner.stable_group(1);
    let refused = owner.joined(5, &join_request("", &["range"]));
    assert_eq!(refused.error_code, code(ResponseError::GroupMaxSizeReached));
    let mut owner = Owner::new(Options { group_bytes_max: 100, ..options() });
    let refused = owner.joined(5, &join_request("", &["range"]));
    assert_eq!(refused.error_code, code(ResponseError::GroupMaxSizeReached));
    assert_eq!(owner.groups.count(), 0);
    assert_eq!(owner.groups.bytes(), 0);
}

#[test]
fn members_carry_on_after_a_restart() {
    let mut owner = Owner::new(options());
    let ids = owner.stable_group(2);
    let generation = owner.rebalance(&ids);
    let rewritten: Vec<_> = owner.groups.state().collect();
    for log in [owner.log.clone(), rewritten] {
        owner.restart(log);
        assert_eq!(state(&mut owner), "Stable");
        for id in &ids {
            assert_eq!(owner.heartbeat(id, generation), 0);
            let synced = owner.synced(&sync_request(id, generation, &[]));
            assert_eq!(synced.assignment, id.clone().into_bytes());
        }
    }
}

#[test]
fn a_generation_is_never_handed_out_twice() {
    let mut owner = Owner::new(options());
    let ids = owner.stable_group(1);
    let generation = owner.rebalance(&ids);
    let unfinished = owner.joined(5, &join_request(&ids[0], &["range"])).generation_id;
    assert_eq!(unfinished, generation + 1);
    let rewritten: Vec<_> = owner.groups.state().collect();
    for log in [owner.log.clone(), rewritten] {
        owner.restart(log);
        assert_eq!(owner.heartbeat(&ids[0], generation), 0);
        let next = owner.joined(5, &join_request(&ids[0], &["range"])).generation_id;
        assert!(next > unfinished, "{next} was handed out before");
    }
}

#[test]
fn a_static_member_that_was_told_its_id_in_a_rebalance_is_not_fenced_after_a_restart() {
    let leave = LeaveGroupRequest::default()
        .with_group_id(group_id())
        .with_members(vec![MemberIdentity::default().with_group_instance_id(Some(text("i")))]);
    // The static member is replaced by a returning client, or leaves before.
    for leaves in [false, true] {
        let mut owner = Owner::new(options());
        let (first, generation, ..) = join_static(&mut owner, 9, "");
        owner.synced(&sync_request(&text(&first), generation, &[]));
        let invited = owner.joined(5, &join_request("", &["range"])).member_id;
        let other = owner.join(5, &join_request(&invited, &["range"]));
        if leaves {
            owner.leave(5, &leave);
        }
        let second = match leaves {
            true => {
                let request = join_request("", &["range"]).with_group_instance_id(Some(text("i")));
                let ticket = owner.join(9, &request);
                let alone = answer!(owner, other, JoinGroup).generation_id;
                assert_eq!(
                    owner.heartbeat(&invited, alone),
                    code(ResponseError::RebalanceInProgress)
                );
                owner.join(5, &join_request(&invited, &["range"]));
                let joined = answer!(owner, ticket, JoinGroup);
                (joined.member_id.to_string(), joined.generation_id)
            }
            false => {
                let (id, generation, ..) = join_static(&mut owner, 9, "");
                (id, generation)
            }
        };
        assert_ne!(second.0, first);
        let rewritten: Vec<_> = owner.groups.state().collect();
        for log in [owner.log.clone(), rewritten] {
            owner.restart(log);
            let rejoins = code(ResponseError::IllegalGeneration);
            let beaten = beat_static(&mut owner, &second.0, second.1);
            assert_eq!(beaten, rejoins, "leaves: {leaves}");
            let fenced = code(ResponseError::FencedInstanceId);
            assert_eq!(beat_static(&mut owner, &first, generation), fenced);
        }
        assert_eq!(owner.groups.state().count(), 2);
    }
}

#[test]
fn nor_is_one_that_was_dropped_after_it_was_told() {
    let mut owner = Owner::new(options());
    let (first, generation, ..) = join_static(&mut owner, 9, "");
    owner.synced(&sync_request(&text(&first), generation, &[]));
    let invited = owner.joined(5, &join_request("", &["range"])).member_id;
    let other = owner.join(5, &join_request(&invited, &["range"]));
    let (second, generation, ..) = join_static(&mut owner, 9, "");
    assert_eq!(answer!(owner, other, JoinGroup).generation_id, generation);
    // Its session expires, and the other member continues alone.
    owner.pass(SESSION_MS / 2);
    assert_eq!(owner.heartbeat(&invited, generation), 0);
    owner.pass(SESSION_MS / 2);
    assert_eq!(owner.heartbeat(&invited, generation), code(ResponseError::RebalanceInProgress));
    let alone = owner.joined(5, &join_request(&invited, &["range"]));
    assert_eq!((alone.error_code, alone.generation_id), (0, generation + 1));
    let rewritten: Vec<_> = owner.groups.state().collect();
    for log in [owner.log.clone(), rewritten] {
        owner.restart(log);
        let rejoins = code(ResponseError::IllegalGeneration);
        assert_eq!(beat_static(&mut owner, &second, generation), rejoins);
    }
}

#[test]
fn a_member_whose_heartbeat_waits_to_be_handled_is_not_dropped() {
    let mut owner = Owner::new(options());
    let ids = owner.stable_group(2);
    let generation = owner.rebalance(&ids);
    let heard_ms = owner.now_ms;
    owner.now_ms += 2 * SESSION_MS;
    assert_eq!(owner.heartbeat(&ids[0], generation), 0);
    owner.tick_after_requests_until(heard_ms);
    assert_eq!(owner.heartbeat(&ids[1], generation), 0);
    owner.tick();
    assert_eq!(state(&mut owner), "Stable");
    owner.now_ms += 2 * SESSION_MS;
    assert_eq!(owner.heartbeat(&ids[0], generation), 0);
    owner.tick();
    let rebalancing = code(ResponseError::RebalanceInProgress);
    assert_eq!(owner.heartbeat(&ids[0], generation), rebalancing, "the other one is dead");
}

#[test]
fn members_commit_only_in_their_generation() {
    let mut owner = Owner::new(options());
    let ids = owner.stable_group(1);
    let generation = owner.rebalance(&ids);
    let by = |id: &str, generation| {
        commit_request("news", 5)
            .with_member_id(text(id))
            .with_generation_id_or_member_epoch(generation)
    };
    assert_eq!(owner.commit(&by(&ids[0], generation)), 0);
    let illegal = code(ResponseError::IllegalGeneration);
    assert_eq!(owner.commit(&by(&ids[0], generation - 1)), illegal);
    let unknown = code(ResponseError::UnknownMemberId);
    assert_eq!(owner.commit(&by("x", generation)), unknown);
    assert_eq!(owner.commit(&commit_request("news", 6)), unknown, "it is no simple consumer's");
    owner.joined(5, &join_request(&ids[0], &["range"]));
    let rebalancing = code(ResponseError::RebalanceInProgress);
    assert_eq!(owner.commit(&by(&ids[0], generation + 1)), rebalancing);
    assert_eq!(owner.fetch("news", 0, false), (5, 0));
}

#[test]
fn an_id_that_was_given_out_and_never_joins_disturbs_nobody() {
    let mut owner = Owner::new(options());
    let ids = owner.stable_group(2);
    let generation = owner.rebalance(&ids);
    for id in &ids {
        owner.synced(&sync_request(id, generation, &[]));
    }
    // One client disconnects before it joins with its id, another one leaves.
    owner.joined(4, &join_request("", &["range"]));
    let left = owner.joined(4, &join_request("", &["range"])).member_id;
    let leave = LeaveGroupRequest::default().with_group_id(group_id()).with_member_id(left);
    let ticket = owner.leave(1, &leave);
    assert_eq!(answer!(owner, ticket, LeaveGroup).error_code, 0);
    let mut passed = 0;
    while passed < 2 * SESSION_MS {
        for id in &ids {
            assert_eq!(owner.heartbeat(id, generation), 0, "after {passed} ms");
        }
        owner.pass(SESSION_MS / 4);
        passed += SESSION_MS / 4;
    }
}
