//! Cases on where requests begin and end.

use crate::subject::Ground;

/// Lengths that cut blocks, pages of kernels and buffers of protocols.
const LENGTHS: &[usize] =
    &[1, 512, 513, 4095, 4096, 4097, 8192, 12_288, 65_535, 65_536, 131_072, 131_073, 1 << 20];

const OFFSETS: &[u64] = &[0, 1, 511, 512, 4095, 4096, 4097, 61_440, 2 << 20];

pub(super) fn written_is_read(ground: &Ground<'_>) {
    for (salt, &length) in (1..).zip(LENGTHS) {
        for &offset in OFFSETS {
            let offset = ground.rounded(usize::try_from(offset).expect("it is small")) as u64;
            let bytes = ground.paint(offset, ground.rounded(length), salt ^ (offset << 8));
            ground.expect(offset, &bytes);
        }
    }
}

/// Writes inside of a painted run, at every distance from the bounds of its blocks that matters.
pub(super) fn neighbours_stay(ground: &Ground<'_>) {
    const RUN: usize = 6 * 4096;
    let start = 4 << 20;
    for (salt, &length) in (1..).zip(&LENGTHS[..7]) {
        for &offset in &OFFSETS[..7] {
            let offset = ground.rounded(usize::try_from(offset).expect("it is small"));
            let length = ground.rounded(length);
            let mut expected = ground.paint(start, RUN, salt);
            let inside = ground.paint(start + offset as u64, length, salt ^ 0xFF00);
            expected[offset..offset + length].copy_from_slice(&inside);
            ground.expect(start, &expected);
        }
    }
}

pub(super) fn ends_are_reached(ground: &Ground<'_>) {
    for length in [ground.granularity, 4096, 3 * 4096] {
        let last = ground.size_bytes - length as u64;
        let first_bytes = ground.paint(0, length, 3);
        let last_bytes = ground.paint(last, length, 4);
        ground.expect(0, &first_bytes);
        ground.expect(last, &last_bytes);
    }
}

/// Checks that requests that clients and protocols split arrive whole, at odd places, too.
pub(super) fn long_requests_are_whole(ground: &Ground<'_>) {
    let length = 5 << 20;
    let bytes = ground.paint(ground.granularity as u64, length, 5);
    ground.expect(ground.granularity as u64, &bytes);
    let middle = 1 << 20;
    ground.expect(ground.granularity as u64 + middle as u64, &bytes[middle..2 * middle]);
}
