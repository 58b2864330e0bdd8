//! Plan of the suite: applications on targets, by core counts.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, ensure};
use results::Suite;
use system::Random;

use super::application::{Application, WorksOn};
use super::applications::all;
use super::measure::{Extent, IDLE_WINDOW, case_name, measure};
use super::orders;
use super::workdir::is_whole;
use crate::fio_step::{memory_bytes, shuffle, sort_out};
use crate::run::{Cost, Plan, Profile, Session, Skip, Step};
use crate::targets::{Kind, Layout, LazyTarget, Place, Spec};

const KINDS: &[Kind] =
    &[Kind::Volume, Kind::VolumeRun, Kind::VolumeNbd, Kind::Zram, Kind::Loop, Kind::Disk];

/// Ratio of a target's size to the data size, for copies, logs and spilled data.
const SIZE_OVER_DATA: u64 = 8;
/// Space for the data and the calibration.
const WHOLE_BYTES_MIN: u64 = 128 << 20;
const UNCOUNTED: &str = "the count of I/Os is unavailable: requests pass no block device of the \
                         kernel, and no server of ours that counts them";
const NEEDS_FILES: &str = "the application needs files, and the target has no file system";
const TIME_LIMIT: Duration = Duration::from_secs(900);

/// Average duration of a run, for plans. Preparation and verification take about as long.
const SECONDS_FOR_EACH_MIB: f64 = 0.05;

#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub(crate) struct Arguments {
    /// Run only these applications [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME",
        value_parser = clap::builder::PossibleValuesParser::new(all().map(|it| it.name)))]
    only: Vec<String>,
    /// Run only on these targets: volume, journal, run, nbd, fuse, zram, loop, disk, brd, null_blk,
    /// or a directory
    #[arg(long = "target", value_delimiter = ',', value_name = "NAME")]
    targets: Vec<String>,
    /// Numbers of cores [default: powers of two up to all]
    #[arg(long, value_delimiter = ',', value_name = "CORES",
        value_parser = clap::value_parser!(u32).range(1..=4096))]
    cores: Vec<u32>,
    /// Size of the data of each application [default: set by --profile]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(8..=1 << 20))]
    size_mib: Option<u64>,
    /// Seconds for applications that run for a fixed time [default: set by --profile]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
}

impl Arguments {
    fn data_bytes(&self, profile: Profile) -> u64 {
        let by_profile = match profile {
            Profile::Quick => 32,
            Profile::Standard => 256,
            Profile::Full => 1024,
        };
        self.size_mib.unwrap_or(by_profile) << 20
    }

    fn seconds(&self, profile: Profile) -> u64 {
        self.seconds.unwrap_or(match profile {
            Profile::Quick => 2,
            Profile::Standard => 20,
            Profile::Full => 60,
        })
    }

    fn specs(&self) -> Result<Vec<Spec>> {
        let kinds: Vec<Kind> = match self.targets.is_empty() {
            true => KINDS.to_vec(),
            false => self.targets.iter().map(|word| word.parse()).collect::<Result<_>>()?,
        };
        let with_layout = |kind: Kind| {
            let layout = if kind.is_block_device() { Layout::Ext4 } else { Layout::Raw };
            Spec { kind, layout }
        };
        Ok(kinds.into_iter().map(with_layout).collect())
    }

    fn cores(&self, all: usize) -> Result<Vec<u32>> {
        let all = u32::try_from(all)?;
        if self.cores.is_empty() {
            let mut cores: Vec<u32> =
                (0..32).map(|power| 1 << power).take_while(|cores| *cores < all).collect();
            cores.push(all);
            return Ok(cores);
        }
        let most = self.cores.iter().max().copied().unwrap_or(0);
        ensure!(most <= all, "--cores has {most}, more than the {all} cores of this machine");
        Ok(self.cores.clone())
    }
}

pub(crate) fn plan<'plan>(
    arguments: &'plan Arguments,
    session: &'plan Session,
) -> Result<Plan<'plan>> {
    let data_bytes = arguments.data_bytes(session.profile);
    let cores = arguments.cores(session.cores)?;
    let room_bytes = room_bytes(arguments, data_bytes);
    let (targets, skipped) = targets(arguments.specs()?, data_bytes, room_bytes);
    let mut plan = Plan { steps: Vec::new(), skipped };
    if let Some(device) = &session.destroy {
        let device = device.display().to_string();
        plan.skipped.push(skip("all cases", &device, "name a folder on it with --target"));
    }
    let memory_bytes = memory_bytes(&targets);
    let seconds = arguments.seconds(session.profile);
    let mut random = Random::new(session.seed);
    for repeat in 0..session.profile.repeats() {
        let (mut steps, mut skipped) = (Vec::new(), Vec::new());
        for application in all().filter(|it| is_wanted(arguments, it.name)) {
            if let Some(reason) = application.missing() {
                skipped.push(skip(application.name, "all targets", &reason));
                continue;
            }
            for target in &targets {
                let needs_files = application.works_on == WorksOn::Folders;
                if needs_files && is_whole(target.spec()) {
                    let name = target.spec().to_string();
                    skipped.push(skip(application.name, &name, NEEDS_FILES));
                    continue;
                }
                for &cores in &cores {
                    let extent = Extent {
                        bytes: data_bytes,
                        seconds,
                        cores,
                        seed: session.seed.wrapping_add(u64::from(repeat)),
                        repeat,
                        time_limit: TIME_LIMIT,
                    };
                    steps.push(step(application, target, extent, memory_bytes));
                }
            }
        }
        shuffle(&mut steps, &mut random);
        plan.steps.extend(steps);
        // They are the same in each repeat.
        if repeat == 0 {
            plan.skipped.extend(skipped);
        }
    }
    Ok(plan)
}

/// Returns the size of targets with a file system.
fn room_bytes(arguments: &Arguments, data_bytes: u64) -> u64 {
    let has_orders = is_wanted(arguments, orders::NAME);
    let least = if has_orders { orders::TARGET_BYTES_MIN } else { 512 << 20 };
    (data_bytes * SIZE_OVER_DATA).max(least)
}

/// Returns the targets available here, and the reasons for missing ones.
fn targets(specs: Vec<Spec>, data_bytes: u64, room_bytes: u64) -> (Vec<Rc<LazyTarget>>, Vec<Skip>) {
    let (whole, others): (Vec<Spec>, Vec<Spec>) = specs.into_iter().partition(is_whole);
    let (with_device, without): (Vec<Spec>, Vec<Spec>) =
        others.into_iter().partition(has_folder_on_device);
    let place = Place::new(room_bytes, None);
    let (mut targets, mut skipped) = sort_out(Suite::Cpio, with_device, &place);
    let place = Place::new(data_bytes.max(WHOLE_BYTES_MIN), None);
    let (whole, not_there) = sort_out(Suite::Cpio, whole, &place);
    targets.extend(whole);
    skipped.extend(not_there);
    skipped.extend(without.iter().map(|spec| skip("all cases", &spec.to_string(), UNCOUNTED)));
    (targets, skipped)
}

/// Returns whether applications can use a folder and I/Os are counted at the block device below.
fn has_folder_on_device(spec: &Spec) -> bool {
    spec.kind.is_block_device() || matches!(spec.kind, Kind::Disk | Kind::Path(_))
}

fn skip(case: &str, target: &str, reason: &str) -> Skip {
    Skip::new(Suite::Cpio, case, target, reason)
}

fn is_wanted(arguments: &Arguments, name: &str) -> bool {
    arguments.only.is_empty() || arguments.only.iter().any(|it| it == name)
}

fn step<'plan>(
    application: &'static Application,
    target: &Rc<LazyTarget>,
    extent: Extent,
    memory_bytes: u64,
) -> Step<'plan> {
    let held = Rc::clone(target);
    let mebibytes = (extent.bytes >> 20) as f64;
    Step {
        suite: Suite::Cpio,
        case: case_name(application, extent.cores),
        target: target.spec().to_string(),
        repeat: extent.repeat,
        cost: Cost {
            seconds: IDLE_WINDOW.as_secs_f64()
                + extent.seconds as f64
                + mebibytes * SECONDS_FOR_EACH_MIB,
            written_bytes: extent.bytes * 3,
            memory_bytes,
        },
        measure: Box::new(move || Ok(vec![measure(application, &held, extent)?])),
    }
}
