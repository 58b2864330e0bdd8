//! One virtqueue while it is served.
//!
//! ```text
//! driver ─ available ring ─▶ Ring::take ─▶ Server ─▶ Ring::answer ─ used ring ─▶ driver
//!                               │ mark                   │ clear the mark
//!                               └───── QueueInFlight ────┘
//! ```
//!
//! A ring belongs to one thread at a time. Requests may be answered in any order. Each value in
//! guest memory is read once and then checked. A driver that violates the protocol loses its ring.

use std::collections::VecDeque;
use std::num::Wrapping;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use export_kit::LogLimit;
use virtio_bindings::virtio_ring::VRING_AVAIL_F_NO_INTERRUPT;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Address, Bytes, GuestAddress};

use crate::chain::{Chain, Malformed, Table};
use crate::disk::RING_SIZE_MAX;
use crate::event::Event;
use crate::inflight::QueueInFlight;
use crate::memory::{MemoryMap, Ram};
use crate::request::Request;
use crate::server::{Outcome, Status};

/// Number of answers after which the driver is interrupted, even if more answers follow.
const ANSWERS_PER_SIGNAL: u32 = 8;

const MEMORY_LOST: &str = "its front end has removed shared memory";

/// Addresses of a ring's parts in the front end's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingPlace {
    pub(crate) descriptors: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
}

/// Reason for which a ring cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RingError {
    #[error("invalid ring size {size}; use a power of two up to {RING_SIZE_MAX}")]
    BadSize { size: u32 },
    #[error("the ring lies outside the guest's memory")]
    Outside,
    #[error("the ring is misaligned")]
    Misaligned,
}

/// Configuration of a ring.
pub(crate) struct RingPlan {
    pub(crate) size: u16,
    pub(crate) place: RingPlace,
    /// Available-ring index to start at, unless the in-flight buffer says otherwise.
    pub(crate) base: u16,
    pub(crate) has_event_index: bool,
    pub(crate) in_flight: Option<QueueInFlight>,
    pub(crate) log: Arc<LogLimit>,
}

/// A request that was taken from the ring and must be answered.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) head: u16,
    pub(crate) request: Request,
}

/// Result of [`Ring::take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Take {
    Request,
    /// An invalid chain. It was answered as far as possible.
    Nonsense,
    Nothing,
}

pub(crate) struct Ring {
    queue: Queue,
    place: RingPlace,
    ram: Arc<Ram>,
    in_flight: Option<QueueInFlight>,
    /// Unanswered requests of an earlier process. They are served first.
    again: VecDeque<u16>,
    /// Status address of each request in flight, by head descriptor.
    open: Vec<Option<GuestAddress>>,
    open_count: u32,
    unsignalled: u32,
    call: Option<Arc<Event>>,
    chain: Chain,
    log: Arc<LogLimit>,
    /// The driver violated the protocol, or the ring's memory is lost. No more requests are taken.
    is_broken: bool,
}

impl Ring {
    pub(crate) fn begin(map: &MemoryMap, plan: RingPlan) -> Result<Self, RingError> {
        let mut queue = Queue::new(RING_SIZE_MAX).expect("the limit is a power of two");
        queue.try_set_size(plan.size).map_err(|_| RingError::BadSize { size: plan.size.into() })?;
        queue.set_event_idx(plan.has_event_index);
        queue.set_ready(true);
        place(&mut queue, map, plan.place)?;
        let ram = Arc::clone(map.ram());
        let used =
            queue.used_idx(ram.mapped(), Ordering::Acquire).map_err(|_| RingError::Outside)?.0;
        queue.set_next_used(used);
        queue.set_next_avail(plan.base);
        let mut in_flight = plan.in_flight;
        let mut again = VecDeque::new();
        if let Some(in_flight) = &mut in_flight {
            again = in_flight.recover(used).into();
            let taken = u16::try_from(again.len()).expect("fewer than the ring has entries");
            queue.set_next_avail(used.wrapping_add(taken));
        }
        Ok(Self {
            open: vec![None; plan.size.into()],
            queue,
            place: plan.place,
            ram,
            in_flight,
            again,
            open_count: 0,
            unsignalled: 0,
            call: None,
            chain: Chain::default(),
            log: plan.log,
            is_broken: false,
        })
    }

    pub(crate) fn place(&self) -> RingPlace {
        self.place
    }

    pub(crate) fn ram(&self) -> &Arc<Ram> {
        &self.ram
    }

    /// Number of requests of an earlier process that are still to be repeated.
    pub(crate) fn again_count(&self) -> usize {
        self.again.len()
    }

    /// Switches to a changed memory map. A ring that is outside the new map is not served until a
    /// later map contains it.
    pub(crate) fn move_to(&mut self, map: &MemoryMap) {
        match place(&mut self.queue, map, self.place) {
            Ok(()) => self.ram = Arc::clone(map.ram()),
            Err(error) => self.break_off(&error.to_string()),
        }
    }

    /// Sets the call eventfd and signals it at once, because earlier signals may have been missed.
    pub(crate) fn set_call(&mut self, call: Option<Arc<Event>>) {
        self.call = call;
        self.make_room();
        self.call.iter().for_each(|call| call.signal());
    }

    /// Ensures that the next signal does not block. Other threads call this to unblock the worker.
    pub(crate) fn make_room(&self) {
        self.call.iter().for_each(|call| call.make_room());
    }

    /// Returns whether [`Ring::take`] would find a request. Cheap: at most two loads.
    pub(crate) fn has_work(&self) -> bool {
        if self.is_broken {
            return false;
        }
        let next = Wrapping(self.queue.next_avail());
        !self.again.is_empty() || self.has_available(next)
    }

    fn has_available(&self, next: Wrapping<u16>) -> bool {
        let index = self.queue.avail_idx(self.ram.mapped(), Ordering::Acquire);
        index.is_ok_and(|index| index != next)
    }

    /// Takes the next request, if there is one, into `taken`.
    pub(crate) fn take(&mut self, taken: &mut Taken) -> Take {
        let Some(head) = self.next_head() else { return Take::Nothing };
        let address = GuestAddress(self.queue.desc_table());
        let table = Table { address, count: self.queue.size().into() };
        let read = self.chain.read(&self.ram, table, head);
        match read.and_then(|()| taken.request.read(&self.ram, &self.chain)) {
            Ok(()) => {
                taken.head = head;
                self.open[usize::from(head)] = Some(taken.request.status);
                self.open_count += 1;
                Take::Request
            }
            Err(Malformed::MemoryLost) => {
                self.break_off(MEMORY_LOST);
                Take::Nothing
            }
            Err(malformed) => {
                tracing::debug!(%malformed, head, "invalid request from a guest's driver");
                self.put_used(head, 0);
                Take::Nonsense
            }
        }
    }

    /// Returns the head descriptor of the next request, which is marked as in flight.
    fn next_head(&mut self) -> Option<u16> {
        if self.is_broken {
            return None;
        }
        if let Some(head) = self.again.pop_front() {
            return Some(head);
        }
        let next = match self.queue.iter(self.ram.mapped()) {
            Ok(mut available) => available.next(),
            Err(error) => {
                self.break_off(&error.to_string());
                return None;
            }
        };
        let head = next?.head_index();
        if self.is_lost() {
            self.break_off(MEMORY_LOST);
            return None;
        }
        let is_open = self.open.get(usize::from(head)).map(Option::is_some);
        if is_open != Some(false) || self.again.contains(&head) {
            self.break_off("its driver queued an invalid or duplicate descriptor index");
            return None;
        }
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.begin(head);
        }
        Some(head)
    }

    /// Answers a request. A request that [`Ring::fail_open`] has answered is ignored.
    pub(crate) fn answer(&mut self, head: u16, outcome: Outcome) {
        let Some(status) = self.open.get_mut(usize::from(head)).and_then(Option::take) else {
            return;
        };
        self.open_count -= 1;
        outcome.status.put(&self.ram, status);
        self.put_used(head, outcome.bytes.saturating_add(1));
    }

    fn put_used(&mut self, head: u16, bytes: u32) {
        if let Some(in_flight) = &self.in_flight {
            in_flight.will_answer(head);
        }
        if let Err(error) = self.queue.add_used(self.ram.mapped(), head, bytes) {
            self.break_off(&error.to_string());
            return;
        }
        if let Some(in_flight) = &self.in_flight {
            in_flight.answered(head, self.queue.next_used());
        }
        self.unsignalled += 1;
        if self.unsignalled >= ANSWERS_PER_SIGNAL {
            self.signal();
        }
    }

    /// Interrupts the driver about its answers, if it asked for that.
    pub(crate) fn signal(&mut self) {
        if std::mem::take(&mut self.unsignalled) == 0 {
            return;
        }
        // Must be called each time, because the check advances the index that it compares with.
        let is_needed = self.queue.needs_notification(self.ram.mapped()).unwrap_or(false);
        if let Some(call) = &self.call
            && is_needed
            && !self.is_driver_awake()
        {
            call.signal();
        }
    }

    /// Returns whether the driver suppresses interrupts by a flag. With event indices the flag is
    /// not used.
    fn is_driver_awake(&self) -> bool {
        if self.queue.event_idx_enabled() {
            return false;
        }
        let flags = self.ram.load::<u16>(GuestAddress(self.queue.avail_ring()), Ordering::Relaxed);
        flags.is_ok_and(|flags| u32::from(u16::from_le(flags)) & VRING_AVAIL_F_NO_INTERRUPT != 0)
    }

    /// Enables kicks from the driver. Returns whether requests are available already.
    pub(crate) fn listen(&mut self) -> bool {
        if self.is_broken {
            return false;
        }
        let has_more = self.queue.enable_notification(self.ram.mapped()).unwrap_or(false);
        if self.is_lost() {
            self.break_off(MEMORY_LOST);
            return false;
        }
        has_more || !self.again.is_empty()
    }

    /// Disables kicks from the driver.
    pub(crate) fn stop_listening(&mut self) {
        if !self.is_broken && self.queue.disable_notification(self.ram.mapped()).is_err() {
            self.break_off("its memory is no longer shared");
        }
    }

    /// Number of requests that were taken and not answered.
    pub(crate) fn open_count(&self) -> u32 {
        self.open_count
    }

    /// Fails all requests in flight, because the front end no longer waits for them.
    pub(crate) fn fail_open(&mut self) {
        let heads = (0..).zip(&self.open).filter(|(_, open)| open.is_some());
        let heads: Vec<u16> = heads.map(|(head, _)| head).collect();
        for head in heads {
            self.answer(head, Outcome { status: Status::Failed, bytes: 0 });
        }
    }

    /// Available-ring index at which to resume.
    pub(crate) fn base(&self) -> u16 {
        let again = u16::try_from(self.again.len()).expect("fewer than the ring has entries");
        self.queue.next_avail().wrapping_sub(again)
    }

    /// Returns whether memory was lost, so that zeros may have been read.
    fn is_lost(&self) -> bool {
        self.ram.is_lost() || self.in_flight.as_ref().is_some_and(QueueInFlight::is_lost)
    }

    fn break_off(&mut self, reason: &str) {
        if let Some(left_out) = self.log.admit() {
            tracing::warn!(
                reason,
                left_out,
                "stopping a vhost-user queue until the front end reconnects"
            );
        }
        self.is_broken = true;
    }
}

/// Sets the guest physical addresses of the ring's parts.
fn place(queue: &mut Queue, map: &MemoryMap, place: RingPlace) -> Result<(), RingError> {
    let find = |address| map.guest_address(address).ok_or(RingError::Outside);
    let misaligned = |_| RingError::Misaligned;
    queue.try_set_desc_table_address(find(place.descriptors)?).map_err(misaligned)?;
    queue.try_set_avail_ring_address(find(place.available)?).map_err(misaligned)?;
    queue.try_set_used_ring_address(find(place.used)?).map_err(misaligned)?;
    // For the queue, address zero means "not set".
    let is_set = queue.avail_ring() != GuestAddress(0).raw_value();
    if is_set && queue.is_valid(map.ram().mapped()) { Ok(()) } else { Err(RingError::Outside) }
}
