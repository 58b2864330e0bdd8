//! Cases on the visibility and ordering of concurrent requests.

use std::thread;

use block_device::Zeroes;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::pattern;
use crate::subject::{CaseContext, range};

const BLOCK: usize = block_device::BLOCK_BYTES;
const START: u64 = 6 << 20;

/// Minimum number of reads of a thread during writes of others, and number of those writes.
const TIMES: u64 = 100;

pub(super) fn flush_changes_nothing(context: &CaseContext<'_>) {
    let bytes = context.paint(START, 16 * BLOCK, 50);
    context.subject.flush().expect("a flush of new bytes");
    context.subject.flush().expect("a flush of nothing");
    context.expect(START, &bytes);
    let durable = pattern::bytes(context.seed ^ 51, 3 * BLOCK);
    context.subject.write_durably(START, &durable).expect("a durable write");
    context.expect(START, &durable);
    context.expect(START + 3 * BLOCK as u64, &bytes[3 * BLOCK..]);
}

/// Goal: a thread that learns of an acknowledged write reads it, whichever thread wrote it.
pub(super) fn writes_are_seen(context: &CaseContext<'_>) {
    let acknowledged = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let over = SetOnDrop(&is_over);
            for stamp in (1..).take_while(|_| !over.is_set()) {
                context.write(START, &pattern::stamped(stamp, BLOCK));
                acknowledged.store(stamp, Ordering::Release);
            }
        });
        let over = SetOnDrop(&is_over);
        let mut reads = 0;
        while !over.is_set() {
            let heard = acknowledged.load(Ordering::Acquire);
            if heard == 0 {
                thread::yield_now();
                continue;
            }
            let seen = pattern::stamp_of(&context.read(START, BLOCK));
            assert!(seen >= heard, "heard of {heard}, read {seen}");
            reads += 1;
            if reads >= TIMES && heard >= TIMES {
                break;
            }
        }
    });
}

/// Goal: a block read during writes is the result of one of them, also in requests of several
/// blocks.
pub(super) fn blocks_are_never_torn(context: &CaseContext<'_>) {
    const BLOCKS: usize = 4;
    context.write(START, &pattern::stamped(1, BLOCKS * BLOCK));
    let is_over = AtomicBool::new(false);
    let writes = AtomicU64::new(0);
    thread::scope(|scope| {
        let write = |first: u64| {
            let over = SetOnDrop(&is_over);
            for round in (0..).take_while(|_| !over.is_set()) {
                let blocks = 1 + pattern::below(round, BLOCKS);
                context.write(START, &pattern::stamped(first + round, blocks * BLOCK));
                writes.fetch_add(1, Ordering::AcqRel);
            }
        };
        scope.spawn(move || write(1 << 20));
        scope.spawn(move || write(1 << 40));
        let over = SetOnDrop(&is_over);
        let mut reads = 0;
        while !over.is_set() && (reads < TIMES || writes.load(Ordering::Acquire) < TIMES) {
            for block in context.read(START, BLOCKS * BLOCK).chunks(BLOCK) {
                pattern::stamp_of(block);
            }
            reads += 1;
        }
    });
}

/// Goal: after overlapping writers have finished, each block is the last write of one of them.
pub(super) fn overlaps(context: &CaseContext<'_>) {
    const BLOCKS: usize = 8;
    for round in 0..20 {
        thread::scope(|scope| {
            for writer in 1..=3_u64 {
                scope.spawn(move || {
                    let skipped = (BLOCK * pattern::below(round ^ writer, BLOCKS / 2)) as u64;
                    let bytes = pattern::stamped(writer, BLOCKS * BLOCK / 2);
                    context.write(START + skipped, &bytes);
                });
            }
        });
        for block in context.read(START, BLOCKS * BLOCK).chunks(BLOCK).take(BLOCKS / 2) {
            pattern::stamp_of(block);
        }
    }
}

/// Goal: threads that write neighbouring sectors of the same blocks lose no writes of each other.
pub(super) fn neighbours_at_once(context: &CaseContext<'_>) {
    const WRITERS: usize = 4;
    let part = context.granularity.max(512);
    let run = 64 * BLOCK;
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let own = (0..run / part).filter(|index| index % WRITERS == writer);
                for index in own {
                    let bytes = pattern::bytes(index as u64, part);
                    context.write(START + (index * part) as u64, &bytes);
                }
            });
        }
    });
    let expected: Vec<u8> =
        (0..run / part).flat_map(|index| pattern::bytes(index as u64, part)).collect();
    context.expect(START, &expected);
}

/// Goal: any sequence of requests has the same effect as on a plain array of bytes.
pub(super) fn random_requests(context: &CaseContext<'_>) {
    const RUN: usize = 256 * BLOCK;
    let mut model = context.paint(START, RUN, 60);
    for step in 0..400 {
        let draw = |which: u64, bound| pattern::below(context.seed ^ (step << 8) ^ which, bound);
        let longest = if draw(0, 8) == 0 { RUN / 2 } else { 4 * BLOCK };
        let offset = draw(1, RUN) / context.granularity * context.granularity;
        let length = context.rounded(1 + draw(2, longest)).min(RUN - offset);
        let at = START + offset as u64;
        let part = &mut model[offset..offset + length];
        match draw(3, 10) {
            0 | 1 if context.subject.abilities().zeroes => {
                let zeroes = if draw(4, 2) == 0 { Zeroes::Unmap } else { Zeroes::KeepAllocated };
                context.subject.write_zeroes(range(at, length), zeroes).expect("it is zeroed");
                part.fill(0);
            }
            2 => context.subject.flush().expect("it is flushed"),
            3..=5 => context.expect(at, part),
            _ => part.copy_from_slice(&context.paint(at, length, step << 16)),
        }
    }
    context.expect(START, &model);
}

/// Tells the other threads that a thread is done, also if it panics.
struct SetOnDrop<'a>(&'a AtomicBool);

impl SetOnDrop<'_> {
    fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
