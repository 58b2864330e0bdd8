//! The page as it was built, and packages of the npm registry that drive a browser.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use kafka_clients::Recipe;
use system::Tool;

const SOURCES: &str = env!("CARGO_MANIFEST_DIR");
const ORIGIN: &str = "the npm registry";

/// What its build leaves.
const MADE: &[&str] = &["dist/index.html", "node_modules/.package-lock.json"];

/// The folder of the page's sources.
pub fn page_sources() -> PathBuf {
    Path::new(SOURCES).join("../../control/web")
}

/// The folder of the page as the console serves it. `cargo xtask page` builds it, before the
/// console that holds it.
pub fn page() -> Result<PathBuf> {
    let is_built = MADE.iter().all(|path| page_sources().join(path).exists());
    ensure!(is_built, "there is no page: run cargo xtask page");
    Ok(page_sources().join("dist"))
}

/// The folder of the scenarios, with their packages.
pub fn browser() -> Result<PathBuf> {
    let sources = Path::new(SOURCES).join("browser");
    let made_of = ["browser/package.json", "browser/package-lock.json"];
    let recipe = Recipe { sources: SOURCES, name: "browser", origin: ORIGIN, made_of: &made_of };
    recipe.folder(|_| npm("ci", &sources))?;
    // Who cleaned the sources has them fetched again.
    if !sources.join("node_modules").exists() {
        npm("ci", &sources)?;
    }
    Ok(sources)
}

fn npm(words: &str, folder: &Path) -> Result<()> {
    Tool::new(&format!("npm {words} --no-audit --no-fund")).current_dir(folder).check()?;
    Ok(())
}
