//! Builds the console's page with npm, before the console that contains it.
//!
//! The sources of a build are recorded. The page is built again only if one of them has changed, so
//! that the console is not rebuilt unnecessarily.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::repository::Repository;

const FOLDER: &str = "control/web";

/// Documents from which the types of the page's calls are generated.
const INTERFACES: [&str; 2] = ["control/api/machines.json", "control/api/openapi.json"];

/// Files that a build creates, below the folder.
const MADE: &[&str] = &["dist/index.html", "node_modules/.package-lock.json"];

/// Record of the sources of the last build, relative to the root.
const NOTE: &str = "target/page-sources";

/// Result of a build of the page.
pub(crate) enum Page {
    Built,
    /// Missing, with the reason.
    Missing(&'static str),
}

/// Builds the page, unless it is up to date.
pub(crate) fn build(root: &Path) -> Result<Page> {
    for (program, missing) in [("node", "node is not installed"), ("npm", "npm is not installed")] {
        if Command::new(program).arg("--version").output().is_err() {
            return Ok(Page::Missing(missing));
        }
    }
    let (note, sources) = (root.join(NOTE), sources_in(&Repository::read(root)?));
    let folder = root.join(FOLDER);
    let is_there = MADE.iter().all(|path| folder.join(path).exists());
    if is_there && fs::read_to_string(&note).is_ok_and(|noted| noted == sources) {
        return Ok(Page::Built);
    }
    npm(&["ci", "--no-audit", "--no-fund"], &folder)?;
    npm(&["run", "build"], &folder)?;
    fs::create_dir_all(root.join("target")).context("cannot make the folder target")?;
    fs::write(&note, sources).with_context(|| format!("cannot write {}", note.display()))?;
    Ok(Page::Built)
}

/// Concatenates all sources in a fixed order, each preceded by its path.
fn sources_in(repository: &Repository) -> String {
    let below = format!("{FOLDER}/");
    let is_source = |path: &str| INTERFACES.contains(&path) || path.starts_with(&below);
    let sources = repository.files.iter().filter(|it| is_source(&it.path));
    sources.map(|it| format!("{}\n{}\n", it.path, it.text)).collect()
}

fn npm(words: &[&str], folder: &Path) -> Result<()> {
    let status = Command::new("npm").args(words).current_dir(folder).status();
    ensure!(status.context("cannot run npm")?.success(), "npm {} failed", words.join(" "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::repository::TextFile;

    use super::*;

    #[test]
    fn the_page_is_made_of_its_folder_and_of_the_interfaces() {
        let file = |path: &str| TextFile { path: path.to_owned(), text: "x".to_owned() };
        let [machines, daemon] = INTERFACES;
        let paths = ["control/web/a.ts", "control/webs/b.ts", machines, daemon, "README.md"];
        let repository = Repository { files: paths.map(file).into(), ..Repository::default() };
        let sources = format!("control/web/a.ts\nx\n{machines}\nx\n{daemon}\nx\n");
        assert_eq!(sources_in(&repository), sources);
    }
}
