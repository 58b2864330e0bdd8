//! Starts a new or resumed run from the command line.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use results::{Manifest, Row, RunFolder, SCHEMA, Suite, Tool};
use serde::Serialize;
use serde_json::{Value, json};
use system::Interruption;

use super::alone::Alone;
use super::execute::{Outcome, execute, unix_ms};
use super::progress::duration_text;
use super::{Options, Plan, Session, Skip, host, probes, skips_text};
use crate::output::{self, Form, bytes_text};

/// Exit code for termination by Ctrl-C, by shell convention.
pub(crate) const INTERRUPTED_EXIT_CODE: u8 = 130;

/// A suite with its arguments.
pub(crate) struct Chosen<Arguments> {
    pub(crate) suite: Suite,
    pub(crate) arguments: Arguments,
    pub(crate) plan: for<'plan> fn(&'plan Arguments, &'plan Session) -> Result<Plan<'plan>>,
    /// Formats the suite's rows as tables in the papers' layout.
    pub(crate) describe: fn(&[&Row]) -> String,
}

/// A runnable suite with any type of arguments.
pub(crate) trait PlannedSuite {
    fn suite(&self) -> Suite;
    fn configuration(&self) -> Value;
    fn plan<'plan>(&'plan self, session: &'plan Session) -> Result<Plan<'plan>>;
    fn describe(&self, rows: &[&Row]) -> String;
}

impl<Arguments: Serialize> PlannedSuite for Chosen<Arguments> {
    fn suite(&self) -> Suite {
        self.suite
    }

    fn configuration(&self) -> Value {
        serde_json::to_value(&self.arguments).expect("arguments are plain data")
    }

    fn plan<'plan>(&'plan self, session: &'plan Session) -> Result<Plan<'plan>> {
        (self.plan)(&self.arguments, session)
    }

    fn describe(&self, rows: &[&Row]) -> String {
        (self.describe)(rows)
    }
}

/// Plans the run, then performs or shows it.
pub(crate) fn start(
    options: &Options,
    suites: &[Box<dyn PlannedSuite>],
    form: Form,
) -> Result<ExitCode> {
    let out = match &options.out {
        Some(out) => out.clone(),
        None => PathBuf::from(format!("memlane-bench-{}", utc_stamp(SystemTime::now()))),
    };
    let session = Session::new(options, out.join("raw"));
    let plan = plan_all(suites, &session)?;
    if options.dry_run {
        say_what_would_be_done(&plan, &session, form);
        return Ok(ExitCode::SUCCESS);
    }
    guard_memory(&plan, &session)?;
    let _alone = Alone::take(&Alone::path())?;
    let configuration = configuration(options, suites);
    let mut folder = match options.resume {
        true => resumed(&out, &configuration)?,
        false => RunFolder::create(&out, manifest(options, configuration))?,
    };
    Interruption::listen()?;
    let outcome = execute(plan, &mut folder)?;
    report(&folder, suites, form);
    Ok(match outcome {
        Outcome::Finished => ExitCode::SUCCESS,
        Outcome::Interrupted => {
            let path = folder.path().display();
            output::progress(&format!("interrupted; continue with --resume --out {path}"));
            ExitCode::from(INTERRUPTED_EXIT_CODE)
        }
    })
}

/// Plans the suites in sequence. With several suites, one that cannot be planned is recorded as
/// skipped.
fn plan_all<'plan>(
    suites: &'plan [Box<dyn PlannedSuite>],
    session: &'plan Session,
) -> Result<Plan<'plan>> {
    let mut plan = Plan::default();
    for suite in suites {
        let name = suite.suite().name();
        let part = suite.plan(session).with_context(|| format!("cannot plan {name}"));
        match part {
            Ok(part) => {
                plan.steps.extend(part.steps);
                plan.skipped.extend(part.skipped);
            }
            Err(error) if suites.len() > 1 => {
                let reason = format!("{error:#}");
                plan.skipped.push(Skip::new(suite.suite(), "all cases", "all targets", reason));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(plan)
}

fn report(folder: &RunFolder, suites: &[Box<dyn PlannedSuite>], form: Form) {
    let rows: Vec<&Row> = folder.rows().collect();
    if form == Form::Json {
        output::json(&rows);
        return;
    }
    for suite in suites {
        let own: Vec<&Row> =
            rows.iter().copied().filter(|row| row.suite == suite.suite()).collect();
        if !own.is_empty() {
            output::note(&suite.describe(&own));
        }
    }
    output::note(&format!("recorded in {}", folder.path().display()));
}

fn configuration(options: &Options, suites: &[Box<dyn PlannedSuite>]) -> Value {
    let told: serde_json::Map<String, Value> = suites
        .iter()
        .map(|suite| (suite.suite().name().to_owned(), suite.configuration()))
        .collect();
    json!({
        "profile": options.profile(),
        "seed": options.seed,
        "destroy": options.destroy,
        "suites": told,
    })
}

fn manifest(options: &Options, configuration: Value) -> Manifest {
    let started = unix_ms(SystemTime::now());
    Manifest {
        schema: SCHEMA.to_owned(),
        id: format!("{started:x}-{:x}", std::process::id()),
        started_unix_ms: started,
        tool: Tool {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: option_env!("MEMLANE_COMMIT").map(str::to_owned),
        },
        host: host::describe(),
        probes: probes::probe(),
        profile: options.profile().name().to_owned(),
        seed: options.seed,
        configuration,
        command_line: std::env::args().collect(),
    }
}

/// Opens a run with the same configuration.
fn resumed(out: &std::path::Path, configuration: &Value) -> Result<RunFolder> {
    let folder = RunFolder::open(out)?;
    let earlier = &folder.manifest().configuration;
    ensure!(
        earlier == configuration,
        "{} was started with another configuration: {earlier}, now {configuration}; use a new \
         directory",
        out.display()
    );
    let (then, now) = (&folder.manifest().host, host::describe());
    ensure!(
        then.cpu == now.cpu && then.kernel == now.kernel && then.cores == now.cores,
        "{} was started on another machine: {} cores of {} with kernel {}",
        out.display(),
        then.cores,
        then.cpu,
        then.kernel
    );
    Ok(folder)
}

fn guard_memory(plan: &Plan, session: &Session) -> Result<()> {
    let (needed, available) = (plan.cost().memory_bytes, session.memory_available_bytes);
    ensure!(
        needed <= available,
        "not enough memory: the plan needs {}, and {} are available; use fewer or smaller cases, \
         or free memory",
        bytes_text(needed),
        bytes_text(available)
    );
    Ok(())
}

fn say_what_would_be_done(plan: &Plan, session: &Session, form: Form) {
    let cost = plan.cost();
    if form == Form::Json {
        let steps: Vec<_> = plan.steps.iter().map(super::Step::key).collect();
        output::json(&json!({
            "steps": steps,
            "seconds": cost.seconds,
            "written_bytes": cost.written_bytes,
            "memory_bytes": cost.memory_bytes,
            "memory_available_bytes": session.memory_available_bytes,
            "skipped": plan.skipped,
        }));
        return;
    }
    output::note(&format!(
        "{} steps, about {}, {} written, {} of memory at most ({} available)",
        plan.steps.len(),
        duration_text(cost.seconds),
        bytes_text(cost.written_bytes),
        bytes_text(cost.memory_bytes),
        bytes_text(session.memory_available_bytes)
    ));
    for line in skips_text(&plan.skipped) {
        output::note(&line);
    }
}

/// Formats `20260131-235959`.
fn utc_stamp(time: SystemTime) -> String {
    let text = humantime::format_rfc3339_seconds(time).to_string();
    text.replace(['-', ':', 'Z'], "").replace('T', "-")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn folders_are_named_by_date_and_time() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_769_903_999);
        assert_eq!(utc_stamp(time), "20260131-235959");
    }
}
