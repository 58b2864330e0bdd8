//! `memlane-bench`: measures Memlane and what it is compared with, on this machine.
#![forbid(unsafe_code)]

mod case;
mod clock;
mod command;
mod compare;
mod contents;
#[cfg_attr(not(test), expect(dead_code, reason = "the suites take their pages from it next"))]
mod corpus;
mod doctor;
mod engine;
mod floor;
mod forsa;
mod fusion;
#[allow(dead_code, reason = "suites with open loops come next")]
mod latency;
mod log;
mod output;
#[allow(dead_code, reason = "suites with open loops come next")]
mod pace;
mod page;
mod peers;
mod pool;
mod reduction;
mod run;
mod steps;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = command::Arguments::parse();
    let form = arguments.form();
    command::run(&arguments, form).unwrap_or_else(|error| {
        output::failure(&error, form);
        ExitCode::FAILURE
    })
}
