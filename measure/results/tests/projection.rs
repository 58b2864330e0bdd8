//! Tests of the projection formulas against the slides' figures.

use results::papers::{CPIO_ENERGY, CPIO_IOPS, cpio_line_millions};
use results::projection::{
    APPLICATION, Assumptions, CORES, FREQUENCY_HZ, Fit, IO_BYTES, Line, Load, Of, Point,
    Projection, Scenario, Sweep, UTILISATION_SHARE, busy_server_hours, energy_billion_kwh, iops,
    measured, project,
};
use results::{CPIO_CYCLES, Row, Suite};
use serde_json::json;

const FREQUENCY_HZ_2012: f64 = 2.4e9;
const CORES_2012: u32 = 4096;

fn assumptions() -> Assumptions {
    Assumptions {
        frequency_hz: FREQUENCY_HZ_2012,
        watts_per_core: 0.5,
        data_bytes: 35e21,
        years: 1.0,
        low_utilisation: None,
        high_utilisation: 1.0,
        fit: Fit::Ends,
    }
}

fn sweep(name: &str, points: &[(u32, f64)]) -> Sweep {
    let point = |&(cores, cycles): &(u32, f64)| Point { cores, cycles, utilisation: 0.5 };
    Sweep::new(name, points.iter().map(point).collect()).expect("the points are good")
}

#[track_caller]
fn check_close(ours: f64, expected: f64, tolerance: f64) {
    assert!((ours - expected).abs() <= tolerance, "{ours} instead of {expected}");
}

/// Effective cycles (divided by utilisation), in the slides' order of rows and columns.
const EFFECTIVE_CYCLES: [[f64; 4]; 6] = [
    [1_310_720.0, 1_092_267.0, 819_200.0, 819_200.0],
    [166_617.0, 702_171.0, 91_873.0, 151_237.0],
    [20_652.0, 18_375.0, 17_461.0, 4_454.0],
    [12_018.0, 13_231.0, 6_997.0, 2_180.0],
    [10_145.0, 5_640.0, 15_265.0, 3_870.0],
    [5_431.0, 3_982.0, 5_951.0, 1_655.0],
];

#[test]
fn effective_cycles_give_every_cell_of_the_slides_table() {
    for (row, effective) in CPIO_IOPS.iter().zip(EFFECTIVE_CYCLES) {
        for (millions, cycles) in row.millions.iter().zip(effective) {
            let ours = iops(CORES_2012, FREQUENCY_HZ_2012, cycles, 1.0) / 1e6;
            let rounding = if millions.fract() == 0.0 { 0.5 } else { 0.05 };
            // The cycles are rounded to integers as well.
            check_close(ours, *millions, rounding + ours * 0.5 / cycles);
            check_close(f64::from(CORES_2012) * FREQUENCY_HZ_2012 / (millions * 1e6), cycles, 0.5);
            let of_128 = iops(128, FREQUENCY_HZ_2012, cycles, 1.0) / 1e6;
            check_close(of_128 * 32.0, ours, ours * 1e-12);
        }
    }
}

/// The slides truncate or round. Each cell is matched to its last printed digit.
#[test]
fn mean_cycles_give_every_cell_of_the_energy_table() {
    let cycles = [7.29e6, 67.5e3, 44.2e3];
    for line in &CPIO_ENERGY {
        for ((printed, last_digit), cycles) in line.billion_kwh.iter().zip(cycles) {
            let hours = busy_server_hours(35e21, CORES_2012, FREQUENCY_HZ_2012, cycles);
            let ours = energy_billion_kwh(hours, line.server_watts);
            check_close(ours, *printed, *last_digit);
        }
    }
    let hours = busy_server_hours(35e21, CORES_2012, FREQUENCY_HZ_2012, cycles[1]);
    check_close(hours, 1.304e8, 0.001e8);
}

#[test]
fn the_printed_power_of_the_first_energy_row_cannot_have_been_used() {
    let first = &CPIO_ENERGY[0];
    check_close(0.5 * f64::from(CORES_2012), first.server_watts, 0.0);
    let hours = busy_server_hours(35e21, CORES_2012, FREQUENCY_HZ_2012, 67.5e3);
    let (printed, last_digit) = first.billion_kwh[1];
    assert!((energy_billion_kwh(hours, first.printed_watts) - printed).abs() > last_digit);
}

#[test]
fn bandwidth_is_what_the_slides_sum_up() {
    let gigabytes = |row: usize| CPIO_IOPS[row].millions[0] * 1e6 * IO_BYTES / 1e9;
    check_close(gigabytes(2), 244.0, 0.5);
    check_close(gigabytes(3), 419.0, 0.5);
    check_close(gigabytes(4), 496.0, 0.5);
    check_close(gigabytes(2) / 32.0, 7.6, 0.05);
}

#[test]
fn scenarios_start_from_the_measured_ends_and_growth_is_never_negative() {
    let rising = sweep("a", &[(1, 1000.0), (2, 1100.0), (16, 2500.0)]);
    let at = |scenario| rising.line(scenario, Fit::Ends).map(|line| line.cycles(4096));
    assert_eq!(at(Scenario::Desired), Some(1000.0));
    assert_eq!(at(Scenario::Today), Some(2500.0));
    assert_eq!(at(Scenario::Projected), Some(1000.0 + 100.0 * 4095.0));
    let falling = sweep("b", &[(1, 1000.0), (2, 900.0)]);
    let line = falling.line(Scenario::Projected, Fit::Ends);
    assert_eq!(line, Some(Line { of_one_core: 1000.0, growth: 0.0 }));
}

#[test]
fn least_squares_go_through_points_that_lie_on_a_line() {
    let line = sweep("a", &[(1, 10.0), (2, 12.0), (4, 16.0), (8, 24.0)]);
    let ours = line.line(Scenario::Projected, Fit::LeastSquares).expect("one was measured");
    check_close(ours.cycles(101), 210.0, 1e-9);
}

#[test]
fn what_was_not_measured_is_not_projected() {
    let alone = sweep("a", &[(4, 10.0)]);
    assert_eq!(alone.line(Scenario::Desired, Fit::Ends), None);
    assert_eq!(alone.line(Scenario::Projected, Fit::Ends), None);
    let one = sweep("b", &[(1, 10.0)]);
    assert_eq!(one.line(Scenario::Projected, Fit::Ends), None);
    let cells = project(&[alone], &[128], &assumptions());
    assert!(cells.iter().all(|cell| cell.scenario == Scenario::Today));
    assert!(Sweep::new("c", vec![Point { cores: 1, cycles: 0.0, utilisation: 1.0 }]).is_none());
}

#[test]
fn both_means_stand_beside_the_applications() {
    let sweeps = [sweep("a", &[(1, 1000.0), (2, 1000.0)]), sweep("b", &[(1, 3000.0)])];
    let cells = project(&sweeps, &[128], &assumptions());
    let of = |of: Of| {
        let is_asked = |cell: &&Projection| {
            cell.of == of && cell.scenario == Scenario::Today && cell.load == Load::High
        };
        cells.iter().find(is_asked).expect("every mean is there").iops
    };
    let one = |cycles: f64| iops(128, FREQUENCY_HZ_2012, cycles, 1.0);
    let tolerance = one(1000.0) * 1e-12;
    check_close(of(Of::MeanOfIops), f64::midpoint(one(1000.0), one(3000.0)), tolerance);
    check_close(of(Of::MeanOfCycles), one(2000.0), tolerance);
}

#[test]
fn low_utilisation_takes_more_servers_but_no_more_energy() {
    let cells = project(&[sweep("a", &[(1, 1000.0)])], &[4096], &assumptions());
    let of = |load| {
        let is_asked = |cell: &&Projection| cell.load == load;
        cells.iter().find(is_asked).expect("both loads are there").clone()
    };
    let (low, high) = (of(Load::Low), of(Load::High));
    check_close(low.servers, 2.0 * high.servers, high.servers * 1e-12);
    check_close(low.energy_billion_kwh, high.energy_billion_kwh, 0.0);
}

#[test]
fn rows_become_sweeps_of_medians_target_by_target() {
    let row = |target: &str, cores: u32, cycles: f64| {
        let mut row = Row::new(Suite::Cpio, format!("a cores={cores}"), target);
        row.params.insert(APPLICATION.to_owned(), json!("a"));
        row.params.insert(CORES.to_owned(), json!(cores));
        row.add_figures([(CPIO_CYCLES, cycles), (UTILISATION_SHARE, 0.5), (FREQUENCY_HZ, 2e9)]);
        row
    };
    let rows = [row("x", 1, 10.0), row("x", 1, 30.0), row("x", 1, 20.0), row("y", 2, 5.0)];
    let measured = measured(&rows);
    assert_eq!(measured.len(), 2);
    assert_eq!(measured[0].sweeps[0].points()[0].cycles, 20.0);
    assert_eq!((measured[1].target.as_str(), measured[1].frequency_hz), ("y", 2e9));
}

#[test]
fn the_projected_cells_of_the_slides_are_not_on_a_line_through_the_others() {
    let line = |load, column| cpio_line_millions(load, column).expect("the cell is there");
    for (load, column, expected) in
        [("high", 3, 67.7), ("high", 1, 3.9), ("high", 2, 33.7), ("low", 2, 16.0), ("low", 3, 60.0)]
    {
        let ours = line(load, column);
        assert!((ours - expected).abs() < 0.6, "{load} {column}: {ours}");
    }
    assert_eq!(cpio_line_millions("high", 4), None);
}
