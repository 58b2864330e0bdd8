//! The console's page, built by npm before the console that holds it.
//!
//! What it was built of is noted: it is built again when one of its sources has changed, and only
//! then, so that the console is not built again either.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::house::House;

const FOLDER: &str = "control/web";

/// The types of the page's calls are made of them.
const INTERFACES: [&str; 2] = ["control/api/machines.json", "control/api/openapi.json"];

/// What a build leaves, below the folder.
const MADE: &[&str] = &["dist/index.html", "node_modules/.package-lock.json"];

/// Below the root: the sources that it was built of.
const NOTE: &str = "target/page-sources";

/// Existence of a page.
pub(crate) enum Page {
    Built,
    /// Why there is none.
    Missing(&'static str),
}

/// Builds it, unless it is there.
pub(crate) fn build(root: &Path) -> Result<Page> {
    for (program, missing) in [("node", "node is not installed"), ("npm", "npm is not installed")] {
        if Command::new(program).arg("--version").output().is_err() {
            return Ok(Page::Missing(missing));
        }
    }
    let (note, sources) = (root.join(NOTE), sources_in(&House::read(root)?));
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

/// All of them in a fixed order, each behind its path.
fn sources_in(house: &House) -> String {
    let below = format!("{FOLDER}/");
    let is_source = |path: &str| INTERFACES.contains(&path) || path.starts_with(&below);
    let sources = house.files.iter().filter(|it| is_source(&it.path));
    sources.map(|it| format!("{}\n{}\n", it.path, it.text)).collect()
}

fn npm(words: &[&str], folder: &Path) -> Result<()> {
    let status = Command::new("npm").args(words).current_dir(folder).status();
    ensure!(status.context("cannot run npm")?.success(), "npm {} failed", words.join(" "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::house::TextFile;

    use super::*;

    #[test]
    fn the_page_is_made_of_its_folder_and_of_the_interfaces() {
        let file = |path: &str| TextFile { path: path.to_owned(), text: "x".to_owned() };
        let [machines, daemon] = INTERFACES;
        let paths = ["control/web/a.ts", "control/webs/b.ts", machines, daemon, "README.md"];
        let house = House { files: paths.map(file).into(), ..House::default() };
        let sources = format!("control/web/a.ts\nx\n{machines}\nx\n{daemon}\nx\n");
        assert_eq!(sources_in(&house), sources);
    }
}
