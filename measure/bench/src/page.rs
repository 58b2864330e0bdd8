//! One page that shows recorded runs, and the same for other programs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use report::Report;

use crate::output;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Folders of runs, finished or not
    #[arg(required = true, value_name = "DIR")]
    pub(crate) folders: Vec<PathBuf>,
    /// The page to write: one file that needs nothing else; report.html in the first folder where
    /// nothing is said. What it shows goes beside it as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Also write every row as a line of CSV
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Also write bars and medians as a page of Markdown
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
    /// Also write charts as Vega-Lite specifications into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) vega: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let report = Report::read(&arguments.folders)?;
    let html = match &arguments.html {
        Some(html) => html.clone(),
        None => arguments.folders[0].join("report.html"),
    };
    write(&html, &report.html())?;
    write(&html.with_extension("json"), &report.json())?;
    if let Some(path) = &arguments.csv {
        write(path, &report.csv()?)?;
    }
    if let Some(path) = &arguments.markdown {
        write(path, &report.markdown())?;
    }
    if let Some(folder) = &arguments.vega {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        for (name, text) in report.vega() {
            write(&folder.join(name), &text)?;
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    output::progress(&format!("wrote {}", path.display()));
    Ok(())
}
