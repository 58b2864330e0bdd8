//! `memlane-bench`: measures the engine beside bare memory, in one run.
#![forbid(unsafe_code)]

mod case;
mod clock;
mod contents;
mod engine;
mod floor;
mod output;
mod pool;
#[expect(dead_code, unused_imports, reason = "the suites move to planned steps next")]
mod run;
mod steps;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "memlane-bench", about = "Measure Memlane on this machine")]
struct Arguments {
    /// Print one JSON array instead of a table
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The engine in this process, beside copies of bare memory
    Engine(engine::Arguments),
    /// Each step of the write and read path by itself
    Steps(steps::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.command {
        Command::Engine(engine) => engine::run(engine, arguments.json),
        Command::Steps(steps) => steps::run(steps, arguments.json),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::failure(&error, arguments.json);
            ExitCode::FAILURE
        }
    }
}
