//! Rings full of nonsense, for random tests and for fuzzing.
//!
//! Bytes decide what a driver does with its ring: most of it is near to what makes sense, some is
//! garbage. Whatever it is, the export must serve the next front end.

use front_end::{Ask, Descriptor, Driver, FrontEnd, Options, Status};

use crate::support::{Exported, MemoryDevice, PATIENCE, SERIAL};

const DISK_BYTES: usize = 1 << 20;
const STEP_COUNT_MAX: usize = 256;

/// Arbitrary bytes that decide what happens next; zeros when they are used up.
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

    /// An address inside the memory, near its end, or anywhere.
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
}

/// An export and what came of the runs on it.
pub(crate) struct Ground {
    exported: Exported,
    /// Chains that were offered.
    pub(crate) chain_count: u64,
}

impl Ground {
    pub(crate) fn new() -> Self {
        Self { exported: Exported::new(MemoryDevice::new(DISK_BYTES), 1), chain_count: 0 }
    }

    /// Requests that the export answered with an error, or dropped.
    pub(crate) fn error_count(&self) -> u64 {
        self.exported.export().traffic().errors
    }

    /// Does what `bytes` say, and looks whether the export is well.
    pub(crate) fn run(&mut self, bytes: &[u8]) {
        let mut choices = Choices { rest: bytes };
        let has_event_index = choices.byte() & 1 == 0;
        let options = Options { has_event_index, ring_size: 64, ..Options::default() };
        let mut hostile = self.connect(options);
        for _ in 0..STEP_COUNT_MAX {
            if choices.rest.is_empty() {
                break;
            }
            self.chain_count += u64::from(step(&mut choices, hostile.driver()));
        }
        hostile.driver().kick().expect("an event");
        // The control thread answers, whatever the ring holds.
        hostile.stop_queue(0).expect("it stops");
        hostile.disconnect();
        let mut next = self.connect(Options::default());
        next.driver().submit(Ask::Identify).expect("there is room");
        let answer = next.driver().wait(PATIENCE).expect("an answer");
        assert_eq!((answer.status, &answer.data[..]), (Status::Done, &SERIAL[..]));
    }

    fn connect(&self, options: Options) -> FrontEnd {
        FrontEnd::connected(options, &self.exported.socket()).expect("the export is there")
    }
}

/// One thing that a driver does; says whether it offered a chain.
fn step(choices: &mut Choices<'_>, driver: &mut Driver) -> bool {
    match choices.byte() {
        0..=119 => {
            let index = choices.short() % 64;
            let descriptor = Descriptor {
                address: choices.address(),
                bytes: choices.length(),
                flags: choices.short() & 7,
                next: choices.short() % 80,
            };
            driver.put_descriptor(index, descriptor).expect("inside");
            false
        }
        120..=149 => {
            // A header: what is asked for, and where.
            let place = u64::from(choices.short()) * 16;
            let kind = u32::from(choices.byte() % 16);
            let sector = choices.long() >> (choices.byte() % 64);
            let raw = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
            driver.write(place, &raw).expect("inside");
            false
        }
        150..=239 => {
            let head = choices.short();
            let head = if choices.byte() < 240 { head % 64 } else { head };
            driver.offer(head).expect("inside");
            true
        }
        240..=249 => {
            driver.kick().expect("an event");
            false
        }
        250..=252 => {
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
