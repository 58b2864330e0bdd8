//! Report page of recorded runs, and exports for other programs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use report::Report;
use results::RunFolder;

use crate::output;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Directories of runs, finished or not
    #[arg(required = true, value_name = "DIR")]
    pub(crate) folders: Vec<PathBuf>,
    /// Self-contained HTML file to write; its data is written as JSON to the same directory
    /// [default: report.html in the first directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Also write every row as a line of CSV
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Also write a summary in Markdown; its charts and all rows are written to a directory of the
    /// same name without .md
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
    /// Also write the runs in compact form, with paths relative to the working directory, to this
    /// directory. The Markdown page is created from them, and can be created again
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
    /// Also write charts as Vega-Lite specifications to this directory
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
    let kept = arguments.keep.as_deref().map(|folder| keep(&arguments.folders, folder));
    let kept = kept.transpose()?.map(|folders| Report::read(&folders)).transpose()?;
    if let Some(path) = &arguments.markdown {
        // Uses the kept runs, so that the page is reproducible from them.
        write_markdown(kept.as_ref().unwrap_or(&report), path)?;
    }
    if let Some(folder) = &arguments.vega {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create the directory {}", folder.display()))?;
        for (name, text) in report.vega() {
            write(&folder.join(name), &text)?;
        }
    }
    Ok(())
}

/// Writes the runs in compact form into folders of `folder`, and returns these. Paths become
/// relative to the working directory.
fn keep(runs: &[PathBuf], folder: &Path) -> Result<Vec<PathBuf>> {
    let root = env::current_dir().context("cannot find the working directory")?;
    let keep = |(index, run): (usize, &PathBuf)| {
        let compact = folder.join((index + 1).to_string());
        RunFolder::open(run)?.write_compact(&compact, &root)?;
        Ok(compact)
    };
    runs.iter().enumerate().map(keep).collect()
}

fn write_markdown(report: &Report, page: &Path) -> Result<()> {
    let name = page.file_name().and_then(OsStr::to_str);
    let name = name.with_context(|| format!("{} has no file name", page.display()))?;
    ensure!(name.ends_with(".md"), "{name} is not a Markdown file; its name must end with .md");
    let folder = page.with_extension("");
    fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create the directory {}", folder.display()))?;
    for (path, text) in report.markdown(name) {
        write(&page.with_file_name(path), &text)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    output::progress(&format!("wrote {}", path.display()));
    Ok(())
}
