//! Cost of durability: durable writes compared with those of the journal's disk, images compared
//! with plain copies to and from that disk, and overwrites while snapshots are taken.
//!
//! The disk is that of `/var/tmp`. Each volume has its own daemon, whose journal and images are
//! there.

mod backend;
mod copied;
mod disk;
mod flush;
mod image;
mod rest;
mod setup;
mod snapshots;
mod tables;
mod writers;

use anyhow::{Result, ensure};
use results::Suite;

use crate::run::{Plan, Session, Skip};

pub(crate) use setup::{DiskFolder, start_daemon};
pub(crate) use tables::describe;

/// The parts of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Part {
    /// Writes, each durable before the next one
    Flush,
    /// Saving and restoring images, and the first read after memory was lost
    Image,
    /// Overwrites while a snapshot is created each second
    Snapshot,
}

#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub(crate) struct Arguments {
    /// Run only these parts
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    only: Vec<Part>,
    /// Seconds for each run of `flush` and `snapshot` [default: set by --profile]
    #[arg(long)]
    seconds: Option<f64>,
    /// Size of the volumes of `image` and `snapshot` [default: set by --profile]
    #[arg(long, value_name = "MIB")]
    size_mib: Option<u64>,
}

pub(crate) fn plan<'plan>(
    arguments: &'plan Arguments,
    session: &'plan Session,
) -> Result<Plan<'plan>> {
    let seconds = arguments.seconds;
    ensure!(
        seconds.is_none_or(|it| it > 0.0 && it <= 86_400.0),
        "--seconds must be more than 0 and at most 86400"
    );
    ensure!(arguments.size_mib.is_none_or(|it| it >= 64), "--size-mib must be 64 or more");
    let size_bytes = arguments.size_mib.map(|mib| mib << 20);
    let wants = |part| arguments.only.is_empty() || arguments.only.contains(&part);
    let mut plan = Plan::default();
    if let Some(reason) = crate::targets::missing_programs() {
        plan.skipped.push(Skip::new(Suite::Durability, "all cases", "all targets", reason));
        return Ok(plan);
    }
    if wants(Part::Flush) {
        flush::add(session, seconds, &mut plan);
    }
    if wants(Part::Image) {
        image::add(session, size_bytes, &mut plan);
    }
    if wants(Part::Snapshot) {
        snapshots::add(session, (seconds, size_bytes), &mut plan);
    }
    Ok(plan)
}
