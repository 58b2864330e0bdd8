//! Cases on requests that are to fail, and leave everything as it was.

use block_device::Zeroes;

use crate::subject::{Abilities, Ground, range};

const TAIL: usize = 4 * 4096;

pub(super) fn past_the_end(ground: &Ground<'_>) {
    let last = ground.paint(ground.size_bytes - TAIL as u64, TAIL, 6);
    for distance in [0, ground.granularity as u64, 4096, 1 << 30, 1 << 40] {
        let start = ground.size_bytes + distance;
        let length = ground.granularity;
        let mut bytes = vec![0; length];
        assert!(ground.subject.read(start, &mut bytes).is_err(), "a read at {start}");
        assert!(ground.subject.write(start, &bytes).is_err(), "a write at {start}");
        // A file of a kernel has holes past its end, which may be punched.
        let Abilities { refuses_whole, zeroes, .. } = ground.subject.abilities();
        if refuses_whole && zeroes {
            let answer = ground.subject.write_zeroes(range(start, length), Zeroes::Unmap);
            assert!(answer.is_err(), "zeroes at {start}");
        }
    }
    ground.expect(ground.size_bytes - TAIL as u64, &last);
}

/// Checks that a request that crosses the end is refused before any of it takes effect.
pub(super) fn crossing(ground: &Ground<'_>) {
    let start = ground.size_bytes - TAIL as u64;
    let last = ground.paint(start, TAIL, 7);
    let crossing = range(start, TAIL + ground.granularity);
    let mut bytes = vec![0; TAIL + ground.granularity];
    assert!(ground.subject.read(start, &mut bytes).is_err(), "a read that crosses the end");
    assert!(ground.subject.write(start, &bytes).is_err(), "a write that crosses the end");
    if ground.subject.abilities().zeroes {
        for zeroes in [Zeroes::Unmap, Zeroes::KeepAllocated] {
            let answer = ground.subject.write_zeroes(crossing, zeroes);
            assert!(answer.is_err(), "zeroes that cross the end");
        }
    }
    if ground.subject.abilities().discards {
        assert!(ground.subject.discard(crossing).is_err(), "a discard that crosses the end");
    }
    ground.expect(start, &last);
}

/// Every change is refused, and reads and flushes are served.
pub(super) fn read_only(ground: &Ground<'_>) {
    let subject = ground.subject;
    let before = ground.read(0, TAIL);
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
    ground.expect(0, &before);
}
