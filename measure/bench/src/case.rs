//! Parameters of a measurement, and the selection of measurements.

use anyhow::{Context, Result, bail, ensure};

use crate::contents::Data;

/// Operation on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Op {
    Read,
    /// Writes to blocks that have contents.
    Overwrite,
    /// Writes to empty blocks.
    Write,
    Discard,
}

impl Op {
    const ALL: [Self; 4] = [Self::Read, Self::Overwrite, Self::Write, Self::Discard];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Overwrite => "overwrite",
            Self::Write => "write",
            Self::Discard => "discard",
        }
    }
}

/// Order of the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Pattern {
    Seq,
    Rand,
}

impl Pattern {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Seq => "seq",
            Self::Rand => "rand",
        }
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) op: Op,
    pub(crate) block_bytes: usize,
    pub(crate) pattern: Pattern,
    pub(crate) data: Data,
    pub(crate) threads: usize,
}

impl Case {
    /// Returns the name, which is the same in every run.
    pub(crate) fn name(&self) -> String {
        let (op, pattern, data) = (self.op.name(), self.pattern.name(), self.data.name());
        format!("{op} {} {pattern} {data} threads={}", self.block_bytes, self.threads)
    }

    fn value(&self, key: &str) -> Option<String> {
        Some(match key {
            "op" => self.op.name().to_owned(),
            "block_bytes" => self.block_bytes.to_string(),
            "pattern" => self.pattern.name().to_owned(),
            "data" => self.data.name().to_owned(),
            "threads" => self.threads.to_string(),
            _ => return None,
        })
    }
}

/// Returns all cases for up to `threads_max` threads that match every `KEY=VALUE` of `only`.
pub(crate) fn choose(only: &[String], threads_max: usize) -> Result<Vec<Case>> {
    let mut wanted = Vec::new();
    for pair in only {
        let (key, value) = pair
            .split_once('=')
            .with_context(|| format!("invalid --only {pair:?}; use KEY=VALUE"))?;
        wanted.push((key, value));
    }
    let all = all_cases(threads_max);
    for (key, value) in &wanted {
        let known: Vec<String> = all.iter().filter_map(|case| case.value(key)).collect();
        ensure!(
            !known.is_empty(),
            "unknown key {key:?} in --only; use op, block_bytes, pattern, data or threads"
        );
        if !known.iter().any(|known| known == value) {
            bail!("no case with {key}={value}");
        }
    }
    let agrees =
        |case: &Case| wanted.iter().all(|(key, value)| case.value(key).as_deref() == Some(value));
    let chosen: Vec<Case> = all.into_iter().filter(agrees).collect();
    ensure!(!chosen.is_empty(), "no case matches all parts of --only");
    Ok(chosen)
}

fn all_cases(threads_max: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    for threads in 1..=threads_max {
        for op in Op::ALL {
            for block_bytes in [4 << 10, 128 << 10] {
                for pattern in [Pattern::Rand, Pattern::Seq] {
                    for data in Data::ALL {
                        cases.push(Case { op, block_bytes, pattern, data, threads });
                    }
                }
            }
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(only: &[&str], expected_count: Option<usize>) {
        let only: Vec<String> = only.iter().map(|&pair| pair.to_owned()).collect();
        assert_eq!(choose(&only, 2).ok().map(|cases| cases.len()), expected_count);
    }

    #[test]
    fn cases_are_chosen_by_their_parameters() {
        check(&[], Some(160));
        check(&["op=read", "threads=1"], Some(20));
        check(
            &["op=read", "threads=1", "data=random", "pattern=rand", "block_bytes=4096"],
            Some(1),
        );
    }

    #[test]
    fn unknown_keys_and_values_are_refused() {
        check(&["colour=red"], None);
        check(&["op=fly"], None);
        check(&["op"], None);
    }
}
