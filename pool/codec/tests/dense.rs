//! Tests of the dense form: round trips, and rejection of all other bytes.

use codec::{BLOCK_BYTES, Block, DecodeError, DenseEncoder, decode_dense};
use proptest::collection::vec;
use proptest::prelude::*;

fn encoder() -> DenseEncoder {
    DenseEncoder::new().expect("there is memory")
}

fn text(seed: u8) -> Block {
    let words = b"the quick brown fox jumps over the lazy dog, and then it rests for a while. ";
    std::array::from_fn(|index| words[(index * index / 7 + usize::from(seed)) % words.len()])
}

#[track_caller]
fn check_refused(what: &str, bytes: &[u8]) {
    assert_eq!(decode_dense(bytes, &mut [0; BLOCK_BYTES]), Err(DecodeError), "{what}");
}

#[test]
fn a_block_comes_back() {
    let mut encoder = encoder();
    for seed in 0..20 {
        let encoded = encoder.encode(&text(seed), BLOCK_BYTES).expect("text shrinks");
        assert!(encoded.len() < BLOCK_BYTES / 2);
        let mut block = [0; BLOCK_BYTES];
        assert_eq!(decode_dense(encoded, &mut block), Ok(()));
        assert!(block == text(seed));
    }
}

#[test]
fn an_encoding_depends_on_the_block_alone() {
    let mut encoder = encoder();
    let first = encoder.encode(&text(1), BLOCK_BYTES).expect("text shrinks").to_vec();
    assert_eq!(encoder.encode(&text(2), 10), None);
    assert_eq!(encoder.encode(&text(1), BLOCK_BYTES), Some(&first[..]));
    assert_eq!(encoder.encode(&text(1), first.len()), Some(&first[..]));
    assert_eq!(encoder.encode(&text(1), first.len() - 1), None);
}

#[test]
fn what_is_not_exactly_one_frame_of_a_block_is_refused() {
    let frame = encoder().encode(&text(3), BLOCK_BYTES).expect("text shrinks").to_vec();
    check_refused("nothing", &[]);
    for length in 0..frame.len() {
        check_refused("a part", &frame[..length]);
    }
    check_refused("more", &[&frame[..], &[0]].concat());
    check_refused("two frames", &[&frame[..], &frame].concat());
    let skipped = [0x50, 0x2A, 0x4D, 0x18, 0, 0, 0, 0];
    check_refused("a frame that is skipped before it", &[&skipped[..], &frame].concat());
    check_refused("a frame that is skipped after it", &[&frame[..], &skipped].concat());
    // Frames of one raw block and of one run, with the sizes of their contents.
    let empty = [0x28, 0xB5, 0x2F, 0xFD, 0x20, 0, 1, 0, 0];
    check_refused("no contents", &empty);
    let run = |size: u16| {
        let header = u32::from(size) << 3 | 0b011;
        let mut bytes = vec![0x28, 0xB5, 0x2F, 0xFD, 0x60];
        bytes.extend((size - 256).to_le_bytes());
        bytes.extend(&header.to_le_bytes()[..3]);
        bytes.push(7);
        bytes
    };
    assert_eq!(decode_dense(&run(4096), &mut [0; BLOCK_BYTES]), Ok(()));
    check_refused("a shorter block", &run(4095));
    check_refused("a longer block", &run(4097));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..300), with_magic in any::<bool>()) {
        let magic: &[u8] = if with_magic { &[0x28, 0xB5, 0x2F, 0xFD] } else { &[] };
        let _any = decode_dense(&[magic, &bytes].concat(), &mut [0; BLOCK_BYTES]);
    }

    #[test]
    fn a_changed_encoding_is_refused_or_is_a_block(
        at in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let mut frame = encoder().encode(&text(5), BLOCK_BYTES).expect("text shrinks").to_vec();
        let place = at.index(frame.len());
        frame[place] ^= 1_u8 << bit;
        let _any = decode_dense(&frame, &mut [0; BLOCK_BYTES]);
    }
}

/// Set for the process that must run out of memory.
const IS_SHORT: &str = "DENSE_IS_SHORT_OF_MEMORY";

/// Goal: a failed allocation is never reported as damaged data.
/// Method: a separate process with little address space, which uses all of it before the first
/// block is decoded.
#[test]
fn a_decoder_that_finds_no_memory_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;

    if std::env::var_os(IS_SHORT).is_some() {
        return run_short_of_memory();
    }
    let program = std::env::current_exe().expect("this is a program");
    let name = "a_decoder_that_finds_no_memory_ends_the_process";
    let status = std::process::Command::new("sh")
        .args(["-c", "ulimit -v 1000000; ulimit -c 0; exec \"$0\" --exact \"$1\" --nocapture"])
        .arg(program)
        .arg(name)
        .env(IS_SHORT, "1")
        .stderr(std::process::Stdio::null())
        .status();
    let status = status.expect("a shell starts");
    assert_eq!(status.signal(), Some(6), "aborted: {status}");
}

fn run_short_of_memory() {
    let frame = encoder().encode(&text(3), BLOCK_BYTES).expect("text shrinks").to_vec();
    let mut block = [0; BLOCK_BYTES];
    let mut taken: Vec<Vec<u8>> = Vec::with_capacity(1 << 16);
    for length in [64 << 20, 1 << 20, 64 << 10, 4 << 10] {
        let mut more = Vec::new();
        while more.try_reserve_exact(length).is_ok() && taken.len() < taken.capacity() {
            taken.push(std::mem::take(&mut more));
        }
    }
    let decoded = decode_dense(&frame, &mut block);
    drop(taken);
    assert_eq!(decoded, Ok(()), "it is not damaged");
}
