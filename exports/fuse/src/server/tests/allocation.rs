//! Tests of discards and zeros.

use super::*;

#[test]
fn a_punched_hole_is_zeros_in_its_whole_range() {
    let bench = Bench::new();
    let message = allocate_message(4096, 100, ALLOCATE_PUNCH_HOLE | ALLOCATE_KEEP_SIZE);
    assert_eq!(bench.serve(&message).expect("a reply").0, 0);
    assert_eq!(bench.calls(), [(Action::Discard, ByteRange::new(4096, 100))]);
}

#[test]
fn zeroing_a_range_keeps_it_allocated() {
    let bench = Bench::new();
    let message = allocate_message(0, 4096, ALLOCATE_ZERO_RANGE | ALLOCATE_KEEP_SIZE);
    assert_eq!(bench.serve(&message).expect("a reply").0, 0);
    assert_eq!(bench.calls(), [(Action::WriteZeroes, ByteRange::new(0, 4096))]);
}

#[test]
fn a_hole_that_keeps_the_size_ends_at_the_end_of_the_file() {
    let bench = Bench::new();
    let message = allocate_message(12_288, 1 << 40, ALLOCATE_PUNCH_HOLE | ALLOCATE_KEEP_SIZE);
    assert_eq!(bench.serve(&message).expect("a reply").0, 0);
    assert_eq!(bench.calls(), [(Action::Discard, ByteRange::new(12_288, 4096))]);
}

#[test]
fn space_is_not_allocated_in_advance_nor_past_the_end() {
    check_error(&allocate_message(0, 4096, 0), 95);
    check_error(&allocate_message(0, 1 << 40, ALLOCATE_ZERO_RANGE), 27);
}

#[test]
fn zeros_in_a_file_that_is_open_for_durable_writes_are_flushed() {
    let bench = Bench::new();
    let zero = |handle| {
        let body = Message::new(43, node()).u64(handle).u64(0).u64(4096);
        body.u32(ALLOCATE_ZERO_RANGE | ALLOCATE_KEEP_SIZE).u32(0).build()
    };
    assert_eq!(flush_after(&bench, &zero(5)), None);
    let flush =
        Flush { unique: 77, node: node(), written_bytes: None, may_wait: true, entry: None };
    assert_eq!(flush_after(&bench, &zero(5 | DURABLE_HANDLE)), Some(flush));
    let past_the_end = Message::new(43, node()).u64(DURABLE_HANDLE).u64(0).u64(1 << 40);
    assert_eq!(flush_after(&bench, &past_the_end.u32(ALLOCATE_ZERO_RANGE).u32(0).build()), None);
}
