//! Report generator: from runs to pages.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use results::{Manifest, Row, RunFolder};

use crate::book::Book;
use crate::{export, markdown, page};

/// Runs that are reported together.
pub struct Report {
    runs: Vec<(Manifest, Vec<Row>)>,
}

impl Report {
    /// Creates a report of runs with their rows, in display order.
    pub fn new(runs: Vec<(Manifest, Vec<Row>)>) -> Self {
        Self { runs }
    }

    /// Reads the folders of runs, finished or not.
    pub fn read(folders: &[impl AsRef<Path>]) -> Result<Self> {
        ensure!(!folders.is_empty(), "no run given; name the directory of at least one run");
        let read = |folder: &Path| {
            let shown = folder.display();
            ensure!(folder.is_dir(), "cannot report on {shown}: no such directory");
            ensure!(
                folder.join("manifest.json").exists(),
                "{shown} contains no run: manifest.json is missing; name the directory that a run \
                 was recorded in (--out)"
            );
            let run =
                RunFolder::open(folder).with_context(|| format!("cannot report on {shown}"))?;
            Ok((run.manifest().clone(), run.rows().cloned().collect()))
        };
        let runs: Result<Vec<_>> = folders.iter().map(|folder| read(folder.as_ref())).collect();
        Ok(Self::new(runs?))
    }

    /// Returns a self-contained HTML page.
    pub fn html(&self) -> String {
        page::write(&self.book())
    }

    /// Returns the data that the page embeds: all rows, values computed from them, and the papers'
    /// figures.
    pub fn json(&self) -> String {
        let book = self.book();
        // Rendering the page computes the derived values.
        page::write(&book);
        let text = serde_json::to_string_pretty(&book.document());
        text.expect("the document is plain data") + "\n"
    }

    /// Returns a Markdown page of this file name for decision makers, and the files that it links
    /// to in a folder beside it, as paths and texts.
    pub fn markdown(&self, page: &str) -> Vec<(String, String)> {
        markdown::write(page, &self.runs)
    }

    /// Returns all rows as CSV.
    pub fn csv(&self) -> Result<String> {
        export::csv(&self.book())
    }

    /// Returns charts as Vega-Lite specifications with their data, as file names and contents.
    pub fn vega(&self) -> Vec<(String, String)> {
        export::vega(&self.book())
    }

    fn book(&self) -> Book {
        Book::new(self.runs.iter().cloned())
    }
}
