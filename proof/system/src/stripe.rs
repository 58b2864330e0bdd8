//! A writer that verifies its data after a crash.
//!
//! Stripes share a volume in alternating runs of [`RUN_BLOCKS`] blocks, so that neighbours are
//! written by different connections. A stripe records the acknowledged and the in-flight contents
//! of each of its blocks. After a crash the block has one or the other, completely:
//!
//! ```text
//! blocks    0…15   16…31   32…47   48…63
//! stripe    0      1       0       1
//! ```

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, bail, ensure};

use crate::daemon::Daemon;
use crate::nbd_client::{NBD_NO_SPACE, NbdClient, NbdFailure, Request};
use crate::stamp::{self, BLOCK_BYTES, Block, Contents, Stamp};
use random::Random;

/// Number of consecutive blocks of one stripe, and maximum length of a request.
const RUN_BLOCKS: usize = 16;
const RUN_BYTES: usize = RUN_BLOCKS * BLOCK_BYTES;

/// Maximum number of requests in flight on one connection.
const DEPTH_MAX: usize = 8;

/// Number of attempts to draw a position where nothing is in flight.
const PLACE_TRIES_MAX: usize = 16;

/// Part of a volume that a stripe writes.
#[derive(Clone, Debug)]
pub struct StripeSpec {
    pub volume: String,
    pub volume_number: u64,
    pub sector_bytes: usize,
    pub stripe: usize,
    pub stripe_count: usize,
    /// Number of runs of this stripe.
    pub run_count: usize,
    pub seed: u64,
}

impl StripeSpec {
    /// Size of the volume that all stripes share.
    pub fn volume_bytes(&self) -> usize {
        self.run_count * self.stripe_count * RUN_BYTES
    }
}

/// State that all stripes of a test share during one life of the daemon.
#[derive(Debug, Default)]
pub struct Round {
    verified: AtomicUsize,
    answered: AtomicU64,
    refused: AtomicU64,
    has_failed: AtomicBool,
    is_over: AtomicBool,
    is_killed: AtomicBool,
}

impl Round {
    /// Lets all stripes verify and write until `meanwhile` is done or has killed the daemon.
    pub fn run(
        &self,
        socket: &Path,
        stripes: &mut [Stripe],
        meanwhile: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        thread::scope(|scope| {
            let writers: Vec<_> =
                stripes.iter_mut().map(|stripe| scope.spawn(|| stripe.run(socket, self))).collect();
            let done = meanwhile();
            self.is_over.store(true, Ordering::Release);
            for writer in writers {
                writer.join().expect("a stripe returns its errors")?;
            }
            done
        })
    }

    /// Kills the daemon under the stripes. A connection that breaks earlier is a failure.
    pub fn kill(&self, daemon: &mut Daemon) -> Result<()> {
        self.is_killed.store(true, Ordering::Release);
        daemon.kill()
    }

    /// Number of stripes that have verified all their blocks.
    pub fn verified_count(&self) -> usize {
        self.verified.load(Ordering::Acquire)
    }

    /// Number of answered requests.
    pub fn answered_count(&self) -> u64 {
        self.answered.load(Ordering::Acquire)
    }

    /// Number of those that failed for lack of space.
    pub fn refused_count(&self) -> u64 {
        self.refused.load(Ordering::Acquire)
    }

    /// Returns whether a stripe has ended with an error.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }
}

/// A block's state according to its writer.
struct State {
    acknowledged: Block,
    in_flight: Option<Block>,
}

/// A writer of its part of a volume, over all lives of the daemon.
pub struct Stripe {
    spec: StripeSpec,
    random: Random,
    sequence: u64,
    states: Vec<State>,
}

/// A request and the resulting blocks, each with its index in the stripe.
struct Step {
    request: Request,
    outcome: Vec<(usize, Block)>,
}

impl Stripe {
    pub fn new(spec: StripeSpec) -> Self {
        let state = || State { acknowledged: stamp::zeros(), in_flight: None };
        let states = std::iter::repeat_with(state).take(spec.run_count * RUN_BLOCKS).collect();
        Self { random: Random::new(spec.seed), sequence: 0, states, spec }
    }

    pub fn spec(&self) -> &StripeSpec {
        &self.spec
    }

    /// Verifies every block, then writes until the daemon is killed or the round is over.
    fn run(&mut self, socket: &Path, round: &Round) -> Result<()> {
        let result = self.run_once(socket, round);
        if result.is_err() {
            round.has_failed.store(true, Ordering::Release);
        }
        result.with_context(|| format!("volume {}, stripe {}", self.spec.volume, self.spec.stripe))
    }

    fn run_once(&mut self, socket: &Path, round: &Round) -> Result<()> {
        match self.verify_and_write(socket, round) {
            Err(Failure::Nbd(NbdFailure::Disconnected(_)))
                if round.is_killed.load(Ordering::Acquire) =>
            {
                Ok(())
            }
            Err(Failure::Nbd(failure)) => Err(failure.into()),
            Err(Failure::Wrong(error)) => Err(error),
            Ok(()) => Ok(()),
        }
    }

    fn verify_and_write(&mut self, socket: &Path, round: &Round) -> Result<(), Failure> {
        let mut client = NbdClient::connect(socket, &self.spec.volume)?;
        self.verify(&mut client)?;
        round.verified.fetch_add(1, Ordering::AcqRel);
        let mut steps: HashMap<u64, Step> = HashMap::new();
        loop {
            let is_over = round.is_over.load(Ordering::Acquire);
            while !is_over && steps.len() < DEPTH_MAX {
                let Some(step) = self.draw() else { break };
                for (index, block) in &step.outcome {
                    self.states[*index].in_flight = Some(block.clone());
                }
                let cookie = client.send(&step.request)?;
                steps.insert(cookie, step);
            }
            if steps.is_empty() && is_over {
                return Ok(());
            }
            if steps.is_empty() {
                // Too many blocks are uncertain after errors.
                self.verify(&mut client)?;
                continue;
            }
            let reply = client.receive()?;
            let step = steps.remove(&reply.cookie).expect("the client knows its cookies");
            match reply.error {
                0 => self.acknowledge(step, &reply.data)?,
                // Each block is old or new, which the next comparison determines.
                NBD_NO_SPACE => {
                    round.refused.fetch_add(1, Ordering::AcqRel);
                }
                error => return Err(NbdFailure::Refused(error).into()),
            }
            round.answered.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Reads all blocks. Each must have its acknowledged or its in-flight contents.
    fn verify(&mut self, client: &mut NbdClient) -> Result<(), Failure> {
        for run in 0..self.spec.run_count {
            let length = u32::try_from(RUN_BYTES).expect("a run is short");
            let data =
                client.ask(&Request::Read { offset: self.offset(run * RUN_BLOCKS), length })?;
            for (index, found) in (run * RUN_BLOCKS..).zip(data.chunks_exact(BLOCK_BYTES)) {
                self.settle(index, found)?;
            }
        }
        Ok(())
    }

    fn settle(&mut self, index: usize, found: &[u8]) -> Result<()> {
        let state = &mut self.states[index];
        let in_flight = state.in_flight.take();
        if found == &state.acknowledged[..] {
            return Ok(());
        }
        match in_flight {
            Some(block) if found == &block[..] => state.acknowledged = block,
            in_flight => {
                let acknowledged = stamp::describe(&state.acknowledged[..]);
                let expected = in_flight.map(|block| stamp::describe(&block[..]));
                let at = self.offset(index);
                bail!(
                    "at byte {at}: found {}; acknowledged {acknowledged}; in flight {expected:?}",
                    stamp::describe(found)
                );
            }
        }
        Ok(())
    }

    fn acknowledge(&mut self, step: Step, data: &[u8]) -> Result<()> {
        if let Request::Read { offset, .. } = step.request {
            let expected: Vec<u8> =
                step.outcome.iter().flat_map(|(_, block)| block.iter().copied()).collect();
            ensure!(data == expected, "a read at byte {offset} does not show what was written");
        }
        for (index, block) in step.outcome {
            let state = &mut self.states[index];
            state.acknowledged = block;
            state.in_flight = None;
        }
        Ok(())
    }

    /// Returns a request on blocks where nothing is in flight, if one is found.
    fn draw(&mut self) -> Option<Step> {
        for _ in 0..PLACE_TRIES_MAX {
            let run = self.random.index(self.spec.run_count);
            let (start, length) = self.draw_range();
            let first = run * RUN_BLOCKS + start / BLOCK_BYTES;
            let last = run * RUN_BLOCKS + (start + length - 1) / BLOCK_BYTES;
            if (first..=last).all(|index| self.states[index].in_flight.is_none()) {
                return Some(self.draw_step(run, start, length));
            }
        }
        None
    }

    /// Returns a range inside a run: mostly whole blocks, sometimes only whole sectors.
    fn draw_range(&mut self) -> (usize, usize) {
        let unit = match self.random.below(5) {
            0 => self.spec.sector_bytes,
            _ => BLOCK_BYTES,
        };
        let unit_count = RUN_BYTES / unit;
        let start = self.random.index(unit_count);
        let length = 1 + self.random.index((unit_count - start).min(RUN_BLOCKS));
        (start * unit, length * unit)
    }

    fn draw_step(&mut self, run: usize, start: usize, length: usize) -> Step {
        let offset = self.offset(run * RUN_BLOCKS) + u64::try_from(start).expect("it is short");
        let byte_count = u32::try_from(length).expect("a run is short");
        let first = run * RUN_BLOCKS;
        match self.random.below(20) {
            0..14 => {
                let data = self.draw_data(first, start, length);
                let outcome = self.patched(first, start, &data);
                Step { request: Request::Write { offset, data }, outcome }
            }
            14..16 => {
                let outcome = self.patched(first, start, &vec![0; length]);
                Step { request: Request::WriteZeroes { offset, length: byte_count }, outcome }
            }
            16..18 => {
                // Only whole blocks are discarded.
                let whole_start = start.next_multiple_of(BLOCK_BYTES);
                let whole_end = (start + length) / BLOCK_BYTES * BLOCK_BYTES;
                let whole = vec![0; whole_end.saturating_sub(whole_start)];
                let outcome = self.patched(first, whole_start, &whole);
                Step { request: Request::Trim { offset, length: byte_count }, outcome }
            }
            18 => {
                let start = start / BLOCK_BYTES * BLOCK_BYTES;
                let index = first + start / BLOCK_BYTES;
                let outcome = vec![(index, self.states[index].acknowledged.clone())];
                let length = u32::try_from(BLOCK_BYTES).expect("a block is short");
                Step { request: Request::Read { offset: self.offset(index), length }, outcome }
            }
            _ => Step { request: Request::Flush, outcome: Vec::new() },
        }
    }

    /// Returns bytes for a write: contents of random kinds, cut at the ends of the range.
    fn draw_data(&mut self, first: usize, start: usize, length: usize) -> Vec<u8> {
        let mut data = Vec::with_capacity(length);
        let mut at = start;
        while at < start + length {
            self.sequence += 1;
            let index = first + at / BLOCK_BYTES;
            let stamp = Stamp {
                volume: self.spec.volume_number,
                block: self.offset(index) / 4096,
                sequence: self.sequence,
            };
            let block = Contents::draw(&mut self.random, stamp).block();
            let inside = at % BLOCK_BYTES;
            let end = BLOCK_BYTES.min(inside + start + length - at);
            data.extend(&block[inside..end]);
            at += end - inside;
        }
        data
    }

    /// Returns the blocks changed by `data` at byte `start` of the run that begins at `first`.
    fn patched(&self, first: usize, start: usize, data: &[u8]) -> Vec<(usize, Block)> {
        let mut outcome: Vec<(usize, Block)> = Vec::new();
        for (at, byte) in (start..).zip(data) {
            let index = first + at / BLOCK_BYTES;
            if outcome.last().is_none_or(|(last, _)| *last != index) {
                outcome.push((index, self.states[index].acknowledged.clone()));
            }
            let (_, block) = outcome.last_mut().expect("a block was just pushed");
            block[at % BLOCK_BYTES] = *byte;
        }
        outcome
    }

    /// Returns the offset of the stripe's block in the volume.
    fn offset(&self, index: usize) -> u64 {
        let run = index / RUN_BLOCKS * self.spec.stripe_count + self.spec.stripe;
        let offset = run * RUN_BYTES + index % RUN_BLOCKS * BLOCK_BYTES;
        u64::try_from(offset).expect("a volume's size fits 64 bits")
    }
}

/// Reason for which a stripe stopped.
enum Failure {
    Nbd(NbdFailure),
    Wrong(anyhow::Error),
}

impl From<NbdFailure> for Failure {
    fn from(failure: NbdFailure) -> Self {
        Self::Nbd(failure)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Wrong(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripe() -> Stripe {
        Stripe::new(StripeSpec {
            volume: "v".to_owned(),
            volume_number: 0,
            sector_bytes: 512,
            stripe: 1,
            stripe_count: 2,
            run_count: 2,
            seed: 1,
        })
    }

    #[test]
    fn stripes_take_turns_on_the_volume() {
        let stripe = stripe();
        let run = u64::try_from(RUN_BYTES).expect("a run is short");
        assert_eq!([0, 1, RUN_BLOCKS].map(|it| stripe.offset(it)), [run, run + 4096, 3 * run]);
    }

    #[test]
    fn a_block_may_hold_what_was_in_flight() {
        let mut stripe = stripe();
        let new = Contents::Fill(7).block();
        stripe.states[3].in_flight = Some(new.clone());
        stripe.settle(3, &new[..]).expect("the write may have happened");
        stripe.settle(3, &new[..]).expect("what was seen is there to stay");
    }

    #[test]
    fn a_block_may_hold_what_was_there_before_but_not_change_later() {
        let mut stripe = stripe();
        let new = Contents::Fill(7).block();
        stripe.states[3].in_flight = Some(new.clone());
        stripe.settle(3, &stamp::zeros()[..]).expect("the write may not have happened");
        stripe.settle(3, &new[..]).expect_err("a write that did not happen cannot happen later");
    }

    #[test]
    fn a_mixed_block_is_an_error() {
        let mut stripe = stripe();
        let mut mixed = Contents::Fill(7).block();
        stripe.states[3].in_flight = Some(mixed.clone());
        mixed[..100].fill(0);
        stripe.settle(3, &mixed[..]).expect_err("the block is half old, half new");
    }

    #[test]
    fn a_connection_that_breaks_is_excused_by_a_kill_alone() {
        let nowhere = Path::new("/nosuch/socket");
        let round = Round::default();
        round.run(nowhere, &mut [stripe()], || Ok(())).expect_err("nobody killed the daemon");
        assert!(round.has_failed());
        let round = Round::default();
        round.is_killed.store(true, Ordering::Release);
        round.run(nowhere, &mut [stripe()], || Ok(())).expect("the daemon was killed");
    }

    #[test]
    fn drawn_requests_stay_on_blocks_of_the_stripe() {
        let mut stripe = stripe();
        for _ in 0..1000 {
            let step = stripe.draw().expect("nothing is in flight");
            if let Request::Write { offset, data } = step.request {
                let first = step.outcome.first().expect("a write changes a block").0;
                assert_eq!(stripe.offset(first), offset / 4096 * 4096);
                assert!(data.len() <= RUN_BYTES);
            }
        }
    }
}
