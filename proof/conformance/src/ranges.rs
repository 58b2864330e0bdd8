//! Cases on offsets and lengths of requests.

use crate::subject::CaseContext;

/// Lengths that cut blocks, kernel pages and protocol buffers.
const LENGTHS: &[usize] =
    &[1, 512, 513, 4095, 4096, 4097, 8192, 12_288, 65_535, 65_536, 131_072, 131_073, 1 << 20];

const OFFSETS: &[u64] = &[0, 1, 511, 512, 4095, 4096, 4097, 61_440, 2 << 20];

pub(super) fn written_is_read(context: &CaseContext<'_>) {
    for (salt, &length) in (1..).zip(LENGTHS) {
        for &offset in OFFSETS {
            let offset = context.rounded(usize::try_from(offset).expect("it is small")) as u64;
            let bytes = context.paint(offset, context.rounded(length), salt ^ (offset << 8));
            context.expect(offset, &bytes);
        }
    }
}

/// Writes inside of a painted run, at every relevant distance from block boundaries.
pub(super) fn neighbours_stay(context: &CaseContext<'_>) {
    const RUN: usize = 6 * 4096;
    let start = 4 << 20;
    for (salt, &length) in (1..).zip(&LENGTHS[..7]) {
        for &offset in &OFFSETS[..7] {
            let offset = context.rounded(usize::try_from(offset).expect("it is small"));
            let length = context.rounded(length);
            let mut expected = context.paint(start, RUN, salt);
            let inside = context.paint(start + offset as u64, length, salt ^ 0xFF00);
            expected[offset..offset + length].copy_from_slice(&inside);
            context.expect(start, &expected);
        }
    }
}

pub(super) fn ends_are_reached(context: &CaseContext<'_>) {
    for length in [context.granularity, 4096, 3 * 4096] {
        let last = context.size_bytes - length as u64;
        let first_bytes = context.paint(0, length, 3);
        let last_bytes = context.paint(last, length, 4);
        context.expect(0, &first_bytes);
        context.expect(last, &last_bytes);
    }
}

/// Checks that requests that clients and protocols split are complete, also at odd offsets.
pub(super) fn long_requests_are_whole(context: &CaseContext<'_>) {
    let length = 5 << 20;
    let bytes = context.paint(context.granularity as u64, length, 5);
    context.expect(context.granularity as u64, &bytes);
    let middle = 1 << 20;
    context.expect(context.granularity as u64 + middle as u64, &bytes[middle..2 * middle]);
}
