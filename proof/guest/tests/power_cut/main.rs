//! The power of a machine is cut while programs write and flush, and while images are saved. After
//! the next start, all flushed writes are present, for volumes of class `image` the contents of the
//! last acknowledged image, and nothing that was never written.
//!
//! `MEMLANE_CUTS` is the number of cuts. `MEMLANE_SEED` reproduces the writes, moments and fates of
//! unflushed writes, as far as the machine's timing permits.
//!
//! Takes a minute and a half, because machines boot three times under emulation, and all blocks are
//! read.

mod fio;
mod fixture;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use guest::{Cut, Disk, Guest, GuestOptions, Image, ImageContents, VolatileDisk};
use system::{Random, Tool, seed, wait_for};

use crate::fio::Fio;
use crate::fixture::{Fixture, TIME_LIMIT, Way};
use crate::writer::{Work, Writer};

const CUTS_DEFAULT: u64 = 2;
const DISK_BYTES: u64 = 2 << 30;

/// Duration of a flush, as of a disk without a battery.
const FLUSH_TIME: Duration = Duration::from_millis(3);

/// Number of blocks of each writer: few, so that they are overwritten often.
const BLOCK_COUNT: u64 = 2048;

/// Minimum number of steps that every writer has flushed before the power fails, and range of the
/// additional ones.
const STEPS_MIN: u64 = 20;
const STEPS_MAX: u64 = 80;
const DELAY_MICROSECONDS_MAX: u64 = 300_000;

const DAEMON_FLAGS: &str = "--pool-size 256MiB --state-dir /state --journal-max-bytes 64MiB";
const JOURNAL: &str = "--durability journal";
const IMAGE: &str = "--durability image";

const WRITERS: [(&str, Way); 6] = [
    ("plain", Way::Plain),
    ("one", Way::Nbd),
    ("two", Way::Nbd),
    ("raw", Way::Device),
    ("files", Way::File),
    ("saved", Way::Image),
];

/// Totals over all cuts.
#[derive(Default)]
struct Report {
    flush_count: u64,
    /// Synced by fio.
    synced_count: u64,
    later_count: usize,
    at_stake: Vec<usize>,
}

#[test]
fn everything_that_was_flushed_survives_a_power_cut() -> Result<()> {
    let seed = seed()?;
    eprintln!("replay: MEMLANE_SEED={seed} cargo test -p guest --test power_cut");
    let cut_count = match std::env::var("MEMLANE_CUTS") {
        Ok(text) => text.parse()?,
        Err(_) => CUTS_DEFAULT,
    };
    let mut random = Random::new(seed);
    let image = Image::build(ImageContents {
        products: &["memlaned", "memlane"],
        programs: &["mkfs.ext4", "e2fsck", "fio"],
        modules: &[],
    })?;
    let disk = Arc::new(empty_disk()?);
    let mut writers: Vec<_> = (0..).zip(WRITERS).map(Writer::new).collect();
    let mut fio = Fio::new("fio");
    let mut report = Report::default();
    for life in 0..=cut_count {
        let disks = vec![Disk::Volatile(Arc::clone(&disk))];
        let mut guest = Guest::boot(&image, &GuestOptions::small(disks))?;
        let nbd_socket = guest.forward(Path::new("/run/memlane/nbd.sock"))?;
        let fixture = Fixture::start(&guest, nbd_socket)?;
        match life {
            0 => make_all(&fixture, &writers, cut_count)?,
            _ => report.later_count += verify_all(&fixture, &mut writers, &fio)?,
        }
        if life == cut_count {
            fixture.daemon.stop()?;
            guest.power_off()?;
            break;
        }
        let fio_work = fio.start(&fixture)?;
        let works = work(&mut writers, &fixture, life, &mut random)?;
        guest.cut_power()?;
        for (writer, work) in writers.iter_mut().zip(works) {
            report.flush_count += writer.end(work)?;
        }
        report.synced_count += fio.end(fio_work)?;
        report.at_stake.push(disk.cut_power(Cut::draw(&mut random), &mut random)?);
    }
    report.print();
    ensure!(report.synced_count > 0 || cut_count == 0, "fio has synced nothing");
    Ok(())
}

fn make_all(fixture: &Fixture<'_>, writers: &[Writer], cut_count: u64) -> Result<()> {
    for writer in writers {
        fixture.make(writer.volume, writer.way)?;
    }
    let size = Fio::volume_bytes(cut_count.max(1));
    fixture.daemon.memlane(&format!("volume create fio --size {size} {JOURNAL}"))?;
    fixture.daemon.memlane("attach fio")?;
    Ok(())
}

/// Returns the number of blocks that are newer than the last flush.
fn verify_all(fixture: &Fixture<'_>, writers: &mut [Writer], fio: &Fio) -> Result<usize> {
    let mut later_count = 0;
    for writer in writers {
        fixture.find_again(writer.volume, writer.way)?;
        later_count += writer.verify(fixture)?;
    }
    fio.verify(fixture)?;
    Ok(later_count)
}

/// Lets all writers run until each has flushed several steps, and then a little longer.
fn work(
    writers: &mut [Writer],
    fixture: &Fixture<'_>,
    life: u64,
    random: &mut Random,
) -> Result<Vec<Work>> {
    let mut works = Vec::new();
    for writer in &mut *writers {
        works.push(writer.start(fixture, life, random.below(1 << 32))?);
    }
    let step_count = STEPS_MIN + random.below(STEPS_MAX - STEPS_MIN);
    wait_for("all writers to flush", TIME_LIMIT, || {
        let mut are_far_enough = true;
        for work in &mut works {
            are_far_enough &= acknowledged(work, fixture)? >= step_count;
        }
        Ok(are_far_enough)
    })?;
    save_image(writers, &mut works, fixture)?;
    // The power fails before, during or after another image.
    let _next_image = fixture.daemon.begin("image save")?;
    // Not a wait for a condition: the moment itself is random.
    let end = Instant::now() + Duration::from_micros(random.below(DELAY_MICROSECONDS_MAX));
    while Instant::now() < end {
        thread::yield_now();
    }
    Ok(works)
}

/// Returns the number of steps reported to the host. If a writer has ended, the daemon's log may
/// give the reason.
fn acknowledged(work: &mut Work, fixture: &Fixture<'_>) -> Result<u64> {
    work.acknowledged().with_context(|| format!("the daemon's log:\n{}", fixture.daemon.log_end()))
}

/// Saves an image while all writers continue. It contains all steps acknowledged before.
fn save_image(writers: &[Writer], works: &mut [Work], fixture: &Fixture<'_>) -> Result<()> {
    let mut before = Vec::new();
    for work in &mut *works {
        before.push(acknowledged(work, fixture)?);
    }
    wait_for("an image to be saved", TIME_LIMIT, || match fixture.daemon.memlane("image save") {
        Ok(_) => Ok(true),
        // An automatic save of the daemon is in progress.
        Err(error) if format!("{error:#}").contains("wait for it") => Ok(false),
        Err(error) => Err(error),
    })?;
    for ((writer, work), step_count) in writers.iter().zip(works).zip(before) {
        if writer.way == Way::Image {
            work.note_saved(step_count);
        }
    }
    Ok(())
}

impl Report {
    fn print(&self) {
        let Self { flush_count, synced_count, later_count, at_stake } = self;
        eprintln!(
            "measured: {} cuts after {flush_count} flushes and {synced_count} of fio; \
             {later_count} blocks show writes that were not flushed; bytes at stake in the disk's \
             cache: {at_stake:?}",
            at_stake.len(),
        );
    }
}

/// Creates a disk with an empty file system.
fn empty_disk() -> Result<VolatileDisk> {
    let file = tempfile::NamedTempFile::new().context("cannot make a file for a disk")?;
    file.as_file().set_len(DISK_BYTES).context("cannot make a file for a disk")?;
    Tool::new("mkfs.ext4 -q -F").arg(file.path()).check()?;
    VolatileDisk::holding(file.path(), FLUSH_TIME)
}
