//! One virtqueue while it is served.
//!
//! ```text
//! driver ─ available ring ─▶ Ring::take ─▶ Server ─▶ Ring::answer ─ used ring ─▶ driver
//!                               │ mark                   │ clear the mark
//!                               └───── QueueInFlight ────┘
//! ```
//!
//! A ring belongs to one thread at a time. Requests may be answered in any order. Whatever lies in
//! the guest's memory is taken once and checked; a driver that breaks the protocol loses its ring.

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

/// Answers after which a driver that sleeps is woken, although more will follow.
const ANSWERS_PER_SIGNAL: u32 = 8;

const MEMORY_LOST: &str = "its front end has removed shared memory";

/// Where the parts of a ring are in the front end's own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingPlace {
    pub(crate) descriptors: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
}

/// Why a ring cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RingError {
    #[error("invalid ring size {size}; use a power of two up to {RING_SIZE_MAX}")]
    BadSize { size: u32 },
    #[error("the ring lies outside the guest's memory")]
    Outside,
    #[error("the ring is misaligned")]
    Misaligned,
}

/// Set-up of a ring.
pub(crate) struct RingPlan {
    pub(crate) size: u16,
    pub(crate) place: RingPlace,
    /// The request to begin with, unless more is known from what is in flight.
    pub(crate) base: u16,
    pub(crate) has_event_index: bool,
    pub(crate) in_flight: Option<QueueInFlight>,
    pub(crate) log: Arc<LogLimit>,
}

/// A request that was taken and is to be answered.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) head: u16,
    pub(crate) request: Request,
}

/// Result of a look for the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Take {
    Request,
    /// Something that is no request; it was answered as far as that is possible.
    Nonsense,
    Nothing,
}

pub(crate) struct Ring {
    queue: Queue,
    place: RingPlace,
    ram: Arc<Ram>,
    in_flight: Option<QueueInFlight>,
    /// Requests of an earlier process, which come first.
    again: VecDeque<u16>,
    /// Where the status of each request goes that was taken and not answered.
    open: Vec<Option<GuestAddress>>,
    open_count: u32,
    unsignalled: u32,
    call: Option<Arc<Event>>,
    chain: Chain,
    log: Arc<LogLimit>,
    /// The driver broke the protocol, or took the ring's memory away: nothing more is taken.
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

    /// Requests that an earlier process had taken and that wait to be done again.
    pub(crate) fn again_count(&self) -> usize {
        self.again.len()
    }

    /// Goes on in memory that the front end shares differently now. A ring that is not in it any
    /// more is not served until it is.
    pub(crate) fn move_to(&mut self, map: &MemoryMap) {
        match place(&mut self.queue, map, self.place) {
            Ok(()) => self.ram = Arc::clone(map.ram()),
            Err(error) => self.break_off(&error.to_string()),
        }
    }

    /// Sets the event that tells of answers. Told at once: it may have missed some.
    pub(crate) fn set_call(&mut self, call: Option<Arc<Event>>) {
        self.call = call;
        self.make_room();
        self.call.iter().for_each(|call| call.signal());
    }

    /// Lets the next signal not wait: for other threads than the worker, which can be freed.
    pub(crate) fn make_room(&self) {
        self.call.iter().for_each(|call| call.make_room());
    }

    /// Returns whether [`Ring::take`] would find something. Quick: two looks at memory.
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

    /// The first descriptor of the next request, marked as being in flight.
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
            self.break_off("its driver made an invalid or duplicate request available");
            return None;
        }
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.begin(head);
        }
        Some(head)
    }

    /// Answers a request. One that is not open any more was answered when the ring was emptied.
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

    /// Tells the driver of its answers, if it wants to be told.
    pub(crate) fn signal(&mut self) {
        if std::mem::take(&mut self.unsignalled) == 0 {
            return;
        }
        // Asked for every time: the question counts answers.
        let is_needed = self.queue.needs_notification(self.ram.mapped()).unwrap_or(false);
        if let Some(call) = &self.call
            && is_needed
            && !self.is_driver_awake()
        {
            call.signal();
        }
    }

    /// Whether the driver says that it looks for answers by itself. With event indices, those say.
    fn is_driver_awake(&self) -> bool {
        if self.queue.event_idx_enabled() {
            return false;
        }
        let flags = self.ram.load::<u16>(GuestAddress(self.queue.avail_ring()), Ordering::Relaxed);
        flags.is_ok_and(|flags| u32::from(u16::from_le(flags)) & VRING_AVAIL_F_NO_INTERRUPT != 0)
    }

    /// Has the driver kick when it has something. Returns whether it has already.
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

    /// Spares the driver its kicks.
    pub(crate) fn stop_listening(&mut self) {
        if !self.is_broken && self.queue.disable_notification(self.ram.mapped()).is_err() {
            self.break_off("its memory is gone");
        }
    }

    /// Requests that were taken and not answered.
    pub(crate) fn open_count(&self) -> u32 {
        self.open_count
    }

    /// Answers everything that is open with an error, because the front end waits no longer.
    pub(crate) fn fail_open(&mut self) {
        let heads = (0..).zip(&self.open).filter(|(_, open)| open.is_some());
        let heads: Vec<u16> = heads.map(|(head, _)| head).collect();
        for head in heads {
            self.answer(head, Outcome { status: Status::Failed, bytes: 0 });
        }
    }

    /// Where the next process, or this one, goes on.
    pub(crate) fn base(&self) -> u16 {
        let again = u16::try_from(self.again.len()).expect("fewer than the ring has entries");
        self.queue.next_avail().wrapping_sub(again)
    }

    /// Whether zeros may stand where the driver wrote something.
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

/// Tells the queue where its parts are in the guest.
fn place(queue: &mut Queue, map: &MemoryMap, place: RingPlace) -> Result<(), RingError> {
    let find = |address| map.guest_address(address).ok_or(RingError::Outside);
    let misaligned = |_| RingError::Misaligned;
    queue.try_set_desc_table_address(find(place.descriptors)?).map_err(misaligned)?;
    queue.try_set_avail_ring_address(find(place.available)?).map_err(misaligned)?;
    queue.try_set_used_ring_address(find(place.used)?).map_err(misaligned)?;
    // Address zero counts as "not set" for the queue.
    let is_set = queue.avail_ring() != GuestAddress(0).raw_value();
    if is_set && queue.is_valid(map.ram().mapped()) { Ok(()) } else { Err(RingError::Outside) }
}
