//! Set-up of a case: a pool with a volume, and bare memory of the same size.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use block_device::{BlockDevice, SectorSize};
use codec::BLOCK_BYTES;
use region::Region;
use system::Interruption;
use volumes::{Engine, EngineOptions, Volume, VolumeSpec};

use crate::case::{Case, Op};
use crate::contents::{Contents, Data};
use crate::floor::Places;
use crate::pool::Place;

const PIECE_BYTES: usize = 1 << 20;

/// Number of the volume's pages for the separate LZ4 estimate.
const SAMPLES: u64 = 2_048;

/// Idle time before the reduction is measured.
const IDLE: Duration = Duration::from_secs(10);

/// Limit on background work, in case it never ends.
const IDLE_MAX: Duration = Duration::from_secs(300);

/// Seed of the volume's initial contents.
const FILL_SEED: u64 = 1;

/// A case's engine and memory. The place is dropped last, because it contains the others.
pub(crate) struct EngineSetup {
    pub(crate) volume: Arc<Volume>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) bare: Region,
    pub(crate) working_bytes: u64,
    /// Number of distinct contents of duplicates.
    pub(crate) originals: u64,
    case: Case,
    _place: Place,
}

/// Effect of background work without requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Idling {
    /// Duration until no work was left.
    pub(crate) seconds: f64,
    /// Ratio of written bytes to memory used, after ten seconds or at the end of the work.
    pub(crate) reduction: f64,
}

impl EngineSetup {
    /// Prepares everything: memory is touched, and originals of duplicates are stored.
    pub(crate) fn new(case: &Case, working_bytes: u64) -> Result<Self> {
        let place = Place::new()?;
        let bare = place.region("bare", working_bytes)?;
        let originals = originals(working_bytes);
        // Twice the data, so that freed pages and tables never fill the pool. Full pools are
        // measured elsewhere.
        let pool_bytes = working_bytes * 2 + originals * BLOCK_BYTES as u64;
        let region = place.region("pool", pool_bytes.next_multiple_of(2 << 20))?;
        // One lane per thread, one for background work and one for the fill.
        let options = EngineOptions { lane_count: case.threads + 2, fresh_secret: [0x5A; 32] };
        let engine = Arc::new(Engine::open(region, options)?);
        while engine.untaken_bytes() > 0 {
            engine.take_memory()?;
        }
        let volume = engine.create_volume(spec("bench", working_bytes)?)?;
        let setup =
            Self { volume, engine, bare, working_bytes, originals, case: *case, _place: place };
        if matches!(case.data, Data::Duplicate | Data::Mixed) {
            setup.store_originals()?;
        }
        Ok(setup)
    }

    /// Creates contents of the case's kind, for requests of `request_bytes`.
    pub(crate) fn contents(&self, request_bytes: usize, seed: u64) -> Contents {
        Contents::new(self.case.data, request_bytes, seed).with_originals(self.originals)
    }

    /// Returns whether requests of this kind need a full volume.
    pub(crate) fn is_filled_first(op: Op) -> bool {
        match op {
            Op::Read | Op::Overwrite | Op::Discard => true,
            Op::Write => false,
        }
    }

    /// Writes a range of the volume once.
    pub(crate) fn fill(&self, start: u64, size_bytes: u64) -> Result<()> {
        let mut contents = self.contents(PIECE_BYTES, FILL_SEED);
        let mut at = start;
        while at < start + size_bytes {
            ensure!(!Interruption::is_asked_for(), "interrupted while the volume is filled");
            let left = usize::try_from(start + size_bytes - at).unwrap_or(PIECE_BYTES);
            let piece = &contents.next()[..left.min(PIECE_BYTES)];
            self.volume.write(at, piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Runs all background work of the engine.
    pub(crate) fn idle(&self) -> Result<Idling> {
        let begun = Instant::now();
        let mut reduction = None;
        while self.engine.maintain() {
            ensure!(!Interruption::is_asked_for(), "interrupted while the engine is idle");
            ensure!(
                begun.elapsed() < IDLE_MAX,
                "the engine still has background work after {IDLE_MAX:?} idle"
            );
            if reduction.is_none() && begun.elapsed() >= IDLE {
                reduction = Some(self.reduction());
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        Ok(Idling { seconds, reduction: reduction.unwrap_or_else(|| self.reduction()) })
    }

    /// Returns the ratio of written bytes to memory used.
    pub(crate) fn reduction(&self) -> f64 {
        let usage = self.engine.usage();
        usage.written_bytes as f64 / (usage.used_bytes as f64).max(1.0)
    }

    /// Returns the reduction of the volume's pages by LZ4 level 1, individually, without expansion.
    pub(crate) fn lz4_reduction(&self) -> Result<f64> {
        let mut page = [0; BLOCK_BYTES];
        let (mut before, mut after) = (0, 0);
        // Random positions, because the kinds of contents are periodic and a stride could resonate.
        let mut places = Places::random(self.working_bytes, BLOCK_BYTES, FILL_SEED);
        for _ in 0..SAMPLES {
            let at = places.next();
            self.volume.read(at, &mut page)?;
            before += BLOCK_BYTES;
            after += lz4_flex::block::compress(&page).len().min(BLOCK_BYTES);
        }
        Ok(before as f64 / after.max(1) as f64)
    }

    fn store_originals(&self) -> Result<()> {
        let size_bytes = self.originals * BLOCK_BYTES as u64;
        let volume = self.engine.create_volume(spec("originals", size_bytes)?)?;
        let mut at = 0;
        self.contents(BLOCK_BYTES, FILL_SEED).each_original(|set| {
            volume.write(at, set)?;
            at += set.len() as u64;
            Ok(())
        })
    }
}

/// Returns an eighth of the working set, at most 256 MiB.
fn originals(working_bytes: u64) -> u64 {
    let blocks = working_bytes / 8 / BLOCK_BYTES as u64;
    (blocks / 64 * 64).clamp(64, 65_536)
}

fn spec(name: &str, size_bytes: u64) -> Result<VolumeSpec> {
    Ok(VolumeSpec { sector: SectorSize::Bytes4096, ..VolumeSpec::new(name.parse()?, size_bytes) })
}
