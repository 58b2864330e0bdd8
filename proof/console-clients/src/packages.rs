//! The built page, and the npm packages that drive a browser.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use kafka_clients::Recipe;
use system::Tool;

const SOURCES: &str = env!("CARGO_MANIFEST_DIR");
const ORIGIN: &str = "the npm registry";

/// Files that a build creates.
const MADE: &[&str] = &["dist/index.html", "node_modules/.package-lock.json"];

/// Folder of the page's sources.
pub fn page_sources() -> PathBuf {
    Path::new(SOURCES).join("../../control/web")
}

/// Folder of the page as served by the console. `cargo xtask page` builds it, before the console
/// that contains it.
pub fn page() -> Result<PathBuf> {
    let is_built = MADE.iter().all(|path| page_sources().join(path).exists());
    ensure!(is_built, "there is no page: run cargo xtask page");
    Ok(page_sources().join("dist"))
}

/// Folder of the scenarios, with their packages.
pub fn browser() -> Result<PathBuf> {
    let sources = Path::new(SOURCES).join("browser");
    let made_of = ["browser/package.json", "browser/package-lock.json"];
    let recipe = Recipe { sources: SOURCES, name: "browser", origin: ORIGIN, made_of: &made_of };
    recipe.folder(|_| npm("ci", &sources))?;
    // After the sources were cleaned, packages are fetched again.
    if !sources.join("node_modules").exists() {
        npm("ci", &sources)?;
    }
    Ok(sources)
}

fn npm(words: &str, folder: &Path) -> Result<()> {
    Tool::new(&format!("npm {words} --no-audit --no-fund")).current_dir(folder).check()?;
    Ok(())
}
