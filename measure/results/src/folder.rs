//! The folder of a run, written so that a kill loses no finished step.
//!
//! ```text
//! manifest.json   written once, before the first step
//! steps.jsonl     one line for each finished step: its key and its rows
//! results.json    all rows in one array, derived from steps.jsonl at the end or an interruption
//! summary.json    the median of each case and target, written at the same time
//! raw/            raw output of tools
//! ```
//!
//! Files other than `steps.jsonl` are replaced atomically, by renaming a temporary file.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::manifest::Manifest;
use crate::row::{Row, Suite};
use crate::summary::summarise;

const MANIFEST: &str = "manifest.json";
const STEPS: &str = "steps.jsonl";
const RESULTS: &str = "results.json";
const SUMMARY: &str = "summary.json";
const RAW: &str = "raw";

/// Names a step within a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct StepKey {
    pub suite: Suite,
    pub case: String,
    pub target: String,
    pub repeat: u32,
}

/// A finished step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepRecord {
    #[serde(flatten)]
    pub key: StepKey,
    pub rows: Vec<Row>,
}

/// A run on disk.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    manifest: Manifest,
    records: Vec<StepRecord>,
    /// Length of the steps file up to its last complete line.
    whole_bytes: u64,
}

impl RunFolder {
    /// Creates the folder of a new run. Fails if it already contains one.
    pub fn create(path: &Path, manifest: Manifest) -> Result<Self> {
        fs::create_dir_all(path.join(RAW))
            .with_context(|| format!("cannot create the directory {}", path.display()))?;
        let manifest_path = path.join(MANIFEST);
        ensure!(
            !manifest_path.exists(),
            "{} already contains a run; continue it with --resume or use another directory",
            path.display()
        );
        write_whole(&manifest_path, &to_text(&manifest))?;
        Ok(Self { path: path.to_owned(), manifest, records: Vec::new(), whole_bytes: 0 })
    }

    /// Opens a run, finished or not. Ignores a line truncated by a kill.
    pub fn open(path: &Path) -> Result<Self> {
        let text = read(&path.join(MANIFEST))?;
        let manifest = Manifest::parse(&text).with_context(|| format!("in {}", path.display()))?;
        let (mut records, mut whole_bytes) = (Vec::new(), 0);
        let steps_path = path.join(STEPS);
        if steps_path.exists() {
            let text = read(&steps_path)?;
            for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
                let record = serde_json::from_str(line)
                    .with_context(|| format!("{} is corrupt", steps_path.display()))?;
                records.push(record);
                whole_bytes += line.len() as u64;
            }
        }
        Ok(Self { path: path.to_owned(), manifest, records, whole_bytes })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the finished steps in the order of execution.
    pub fn records(&self) -> &[StepRecord] {
        &self.records
    }

    pub fn has(&self, key: &StepKey) -> bool {
        self.records.iter().any(|record| record.key == *key)
    }

    /// Returns all rows in the order of measurement.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.records.iter().flat_map(|record| &record.rows)
    }

    /// Appends a finished step.
    pub fn append(&mut self, record: StepRecord) -> Result<()> {
        let path = self.path.join(STEPS);
        let mut line = serde_json::to_string(&record).expect("a record is plain data");
        line.push('\n');
        let write = |file: &mut File| {
            // A truncated line is removed first. Otherwise two lines would be joined.
            file.set_len(self.whole_bytes)?;
            file.write_all(line.as_bytes())
        };
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .and_then(|mut file| write(&mut file))
            .with_context(|| format!("cannot add to {}", path.display()))?;
        self.whole_bytes += line.len() as u64;
        self.records.push(record);
        Ok(())
    }

    /// Writes a copy of the run to another folder without histograms and time series, small enough
    /// for a repository. Makes paths below `root` relative to it.
    pub fn write_compact(&self, path: &Path, root: &Path) -> Result<()> {
        let prefix = format!("{}/", root.display());
        let relative = |text: String| text.replace(&prefix, "");
        let manifest = Manifest::parse(&relative(to_text(&self.manifest)))?;
        let mut compact = Self::create(path, manifest)?;
        for record in &self.records {
            let rows: Vec<Row> = record.rows.iter().cloned().map(Row::compact).collect();
            let rows = serde_json::from_str(&relative(to_text(&rows)))
                .context("a row with relative paths is no row")?;
            compact.append(StepRecord { key: record.key.clone(), rows })?;
        }
        Ok(())
    }

    /// Writes the files derived from the steps.
    pub fn write_results(&self) -> Result<()> {
        let rows: Vec<&Row> = self.rows().collect();
        write_whole(&self.path.join(RESULTS), &to_text(&rows))?;
        write_whole(&self.path.join(SUMMARY), &to_text(&summarise(rows)))
    }
}

fn to_text(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("what is recorded is plain data");
    text.push('\n');
    text
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Replaces a file atomically, even if killed.
fn write_whole(path: &Path, text: &str) -> Result<()> {
    let aside = path.with_extension("json.new");
    fs::write(&aside, text)
        .and_then(|()| fs::rename(&aside, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::tests::manifest;

    fn record(case: &str) -> StepRecord {
        let row = Row::new(Suite::Engine, case, "volume");
        let (suite, target) = (Suite::Engine, "volume".to_owned());
        let key = StepKey { suite, case: case.to_owned(), target, repeat: 0 };
        StepRecord { key, rows: vec![row] }
    }

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("there is room for a folder")
    }

    #[test]
    fn a_run_reads_back_as_it_was_written() {
        let place = folder();
        let mut run = RunFolder::create(place.path(), manifest()).expect("it is empty");
        run.append(record("one")).expect("it can be written");
        run.append(record("two")).expect("it can be written");
        let again = RunFolder::open(place.path()).expect("it can be read");
        assert_eq!(again.records(), run.records());
        assert_eq!(again.manifest(), &manifest());
    }

    #[test]
    fn a_line_that_a_kill_cut_short_costs_that_step_alone() {
        let place = folder();
        let mut run = RunFolder::create(place.path(), manifest()).expect("it is empty");
        run.append(record("one")).expect("it can be written");
        let path = place.path().join(STEPS);
        let mut text = fs::read(&path).expect("it was written");
        text.extend_from_slice(b"{\"suite\":\"eng");
        fs::write(&path, text).expect("it can be written");
        let mut again = RunFolder::open(place.path()).expect("it can be read");
        assert_eq!(again.records().len(), 1);
        again.append(record("two")).expect("it can be written");
        let third = RunFolder::open(place.path()).expect("it can be read");
        assert_eq!(third.records(), [record("one"), record("two")]);
    }

    #[test]
    fn a_compact_run_names_no_path_of_its_checkout() {
        let place = folder();
        let path = place.path().join("target/run");
        let mut manifest = manifest();
        manifest.command_line = vec!["bench".to_owned(), path.display().to_string()];
        let mut run = RunFolder::create(&path, manifest).expect("it is empty");
        let mut record = record("one");
        let command = format!("fio --filename={}", path.join("file").display());
        record.rows[0].params.insert("command".to_owned(), command.into());
        run.append(record).expect("it can be written");
        let compact = place.path().join("kept");
        run.write_compact(&compact, place.path()).expect("it can be written");
        let compact = RunFolder::open(&compact).expect("it can be read");
        assert_eq!(compact.manifest().command_line, ["bench", "target/run"]);
        let row = compact.rows().next().expect("its row is there");
        assert_eq!(row.params["command"], "fio --filename=target/run/file");
    }

    #[test]
    fn a_folder_holds_one_run() {
        let place = folder();
        RunFolder::create(place.path(), manifest()).expect("it is empty");
        let error = RunFolder::create(place.path(), manifest()).expect_err("it is taken");
        assert!(error.to_string().contains("--resume"), "{error}");
    }

    #[test]
    fn results_are_an_array_of_all_rows() {
        let place = folder();
        let mut run = RunFolder::create(place.path(), manifest()).expect("it is empty");
        run.append(record("one")).expect("it can be written");
        run.write_results().expect("it can be written");
        let text = read(&place.path().join(RESULTS)).expect("it was written");
        let rows: Vec<Row> = serde_json::from_str(&text).expect("it is an array of rows");
        assert_eq!(rows, record("one").rows);
    }
}
