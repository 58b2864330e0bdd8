//! Meaning of cycles per I/O for servers with more cores than were measured.
//!
//! *cpio* is CPU cycles per I/O of 512 bytes at the block device: processor time of the whole
//! machine, idle and waiting time left out, times a fixed frequency, over sectors moved. The method
//! is that of Akram, Marazakis and Bilas, "Understanding scalability and performance requirements
//! of I/O intensive applications on future multicore servers" (MASCOTS 2012). Formulas only: no
//! files, no clock.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::row::{CPIO_CYCLES, Row, Suite};
use crate::statistics::median;

/// Figures of a row that a projection is made of, beside its cycles.
pub const UTILISATION_SHARE: &str = "utilisation_share";
pub const FREQUENCY_HZ: &str = "frequency_hz";

/// Parameters of such a row.
pub const APPLICATION: &str = "application";
pub const CORES: &str = "cores";

pub const IO_BYTES: f64 = 512.0;
const SECONDS_PER_HOUR: f64 = 3600.0;
const HOURS_PER_YEAR: f64 = 8760.0;

/// Growth of an I/O's cycles with cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scenario {
    /// They stay what they were with one core.
    Desired,
    /// They stay what they were with the most cores measured.
    Today,
    /// They go on growing with each core.
    Projected,
}

impl Scenario {
    pub const ALL: [Self; 3] = [Self::Desired, Self::Today, Self::Projected];

    pub fn name(self) -> &'static str {
        match self {
            Self::Desired => "desired",
            Self::Today => "today",
            Self::Projected => "projected",
        }
    }
}

/// Utilization of the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// As measured with the most cores, or a share that was assumed.
    Low,
    High,
}

impl Load {
    pub const ALL: [Self; 2] = [Self::Low, Self::High];

    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::High => "high",
        }
    }
}

/// Method by which the growth for each core is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fit {
    /// A line through the fewest and the most cores.
    Ends,
    /// The slope of least squares over all measured cores.
    LeastSquares,
}

/// Assumptions that were not measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Assumptions {
    /// Cycles of one core in a second; the same that the cycles were counted with.
    pub frequency_hz: f64,
    pub watts_per_core: f64,
    /// Data that is passed over once.
    pub data_bytes: f64,
    /// Within so many years.
    pub years: f64,
    /// In place of what was measured.
    pub low_utilisation: Option<f64>,
    pub high_utilisation: f64,
    pub fit: Fit,
}

/// One measurement: so many cores, cycles for each I/O, and the share of the time they worked.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    pub cores: u32,
    pub cycles: f64,
    pub utilisation: f64,
}

/// Cycles of an I/O that grow by as much with each core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    pub of_one_core: f64,
    pub growth: f64,
}

impl Line {
    pub fn cycles(self, cores: u32) -> f64 {
        self.of_one_core + self.growth * (f64::from(cores) - 1.0)
    }
}

/// An application over numbers of cores.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sweep {
    application: String,
    points: Vec<Point>,
}

impl Sweep {
    /// `None` without a point that can be used: cycles above zero, utilisation in (0, 1].
    pub fn new(application: impl Into<String>, mut points: Vec<Point>) -> Option<Self> {
        points.retain(|point| {
            let is_share = point.utilisation > 0.0 && point.utilisation <= 1.0;
            point.cores > 0 && point.cycles.is_finite() && point.cycles > 0.0 && is_share
        });
        points.sort_by_key(|point| point.cores);
        points.dedup_by_key(|point| point.cores);
        (!points.is_empty()).then(|| Self { application: application.into(), points })
    }

    pub fn application(&self) -> &str {
        &self.application
    }

    /// By cores, fewest first.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    fn most_cores(&self) -> &Point {
        self.points.last().expect("a sweep has a point")
    }

    fn one_core(&self) -> Option<&Point> {
        self.points.first().filter(|point| point.cores == 1)
    }

    /// Cycles of an I/O by cores. `None` where the scenario starts from one core, or grows with
    /// cores, and that was not measured.
    pub fn line(&self, scenario: Scenario, fit: Fit) -> Option<Line> {
        match scenario {
            Scenario::Today => Some(Line { of_one_core: self.most_cores().cycles, growth: 0.0 }),
            Scenario::Desired => Some(Line { of_one_core: self.one_core()?.cycles, growth: 0.0 }),
            Scenario::Projected => {
                let of_one_core = self.one_core()?.cycles;
                Some(Line { of_one_core, growth: self.growth(fit)?.max(0.0) })
            }
        }
    }

    /// Cycles that each further core adds; `None` where only one number of cores was measured.
    fn growth(&self, fit: Fit) -> Option<f64> {
        let (first, last) = (self.points.first()?, self.points.last()?);
        if first.cores == last.cores {
            return None;
        }
        Some(match fit {
            Fit::Ends => {
                (last.cycles - first.cycles) / (f64::from(last.cores) - f64::from(first.cores))
            }
            Fit::LeastSquares => slope(&self.points),
        })
    }

    /// The share of the time that the most cores worked.
    pub fn measured_utilisation(&self) -> f64 {
        self.most_cores().utilisation
    }

    fn utilisation(&self, load: Load, assumptions: &Assumptions) -> f64 {
        match load {
            Load::High => assumptions.high_utilisation,
            Load::Low => assumptions.low_utilisation.unwrap_or(self.measured_utilisation()),
        }
    }
}

fn slope(points: &[Point]) -> f64 {
    let count = points.len() as f64;
    let cores_mean = points.iter().map(|point| f64::from(point.cores)).sum::<f64>() / count;
    let cycles_mean = points.iter().map(|point| point.cycles).sum::<f64>() / count;
    let (mut together, mut squares) = (0.0, 0.0);
    for point in points {
        let distance = f64::from(point.cores) - cores_mean;
        together += distance * (point.cycles - cycles_mean);
        squares += distance * distance;
    }
    together / squares
}

/// I/Os of 512 bytes that a server does in a second.
pub fn iops(cores: u32, frequency_hz: f64, cycles: f64, utilisation: f64) -> f64 {
    f64::from(cores) * frequency_hz * utilisation / cycles
}

/// Hours for which one server is busy with a pass over the data.
pub fn busy_server_hours(data_bytes: f64, cores: u32, frequency_hz: f64, cycles: f64) -> f64 {
    data_bytes / IO_BYTES / iops(cores, frequency_hz, cycles, 1.0) / SECONDS_PER_HOUR
}

/// Billions of kWh. Idle servers take nothing, so that only busy hours count.
pub fn energy_billion_kwh(busy_server_hours: f64, server_watts: f64) -> f64 {
    busy_server_hours * server_watts / 1000.0 / 1e9
}

/// Subject of a figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    Application(String),
    /// The arithmetic mean of the applications' I/Os per second.
    MeanOfIops,
    /// What follows from the arithmetic mean of the applications' cycles per I/O.
    MeanOfCycles,
}

/// One cell: a server of so many cores in one scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Projection {
    pub of: Of,
    pub cores: u32,
    pub scenario: Scenario,
    pub load: Load,
    /// Effective cycles of an I/O are these over the utilisation.
    pub cycles: f64,
    pub utilisation: f64,
    pub iops: f64,
    pub bytes_per_s: f64,
    /// That pass over the data within the years.
    pub servers: f64,
    /// Energy of the pass.
    pub energy_billion_kwh: f64,
}

/// Every application and both means, by cores, scenario and load. A scenario for which an
/// application lacks measurements has no cell of it, and means are over the others.
pub fn project(sweeps: &[Sweep], cores: &[u32], assumptions: &Assumptions) -> Vec<Projection> {
    let mut cells = Vec::new();
    for &cores in cores {
        for scenario in Scenario::ALL {
            for load in Load::ALL {
                let of_each = sweeps.iter().filter_map(|sweep| {
                    let cycles = sweep.line(scenario, assumptions.fit)?.cycles(cores);
                    let utilisation = sweep.utilisation(load, assumptions);
                    let of = Of::Application(sweep.application.clone());
                    Some(Work { cycles, utilisation }.on((of, cores, scenario, load), assumptions))
                });
                let of_each: Vec<Projection> = of_each.collect();
                let means = means(&of_each, assumptions);
                cells.extend(of_each);
                cells.extend(means);
            }
        }
    }
    cells
}

struct Work {
    cycles: f64,
    utilisation: f64,
}

impl Work {
    fn on(
        &self,
        (of, cores, scenario, load): (Of, u32, Scenario, Load),
        assumptions: &Assumptions,
    ) -> Projection {
        let iops = iops(cores, assumptions.frequency_hz, self.cycles, self.utilisation);
        let hours =
            busy_server_hours(assumptions.data_bytes, cores, assumptions.frequency_hz, self.cycles);
        let server_watts = assumptions.watts_per_core * f64::from(cores);
        Projection {
            of,
            cores,
            scenario,
            load,
            cycles: self.cycles,
            utilisation: self.utilisation,
            iops,
            bytes_per_s: iops * IO_BYTES,
            servers: hours / self.utilisation / HOURS_PER_YEAR / assumptions.years,
            energy_billion_kwh: energy_billion_kwh(hours, server_watts),
        }
    }
}

/// Both means of cells that have cores, scenario and load in common.
fn means(cells: &[Projection], assumptions: &Assumptions) -> Vec<Projection> {
    let Some(first) = cells.first() else { return Vec::new() };
    let count = cells.len() as f64;
    let mean = |value: fn(&Projection) -> f64| cells.iter().map(value).sum::<f64>() / count;
    let place = |of| (of, first.cores, first.scenario, first.load);
    // Each application runs for as long as the others: the harmonic mean of their cycles.
    let cycles = 1.0 / mean(|cell| 1.0 / cell.cycles);
    let same_time =
        Work { cycles, utilisation: cycles * mean(|cell| cell.utilisation / cell.cycles) };
    // Each application does as many I/Os as the others.
    let cycles = mean(|cell| cell.cycles);
    let same_ios =
        Work { cycles, utilisation: cycles / mean(|cell| cell.cycles / cell.utilisation) };
    vec![
        same_time.on(place(Of::MeanOfIops), assumptions),
        same_ios.on(place(Of::MeanOfCycles), assumptions),
    ]
}

/// Measurements on one target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    pub target: String,
    /// The frequency that the cycles were counted with.
    pub frequency_hz: f64,
    pub sweeps: Vec<Sweep>,
}

/// The valid measurements of cycles per I/O, medians of repeats, target by target in the order of
/// the record.
pub fn measured<'row>(rows: impl IntoIterator<Item = &'row Row>) -> Vec<Measured> {
    let mut targets: Vec<(&str, Applications)> = Vec::new();
    for row in rows.into_iter().filter(|row| row.suite == Suite::Cpio && row.is_valid()) {
        let figure = |name: &str| row.figures.get(name).copied();
        let application = row.params.get(APPLICATION).and_then(|it| it.as_str());
        let cores = row.params.get(CORES).and_then(|it| u32::try_from(it.as_u64()?).ok());
        let measured = (figure(CPIO_CYCLES), figure(UTILISATION_SHARE), figure(FREQUENCY_HZ));
        let (Some(application), Some(cores), (Some(cycles), Some(share), Some(frequency_hz))) =
            (application, cores, measured)
        else {
            continue;
        };
        let place = targets.iter().position(|(target, _)| *target == row.target);
        let place = place.unwrap_or_else(|| {
            targets.push((&row.target, Applications { frequency_hz, repeats: BTreeMap::new() }));
            targets.len() - 1
        });
        let by_cores = targets[place].1.repeats.entry(application).or_default();
        by_cores.entry(cores).or_default().push((cycles, share));
    }
    targets.into_iter().map(|(target, applications)| applications.measured(target)).collect()
}

/// Cycles and utilisation of each repeat, by cores.
type Repeats = BTreeMap<u32, Vec<(f64, f64)>>;

struct Applications<'row> {
    frequency_hz: f64,
    repeats: BTreeMap<&'row str, Repeats>,
}

impl Applications<'_> {
    fn measured(self, target: &str) -> Measured {
        let sweep = |(application, by_cores): (&str, Repeats)| {
            let points = by_cores.into_iter().filter_map(|(cores, repeats)| {
                let cycles: Vec<f64> = repeats.iter().map(|it| it.0).collect();
                let shares: Vec<f64> = repeats.iter().map(|it| it.1).collect();
                let (cycles, utilisation) = (median(&cycles)?, median(&shares)?);
                Some(Point { cores, cycles, utilisation })
            });
            Sweep::new(application, points.collect())
        };
        Measured {
            target: target.to_owned(),
            frequency_hz: self.frequency_hz,
            sweeps: self.repeats.into_iter().filter_map(sweep).collect(),
        }
    }
}
