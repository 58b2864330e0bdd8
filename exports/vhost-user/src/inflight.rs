//! In-flight buffer: requests that were taken from a ring and not answered, in memory that outlives
//! this process.
//!
//! The front end keeps the memory and passes it to the next process, which repeats the requests
//! that the last process had not answered. The layout is that of the vhost-user protocol for split
//! virtqueues:
//!
//! ```text
//! queue 0: features u64 │ version u16 │ size u16 │ last_batch_head u16 │ used_index u16
//!          entry 0: in_flight u8 │ 5 bytes │ next u16 │ counter u64
//!          entry 1 …
//! queue 1: at the next multiple of 64 bytes
//! ```
//!
//! A process can be killed between any two stores. Other processes see the stores in program order:
//!
//! - A request counts as taken once its entry is marked in flight. Before that it is still in the
//!   available ring. So the number of requests taken equals the number answered plus the number of
//!   marks.
//! - A request counts as answered once the used ring's index is stored. If the process is killed
//!   before it clears the mark, `used_index` differs from the index of the used ring, and
//!   `last_batch_head` names the entry to clear.
//!
//! The front end can write to the memory at any time. Values are checked when they are read, and
//! determine only which of the guest's own requests are repeated.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};

use fault_guard::LossFlag;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use vm_memory::{AtomicInteger, VolatileMemory};

use crate::disk::RING_SIZE_MAX;
use crate::memory::{MemoryError, Shared};

const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;
const QUEUE_ALIGNMENT_BYTES: usize = 64;

const VERSION_AT: usize = 8;
const SIZE_AT: usize = 10;
const LAST_BATCH_HEAD_AT: usize = 12;
const USED_INDEX_AT: usize = 14;

const IN_FLIGHT_AT: usize = 0;
const NEXT_AT: usize = 6;
const COUNTER_AT: usize = 8;

const VERSION: u16 = 1;

const INSIDE: &str = "the whole part of a queue was checked to be inside";

/// Error while an in-flight buffer is created or mapped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InFlightError {
    #[error("invalid in-flight buffer of {queue_count} queues with {ring_size} entries")]
    BadShape { queue_count: u16, ring_size: u16 },
    #[error("the in-flight buffer of {bytes} bytes is too small")]
    TooSmall { bytes: u64 },
    #[error("cannot create the in-flight buffer")]
    Make(#[source] io::Error),
    #[error("cannot use the in-flight buffer")]
    Use(#[from] MemoryError),
}

/// Dimensions of an in-flight buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) queue_count: u16,
    pub(crate) ring_size: u16,
}

impl Shape {
    pub(crate) fn new(
        queue_count: u16,
        ring_size: u16,
        queue_count_max: u16,
    ) -> Result<Self, InFlightError> {
        let is_possible = (1..=queue_count_max).contains(&queue_count)
            && (1..=RING_SIZE_MAX).contains(&ring_size);
        if !is_possible {
            return Err(InFlightError::BadShape { queue_count, ring_size });
        }
        Ok(Self { queue_count, ring_size })
    }

    fn queue_bytes(self) -> usize {
        (HEADER_BYTES + usize::from(self.ring_size) * ENTRY_BYTES)
            .next_multiple_of(QUEUE_ALIGNMENT_BYTES)
    }

    pub(crate) fn bytes(self) -> u64 {
        let bytes = self.queue_bytes() * usize::from(self.queue_count);
        u64::try_from(bytes).expect("some hundred KiB at most")
    }

    /// Creates a new buffer of this shape, with nothing in flight.
    pub(crate) fn make_memory(self) -> Result<File, InFlightError> {
        let failed = |error: rustix::io::Errno| InFlightError::Make(error.into());
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("memlane-in-flight", flags).map_err(failed)?);
        file.set_len(self.bytes()).map_err(InFlightError::Make)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&file, seals).map_err(failed)?;
        Ok(file)
    }
}

/// In-flight buffer of all queues of a connection.
#[derive(Clone)]
pub(crate) struct InFlight {
    memory: Arc<Memory>,
    shape: Shape,
}

struct Memory {
    shared: Shared,
    loss: LossFlag,
}

impl InFlight {
    pub(crate) fn map(
        file: File,
        offset: u64,
        bytes: u64,
        shape: Shape,
    ) -> Result<Self, InFlightError> {
        if bytes < shape.bytes() {
            return Err(InFlightError::TooSmall { bytes });
        }
        let loss = LossFlag::default();
        let shared = Shared::map(file, offset, shape.bytes(), &loss)?;
        Ok(Self { memory: Arc::new(Memory { shared, loss }), shape })
    }

    /// Returns the part of one queue, or `None` if the buffer has none or it is too small.
    pub(crate) fn queue(&self, index: usize, ring_size: u16) -> Option<QueueInFlight> {
        let is_inside = index < usize::from(self.shape.queue_count);
        if !is_inside || ring_size > self.shape.ring_size {
            return None;
        }
        let base = index * self.shape.queue_bytes();
        let queue = QueueInFlight { memory: Arc::clone(&self.memory), base, ring_size, counter: 0 };
        queue.field::<AtomicU16>(VERSION_AT).store(VERSION, Ordering::Relaxed);
        queue.field::<AtomicU16>(SIZE_AT).store(self.shape.ring_size, Ordering::Relaxed);
        Some(queue)
    }
}

/// In-flight buffer of one queue.
pub(crate) struct QueueInFlight {
    memory: Arc<Memory>,
    base: usize,
    ring_size: u16,
    /// Sequence number that orders requests by age.
    counter: u64,
}

impl QueueInFlight {
    /// Returns the requests that the last process left unanswered, oldest first. `used` is the
    /// index of the used ring.
    pub(crate) fn recover(&mut self, used: u16) -> Vec<u16> {
        let noted = self.field::<AtomicU16>(USED_INDEX_AT).load(Ordering::Acquire);
        let answered = used.wrapping_sub(noted).min(self.ring_size);
        let mut head = self.field::<AtomicU16>(LAST_BATCH_HEAD_AT).load(Ordering::Relaxed);
        for _ in 0..answered {
            if head >= self.ring_size {
                break;
            }
            self.entry::<AtomicU8>(head, IN_FLIGHT_AT).store(0, Ordering::Relaxed);
            head = self.entry::<AtomicU16>(head, NEXT_AT).load(Ordering::Relaxed);
        }
        self.field::<AtomicU16>(USED_INDEX_AT).store(used, Ordering::Release);
        let is_left =
            |head: &u16| self.entry::<AtomicU8>(*head, IN_FLIGHT_AT).load(Ordering::Relaxed) == 1;
        let counter = |head: u16| self.entry::<AtomicU64>(head, COUNTER_AT).load(Ordering::Relaxed);
        let mut left: Vec<(u64, u16)> =
            (0..self.ring_size).filter(is_left).map(|head| (counter(head), head)).collect();
        left.sort_unstable();
        self.counter = left.last().map_or(0, |(counter, _)| counter.wrapping_add(1));
        left.into_iter().map(|(_, head)| head).collect()
    }

    /// Returns whether the front end has truncated the memory.
    pub(crate) fn is_lost(&self) -> bool {
        self.memory.loss.is_raised()
    }

    /// Marks the request with head descriptor `head` as in flight.
    pub(crate) fn begin(&mut self, head: u16) {
        self.entry::<AtomicU64>(head, COUNTER_AT).store(self.counter, Ordering::Relaxed);
        self.counter = self.counter.wrapping_add(1);
        // Release, here and below: another process must see the stores in this order.
        self.entry::<AtomicU8>(head, IN_FLIGHT_AT).store(1, Ordering::Release);
    }

    /// Prepares the answer to `head`. Must be called right before it is added to the used ring.
    pub(crate) fn will_answer(&self, head: u16) {
        let last = self.field::<AtomicU16>(LAST_BATCH_HEAD_AT);
        self.entry::<AtomicU16>(head, NEXT_AT)
            .store(last.load(Ordering::Relaxed), Ordering::Relaxed);
        last.store(head, Ordering::Release);
    }

    /// Clears the mark of `head`. Must be called right after its answer was published, which set
    /// the index of the used ring to `used`.
    pub(crate) fn answered(&self, head: u16, used: u16) {
        self.entry::<AtomicU8>(head, IN_FLIGHT_AT).store(0, Ordering::Release);
        self.field::<AtomicU16>(USED_INDEX_AT).store(used, Ordering::Release);
    }

    fn field<T: AtomicInteger>(&self, at: usize) -> &T {
        self.memory.shared.mapping.get_atomic_ref(self.base + at).expect(INSIDE)
    }

    fn entry<T: AtomicInteger>(&self, head: u16, at: usize) -> &T {
        self.field(HEADER_BYTES + usize::from(head) * ENTRY_BYTES + at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { queue_count: 2, ring_size: 8 };

    struct Memory(File);

    impl Memory {
        fn new() -> Self {
            Self(SHAPE.make_memory().expect("a memfd"))
        }

        /// Maps the memory as the next process would.
        fn attach(&self) -> QueueInFlight {
            let file = self.0.try_clone().expect("a descriptor");
            let all = InFlight::map(file, 0, SHAPE.bytes(), SHAPE).expect("memory");
            all.queue(1, 8).expect("there are two")
        }
    }

    #[test]
    fn what_was_not_answered_is_found_in_the_order_in_which_it_was_taken() {
        let memory = Memory::new();
        let mut queue = memory.attach();
        assert!(queue.recover(0).is_empty());
        for head in [5, 2, 7] {
            queue.begin(head);
        }
        queue.will_answer(2);
        queue.answered(2, 1);
        assert_eq!(memory.attach().recover(1), [5, 7]);
        let mut next = memory.attach();
        next.recover(1);
        next.begin(0);
        assert_eq!(memory.attach().recover(1), [5, 7, 0]);
    }

    #[test]
    fn an_answer_is_found_whenever_the_process_was_killed() {
        let memory = Memory::new();
        let mut queue = memory.attach();
        queue.begin(3);
        queue.begin(4);
        queue.will_answer(3);
        assert_eq!(memory.attach().recover(0), [3, 4], "it was not in the ring yet");
        queue.will_answer(3);
        assert_eq!(memory.attach().recover(1), [4], "it was in the ring already");
    }

    #[test]
    fn answers_are_told_apart_around_the_end_of_the_count() {
        let memory = Memory::new();
        let mut queue = memory.attach();
        assert!(queue.recover(u16::MAX).is_empty());
        queue.begin(1);
        queue.will_answer(1);
        assert!(memory.attach().recover(0).is_empty());
    }

    #[test]
    fn nonsense_in_the_memory_is_survived() {
        let memory = Memory::new();
        let queue = memory.attach();
        queue.field::<AtomicU16>(LAST_BATCH_HEAD_AT).store(9999, Ordering::Relaxed);
        queue.entry::<AtomicU8>(0, IN_FLIGHT_AT).store(77, Ordering::Relaxed);
        queue.entry::<AtomicU64>(1, COUNTER_AT).store(u64::MAX, Ordering::Relaxed);
        queue.entry::<AtomicU8>(1, IN_FLIGHT_AT).store(1, Ordering::Relaxed);
        let mut next = memory.attach();
        assert_eq!(next.recover(500), [1]);
        next.begin(2);
    }

    #[test]
    fn shapes_and_sizes_that_cannot_be_are_refused() {
        assert!(Shape::new(0, 8, 4).is_err());
        assert!(Shape::new(5, 8, 4).is_err());
        assert!(Shape::new(4, 0, 4).is_err());
        assert!(Shape::new(4, RING_SIZE_MAX + 1, 4).is_err());
        let file = SHAPE.make_memory().expect("a memfd");
        assert!(InFlight::map(file, 0, SHAPE.bytes() - 1, SHAPE).is_err());
        let file = SHAPE.make_memory().expect("a memfd");
        assert!(InFlight::map(file, 1 << 40, SHAPE.bytes(), SHAPE).is_err());
    }
}
