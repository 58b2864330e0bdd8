//! Both encoders against `lz4_flex`, on blocks of literals and repetitions.

use codec::{BLOCK_BYTES, Block, Encoder, decode};
use lz4_flex::block::{compress, decompress};
use proptest::collection::vec;
use proptest::prelude::*;

/// Limit above the length of any encoding of a block.
const NO_LIMIT: usize = 2 * BLOCK_BYTES;

type Encode = fn(&mut Encoder, &Block, usize) -> Option<Vec<u8>>;

const ENCODERS: [Encode; 2] = [
    |encoder, block, limit| encoder.encode(block, limit).map(<[u8]>::to_vec),
    |encoder, block, limit| encoder.encode_thoroughly(block, limit).map(<[u8]>::to_vec),
];

/// A piece of a block: new bytes, or a repetition of bytes at a distance before.
#[derive(Clone, Debug)]
enum Piece {
    New(Vec<u8>),
    Again { distance: usize, length: usize },
}

fn piece() -> impl Strategy<Value = Piece> {
    let lengths = prop_oneof![1..20_usize, 1..600_usize];
    prop_oneof![
        vec(any::<u8>(), 1..40).prop_map(Piece::New),
        vec(b'a'..b'e', 1..300).prop_map(Piece::New),
        vec(any::<u8>(), 250..300).prop_map(Piece::New),
        (1..BLOCK_BYTES, lengths.clone())
            .prop_map(|(distance, length)| Piece::Again { distance, length }),
        (1..9_usize, lengths).prop_map(|(distance, length)| Piece::Again { distance, length }),
    ]
}

/// Concatenates the pieces, repeated until they fill a block.
fn assemble(pieces: &[Piece]) -> Block {
    let mut bytes = Vec::with_capacity(2 * BLOCK_BYTES);
    for piece in pieces.iter().cycle() {
        match piece {
            Piece::New(new) => bytes.extend_from_slice(new),
            &Piece::Again { distance, length } => {
                for _ in 0..length {
                    let from = bytes.len().checked_sub(distance);
                    bytes.push(from.map_or(7, |from| bytes[from]));
                }
            }
        }
        if bytes.len() >= BLOCK_BYTES {
            break;
        }
    }
    bytes[..BLOCK_BYTES].try_into().expect("there are enough")
}

fn block() -> impl Strategy<Value = Block> {
    vec(piece(), 1..60).prop_map(|pieces| assemble(&pieces))
}

/// Checks the sequences for the rules that decoders rely on: no match begins in the last 12 bytes
/// of the block, and none reaches into its last 5.
fn check_end(encoded: &[u8]) {
    let mut bytes = encoded.iter().copied();
    let mut decoded = 0;
    loop {
        let token = usize::from(bytes.next().expect("a sequence begins with its token"));
        let literals = count(token >> 4, &mut bytes);
        decoded += literals;
        for _ in 0..literals {
            bytes.next().expect("the literals are there");
        }
        if bytes.len() == 0 {
            break;
        }
        assert!(decoded <= BLOCK_BYTES - 12, "a match begins at {decoded}");
        let offset = [bytes.next(), bytes.next()].map(|byte| byte.expect("the offset is there"));
        let offset = usize::from(u16::from_le_bytes(offset));
        assert!((1..=decoded).contains(&offset), "{offset} bytes back from {decoded}");
        decoded += 4 + count(token & 15, &mut bytes);
        assert!(decoded <= BLOCK_BYTES - 5, "a match ends at {decoded}");
    }
    assert_eq!(decoded, BLOCK_BYTES);
}

fn count(nibble: usize, bytes: &mut impl Iterator<Item = u8>) -> usize {
    let mut count = nibble;
    if nibble < 15 {
        return count;
    }
    loop {
        let more = bytes.next().expect("the count goes on");
        count += usize::from(more);
        if more < 255 {
            return count;
        }
    }
}

/// Returns a block of rows like those of tables and logs, for comparisons with the reference.
fn rows(seed: u64) -> Block {
    let mut state = seed;
    let mut text = Vec::new();
    while text.len() < BLOCK_BYTES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (number, user) = (state >> 40, state >> 58);
        text.extend_from_slice(format!("{number:08} user{user:02} paid in full\n").as_bytes());
    }
    text[..BLOCK_BYTES].try_into().expect("there are enough")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_encoded_is_decoded_to_the_block_here_and_by_the_reference(block in block()) {
        for encode in ENCODERS {
            let encoded = encode(&mut Encoder::new(), &block, NO_LIMIT).expect("no limit");
            let mut decoded = [0; BLOCK_BYTES];
            prop_assert_eq!(decode(&encoded, &mut decoded), Ok(()));
            prop_assert!(decoded == block);
            let by_reference = decompress(&encoded, BLOCK_BYTES).expect("the reference reads it");
            prop_assert!(by_reference == block);
        }
    }

    #[test]
    fn the_end_of_a_block_is_as_other_decoders_want_it(block in block()) {
        for encode in ENCODERS {
            check_end(&encode(&mut Encoder::new(), &block, NO_LIMIT).expect("no limit"));
        }
    }

    #[test]
    fn the_limit_decides_whether_there_is_an_encoding_and_nothing_else(block in block()) {
        for encode in ENCODERS {
            let mut encoder = Encoder::new();
            let encoded = encode(&mut encoder, &block, NO_LIMIT).expect("no limit");
            prop_assert_eq!(encode(&mut encoder, &block, encoded.len()), Some(encoded.clone()));
            for less in [1, 2, encoded.len() / 2, encoded.len()] {
                let limit = encoded.len() - less;
                prop_assert_eq!(encode(&mut encoder, &block, limit), None);
            }
        }
    }

    #[test]
    fn blocks_before_change_nothing(before in block(), block in block()) {
        for encode in ENCODERS {
            let mut encoder = Encoder::new();
            encode(&mut encoder, &before, NO_LIMIT);
            let after_another = encode(&mut encoder, &block, NO_LIMIT);
            prop_assert_eq!(after_another, encode(&mut Encoder::new(), &block, NO_LIMIT));
        }
    }

    #[test]
    fn encodings_of_the_reference_are_decoded(block in block()) {
        let mut decoded = [0; BLOCK_BYTES];
        prop_assert_eq!(decode(&compress(&block), &mut decoded), Ok(()));
        prop_assert!(decoded == block);
    }

    #[test]
    fn damaged_bytes_are_an_error_or_a_block(
        block in block(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        length in any::<prop::sample::Index>(),
    ) {
        let mut encoded = ENCODERS[0](&mut Encoder::new(), &block, NO_LIMIT).expect("no limit");
        for (at, byte) in damage {
            let at = at.index(encoded.len());
            encoded[at] = byte;
        }
        for damaged in [&encoded[..], &encoded[..length.index(encoded.len())]] {
            let mut decoded = [0; BLOCK_BYTES];
            let is_block = decode(damaged, &mut decoded).is_ok();
            let by_reference = decompress(damaged, BLOCK_BYTES).ok();
            let by_reference = by_reference.filter(|bytes| bytes.len() == BLOCK_BYTES);
            prop_assert_eq!(is_block.then(|| decoded.to_vec()), by_reference);
        }
    }
}

#[test]
fn rows_of_text_take_no_more_than_with_the_reference_and_thoroughly_less() {
    let (mut reference, mut quick, mut thorough) = (0, 0, 0);
    let mut encoder = Encoder::new();
    for seed in 0..200 {
        let block = rows(seed);
        reference += compress(&block).len();
        quick += encoder.encode(&block, NO_LIMIT).expect("no limit").len();
        thorough += encoder.encode_thoroughly(&block, NO_LIMIT).expect("no limit").len();
    }
    assert!(quick * 100 <= reference * 101, "{quick} bytes, {reference} by the reference");
    assert!(thorough * 100 <= quick * 97, "{thorough} bytes, {quick} quickly");
}
