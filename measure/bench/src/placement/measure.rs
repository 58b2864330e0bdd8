//! Measurement of one placement: increases the number of users of each workload until saturation.

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, ensure};
use results::placement::{Climb, FAST_USED_BYTES, Next, Placement, Workload};
use results::{Cpu, LatencyKind, REPORTS_PER_MINUTE, Row, Strip, Suite, Validity};
use serde_json::json;
use system::processor_seconds;

use super::engines::{session_settings, temporary_work};
use super::reports::{self, Expected, ReportLoad, Reported};
use super::running_copy::RunningCopy;
use super::tables::case;
use crate::fio_step::{BUSY_FLAG, SETTLING_TIME_LIMIT};
use crate::run::show_part;
use crate::targets::{CpuMeter, Second, VMSTAT_INTERVAL, Vmstat, wait_until_idle};
use crate::tpcc::{
    self, About, Constants, Engine, Load, Measured, Mix, OWN_DRIVER, Pacing, Way, Window,
};

const NOT_LIMITED_TO_SHARE: &str =
    "the server needs more memory than that share of the database: load more warehouses";
const NOT_SETTLED: &str = "the memory it takes had not settled";
const STILL_GROWING: &str = "the rate still grew with the most users that were allowed";

/// Parameters of a placement measurement.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) workloads: Vec<Workload>,
    pub(super) warehouses: u32,
    pub(super) users_max: u32,
    pub(super) mix: Mix,
    pub(super) ramp: Duration,
    pub(super) duration: Duration,
    pub(super) seed: u64,
}

/// Description of the placement in rows.
#[derive(Clone, Debug)]
pub(super) struct Where {
    pub(super) placement: Placement,
    pub(super) target: String,
    pub(super) fast: Option<String>,
    pub(super) slow: String,
    pub(super) repeat: u32,
}

impl Task {
    /// Returns workloads with reports first, because they do not modify the data that orders use.
    fn in_order(&self) -> impl Iterator<Item = Workload> {
        let all = [Workload::Reports, Workload::Orders];
        all.into_iter().filter(|workload| self.workloads.contains(workload))
    }

    /// Returns a row per number of users, and one for the best.
    pub(super) fn measure(&self, running: &RunningCopy, place: &Where) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for workload in self.in_order() {
            let expected = match workload {
                Workload::Orders => None,
                Workload::Reports => {
                    Some(Expected::of(running.engine, &*running.reporting()?, self.warehouses)?)
                }
            };
            let (tried, climb, next) = self.climb(running, place, (workload, expected.as_ref()))?;
            let best = climb.best().and_then(|(users, _)| {
                tried.iter().find(|row| row.params["users"] == json!(users)).cloned()
            });
            rows.extend(tried);
            if let Some(best) = best {
                rows.push(saturated(best, (workload, place), running, next)?);
            }
        }
        for row in &mut rows {
            describe_copy(row, running)?;
        }
        Ok(rows)
    }

    fn climb(
        &self,
        running: &RunningCopy,
        place: &Where,
        (workload, expected): (Workload, Option<&Expected>),
    ) -> Result<(Vec<Row>, Climb, Next)> {
        let (mut climb, mut rows) = (Climb::new(self.users_max), Vec::new());
        loop {
            let users = climb.users();
            show_part(&format!("{}, {users} users", workload.name()));
            let mut row = match expected {
                None => self.orders(running, place, users)?,
                Some(expected) => self.reports(running, (place, users), expected)?,
            };
            name(&mut row, running.engine, (workload, place), &format!("users={users}"));
            row.params.insert("users".to_owned(), json!(users));
            let rate = if row.is_valid() { row.figures[workload.rate()] } else { 0.0 };
            rows.push(row);
            let next = climb.note(rate);
            if !matches!(next, Next::Users(_)) {
                return Ok((rows, climb, next));
            }
        }
    }

    fn orders(&self, running: &RunningCopy, place: &Where, users: u32) -> Result<Row> {
        let load = Load {
            users,
            warehouses: self.warehouses,
            mix: self.mix,
            way: Way::Statements,
            pacing: Pacing::Closed,
            constants: Constants::new(self.seed),
            seed: self.seed.wrapping_add(((u64::from(place.repeat) + 1) << 32) + u64::from(users)),
            warmed: Duration::ZERO,
            ramp: self.ramp,
            duration: self.duration,
        };
        let databases = [running.database()];
        let (measured, watched) = Watched::of(running, || tpcc::drive(&databases, &load))?;
        let about = About {
            engine: running.engine,
            target: place.target.clone(),
            driver: OWN_DRIVER,
            databases: 1,
            durability: running.survives.clone(),
            repeat: place.repeat,
            rate_percent: None,
            seed_of_data: self.seed,
        };
        let mut row = tpcc::row(&about, &load, &measured);
        row.suite = Suite::Placement;
        tpcc::mark_length(&mut row, &load);
        let meter = measured.first().and_then(|Measured { meter, .. }| meter.as_ref());
        if let Some(meter) = meter {
            watched.add_to(&mut row, meter.window(), meter.new_orders_by_second());
        }
        Ok(row)
    }

    fn reports(
        &self,
        running: &RunningCopy,
        (place, users): (&Where, u32),
        expected: &Expected,
    ) -> Result<Row> {
        let Self { warehouses, ramp, duration, .. } = *self;
        let load = ReportLoad { engine: running.engine, users, warehouses, ramp, duration };
        let database = running.reporting()?;
        let (reported, watched) =
            Watched::of(running, || reports::run(&*database, &load, expected))?;
        let Reported { per_minute, window, idle_users, temporary_each, .. } = reported;
        let mut row = Row::new(Suite::Placement, "", &*place.target);
        row.repeat = place.repeat;
        row.time.ramp_s = ramp.as_secs_f64();
        row.time.duration_s = (window.end - window.begin).as_secs_f64();
        row.latency = reported.service.recorded(LatencyKind::Service).ok();
        row.add_figures([
            (REPORTS_PER_MINUTE, per_minute),
            (temporary_work(running.engine).figure, temporary_each),
        ]);
        row.add_params([
            ("engine", json!(running.engine.name())),
            ("warehouses", json!(warehouses)),
            ("loop", json!("closed")),
            ("session_settings", json!(session_settings(running.engine))),
            ("durability", json!(running.survives)),
        ]);
        if idle_users > 0 {
            row.flag("a user completed no report; use more --seconds");
        }
        if !reported.faults.is_empty() {
            row.validity = Validity::Invalid(format!("void: {}", reported.faults.join("; ")));
        } else if per_minute <= 0.0 {
            row.validity = Validity::Invalid("no report was completed in time".to_owned());
        }
        watched.add_to(&mut row, window, &reported.by_second);
        Ok(row)
    }
}

/// Sets the row's name, the same on every target: `orders, logs only, users=4`.
fn name(row: &mut Row, engine: Engine, (workload, place): (Workload, &Where), detail: &str) {
    row.case = case(engine.name(), workload, place.placement, detail);
    row.add_params([
        ("workload_kind", json!(workload.name())),
        ("placement", json!(place.placement.name())),
        ("fast", json!(place.fast)),
        ("slow", json!(place.slow)),
    ]);
}

/// Creates the row of the best number of users, with the space used on fast storage.
fn saturated(
    best: Row,
    (workload, place): (Workload, &Where),
    running: &RunningCopy,
    next: Next,
) -> Result<Row> {
    let mut row = best;
    name(&mut row, running.engine, (workload, place), "saturated");
    let users = row.params["users"].as_f64().unwrap_or(0.0);
    row.figures.insert("users_at_best".to_owned(), users);
    // The number of users may differ between repeats of the case.
    row.params.remove("users");
    if next == Next::Limited {
        row.flag(STILL_GROWING);
    }
    if let Some((bytes, has_settled)) = running.fast_used_bytes()? {
        if !has_settled {
            row.flag(NOT_SETTLED);
        }
        row.figures.insert(FAST_USED_BYTES.to_owned(), bytes as f64);
    }
    Ok(row)
}

fn describe_copy(row: &mut Row, running: &RunningCopy) -> Result<()> {
    row.figures.insert("database_bytes".to_owned(), running.database_bytes as f64);
    row.params.insert("server_settings".to_owned(), json!(running.settings));
    if let Some(reason) = running.unlimited() {
        if row.is_valid() {
            row.validity = Validity::Invalid(format!("a cache may replace storage: {reason}"));
        }
        return Ok(());
    }
    if let Some(group) = running.group() {
        row.params.insert("memory_limited_by".to_owned(), json!(group.backend().to_string()));
        let kills = group.kills()?;
        if kills > 0 && row.is_valid() {
            let reason = format!(
                "{kills} processes of the server were killed by the OOM killer: \
                                  too little memory"
            );
            row.validity = Validity::Invalid(reason);
        }
    }
    row.figures.insert("memory_limit_bytes".to_owned(), running.limit.bytes as f64);
    if running.limit.is_least {
        row.flag(NOT_LIMITED_TO_SHARE);
    }
    Ok(())
}

/// Activity of the machine during a run.
struct Watched {
    seconds: Vec<Second>,
    cpu: Cpu,
    limit_hits: Option<u64>,
    started_unix_ms: u64,
    was_quiet: bool,
}

impl Watched {
    fn of<T>(running: &RunningCopy, run: impl FnOnce() -> Result<T>) -> Result<(T, Self)> {
        running.settle()?;
        let was_quiet = wait_until_idle(SETTLING_TIME_LIMIT)?;
        let started_unix_ms = crate::run::unix_ms(SystemTime::now());
        let hits = || running.group().map(|group| group.limit_hits()).transpose();
        let hits_before = hits()?;
        let meter = CpuMeter::start(&running.server_ids())?;
        let own_before_s = processor_seconds(std::process::id())?;
        let vmstat = Vmstat::start()?;
        let ran = run()?;
        let seconds = vmstat.finish()?;
        let own_s = processor_seconds(std::process::id())? - own_before_s;
        let (cpu, _) = meter.finish()?;
        let cpu = Cpu { generator_s: cpu.generator_s + own_s, ..cpu };
        let limit_hits = hits()?.zip(hits_before).map(|(after, before)| after - before);
        ensure!(running.host.id().is_some(), "the server has exited");
        Ok((ran, Self { seconds, cpu, limit_hits, started_unix_ms, was_quiet }))
    }

    fn add_to(&self, row: &mut Row, window: Window, by_second: &[u64]) {
        row.cpu = Some(self.cpu);
        row.time.started_unix_ms = self.started_unix_ms;
        if !self.was_quiet {
            row.flag(BUSY_FLAG);
        }
        if let Some(hits) = self.limit_hits {
            row.figures.insert("memory_limit_hits".to_owned(), hits as f64);
        }
        row.strips = strips(&self.seconds, (window.begin, window.end), by_second);
    }
}

type Column = fn(&Second) -> f64;

/// Returns time series of vmstat's columns and of the rate during the measured time.
fn strips(seconds: &[Second], (begin, end): (Instant, Instant), by_second: &[u64]) -> Vec<Strip> {
    // A second is included if its middle is.
    let is_in = |second: &&Second| {
        let middle = second.end - VMSTAT_INTERVAL / 2;
        middle >= begin && middle < end
    };
    let seconds: Vec<&Second> = seconds.iter().filter(is_in).collect();
    let columns: [(&str, Column); 9] = [
        ("user_share", |it| it.user),
        ("system_share", |it| it.system),
        ("io_wait_share", |it| it.io_wait),
        ("idle_share", |it| it.idle),
        ("steal_share", |it| it.steal),
        ("in_bytes_per_s", |it| it.in_bytes_per_s),
        ("out_bytes_per_s", |it| it.out_bytes_per_s),
        ("running", |it| it.running),
        ("blocked", |it| it.blocked),
    ];
    let interval_ms = u64::try_from(VMSTAT_INTERVAL.as_millis()).expect("it is a second");
    let strip = |name: &str, values: Vec<f64>| Strip { name: name.to_owned(), interval_ms, values };
    let mut strips: Vec<Strip> = columns
        .iter()
        .map(|(name, of)| strip(name, seconds.iter().map(|it| of(it)).collect()))
        .collect();
    let per_minute = by_second.iter().map(|count| *count as f64 * 60.0).collect();
    strips.push(strip("rate_per_minute", per_minute));
    strips
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn strips_begin_with_the_measured_time() {
        let start = Instant::now();
        let second = |number: u32| Second {
            end: start + number * S,
            user: f64::from(number),
            system: 0.0,
            io_wait: 0.0,
            idle: 0.0,
            steal: 0.0,
            in_bytes_per_s: 0.0,
            out_bytes_per_s: 0.0,
            running: 0.0,
            blocked: 0.0,
        };
        let seconds: Vec<Second> = (1..=8).map(second).collect();
        let window = (start + 2 * S + S / 4, start + 5 * S + S / 4);
        let strips = strips(&seconds, window, &[1, 0, 2]);
        assert_eq!(strips[0].name, "user_share");
        assert_eq!(strips[0].values, [3.0, 4.0, 5.0]);
        let rate = strips.last().expect("there are ten");
        assert_eq!((rate.name.as_str(), rate.interval_ms), ("rate_per_minute", 1_000));
        assert_eq!(rate.values, [60.0, 0.0, 120.0]);
    }
}
