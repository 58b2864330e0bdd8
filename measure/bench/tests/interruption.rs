//! Tests of Ctrl-C during a run: the record remains, and no resources are left behind.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use results::{Row, RunFolder};
use rustix::process::Signal;
use serde_json::Value;
use system::{Ability, Background, Tool, leftovers, missing, wait_for};
use tempfile::TempDir;

/// Exit code for termination by Ctrl-C.
const INTERRUPTED_EXIT_CODE: i32 = 130;
const PROGRESS_TIME_LIMIT: Duration = Duration::from_secs(300);
const END_TIME_LIMIT: Duration = Duration::from_secs(120);

/// Seeds among which the shortest run is chosen.
const SEEDS: std::ops::Range<u64> = 0..10;

/// A run whose processes are identified by its folder in their environment.
struct Run {
    folder: TempDir,
    words: Vec<String>,
}

impl Run {
    fn new(words: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        Ok(Self { folder, words: words.split_whitespace().map(str::to_owned).collect() })
    }

    fn tool(&self) -> Tool {
        let tool = Tool::new(env!("CARGO_BIN_EXE_memlane-bench")).args(&self.words);
        let folder = self.folder.path();
        tool.arg("--out").arg(self.out()).env("TMPDIR", &folder.to_string_lossy()).own_group()
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// Returns the targets available here, and the number of steps until all have been used.
    fn targets(&self) -> Result<(BTreeSet<String>, usize)> {
        let plan: Value =
            serde_json::from_str(&self.tool().args(["--dry-run", "--json"]).check()?)?;
        let steps = plan["steps"].as_array().context("a plan has steps")?;
        let names = steps.iter().filter_map(|step| step["target"].as_str());
        let names: Vec<&str> = names.map(plain).filter(|name| *name != "all targets").collect();
        let mut met = BTreeSet::new();
        let are_new: Vec<bool> = names.iter().map(|name| met.insert(name.to_string())).collect();
        let steps = are_new.iter().rposition(|is_new| *is_new);
        let steps = steps.context("nothing can be measured here")?;
        Ok((met, steps))
    }

    fn start(&self) -> Result<Background> {
        let log = File::create(self.folder.path().join("log"))?;
        Background::start(self.tool().output_to(log)?)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Returns the recorded rows, if any.
    fn rows(&self) -> Vec<Row> {
        RunFolder::open(&self.out()).map(|it| it.rows().cloned().collect()).unwrap_or_default()
    }

    /// Waits for progress, interrupts the run, and checks how it ends.
    fn interrupt_when(
        &self,
        mut process: Background,
        is_far_enough: impl Fn() -> bool,
    ) -> Result<()> {
        wait_for("a run to be far enough", PROGRESS_TIME_LIMIT, || {
            let ended = process.has_ended()?;
            ensure!(ended.is_none(), "the run ended with {ended:?}: {}", self.log());
            Ok(is_far_enough())
        })?;
        let status = process.end(Signal::INT, END_TIME_LIMIT)?;
        ensure!(status.code() == Some(INTERRUPTED_EXIT_CODE), "{status}: {}", self.log());
        ensure!(self.log().contains("--resume"), "it does not say how to go on: {}", self.log());
        let left = self.processes();
        ensure!(left.is_empty(), "these processes are left: {left:?}");
        Ok(())
    }

    /// Returns the processes of this run, identified by their environment.
    fn processes(&self) -> Vec<(u32, String)> {
        let mark = format!("TMPDIR={}", self.folder.path().display());
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let marked = entries.filter_map(|entry| {
            let id: u32 = entry.file_name().to_str()?.parse().ok()?;
            let environment = fs::read(entry.path().join("environ")).ok()?;
            let is_own = environment.split(|byte| *byte == 0).any(|it| it == mark.as_bytes());
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            is_own.then(|| (id, name.trim().to_owned()))
        });
        marked.collect()
    }
}

/// Returns a target's name without the suffix for awake cores.
fn plain(target: &str) -> &str {
    target.trim_end_matches(" (cores kept awake)")
}

/// Returns the file or device that a row's job used.
fn path_of(row: &Row) -> Option<PathBuf> {
    let command = row.params.get("command")?.as_str()?;
    let word = command.split(' ').find(|word| word.starts_with("--filename="))?;
    Some(PathBuf::from(word.trim_start_matches("--filename=")))
}

/// Returns the backing file of a loop device.
fn file_below(device: &Path) -> Option<String> {
    let name = device.file_name()?.to_str()?;
    let path = format!("/sys/block/{name}/loop/backing_file");
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

#[test]
fn ctrl_c_takes_down_everything_that_was_set_up() -> Result<()> {
    if let Some(reason) = missing(&[Ability::BlockDevices, Ability::Program("fio")]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let targets = "--target=volume,zram,loop,nbdkit,qsd-fuse";
    let words = format!("peers --only=jobs --profile=standard --size-mib=64 {targets}");
    let of_seed = |seed: u64| -> Result<_> {
        let run = Run::new(&format!("{words} --seconds=0.01 --seed={seed}"))?;
        let (targets, steps) = run.targets()?;
        Ok((steps, targets, run))
    };
    // The seed determines the order. Chooses the one that reaches all targets first.
    let runs = SEEDS.map(of_seed).collect::<Result<Vec<_>>>()?;
    let first = runs.into_iter().min_by_key(|(steps, ..)| *steps);
    let (_, expected, run) = first.context("there are seeds")?;
    let process = run.start()?;
    let is_far_enough = || {
        let rows = run.rows();
        let seen: BTreeSet<&str> = rows.iter().map(|row| plain(&row.target)).collect();
        expected.iter().all(|name| seen.contains(&**name))
    };
    let files = std::cell::RefCell::new(Vec::new());
    run.interrupt_when(process, || {
        let is_far_enough = is_far_enough();
        if is_far_enough {
            let paths: BTreeSet<PathBuf> = run.rows().iter().filter_map(path_of).collect();
            let below = paths.iter().map(|path| (path.clone(), file_below(path)));
            files.borrow_mut().extend(below);
        }
        is_far_enough
    })?;
    ensure!(!files.borrow().is_empty(), "no job named its file");
    for (path, below) in files.take() {
        match below {
            Some(below) => {
                let left = leftovers(Path::new(below.trim_end_matches(" (deleted)")))?;
                ensure!(left.is_empty(), "left of {}: {left:?}", path.display());
            }
            // Another process may create a device of the same name, but it is removed as well.
            None => wait_for("a target to be gone", END_TIME_LIMIT, || Ok(!path.exists()))?,
        }
    }
    let left = leftovers(run.folder.path())?;
    ensure!(left.is_empty(), "left on the host: {left:?}");
    Ok(())
}

#[test]
fn ctrl_c_ends_the_load_generator_with_all_its_jobs() -> Result<()> {
    if let Some(reason) = missing(&[Ability::Program("fio")]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let run = Run::new("forsa --target=tmpfs --jobs=4 --seconds=600 --size-mib=64")?;
    let process = run.start()?;
    // fio itself and its four jobs.
    let is_busy = || run.processes().iter().filter(|(_, name)| name == "fio").count() >= 5;
    run.interrupt_when(process, is_busy)
}
