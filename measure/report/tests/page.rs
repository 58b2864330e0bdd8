//! Tests of rules for every page, parsed as by a browser.

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use report::Report;
use results::{Manifest, Row, RunFolder, StepKey, StepRecord, Suite, Validity};
use scraper::{Html, Selector};
use serde_json::Value;

fn page_of(rows: Vec<Row>) -> String {
    Report::new(vec![(support::manifest(), rows)]).html()
}

fn selector(text: &str) -> Selector {
    Selector::parse(text).expect("the selector is a good one")
}

fn document(page: &Html) -> Value {
    let script = selector("script#document");
    let element = page.select(&script).next().expect("the document is embedded");
    let text: String = element.text().collect();
    serde_json::from_str(&text).expect("the document is JSON")
}

/// Checks that each traced number equals that in the document, and that its text is a rounding of
/// it.
#[track_caller]
fn check_numbers(text: &str) -> usize {
    let page = Html::parse_document(text);
    let document = document(&page);
    let traced = selector("[data-p]");
    let mut count = 0;
    for element in page.select(&traced) {
        let pointer = element.attr("data-p").expect("it was selected by it");
        let value: f64 =
            element.attr("data-v").expect("a value").parse().expect("the value is a number");
        let recorded = document.pointer(pointer).and_then(Value::as_f64);
        assert_eq!(recorded, Some(value), "{pointer}");
        let is_text = matches!(element.value().name(), "span" | "text");
        let shown: String = element.text().collect::<String>().replace(',', "");
        if is_text {
            let shown: f64 = shown.trim().parse().expect("the text is a number");
            let is_rounding = [1.0, 1e3, 1e6, 1_048_576.0, 0.01]
                .iter()
                .any(|unit| (value / unit - shown).abs() <= shown.abs() * 0.006 + 0.000_06);
            assert!(is_rounding, "{pointer}: {value} is shown as {shown}");
        }
        count += 1;
    }
    count
}

#[test]
fn every_number_is_the_one_in_the_embedded_document() {
    let count = check_numbers(&page_of(support::rows()));
    assert!(count > 1000, "only {count} numbers can be traced");
}

#[test]
fn no_number_of_a_table_is_without_its_source() {
    let page = Html::parse_document(&page_of(support::rows()));
    for cell in page.select(&selector("td.r")) {
        let text: String = cell.text().collect();
        let is_traced = cell.select(&selector("[data-p]")).next().is_some();
        assert!(is_traced || text == "–", "{text:?} comes from nowhere");
    }
}

#[test]
fn a_page_is_well_formed() {
    let page = Html::parse_document(&page_of(support::rows()));
    assert_eq!(page.errors, Vec::<std::borrow::Cow<'static, str>>::new());
}

#[test]
fn a_page_fetches_nothing() {
    let text = page_of(support::rows());
    let page = Html::parse_document(&text);
    for name in ["src", "srcset", "href", "xlink:href", "action", "data", "poster"] {
        for element in page.select(&selector(&format!("[{}]", name.replace(':', "\\:")))) {
            let target = element.attr(name).unwrap_or_default();
            assert!(target.starts_with('#'), "{name} leads to {target}");
        }
    }
    for sign in ["http:", "https:", "url(", "@import", "fetch(", "//cdn"] {
        assert!(!text.contains(sign), "the page contains {sign}");
    }
}

#[test]
fn words_of_a_record_stay_words() {
    let page = Html::parse_document(&page_of(support::rows()));
    let text: String = page.root_element().text().collect();
    assert!(text.contains("this kernel has no brd <b>module</b>"));
    assert!(page.select(&selector("td b")).next().is_none());
    assert_eq!(document(&page)["runs"][0]["host"]["cpu"], "A </script> & \"B\"");
}

#[test]
fn every_chart_has_a_name_and_its_marks_can_be_reached_by_keyboard() {
    let page = Html::parse_document(&page_of(support::rows()));
    let charts: Vec<_> = page.select(&selector("svg")).collect();
    assert!(charts.len() > 10, "{} charts", charts.len());
    for chart in charts {
        assert!(chart.attr("aria-label").is_some_and(|label| !label.is_empty()));
    }
    for mark in page.select(&selector(".mark, .bar")) {
        assert_eq!(mark.attr("tabindex"), Some("0"));
        assert!(mark.attr("aria-label").is_some_and(|label| !label.is_empty()));
        assert!(mark.select(&selector("title")).next().is_some());
    }
}

#[test]
fn bars_that_were_measured_have_a_verdict() {
    let page = Html::parse_document(&page_of(support::rows()));
    let verdicts: Vec<String> =
        page.select(&selector("#verdict tbody tr")).map(|row| row.text().collect()).collect();
    let of = |what: &str| {
        verdicts.iter().find(|text| text.contains(what)).cloned().expect("the bar was measured")
    };
    assert!(of("4 KiB random read, time over").ends_with("met"));
    assert!(of("overwrite of compressible data").ends_with("missed"));
    assert!(of("mean latency over loop's").ends_with("met"));
    // The peer is the loop device with the cores kept awake, because it is faster.
    assert!(of("mean latency over loop's").contains("0.480"));
    assert!(of("programs and libraries").ends_with("met"));
    assert!(of("ext4 on an attached journal volume").ends_with("met"));
    assert!(of("8 writers on a journal volume over NBD").ends_with("missed"));
    assert!(of("first read after the loss of memory").ends_with("met"));
    assert!(of("NOPM by pgbench").ends_with("met"));
    assert!(of("4 databases cloned from one load").ends_with("missed"));
    assert!(of("NOPM over the disk's, memory limited").ends_with("met"));
    assert!(of("share of the whole's gain").ends_with("met"));
    assert!(of("current value by key over SQL").ends_with("met"));
    assert!(of("range that 50 % pass").ends_with("missed"));
    assert!(of("filled log, live query that no record passes").ends_with("met"));
    assert!(of("10,000 live queries of 0.1 %").ends_with("missed"));
    assert!(of("10,000 live queries of 0.001 %").ends_with("met"));
    assert!(of("a message as row of a live query").ends_with("met"));
    assert!(of("bytes of memory for each key").ends_with("met"));
    assert!(of("from the start of the broker to the first read").ends_with("missed"));
    assert!(of("producer of a topic that keeps current values").ends_with("met"));
}

#[test]
fn parts_of_a_database_are_told_by_gain_and_memory() {
    let page = Html::parse_document(&page_of(support::rows()));
    let told: Vec<String> =
        page.select(&selector("#placement li")).map(|line| line.text().collect()).collect();
    // Logs and temporary tables, each for orders and reports.
    assert_eq!(told.len(), 4, "{told:?}");
    let logs = &told[0];
    assert!(logs.contains("logs only: 80.0 % of the gain for 4.00 % of the memory"), "{logs}");
    let lanes = page.select(&selector("#placement path.rate")).count();
    assert_eq!(lanes, 8);
}

#[test]
fn what_is_invalid_is_listed_and_in_no_chart() {
    let mut rows = support::rows();
    for row in rows.iter_mut().filter(|row| row.target == "disk file") {
        row.validity = Validity::Invalid("the disk was busy".to_owned());
    }
    let text = page_of(rows);
    let page = Html::parse_document(&text);
    let omissions: String =
        page.select(&selector("#omissions td")).flat_map(|cell| cell.text()).collect();
    assert!(omissions.contains("the disk was busy"));
    let marks = page.select(&selector("[aria-label^='disk file']")).count();
    assert_eq!(marks, 0);
}

#[test]
fn a_run_of_nothing_is_a_page_that_says_so() {
    let text = page_of(Vec::new());
    let page = Html::parse_document(&text);
    assert_eq!(page.select(&selector("svg")).count(), 0);
    assert_eq!(page.select(&selector("section")).count(), 15);
    let says: String = page.select(&selector("p.none")).flat_map(|it| it.text()).collect();
    assert!(says.contains("Nothing of this was measured"));
}

#[test]
fn rows_without_figures_are_shown_as_missing() {
    for suite in [Suite::Engine, Suite::Steps, Suite::Forsa, Suite::Fusion, Suite::Log] {
        check_numbers(&page_of(vec![Row::new(suite, "a case", "a target")]));
    }
    for suite in [Suite::Reduction, Suite::Peers, Suite::Durability, Suite::Cpio, Suite::Tpcc] {
        check_numbers(&page_of(vec![Row::new(suite, "a case", "a target")]));
    }
    check_numbers(&page_of(vec![Row::new(Suite::Sql, "a case", "a target")]));
}

#[test]
fn cycles_per_io_are_shown_by_who_used_them_and_over_cores() {
    let page = Html::parse_document(&page_of(support::rows()));
    let labelled = selector("#cpio [aria-label]");
    let says = |text: &str| {
        let marks = page.select(&labelled);
        marks.filter(|it| it.attr("aria-label").is_some_and(|it| it.contains(text))).count()
    };
    // Two applications on three targets with two core counts each.
    assert_eq!(says(", store: "), 12);
    assert_eq!(says(", waiting for I/O: "), 12);
    assert_eq!(says("cores 2: 1.20×"), 6);
}

#[test]
fn new_orders_a_minute_are_shown_by_target_and_what_clones_share_beside_them() {
    let page = Html::parse_document(&page_of(support::rows()));
    let text: String = page.select(&selector("#tpcc")).flat_map(|it| it.text()).collect();
    for words in
        ["TPC-C", "Neither is tpmC", "as each engine counts them", "driver=pgbench", "of one"]
    {
        assert!(text.contains(words), "{words} is not shown");
    }
    let bars = page.select(&selector("#tpcc figure")).next().expect("there is a chart");
    // Two targets and pgbench on each, closed. Open loops have a separate chart.
    assert_eq!(bars.select(&selector(".bar")).count(), 5);
}

#[test]
fn queries_stand_beside_postgresql_and_live_queries_beside_a_consumer() {
    let page = Html::parse_document(&page_of(support::rows()));
    let text: String = page.select(&selector("#sql")).flat_map(|it| it.text()).collect();
    for words in ["PostgreSQL", "Kafka consumer", "bytes a key", "p99.99"] {
        assert!(text.contains(words), "{words} is not shown");
    }
    // Lookups, records and message delays. Each system has its own bar.
    assert_eq!(page.select(&selector("#sql figure")).count(), 3);
    let lookups = page.select(&selector("#sql figure")).next().expect("there is a chart");
    assert_eq!(lookups.select(&selector(".bar")).count(), 2);
}

#[test]
fn bars_of_live_queries_and_keys_count_at_their_sizes_alone() {
    let mut rows = support::rows();
    for row in rows.iter_mut().filter(|row| row.suite == Suite::Sql) {
        for name in ["queries", "keys"] {
            if let Some(size) = row.params.get_mut(name) {
                *size = Value::from(1_000);
            }
        }
    }
    let page = Html::parse_document(&page_of(rows));
    let open: String = page.select(&selector("#verdict p.note")).flat_map(|it| it.text()).collect();
    for what in ["10,000 live queries of 0.1 %", "bytes of memory for each key"] {
        assert!(open.contains(what), "{what} is judged at another size: {open}");
    }
}

#[test]
fn projections_stand_beside_the_slides_with_assumptions_to_edit() {
    let page = Html::parse_document(&page_of(support::rows()));
    let text: String = page.select(&selector("#projection")).flat_map(|it| it.text()).collect();
    for word in ["desired", "projected", "mean of cycles", "PSearchy", "not reproducible"] {
        assert!(text.contains(word), "{word} is not shown");
    }
    assert!(page.select(&selector("#projection form[hidden] input[type=number]")).count() >= 6);
    let editable = selector("#projection tr[data-one]");
    let base: Vec<f64> = page
        .select(&editable)
        .map(|row| row.attr("data-one").expect("it was selected by it").parse().expect("a number"))
        .collect();
    assert!(base.contains(&1000.0), "{base:?}");
}

#[test]
fn two_runs_are_told_apart() {
    let runs = vec![(support::manifest(), support::rows()), (support::manifest(), support::rows())];
    let text = Report::new(runs).html();
    check_numbers(&text);
    assert!(text.contains("volume attached (run 1)"));
    assert!(text.contains("volume attached (run 2)"));
}

#[test]
fn csv_has_a_line_for_each_row_and_its_numbers_unrounded() {
    let rows = support::rows();
    let expected: Vec<f64> = rows.iter().filter_map(|row| row.app.map(|app| app.iops)).collect();
    let count = rows.len();
    let report = Report::new(vec![(support::manifest(), rows)]);
    let text = report.csv().expect("rows can be written");
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let headings = reader.headers().expect("there are headings").clone();
    let column = headings.iter().position(|name| name == "app.iops").expect("it was recorded");
    let records: Vec<csv::StringRecord> =
        reader.records().collect::<Result<_, _>>().expect("the lines are whole");
    assert_eq!(records.len(), count);
    let iops: Vec<f64> =
        records.iter().filter_map(|record| record.get(column)?.parse().ok()).collect();
    assert_eq!(iops, expected);
}

#[test]
fn vega_specifications_hold_the_valid_rows_of_their_suite() {
    let report = Report::new(vec![(support::manifest(), support::rows())]);
    let specifications = report.vega();
    let (_, text) = specifications
        .iter()
        .find(|(name, _)| name == "peers.vl.json")
        .expect("peers were measured");
    let specification: Value = serde_json::from_str(text).expect("it is JSON");
    let valid =
        support::rows().iter().filter(|row| row.suite == Suite::Peers && row.is_valid()).count();
    assert_eq!(specification["data"]["values"].as_array().map(Vec::len), Some(valid));
}

#[test]
fn a_folder_that_is_no_run_is_refused_by_name() {
    let error = Report::read(&["/nowhere/at/all"]).err().expect("there is no run");
    assert!(format!("{error:#}").contains("no such directory"), "{error:#}");
    assert!(Report::read(&[] as &[&str]).is_err());
}

#[test]
fn an_empty_folder_is_refused_with_what_it_lacks() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let error = Report::read(&[folder.path()]).err().expect("there is no run");
    let text = format!("{error:#}");
    assert!(text.contains("contains no run") && text.contains("manifest.json"), "{text}");
}

#[test]
fn a_recorded_run_is_read_whole() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let mut run = RunFolder::create(folder.path(), support::manifest()).expect("it is empty");
    let row = support::rows().swap_remove(0);
    let (suite, case, target) = (row.suite, row.case.clone(), row.target.clone());
    let key = StepKey { suite, case, target, repeat: row.repeat };
    run.append(StepRecord { key, rows: vec![row] }).expect("it can be written");
    let report = Report::read(&[folder.path()]).expect("it is a run");
    let document: Value = serde_json::from_str(&report.json()).expect("it is JSON");
    assert_eq!(document["rows"].as_array().map(Vec::len), Some(1));
}

#[test]
fn the_json_has_the_published_form() {
    let formats = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats");
    let read = |name: &str| {
        let text = std::fs::read_to_string(formats.join(name)).expect("the schema is published");
        // One schema refers to the other by file name. Here both are merged into one.
        let text = text.replace("bench-1.schema.json#", "#");
        serde_json::from_str::<Value>(&text).expect("it is JSON")
    };
    let mut schema = read("report-1.schema.json");
    schema["$defs"] = read("bench-1.schema.json")["$defs"].take();
    let validator = jsonschema::validator_for(&schema).expect("the schema is one");
    let check = |document: &Value| validator.iter_errors(document).count();
    let report = Report::new(vec![(support::manifest(), support::rows())]);
    let mut document: Value = serde_json::from_str(&report.json()).expect("it is JSON");
    assert_eq!(check(&document), 0);
    document["rows"][0]["repeat"] = Value::from("first");
    assert_ne!(check(&document), 0, "a row of another form was accepted");
}

#[test]
fn every_row_and_every_number_of_it_is_in_the_json() {
    let rows = support::rows();
    let report = Report::new(vec![(support::manifest(), rows.clone())]);
    let alone: Value = serde_json::from_str(&report.json()).expect("it is JSON");
    let embedded = document(&Html::parse_document(&report.html()));
    assert_eq!(alone, embedded);
    let recorded: Vec<Row> =
        serde_json::from_value(alone["rows"].clone()).expect("they are rows again");
    assert!(recorded == rows, "a row is not as it was recorded");
}

/// Returns the generated documentation of these rows by path.
fn documentation(manifest: Manifest) -> BTreeMap<String, String> {
    Report::new(vec![(manifest, support::rows())]).markdown("performance.md").into_iter().collect()
}

#[test]
fn rows_in_markdown_name_commit_seed_and_windows() {
    let rows = &documentation(support::manifest())["performance/rows.md"];
    for expected in ["`0123abcd`", "seed 42", "| window, s |", "| 30.0 |", "### cpio"] {
        assert!(rows.contains(expected), "no {expected} in {rows}");
    }
    let section = |suite: &str| {
        let (_, rest) = rows.split_once(&format!("\n### {suite}\n")).expect("it has a part");
        rest.split("\n#").next().expect("the text itself at least").to_owned()
    };
    for suite in ["tpcc", "placement"] {
        assert!(section(suite).contains("survives power loss"), "{}", section(suite));
    }
    let peers = section("peers");
    for reason in ["skipped: this kernel has no brd", "invalid: other guests took 12 %"] {
        assert!(peers.contains(reason), "{reason} is not told: {peers}");
    }
}

#[test]
fn the_page_for_readers_who_decide_compares_each_use_and_says_where_a_peer_is_better() {
    let files = documentation(support::manifest());
    let page = &files["performance.md"];
    let line = |job: &str| {
        let line = page.lines().find(|line| line.contains(job));
        line.unwrap_or_else(|| panic!("{job} is not compared: {page}")).to_owned()
    };
    let scan = line("| JSON scan, range that 50 % pass |");
    assert!(scan.contains("PostgreSQL: "), "{scan}");
    let lost = page.split_once("## When not to use it").expect("it says so").1;
    let lost = lost.split("\n## ").next().expect("the text itself at least");
    assert!(lost.contains("in flight: zram lz4, 2.61× faster."), "{lost}");
    assert!(!lost.contains("NBD"), "{lost}");
    // Order statistics need six repeats for an interval. These have five.
    let before = page.split_once("## When not to use it").expect("it says so").0;
    let table: Vec<_> = before.lines().filter(|line| line.starts_with('|')).collect();
    assert!(table.len() > 6 && table.iter().all(|line| !line.contains('[')), "{table:#?}");
    for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".svg")) {
        assert!(page.contains(&format!("]({path})")), "{path} is not shown");
        assert!(text.starts_with("<svg xmlns=") && text.contains("prefers-color-scheme"), "{text}");
    }
    assert!(page.contains("](performance/rows.md)"), "{page}");
}

#[test]
fn windows_under_two_seconds_count_for_nothing_on_the_page() {
    let mut rows = support::rows();
    rows.retain(|row| row.suite == Suite::Sql);
    let text = |rows: &[Row]| {
        let report = Report::new(vec![(support::manifest(), rows.to_vec())]);
        report.markdown("performance.md").swap_remove(0).1
    };
    assert!(text(&rows).contains("| JSON scan, range that 50 % pass |"));
    rows.iter_mut().for_each(|row| row.time.duration_s = 1.9);
    assert!(!text(&rows).contains("| JSON scan"), "{}", text(&rows));
    // The duration of one event is its figure, so it is not excluded.
    let mut rows = support::rows();
    rows.retain(|row| row.suite == Suite::Durability);
    rows.iter_mut().for_each(|row| row.time.duration_s = 0.3);
    let text = text(&rows);
    assert!(text.contains("| first read after a loss of memory |"), "{text}");
    assert!(!text.contains("| durable block device |"), "{text}");
}

#[test]
fn what_data_survives_is_said_for_every_use() {
    let page = &documentation(support::manifest())["performance.md"];
    let table = page.split_once("## When not to use it").expect("it says so").0;
    let lines: Vec<_> = table.lines().filter(|it| it.starts_with("| ")).skip(1).collect();
    assert!(lines.len() > 5, "{table}");
    for line in lines {
        let survives = line.trim_end_matches(" |").rsplit_once("| ").expect("a table").1;
        assert!(survives.starts_with("kill; ") || survives.starts_with("power loss; "), "{line}");
    }
}

#[test]
fn a_smoke_test_decides_nothing() {
    let decided = &documentation(support::manifest())["performance.md"];
    assert!(decided.contains(" | missed | "), "{decided}");
    let quick = Manifest { profile: "quick".to_owned(), ..support::manifest() };
    let page = Report::new(vec![(quick.clone(), support::rows())]).html();
    let text = &documentation(quick)["performance.md"];
    assert!(text.contains("missed, smoke test") && !text.contains(" | missed | "), "{text}");
    let page = Html::parse_document(&page);
    let said: String = page.select(&selector("#verdict tbody")).flat_map(|it| it.text()).collect();
    assert!(said.contains("met, smoke test"), "{said}");
}

#[test]
fn the_documentation_names_uses_that_were_not_measured() {
    let missing = |rows: Vec<Row>| {
        let pages = Report::new(vec![(support::manifest(), rows)]).markdown("performance.md");
        let line =
            pages[0].1.lines().find(|line| line.starts_with("Not measured")).map(str::to_owned);
        line.unwrap_or_default()
    };
    let all = missing(Vec::new());
    assert!(all.starts_with("Not measured in these runs: block device, durable block device, "));
    assert!(all.contains(", message log, SQL, live query, memory, start. "), "{all}");
    let some = missing(support::rows());
    assert!(!some.contains("SQL") && some.len() < all.len(), "{some}");
}

#[test]
fn a_compact_run_gives_the_same_documentation() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let made = folder.path().join("made");
    let mut run = RunFolder::create(&made, support::manifest()).expect("it is new");
    for row in support::rows() {
        let Row { suite, case, target, repeat, .. } = row.clone();
        let key = StepKey { suite, case, target, repeat };
        run.append(StepRecord { key, rows: vec![row] }).expect("it can be written");
    }
    let compact = folder.path().join("compact");
    run.write_compact(&compact, folder.path()).expect("it can be written");
    let text =
        |folder: &Path| Report::read(&[folder]).expect("it holds a run").markdown("performance.md");
    assert_eq!(text(&made), text(&compact));
    let size = |folder: &Path| std::fs::metadata(folder.join("steps.jsonl")).expect("there").len();
    assert!(size(&compact) < size(&made));
}

#[test]
fn the_committed_page_is_made_from_the_kept_runs() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let names = |folder: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("the folder is there");
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            entry.expect("it can be listed").file_name().into_string().expect("it is UTF-8")
        };
        let mut names: Vec<_> = entries.map(name).collect();
        names.sort_by_key(|name| (name.len(), name.clone()));
        names
    };
    let runs = docs.join("performance/runs");
    let runs: Vec<_> = names(&runs).iter().map(|name| runs.join(name)).collect();
    let made = Report::read(&runs).expect("the runs can be read").markdown("performance.md");
    for (path, text) in &made {
        let committed = std::fs::read_to_string(docs.join(path)).unwrap_or_default();
        assert!(
            committed == *text,
            "docs/{path} is not what the kept runs give; run memlane-bench report \
             docs/performance/runs/* --markdown docs/performance.md"
        );
    }
    let is_made = |name: &String| {
        name == "runs" || made.iter().any(|(path, _)| *path == format!("performance/{name}"))
    };
    let strangers: Vec<_> =
        names(&docs.join("performance")).into_iter().filter(|name| !is_made(name)).collect();
    assert!(strangers.is_empty(), "{strangers:?} is not made from the kept runs");
}
