//! Durations of steps and suites, stored in `target/` between runs: the longest suites begin first,
//! and progress messages show the expected durations.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

/// Path relative to the root. The file has one line for each name, after its milliseconds.
const PATH: &str = "target/times";

/// Durations of the last run, by name.
#[derive(Debug, Default)]
pub(crate) struct Times {
    path: PathBuf,
    kept: BTreeMap<String, Duration>,
}

impl Times {
    /// Reads the durations. Lines that cannot be parsed are ignored.
    pub(crate) fn read(root: &Path) -> Self {
        let path = root.join(PATH);
        let text = fs::read_to_string(&path).unwrap_or_default();
        Self { kept: text.lines().filter_map(parse).collect(), path }
    }

    pub(crate) fn of(&self, name: &str) -> Option<Duration> {
        self.kept.get(name).copied()
    }

    pub(crate) fn note(&mut self, name: &str, took: Duration) {
        self.kept.insert(name.to_owned(), took);
    }

    pub(crate) fn save(&self) -> Result<()> {
        let lines = self.kept.iter().map(|(name, took)| format!("{} {name}\n", took.as_millis()));
        fs::write(&self.path, lines.collect::<String>())
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}

fn parse(line: &str) -> Option<(String, Duration)> {
    let (milliseconds, name) = line.split_once(' ')?;
    Some((name.to_owned(), Duration::from_millis(milliseconds.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_duration_and_a_name() {
        let read = parse("1500 volumes/crash");
        assert_eq!(read, Some(("volumes/crash".to_owned(), Duration::from_millis(1500))));
        assert_eq!(parse("volumes/crash"), None);
    }
}
