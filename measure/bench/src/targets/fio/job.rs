//! Definition of fio jobs.

use std::fmt;

use crate::targets::target::{Access, Target};

/// Direction and order of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    SequentialRead,
    RandomRead,
    SequentialWrite,
    RandomWrite,
}

impl Pattern {
    pub const ALL: [Self; 4] =
        [Self::SequentialRead, Self::RandomRead, Self::SequentialWrite, Self::RandomWrite];

    pub fn is_write(self) -> bool {
        matches!(self, Self::SequentialWrite | Self::RandomWrite)
    }

    /// Returns the name for table headings.
    pub fn title(self) -> &'static str {
        match self {
            Self::SequentialRead => "Sequential Read",
            Self::RandomRead => "Random Read",
            Self::SequentialWrite => "Sequential Write",
            Self::RandomWrite => "Random Write",
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SequentialRead => "read",
            Self::RandomRead => "randread",
            Self::SequentialWrite => "write",
            Self::RandomWrite => "randwrite",
        })
    }
}

/// I/O engine for files and block devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileEngine {
    Psync,
    Libaio,
    IoUring,
}

impl fmt::Display for FileEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Psync => "psync",
            Self::Libaio => "libaio",
            Self::IoUring => "io_uring",
        })
    }
}

/// Contents of writes. All are random and incompressible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// New before each request. The generator spends time on it between requests.
    Refilled,
    /// Created once, with a few bytes changed before each request to make them unique.
    PreBuilt,
}

/// Ranges of several jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starts {
    /// All jobs use the whole range from the same start. They may read the same cache lines in
    /// lockstep.
    Together,
    /// Each job has its own range.
    Apart,
}

/// Amount of work of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    Seconds(f64),
    /// Each block is written or read once.
    Once,
}

/// A fio job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    pub pattern: Pattern,
    pub block_bytes: u32,
    pub queue_depth: u32,
    pub jobs: u32,
    pub engine: FileEngine,
    pub contents: Contents,
    pub starts: Starts,
    pub niceness: Option<i32>,
    pub amount: Amount,
}

impl Job {
    /// Returns fio's arguments for this job on the target.
    pub(crate) fn arguments(&self, target: &Target) -> Vec<String> {
        let mut arguments = vec![
            "--name=memlane-bench".to_owned(),
            format!("--rw={}", self.pattern),
            format!("--bs={}", self.block_bytes),
            format!("--iodepth={}", self.queue_depth),
            format!("--numjobs={}", self.jobs),
        ];
        arguments.extend(
            ["--group_reporting", "--norandommap", "--randrepeat=0", "--allow_file_create=0"]
                .map(str::to_owned),
        );
        arguments.extend(access_arguments(target.access(), self.engine));
        arguments.extend(self.amount_arguments(target.size_bytes()));
        if self.contents == Contents::Refilled {
            arguments.push("--refill_buffers".to_owned());
        }
        if let Some(niceness) = self.niceness {
            arguments.push(format!("--nice={niceness}"));
        }
        arguments
    }

    fn amount_arguments(&self, size_bytes: u64) -> Vec<String> {
        let mut arguments = match self.starts {
            Starts::Together => vec![format!("--size={size_bytes}")],
            Starts::Apart => {
                // Whole blocks, so that ranges are block-aligned.
                let block_bytes = u64::from(self.block_bytes);
                let share = size_bytes / u64::from(self.jobs) / block_bytes * block_bytes;
                vec![format!("--size={share}"), format!("--offset_increment={share}")]
            }
        };
        if let Amount::Seconds(seconds) = self.amount {
            arguments.push("--time_based".to_owned());
            arguments.push(format!("--runtime={:.0}ms", seconds * 1000.0));
        }
        arguments
    }
}

/// Returns fio's arguments for access to the target.
pub(crate) fn access_arguments(access: &Access, engine: FileEngine) -> Vec<String> {
    match access {
        Access::File { path, direct } => vec![
            format!("--ioengine={engine}"),
            // fio separates file names by colons.
            format!("--filename={}", path.to_string_lossy().replace(':', "\\:")),
            format!("--direct={}", u8::from(*direct)),
        ],
        Access::Nbd { uri } => vec!["--ioengine=nbd".to_owned(), format!("--uri={uri}")],
        Access::VhostUser { socket } => vec![
            "--ioengine=libblkio".to_owned(),
            "--libblkio_driver=virtio-blk-vhost-user".to_owned(),
            format!("--libblkio_path={}", socket.display()),
        ],
        Access::Nothing => vec!["--ioengine=null".to_owned()],
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::targets::target::{AfterKill, Backing, Durability, Traits};

    pub(crate) const JOB: Job = Job {
        pattern: Pattern::RandomWrite,
        block_bytes: 4096,
        queue_depth: 1,
        jobs: 2,
        engine: FileEngine::Libaio,
        contents: Contents::Refilled,
        starts: Starts::Apart,
        niceness: None,
        amount: Amount::Seconds(1.5),
    };

    struct Nothing;

    impl Backing for Nothing {}

    fn target(access: Access, size_bytes: u64) -> Target {
        let durability = Durability { after_kill: AfterKill::NoServer, survives_power_loss: false };
        let traits = Traits { access, durability, reduces: false, device: None };
        Target::new("nothing".to_owned(), size_bytes, traits, Box::new(Nothing))
    }

    #[track_caller]
    fn check(job: &Job, access: Access, expected: &[&str]) {
        let arguments = job.arguments(&target(access, (1 << 20) + 4096));
        for argument in expected {
            assert!(arguments.iter().any(|it| it == argument), "no {argument} in {arguments:?}");
        }
    }

    #[test]
    fn a_file_is_opened_directly_and_its_jobs_have_shares_of_whole_blocks() {
        let access = Access::File { path: PathBuf::from("/srv/a:b"), direct: true };
        let expected = [
            "--filename=/srv/a\\:b",
            "--direct=1",
            "--ioengine=libaio",
            "--size=524288",
            "--offset_increment=524288",
            "--runtime=1500ms",
            "--refill_buffers",
        ];
        check(&JOB, access, &expected);
    }

    #[test]
    fn a_network_block_device_is_reached_by_its_uri() {
        let uri = "nbd+unix:///v?socket=/run/s".to_owned();
        let job = Job { starts: Starts::Together, ..JOB };
        check(&job, Access::Nbd { uri }, &["--uri=nbd+unix:///v?socket=/run/s", "--size=1052672"]);
    }

    #[test]
    fn a_job_that_is_done_once_has_no_time() {
        let job = Job { amount: Amount::Once, contents: Contents::PreBuilt, ..JOB };
        let arguments = job.arguments(&target(Access::Nothing, 1 << 20));
        for absent in ["--time_based", "--refill_buffers"] {
            assert!(arguments.iter().all(|argument| argument != absent), "{arguments:?}");
        }
    }
}
