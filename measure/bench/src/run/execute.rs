//! Execution of a plan: steps are run in order and recorded individually.

use std::time::{Instant, SystemTime};

use anyhow::Result;
use results::{Circumstances, Row, RunFolder, StepKey, StepRecord, Validity};
use system::Interruption;

use super::progress::Progress;
use super::{Plan, Skip, Step, host};
use crate::targets::Machine;

/// Outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Finished,
    /// The user interrupted the run. Completed steps are recorded.
    Interrupted,
}

/// Runs the steps that `folder` does not have yet. Everything set up is taken down on return.
pub(crate) fn execute(plan: Plan<'_>, folder: &mut RunFolder) -> Result<Outcome> {
    execute_until(plan, folder, Interruption::was_asked_for)
}

fn execute_until(
    plan: Plan<'_>,
    folder: &mut RunFolder,
    must_stop: impl Fn() -> bool,
) -> Result<Outcome> {
    for skip in &plan.skipped {
        let record = skipped(skip);
        if !folder.has(&record.key) {
            folder.append(record)?;
        }
    }
    let (done, steps): (Vec<Step>, Vec<Step>) =
        plan.steps.into_iter().partition(|step| folder.has(&step.key()));
    drop(done);
    let last_level_cache_bytes = host::last_level_cache_bytes();
    let seconds = steps.iter().map(|step| step.cost.seconds).sum();
    let mut progress = Progress::new(steps.len(), seconds);
    let mut outcome = Outcome::Finished;
    // Declared first, so that it is dropped after what it protects.
    let mut _cleaning_up = None;
    let mut steps = steps.into_iter();
    for mut step in steps.by_ref() {
        if must_stop() {
            // Guards wait for the processes that they end. The interruption must not abort that.
            _cleaning_up = Some(Interruption::begin_to_clean_up());
            outcome = Outcome::Interrupted;
            break;
        }
        let key = step.key();
        progress.begin(&format!("{} {} on {}", key.suite.name(), key.case, key.target));
        match measured(&mut step, last_level_cache_bytes, &must_stop) {
            Some(rows) => folder.append(StepRecord { key, rows })?,
            None => {
                _cleaning_up = Some(Interruption::begin_to_clean_up());
                outcome = Outcome::Interrupted;
                break;
            }
        }
        progress.end(step.cost.seconds);
    }
    drop(steps);
    folder.write_results()?;
    Ok(outcome)
}

/// Measures a step and applies the rules to its rows. Returns `None` if interrupted.
fn measured(
    step: &mut Step,
    last_level_cache_bytes: Option<u64>,
    must_stop: &impl Fn() -> bool,
) -> Option<Vec<Row>> {
    let (started, begun) = (unix_ms(SystemTime::now()), Instant::now());
    let before = Machine::read().ok();
    let mut rows = match (step.measure)() {
        Ok(rows) => rows,
        Err(_) if must_stop() => return None,
        Err(error) => vec![failed(step, &error)],
    };
    let spent = before.zip(Machine::read().ok()).map(|(before, now)| now.since(&before));
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let steal_share = spent.map_or(0.0, |spent| spent.steal_share());
    let circumstances = Circumstances { cores, last_level_cache_bytes, steal_share };
    for row in &mut rows {
        // If the suite did not record its time, the whole step counts.
        if row.time.started_unix_ms == 0 {
            row.time.started_unix_ms = started;
            row.time.duration_s = begun.elapsed().as_secs_f64();
        }
        results::apply(row, &circumstances);
    }
    Some(rows)
}

fn failed(step: &Step, error: &anyhow::Error) -> Row {
    let mut row = Row::new(step.suite, &*step.case, &*step.target);
    row.repeat = step.repeat;
    row.validity = Validity::Invalid(format!("{error:#}"));
    row
}

fn skipped(skip: &Skip) -> StepRecord {
    let mut row = Row::new(skip.suite, &*skip.case, &*skip.target);
    row.validity = Validity::Skipped(skip.reason.clone());
    row.time.started_unix_ms = unix_ms(SystemTime::now());
    let (case, target) = (skip.case.clone(), skip.target.clone());
    let key = StepKey { suite: skip.suite, case, target, repeat: 0 };
    StepRecord { key, rows: vec![row] }
}

pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    use anyhow::bail;
    use results::{Host, Manifest, SCHEMA, Suite, Tool};
    use tempfile::TempDir;

    use super::*;
    use crate::run::Cost;

    fn new_folder() -> (TempDir, RunFolder) {
        let place = tempfile::tempdir().expect("there is room for a folder");
        let manifest = Manifest {
            schema: SCHEMA.to_owned(),
            id: "a".to_owned(),
            started_unix_ms: 1,
            tool: Tool::default(),
            host: Host::default(),
            probes: std::collections::BTreeMap::new(),
            profile: "quick".to_owned(),
            seed: 1,
            configuration: serde_json::json!({}),
            command_line: Vec::new(),
        };
        let folder = RunFolder::create(place.path(), manifest).expect("it is empty");
        (place, folder)
    }

    fn step<'plan>(case: &str, measure: impl FnMut() -> Result<()> + 'plan) -> Step<'plan> {
        let mut measure = measure;
        let row = Row::new(Suite::Engine, case, "volume");
        Step {
            suite: Suite::Engine,
            case: case.to_owned(),
            target: "volume".to_owned(),
            repeat: 0,
            cost: Cost::default(),
            measure: Box::new(move || measure().map(|()| vec![row.clone()])),
        }
    }

    fn cases(folder: &RunFolder) -> Vec<(&str, bool)> {
        folder.rows().map(|row| (&*row.case, row.is_valid())).collect()
    }

    #[test]
    fn a_step_that_fails_is_an_invalid_row_and_the_run_goes_on() {
        let (_place, mut folder) = new_folder();
        let steps = vec![step("one", || bail!("the disk is on fire")), step("two", || Ok(()))];
        let outcome = execute_until(Plan { steps, skipped: vec![] }, &mut folder, || false);
        assert_eq!(outcome.ok(), Some(Outcome::Finished));
        assert_eq!(cases(&folder), [("one", false), ("two", true)]);
        let row = folder.rows().next().expect("there are two");
        assert_eq!(row.validity, Validity::Invalid("the disk is on fire".to_owned()));
    }

    #[test]
    fn an_interrupted_step_leaves_no_row_and_what_was_set_up_is_dropped() {
        let (place, mut folder) = new_folder();
        let wish = Cell::new(false);
        let target = Rc::new(());
        let held = Rc::clone(&target);
        let interrupted = || {
            wish.set(true);
            bail!("interrupted during a step")
        };
        let last = step("three", move || {
            let _ = &held;
            Ok(())
        });
        let steps = vec![step("one", || Ok(())), step("two", interrupted), last];
        let plan = Plan { steps, skipped: vec![] };
        let outcome = execute_until(plan, &mut folder, || wish.get());
        assert_eq!(outcome.ok(), Some(Outcome::Interrupted));
        assert_eq!(cases(&folder), [("one", true)]);
        assert_eq!(Rc::strong_count(&target), 1);

        let again = RefCell::new(Vec::new());
        let note = |case| {
            let again = &again;
            step(case, move || {
                again.borrow_mut().push(case);
                Ok(())
            })
        };
        let steps = ["one", "two", "three"].map(note).into();
        let mut folder = RunFolder::open(place.path()).expect("it can be continued");
        let outcome = execute_until(Plan { steps, skipped: vec![] }, &mut folder, || false);
        assert_eq!(outcome.ok(), Some(Outcome::Finished));
        assert_eq!(*again.borrow(), ["two", "three"]);
        assert_eq!(cases(&folder).len(), 3);
    }

    #[test]
    fn what_is_skipped_is_on_record_with_its_reason() {
        let (_place, mut folder) = new_folder();
        let reason = "no zram in this kernel".to_owned();
        let skipped = vec![Skip::new(Suite::Peers, "randread", "zram", &*reason)];
        execute_until(Plan { steps: vec![], skipped }, &mut folder, || false).expect("is done");
        let row = folder.rows().next().expect("it was recorded");
        assert_eq!(row.validity, Validity::Skipped(reason));
    }
}
