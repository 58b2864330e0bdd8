//! Progress of reading a source: a bar on a terminal, otherwise periodic lines.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use system::Interruption;

use crate::output::{self, bytes_text};

/// Interval of lines without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

pub(super) struct Progress {
    bar: Option<ProgressBar>,
    name: String,
    size_bytes: u64,
    last_line: Instant,
}

impl Progress {
    pub(super) fn new(name: String, size_bytes: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let template = "{bar:30} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left  {msg}";
            let style = ProgressStyle::with_template(template).expect("the template is fixed");
            ProgressBar::new(size_bytes).with_style(style).with_message(name.clone())
        });
        Self { bar, name, size_bytes, last_line: Instant::now() }
    }

    /// Shows the progress. Fails if the user interrupts.
    pub(super) fn at(&mut self, done_bytes: u64) -> Result<()> {
        go_on()?;
        if let Some(bar) = &self.bar {
            bar.set_position(done_bytes);
        } else if self.last_line.elapsed() >= LINE_INTERVAL {
            self.last_line = Instant::now();
            let (done, all) = (bytes_text(done_bytes), bytes_text(self.size_bytes));
            output::progress(&format!("{done} of {all}  {}", self.name));
        }
        Ok(())
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Fails if the user has interrupted.
pub(super) fn go_on() -> Result<()> {
    ensure!(!Interruption::is_asked_for(), "interrupted while reading data");
    Ok(())
}
