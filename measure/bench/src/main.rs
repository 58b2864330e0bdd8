//! `memlane-bench`: measures Memlane and what it is compared with, on this machine.
#![forbid(unsafe_code)]

mod aligned;
mod case;
mod clock;
mod command;
mod compare;
mod contents;
mod corpus;
mod doctor;
mod durability;
mod engine;
mod fio_step;
mod floor;
mod forsa;
mod fusion;
mod latency;
mod log;
mod medians;
mod output;
mod pace;
mod page;
mod peers;
mod pool;
mod reduction;
mod run;
mod steps;

use std::process::ExitCode;

use clap::Parser;
use system::Interruption;

fn main() -> ExitCode {
    let arguments = command::Arguments::parse();
    let form = arguments.form();
    command::run(&arguments, form).unwrap_or_else(|error| {
        output::failure(&error, form);
        match Interruption::was_asked_for() {
            true => ExitCode::from(run::INTERRUPTED_EXIT_CODE),
            false => ExitCode::FAILURE,
        }
    })
}
