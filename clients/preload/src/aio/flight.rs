//! Requests of a context in flight on its own lane.
//!
//! A new context has no lane, and executes each request synchronously when it is submitted. A
//! program that keeps several requests in flight, and collects events only by calls, gets a lane.
//! Its requests are then queued in the daemon's ring, in which many are processed at a time, and
//! their events appear when the program collects. Programs that read events from memory, or get
//! them signalled by an eventfd, get no lane, because they would miss such events.

use std::ffi::c_int;
use std::mem;

use libc::iovec;
use sdk::{Completion, Lane, RawRequest, Watch};

use super::form::{self, Event, Request};
use crate::devices::Device;
use crate::sys;
use crate::transfer::{self, Plan};

/// Number of collected events, and of overlapping requests, after which a context gets a lane.
const SIGNS_MIN: u32 = 32;

/// Maximum number of completions that are taken from the lane at once.
const COMPLETIONS_MAX: usize = 64;

/// Usage of a context so far, which decides whether it gets a lane.
pub(super) struct UsagePattern {
    collected: u32,
    overlapping: u32,
    /// The program reads events from memory, or no lane was available.
    is_unfit: bool,
}

impl UsagePattern {
    pub(super) const fn new() -> Self {
        Self { collected: 0, overlapping: 0, is_unfit: false }
    }

    pub(super) fn saw_collected(&mut self) {
        self.collected = self.collected.saturating_add(1);
    }

    pub(super) fn saw_overlapping(&mut self) {
        self.overlapping = self.overlapping.saturating_add(1);
    }

    pub(super) fn make_unfit(&mut self) {
        self.is_unfit = true;
    }

    pub(super) fn wants_lane(&self) -> bool {
        !self.is_unfit && self.collected.min(self.overlapping) >= SIGNS_MIN
    }
}

/// Requests in flight on one device.
pub(super) struct Flights {
    device: &'static Device,
    lane: Lane,
    /// Requests by the token of the lane.
    requests: Vec<Option<Flight>>,
    free: Vec<usize>,
    completions: Vec<Completion>,
}

/// A request in flight.
#[derive(Clone, Copy)]
pub(super) struct Flight {
    request: Request,
    address: usize,
}

impl Flights {
    /// Opens a lane for requests on `device`, if one is available.
    pub(super) fn on(device: &'static Device) -> Option<Self> {
        let lane = device.disk.lane().ok()?;
        let completions = Vec::with_capacity(COMPLETIONS_MAX);
        Some(Self { device, lane, requests: Vec::new(), free: Vec::new(), completions })
    }

    pub(super) fn count(&self) -> usize {
        self.requests.len() - self.free.len()
    }

    pub(super) fn is_on(&self, device: &Device) -> bool {
        std::ptr::eq(self.device, device)
    }

    /// Starts a request. Returns false if the lane does not accept it.
    ///
    /// # Safety
    ///
    /// As for `io_submit`: the memory of the request must remain valid until the program has
    /// collected its event, or until the context has ended.
    pub(super) unsafe fn begin(&mut self, plan: Plan, flight: Flight) -> bool {
        let token = self.free.pop().unwrap_or_else(|| {
            self.requests.push(None);
            self.requests.len() - 1
        });
        let request = RawRequest {
            kind: plan.kind,
            offset: plan.offset,
            length: plan.length,
            memory: std::ptr::with_exposed_provenance_mut(flight.request.buffer),
            token: token as u64,
        };
        self.device.will_be_written_by(plan.kind);
        // SAFETY:
        // - alive, in bounds, exclusive: the caller vouches for it until the event is collected,
        //   and the context waits for what is under way before it ends.
        if unsafe { self.lane.submit_raw(request) }.is_err() {
            self.free.push(token);
            return false;
        }
        self.requests[token] = Some(flight);
        true
    }

    /// Passes the event of each completed request to `land`.
    pub(super) fn land(&mut self, mut land: impl FnMut(Event)) {
        while self.count() > 0 {
            let mut completions = mem::take(&mut self.completions);
            let ended = self.lane.poll(&mut completions);
            for Completion { token, errno, .. } in completions.drain(..) {
                let place = usize::try_from(token.0).unwrap_or(usize::MAX);
                let Some(flight) = self.requests.get_mut(place).and_then(Option::take) else {
                    continue;
                };
                self.free.push(place);
                let result = match errno {
                    0 => i64::try_from(flight.request.length).unwrap_or(i64::MAX),
                    _ => flight.by_kernel(),
                };
                land(flight.event(result));
            }
            self.completions = completions;
            if ended == 0 {
                return;
            }
        }
    }

    pub(super) fn watch(&self) -> Option<Watch> {
        self.lane.watch()
    }
}

impl Flight {
    pub(super) fn new(request: Request, address: usize) -> Self {
        Self { request, address }
    }

    /// Plan for the request, if a lane can execute it.
    pub(super) fn plan(&self) -> Option<Plan> {
        let Request { operation, fd, buffer, length, offset, words, flags, .. } = self.request;
        if flags != 0 || words.wishes != 0 {
            return None;
        }
        let fd = c_int::try_from(fd).ok()?;
        let memory = std::ptr::with_exposed_provenance_mut(buffer);
        let part = iovec { iov_base: memory, iov_len: length };
        match operation {
            form::READ => transfer::plan_read(fd, &part, offset),
            form::WRITE => transfer::plan_write(fd, &part, offset),
            _ => None,
        }
    }

    fn event(&self, result: i64) -> Event {
        Event { data: self.request.data, request: self.address, result, second_result: 0 }
    }

    /// Repeats a request that the ring refused through the kernel, which determines short transfers
    /// and errors.
    fn by_kernel(&self) -> i64 {
        let Request { operation, fd, buffer, length, offset, .. } = self.request;
        let number = match operation {
            form::READ => libc::SYS_pread64,
            _ => libc::SYS_pwrite64,
        };
        let offset = offset.cast_unsigned();
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        match sys::kernel_call(number, [fd as usize, buffer, length, offset, 0, 0]) {
            Ok(count) => i64::try_from(count).unwrap_or(i64::MAX),
            Err(errno) => -i64::from(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, RawFd};

    fn flight(operation: u16, fd: RawFd, memory: &mut [u8]) -> Flight {
        let request = Request {
            data: 7,
            operation,
            fd: fd.cast_unsigned(),
            buffer: memory.as_mut_ptr().expose_provenance(),
            length: memory.len(),
            offset: 3,
            ..Request::default()
        };
        Flight::new(request, 9)
    }

    #[test]
    fn what_the_ring_refuses_is_done_once_more_by_the_kernel() {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = rustix::fs::memfd_create(c"some-file", flags).expect("memory");
        let fd = file.as_raw_fd();
        assert_eq!(flight(form::WRITE, fd, &mut b"abcde".to_owned()).by_kernel(), 5);
        let mut read = [0; 9];
        assert_eq!(flight(form::READ, fd, &mut read).by_kernel(), 5);
        assert_eq!(&read, b"abcde\0\0\0\0");
        assert_eq!(flight(form::READ, -1, &mut read).by_kernel(), -i64::from(libc::EBADF));
    }

    #[test]
    fn events_name_the_request_as_the_program_does() {
        let event = flight(form::READ, 0, &mut []).event(-5);
        assert_eq!(event, Event { data: 7, request: 9, result: -5, second_result: 0 });
    }

    #[test]
    fn a_lane_is_for_those_who_keep_requests_under_way_and_collect_by_calls() {
        let mut usage = UsagePattern::new();
        for _ in 0..SIGNS_MIN {
            assert!(!usage.wants_lane());
            usage.saw_collected();
            usage.saw_overlapping();
        }
        assert!(usage.wants_lane());
        usage.make_unfit();
        assert!(!usage.wants_lane());
    }
}
