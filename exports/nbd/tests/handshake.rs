//! Options that clients send before they select an export.

mod support;
#[path = "support/talk.rs"]
mod talk;

use std::sync::Arc;

use nbd::{Progress, TlsPolicy};
use support::{ExportTable, SparseDevice};
use talk::{
    CLIENT_FLAGS, GREETING, OptionReply, Received, Talk, context_query, export_query, option,
    option_bytes, rep,
};

const SIZE: u64 = 1 << 20;

fn exports() -> Arc<ExportTable> {
    let device = || SparseDevice::new(SIZE);
    let second = Arc::new(device().read_only());
    Arc::new(ExportTable::new().with("first", Arc::new(device())).with("second", second))
}

/// Sends an option and compares the types of the replies.
#[track_caller]
fn ask(talk: &mut Talk, option: u32, payload: &[u8], expected: &[u32]) -> Vec<OptionReply> {
    talk.send(&option_bytes(option, payload));
    let replies = talk.received().option_replies();
    assert!(replies.iter().all(|reply| reply.option == option));
    assert_eq!(replies.iter().map(|reply| reply.kind).collect::<Vec<_>>(), expected);
    replies
}

fn plain() -> Talk {
    Talk::in_options(exports(), TlsPolicy::Absent)
}

fn guarded() -> Talk {
    Talk::in_options(exports(), TlsPolicy::Required)
}

#[test]
fn the_greeting_offers_fixed_newstyle_without_zeroes() {
    let mut talk = Talk::new(exports(), TlsPolicy::Absent);
    assert_eq!(talk.received().take(GREETING.len()), GREETING);
}

#[test]
fn unknown_client_flags_end_the_connection() {
    let mut talk = Talk::new(exports(), TlsPolicy::Absent);
    talk.send(&[0, 0, 0, 4]);
    assert_eq!(talk.progress(), Progress::Close);
}

#[test]
fn a_wrong_magic_number_ends_the_connection() {
    let mut talk = plain();
    talk.send(b"IHAVEOPX\0\0\0\x03\0\0\0\0");
    assert_eq!(talk.progress(), Progress::Close);
}

#[test]
fn an_unknown_option_is_refused_with_its_payload_skipped() {
    let mut talk = plain();
    ask(&mut talk, 4711, b"some payload", &[rep::ERR_UNSUP]);
    ask(&mut talk, option::LIST, &[], &[rep::SERVER, rep::SERVER, rep::ACK]);
}

#[test]
fn an_option_that_is_too_long_is_refused_with_its_payload_skipped() {
    let mut talk = plain();
    ask(&mut talk, option::GO, &vec![7; 3 << 20], &[rep::ERR_TOO_BIG]);
    ask(&mut talk, option::LIST, &[], &[rep::SERVER, rep::SERVER, rep::ACK]);
}

#[test]
fn an_option_may_arrive_byte_by_byte() {
    let mut talk = plain();
    for byte in option_bytes(option::INFO, &export_query("first", &[])) {
        talk.send(&[byte]);
    }
    let kinds: Vec<_> = talk.received().option_replies().iter().map(|reply| reply.kind).collect();
    assert_eq!(kinds, [rep::INFO, rep::ACK]);
}

#[test]
fn a_client_that_goes_on_asking_is_closed() {
    let mut talk = plain();
    for _ in 0..1024 {
        assert_eq!(talk.progress(), Progress::ReceiveInput);
        ask(&mut talk, 4711, &[], &[rep::ERR_UNSUP]);
    }
    talk.send(&option_bytes(4711, &[]));
    assert_eq!(talk.progress(), Progress::Close);
}

#[test]
fn a_client_may_ask_for_each_export_of_a_list() {
    let device: Arc<SparseDevice> = Arc::new(SparseDevice::new(SIZE));
    let names = (0..2000).map(|index| index.to_string());
    let table =
        names.fold(ExportTable::new(), |table, name| table.with(&name, Arc::clone(&device) as _));
    let mut talk = Talk::in_options(Arc::new(table), TlsPolicy::Absent);
    talk.send(&option_bytes(option::LIST, &[]));
    assert_eq!(talk.received().option_replies().len(), 2001);
    for name in (0..2000).flat_map(|index| [index; 8]).map(|index: u32| index.to_string()) {
        ask(&mut talk, option::INFO, &export_query(&name, &[]), &[rep::INFO, rep::ACK]);
    }
}

#[test]
fn a_list_names_every_export() {
    let replies = ask(&mut plain(), option::LIST, &[], &[rep::SERVER, rep::SERVER, rep::ACK]);
    assert_eq!(replies[0].payload, b"\0\0\0\x05first");
    assert_eq!(replies[1].payload, b"\0\0\0\x06second");
}

#[test]
fn a_list_may_be_longer_than_the_buffer() {
    let device: Arc<SparseDevice> = Arc::new(SparseDevice::new(SIZE));
    let names = (0..1000).map(|index| format!("{index:0>4000}"));
    let table =
        names.fold(ExportTable::new(), |table, name| table.with(&name, Arc::clone(&device) as _));
    let mut talk = Talk::in_options(Arc::new(table), TlsPolicy::Absent);
    talk.send(&option_bytes(option::LIST, &[]));
    assert_eq!(talk.received().option_replies().len(), 1001);
}

#[test]
fn a_name_that_nobody_could_ask_for_is_not_listed() {
    let device = Arc::new(SparseDevice::new(SIZE));
    let table = ExportTable::new().with(&"x".repeat(4097), device);
    let mut talk = Talk::in_options(Arc::new(table), TlsPolicy::Absent);
    ask(&mut talk, option::LIST, &[], &[rep::ACK]);
}

#[test]
fn options_without_payload_refuse_one() {
    ask(&mut plain(), option::LIST, b"x", &[rep::ERR_INVALID]);
    ask(&mut plain(), option::STRUCTURED_REPLY, b"x", &[rep::ERR_INVALID]);
    ask(&mut guarded(), option::STARTTLS, b"x", &[rep::ERR_INVALID]);
}

#[test]
fn malformed_options_are_refused() {
    for option in [option::INFO, option::GO] {
        ask(&mut plain(), option, b"\0\0\0\x09first", &[rep::ERR_INVALID]);
    }
    for option in [option::LIST_META_CONTEXT, option::SET_META_CONTEXT] {
        let mut talk = plain();
        ask(&mut talk, option::STRUCTURED_REPLY, &[], &[rep::ACK]);
        ask(&mut talk, option, b"\0\0\0\x09first", &[rep::ERR_INVALID]);
    }
}

#[test]
fn info_tells_what_it_is_asked_for() {
    let infos = [1, 2, 3, 999];
    let expected = [rep::INFO, rep::INFO, rep::INFO, rep::INFO, rep::ACK];
    let replies = ask(&mut plain(), option::INFO, &export_query("first", &infos), &expected);
    let payloads: Vec<_> = replies.iter().map(|reply| reply.payload.as_slice()).collect();
    assert_eq!(
        payloads,
        [
            b"\0\0\0\0\0\0\0\x10\0\0\x0d\x6d".as_slice(),
            b"\0\x01first",
            b"\0\x02test device first",
            b"\0\x03\0\0\0\x01\0\0\x10\0\x02\0\0\0",
            b"",
        ]
    );
}

/// The transmission flags of an export.
fn flags_of(talk: &mut Talk, name: &str) -> u16 {
    let replies = ask(talk, option::INFO, &export_query(name, &[]), &[rep::INFO, rep::ACK]);
    let mut payload = Received::new(replies[0].payload.clone());
    assert_eq!((payload.u16(), payload.u64()), (0, SIZE));
    payload.u16()
}

#[test]
fn unfragmented_reads_are_offered_with_structured_replies_only() {
    let mut talk = plain();
    assert_eq!(flags_of(&mut talk, "first") & (1 << 7), 0);
    ask(&mut talk, option::STRUCTURED_REPLY, &[], &[rep::ACK]);
    assert_ne!(flags_of(&mut talk, "first") & (1 << 7), 0);
}

#[test]
fn a_read_only_export_says_so() {
    assert_eq!(flags_of(&mut plain(), "first") & 2, 0);
    assert_eq!(flags_of(&mut plain(), "second") & 2, 2);
}

#[test]
fn an_export_that_does_not_exist_is_unknown() {
    ask(&mut plain(), option::INFO, &export_query("third", &[]), &[rep::ERR_UNKNOWN]);
    ask(&mut plain(), option::GO, &export_query("third", &[]), &[rep::ERR_UNKNOWN]);
    let mut talk = plain();
    talk.send(&option_bytes(option::EXPORT_NAME, b"third"));
    assert_eq!(talk.progress(), Progress::Close);
}

#[test]
fn go_ends_the_handshake() {
    let mut talk = plain();
    ask(&mut talk, option::GO, &export_query("first", &[]), &[rep::INFO, rep::ACK]);
    assert_eq!(talk.session().export_name(), Some("first"));
}

#[track_caller]
fn check_export_name(client_flags: [u8; 4], answer_bytes: usize) {
    let mut talk = Talk::new(exports(), TlsPolicy::Absent);
    talk.send(&client_flags);
    talk.received();
    talk.send(&option_bytes(option::EXPORT_NAME, b"first"));
    assert_eq!(talk.session().export_name(), Some("first"));
    let mut answer = talk.received();
    assert_eq!(answer.u64(), SIZE);
    assert_eq!(answer.take(answer_bytes - 8)[2..], vec![0; answer_bytes - 10]);
    assert!(answer.is_empty());
}

#[test]
fn export_name_is_answered_with_zeroes_for_those_who_need_them() {
    check_export_name(CLIENT_FLAGS, 10);
    check_export_name([0, 0, 0, 1], 134);
    check_export_name([0, 0, 0, 0], 134);
}

#[test]
fn abort_is_acknowledged_and_ends_the_connection() {
    let mut talk = plain();
    ask(&mut talk, option::ABORT, &[], &[rep::ACK]);
    assert_eq!(talk.progress(), Progress::Close);
}

#[test]
fn contexts_need_structured_replies() {
    let query = context_query("first", &["base:allocation"]);
    ask(&mut plain(), option::SET_META_CONTEXT, &query, &[rep::ERR_INVALID]);
    ask(&mut plain(), option::LIST_META_CONTEXT, &query, &[rep::ERR_INVALID]);
}

/// Checks the ids and names that are returned for queries on an export with two snapshots.
#[track_caller]
fn check_contexts(option: u32, queries: &[&str], expected: &[(u32, &str)]) {
    let device = SparseDevice::new(SIZE);
    device.take_snapshot(7, "monday");
    device.take_snapshot(9, "tuesday");
    let exports = Arc::new(ExportTable::new().with("first", Arc::new(device)));
    let mut talk = Talk::in_options(exports, TlsPolicy::Absent);
    ask(&mut talk, option::STRUCTURED_REPLY, &[], &[rep::ACK]);
    let kinds = [vec![rep::META_CONTEXT; expected.len()], vec![rep::ACK]].concat();
    let mut replies = ask(&mut talk, option, &context_query("first", queries), &kinds);
    replies.pop();
    let payloads: Vec<_> = replies.into_iter().map(|reply| reply.payload).collect();
    let expected = expected.iter().map(|(id, name)| [&id.to_be_bytes(), name.as_bytes()].concat());
    assert_eq!(payloads, expected.collect::<Vec<_>>());
}

#[test]
fn contexts_are_listed_by_name_by_namespace_and_all() {
    let [allocation, monday, tuesday] =
        ["base:allocation", "memlane:changed:monday", "memlane:changed:tuesday"];
    for (queries, expected) in [
        (&[][..], &[allocation, monday, tuesday][..]),
        (&["base:"], &[allocation]),
        (&["qemu:", allocation], &[allocation]),
        (&["qemu:"], &[]),
        (&["memlane:"], &[monday, tuesday]),
        (&["memlane:changed:"], &[monday, tuesday]),
        (&[tuesday], &[tuesday]),
        (&["memlane:changed:mon", "memlane:changed"], &[]),
    ] {
        let expected: Vec<_> = expected.iter().map(|&name| (0, name)).collect();
        check_contexts(option::LIST_META_CONTEXT, queries, &expected);
    }
}

#[test]
fn contexts_are_chosen_by_name_only() {
    let [allocation, monday, tuesday] =
        ["base:allocation", "memlane:changed:monday", "memlane:changed:tuesday"];
    let check = |queries: &[&str], expected: &[(u32, &str)]| {
        check_contexts(option::SET_META_CONTEXT, queries, expected);
    };
    check(&[allocation], &[(1, allocation)]);
    check(&[allocation, allocation], &[(1, allocation)]);
    check(&[tuesday, allocation], &[(1, allocation), (2, tuesday)]);
    check(&[monday, "memlane:changed:sunday"], &[(1, monday)]);
    check(&["base:", "memlane:", "memlane:changed:"], &[]);
    check(&["other:allocation"], &[]);
    check(&[], &[]);
}

#[test]
fn no_more_contexts_are_granted_than_one_answer_holds() {
    let device = SparseDevice::new(SIZE);
    let names: Vec<_> = (0..20).map(|number| format!("memlane:changed:{number}")).collect();
    (0..20).for_each(|number| device.take_snapshot(number, &number.to_string()));
    let exports = Arc::new(ExportTable::new().with("first", Arc::new(device)));
    let mut talk = Talk::in_options(exports, TlsPolicy::Absent);
    ask(&mut talk, option::STRUCTURED_REPLY, &[], &[rep::ACK]);
    let queries: Vec<_> = names.iter().map(String::as_str).collect();
    let query = context_query("first", &queries);
    let kinds = [[rep::META_CONTEXT; 16].to_vec(), vec![rep::ACK]].concat();
    ask(&mut talk, option::SET_META_CONTEXT, &query, &kinds);
}

#[test]
fn a_list_of_contexts_may_be_longer_than_the_output() {
    let device = SparseDevice::new(SIZE);
    let name = |number| format!("{number}-{}", "x".repeat(3000));
    (0..1000).for_each(|number| device.take_snapshot(number, &name(number)));
    device.take_snapshot(1000, &"y".repeat(4096));
    let exports = Arc::new(ExportTable::new().with("first", Arc::new(device)));
    let mut talk = Talk::in_options(exports, TlsPolicy::Absent);
    ask(&mut talk, option::STRUCTURED_REPLY, &[], &[rep::ACK]);
    let query = context_query("first", &["memlane:"]);
    let kinds = [vec![rep::META_CONTEXT; 1000], vec![rep::ACK]].concat();
    ask(&mut talk, option::LIST_META_CONTEXT, &query, &kinds);
}

#[test]
fn contexts_of_an_export_that_does_not_exist_are_unknown() {
    let mut talk = plain();
    ask(&mut talk, option::STRUCTURED_REPLY, &[], &[rep::ACK]);
    let query = context_query("third", &["base:allocation"]);
    ask(&mut talk, option::SET_META_CONTEXT, &query, &[rep::ERR_UNKNOWN]);
}

#[test]
fn tls_is_refused_where_none_is_configured() {
    ask(&mut plain(), option::STARTTLS, &[], &[rep::ERR_POLICY]);
}

#[test]
fn everything_but_the_start_of_tls_is_refused_before_it() {
    let mut talk = guarded();
    ask(&mut talk, option::LIST, &[], &[rep::ERR_TLS_REQD]);
    ask(&mut talk, option::INFO, &export_query("first", &[]), &[rep::ERR_TLS_REQD]);
    ask(&mut talk, option::GO, &export_query("first", &[]), &[rep::ERR_TLS_REQD]);
    ask(&mut talk, 4711, &[], &[rep::ERR_TLS_REQD]);
    talk.send(&option_bytes(option::EXPORT_NAME, b"first"));
    assert_eq!(talk.progress(), Progress::Close);
}

#[test]
fn everything_is_answered_after_the_start_of_tls() {
    let mut talk = guarded();
    ask(&mut talk, option::STARTTLS, &[], &[rep::ACK]);
    talk.tls_started();
    ask(&mut talk, option::LIST, &[], &[rep::SERVER, rep::SERVER, rep::ACK]);
    ask(&mut talk, option::STARTTLS, &[], &[rep::ERR_INVALID]);
}

#[test]
fn bytes_that_came_unprotected_after_the_start_of_tls_end_the_connection() {
    let mut talk = guarded();
    let mut bytes = option_bytes(option::STARTTLS, &[]);
    bytes.extend(option_bytes(option::LIST, &[]));
    talk.send(&bytes);
    assert_eq!(talk.progress(), Progress::Close);
}
