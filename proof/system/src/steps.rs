//! A writer whose writes are determined by a seed, for tests that also lose the writer: after a
//! power cut the host reproduces the writes, and knows from the acknowledged flushes which must be
//! present.
//!
//! ```text
//! step 0: write, write, …, flush ── acknowledged
//! step 1: write, …, flush        ── acknowledged: everything up to here is present
//! step 2: write, write, …        ── the power fails: each block is as before or as written here
//! step 3 …                       ── or here, if the acknowledgement did not reach the host
//! ```

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, bail, ensure};

use crate::nbd_client::{NbdClient, NbdFailure, Request};
use crate::stamp::{self, BLOCK_BYTES, Block, Contents, Stamp};
use random::Random;

/// Maximum number of runs of writes between two flushes.
const RUNS_MAX: u64 = 3;
const RUN_BLOCKS_MAX: u64 = 6;

const SECTOR_BYTES: usize = 512;

/// Maximum number of steps by which a writer precedes the host's knowledge.
const STEPS_AHEAD_MAX: u64 = 4096;

/// Parameters of a writer's steps in one life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepsSpec {
    pub seed: u64,
    pub volume: u64,
    /// Part of the stamps, so that remains of earlier lives are recognized.
    pub life: u64,
    pub block_count: u64,
}

/// Writes before one flush, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub writes: Vec<(u64, Contents)>,
}

/// The infinite sequence of steps of one life.
#[derive(Clone, Debug)]
pub struct Steps {
    spec: StepsSpec,
    random: Random,
    sequence: u64,
}

impl Steps {
    pub fn new(spec: StepsSpec) -> Self {
        Self { spec, random: Random::new(spec.seed), sequence: spec.life << 20 }
    }

    /// Returns the next step.
    pub fn step(&mut self) -> Step {
        let mut writes = Vec::new();
        for _ in 0..=self.random.below(RUNS_MAX) {
            let first = self.random.below(self.spec.block_count);
            let length = 1 + self.random.below(RUN_BLOCKS_MAX);
            for block in first..self.spec.block_count.min(first + length) {
                self.sequence += 1;
                let stamp = Stamp { volume: self.spec.volume, block, sequence: self.sequence };
                writes.push((block, Contents::draw(&mut self.random, stamp)));
            }
        }
        Step { writes }
    }

    /// Performs steps on an NBD export until the server is gone, and counts them in `acknowledged`.
    /// All writes of a step are in flight together.
    pub fn run_over_nbd(
        mut self,
        client: &mut NbdClient,
        acknowledged: &AtomicU64,
    ) -> Result<(), NbdFailure> {
        loop {
            match self.step_over_nbd(client) {
                Ok(()) => acknowledged.fetch_add(1, Ordering::AcqRel),
                Err(NbdFailure::Disconnected(_)) => return Ok(()),
                Err(failure) => return Err(failure),
            };
        }
    }

    fn step_over_nbd(&mut self, client: &mut NbdClient) -> Result<(), NbdFailure> {
        let mut blocks = HashMap::new();
        for (block, contents) in self.step().writes {
            // Requests for one block must not be reordered.
            if blocks.insert(block, ()).is_some() {
                receive_all(client)?;
            }
            let offset = block * BLOCK_BYTES as u64;
            let length = u32::try_from(BLOCK_BYTES).expect("a block is short");
            client.send(&match contents {
                Contents::Fill(0) if block % 2 == 0 => Request::WriteZeroes { offset, length },
                Contents::Fill(0) => Request::Trim { offset, length },
                _ => Request::Write { offset, data: contents.block().to_vec() },
            })?;
        }
        receive_all(client)?;
        client.ask(&Request::Flush).map(|_| ())
    }
}

fn receive_all(client: &mut NbdClient) -> Result<(), NbdFailure> {
    while client.in_flight_count() > 0 {
        match client.receive()?.error {
            0 => {}
            code => return Err(NbdFailure::Refused(code)),
        }
    }
    Ok(())
}

/// Known contents of a writer's blocks, over all its lives.
#[derive(Clone, Debug)]
pub struct Survivors {
    /// Size of the units that are old or new, but never mixed.
    unit_bytes: usize,
    blocks: Vec<Block>,
}

impl Survivors {
    /// Creates blocks that were never written, each atomic across a cut, as volumes guarantee.
    pub fn new(block_count: u64) -> Self {
        let blocks = (0..block_count).map(|_| stamp::zeros()).collect();
        Self { unit_bytes: BLOCK_BYTES, blocks }
    }

    /// Same, for a target that guarantees this only for its sectors, like a disk.
    pub fn of_sectors(block_count: u64) -> Self {
        Self { unit_bytes: SECTOR_BYTES, ..Self::new(block_count) }
    }

    /// Compares the blocks `found` after a life with this many acknowledged steps. Each must be as
    /// the last of those left it, or as a later step wrote it. The contents found become the known
    /// ones, which may not change any more. Returns the number of blocks with contents of a later
    /// step.
    pub fn check(&mut self, spec: StepsSpec, acknowledged: u64, found: &[u8]) -> Result<usize> {
        let mut steps = Steps::new(spec);
        for _ in 0..acknowledged {
            for (block, contents) in steps.step().writes {
                self.blocks[index(block)] = contents.block();
            }
        }
        let mut later: HashMap<usize, Vec<Contents>> = HashMap::new();
        for _ in 0..STEPS_AHEAD_MAX {
            for (block, contents) in steps.step().writes {
                later.entry(index(block)).or_default().push(contents);
            }
        }
        let length = self.blocks.len() * BLOCK_BYTES;
        ensure!(found.len() == length, "{} bytes were found, not {length}", found.len());
        let mut later_count = 0;
        for (block, bytes) in found.chunks_exact(BLOCK_BYTES).enumerate() {
            if bytes == &self.blocks[block][..] {
                continue;
            }
            let candidates = later.get(&block).map_or(&[][..], Vec::as_slice);
            if !self.may_be(block, bytes, candidates) {
                bail!(
                    "volume {} block {block}: found {}; flushed {} ({acknowledged} steps)",
                    spec.volume,
                    stamp::describe(bytes),
                    stamp::describe(&self.blocks[block][..])
                );
            }
            self.blocks[block].copy_from_slice(bytes);
            later_count += 1;
        }
        Ok(later_count)
    }

    /// Returns whether each unit of the block is old or that of a candidate.
    fn may_be(&self, block: usize, found: &[u8], candidates: &[Contents]) -> bool {
        let candidates: Vec<Block> = candidates.iter().map(|it| it.block()).collect();
        (0..BLOCK_BYTES).step_by(self.unit_bytes).all(|start| {
            let unit = start..start + self.unit_bytes;
            let known = std::iter::once(&self.blocks[block]);
            known.chain(&candidates).any(|it| found[unit.clone()] == it[unit.clone()])
        })
    }
}

fn index(block: u64) -> usize {
    usize::try_from(block).expect("a test's volume fits memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: StepsSpec = StepsSpec { seed: 1, volume: 2, life: 3, block_count: 64 };

    /// Returns the volume after this many steps.
    fn after(step_count: usize) -> Vec<u8> {
        let mut bytes = vec![0; 64 * BLOCK_BYTES];
        let mut steps = Steps::new(SPEC);
        for _ in 0..step_count {
            write(&mut bytes, &steps.step());
        }
        bytes
    }

    fn write(bytes: &mut [u8], step: &Step) {
        for (block, contents) in &step.writes {
            let start = index(*block) * BLOCK_BYTES;
            bytes[start..start + BLOCK_BYTES].copy_from_slice(&contents.block()[..]);
        }
    }

    fn check(acknowledged: u64, found: &[u8]) -> Result<usize> {
        Survivors::new(64).check(SPEC, acknowledged, found)
    }

    #[test]
    fn all_acknowledged_steps_are_enough() {
        assert_eq!(check(20, &after(20)).expect("all is there"), 0);
    }

    #[test]
    fn a_lost_step_is_found_out() {
        check(20, &after(19)).expect_err("the last step is missing");
    }

    #[test]
    fn later_steps_may_be_there() {
        assert!(check(20, &after(23)).expect("the host did not hear of them") > 0);
    }

    #[test]
    fn a_torn_block_is_found_out() {
        let mut steps = Steps::new(SPEC);
        let (block, _) = steps
            .step()
            .writes
            .into_iter()
            .find(|(_, contents)| matches!(contents, Contents::Noise(_)))
            .expect("the first step of this seed writes noise");
        let mut found = after(1);
        let start = index(block) * BLOCK_BYTES;
        found[start + 512..start + 1024].fill(0);
        check(1, &found).expect_err("the block is neither old nor new");
    }

    #[test]
    fn sectors_of_a_disk_may_be_of_different_steps_but_no_sector_may_be_torn() {
        let (old, new) = (after(20), after(23));
        let changed = (0..64).map(|block| block * BLOCK_BYTES).find(|start| {
            let block = *start..start + BLOCK_BYTES;
            old[block.clone()] != new[block]
        });
        let start = changed.expect("three steps write something");
        let mut mixed = old.clone();
        mixed[start..start + 512].copy_from_slice(&new[start..start + 512]);
        Survivors::of_sectors(64).check(SPEC, 20, &mixed).expect("each sector is old or new");
        mixed[start] ^= 0xff;
        Survivors::of_sectors(64).check(SPEC, 20, &mixed).expect_err("a sector is neither");
    }

    #[test]
    fn what_was_found_once_may_not_change_later() {
        let mut survivors = Survivors::new(64);
        survivors.check(SPEC, 20, &after(23)).expect("the host did not hear of the last three");
        let next = StepsSpec { seed: 9, life: 4, ..SPEC };
        survivors.clone().check(next, 0, &after(20)).expect_err("what was seen is gone");
        survivors.check(next, 0, &after(23)).expect("nothing happened since");
    }
}
