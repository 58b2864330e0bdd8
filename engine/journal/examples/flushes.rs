//! Measures flushes: `flushes FOLDER ROUNDS`. Writes incompressible data to a volume and flushes at
//! fixed intervals, alternately with a plain and an encrypted journal in the folder.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program for people")]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use block_device::BlockDevice;
use journal::{Journal, JournalOptions, JournalSpec, Position, SystemClock};
use region::{Region, RegionSpec};
use sealing::{DataKey, SetKey, WrappingKey};
use storage::LinuxFolder;
use volumes::{Durability, Engine, EngineOptions, VolumeSpec};

const MIB: u64 = 1 << 20;

/// Bytes per flush, and bytes per run.
const RUNS: [(usize, u64); 3] = [(4 << 10, 8 * MIB), (64 << 10, 64 * MIB), (4 << 20, 256 * MIB)];

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, folder, rounds] = &arguments[..] else {
        return Err("usage: flushes FOLDER ROUNDS".into());
    };
    let key = Arc::new(SetKey::wrap(DataKey::draw()?, &WrappingKey::new([1; 32]))?);
    let mut rates = vec![Vec::new(); RUNS.len()];
    for round in 0..rounds.parse()? {
        for ((flush_bytes, run_bytes), rates) in RUNS.into_iter().zip(&mut rates) {
            let plain = run(Path::new(folder), None, flush_bytes, run_bytes)?;
            let sealed = run(Path::new(folder), Some(Arc::clone(&key)), flush_bytes, run_bytes)?;
            println!(
                "round {round}  {:5} KiB a flush  plain {plain:7.1} MiB/s  encrypted {sealed:7.1} \
                 MiB/s  ratio {:.3}",
                flush_bytes >> 10,
                sealed / plain
            );
            rates.push([plain, sealed, sealed / plain]);
        }
    }
    for ((flush_bytes, _), rates) in RUNS.into_iter().zip(&rates) {
        let median = |column| median(rates.iter().map(|rates: &[f64; 3]| rates[column]).collect());
        println!(
            "medians  {:5} KiB a flush  plain {:7.1} MiB/s  encrypted {:7.1} MiB/s  ratio {:.3}",
            flush_bytes >> 10,
            median(0),
            median(1),
            median(2)
        );
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the throughput in MiB/s.
fn run(
    folder: &Path,
    key: Option<Arc<SetKey>>,
    flush_bytes: usize,
    run_bytes: u64,
) -> Outcome<f64> {
    let (pool, disk) = (tempfile::tempdir_in("/dev/shm")?, tempfile::tempdir_in(folder)?);
    let spec =
        RegionSpec { path: pool.path().join("region"), size_bytes: 2 * run_bytes + 64 * MIB };
    let options = EngineOptions { lane_count: 2, fresh_secret: [7; 32] };
    let engine = Arc::new(Engine::open(Region::open(&spec)?, options)?);
    let journal = Arc::new(Journal::open(JournalSpec {
        folder: Arc::new(LinuxFolder::open_or_make(disk.path())?),
        key,
        set_id: [1; 16],
        covered: Some(Position::START),
        options: JournalOptions {
            length_bytes_max: 4 * run_bytes + 256 * MIB,
            segment_bytes: 64 << 20,
            ..JournalOptions::default()
        },
        clock: Arc::new(SystemClock::new()),
    })?);
    journal.serve(&engine);
    let durability = Durability::Journal;
    let spec = VolumeSpec { durability, ..VolumeSpec::new("data".parse()?, run_bytes) };
    let volume = engine.create_volume(spec)?;
    let mut piece = vec![0; flush_bytes];
    let (mut state, mut flushed_in) = (1_u64, 0.0);
    for at in (0..run_bytes).step_by(flush_bytes) {
        for word in piece.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        volume.write(at, &piece)?;
        let begun = Instant::now();
        volume.flush()?;
        flushed_in += begun.elapsed().as_secs_f64();
    }
    Ok(run_bytes as f64 / MIB as f64 / flushed_in)
}
