//! Execution of one request: in pieces, and across restarts of the daemon.
//!
//! A request that is longer than a slot's buffer is split into several entries, so that this thread
//! copies one piece while the daemon processes the next. Answered pieces are not repeated.

use std::hint;
use std::task::Poll;
use std::time::Duration;

use adaptive_polling::Waiter;
use shared_ring::Slot;

use crate::buffers::Buffers;
use crate::error::ClientError;
use crate::pieces;
use crate::process::{ClientMachine, LaneState, OpenLane, Process, run_around};
use crate::request::Request;

/// Maximum number of pieces in flight.
const PIECES_MAX: usize = 8;

/// Number of polls in a row, with pauses in between, for each call of the waiter.
const LOOKS_PER_POLL: u32 = 32;

/// Interval at which a sleeping thread checks that the daemon is alive.
const PULSE: Duration = Duration::from_millis(20);

/// Reason for which an attempt ended.
#[derive(Debug)]
enum Interruption {
    /// The connection was lost.
    Lost,
    Failed(i32),
}

/// Executes a request, across any number of daemon restarts.
pub(crate) fn run(
    process: &Process,
    request: Request,
    buffers: &mut Buffers<'_, '_>,
) -> Result<(), Failure> {
    let mut state = process.lane();
    let mut done = 0;
    loop {
        match attempt(process, &mut state, request, buffers, &mut done)? {
            Ok(()) => return Ok(()),
            Err(Interruption::Failed(errno)) => return Err(Failure::Answered(errno)),
            Err(Interruption::Lost) => process.recover(&mut state)?,
        }
    }
}

/// Reason why a request failed.
pub(crate) enum Failure {
    /// The daemon returned this error.
    Answered(i32),
    /// No daemon was available.
    Unanswered(ClientError),
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Unanswered(error)
    }
}

#[inline]
fn attempt(
    process: &Process,
    state: &mut LaneState,
    request: Request,
    buffers: &mut Buffers<'_, '_>,
    done: &mut usize,
) -> Result<Result<(), Interruption>, ClientError> {
    let (open, waiter) = process.prepare(state)?;
    Ok(match request.is_data() && request.length > pieces::longest_at(request.offset) {
        true => in_pieces(open, waiter, request, buffers, done),
        false => at_once(open, waiter, request, buffers),
    })
}

/// Maximum length of the first piece of a request at `offset`.
fn first_piece(offset: u64) -> usize {
    usize::try_from(pieces::longest_at(offset)).expect("no longer than a slot")
}

/// Executes a request of one entry.
#[inline]
fn at_once(
    open: &mut OpenLane,
    waiter: &mut Waiter<ClientMachine>,
    request: Request,
    buffers: &mut Buffers<'_, '_>,
) -> Result<(), Interruption> {
    let slot = open.lane.take_slot().expect("nothing is under way on the lane");
    let length = buffers.length();
    buffers.put(&open.lane, slot, 0, length);
    submit(open, slot, request);
    let status = wait(open, waiter, slot)?;
    open.lane.free_slot(slot);
    if status != 0 {
        return Err(failed(status));
    }
    buffers.get(&open.lane, slot, 0, length);
    Ok(())
}

/// A piece in flight.
#[derive(Clone, Copy)]
struct Piece {
    slot: Slot,
    start: usize,
    length: usize,
}

/// Executes a request of several entries. `done` is the number of bytes already answered, and is
/// increased.
fn in_pieces(
    open: &mut OpenLane,
    waiter: &mut Waiter<ClientMachine>,
    request: Request,
    buffers: &mut Buffers<'_, '_>,
    done: &mut usize,
) -> Result<(), Interruption> {
    let total = buffers.length();
    if !pieces::fits(request.offset, total as u64, open.link.ring.size_bytes()) {
        return Err(Interruption::Failed(pieces::refusal_beyond_end(request.operation)));
    }
    let mut under_way: [Option<Piece>; PIECES_MAX] = [None; PIECES_MAX];
    let (mut first, mut count, mut submitted) = (0, 0, *done);
    let mut failure = None;
    loop {
        while count < PIECES_MAX && submitted < total && failure.is_none() {
            let offset = request.offset + submitted as u64;
            let length = first_piece(offset).min(total - submitted);
            let slot = open.lane.take_slot().expect("there are more slots than pieces");
            buffers.put(&open.lane, slot, submitted, length);
            submit(open, slot, Request { offset, length: length as u64, ..request });
            under_way[(first + count) % PIECES_MAX] =
                Some(Piece { slot, start: submitted, length });
            submitted += length;
            count += 1;
        }
        let Some(Piece { slot, start, length }) = under_way[first].take() else { break };
        (first, count) = ((first + 1) % PIECES_MAX, count - 1);
        let status = wait(open, waiter, slot)?;
        open.lane.free_slot(slot);
        if status != 0 {
            failure.get_or_insert(failed(status));
        } else if failure.is_none() {
            buffers.get(&open.lane, slot, start, length);
            *done = start + length;
        }
    }
    failure.map_or(Ok(()), Err)
}

#[inline]
fn submit(open: &mut OpenLane, slot: Slot, request: Request) {
    open.lane.submit(slot, request.entry());
    if open.lane.must_ring() {
        open.link.ring_doorbell();
    }
}

/// Waits for the answer to a slot's entry.
#[inline]
fn wait(
    open: &mut OpenLane,
    waiter: &mut Waiter<ClientMachine>,
    slot: Slot,
) -> Result<u32, Interruption> {
    let OpenLane { lane, link, around_waits } = &*open;
    let poll = || {
        for _ in 0..LOOKS_PER_POLL {
            if let Some(status) = lane.status(slot) {
                return Poll::Ready(Ok(status));
            }
            hint::spin_loop();
        }
        Poll::Pending
    };
    let look = || {
        lane.sleep(PULSE, |lane| lane.status(slot).is_some());
        match lane.status(slot) {
            Some(status) => Some(Ok(status)),
            // The daemon may have answered before it exited.
            None if !link.is_alive() => Some(lane.status(slot).ok_or(Interruption::Lost)),
            None => None,
        }
    };
    let sleep = || {
        look().unwrap_or_else(|| {
            run_around(*around_waits, || {
                loop {
                    if let Some(found) = look() {
                        return found;
                    }
                }
            })
        })
    };
    waiter.wait(poll, sleep)
}

fn failed(status: u32) -> Interruption {
    Interruption::Failed(i32::try_from(status).unwrap_or(libc::EIO))
}
