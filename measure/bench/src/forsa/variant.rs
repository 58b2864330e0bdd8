//! Variants of the matrix.

use crate::fio_step::case_name;
use crate::targets::fio::{Amount, Contents, FileEngine, Job, Pattern, Starts};

/// Nice value of fio's threads, if permitted.
const NICENESS: i32 = -19;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Variant {
    /// As in the paper: libaio, refilled buffers, all jobs start at the same offset
    Paper,
    /// Each job uses a separate range, so jobs do not read the same cache lines in step
    Apart,
    /// Like apart, with buffers that are filled once, which is not measured
    PreBuilt,
    /// Like apart, with `io_uring`
    IoUring,
    /// Like apart, with plain system calls
    Psync,
}

impl Variant {
    pub(crate) const ALL: [Self; 5] =
        [Self::Paper, Self::Apart, Self::PreBuilt, Self::IoUring, Self::Psync];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Apart => "apart",
            Self::PreBuilt => "pre-built",
            Self::IoUring => "io_uring",
            Self::Psync => "psync",
        }
    }

    pub(crate) fn job(self, pattern: Pattern, block_bytes: u32, jobs: u32, amount: Amount) -> Job {
        let may_be_first = rustix::process::geteuid().is_root();
        Job {
            pattern,
            block_bytes,
            queue_depth: 1,
            jobs,
            engine: match self {
                Self::Paper | Self::Apart | Self::PreBuilt => FileEngine::Libaio,
                Self::IoUring => FileEngine::IoUring,
                Self::Psync => FileEngine::Psync,
            },
            contents: match self {
                Self::PreBuilt => Contents::PreBuilt,
                _ => Contents::Refilled,
            },
            starts: if self == Self::Paper { Starts::Together } else { Starts::Apart },
            niceness: may_be_first.then_some(NICENESS),
            amount,
        }
    }

    pub(crate) fn case(self, job: &Job) -> String {
        match self {
            Self::Paper => case_name(job),
            _ => format!("{} {}", case_name(job), self.name()),
        }
    }
}
