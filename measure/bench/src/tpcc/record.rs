//! Conversion of measurements to rows.

use results::{LatencyKind, NOPM, Row, Suite, Validity};
use serde_json::json;

use super::database::Engine;
use super::drive::{Load, Measured, Pacing};
use super::input::Kind;
use super::meter::Tally;
use crate::latency::Latencies;

/// Name of our own driver in rows.
pub(crate) const OWN_DRIVER: &str = "own";

/// Parameters of a row besides its figures.
pub(crate) struct About {
    pub(crate) engine: Engine,
    pub(crate) target: String,
    pub(crate) driver: &'static str,
    pub(crate) databases: usize,
    pub(crate) durability: String,
    pub(crate) repeat: u32,
    /// Percentage of the maximum rate, in an open loop.
    pub(crate) rate_percent: Option<u32>,
    pub(crate) seed_of_data: u64,
}

/// Formats `hammerdb closed warehouses=10 users=4`.
pub(crate) fn case_name(load: &Load, about: &About) -> String {
    let pacing = match (load.pacing, about.rate_percent) {
        (Pacing::Closed, _) => "closed".to_owned(),
        (Pacing::Thinking, _) => "thinking".to_owned(),
        (Pacing::Open { .. }, percent) => format!("open {} %", percent.unwrap_or(100)),
    };
    let mix = load.mix.name();
    let mut name = format!("{mix} {pacing} warehouses={} users={}", load.warehouses, load.users);
    if about.databases > 1 {
        name += &format!(" databases={}", about.databases);
    }
    if about.engine != Engine::Postgresql {
        name += &format!(" engine={}", about.engine.name());
    }
    if about.driver != OWN_DRIVER {
        name += &format!(" driver={}", about.driver);
    }
    name
}

/// Creates one row for databases that ran together: their sum, and their spread.
pub(crate) fn row(about: &About, load: &Load, measured: &[Measured]) -> Row {
    let mut row = Row::new(Suite::Tpcc, case_name(load, about), &*about.target);
    row.repeat = about.repeat;
    row.time.ramp_s = load.ramp.as_secs_f64();
    row.time.duration_s = measured.first().map_or(0.0, |it| it.window_s);
    let loop_name = match load.pacing {
        Pacing::Closed => "closed",
        Pacing::Thinking => "thinking",
        Pacing::Open { .. } => "open",
    };
    row.add_params([
        ("workload", json!("TPC-C-derived")),
        ("mix", json!(load.mix.name())),
        ("loop", json!(loop_name)),
        ("warehouses", json!(load.warehouses)),
        ("users", json!(load.users)),
        ("databases", json!(about.databases)),
        ("driver", json!(about.driver)),
        ("engine", json!(about.engine.name())),
        ("transactions_by", json!(load.way.name())),
        ("isolation", json!(about.engine.isolation())),
        ("tpm_counter", json!(about.engine.transaction_counter())),
        ("database_process", json!(about.engine.process())),
        ("rate_percent", json!(about.rate_percent)),
        (
            "constants",
            json!({
                "last_name_at_load": load.constants.last_name_at_load,
                "last_name_at_run": load.constants.last_name_at_run,
                "customer": load.constants.customer,
                "item": load.constants.item,
            }),
        ),
        ("data_seed", json!(about.seed_of_data)),
        ("seed", json!(load.seed)),
        ("durability", json!(about.durability)),
    ]);
    add_rates(&mut row, measured);
    add_latencies(&mut row, load, measured);
    if let Some(reason) = void_because(measured) {
        row.validity = Validity::Invalid(reason);
    }
    row
}

fn add_rates(row: &mut Row, measured: &[Measured]) {
    let each: Vec<f64> = measured.iter().map(|it| it.nopm).collect();
    let least = each.iter().copied().fold(f64::INFINITY, f64::min);
    let most = each.iter().copied().fold(0.0, f64::max);
    let by_database: i64 = measured.iter().map(|it| it.new_orders.by_database).sum();
    let mut figures = vec![
        (NOPM, each.iter().sum()),
        ("nopm_least", least),
        ("nopm_most", most),
        ("tpm", measured.iter().map(|it| it.tpm).sum()),
        ("new_orders_by_database", by_database as f64),
    ];
    let by_driver: Option<Vec<u64>> = measured.iter().map(|it| it.new_orders.by_driver).collect();
    if let Some(by_driver) = by_driver {
        figures.push(("new_orders_by_driver", by_driver.iter().sum::<u64>() as f64));
        figures.push(("missed", measured.iter().map(|it| it.missed).sum::<u64>() as f64));
    }
    row.add_figures(figures);
}

fn add_latencies(row: &mut Row, load: &Load, measured: &[Measured]) {
    let meters: Vec<_> = measured.iter().filter_map(|it| it.meter.as_ref()).collect();
    if meters.is_empty() {
        return;
    }
    for kind in Kind::ALL {
        let mut service = Latencies::new();
        let mut intended = Latencies::new();
        let tallies: Vec<&Tally> = meters.iter().map(|meter| meter.of(kind)).collect();
        for tally in &tallies {
            service.add(&tally.service);
            intended.add(&tally.intended);
        }
        let name = kind.name();
        let sum = |of: fn(&Tally) -> u64| tallies.iter().map(|it| of(it)).sum::<u64>() as f64;
        let counts = [
            ("committed", sum(|it| it.committed)),
            ("rolled_back", sum(|it| it.rolled_back)),
            ("retries", sum(|it| it.retries)),
        ];
        row.figures.extend(counts.map(|(what, count)| (format!("{name}_{what}"), count)));
        add_quantiles(row, &format!("{name}_service_ns"), &service);
        add_quantiles(row, &format!("{name}_intended_ns"), &intended);
        if kind == Kind::NewOrder {
            let is_open = matches!(load.pacing, Pacing::Open { .. });
            let told = match is_open {
                true => intended.recorded(LatencyKind::Intended),
                false => service.recorded(LatencyKind::Service),
            };
            // Without new orders there is no latency and no rate.
            row.latency = told.ok();
        }
    }
    let rounds = meters.iter().map(|meter| meter.rounds_nopm());
    let sum = |mut all: Vec<f64>, next: Vec<f64>| {
        all.iter_mut().zip(next).for_each(|(sum, it)| *sum += it);
        all
    };
    row.rounds = rounds.reduce(sum).unwrap_or_default();
}

fn add_quantiles(row: &mut Row, prefix: &str, latencies: &Latencies) {
    if latencies.count() == 0 {
        return;
    }
    let figures = [
        ("mean", latencies.mean()),
        ("p50", latencies.quantile(0.5) as f64),
        ("p95", latencies.quantile(0.95) as f64),
        ("p99", latencies.quantile(0.99) as f64),
        ("p999", latencies.quantile(0.999) as f64),
        ("max", latencies.max() as f64),
    ];
    row.figures.extend(figures.map(|(name, ns)| (format!("{prefix}_{name}"), ns)));
}

fn void_because(measured: &[Measured]) -> Option<String> {
    let faults: Vec<String> = (1..)
        .zip(measured)
        .flat_map(|(number, it)| {
            let place =
                if measured.len() > 1 { format!("database {number}: ") } else { String::new() };
            it.faults.iter().map(move |fault| format!("{place}{fault}"))
        })
        .collect();
    (!faults.is_empty()).then(|| format!("void: {}", faults.join("; ")))
}

/// Returns the transactions per second of all kinds that ended in the window, on the slowest
/// database. Rates of open loops are relative to it.
pub(crate) fn transactions_per_s(measured: &[Measured]) -> f64 {
    let of_one = |it: &Measured| {
        let count = it.meter.as_ref().map_or(0, |meter| meter.transactions_ended());
        count as f64 / it.window_s
    };
    measured.iter().map(of_one).fold(f64::INFINITY, f64::min)
}
