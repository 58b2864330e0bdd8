//! The page's sources follow their rules, and the built page is small.

use std::fs;

use anyhow::{Context, Result, ensure};
use console_clients::{Fixture, browser, has_node, page, page_sources};
use system::Tool;

/// Maximum compressed size of all scripts except those of consoles. Less is loaded while no chart
/// is shown.
const SCRIPT_BYTES_MAX: u64 = 200 << 10;

/// Maximum compressed size of additional scripts for a terminal or a machine's screen.
const CONSOLE_BYTES_MAX: u64 = 100 << 10;
/// Compressed size of empty input.
const NOTHING_BYTES: u64 = 64;
const CONSOLES: [&str; 2] = ["serial", "screen"];

/// Types, format, lints and unit tests. They check, among others, that colours of charts are
/// distinguishable, and that lines are interrupted where no values are known.
#[test]
fn the_page_passes_its_own_checks() -> Result<()> {
    if !has_node() {
        return Ok(());
    }
    page()?;
    Tool::new("npm run check").current_dir(&page_sources()).check()?;
    Ok(())
}

#[test]
fn the_scenarios_pass_their_own_checks() -> Result<()> {
    if !has_node() {
        return Ok(());
    }
    Tool::new("npm run check").current_dir(&browser()?).check()?;
    Ok(())
}

#[test]
fn all_scripts_are_small_and_charts_and_consoles_come_when_they_are_needed() -> Result<()> {
    if !has_node() {
        return Ok(());
    }
    let built = page()?;
    let compressed = |files: &str| -> Result<u64> {
        let script = format!("find assets {files} -exec cat '{{}}' + | gzip -9 | wc -c");
        Ok(Tool::new("sh -c").arg(script).current_dir(&built).check()?.trim().parse()?)
    };
    let consoles = CONSOLES.map(|name| format!("-name '{name}-*.js'"));
    let others = format!("-name '*.js' ! {} ! {}", consoles[0], consoles[1]);
    let bytes = compressed(&others)?;
    ensure!(bytes > NOTHING_BYTES, "no script was built");
    ensure!(bytes < SCRIPT_BYTES_MAX, "the scripts have {bytes} bytes");
    for console in &consoles {
        let bytes = compressed(console)?;
        ensure!(bytes > NOTHING_BYTES, "there is no {console}");
        ensure!(bytes < CONSOLE_BYTES_MAX, "{console} has {bytes} bytes");
    }
    let html = fs::read_to_string(built.join("index.html")).context("cannot read the page")?;
    ensure!(html.matches(".js").count() == 1, "the page begins with one script: {html}");
    let first = html.split('"').find(|it| it.ends_with(".js")).context("a script is named")?;
    let first = fs::read_to_string(built.join(first.trim_start_matches('/')))?;
    for (word, what) in [("u-wrap", "charts"), ("xterm-rows", "terminals")] {
        ensure!(!first.contains(word), "the first script holds the library of {what}");
    }
    Ok(())
}

/// A console that was built before the page contains an older one, or none.
#[test]
fn the_console_holds_the_page_that_was_built() -> Result<()> {
    if !has_node() {
        return Ok(());
    }
    let (fixture, built) = (Fixture::with_own_page()?, page()?);
    let files = Tool::new("find . -type f -printf %P\\n").current_dir(&built).check()?;
    let mut count = 0;
    for name in files.lines() {
        let served = fixture.page_file(name)?;
        ensure!(served == fs::read(built.join(name))?, "{name} is not what was built");
        count += 1;
    }
    ensure!(count > 2, "the page has {count} files");
    Ok(())
}

/// The console's policy forbids inline scripts and styles, and other origins.
#[test]
fn the_page_holds_no_script_no_style_and_no_other_address() -> Result<()> {
    if !has_node() {
        return Ok(());
    }
    let html = fs::read_to_string(page()?.join("index.html")).context("cannot read the page")?;
    for forbidden in ["<style", "style=", "://", "javascript:", "onload="] {
        ensure!(!html.contains(forbidden), "{forbidden} stands in the page: {html}");
    }
    ensure!(html.matches("<script").count() == html.matches(" src=").count(), "{html}");
    Ok(())
}
