//! Cases on zeroes and discards.

use block_device::Zeroes;

use crate::subject::{CaseContext, range};

const RUN: usize = 8 * 4096;
const START: u64 = 5 << 20;

/// Offsets and lengths inside of the run: whole blocks, partial blocks, and all of it.
const RANGES: &[(usize, usize)] =
    &[(4096, 4096), (0, RUN), (512, 512), (100, 4000), (4000, 8192), (512, 6 * 4096), (1, RUN - 2)];

fn ranges(context: &CaseContext<'_>) -> impl Iterator<Item = (usize, usize)> {
    let rounded = |&(offset, length): &(usize, usize)| {
        let end = (offset + length) / context.granularity * context.granularity;
        let offset = context.rounded(offset);
        (offset, end.saturating_sub(offset))
    };
    RANGES.iter().map(rounded).filter(|(_, length)| *length > 0)
}

/// Checks that a zeroed range reads as zeros, and that its surroundings stay.
pub(super) fn zeroes_read_as_zeros(context: &CaseContext<'_>) {
    for (salt, (offset, length)) in (8..).zip(ranges(context)) {
        for zeroes in [Zeroes::Unmap, Zeroes::KeepAllocated] {
            let mut expected = context.paint(START, RUN, salt);
            let answer = context.subject.write_zeroes(range(START + offset as u64, length), zeroes);
            answer.unwrap_or_else(|why| panic!("{length} bytes are zeroed: {why}"));
            expected[offset..offset + length].fill(0);
            context.expect(START, &expected);
        }
    }
}

/// Checks that whole blocks of a discarded range read as zeros, and that partial blocks stay.
pub(super) fn discarded(context: &CaseContext<'_>) {
    for (salt, (offset, length)) in (20..).zip(ranges(context)) {
        let mut expected = context.paint(START, RUN, salt);
        let answer = context.subject.discard(range(START + offset as u64, length));
        answer.unwrap_or_else(|why| panic!("{length} bytes are discarded: {why}"));
        let (first, last) = (offset.next_multiple_of(4096), (offset + length) / 4096 * 4096);
        if first < last {
            expected[first..last].fill(0);
        }
        context.expect(START, &expected);
    }
}

/// Checks that a partial write to a zeroed block has zeros around it.
pub(super) fn written_again(context: &CaseContext<'_>) {
    context.paint(START, RUN, 40);
    let answer = context.subject.write_zeroes(range(START, RUN), Zeroes::Unmap);
    answer.expect("the run is zeroed");
    let mut expected = vec![0; RUN];
    let inside = context.rounded(100);
    let bytes = context.paint(START + 4096, inside, 41);
    expected[4096..4096 + inside].copy_from_slice(&bytes);
    context.expect(START, &expected);
    context.subject.flush().expect("it is flushed");
    context.expect(START, &expected);
}
