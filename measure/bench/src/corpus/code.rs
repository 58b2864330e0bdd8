//! Synthetic sections of programs: x86-64 machine code and other contents of executables.
//!
//! Instructions are drawn with the frequencies, registers, displacements and distances of compiled
//! code. They do not form a working program.

use crate::clock::Random;

use super::page::{Mark, Page};
use super::words::{Vocabulary, happens, index_below, low_byte, pick, put};

const PAGE_BYTES: usize = 4096;

/// Offset of a page's mark, within some operand.
const MARK_AT: usize = 2056;

/// Percentage of repeated instruction sequences in compiled code.
const IDIOM_PERCENT: u64 = 6;

/// Creates a page of one section, with the frequencies of programs and libraries: six of sixteen
/// pages are code.
pub(super) fn page(number: usize, words: &Vocabulary, random: &mut Random) -> Page {
    let bytes = match number % 16 {
        3 => unwind_table(random),
        1 | 6 => relocations(random),
        9 => strings(words, random),
        13 => constants(random),
        5 | 11 | 12 => pointers(random),
        4 | 14 => symbols(random),
        _ => machine_code(random),
    };
    Page::new(&bytes, Mark::Binary(MARK_AT))
}

/// Generator of code, with its address and the targets that it refers to repeatedly.
struct Assembler<'code> {
    bytes: Vec<u8>,
    base: u64,
    callees: [u64; 24],
    data: [u64; 16],
    fields: [u8; 12],
    random: &'code mut Random,
}

fn machine_code(random: &mut Random) -> Vec<u8> {
    let base = 0x4000 + (random.below(1 << 20) & !0xFFF);
    let mut addresses = |limit: u64, align: u64| random.below(limit) / align * align;
    let callees = std::array::from_fn(|_| addresses(base + (1 << 18), 16));
    let data = std::array::from_fn(|_| base + (1 << 20) + addresses(1 << 16, 8));
    let fields = std::array::from_fn(|_| low_byte(addresses(96, 8)));
    let mut code = Assembler {
        bytes: Vec::with_capacity(PAGE_BYTES + 64),
        base,
        callees,
        data,
        fields,
        random,
    };
    while code.bytes.len() < PAGE_BYTES {
        code.function();
    }
    code.bytes
}

impl Assembler<'_> {
    fn function(&mut self) {
        let saved = self.random.below(6);
        const SAVED: [&[u8]; 6] =
            [&[0x55], &[0x53], &[0x41, 0x54], &[0x41, 0x55], &[0x41, 0x56], &[0x41, 0x57]];
        let kept = &SAVED[..usize::try_from(saved).expect("below six")];
        self.put(&[0xF3, 0x0F, 0x1E, 0xFA]);
        for push in kept.iter().rev() {
            self.put(push);
        }
        let frame = low_byte(8 + 16 * self.random.below(8));
        self.put(&[0x48, 0x83, 0xEC, frame]);
        for _ in 0..12 + self.random.below(90) {
            self.instruction();
        }
        self.put(&[0x48, 0x83, 0xC4, frame]);
        for pop in kept {
            let (last, prefix) = pop.split_last().expect("an instruction has bytes");
            self.put(prefix);
            self.put(&[last + 8]);
        }
        self.put(&[0xC3]);
        self.align();
    }

    /// Emits an instruction, with the frequencies of optimised code.
    fn instruction(&mut self) {
        if happens(self.random, IDIOM_PERCENT) {
            return self.idiom();
        }
        match self.random.below(100) {
            0..13 => self.between_registers(),
            13..25 => self.field_access(),
            25..37 => self.stack_access(),
            37..46 => self.call(),
            46..58 => self.test_and_branch(),
            58..63 => self.global_access(),
            63..67 => self.zero_register(),
            67..73 => self.small_constant(),
            73..80 => self.add_small(),
            80..84 => self.jump(),
            84..88 => self.load_byte(),
            88..92 => self.compare_registers(),
            92..94 => self.store_constant(),
            94..96 => self.double(),
            _ => self.address(),
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Repeats recent instructions, as macros, inlined functions and error paths do.
    fn idiom(&mut self) {
        let length = 10 + index_below(self.random, 22);
        if let Some(last) = self.bytes.len().checked_sub(length) {
            let from = index_below(self.random, last + 1);
            self.bytes.extend_from_within(from..from + length);
        }
    }

    fn put_distance(&mut self, target: u64) {
        let next = self.base + self.bytes.len() as u64 + 4;
        let distance = target.wrapping_sub(next).to_le_bytes();
        self.put(&distance[..4]);
    }

    /// Draws a register as compilers do, preferring the first ones.
    fn register(&mut self) -> u8 {
        const ORDER: [u8; 16] = [0, 0, 7, 6, 2, 3, 5, 1, 0, 7, 3, 2, 6, 5, 1, 3];
        ORDER[index_below(self.random, ORDER.len()).min(index_below(self.random, ORDER.len()))]
    }

    /// Draws the REX prefix of a 64-bit operation, sometimes for one of the upper registers.
    fn wide(&mut self) -> u8 {
        [0x48, 0x48, 0x48, 0x48, 0x48, 0x48, 0x49, 0x4C][index_below(self.random, 8)]
    }

    fn between_registers(&mut self) {
        let modes = 0xC0 | self.register() << 3 | self.register();
        if happens(self.random, 70) {
            let wide = self.wide();
            self.put(&[wide]);
        }
        self.put(&[0x89, modes]);
    }

    fn field_access(&mut self) {
        let opcode = if happens(self.random, 68) { 0x8B } else { 0x89 };
        let field = self.fields[index_below(self.random, 12).min(index_below(self.random, 12))];
        let registers = self.register() << 3 | [3, 7, 5, 0, 6][index_below(self.random, 5)];
        if happens(self.random, 75) {
            let wide = self.wide();
            self.put(&[wide]);
        }
        match field {
            0 => self.put(&[opcode, registers]),
            field => self.put(&[opcode, 0x40 | registers, field]),
        }
    }

    fn stack_access(&mut self) {
        let opcode = if happens(self.random, 55) { 0x8B } else { 0x89 };
        let place = low_byte(8 * self.random.below(12).min(self.random.below(12)));
        let register = 0x44 | self.register() << 3;
        let wide = self.wide() & 0xFC;
        self.put(&[wide, opcode, register, 0x24, place]);
    }

    fn call(&mut self) {
        let callee = self.callees[index_below(self.random, 24).min(index_below(self.random, 24))];
        self.put(&[0xE8]);
        self.put_distance(callee);
    }

    fn test_and_branch(&mut self) {
        let register = self.register();
        match self.random.below(4) {
            0 | 1 => self.put(&[0x48, 0x85, 0xC0 | register << 3 | register]),
            2 => self.put(&[0x85, 0xC0 | register << 3 | register]),
            _ => {
                let limit = low_byte(self.random.below(16));
                self.put(&[0x83, 0xF8 | register, limit]);
            }
        }
        let condition = [4, 4, 5, 5, 4, 5, 6, 7, 2, 0xF, 0xC, 8][index_below(self.random, 12)];
        if happens(self.random, 62) {
            let distance = low_byte(self.random.below(110));
            self.put(&[0x70 | condition, distance]);
        } else {
            self.put(&[0x0F, 0x80 | condition]);
            self.put_near();
        }
    }

    fn jump(&mut self) {
        self.put(&[0xE9]);
        self.put_near();
    }

    /// Emits a distance within the function.
    fn put_near(&mut self) {
        let here = self.base + self.bytes.len() as u64;
        let target = (here + self.random.below(1200)).saturating_sub(500);
        self.put_distance(target);
    }

    fn global_access(&mut self) {
        let opcode = if happens(self.random, 45) { 0x8D } else { 0x8B };
        let register = 0x05 | self.register() << 3;
        let target = self.data[index_below(self.random, 16).min(index_below(self.random, 16))];
        self.put(&[0x48, opcode, register]);
        self.put_distance(target);
    }

    fn zero_register(&mut self) {
        let register = self.register();
        self.put(&[0x31, 0xC0 | register << 3 | register]);
    }

    fn small_constant(&mut self) {
        let register = self.register();
        let value = low_byte(self.random.below(48).min(self.random.below(48)));
        self.put(&[0xB8 | register, value, 0, 0, 0]);
    }

    fn add_small(&mut self) {
        let mode = [0xC0, 0xC0, 0xE8, 0xE0, 0xF8][index_below(self.random, 5)] | self.register();
        let value = [1, 8, 1, 16, 0xFF, 4, 24, 0x20][index_below(self.random, 8)];
        self.put(&[0x48, 0x83, mode, value]);
    }

    fn load_byte(&mut self) {
        let registers = self.register() << 3 | [3, 7, 5, 0, 6][index_below(self.random, 5)];
        let field = self.fields[index_below(self.random, 12)] + 1;
        self.put(&[0x0F, 0xB6, 0x40 | registers, field]);
    }

    fn compare_registers(&mut self) {
        let modes = 0xC0 | self.register() << 3 | self.register();
        let opcode = [0x39, 0x39, 0x01, 0x29, 0x09][index_below(self.random, 5)];
        self.put(&[0x48, opcode, modes]);
    }

    fn store_constant(&mut self) {
        let place = low_byte(8 * self.random.below(12));
        let value = low_byte(self.random.below(3));
        self.put(&[0x48, 0xC7, 0x44, 0x24, place, value, 0, 0, 0]);
    }

    fn double(&mut self) {
        let opcode = [0x10, 0x11, 0x58, 0x59, 0x6F][index_below(self.random, 5)];
        let modes = 0x44 | low_byte(self.random.below(4)) << 3;
        let place = low_byte(16 * self.random.below(8));
        self.put(&[0xF2, 0x0F, opcode, modes, 0x24, place]);
    }

    fn address(&mut self) {
        let registers = 0x40 | self.register() << 3 | [3, 7, 5, 0][index_below(self.random, 4)];
        let field = self.fields[index_below(self.random, 12)];
        let wide = self.wide();
        self.put(&[wide, 0x8D, registers, field]);
    }

    /// Pads to the next function with no-operation instructions.
    fn align(&mut self) {
        const FILL: [&[u8]; 6] = [
            &[0x66, 0x2E, 0x0F, 0x1F, 0x84, 0, 0, 0, 0, 0],
            &[0x0F, 0x1F, 0x80, 0, 0, 0, 0],
            &[0x0F, 0x1F, 0x44, 0, 0],
            &[0x0F, 0x1F, 0],
            &[0x66, 0x90],
            &[0x90],
        ];
        while !self.bytes.len().is_multiple_of(16) {
            let room = 16 - self.bytes.len() % 16;
            let fill = FILL.iter().find(|fill| fill.len() <= room).expect("one byte fits");
            self.put(fill);
        }
    }
}

/// Creates frame descriptions: location of each function and changes of its stack pointer.
fn unwind_table(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PAGE_BYTES + 64);
    let mut function = 0xFFFF_0000_u64 + random.below(1 << 14);
    while bytes.len() < PAGE_BYTES {
        let steps = random.below(6);
        let length = 16 + steps * 6;
        let size = 16 * (1 + random.below(60).min(random.below(60)));
        put(&mut bytes, length, 4);
        let record = bytes.len() as u64;
        put(&mut bytes, record + 0x18, 4);
        put(&mut bytes, function, 4);
        put(&mut bytes, size, 4);
        function += size;
        bytes.push(0);
        for step in 0..steps {
            bytes.extend([0x40 | low_byte(1 + random.below(12)), 0x0E]);
            bytes.extend([low_byte(16 + 8 * step), 0x8F - low_byte(step), 2 + low_byte(step)]);
        }
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

/// Creates relocations: offset, kind and target, 24 bytes each.
fn relocations(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PAGE_BYTES + 64);
    let mut place = 0x0020_0000 + 8 * random.below(1 << 14);
    while bytes.len() < PAGE_BYTES {
        put(&mut bytes, place, 8);
        put(&mut bytes, 8, 8);
        put(&mut bytes, 0x4000 + 16 * random.below(1 << 16), 8);
        place += 8 * (1 + random.below(3));
    }
    bytes
}

/// Creates function tables as of objects with methods. Many entries are equal or empty.
fn pointers(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PAGE_BYTES + 64);
    let default = 0x4000 + 16 * random.below(1 << 14);
    while bytes.len() < PAGE_BYTES {
        let own = 0x4000 + 16 * random.below(1 << 16);
        for _ in 0..2 + random.below(14) {
            let target = match random.below(10) {
                0..3 => 0,
                3..6 => default,
                _ => own + 16 * random.below(64),
            };
            put(&mut bytes, target, 8);
        }
    }
    bytes
}

/// Creates symbols: name offset, kind, section, address and length, 24 bytes each.
fn symbols(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PAGE_BYTES + 64);
    let mut name = random.below(1 << 14);
    while bytes.len() < PAGE_BYTES {
        put(&mut bytes, name, 4);
        name += 8 + random.below(12);
        let is_imported = happens(random, 30);
        bytes.extend([0x12, 0]);
        put(&mut bytes, if is_imported { 0 } else { 15 }, 2);
        let place = if is_imported { 0 } else { 0x4000 + 16 * random.below(1 << 16) };
        put(&mut bytes, place, 8);
        put(&mut bytes, if is_imported { 0 } else { 1 + random.below(900) }, 8);
    }
    bytes
}

/// Creates zero-terminated names and messages.
fn strings(words: &Vocabulary, random: &mut Random) -> Vec<u8> {
    const SHAPES: [&str; 4] = ["_", "_", " ", "::"];
    let mut bytes = Vec::with_capacity(PAGE_BYTES + 200);
    let mut subject = words.noun(random);
    while bytes.len() < PAGE_BYTES {
        if happens(random, 15) {
            subject = words.noun(random);
        }
        let between = pick(random, &SHAPES);
        bytes.extend(subject.as_bytes());
        for _ in 0..1 + random.below(3) {
            bytes.extend(between.as_bytes());
            bytes.extend(words.word(words.draw(random)).as_bytes());
        }
        bytes.push(0);
    }
    bytes
}

/// Creates tables of offsets and numbers, as of switches and function libraries.
fn constants(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PAGE_BYTES + 64);
    while bytes.len() < PAGE_BYTES {
        let base = 0xFFFE_0000 + random.below(1 << 12);
        for _ in 0..8 + random.below(40) {
            put(&mut bytes, base + 16 * random.below(12), 4);
        }
        for _ in 0..random.below(12) {
            let number = i32::try_from(random.below(2000)).expect("a small number");
            bytes.extend((f64::from(number) / 7.0).to_le_bytes());
        }
    }
    bytes
}
