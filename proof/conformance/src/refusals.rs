//! Cases on requests that must fail and change nothing.

use block_device::Zeroes;

use crate::subject::{Abilities, CaseContext, range};

const TAIL: usize = 4 * 4096;

pub(super) fn past_the_end(context: &CaseContext<'_>) {
    let last = context.paint(context.size_bytes - TAIL as u64, TAIL, 6);
    for distance in [0, context.granularity as u64, 4096, 1 << 30, 1 << 40] {
        let start = context.size_bytes + distance;
        let length = context.granularity;
        let mut bytes = vec![0; length];
        assert!(context.subject.read(start, &mut bytes).is_err(), "a read at {start}");
        assert!(context.subject.write(start, &bytes).is_err(), "a write at {start}");
        // A file of a kernel has holes past its end, which may be punched.
        let Abilities { refuses_whole, zeroes, .. } = context.subject.abilities();
        if refuses_whole && zeroes {
            let answer = context.subject.write_zeroes(range(start, length), Zeroes::Unmap);
            assert!(answer.is_err(), "zeroes at {start}");
        }
    }
    context.expect(context.size_bytes - TAIL as u64, &last);
}

/// Checks that a request that crosses the end is rejected before any part of it takes effect.
pub(super) fn crossing(context: &CaseContext<'_>) {
    let start = context.size_bytes - TAIL as u64;
    let last = context.paint(start, TAIL, 7);
    let crossing = range(start, TAIL + context.granularity);
    let mut bytes = vec![0; TAIL + context.granularity];
    assert!(context.subject.read(start, &mut bytes).is_err(), "a read that crosses the end");
    assert!(context.subject.write(start, &bytes).is_err(), "a write that crosses the end");
    if context.subject.abilities().zeroes {
        for zeroes in [Zeroes::Unmap, Zeroes::KeepAllocated] {
            let answer = context.subject.write_zeroes(crossing, zeroes);
            assert!(answer.is_err(), "zeroes that cross the end");
        }
    }
    if context.subject.abilities().discards {
        assert!(context.subject.discard(crossing).is_err(), "a discard that crosses the end");
    }
    context.expect(start, &last);
}

/// Checks that every change is rejected, and that reads and flushes are served.
pub(super) fn read_only(context: &CaseContext<'_>) {
    let subject = context.subject;
    let before = context.read(0, TAIL);
    assert!(subject.write(0, &[1; 4096]).is_err(), "a write");
    assert!(subject.write_durably(4096, &[1; 4096]).is_err(), "a durable write");
    if subject.abilities().zeroes {
        for zeroes in [Zeroes::Unmap, Zeroes::KeepAllocated] {
            assert!(subject.write_zeroes(range(0, TAIL), zeroes).is_err(), "zeroes");
        }
    }
    if subject.abilities().discards {
        assert!(subject.discard(range(0, TAIL)).is_err(), "a discard");
    }
    subject.flush().expect("flushing changes nothing, and is never refused");
    context.expect(0, &before);
}
