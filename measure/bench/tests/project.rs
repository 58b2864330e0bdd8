//! Tests of `memlane-bench project`.

use std::fs;
use std::process::{Command, Output};

use results::projection::{APPLICATION, CORES, FREQUENCY_HZ, UTILISATION_SHARE};
use results::{CPIO_CYCLES, Row, Suite};
use serde_json::{Value, json};
use tempfile::TempDir;

fn row(application: &str, cores: u32, cycles: f64) -> Row {
    let mut row = Row::new(Suite::Cpio, format!("{application} cores={cores}"), "disk");
    row.params.insert(APPLICATION.to_owned(), json!(application));
    row.params.insert(CORES.to_owned(), json!(cores));
    row.add_figures([(CPIO_CYCLES, cycles), (UTILISATION_SHARE, 0.5), (FREQUENCY_HZ, 2.4e9)]);
    row
}

fn project(rows: &[Row], words: &[&str]) -> Output {
    let folder: TempDir = tempfile::tempdir().expect("there is room for a folder");
    let path = folder.path().join("results.json");
    let text = serde_json::to_string(rows).expect("rows are plain data");
    fs::write(&path, text).expect("there is room for a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_memlane-bench"));
    command.arg("project").arg(&path).args(words).output().expect("the program starts")
}

fn complaint(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn scenarios_and_means_are_computed_from_the_record() {
    let rows = [row("a", 1, 1000.0), row("a", 2, 1100.0), row("b", 1, 3000.0), row("b", 2, 3100.0)];
    let output = project(&rows, &["--cores", "128,4096", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let cells = document["targets"][0]["projections"].as_array().expect("it is a list");
    assert_eq!(cells.len(), 4 * 2 * 3 * 2, "of each and both means, by cores, scenario and load");
    let iops = |of: Value, scenario: &str, load: &str| {
        let cell = cells.iter().find(|cell| {
            cell["of"] == of
                && cell["cores"] == 4096
                && cell["scenario"] == scenario
                && cell["load"] == load
        });
        cell.expect("every cell is there")["iops"].as_f64().expect("it is a number")
    };
    let expected = |cycles: f64| 4096.0 * 2.4e9 / cycles;
    let close = |ours: f64, expected: f64| (ours / expected - 1.0).abs() < 1e-9;
    let a = json!({"application": "a"});
    assert!(close(iops(a.clone(), "desired", "high"), expected(1000.0)));
    assert!(close(iops(a.clone(), "today", "low"), expected(1100.0) / 2.0));
    assert!(close(iops(a, "projected", "high"), expected(1000.0 + 100.0 * 4095.0)));
    assert!(close(iops(json!("mean_of_cycles"), "desired", "high"), expected(2000.0)));
    assert!(close(iops(json!("mean_of_iops"), "desired", "high"), expected(1500.0)));
    assert_eq!(document["slides"]["iops"][5]["millions"][3], 5941.0);
}

#[test]
fn the_slides_stand_beside_with_what_does_not_follow_from_them() {
    let output = project(&[row("a", 2, 1000.0)], &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    for word in ["5941", "67.7", "0.175", "2.048 kW", "without every scenario: a"] {
        assert!(text.contains(word), "{word} is missing in {text}");
    }
}

#[test]
fn assumptions_that_make_no_sense_are_refused() {
    let rows = [row("a", 1, 1000.0)];
    for words in [
        ["--util-low", "1.5"],
        ["--util-high", "0"],
        ["--watts-core", "nan"],
        ["--cores", "0"],
        ["--years", "inf"],
    ] {
        assert!(complaint(&project(&rows, &words)).contains(words[0]), "{words:?}");
    }
}

#[test]
fn a_record_without_cycles_is_refused() {
    let rows = [Row::new(Suite::Engine, "read", "engine")];
    assert!(complaint(&project(&rows, &[])).contains("no valid cycles per I/O"));
}
