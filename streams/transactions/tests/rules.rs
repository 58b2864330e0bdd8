//! Single rules of Kafka's transaction coordinator.

mod support;

use kafka_protocol::ResponseError::{
    self, ConcurrentTransactions, CoordinatorLoadInProgress, InvalidProducerEpoch,
    InvalidProducerIdMapping, InvalidRequest, InvalidTransactionTimeout, InvalidTxnState,
    NotEnoughReplicas, PolicyViolation, ProducerFenced, TransactionAbortable,
};
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, InitProducerIdRequest, ListTransactionsRequest, ProducerId,
};
use kafka_protocol::protocol::StrBytes;
use support::{
    Owner, TIMEOUT_MS, add_request, group, id, init_request, outcome_of, producer, result, topic,
    write,
};
use transactions::Outcome::{Abort, Commit};
use transactions::{
    Outcome, Participants, Producer, Response, Settings, TRANSACTIONAL_ID_BYTES_MAX, Transactions,
    WAITING_COUNT_MAX, Write,
};

const LAST_EPOCH: i16 = i16::MAX - 1;

/// Creates an owner with an open transaction.
fn ongoing() -> (Owner, Producer) {
    let mut owner = Owner::new();
    let producer = owner.begin(&id("t"));
    owner.add(3, &id("t"), producer).expect("it may");
    (owner, producer)
}

/// Creates an owner whose transactional id has almost exhausted its epochs.
fn exhausted() -> (Owner, Producer) {
    let mut owner = Owner::new();
    let mut last = owner.begin(&id("t"));
    while last.epoch < LAST_EPOCH {
        last = owner.begin(&id("t"));
    }
    (owner, last)
}

#[test]
fn each_producer_without_a_transactional_id_gets_an_id_of_its_own() {
    let mut owner = Owner::new();
    for expected in 0..2_500 {
        let request = InitProducerIdRequest::default().with_transactional_id(None);
        let (_, response) =
            owner.call(0, |it, caller, out| it.init_producer_id(caller, &request, out));
        let got = outcome_of(&response.expect("at once")).expect("it may");
        assert_eq!(got, Some(producer(expected, 0)));
    }
    owner.crash();
    assert_eq!(owner.begin(&id("t")), producer(3_000, 0));
}

#[test]
fn each_instance_of_a_transactional_id_gets_a_higher_epoch() {
    let mut owner = Owner::new();
    assert_eq!(owner.begin(&id("t")), producer(0, 0));
    assert_eq!(owner.begin(&id("t")), producer(0, 1));
    assert_eq!(owner.begin(&id("u")), producer(1, 0));
    owner.crash();
    assert_eq!(owner.begin(&id("t")), producer(0, 2));
}

#[test]
fn an_id_that_was_on_a_disk_is_so_in_later_transactions_and_after_a_start() {
    let (mut owner, first) = ongoing();
    owner.transactions.note_on_disk(&id("another"));
    assert_eq!(["t", "another"].map(|it| owner.transactions.is_on_disk(&id(it))), [false; 2]);
    owner.transactions.note_on_disk(&id("t"));
    owner.end(3, &id("t"), first, Commit).expect("it is open");
    owner.finish();
    owner.begin(&id("t"));
    owner.begin(&id("u"));
    assert_eq!(["t", "u"].map(|it| owner.transactions.is_on_disk(&id(it))), [true, false]);
    owner.crash();
    assert_eq!(["t", "u"].map(|it| owner.transactions.is_on_disk(&id(it))), [true; 2]);
}

#[test]
fn a_new_instance_aborts_what_is_open_before_it_begins() {
    let (mut owner, first) = ongoing();
    assert_eq!(owner.init(5, &id("t"), None), Err(ConcurrentTransactions));
    assert_eq!(owner.state(&id("t")), "PrepareAbort");
    assert_eq!(owner.init(5, &id("t"), None), Err(ConcurrentTransactions));
    let markers = owner.finish();
    assert_eq!(markers.len(), 1);
    assert_eq!((markers[0].outcome, markers[0].producer), (Abort, producer(0, 1)));
    assert_eq!(markers[0].participants, write(&id("t"), first, &[1, 2]).participants);
    assert_eq!(owner.begin(&id("t")), producer(0, 2));
    assert_eq!(owner.end(3, &id("t"), first, Commit), Err(ProducerFenced));
}

#[test]
fn an_exhausted_producer_id_is_followed_by_another_one() {
    let (mut owner, last) = exhausted();
    let next = owner.begin(&id("t"));
    assert_eq!(next.epoch, 0);
    assert_ne!(next.id, last.id);
    assert_eq!(owner.add(3, &id("t"), last), Err(InvalidProducerIdMapping));
}

#[test]
fn the_last_epoch_can_still_be_fenced() {
    let (mut owner, last) = exhausted();
    owner.add(3, &id("t"), last).expect("it may");
    assert_eq!(owner.init(5, &id("t"), Some(last)), Err(ConcurrentTransactions));
    assert_eq!(owner.finish()[0].producer, Producer { epoch: i16::MAX, ..last });
    // The epoch that only fences is never assigned to a client, and claims of it are rejected.
    let fence = Producer { epoch: i16::MAX, ..last };
    assert_eq!(owner.add(3, &id("t"), fence), Err(ProducerFenced));
    let next = owner.init(5, &id("t"), Some(last)).expect("it is over");
    assert_eq!((next.id != last.id, next.epoch), (true, 0));
}

#[test]
fn a_client_that_recovers_goes_on_and_may_ask_again() {
    let mut owner = Owner::new();
    let first = owner.begin(&id("t"));
    let second = owner.init(3, &id("t"), Some(first)).expect("it is the last");
    assert_eq!(second, producer(0, 1));
    assert_eq!(owner.init(3, &id("t"), Some(first)), Ok(second));
    let third = owner.init(3, &id("t"), Some(second)).expect("it is the last");
    assert_eq!(third, producer(0, 2));
    // An epoch that another instance has taken is not returned to the previous one.
    owner.begin(&id("t"));
    for claim in [first, second, third] {
        assert_eq!(owner.init(3, &id("t"), Some(claim)), Err(InvalidProducerEpoch));
        assert_eq!(owner.init(4, &id("t"), Some(claim)), Err(ProducerFenced));
    }
}

#[test]
fn a_client_that_recovers_over_the_end_of_its_producer_id_may_ask_again() {
    let (mut owner, last) = exhausted();
    let next = owner.init(4, &id("t"), Some(last)).expect("it is the last");
    assert_eq!((next.id != last.id, next.epoch), (true, 0));
    owner.crash();
    assert_eq!(owner.init(4, &id("t"), Some(last)), Ok(next));
}

#[test]
fn a_client_that_recovers_aborts_its_own_transaction_first() {
    let (mut owner, first) = ongoing();
    assert_eq!(owner.init(4, &id("t"), Some(first)), Err(ConcurrentTransactions));
    owner.finish();
    assert_eq!(owner.init(4, &id("t"), Some(first)), Ok(producer(0, 1)));
}

#[test]
fn a_claim_that_is_out_of_date_does_not_abort_what_is_open() {
    let mut owner = Owner::new();
    let first = owner.begin(&id("t"));
    let second = owner.init(4, &id("t"), Some(first)).expect("it is the last");
    owner.add(3, &id("t"), second).expect("it may");
    assert_eq!(owner.init(4, &id("t"), Some(first)), Err(ProducerFenced));
    assert_eq!(owner.state(&id("t")), "Ongoing");
}

#[test]
fn a_claim_on_a_transactional_id_that_expired_begins_anew() {
    let mut owner = Owner::new();
    assert_eq!(owner.init(4, &id("t"), Some(producer(77, 5))), Ok(producer(0, 0)));
}

#[track_caller]
fn check_bad_init(request: &InitProducerIdRequest, expected: ResponseError) {
    let mut owner = Owner::new();
    let (_, response) = owner.call(4, |it, caller, out| it.init_producer_id(caller, request, out));
    assert_eq!(outcome_of(&response.expect("at once")), Err(expected));
    assert_eq!(owner.log, []);
}

#[test]
fn bad_initializations_are_refused_and_change_nothing() {
    let good = || init_request(&id("t"), None);
    check_bad_init(&init_request(&id(""), None), InvalidRequest);
    let long = "t".repeat(TRANSACTIONAL_ID_BYTES_MAX + 1);
    check_bad_init(&init_request(&id(&long), None), InvalidRequest);
    check_bad_init(&good().with_producer_id(ProducerId(3)), InvalidRequest);
    check_bad_init(&good().with_producer_epoch(3), InvalidRequest);
    check_bad_init(&good().with_producer_id(ProducerId(-2)).with_producer_epoch(3), InvalidRequest);
    for timeout_ms in [i32::MIN, -1, 0, 3_600_001, i32::MAX] {
        let bad = good().with_transaction_timeout_ms(timeout_ms);
        check_bad_init(&bad, InvalidTransactionTimeout);
    }
}

#[test]
fn there_are_so_many_transactional_ids_and_no_more() {
    let settings = Settings { transactional_id_count_max: 2, ..Settings::DEFAULTS };
    let mut owner = Owner::with(settings);
    owner.begin(&id("a"));
    owner.begin(&id("b"));
    assert_eq!(owner.init(5, &id("c"), None), Err(PolicyViolation));
    assert_eq!(owner.begin(&id("a")), producer(0, 1));
    owner.pass(settings.transactional_id_expiration_ms);
    owner.begin(&id("c"));
}

#[test]
fn one_owner_leaves_transactional_ids_and_room_for_participants_to_others() {
    let settings = Settings {
        transactional_id_count_max: 8,
        participants_bytes_max: 1_000,
        ..Settings::DEFAULTS
    };
    let mut owner = Owner::with(settings);
    owner.caller = shares::Owner(1);
    let taken = (0..20).filter(|it| owner.init(5, &id(&format!("one-{it}")), None).is_ok());
    assert_eq!(taken.count(), 4);
    owner.caller = shares::Owner(2);
    let second = owner.begin(&id("two"));
    owner.caller = shares::Owner(1);
    let mut last = Ok(());
    for number in 0..4 {
        let one = id(&format!("one-{number}"));
        let producer = owner.begin(&one);
        last = owner.add_offsets(4, &one, producer, &"g".repeat(200));
    }
    assert_eq!(last, Err(CoordinatorLoadInProgress));
    owner.add_offsets(4, &id("two"), second, &"g".repeat(200)).expect("there is room for it");
    // After a start, an id belongs to its first user.
    owner.crash();
    owner.caller = shares::Owner(1);
    let taken = (4..20).filter(|it| owner.init(5, &id(&format!("one-{it}")), None).is_ok());
    assert_eq!(taken.count(), 1, "of three that are left");
    owner.caller = shares::Owner(2);
    owner.begin(&id("more"));
}

#[test]
fn a_transaction_begins_with_its_first_participant() {
    let mut owner = Owner::new();
    let first = owner.begin(&id("t"));
    owner.add_offsets(4, &id("t"), first, "readers").expect("it may");
    owner.now_ms += 5;
    owner.add(3, &id("t"), first).expect("it may");
    let records = owner.log.len();
    owner.add(3, &id("t"), first).expect("it is there");
    assert_eq!(owner.log.len(), records, "nothing changed");
    let described = owner.describe(&id("t"));
    assert_eq!(described.transaction_state.as_str(), "Ongoing");
    assert_eq!(described.transaction_start_time_ms, owner.now_ms - 5);
    assert_eq!(described.transaction_timeout_ms, TIMEOUT_MS);
    assert_eq!((described.producer_id, described.producer_epoch), (ProducerId(0), 0));
    assert_eq!(described.topics[0].partitions, [1, 2]);
    owner.end(3, &id("t"), first, Commit).expect("it may");
    let mut expected = Participants::of_partitions(&topic("orders"), [1, 2]);
    expected.groups.insert(group("readers"));
    assert_eq!(owner.finish()[0].participants, expected);
}

#[test]
fn additions_are_refused_to_others_than_the_last_instance() {
    let mut owner = Owner::new();
    let first = owner.begin(&id("t"));
    let second = owner.begin(&id("t"));
    assert_eq!(owner.add(0, &id("t"), first), Err(InvalidProducerEpoch));
    assert_eq!(owner.add(1, &id("t"), first), Err(InvalidProducerEpoch));
    assert_eq!(owner.add(2, &id("t"), first), Err(ProducerFenced));
    assert_eq!(owner.add_offsets(1, &id("t"), first, "g"), Err(InvalidProducerEpoch));
    assert_eq!(owner.add_offsets(2, &id("t"), first, "g"), Err(ProducerFenced));
    assert_eq!(owner.add(3, &id("t"), producer(9, 1)), Err(InvalidProducerIdMapping));
    assert_eq!(owner.add(3, &id("u"), second), Err(InvalidProducerIdMapping));
    assert_eq!(owner.add(3, &id(""), second), Err(InvalidRequest));
    assert_eq!(owner.state(&id("t")), "Empty");
}

#[test]
fn partitions_with_bad_names_and_brokers_requests_are_refused() {
    let mut owner = Owner::new();
    let first = owner.begin(&id("t"));
    assert_eq!(owner.produce(12, write(&id("t"), first, &[-1])), Err(InvalidRequest));
    for name in [String::new(), "n".repeat(250)] {
        let participants = Participants::of_partitions(&topic(&name), [1]);
        let write = Write { transactional_id: id("t"), producer: first, participants };
        assert_eq!(owner.produce(12, write), Err(InvalidRequest));
    }
    assert_eq!(owner.add_offsets(3, &id("t"), first, ""), Err(InvalidRequest));
    let request = AddPartitionsToTxnRequest::default();
    let (_, response) = owner.call(4, |it, caller, out| it.add_partitions(caller, &request, out));
    let expected = Err(ResponseError::UnsupportedVersion);
    assert_eq!(outcome_of(&response.expect("at once")), expected);
}

#[test]
fn participants_have_limits() {
    let mut owner = Owner::new();
    let first = owner.begin(&id("t"));
    let most: Vec<i32> = (0..262_000).collect();
    owner.produce(12, write(&id("t"), first, &most)).expect("they fit");
    let more: Vec<i32> = (262_000..263_000).collect();
    assert_eq!(owner.produce(12, write(&id("t"), first, &more)), Err(PolicyViolation));
    owner.produce(12, write(&id("t"), first, &most)).expect("they are there");

    let mut owner = Owner::with(Settings { participants_bytes_max: 1_000, ..Settings::DEFAULTS });
    let first = owner.begin(&id("t"));
    let most: Vec<i32> = (0..200).collect();
    owner.produce(12, write(&id("t"), first, &most)).expect("they fit");
    let other = owner.begin(&id("u"));
    assert_eq!(owner.add(3, &id("u"), other), Ok(()));
    let write_more = write(&id("u"), other, &most);
    assert_eq!(owner.produce(12, write_more.clone()), Err(NotEnoughReplicas));
    assert_eq!(owner.commit_offsets(5, write_more), Err(CoordinatorLoadInProgress));
    owner.end(3, &id("t"), first, Commit).expect("it may");
    owner.finish();
    owner.produce(12, write(&id("u"), other, &most)).expect("there is room again");
}

#[test]
fn old_clients_write_only_to_what_they_added() {
    let mut owner = Owner::new();
    let first = owner.begin(&id("t"));
    let to = |partition| write(&id("t"), first, &[partition]);
    for (version, expected) in [(9, InvalidTxnState), (11, TransactionAbortable)] {
        assert_eq!(owner.produce(version, to(1)), Err(expected));
    }
    for (version, expected) in [(3, InvalidTxnState), (4, TransactionAbortable)] {
        assert_eq!(owner.commit_offsets(version, to(1)), Err(expected));
    }
    owner.add(3, &id("t"), first).expect("it may");
    assert_eq!(owner.produce(9, to(1)), Ok(()));
    assert_eq!(owner.produce(11, to(3)), Err(TransactionAbortable));
    assert_eq!(owner.produce(11, write(&id("t"), first, &[1, 3])), Err(TransactionAbortable));
    owner.end(3, &id("t"), first, Commit).expect("it may");
    owner.finish();
    assert_eq!(owner.produce(11, to(1)), Err(TransactionAbortable));
}

#[test]
fn new_clients_write_and_have_it_added() {
    let mut owner = Owner::new();
    let first = owner.begin(&id("t"));
    owner.produce(12, write(&id("t"), first, &[4])).expect("it may");
    let participants = Participants::of_group(&group("readers"));
    let offsets = Write { transactional_id: id("t"), producer: first, participants };
    owner.commit_offsets(5, offsets).expect("it may");
    owner.crash();
    let next = owner.end(5, &id("t"), first, Commit).expect("it may").expect("it says so");
    assert_eq!(next, producer(0, 1));
    let mut expected = Participants::of_partitions(&topic("orders"), [4]);
    expected.groups.insert(group("readers"));
    let markers = owner.finish();
    assert_eq!((markers[0].producer, markers[0].outcome), (next, Commit));
    assert_eq!(markers[0].participants, expected);
    let late = owner.produce(12, write(&id("t"), first, &[4]));
    assert_eq!(late, Err(InvalidProducerEpoch));
}

/// Checks the response to EndTxn in `state`, sent with the producer's current epoch or, if `state`
/// ends in ` again`, with the epoch of the transaction that was ended.
#[track_caller]
fn check_end(
    version: i16,
    state: &str,
    outcome: Outcome,
    expected: Result<Option<Producer>, ResponseError>,
) {
    let mut owner = Owner::new();
    let mut now = owner.begin(&id("t"));
    let (name, asks_again) = match state.strip_suffix(" again") {
        Some(name) => (name, true),
        None => (state, false),
    };
    let before = now;
    if name != "Empty" {
        owner.add(3, &id("t"), now).expect("it may");
    }
    let decided = match name {
        "PrepareCommit" | "CompleteCommit" => Some(Commit),
        "PrepareAbort" | "CompleteAbort" => Some(Abort),
        _ => None,
    };
    if let Some(decided) = decided {
        let after = owner.end(version, &id("t"), now, decided).expect("it may");
        now = after.unwrap_or(now);
    }
    if name.starts_with("Complete") {
        owner.finish();
    }
    assert_eq!(owner.state(&id("t")), name);
    let asks = if asks_again { before } else { now };
    assert_eq!(owner.end(version, &id("t"), asks, outcome), expected, "{state} {outcome:?}");
}

#[test]
fn old_clients_end_a_transaction_once() {
    for version in [0, 4] {
        let invalid = || Err(InvalidTxnState);
        check_end(version, "Empty", Commit, invalid());
        check_end(version, "Empty", Abort, invalid());
        check_end(version, "Ongoing", Commit, Ok(None));
        check_end(version, "Ongoing", Abort, Ok(None));
        check_end(version, "PrepareCommit", Commit, Err(ConcurrentTransactions));
        check_end(version, "PrepareCommit", Abort, invalid());
        check_end(version, "PrepareAbort", Abort, Err(ConcurrentTransactions));
        check_end(version, "PrepareAbort", Commit, invalid());
        check_end(version, "CompleteCommit", Commit, Ok(None));
        check_end(version, "CompleteCommit", Abort, invalid());
        check_end(version, "CompleteAbort", Abort, Ok(None));
        check_end(version, "CompleteAbort", Commit, invalid());
    }
}

#[test]
fn new_clients_end_each_transaction_with_its_epoch() {
    let invalid = || Err(InvalidTxnState);
    let bumped = |epoch| Ok(Some(producer(0, epoch)));
    check_end(5, "Empty", Commit, invalid());
    check_end(5, "Empty", Abort, bumped(1));
    check_end(5, "Ongoing", Commit, bumped(1));
    check_end(5, "Ongoing", Abort, bumped(1));
    check_end(5, "PrepareCommit again", Commit, Err(ConcurrentTransactions));
    check_end(5, "PrepareCommit again", Abort, invalid());
    check_end(5, "PrepareAbort again", Abort, Err(ConcurrentTransactions));
    check_end(5, "PrepareAbort again", Commit, invalid());
    // A request with the new epoch refers to the next transaction.
    check_end(5, "PrepareCommit", Commit, Err(ConcurrentTransactions));
    check_end(5, "PrepareCommit", Abort, Err(ConcurrentTransactions));
    check_end(5, "CompleteCommit again", Commit, bumped(1));
    check_end(5, "CompleteCommit again", Abort, invalid());
    check_end(5, "CompleteCommit", Commit, invalid());
    check_end(5, "CompleteCommit", Abort, bumped(2));
    check_end(5, "CompleteAbort again", Abort, bumped(1));
    check_end(5, "CompleteAbort again", Commit, invalid());
    check_end(5, "CompleteAbort", Commit, invalid());
    check_end(5, "CompleteAbort", Abort, bumped(2));
}

#[test]
fn only_the_last_instance_ends_a_transaction() {
    let (mut owner, first) = ongoing();
    let ahead = Producer { epoch: first.epoch + 1, ..first };
    for (version, expected) in [
        (0, InvalidProducerEpoch),
        (1, InvalidProducerEpoch),
        (2, ProducerFenced),
        (5, ProducerFenced),
    ] {
        assert_eq!(owner.end(version, &id("t"), ahead, Commit), Err(expected));
    }
    assert_eq!(owner.end(3, &id("t"), producer(9, 0), Commit), Err(InvalidProducerIdMapping));
    assert_eq!(owner.end(3, &id("u"), first, Commit), Err(InvalidProducerIdMapping));
    assert_eq!(owner.end(3, &id(""), first, Commit), Err(InvalidRequest));
    assert_eq!(owner.state(&id("t")), "Ongoing");
}

#[test]
fn the_last_epoch_of_a_producer_id_ends_its_transaction_too() {
    let (mut owner, last) = exhausted();
    owner.produce(12, write(&id("t"), last, &[1])).expect("it may");
    let next = owner.end(5, &id("t"), last, Commit).expect("it may").expect("it says so");
    assert_eq!((next.id != last.id, next.epoch), (true, 0));
    // The marker has the producer id of the records, not the new one.
    owner.crash();
    assert_eq!(owner.end(5, &id("t"), last, Commit), Err(ConcurrentTransactions));
    let markers = owner.finish();
    assert_eq!(markers[0].producer, Producer { epoch: i16::MAX, ..last });
    assert_eq!(owner.end(5, &id("t"), last, Commit), Ok(Some(next)));
    owner.produce(12, write(&id("t"), next, &[1])).expect("it may");
}

#[test]
fn a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() {
    for version in [4, 5] {
        let (mut owner, first) = ongoing();
        let deadline = owner.now_ms + i64::from(TIMEOUT_MS);
        assert_eq!(owner.transactions.next_deadline_ms(), Some(deadline));
        owner.pass(i64::from(TIMEOUT_MS) - 1);
        assert_eq!(owner.state(&id("t")), "Ongoing");
        owner.crash();
        owner.pass(1);
        assert_eq!(owner.state(&id("t")), "PrepareAbort");
        let markers = owner.finish();
        assert_eq!((markers[0].producer, markers[0].outcome), (producer(0, 1), Abort));
        for outcome in [Commit, Abort] {
            assert_eq!(owner.end(version, &id("t"), first, outcome), Err(ProducerFenced));
        }
        assert_eq!(owner.init(4, &id("t"), Some(first)), Err(ProducerFenced));
        assert_eq!(owner.begin(&id("t")), producer(0, 2));
    }
}

#[test]
fn a_transactional_id_that_is_not_used_expires() {
    let (mut owner, first) = ongoing();
    owner.end(5, &id("t"), first, Commit).expect("it may");
    let expiration_ms = owner.settings.transactional_id_expiration_ms;
    // A transaction that is about to end does not expire.
    owner.pass(2 * expiration_ms);
    assert_eq!(owner.state(&id("t")), "PrepareCommit");
    assert_eq!(owner.transactions.next_deadline_ms(), None);
    owner.finish();
    owner.pass(expiration_ms - 1);
    assert_eq!(owner.state(&id("t")), "CompleteCommit");
    owner.pass(1);
    let code = owner.describe(&id("t")).error_code;
    assert_eq!(result(code), Err(ResponseError::TransactionalIdNotFound));
    owner.crash();
    assert_eq!(owner.transactions.next_deadline_ms(), None);
    assert_eq!(owner.begin(&id("t")), producer(1_000, 0));
}

#[test]
fn what_comes_while_markers_are_written_waits_for_them() {
    let (mut owner, first) = ongoing();
    let next = owner.end(5, &id("t"), first, Commit).expect("it may").expect("it says so");
    let later = write(&id("t"), next, &[7]);
    let (ticket, response) = owner.call(12, |it, caller, out| it.admit_produce(caller, later, out));
    assert_eq!(response, None);
    owner.finish();
    assert_eq!(owner.replies.remove(&ticket), Some(Response::Admitted(Ok(()))));
    assert_eq!(owner.describe(&id("t")).topics[0].partitions, [7]);
    // A fenced producer does not wait.
    let (mut owner, first) = ongoing();
    owner.end(5, &id("t"), first, Commit).expect("it may");
    assert_eq!(owner.add(3, &id("t"), first), Err(ProducerFenced));
}

#[test]
fn what_waited_too_long_is_told_to_come_again() {
    let (mut owner, first) = ongoing();
    owner.end(4, &id("t"), first, Commit).expect("it may");
    let mut tickets = Vec::new();
    let mut expect = |ticket, error| tickets.push((ticket, Response::Admitted(Err(error))));
    for (version, error) in [(11, NotEnoughReplicas), (12, ConcurrentTransactions)] {
        let write = write(&id("t"), first, &[1]);
        let (ticket, _) =
            owner.call(version, |it, caller, out| it.admit_produce(caller, write, out));
        expect(ticket, error);
    }
    for (version, error) in [(4, CoordinatorLoadInProgress), (5, ConcurrentTransactions)] {
        let write = write(&id("t"), first, &[1]);
        let (ticket, _) =
            owner.call(version, |it, caller, out| it.admit_offset_commit(caller, write, out));
        expect(ticket, error);
    }
    let request = add_request(&id("t"), first, &[8]);
    let (adding, _) = owner.call(3, |it, caller, out| it.add_partitions(caller, &request, out));
    let deadline = owner.transactions.next_deadline_ms().expect("they wait");
    owner.pass(deadline - owner.now_ms - 1);
    assert!(owner.replies.is_empty());
    owner.pass(1);
    for (ticket, expected) in tickets {
        assert_eq!(owner.replies.remove(&ticket), Some(expected));
    }
    let response = owner.replies.remove(&adding).expect("it waited too");
    assert_eq!(outcome_of(&response), Err(ConcurrentTransactions));
    assert_eq!(owner.transactions.next_deadline_ms(), None);
    owner.finish();
    assert!(owner.replies.is_empty(), "each is answered once");
}

#[test]
fn so_many_wait_and_no_more() {
    let (mut owner, first) = ongoing();
    owner.end(4, &id("t"), first, Commit).expect("it may");
    for count in 0..=WAITING_COUNT_MAX {
        let write = write(&id("t"), first, &[1]);
        let (_, response) = owner.call(12, |it, caller, out| it.admit_produce(caller, write, out));
        let expected = Response::Admitted(Err(ConcurrentTransactions));
        assert_eq!(response, (count == WAITING_COUNT_MAX).then_some(expected));
    }
    owner.finish();
    assert_eq!(owner.replies.len(), WAITING_COUNT_MAX);
}

#[test]
fn markers_come_again_after_a_crash_and_end_what_they_are_for() {
    let (mut owner, first) = ongoing();
    owner.end(4, &id("t"), first, Commit).expect("it may");
    let before = owner.markers.clone();
    owner.crash();
    assert_eq!(owner.markers.len(), 1);
    assert_eq!(owner.markers[0].participants, before[0].participants);
    assert_eq!(owner.markers[0].producer, first);
    owner.finish();
    assert_eq!(owner.state(&id("t")), "CompleteCommit");
    // A repeated completion does not end the next transaction.
    owner.add(3, &id("t"), first).expect("it may");
    owner.end(4, &id("t"), first, Abort).expect("it may");
    owner.markers.splice(.., before);
    owner.finish();
    assert_eq!(owner.state(&id("t")), "PrepareAbort");
    owner.crash();
    owner.finish();
    assert_eq!(owner.state(&id("t")), "CompleteAbort");
    owner.crash();
    assert!(owner.markers.is_empty());
}

#[test]
fn the_state_has_the_meaning_of_the_log() {
    let (mut owner, first) = ongoing();
    let other = owner.begin(&id("u"));
    owner.add(3, &id("u"), other).expect("it may");
    owner.end(5, &id("t"), first, Commit).expect("it may");
    owner.begin(&id("v"));
    let state: Vec<_> = owner.transactions.state().collect();
    owner.crash();
    assert_eq!(owner.transactions.state().collect::<Vec<_>>(), state);
    let mut copy = Transactions::new(Settings::DEFAULTS);
    for record in &state {
        copy.load(&record.key, record.value.as_deref()).expect("it is whole");
    }
    assert_eq!(copy.state().collect::<Vec<_>>(), state);
    assert_eq!(copy.next_deadline_ms(), owner.transactions.next_deadline_ms());
}

#[track_caller]
fn check_listed(request: ListTransactionsRequest, expected: &[&str]) {
    let mut owner = Owner::new();
    owner.begin(&id("empty"));
    for name in ["committing", "open"] {
        let producer = owner.begin(&id(name));
        owner.add(3, &id(name), producer).expect("it may");
    }
    owner.end(3, &id("committing"), producer(1, 0), Commit).expect("it may");
    owner.now_ms += 10;
    let (_, response) = owner.call(1, |it, caller, out| it.list(caller, &request, out));
    let Some(Response::ListTransactions(response)) = response else {
        panic!("it is another answer: {response:?}")
    };
    let listed = response.transaction_states.iter();
    let listed: Vec<_> = listed.map(|it| it.transactional_id.to_string()).collect();
    assert_eq!(listed, expected);
    assert_eq!(response.unknown_state_filters, request.state_filters.get(1..).unwrap_or(&[]));
}

#[test]
fn transactions_are_listed_by_what_is_asked_for() {
    let all = || ListTransactionsRequest::default().with_duration_filter(-1);
    check_listed(all(), &["committing", "empty", "open"]);
    let states = ["Ongoing", "Sleeping"].map(StrBytes::from_static_str);
    check_listed(all().with_state_filters(states.to_vec()), &["open"]);
    check_listed(
        all().with_producer_id_filters(vec![ProducerId(0), ProducerId(2)]),
        &["empty", "open"],
    );
    check_listed(all().with_duration_filter(9), &["committing", "open"]);
    check_listed(all().with_duration_filter(10), &[]);
}

#[test]
fn transactions_are_listed_by_a_pattern_that_matches_the_whole_id() {
    let named = |pattern: &'static str| {
        let pattern = Some(StrBytes::from_static_str(pattern));
        let all = ListTransactionsRequest::default().with_duration_filter(-1);
        all.with_transactional_id_pattern(pattern)
    };
    check_listed(named(""), &["committing", "empty", "open"]);
    check_listed(named("open|e.*"), &["empty", "open"]);
    check_listed(named("pen"), &[]);
    check_listed(named("com").with_producer_id_filters(vec![ProducerId(1)]), &[]);
    check_listed(named("com.*").with_producer_id_filters(vec![ProducerId(1)]), &["committing"]);
    for invalid in ["(", "a)(b"] {
        let mut owner = Owner::new();
        let request = named(invalid);
        let (_, response) = owner.call(1, |it, caller, out| it.list(caller, &request, out));
        let Some(Response::ListTransactions(response)) = response else {
            panic!("it is another answer: {response:?}")
        };
        let refused = Err(ResponseError::InvalidRegularExpression);
        assert_eq!(result(response.error_code), refused, "{invalid}");
    }
}

#[test]
fn what_is_no_transactional_id_is_described_as_such() {
    let mut owner = Owner::new();
    let code = owner.describe(&id("t")).error_code;
    assert_eq!(result(code), Err(ResponseError::TransactionalIdNotFound));
    assert_eq!(result(owner.describe(&id("")).error_code), Err(InvalidRequest));
}

#[test]
fn a_transaction_times_out_evenly_when_the_hosts_clock_is_set() {
    const HOUR_MS: i64 = 3_600_000;
    for set_ms in [-HOUR_MS, HOUR_MS] {
        let (mut owner, _) = ongoing();
        owner.transactions.set_host_ahead(set_ms);
        owner.pass(i64::from(TIMEOUT_MS) - 1);
        assert_eq!(owner.state(&id("t")), "Ongoing", "{set_ms}");
        owner.pass(1);
        assert_eq!(owner.state(&id("t")), "PrepareAbort", "{set_ms}");
    }
    // After a restart, elapsed time is only known by the host's clock. The remaining time never
    // exceeds the timeout.
    for (passed_ms, left_ms) in [(-HOUR_MS, i64::from(TIMEOUT_MS)), (HOUR_MS, 0)] {
        let (mut owner, _) = ongoing();
        owner.now_ms += passed_ms;
        owner.crash();
        assert_eq!(owner.transactions.next_deadline_ms(), Some(owner.now_ms + left_ms));
    }
}

#[test]
fn transactional_ids_expire_by_the_hosts_clock() {
    let (mut owner, first) = ongoing();
    owner.end(5, &id("t"), first, Commit).expect("it may");
    // A host without a real-time clock learns the date after the broker has started.
    let ahead_ms = 50 * owner.settings.transactional_id_expiration_ms;
    owner.transactions.set_host_ahead(ahead_ms);
    owner.finish();
    let deadline = owner.now_ms + owner.settings.transactional_id_expiration_ms;
    assert_eq!(owner.transactions.next_deadline_ms(), Some(deadline));
    // From the next start on, the owner's clock agrees with the host's.
    owner.now_ms += ahead_ms;
    owner.crash();
    assert_eq!(owner.transactions.next_deadline_ms(), Some(deadline + ahead_ms));
}
