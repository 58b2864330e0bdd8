//! Projection of cycles per I/O to servers with more cores than measured.
//!
//! *cpio* is CPU cycles per I/O of 512 bytes at the block device: processor time of the whole
//! machine, without idle and I/O wait time, times a fixed frequency, divided by sectors
//! transferred. The method is that of Akram, Marazakis and Bilas, "Understanding scalability and
//! performance requirements of I/O intensive applications on future multicore servers" (MASCOTS
//! 2012). This module contains only formulas, without files or clocks.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::row::{CPIO_CYCLES, Row, Suite};
use crate::statistics::median;

/// Figures of a row that a projection needs, besides cycles.
pub const UTILISATION_SHARE: &str = "utilisation_share";
pub const FREQUENCY_HZ: &str = "frequency_hz";

/// Parameters of such a row.
pub const APPLICATION: &str = "application";
pub const CORES: &str = "cores";

pub const IO_BYTES: f64 = 512.0;
const SECONDS_PER_HOUR: f64 = 3600.0;
const HOURS_PER_YEAR: f64 = 8760.0;

/// Assumption on how cycles per I/O grow with cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scenario {
    /// Constant, as measured with one core.
    Desired,
    /// Constant, as measured with the most cores.
    Today,
    /// Growing linearly with each core.
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
    /// The value measured with the most cores, or an assumed share.
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

/// Method for fitting the growth per core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fit {
    /// Line through the fewest and the most cores.
    Ends,
    /// Least-squares slope over all measured core counts.
    LeastSquares,
}

/// Unmeasured assumptions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Assumptions {
    /// Clock frequency of a core. Must be the one with which cycles were computed.
    pub frequency_hz: f64,
    pub watts_per_core: f64,
    /// Amount of data to be processed once.
    pub data_bytes: f64,
    /// Time limit for that, in years.
    pub years: f64,
    /// Overrides the measured utilisation.
    pub low_utilisation: Option<f64>,
    pub high_utilisation: f64,
    pub fit: Fit,
}

/// A measurement for one core count: cycles per I/O and utilisation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    pub cores: u32,
    pub cycles: f64,
    pub utilisation: f64,
}

/// Cycles per I/O as a linear function of cores.
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

/// Measurements of an application over core counts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sweep {
    application: String,
    points: Vec<Point>,
}

impl Sweep {
    /// Creates a sweep. Returns `None` if no point is usable: cycles above zero, utilisation in (0,
    /// 1].
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

    /// Returns the points in ascending order of cores.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    fn most_cores(&self) -> &Point {
        self.points.last().expect("a sweep has a point")
    }

    fn one_core(&self) -> Option<&Point> {
        self.points.first().filter(|point| point.cores == 1)
    }

    /// Returns cycles per I/O as a function of cores. Returns `None` if the scenario needs a
    /// measurement with one core, or with several core counts, and there is none.
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

    /// Returns the additional cycles per core, or `None` if only one core count was measured.
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

    /// Returns the utilisation measured with the most cores.
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

/// Returns the I/Os of 512 bytes per second of a server.
pub fn iops(cores: u32, frequency_hz: f64, cycles: f64, utilisation: f64) -> f64 {
    f64::from(cores) * frequency_hz * utilisation / cycles
}

/// Returns the busy server hours for one pass over the data.
pub fn busy_server_hours(data_bytes: f64, cores: u32, frequency_hz: f64, cycles: f64) -> f64 {
    data_bytes / IO_BYTES / iops(cores, frequency_hz, cycles, 1.0) / SECONDS_PER_HOUR
}

/// Returns the energy in billions of kWh. Idle servers are assumed to consume nothing, so only busy
/// hours count.
pub fn energy_billion_kwh(busy_server_hours: f64, server_watts: f64) -> f64 {
    busy_server_hours * server_watts / 1000.0 / 1e9
}

/// Subject of a projection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    Application(String),
    /// Arithmetic mean of the applications' I/Os per second.
    MeanOfIops,
    /// Value derived from the arithmetic mean of the applications' cycles per I/O.
    MeanOfCycles,
}

/// Projection for one server size, scenario and load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Projection {
    pub of: Of,
    pub cores: u32,
    pub scenario: Scenario,
    pub load: Load,
    /// Cycles per I/O. Effective cycles are these divided by the utilisation.
    pub cycles: f64,
    pub utilisation: f64,
    pub iops: f64,
    pub bytes_per_s: f64,
    /// Number of servers needed to process the data within the time limit.
    pub servers: f64,
    /// Energy to process the data.
    pub energy_billion_kwh: f64,
}

/// Projects every application and both means, by cores, scenario and load. If an application lacks
/// measurements for a scenario, its cell is omitted, and means are over the others.
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

/// Computes both means of cells with the same cores, scenario and load.
fn means(cells: &[Projection], assumptions: &Assumptions) -> Vec<Projection> {
    let Some(first) = cells.first() else { return Vec::new() };
    let count = cells.len() as f64;
    let mean = |value: fn(&Projection) -> f64| cells.iter().map(value).sum::<f64>() / count;
    let place = |of| (of, first.cores, first.scenario, first.load);
    // Each application runs for the same time: harmonic mean of their cycles.
    let cycles = 1.0 / mean(|cell| 1.0 / cell.cycles);
    let same_time =
        Work { cycles, utilisation: cycles * mean(|cell| cell.utilisation / cell.cycles) };
    // Each application does the same number of I/Os.
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
    /// Frequency with which cycles were computed.
    pub frequency_hz: f64,
    pub sweeps: Vec<Sweep>,
}

/// Returns the valid cpio measurements, as medians of repeats, by target in recorded order.
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
