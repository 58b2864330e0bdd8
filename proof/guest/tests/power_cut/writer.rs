//! Writers that record their flushed steps, over all their lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow, ensure};
use guest::GuestProcess;
use system::{NbdClient, NbdFailure, Steps, StepsSpec, Survivors};

use crate::BLOCK_COUNT;
use crate::fixture::{Fixture, Way};

/// A writer in all its lives.
pub(crate) struct Writer {
    pub(crate) volume: &'static str,
    pub(crate) way: Way,
    spec: StepsSpec,
    survivors: Survivors,
    acknowledged: u64,
}

/// A running writer.
pub(crate) enum Work {
    InGuest {
        process: GuestProcess,
        said: String,
    },
    OverNbd {
        thread: JoinHandle<Result<(), NbdFailure>>,
        acknowledged: Arc<AtomicU64>,
        /// Number of steps in an acknowledged image, if images determine durability.
        saved: Option<u64>,
    },
}

impl Writer {
    pub(crate) fn new((number, (volume, way)): (u64, (&'static str, Way))) -> Self {
        let spec = StepsSpec { seed: 0, volume: number, life: 0, block_count: BLOCK_COUNT };
        // Blocks of a volume are atomic across a cut. Those of a disk need not be.
        let survivors = match way {
            Way::Plain => Survivors::of_sectors(BLOCK_COUNT),
            Way::Nbd | Way::Device | Way::File | Way::Image => Survivors::new(BLOCK_COUNT),
        };
        Self { volume, way, spec, survivors, acknowledged: 0 }
    }

    /// Compares the blocks with the acknowledgements of the last life. Returns the number of blocks
    /// that are newer.
    pub(crate) fn verify(&mut self, fixture: &Fixture<'_>) -> Result<usize> {
        let found = fixture.read(self.volume, self.way)?;
        let checked = self.survivors.check(self.spec, self.acknowledged, &found);
        checked.with_context(|| format!("{}: {}", self.volume, fixture.daemon.log_end()))
    }

    /// Begins a new life.
    pub(crate) fn start(&mut self, fixture: &Fixture<'_>, life: u64, seed: u64) -> Result<Work> {
        self.spec = StepsSpec { seed, life: life + 1, ..self.spec };
        if self.way.is_from_host() {
            let mut client = NbdClient::connect(&fixture.nbd_socket, self.volume)?;
            let steps = Steps::new(self.spec);
            let acknowledged = Arc::new(AtomicU64::new(0));
            let counter = Arc::clone(&acknowledged);
            let volume = self.volume;
            let thread = thread::spawn(move || {
                let ended = steps.run_over_nbd(&mut client, &counter);
                eprintln!("the connection to {volume} ended: {ended:?}");
                ended
            });
            let saved = (self.way == Way::Image).then_some(0);
            return Ok(Work::OverNbd { thread, acknowledged, saved });
        }
        let StepsSpec { seed, volume, life, block_count } = self.spec;
        let path = fixture.path(self.volume, self.way)?;
        let line = format!("exec guest-agent write {path} {block_count} {volume} {life} {seed}");
        Ok(Work::InGuest { process: fixture.guest.start(&line)?, said: String::new() })
    }

    /// Ends the life, after the guest has ended. Returns the number of durable steps.
    pub(crate) fn end(&mut self, work: Work) -> Result<u64> {
        self.acknowledged = work.finish()?;
        Ok(self.acknowledged)
    }
}

impl Work {
    /// Number of steps reported to the host.
    pub(crate) fn acknowledged(&mut self) -> Result<u64> {
        match self {
            Self::OverNbd { thread, acknowledged, .. } => {
                ensure!(!thread.is_finished(), "a connection broke while the guest has power");
                Ok(acknowledged.load(Ordering::Acquire))
            }
            Self::InGuest { process, said } => {
                let code = process.has_ended();
                ensure!(code.is_none(), "a writer ended ({code:?}): {}", process.complaints());
                last_number(process, said)
            }
        }
    }

    /// Records an acknowledged image with this many steps.
    pub(crate) fn note_saved(&mut self, step_count: u64) {
        if let Self::OverNbd { saved, .. } = self {
            *saved = Some(step_count);
        }
    }

    fn finish(self) -> Result<u64> {
        match self {
            Self::OverNbd { thread, acknowledged, saved } => {
                thread.join().map_err(|_| anyhow!("a writer panicked"))??;
                Ok(saved.unwrap_or_else(|| acknowledged.load(Ordering::Acquire)))
            }
            Self::InGuest { mut process, mut said } => last_number(&mut process, &mut said),
        }
    }
}

/// Returns the number in the last complete line of the process.
fn last_number(process: &mut GuestProcess, said: &mut String) -> Result<u64> {
    said.push_str(&String::from_utf8_lossy(&process.take_output()));
    let whole = said.rsplit_once('\n').map_or("", |(whole, _)| whole);
    match whole.lines().next_back() {
        Some(line) => line.parse().context("the writer tells numbers"),
        None => Ok(0),
    }
}
