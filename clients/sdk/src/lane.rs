//! Many requests in flight from one thread.
//!
//! A lane has its own connection, which its thread polls. Requests longer than a slot's buffer are
//! split into pieces. When the daemon exits, unanswered requests are submitted again after it has
//! restarted. Until then polling returns nothing, and after
//! [`ClientOptions::patience`](crate::ClientOptions::patience) all requests fail with `EIO`. In a
//! forked child the parent's requests in flight fail with `ECANCELED`.

use std::collections::VecDeque;
use std::hint;
use std::sync::Arc;
use std::time::{Duration, Instant};

use adaptive_polling::SpinPermits;
use shared_ring::{ClientLane, SLOTS, Slot, operation};

use block_device::{ByteRange, Zeroes};

use crate::error::ClientError;
use crate::fork;
use crate::link::{Link, LinkError};
use crate::origin::Origin;
use crate::pieces;
use crate::process;
use crate::request::Request;
use crate::watch::{ATTEMPT_INTERVAL, PULSE, SharedWaiter, Watch};

/// Maximum number of requests in flight on a lane.
pub const REQUESTS_MAX: usize = 1024;

/// Number of polls before a wait sleeps.
const LOOKS_BEFORE_SLEEP: u32 = 2000;

/// Operation and data of a request. The data is returned with the completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submission {
    Read { offset: u64, into: Vec<u8> },
    Write { offset: u64, from: Vec<u8> },
    WriteZeroes { range: ByteRange, zeroes: Zeroes },
    Discard { range: ByteRange },
    Flush,
}

/// Identifier of a request on a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

/// Result of a completed request.
#[derive(Debug, PartialEq, Eq)]
pub struct Completion {
    pub token: Token,
    /// 0, or an error number as of a system call.
    pub errno: i32,
    /// Data of the submission; for a read that succeeded, the bytes read.
    pub data: Vec<u8>,
}

/// Operation of a [`RawRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawKind {
    Read,
    /// Does not change the memory.
    Write,
    /// A flush, which uses no memory.
    Flush,
}

/// A request on the caller's memory.
#[derive(Clone, Copy, Debug)]
pub struct RawRequest {
    pub kind: RawKind,
    pub offset: u64,
    pub length: usize,
    pub memory: *mut u8,
    pub token: u64,
}

/// Queue for many requests in flight, for one thread at a time.
pub struct Lane {
    origin: Origin,
    connection: Option<(Arc<Link>, ClientLane)>,
    /// Times at which the daemon was found to be gone, and of the last attempt to reconnect.
    lost: Option<(Instant, Instant)>,
    /// Time of the last check that the daemon is alive.
    looked: Instant,
    /// Fork count of the process that owns the lane.
    forks: u64,
    requests: Vec<Option<Pending>>,
    free: Vec<usize>,
    /// Pieces to be submitted, the oldest first.
    todo: VecDeque<Piece>,
    under_way: [Option<Piece>; SLOTS],
    ended: VecDeque<Completion>,
    next_token: u64,
    waiter: SharedWaiter,
}

// SAFETY:
// - exclusive: the pointers of requests are followed under `&mut self` alone, and the caller that
//   submits them promises that the memory is theirs, from any thread, until the request has ended.
unsafe impl Send for Lane {}

/// A request in flight.
struct Pending {
    request: Request,
    memory: Memory,
    token: u64,
    pieces_left: usize,
    errno: i32,
}

enum Memory {
    Owned(Vec<u8>),
    Callers(*mut u8),
}

/// A piece of a request.
#[derive(Clone, Copy)]
struct Piece {
    request: usize,
    start: u64,
    length: u64,
}

impl Lane {
    pub(crate) fn open(origin: Origin) -> Result<Self, ClientError> {
        let target = origin.target();
        let link = Link::open_when_there_is_room(&origin.path, &target, 1, &origin.options)
            .map_err(|error| error.into_client_error(&origin.path))?;
        let lane = ClientLane::new(Arc::clone(&link.ring), 0);
        Ok(Self {
            origin,
            connection: Some((link, lane)),
            lost: None,
            looked: Instant::now(),
            forks: fork::count(),
            requests: Vec::new(),
            free: Vec::new(),
            todo: VecDeque::new(),
            under_way: [None; SLOTS],
            ended: VecDeque::new(),
            next_token: 0,
            waiter: SharedWaiter::new(process::waiter(&Arc::new(SpinPermits::for_this_machine()))),
        })
    }

    /// Submits a request. Fails with `EAGAIN` if [`REQUESTS_MAX`] are in flight.
    pub fn submit(&mut self, submission: Submission) -> Result<Token, ClientError> {
        let token = self.next_token;
        let (request, data) = match submission {
            Submission::Read { offset, into } => (Request::read(offset, into.len()), into),
            Submission::Write { offset, from } => (Request::write(offset, from.len()), from),
            Submission::WriteZeroes { range, zeroes } => {
                (Request::zeroes(range, zeroes), Vec::new())
            }
            Submission::Discard { range } => (Request::discard(range), Vec::new()),
            Submission::Flush => (Request::flush(), Vec::new()),
        };
        self.begin(request, Memory::Owned(data), token)?;
        self.next_token += 1;
        Ok(Token(token))
    }

    /// Submits a request on the caller's memory, with the caller's token.
    ///
    /// # Safety
    /// The memory must be valid for the request's length, and not be used otherwise, until the
    /// request has completed or the lane is dropped.
    pub unsafe fn submit_raw(&mut self, request: RawRequest) -> Result<(), ClientError> {
        let RawRequest { kind, offset, length, memory, token } = request;
        let request = match kind {
            RawKind::Read => Request::read(offset, length),
            RawKind::Write => Request::write(offset, length),
            RawKind::Flush => Request::flush(),
        };
        self.begin(request, Memory::Callers(memory), token)
    }

    /// Number of requests that have not been returned as completions.
    pub fn pending(&self) -> usize {
        self.requests.len() - self.free.len() + self.ended.len()
    }

    /// Appends completions to `completions`, as many as it has free capacity for, or one if it has
    /// none. Does not block. Returns the number of added completions.
    pub fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        self.advance();
        if self.ended.is_empty() && self.pending() > 0 {
            self.look_now_and_then();
        }
        let room = (completions.capacity() - completions.len()).max(1);
        let count = self.ended.len().min(room);
        completions.extend(self.ended.drain(..count));
        count
    }

    /// Polls as [`Lane::poll`] does. If nothing has completed, waits for at most `time_max` until a
    /// pending request has.
    pub fn wait(&mut self, completions: &mut Vec<Completion>, time_max: Duration) -> usize {
        let start = Instant::now();
        let mut looks = 0;
        loop {
            let count = self.poll(completions);
            let left = time_max.saturating_sub(start.elapsed());
            if count > 0 || self.pending() == 0 || left.is_zero() {
                return count;
            }
            looks += 1;
            if looks < LOOKS_BEFORE_SLEEP {
                hint::spin_loop();
                continue;
            }
            if let Some(watch) = self.watch() {
                watch.sleep(left);
            }
            self.look_after_connection();
        }
    }

    /// Handle for the requests in flight, with which a thread can wait without holding the lane.
    /// `None` if no request is pending.
    pub fn watch(&self) -> Option<Watch> {
        if self.pending() == 0 {
            return None;
        }
        let used = self.under_way.iter().enumerate().filter(|(_, piece)| piece.is_some());
        let slots = used.fold(0, |slots, (index, _)| slots | 1 << index);
        let lane = self.connection.as_ref().map(|(_, lane)| lane.watch(slots));
        Some(Watch::new(lane, !self.ended.is_empty(), self.waiter.clone()))
    }

    fn begin(&mut self, request: Request, memory: Memory, token: u64) -> Result<(), ClientError> {
        self.belong_to_this_process();
        if self.pending() >= REQUESTS_MAX {
            let message = format!(
                "the lane has {REQUESTS_MAX} requests in flight; poll for completions first"
            );
            return Err(ClientError::new(libc::EAGAIN, message));
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.requests.push(None);
            self.requests.len() - 1
        });
        let pieces = Pieces { place, request, start: 0, is_over: false };
        let count = pieces.clone().count();
        let crosses_end = count > 1 && !self.fits(request);
        let pending = Pending { request, memory, token, pieces_left: count, errno: 0 };
        self.requests[place] = Some(pending);
        if crosses_end {
            self.refuse(place);
            return Ok(());
        }
        self.todo.extend(pieces);
        self.push_out();
        Ok(())
    }

    fn fits(&self, request: Request) -> bool {
        let size_bytes = self.connection.as_ref().map(|(link, _)| link.ring.size_bytes());
        pieces::fits(request.offset, request.length, size_bytes.unwrap_or(u64::MAX))
    }

    /// Refuses the whole request, as the daemon does with a single entry. Otherwise the daemon
    /// would execute some of the pieces.
    fn refuse(&mut self, place: usize) {
        let pending = self.requests[place].as_mut().expect("it was just put there");
        pending.errno = pieces::refusal_beyond_end(pending.request.operation);
        self.end(place);
    }

    /// Processes completions, and submits pieces that wait for slots.
    fn advance(&mut self) {
        self.belong_to_this_process();
        self.reap();
        if self.connection.is_none() {
            self.look_after_connection();
        }
        self.push_out();
    }

    fn reap(&mut self) {
        let Some((_, lane)) = &mut self.connection else { return };
        let (mut ended, mut count) = ([0; SLOTS], 0);
        for (index, place) in self.under_way.iter_mut().enumerate() {
            let Some(piece) = *place else { continue };
            let slot = Slot::at(index);
            let Some(status) = lane.status(slot) else { continue };
            *place = None;
            let pending = self.requests[piece.request].as_mut().expect("a piece is under way");
            if status != 0 {
                pending.errno = i32::try_from(status).unwrap_or(libc::EIO);
            } else if pending.request.operation == operation::READ {
                pending.memory.get(lane, slot, piece);
            }
            lane.free_slot(slot);
            pending.pieces_left -= 1;
            if pending.pieces_left == 0 {
                ended[count] = piece.request;
                count += 1;
            }
        }
        ended[..count].iter().for_each(|&place| self.end(place));
    }

    fn push_out(&mut self) {
        let Some((link, lane)) = &mut self.connection else { return };
        let mut has_submitted = false;
        while let Some(&piece) = self.todo.front() {
            let Some(slot) = lane.take_slot() else { break };
            self.todo.pop_front();
            let pending = self.requests[piece.request].as_ref().expect("a piece waits");
            if pending.request.operation == operation::WRITE {
                pending.memory.put(lane, slot, piece);
            }
            let offset = pending.request.offset.wrapping_add(piece.start);
            let part = Request { offset, length: piece.length, ..pending.request };
            lane.submit(slot, part.entry());
            self.under_way[slot.index()] = Some(piece);
            has_submitted = true;
        }
        if has_submitted && lane.must_ring() {
            link.ring_doorbell();
        }
    }

    fn end(&mut self, place: usize) {
        let pending = self.requests[place].take().expect("it has not ended before");
        self.free.push(place);
        let data = match pending.memory {
            Memory::Owned(data) => data,
            Memory::Callers(_) => Vec::new(),
        };
        let token = Token(pending.token);
        self.ended.push_back(Completion { token, errno: pending.errno, data });
    }

    /// In a child, abandons the connection and requests of the parent.
    #[inline]
    fn belong_to_this_process(&mut self) {
        if self.forks != fork::count() {
            self.begin_anew();
        }
    }

    #[cold]
    fn begin_anew(&mut self) {
        self.forks = fork::count();
        self.connection = None;
        self.under_way = [None; SLOTS];
        self.give_up(libc::ECANCELED);
    }

    /// Checks periodically that the daemon is alive, also for callers that only poll.
    fn look_now_and_then(&mut self) {
        if self.connection.is_some() && self.looked.elapsed() >= PULSE {
            self.look_after_connection();
        }
    }

    /// Detects that the daemon has exited, and tries to reconnect periodically.
    fn look_after_connection(&mut self) {
        let now = Instant::now();
        self.looked = now;
        if let Some((link, _)) = &self.connection {
            if link.is_alive() {
                return;
            }
            // The daemon may have answered before it exited.
            self.reap();
            self.connection = None;
            self.lost = Some((now, now));
            let again = self.under_way.iter_mut().filter_map(Option::take);
            for piece in again {
                self.todo.push_front(piece);
            }
        }
        let Some((since, last_attempt)) = self.lost else { return };
        let is_first = since == last_attempt;
        if !is_first && now.saturating_duration_since(last_attempt) < ATTEMPT_INTERVAL {
            return;
        }
        self.lost = Some((since, now.max(since + Duration::from_nanos(1))));
        match Link::reopen(&self.origin, 1) {
            Ok(link) => {
                let lane = ClientLane::new(Arc::clone(&link.ring), 0);
                self.connection = Some((link, lane));
                self.lost = None;
            }
            Err(LinkError::Absent(_) | LinkError::NoRoom { .. })
                if now.saturating_duration_since(since) < self.origin.options.patience => {}
            Err(LinkError::Refused { errno, .. }) => self.give_up(errno),
            Err(LinkError::Absent(_) | LinkError::NoRoom { .. } | LinkError::Host(_)) => {
                self.give_up(libc::EIO);
            }
        }
    }

    /// Fails all requests, because no daemon is available.
    fn give_up(&mut self, errno: i32) {
        self.todo.clear();
        for place in 0..self.requests.len() {
            if let Some(pending) = &mut self.requests[place] {
                pending.errno = errno;
                self.end(place);
            }
        }
        // The next request tries to reconnect.
        let now = Instant::now();
        self.lost = Some((now, now));
    }
}

impl Memory {
    /// Copies the data of a write piece to its slot.
    fn put(&self, lane: &ClientLane, slot: Slot, piece: Piece) {
        let (start, length) = piece.bytes();
        match self {
            Self::Owned(data) => lane.copy_in(slot, 0, &data[start..start + length]),
            Self::Callers(memory) => {
                // SAFETY:
                // - in bounds, alive, exclusive: pieces lie inside the request, for whose length
                //   and time the caller of `submit_raw` vouches.
                let from = unsafe { memory.add(start) };
                // SAFETY:
                // - in bounds, alive, exclusive, initialised: the caller of `submit_raw` vouches.
                lane.copy_in(slot, 0, unsafe { std::slice::from_raw_parts(from, length) });
            }
        }
    }

    /// Copies the data of a read piece from its slot.
    fn get(&mut self, lane: &ClientLane, slot: Slot, piece: Piece) {
        let (start, length) = piece.bytes();
        match self {
            Self::Owned(data) => lane.copy_out(slot, 0, &mut data[start..start + length]),
            Self::Callers(memory) => {
                // SAFETY:
                // - in bounds, alive, exclusive: pieces lie inside the request, for whose length
                //   and time the caller of `submit_raw` vouches.
                let into = unsafe { memory.add(start) };
                // SAFETY:
                // - in bounds, alive, exclusive, initialised: the caller of `submit_raw` vouches.
                lane.copy_out(slot, 0, unsafe { std::slice::from_raw_parts_mut(into, length) });
            }
        }
    }
}

impl Piece {
    fn bytes(self) -> (usize, usize) {
        let number = |value| usize::try_from(value).expect("addresses have 64 bits");
        (number(self.start), number(self.length))
    }
}

/// Iterator over the pieces of a request. Data is split at block boundaries, into pieces of at most
/// the size of a slot's buffer.
#[derive(Clone)]
struct Pieces {
    place: usize,
    request: Request,
    start: u64,
    is_over: bool,
}

impl Iterator for Pieces {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.is_over {
            return None;
        }
        let start = self.start;
        let left = self.request.length - start;
        let length = match self.request.is_data() {
            true => pieces::longest_at(self.request.offset.wrapping_add(start)).min(left),
            false => left,
        };
        self.start += length;
        self.is_over = self.start >= self.request.length;
        Some(Piece { request: self.place, start, length })
    }
}
