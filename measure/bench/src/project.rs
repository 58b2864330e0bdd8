//! Command that projects recorded cycles per I/O to servers with more cores. Computes with
//! `results::projection` and prints. Measures nothing.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use results::papers::{
    CPIO_COLUMNS, CPIO_CORES, CPIO_CORES_MEASURED, CPIO_ENERGY, CPIO_IOPS, cpio_line_millions,
};
use results::projection::{Assumptions, Fit, Measured, Of, Projection, measured, project};
use results::{Row, RunFolder};
use serde_json::{Value, json};

use crate::output::{self, Form};

/// Maximum number of cores: above any planned server, but small enough for exact sums.
const CORES_MAX: i64 = 1 << 24;
const COLUMNS_MAX: usize = 16;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Directory of a recorded run of `cpio`, or its results.json
    #[arg(value_name = "RESULTS")]
    results: PathBuf,
    /// Numbers of cores of the servers
    #[arg(long, value_name = "CORES", value_delimiter = ',', default_value = "128,4096",
        value_parser = clap::value_parser!(u32).range(1..=CORES_MAX))]
    cores: Vec<u32>,
    /// Clock rate in GHz [default: that of the run]
    #[arg(long, value_name = "GHZ", value_parser = above_zero)]
    ghz: Option<f64>,
    /// Watts of a busy core; an idle core takes none
    #[arg(long, value_name = "WATTS", default_value = "0.5", value_parser = above_zero)]
    watts_core: f64,
    /// Bytes to read once, 512 at a time
    #[arg(long, value_name = "BYTES", default_value = "35e21", value_parser = above_zero)]
    dataset: f64,
    /// Years within which they are read
    #[arg(long, value_name = "YEARS", default_value = "1", value_parser = above_zero)]
    years: f64,
    /// Low utilisation, 0 to 1 [default: as measured with the most cores]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    util_low: Option<f64>,
    /// High utilisation, 0 to 1
    #[arg(long, value_name = "SHARE", default_value = "1", value_parser = share)]
    util_high: f64,
    /// Method to determine the growth with cores
    #[arg(long, value_enum, default_value_t = FitName::Ends)]
    fit: FitName,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum FitName {
    /// A line through one core and the most cores
    Ends,
    /// Least squares over all numbers of cores
    LeastSquares,
}

pub(crate) fn run(arguments: &Arguments, form: Form) -> Result<()> {
    let rows = read(&arguments.results)?;
    let targets = measured(&rows);
    ensure!(
        !targets.is_empty(),
        "{} has no valid cycles per I/O to project from; record them with memlane bench cpio \
         --out DIR",
        arguments.results.display()
    );
    let projected: Vec<(&Measured, Assumptions, Vec<Projection>)> = targets
        .iter()
        .map(|target| {
            let assumptions = arguments.assumptions(target.frequency_hz);
            (target, assumptions, project(&target.sweeps, &arguments.cores, &assumptions))
        })
        .collect();
    match form {
        Form::Json => output::json(&document(&projected)),
        Form::Text => {
            for (target, assumptions, cells) in &projected {
                output::note(&text(target, assumptions, cells));
            }
            output::note(&slides());
        }
    }
    Ok(())
}

impl Arguments {
    fn assumptions(&self, counted_hz: f64) -> Assumptions {
        Assumptions {
            frequency_hz: self.ghz.map_or(counted_hz, |ghz| ghz * 1e9),
            watts_per_core: self.watts_core,
            data_bytes: self.dataset,
            years: self.years,
            low_utilisation: self.util_low,
            high_utilisation: self.util_high,
            fit: match self.fit {
                FitName::Ends => Fit::Ends,
                FitName::LeastSquares => Fit::LeastSquares,
            },
        }
    }
}

fn read(path: &Path) -> Result<Vec<Row>> {
    let shown = path.display();
    if path.is_dir() {
        let run = RunFolder::open(path).with_context(|| format!("cannot project from {shown}"))?;
        return Ok(run.rows().cloned().collect());
    }
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{shown} is not a results.json of a recorded run"))
}

fn document(projected: &[(&Measured, Assumptions, Vec<Projection>)]) -> Value {
    let targets = projected.iter().map(|(target, assumptions, cells)| {
        json!({"measured": target, "assumptions": assumptions, "projections": cells})
    });
    let rows = CPIO_IOPS.iter().map(|row| {
        let lines: Vec<Option<f64>> = (0..CPIO_COLUMNS.len())
            .map(|column| match row.scenario {
                "projected" => cpio_line_millions(row.load, column),
                _ => None,
            })
            .collect();
        json!({"load": row.load, "scenario": row.scenario, "millions": row.millions,
            "by_line_millions": lines})
    });
    let energy = CPIO_ENERGY.iter().map(|line| {
        let cells = line.billion_kwh.map(|(value, _)| value);
        json!({"name": line.name, "printed_watts": line.printed_watts,
            "server_watts": line.server_watts, "billion_kwh": cells})
    });
    json!({
        "targets": targets.collect::<Vec<_>>(),
        "slides": {
            "cores": CPIO_CORES,
            "columns": CPIO_COLUMNS,
            "iops": rows.collect::<Vec<_>>(),
            "energy": energy.collect::<Vec<_>>(),
        },
    })
}

fn text(target: &Measured, assumptions: &Assumptions, cells: &[Projection]) -> String {
    let heading = format!(
        "{}: {} applications at {:.2} GHz; {:.3e} bytes in {} years, {} W per core\n",
        target.target,
        target.sweeps.len(),
        assumptions.frequency_hz / 1e9,
        assumptions.data_bytes,
        assumptions.years,
        assumptions.watts_per_core,
    );
    let mut rows = output::heading(
        "application | cores | scenario | load | cycles | used | M IOPS | GB/s | servers | \
         10^9 kWh",
    );
    rows.extend(cells.iter().map(|cell| {
        vec![
            name(&cell.of),
            cell.cores.to_string(),
            cell.scenario.name().to_owned(),
            cell.load.name().to_owned(),
            digits(cell.cycles),
            format!("{:.0} %", cell.utilisation * 100.0),
            digits(cell.iops / 1e6),
            digits(cell.bytes_per_s / 1e9),
            digits(cell.servers),
            digits(cell.energy_billion_kwh),
        ]
    }));
    let lacking: Vec<String> = target
        .sweeps
        .iter()
        .filter(|sweep| sweep.points().len() < 2 || sweep.points()[0].cores != 1)
        .map(|sweep| sweep.application().to_owned())
        .take(COLUMNS_MAX)
        .collect();
    let mut text = heading + &output::left_table(&rows);
    if !lacking.is_empty() {
        text += &format!(
            "\nNot measured with one core and with several, so without every scenario: {}",
            lacking.join(", ")
        );
    }
    text + "\n"
}

fn name(of: &Of) -> String {
    match of {
        Of::Application(name) => name.clone(),
        Of::MeanOfIops => "mean of IOPS".to_owned(),
        Of::MeanOfCycles => "mean of cycles".to_owned(),
    }
}

/// Formats the tables of the 2012 slides, and their inconsistencies.
fn slides() -> String {
    let mut rows = output::heading("slides, M IOPS of 4096 cores");
    rows[0].extend(CPIO_COLUMNS.map(str::to_owned));
    for row in &CPIO_IOPS {
        let mut cells = vec![format!("{} & {}", row.load, row.scenario)];
        cells.extend(row.millions.map(digits));
        rows.push(cells);
        if row.scenario == "projected" {
            let line = |column| cpio_line_millions(row.load, column).map_or("-".to_owned(), digits);
            let mut cells = vec!["  by a line (not printed)".to_owned()];
            cells.extend((0..CPIO_COLUMNS.len()).map(line));
            rows.push(cells);
        }
    }
    let mut energy =
        output::heading("slides, 10^9 kWh for 35e21 bytes | projected | today | desired");
    energy.extend(CPIO_ENERGY.iter().map(|line| {
        let mut cells = vec![line.name.to_owned()];
        cells.extend(line.billion_kwh.map(|(value, _)| value.to_string()));
        cells
    }));
    format!(
        "{}\n\n{}\n\nThe slides' own hardware, not ours. Not reproducible from them: the projected \
         rows (a line from 1 to {CPIO_CORES_MEASURED} cores gives the figures below them), and \
         2.5 kW beside 0.5 W per core (the row follows from 0.5 W x {CPIO_CORES} = 2.048 kW).",
        output::left_table(&rows),
        output::left_table(&energy)
    )
}

/// Formats three digits, or all before the point.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 1e7 || (size < 1e-3 && size > 0.0) => format!("{value:.2e}"),
        0.0..0.0995 => format!("{value:.4}"),
        0.0..9.995 => format!("{value:.2}"),
        0.0..99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn above_zero(text: &str) -> Result<f64> {
    let value: f64 = text.parse().with_context(|| format!("{text:?} is not a number"))?;
    ensure!(value.is_finite() && value > 0.0, "{text} is not greater than zero");
    Ok(value)
}

fn share(text: &str) -> Result<f64> {
    let value = above_zero(text)?;
    ensure!(value <= 1.0, "{text} is greater than 1");
    Ok(value)
}
