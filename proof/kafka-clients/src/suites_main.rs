//! Runs the suites of clients, those in the arguments or all, and prints the numbers for a guide.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use kafka_clients::{Counts, SUITES};

fn main() -> ExitCode {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let is_asked = |name: &str| asked.is_empty() || asked.iter().any(|it| it == name);
    let mut end = ExitCode::SUCCESS;
    for suite in SUITES.iter().filter(|it| is_asked(it.name)) {
        let name = suite.name;
        match suite.check() {
            Ok(Counts { passed, known, left_out }) => {
                eprintln!("{name}: {passed} passed, {known} cannot, {left_out} left out");
            }
            Err(error) => {
                eprintln!("{name}: {error:#}");
                end = ExitCode::FAILURE;
            }
        }
    }
    end
}
