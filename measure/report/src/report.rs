//! Runs in, page out.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use results::{Manifest, Row, RunFolder};

use crate::book::Book;
use crate::{export, markdown, page};

/// Runs to be shown together.
pub struct Report {
    runs: Vec<(Manifest, Vec<Row>)>,
}

impl Report {
    /// Runs with their rows, in the order in which they are to be shown.
    pub fn new(runs: Vec<(Manifest, Vec<Row>)>) -> Self {
        Self { runs }
    }

    /// Reads the folders of runs, finished or not.
    pub fn read(folders: &[impl AsRef<Path>]) -> Result<Self> {
        ensure!(!folders.is_empty(), "a report needs the folder of one run at least");
        let read = |folder: &Path| {
            let shown = folder.display();
            ensure!(folder.is_dir(), "cannot report: there is no folder {shown}");
            ensure!(
                folder.join("manifest.json").exists(),
                "{shown} holds no run: it has no manifest.json; name the folder that a run was \
                 recorded in (--out)"
            );
            let run =
                RunFolder::open(folder).with_context(|| format!("cannot report on {shown}"))?;
            Ok((run.manifest().clone(), run.rows().cloned().collect()))
        };
        let runs: Result<Vec<_>> = folders.iter().map(|folder| read(folder.as_ref())).collect();
        Ok(Self::new(runs?))
    }

    /// One HTML page that needs nothing else.
    pub fn html(&self) -> String {
        page::write(&self.book())
    }

    /// Data that the page embeds: every row, what was computed from them, and the papers' figures.
    pub fn json(&self) -> String {
        let book = self.book();
        // Figures are computed as they are shown.
        page::write(&book);
        let text = serde_json::to_string_pretty(&book.document());
        text.expect("the document is plain data") + "\n"
    }

    /// A page of Markdown of this file name for readers who decide, and what it links to, in a
    /// folder beside it: paths and texts.
    pub fn markdown(&self, page: &str) -> Vec<(String, String)> {
        markdown::write(page, &self.runs)
    }

    /// Every row as a line of CSV.
    pub fn csv(&self) -> Result<String> {
        export::csv(&self.book())
    }

    /// Charts as Vega-Lite specifications with their data: file names and contents.
    pub fn vega(&self) -> Vec<(String, String)> {
        export::vega(&self.book())
    }

    fn book(&self) -> Book {
        Book::new(self.runs.iter().cloned())
    }
}
