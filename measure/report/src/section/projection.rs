//! Projection of measured cycles per I/O to more cores, beside the slides that define the method,
//! and an editor for the assumptions.

use maud::{Markup, html};
use results::Row;
use results::papers::{CPIO_COLUMNS, CPIO_ENERGY, CPIO_IOPS};
use results::projection::{
    Assumptions, Fit, Load, Measured, Of, Projection, Scenario, measured, project,
};
use serde_json::json;

use crate::book::Book;
use crate::figure::Format;
use crate::papers::{cpio_energy, cpio_iops, cpio_line};
use crate::table::{Cell, Column, Table};

const CORES: [u32; 2] = [128, 4096];
const WATTS_PER_CORE: f64 = 0.5;
const DATA_BYTES: f64 = 35e21;

pub(crate) fn body(book: &Book) -> Option<Markup> {
    let targets: Vec<(String, Measured)> = (0..book.manifests.len())
        .flat_map(|run| {
            let rows: Vec<&Row> =
                book.entries().iter().filter(|it| it.run == run).map(|it| &it.row).collect();
            let named = |it: Measured| match book.manifests.len() {
                0 | 1 => (it.target.clone(), it),
                _ => (format!("{} (run {})", it.target, run + 1), it),
            };
            measured(rows).into_iter().map(named).collect::<Vec<_>>()
        })
        .collect();
    (!targets.is_empty()).then(|| {
        html! {
            p { "CPU cycles per I/O of 512 bytes, taken to servers with more cores: "
                b { "desired" } " keeps the cycles of one core, " b { "today" }
                " those of the most cores measured, and " b { "projected" }
                " lets them grow with each core by the line through both. Low load is the "
                "utilisation measured with the most cores, high is 100 %. What is not measured is "
                "assumed: " (WATTS_PER_CORE) " W per core that works, none when idle, a pass over "
                "35 · 10²¹ bytes within a year." }
            @for (name, target) in &targets { (projected(book, name, target).show()) }
            (editor(&targets))
            h3 { "The slides, on their own hardware" }
            (slides_iops().show())
            (slides_energy().show())
        }
    })
}

fn assumptions(target: &Measured) -> Assumptions {
    Assumptions {
        frequency_hz: target.frequency_hz,
        watts_per_core: WATTS_PER_CORE,
        data_bytes: DATA_BYTES,
        years: 1.0,
        low_utilisation: None,
        high_utilisation: 1.0,
        fit: Fit::Ends,
    }
}

fn projected(book: &Book, name: &str, target: &Measured) -> Table {
    let row = |cell: &Projection| {
        let number = |figure: &str, value: f64, format| {
            let what = json!({
                "projection": name, "of": cell.of, "cores": cell.cores,
                "scenario": cell.scenario, "load": cell.load, "figure": figure,
            });
            let derived = book.derive(what, &[value]);
            Cell::number(derived.map(|it| it.median), format)
        };
        vec![
            Cell::text(name_of(&cell.of)),
            Cell::text(cell.cores.to_string()),
            Cell::text(format!("{}, {}", cell.scenario.name(), cell.load.name())),
            number("cycles", cell.cycles, Format::Count),
            number("iops", cell.iops, Format::Count),
            number("bytes_per_s", cell.bytes_per_s, Format::MegabytesPerSecond),
            number("servers", cell.servers, Format::Count),
            number("energy_kwh", cell.energy_billion_kwh * 1e9, Format::Count),
        ]
    };
    let cells = project(&target.sweeps, &CORES, &assumptions(target));
    let mut columns = vec![Column::text("Application"), Column::text("Cores")];
    columns.push(Column::text("Scenario, load"));
    columns.extend(FIGURES.map(Column::number));
    let caption = format!(
        "{name}: a server of so many cores, {:.2} · 10⁹ cycles a second each",
        target.frequency_hz / 1e9
    );
    Table { caption, columns, rows: cells.iter().map(row).collect() }
}

const FIGURES: [&str; 5] = ["cycles", "I/Os per second", "MB/s", "servers", "kWh"];

fn name_of(of: &Of) -> &str {
    match of {
        Of::Application(name) => name,
        Of::MeanOfIops => "mean of IOPS",
        Of::MeanOfCycles => "mean of cycles",
    }
}

/// Returns the editor. It is hidden until the page's script has filled it.
fn editor(targets: &[(String, Measured)]) -> Markup {
    const INPUTS: [(&str, &str, &str); 7] = [
        ("cores", "Cores of a server", "4096"),
        ("ghz", "GHz (empty: as counted)", ""),
        ("watts", "W per core", "0.5"),
        ("bytes", "Bytes to pass over", "35e21"),
        ("years", "Years for it", "1"),
        ("low", "Low utilisation (empty: as measured)", ""),
        ("high", "High utilisation", "1"),
    ];
    html! {
        h3 { "With other assumptions" }
        form id="assumptions" hidden {
            @for (name, label, value) in INPUTS {
                label { (label) " "
                    input type="number" name=(name) value=(value) min="0" step="any"; } " "
            }
        }
        div.scroll id="assumed" hidden tabindex="0" role="region" aria-label="Own assumptions" {
            table {
                caption { "Computed in this page from the measured cycles and the fields above." }
                thead { tr {
                    th scope="col" { "Target" } th scope="col" { "Application" }
                    th scope="col" { "Scenario, load" }
                    @for name in FIGURES { th.r scope="col" { (name) } }
                } }
                @for (name, target) in targets {
                    @for scenario in Scenario::ALL { @for load in Load::ALL {
                        (editable(name, target, (scenario, load)))
                    } }
                }
            }
        }
    }
}

fn editable(name: &str, target: &Measured, (scenario, load): (Scenario, Load)) -> Markup {
    let lines: Vec<_> = target
        .sweeps
        .iter()
        .filter_map(|sweep| Some((sweep, sweep.line(scenario, Fit::Ends)?)))
        .collect();
    let words = |application: &str| {
        html! {
            td.t { (name) } td.t { (application) }
            td.t { (scenario.name()) ", " (load.name()) }
            @for _ in FIGURES { td.r { "–" } }
        }
    };
    html! {
        @if !lines.is_empty() {
            tbody data-load=(load.name()) data-frequency=(target.frequency_hz) {
                @for (sweep, line) in lines {
                    tr data-one=(line.of_one_core) data-growth=(line.growth)
                        data-measured=(sweep.measured_utilisation()) {
                        (words(sweep.application()))
                    }
                }
                tr data-mean="iops" { (words("mean of IOPS")) }
                tr data-mean="cycles" { (words("mean of cycles")) }
            }
        }
    }
}

fn slides_iops() -> Table {
    let mut rows = Vec::new();
    for (index, row) in CPIO_IOPS.iter().enumerate() {
        let mut cells = vec![Cell::text(format!("{}, {}", row.scenario, row.load))];
        cells.extend(cpio_iops(index).map(|figure| Cell::Paper(figure, Format::Count)));
        rows.push(cells);
        if let Some(figures) = cpio_line(index) {
            let mut cells = vec![Cell::text("  by a line, not printed")];
            cells.extend(figures.map(|figure| Cell::Number(figure, Format::Count)));
            rows.push(cells);
        }
    }
    let mut columns = vec![Column::text("Scenario, load")];
    columns.extend(CPIO_COLUMNS.map(|name| Column::number(name).paper()));
    let caption = "I/Os of 512 bytes per second of 4096 cores. The projected rows are not \
                   reproducible from the others: what a line from 1 to 16 cores gives stands \
                   below them."
        .to_owned();
    Table { caption, columns, rows }
}

fn slides_energy() -> Table {
    let rows = CPIO_ENERGY.iter().enumerate().map(|(index, line)| {
        let mut cells = vec![Cell::text(line.name)];
        cells.extend(cpio_energy(index).map(|figure| Cell::Paper(figure, Format::Count)));
        cells
    });
    let mut columns = vec![Column::text("Power of a server")];
    columns.extend(["projected", "today", "desired"].map(|name| Column::number(name).paper()));
    let caption = "kWh for one pass over 35 · 10²¹ bytes. The first row is printed as 2.5 kW, \
                   and follows from 0.5 W × 4096 cores = 2.048 kW."
        .to_owned();
    Table { caption, columns, rows: rows.collect() }
}
