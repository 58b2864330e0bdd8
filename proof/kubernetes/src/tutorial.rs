//! Runs the tutorial's commands verbatim.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use system::page::{Action, steps};
use system::{Background, Tool};

const PAGE: &str = "docs/tutorials/kubernetes.md";
const TIME_LIMIT: Duration = Duration::from_secs(900);

/// Runs the whole page in one shell, in a folder with the files of a checkout that the page uses.
pub(crate) fn run(folder: &Path) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let text = fs::read_to_string(root.join(PAGE)).context("cannot read the tutorial")?;
    let mut script = "set -eux\n".to_owned();
    for step in steps(&text)? {
        if let Action::RunInCluster { script: commands } = step.action {
            script += &format!(": {PAGE}, line {}\n{commands}\n", step.line);
        }
    }
    let checkout = folder.join("checkout");
    fs::create_dir(&checkout).context("cannot make a folder for the tutorial")?;
    symlink(root.join("deploy"), checkout.join("deploy")).context("cannot link a folder")?;
    let start = Instant::now();
    // With files as output, because the daemon that it starts would keep pipes open.
    let log = Path::new("/var/log/tutorial.log");
    let output = File::create(log).context("cannot make a log")?;
    let shell = Tool::new("sh -c").arg(script).current_dir(&checkout).output_to(output)?;
    let ran = Background::start(shell)?.finish(TIME_LIMIT);
    ran.with_context(|| fs::read_to_string(log).unwrap_or_default())?;
    eprintln!("  passed: {PAGE} ({:.0} s)", start.elapsed().as_secs_f64());
    Ok(())
}
