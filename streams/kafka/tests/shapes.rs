//! Compares the descriptions of requests with the decoders that they protect.

#[path = "support/bodies.rs"]
mod bodies;
#[path = "support/decoders.rs"]
mod decoders;
#[path = "support/own_parsers.rs"]
mod own_parsers;
#[path = "support/storm.rs"]
mod storm;

use std::collections::HashSet;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use bodies::Body;
use kafka::SERVED;
use kafka::shapes::ShapeFault::{self, Null};
use kafka::shapes::{Count, Field, Kind, RequestShape, ShapeError, check, describe, requests};
use kafka_protocol::messages::ApiKey;
use model::{Random, for_each_seed};
use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use storm::ELEMENTS_MAX;

const SEED_COUNT: u64 = 80;

/// Each seed tests all wrong lengths in one body for each version.
const SEED_COUNT_OF_LIES: u64 = 8;

/// Additional memory that a limited process may allocate. Exceeding it aborts the process.
const MORE_BYTES_MAX: u64 = 16 << 20;

/// Environment variable that is set for the limited process.
const LIMITED: &str = "MEMLANE_TEST_LIMITED";

/// Metadata request of version 1 for 2^31 - 1 topics.
const MANY_TOPICS: [u8; 4] = [0x7F, 0xFF, 0xFF, 0xFF];

/// Calls `test` with random bodies of every version of every request.
fn for_each_body(command: &str, test: impl Fn(&RequestShape, i16, &Body)) {
    for_each_seed(command, SEED_COUNT, |seed| {
        let mut random = Random::new(seed);
        for shape in requests() {
            for version in shape.versions() {
                test(shape, version, &Body::random(shape, version, &mut random));
            }
        }
    });
}

#[test]
fn what_is_described_is_decoded_and_encoded_to_the_same_bytes() {
    let command = "cargo test -p kafka --test shapes what_is_described";
    for_each_body(command, |shape, version, body| {
        let (api_key, bytes) = (shape.api_key, &body.bytes);
        let checked = check(api_key, version, bytes, ELEMENTS_MAX);
        assert_eq!(checked, Ok(()), "{bytes:?}");
        let decoded = decoders::decode(api_key, version, bytes);
        let decoded = decoded.unwrap_or_else(|it| panic!("{api_key:?} {version}: {it:#}"));
        assert_eq!(decoded.left_count, 0, "{api_key:?} {version}: {bytes:?}");
        assert_eq!(&decoded.encoded, bytes, "{api_key:?} {version}");
        storm::judge(api_key, version, bytes);
    });
}

/// Returns the fields of a version that have a length or a count, including nested ones.
fn fields_with_lengths(fields: &'static [Field], version: i16) -> Vec<&'static Field> {
    let mut found = Vec::new();
    for field in fields.iter().filter(|it| it.is_in(version)) {
        if field.count == Count::Array || matches!(field.kind, Kind::String | Kind::Bytes) {
            found.push(field);
        }
        if let Kind::Structure(inner) = field.kind {
            found.extend(fields_with_lengths(inner, version));
        }
    }
    found
}

/// Decoders accept null in every version if any version allows it.
#[test]
fn null_is_refused_where_decoders_refuse_it() {
    let mut random = Random::new(1);
    for shape in requests() {
        let api_key = shape.api_key;
        for version in shape.versions() {
            for field in fields_with_lengths(shape.fields(), version) {
                let body = Body::with_null(shape, version, field, &mut random).bytes;
                let checked = check(api_key, version, &body, ELEMENTS_MAX);
                let expected = if field.may_be_null(version) { None } else { Some(Null) };
                let what = format!("{} of {api_key:?} {version}", field.name);
                assert_eq!(checked.err().map(|it| it.fault), expected, "{what}");
                let is_decoded = decoders::decode(api_key, version, &body).is_ok();
                let is_ever_null = field.may_be_null(*shape.versions().end());
                assert_eq!(is_decoded, is_ever_null, "{what}");
            }
        }
    }
}

#[test]
fn a_body_that_is_cut_is_refused_and_bytes_behind_it_are_let_be() {
    let command = "cargo test -p kafka --test shapes a_body_that_is_cut";
    for_each_body(command, |shape, version, body| {
        let check = |bytes: &[u8]| check(shape.api_key, version, bytes, ELEMENTS_MAX);
        for end in 0..body.bytes.len() {
            let fault = check(&body.bytes[..end]).map_err(|it| it.fault);
            assert!(
                matches!(fault, Err(ShapeFault::Cut { .. })),
                "{:?} {version} of {end} bytes: {fault:?}",
                shape.api_key
            );
        }
        let longer = [&body.bytes[..], &[0]].concat();
        assert_eq!(check(&longer), Ok(()));
    });
}

/// Returns random bytes, most of which are 0 or 1, as in typical requests.
fn arbitrary_bytes(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![0; random.index(200)];
    random.fill(&mut bytes);
    let rare = random.below(8) + 1;
    bytes.iter_mut().skip(2).filter(|_| !random.one_in(rare)).for_each(|it| *it &= 1);
    bytes
}

#[test]
fn arbitrary_bytes_never_surprise_the_decoder() {
    let command = "cargo test -p kafka --test shapes arbitrary_bytes";
    for_each_seed(command, 2000, |seed| storm::request(&arbitrary_bytes(&mut Random::new(seed))));
}

/// Frames of known requests with a header and a client id, whose bodies are either valid or random.
#[test]
fn frames_and_headers_are_read_as_others_read_them() {
    let command = "cargo test -p kafka --test shapes frames_and_headers";
    for_each_seed(command, 500, |seed| {
        let mut random = Random::new(seed);
        let mut stream = Vec::new();
        for _ in 0..random.below(4) {
            let shapes: Vec<_> = requests().collect();
            let shape = random.pick(&shapes);
            let versions: Vec<i16> = shape.versions().collect();
            let version = random.pick(&versions);
            let mut frame = (shape.api_key as i16).to_be_bytes().to_vec();
            frame.extend(version.to_be_bytes());
            frame.extend(7_i32.to_be_bytes());
            frame.extend(if random.one_in(4) { &b"\xFF\xFF"[..] } else { b"\0\x02me" });
            if shape.is_flexible(version) {
                frame.extend(if random.one_in(4) { &[1, 9, 2, 0, 0][..] } else { &[0] });
            }
            frame.extend(match random.one_in(2) {
                true => Body::random(shape, version, &mut random).bytes,
                false => arbitrary_bytes(&mut random),
            });
            let length = i32::try_from(frame.len()).expect("it is small");
            stream.extend(length.to_be_bytes());
            stream.extend(frame);
        }
        if random.one_in(4) {
            stream.truncate(random.index(stream.len() + 1));
        }
        storm::frames(&stream);
    });
}

#[test]
fn every_version_that_is_served_is_described_once() {
    for (api_key, lowest, highest) in SERVED {
        for version in *lowest..=*highest {
            assert!(describe(*api_key, version).is_some(), "{api_key:?} {version}");
        }
    }
    let distinct: HashSet<ApiKey> = requests().map(|it| it.api_key).collect();
    assert_eq!(distinct.len(), requests().count());
}

#[test]
fn versions_are_flexible_where_their_headers_are() {
    for shape in requests() {
        for version in shape.versions() {
            let has_tags = shape.api_key.request_header_version(version) >= 2;
            assert_eq!(shape.is_flexible(version), has_tags, "{:?} {version}", shape.api_key);
        }
    }
}

#[track_caller]
fn check_fault(api_key: ApiKey, version: i16, body: &[u8], fault: ShapeFault) {
    let checked = check(api_key, version, body, 4);
    assert_eq!(checked.map_err(|it| it.fault), Err(fault));
}

#[test]
fn each_fault_is_told_from_the_others() {
    let cut = |needed, left| ShapeFault::Cut { needed, left };
    let huge = [0x7F, 0xFF, 0xFF, 0xFF];
    let bytes_2 = [0, 0, 0, 2, 7, 7];
    check_fault(ApiKey::Metadata, 0, &huge, cut(0x7FFF_FFFF, 0));
    check_fault(ApiKey::SaslAuthenticate, 0, &bytes_2[..5], cut(2, 1));
    check_fault(ApiKey::SaslAuthenticate, 0, &bytes_2[..3], cut(4, 3));
    check_fault(ApiKey::SaslHandshake, 0, &[0xFF, 0xFE], ShapeFault::NegativeLength(-2));
    check_fault(ApiKey::SaslHandshake, 0, &[0xFF, 0xFF], Null);
    check_fault(ApiKey::SaslAuthenticate, 2, &[0], Null);
    let long = [0xFF, 0xFF, 0xFF, 0xFF, 0x10];
    check_fault(ApiKey::SaslAuthenticate, 2, &long, ShapeFault::LongNumber);
    check_fault(ApiKey::SaslHandshake, 2, &[], ShapeFault::Undescribed);
    check_fault(ApiKey::Envelope, 0, &[], ShapeFault::Undescribed);
    let cursor_2 = [1, 0, 0, 0, 0, 2];
    check_fault(ApiKey::DescribeTopicPartitions, 0, &cursor_2, ShapeFault::Presence(2));
}

#[test]
fn tagged_sections_that_are_broken_are_refused() {
    let empty = [1; 2];
    let versions = |section: &[u8]| [&empty, section].concat();
    let check =
        |section: &[u8], fault| check_fault(ApiKey::ApiVersions, 3, &versions(section), fault);
    check(&[2, 7, 0, 7, 0], ShapeFault::TagOrder(7));
    check(&[2, 7, 0, 6, 0], ShapeFault::TagOrder(6));
    check(&[1, 7, 3, 0, 0], ShapeFault::Cut { needed: 3, left: 2 });
    check(&[5, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0], ShapeFault::TooManyElements { elements_max: 4 });
}

/// Returns a Fetch request without topics, followed by `section`.
fn fetch_body(version: i16, section: &[u8]) -> Vec<u8> {
    let fixed_count = if version <= 14 { 25 } else { 21 };
    let mut body = vec![0; fixed_count];
    body.extend([1, 1, 1]);
    body.extend(section);
    body
}

#[test]
fn a_tagged_field_has_the_size_that_its_version_gives_it() {
    let cluster_id = [1, 0, 3, 3, b'm', b'l'];
    assert_eq!(check(ApiKey::Fetch, 12, &fetch_body(12, &cluster_id), 4), Ok(()));
    let short = [1, 0, 2, 3, b'm', b'l'];
    check_fault(ApiKey::Fetch, 12, &fetch_body(12, &short), ShapeFault::TagSize(0));
    let long = [1, 0, 4, 3, b'm', b'l', 0];
    check_fault(ApiKey::Fetch, 12, &fetch_body(12, &long), ShapeFault::TagSize(0));
    let replica_state = [&[1, 1, 13][..], &[0; 13]].concat();
    assert_eq!(check(ApiKey::Fetch, 15, &fetch_body(15, &replica_state), 4), Ok(()));
    check_fault(ApiKey::Fetch, 14, &fetch_body(14, &replica_state), ShapeFault::TagVersion(1));
}

#[test]
fn elements_are_counted_over_all_arrays() {
    // Two topics of three partitions each.
    let topic = [&[0, 1, b't', 0, 0, 0, 3][..], &[0; 36]].concat();
    let body = [&[0, 0, 0, 2][..], &topic, &topic, &[0; 4]].concat();
    assert_eq!(check(ApiKey::DeleteRecords, 0, &body, 8), Ok(()));
    let expected = ShapeError {
        api_key: ApiKey::DeleteRecords,
        version: 0,
        field: "partitions",
        offset: 4 + 43 + 7,
        fault: ShapeFault::TooManyElements { elements_max: 7 },
    };
    assert_eq!(check(ApiKey::DeleteRecords, 0, &body, 7), Err(expected));
}

/// Runs one test of this program in a process with [`LIMITED`] set.
fn run_limited(test: &str) -> ExitStatus {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .env(LIMITED, "1")
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("running 1 test"), "{said}");
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    output.status
}

fn is_limited() -> bool {
    std::env::var_os(LIMITED).is_some()
}

/// Limits private writable memory. Address space that an allocator only reserves does not count.
fn limit_memory() {
    let counts = std::fs::read_to_string("/proc/self/statm").expect("the kernel tells");
    let pages = counts.split(' ').nth(5).and_then(|it| it.parse::<u64>().ok()).expect("a number");
    let page_bytes = u64::try_from(rustix::param::page_size()).expect("a small number");
    let limit = pages * page_bytes + MORE_BYTES_MAX;
    let limit = Rlimit { current: Some(limit), maximum: Some(limit) };
    setrlimit(Resource::Data, limit).expect("limits can be lowered");
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).expect("limits can be lowered");
}

/// Tests a body with each length replaced, and truncated at each byte.
fn judge_lies(shape: &RequestShape, version: i16, body: &Body) {
    let judge = |bytes: &[u8]| storm::judge(shape.api_key, version, bytes);
    for length in &body.lengths {
        let below_zero = [-1, -2, i64::from(i32::MIN), i64::from(i16::MIN)];
        let huge = [1 << 8, 1 << 15, 1 << 24, i64::from(i16::MAX), i64::from(i32::MAX)];
        let near = [length.value - 1, length.value + 1, length.value * 2];
        for value in below_zero.into_iter().chain(huge).chain(near) {
            judge(&body.with_length(length, value));
        }
    }
    for end in 0..body.bytes.len() {
        judge(&body.bytes[..end]);
    }
}

#[test]
fn lies_about_lengths_reserve_no_memory() {
    if !is_limited() {
        let status = run_limited("lies_about_lengths_reserve_no_memory");
        assert!(status.success(), "{status}");
        return;
    }
    limit_memory();
    let command = "cargo test -p kafka --test shapes lies_about_lengths";
    for_each_seed(command, SEED_COUNT_OF_LIES, |seed| {
        let mut random = Random::new(seed);
        for shape in requests() {
            for version in shape.versions() {
                judge_lies(shape, version, &Body::random(shape, version, &mut random));
            }
        }
    });
}

#[test]
fn a_count_that_is_believed_ends_a_process_and_one_that_is_checked_does_not() {
    if is_limited() {
        limit_memory();
        let decoded = decoders::decode(ApiKey::Metadata, 1, &MANY_TOPICS);
        assert!(decoded.is_err(), "there are no topics");
        return;
    }
    let test = "a_count_that_is_believed_ends_a_process_and_one_that_is_checked_does_not";
    let status = run_limited(test);
    assert_eq!(status.signal(), Some(Signal::ABORT.as_raw()), "{status}");
    assert!(check(ApiKey::Metadata, 1, &MANY_TOPICS, ELEMENTS_MAX).is_err());
}
