//! Random ring contents, for random tests and for fuzzing.
//!
//! Input bytes determine what a driver does with its ring: most steps are nearly valid, some are
//! arbitrary. In all cases the export must serve the next front end.
#![allow(dead_code, reason = "each program that includes this uses a part of it")]

use std::sync::atomic::Ordering;

use front_end::{Ask, Descriptor, Driver, FrontEnd, Options, Status};
use vhost_user::Traffic;

use crate::support::{Exported, MemoryDevice, PATIENCE, SERIAL};

const DISK_BYTES: usize = 1 << 20;
const STEP_COUNT_MAX: usize = 256;

const RING_SIZE: u16 = 64;

/// Number of checks after which a ring without new answers counts as dropped.
const LOOK_COUNT_MAX: u32 = 100;

/// Input bytes that determine each step. Zeros follow when they are used up.
struct Choices<'bytes> {
    rest: &'bytes [u8],
}

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        match self.rest.split_first() {
            Some((first, rest)) => {
                self.rest = rest;
                *first
            }
            None => 0,
        }
    }

    fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn long(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// Returns an address inside the memory, near its end, or anywhere.
    fn address(&mut self) -> u64 {
        match self.byte() {
            0..=199 => u64::from(self.short()) * 16,
            200..=219 => u64::MAX - u64::from(self.byte()),
            _ => self.long(),
        }
    }

    fn length(&mut self) -> u32 {
        match self.byte() {
            0..=99 => 16,
            100..=149 => 1,
            150..=199 => 512 * u32::from(self.byte()),
            200..=219 => u32::MAX - u32::from(self.byte()),
            _ => u32::from(self.short()),
        }
    }

    /// Returns a sector of the disk, just past its end, or anywhere.
    fn sector(&mut self) -> u64 {
        match self.byte() {
            0..=199 => u64::from(self.short()) % (DISK_BYTES as u64 / 512 + 2),
            shift => self.long() >> (shift % 64),
        }
    }

    /// Returns a length, mostly of whole sectors.
    fn data_length(&mut self) -> u32 {
        match self.byte() {
            byte @ 0..=199 => 512 * u32::from(byte % 16),
            _ => self.length(),
        }
    }
}

/// An export, and statistics of the runs on it.
pub(crate) struct Fixture {
    exported: Exported,
    /// Number of chains submitted.
    pub(crate) chain_count: u64,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self { exported: Exported::new(MemoryDevice::new(DISK_BYTES), 1), chain_count: 0 }
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.exported.export().traffic()
    }

    /// Runs the steps that `bytes` encode.
    pub(crate) fn run(&mut self, bytes: &[u8]) {
        let mut choices = Choices { rest: bytes };
        let kind = choices.byte();
        let options = Options {
            has_event_index: kind & 1 == 0,
            can_flush: kind & 2 == 0,
            keeps_in_flight: kind & 4 == 0,
            ring_size: RING_SIZE,
            ..Options::default()
        };
        self.set_away(false);
        let mut hostile = self.connect(options);
        for _ in 0..STEP_COUNT_MAX {
            if choices.rest.is_empty() {
                break;
            }
            self.step(&mut choices, &mut hostile);
        }
        hostile.driver().kick().expect("an event");
        wait_for_answers(hostile.driver());
        // The control thread replies, whatever the ring contains.
        hostile.stop_queue(0).expect("it stops");
        hostile.disconnect();
        self.set_away(false);
    }

    /// Checks that the export serves the next front end.
    pub(crate) fn check(&self) {
        let mut next = self.connect(Options::default());
        next.driver().submit(Ask::Identify).expect("there is room");
        let answer = next.driver().wait(PATIENCE).expect("an answer");
        assert_eq!((answer.status, &answer.data[..]), (Status::Done, &SERIAL[..]));
    }

    fn connect(&self, options: Options) -> FrontEnd {
        FrontEnd::connected(options, &self.exported.socket()).expect("the export is there")
    }

    fn set_away(&self, is_away: bool) {
        self.exported.device.is_away.store(is_away, Ordering::SeqCst);
    }

    /// Runs one step of a front end or its driver.
    fn step(&mut self, choices: &mut Choices<'_>, hostile: &mut FrontEnd) {
        match choices.byte() {
            240..=241 => self.set_away(choices.byte() & 1 == 0),
            242 => {
                hostile.stop_queue(0).expect("it stops");
                let base = choices.short();
                hostile.start_queue(0, base).expect("it starts");
            }
            243 => hostile.share_memory_again().expect("it is the same"),
            kind => self.chain_count += u64::from(step(kind, choices, hostile.driver())),
        }
    }
}

/// Waits until all submitted chains are answered, or no more answers are to be expected.
fn wait_for_answers(driver: &Driver) {
    let layout = driver.layout();
    let index_at = |address| {
        let mut raw = [0; 2];
        driver.read(address, &mut raw).expect("inside");
        u16::from_le_bytes(raw)
    };
    for _ in 0..LOOK_COUNT_MAX {
        if index_at(layout.used() + 2) == index_at(layout.available() + 2) {
            return;
        }
        std::thread::yield_now();
    }
}

/// Runs one step of a driver. Returns whether it submitted a chain.
fn step(kind: u8, choices: &mut Choices<'_>, driver: &mut Driver) -> bool {
    match kind {
        0..=59 => {
            let index = choices.short() % RING_SIZE;
            let descriptor = Descriptor {
                address: choices.address(),
                bytes: choices.length(),
                flags: choices.short() & 7,
                next: choices.short() % 80,
            };
            driver.put_descriptor(index, descriptor).expect("inside");
            false
        }
        60..=89 => {
            let place = u64::from(choices.short()) * 16;
            put_header(place, choices, driver);
            false
        }
        90..=179 => {
            offer_request(choices, driver);
            true
        }
        180..=229 => {
            let head = choices.short();
            let head = if choices.byte() < 240 { head % RING_SIZE } else { head };
            driver.offer(head).expect("inside");
            true
        }
        230..=239 => {
            driver.kick().expect("an event");
            wait_for_answers(driver);
            false
        }
        244..=252 => {
            let place = choices.short();
            driver.write(place.into(), &choices.long().to_le_bytes()).expect("inside");
            false
        }
        _ => {
            driver.set_available_index(choices.short()).expect("inside");
            true
        }
    }
}

/// Writes a request header, and after it a range for discard and write-zeroes requests.
fn put_header(place: u64, choices: &mut Choices<'_>, driver: &Driver) {
    let kind = u32::from(choices.byte() % 16);
    let sector = choices.sector();
    let mut raw = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
    raw.extend(choices.sector().to_le_bytes());
    raw.extend(u32::from(choices.byte()).to_le_bytes());
    raw.extend(u32::from(choices.byte() % 4).to_le_bytes());
    driver.write(place, &raw).expect("inside");
}

/// Submits a nearly valid request: a header, data in pieces, a status. Its descriptors are in the
/// ring's table, or in an indirect table.
fn offer_request(choices: &mut Choices<'_>, driver: &mut Driver) {
    let (head, shape) = (u16::from(choices.byte()) % RING_SIZE, choices.byte());
    let piece_count = u16::from(shape % 4);
    let is_indirect = shape & 16 != 0;
    let is_read = shape & 32 != 0;
    let header_bytes = if shape & 64 != 0 { 32 } else { 16 };
    let header = driver.layout().header(0) + u64::from(choices.byte()) * 64;
    put_header(header, choices, driver);
    // Descriptors of an indirect table are numbered from the start of that table.
    let first = if is_indirect { head + 1 } else { head };
    let last = 1 + piece_count;
    for index in 0..=last {
        let kind_of = |is_write| if is_write { Descriptor::WRITE } else { 0 };
        let (address, bytes, own) = match index {
            0 => (header, header_bytes, 0),
            _ if index == last => (choices.address(), 1, Descriptor::WRITE),
            _ => (choices.address(), choices.data_length(), kind_of(is_read)),
        };
        let goes_on = if index < last { Descriptor::NEXT } else { 0 };
        let next = if is_indirect { index + 1 } else { (first + index + 1) % RING_SIZE };
        let descriptor = Descriptor { address, bytes, flags: own | goes_on, next };
        driver.put_descriptor((first + index) % RING_SIZE, descriptor).expect("inside");
    }
    if is_indirect {
        let address = driver.layout().descriptors() + u64::from(first) * 16;
        let bytes = u32::from(last + 1) * 16;
        let flags = Descriptor::INDIRECT;
        let table = Descriptor { address, bytes, flags, next: 0 };
        driver.put_descriptor(head, table).expect("inside");
    }
    driver.offer(head).expect("inside");
}
