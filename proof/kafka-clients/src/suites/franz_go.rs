//! The test suite of franz-go, from its module.

use std::time::Duration;

use anyhow::{Result, ensure};
use system::Tool;

use super::judgement::{Outcome, Outcomes};
use crate::broker::Broker;
use crate::go::GoClient;

const TIME_LIMIT: Duration = Duration::from_secs(90 * 60);

/// Number of records that a test writes, instead of half a million.
const RECORD_COUNT: &str = "20000";

/// Exit codes of a complete run: all tests passed, or some failed.
const ENDS: [Option<i32>; 2] = [Some(0), Some(1)];

pub(super) fn run() -> Result<Outcomes> {
    let program = GoClient::suite()?;
    let broker = Broker::of_everybody("2GiB", &["--group-initial-rebalance-delay", "0"])?;
    let output = Tool::new("env")
        .arg(program)
        .args(["-test.v", "-test.timeout", "80m"])
        .env("KGO_SEEDS", &broker.address())
        .env("KGO_TEST_RF", "1")
        .env("KGO_TEST_RECORDS", RECORD_COUNT)
        .time_limit(TIME_LIMIT)
        .run()?;
    ensure!(ENDS.contains(&output.exit_code), "franz-go's tests broke off: {}", output.stderr);
    Ok(outcomes(&output.stdout))
}

/// Subtests are included in the tests that contain them.
fn outcomes(printed: &str) -> Outcomes {
    let ends = [
        ("--- PASS: ", Outcome::Passed),
        ("--- FAIL: ", Outcome::Failed),
        ("--- SKIP: ", Outcome::LeftOut),
    ];
    let found = printed.lines().filter_map(|line| {
        let (rest, outcome) =
            ends.iter().find_map(|(mark, outcome)| Some((line.strip_prefix(mark)?, *outcome)))?;
        Some((rest.split(' ').next()?.to_owned(), outcome))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_tests_are_found_in_what_they_print() {
        let printed = "=== RUN   TestA\n--- PASS: TestA (0.10s)\n    --- FAIL: TestA/in (0.00s)\n\
                       --- SKIP: TestB (0.00s)\n--- FAIL: TestC (1.00s)\n";
        let expected =
            [("TestA", Outcome::Passed), ("TestB", Outcome::LeftOut), ("TestC", Outcome::Failed)];
        assert_eq!(outcomes(printed), expected.map(|(name, it)| (name.to_owned(), it)).into());
    }
}
