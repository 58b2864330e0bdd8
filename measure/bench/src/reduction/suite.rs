//! Options and plan of the suite.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, ensure};
use results::{Row, StoreUse, Suite};
use serde_json::{Value, json};
use system::Interruption;

use super::estimate::{Estimate, estimate};
use super::progress::{Progress, go_on};
use super::source::{Source, Surroundings};
use super::stored::{self, Stored};
use super::tables::{self, ESTIMATE, TARGETS};
use crate::output::{self, Form};
use crate::run::{Cost, Plan, Profile, Session, Skip, Step};
use crate::targets::{Kind, Place, Spec};

const MEMORY_MIB_MIN: u64 = 1;

/// Rates for plans: estimation and storing.
const ESTIMATED_BYTES_PER_S: f64 = 2.5e8;
const STORED_BYTES_PER_S: f64 = 1e8;
const SETTLING_S: f64 = 10.0;

#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub(crate) struct Arguments {
    /// Files, block devices, or volumes of a running daemon (volume:NAME) to read. With --out, they
    /// are also stored on a volume and on zram of the run [default: programs and libraries of this
    /// machine, and generated pages]
    #[arg(value_name = "SOURCE")]
    sources: Vec<Source>,
    /// Directory of the daemon's sockets, for volume:NAME
    #[arg(long, default_value = "/run/memlane", value_name = "DIR")]
    run_dir: PathBuf,
    /// Memory for fingerprints of blocks; larger data is sampled
    #[arg(long, default_value_t = 128, value_name = "MIB")]
    memory_mib: u64,
    /// Amount of programs and libraries to read [default: set by --profile]
    #[arg(long, value_name = "MIB")]
    size_mib: Option<u64>,
}

impl Arguments {
    /// Returns whether sources are given, which are read without a plan.
    pub(crate) fn names_sources(&self) -> bool {
        !self.sources.is_empty()
    }

    fn sources(&self, profile: Profile) -> Vec<Source> {
        if self.names_sources() {
            return self.sources.clone();
        }
        let mib = self.size_mib.unwrap_or(match profile {
            Profile::Quick => 1024,
            Profile::Standard => 1335,
            Profile::Full => 4096,
        });
        vec![Source::Programs { bytes: mib << 20 }, Source::Pages { bytes: mib << 18 }]
    }

    fn check(&self) -> Result<()> {
        let needed = MEMORY_MIB_MIN;
        ensure!(self.memory_mib >= needed, "--memory-mib must be {needed} or more");
        ensure!(self.size_mib.is_none_or(|mib| mib >= 16), "--size-mib must be 16 or more");
        Ok(())
    }

    fn surroundings(&self, seed: u64) -> Surroundings<'_> {
        Surroundings { run_dir: &self.run_dir, seed }
    }
}

/// Estimates sources and prints the results, without a record.
pub(crate) fn run(arguments: &Arguments, seed: u64, form: Form) -> Result<()> {
    arguments.check()?;
    Interruption::listen()?;
    let mut found = Vec::new();
    for source in &arguments.sources {
        let mut opened = source.open(&arguments.surroundings(seed))?;
        let mut progress = Progress::new(source.to_string(), opened.size_bytes());
        let memory_bytes = arguments.memory_mib << 20;
        let estimate = estimate(&mut opened, (memory_bytes, seed), |done| progress.at(done))?;
        found.push((source.to_string(), estimate));
    }
    match form {
        Form::Json => output::json(&found.iter().map(printed).collect::<Vec<_>>()),
        Form::Text => {
            for (source, estimate) in &found {
                output::note(&tables::of_estimate(source, estimate));
            }
        }
    }
    Ok(())
}

fn printed((source, estimate): &(String, Estimate)) -> Value {
    let mut value = serde_json::to_value(estimate).expect("an estimate is plain data");
    if let Value::Object(fields) = &mut value {
        fields.insert("source".to_owned(), json!(source));
    }
    value
}

pub(crate) fn plan<'plan>(
    arguments: &'plan Arguments,
    session: &'plan Session,
) -> Result<Plan<'plan>> {
    arguments.check()?;
    let mut plan = Plan::default();
    for source in arguments.sources(session.profile) {
        let data_bytes = match &source {
            Source::Programs { bytes } | Source::Pages { bytes } => *bytes,
            named => named.open(&arguments.surroundings(session.seed))?.size_bytes(),
        };
        for kind in TARGETS {
            if let Some(reason) = Spec::from(kind.clone()).missing(&place(data_bytes)) {
                let case = source.to_string();
                plan.skipped.push(Skip::new(Suite::Reduction, case, kind, reason));
            }
        }
        let task = Task { arguments, session, source, data_bytes };
        for repeat in 0..session.profile.repeats() {
            plan.steps.push(task.clone().into_estimate(repeat));
            let possible =
                |kind: &Kind| Spec::from(kind.clone()).missing(&place(data_bytes)).is_none();
            for kind in TARGETS.into_iter().filter(possible) {
                plan.steps.push(task.clone().into_stored(kind, repeat));
            }
        }
    }
    Ok(plan)
}

/// Returns a target size in whole mebibytes, slightly above the data size.
fn place(data_bytes: u64) -> Place {
    Place::new((data_bytes + (2 << 20)) >> 20 << 20, None)
}

/// A source to be measured.
#[derive(Clone)]
struct Task<'plan> {
    arguments: &'plan Arguments,
    session: &'plan Session,
    source: Source,
    data_bytes: u64,
}

impl<'plan> Task<'plan> {
    fn into_estimate(self, repeat: u32) -> Step<'plan> {
        Step {
            suite: Suite::Reduction,
            case: self.source.to_string(),
            target: ESTIMATE.to_owned(),
            repeat,
            cost: Cost {
                seconds: self.data_bytes as f64 / ESTIMATED_BYTES_PER_S,
                written_bytes: 0,
                memory_bytes: self.arguments.memory_mib << 20,
            },
            measure: Box::new(move || Ok(vec![self.estimate(repeat)?])),
        }
    }

    fn into_stored(self, kind: Kind, repeat: u32) -> Step<'plan> {
        let spec = Spec::from(kind);
        let place = place(self.data_bytes);
        Step {
            suite: Suite::Reduction,
            case: self.source.to_string(),
            target: spec.to_string(),
            repeat,
            cost: Cost {
                seconds: self.data_bytes as f64 / STORED_BYTES_PER_S + SETTLING_S,
                written_bytes: self.data_bytes,
                memory_bytes: spec.memory_bytes(&place),
            },
            measure: Box::new(move || Ok(vec![self.store(&spec, repeat)?])),
        }
    }

    fn surroundings(&self) -> Surroundings<'plan> {
        self.arguments.surroundings(self.session.seed)
    }

    fn estimate(&self, repeat: u32) -> Result<Row> {
        let begun = Instant::now();
        let mut opened = self.source.open(&self.surroundings())?;
        // A different seed per repeat, so that repeats show the sampling error.
        let seed = self.session.seed + u64::from(repeat);
        let memory_bytes = self.arguments.memory_mib << 20;
        let estimate = estimate(&mut opened, (memory_bytes, seed), |_| go_on())?;
        let mut row = self.row(ESTIMATE, "estimate", repeat);
        row.time.duration_s = begun.elapsed().as_secs_f64();
        let Estimate { data_bytes, used_bytes, .. } = estimate;
        row.store = Some(StoreUse { written_bytes: data_bytes, used_bytes });
        if let Value::Object(fields) = serde_json::to_value(&estimate)? {
            row.figures =
                fields.iter().filter_map(|(k, v)| Some((k.clone(), v.as_f64()?))).collect();
        }
        if estimate.one_in > 1.0 {
            row.flag(format!("one in {} distinct blocks was sampled", estimate.one_in));
        }
        Ok(row)
    }

    fn store(&self, spec: &Spec, repeat: u32) -> Result<Row> {
        let mut opened = self.source.open(&self.surroundings())?;
        let target = spec.open(&place(opened.size_bytes()))?;
        let stored = stored::store(&target, &mut opened)?;
        // A live volume may have changed.
        if !matches!(self.source, Source::Volume(_)) {
            stored::check(&target, &mut self.source.open(&self.surroundings())?)?;
        }
        let mut row = self.row(target.name(), "store", repeat);
        let Stored { written_bytes, used_bytes, .. } = stored;
        row.time.duration_s = stored.writing_s;
        row.store = Some(StoreUse { written_bytes, used_bytes });
        let figures = [
            ("data_bytes", written_bytes as f64),
            ("used_bytes", used_bytes as f64),
            ("used_bytes_first", stored.used_bytes_first as f64),
            ("reduction", written_bytes as f64 / used_bytes.max(1) as f64),
            ("settling_s", stored.settling_s),
        ];
        row.figures = figures.map(|(name, value)| (name.to_owned(), value)).into();
        if !stored.has_settled {
            row.flag("the memory it takes had not settled");
        }
        Ok(row)
    }

    fn row(&self, target: &str, op: &str, repeat: u32) -> Row {
        let mut row = Row::new(Suite::Reduction, self.source.to_string(), target);
        row.repeat = repeat;
        row.add_params([
            ("op", json!(op)),
            ("data", json!(self.source.to_string())),
            ("layout", json!(self.source.layout())),
            ("reduction", json!("full")),
        ]);
        row
    }
}
