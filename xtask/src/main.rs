//! `cargo xtask`: checks of the repository, and the implementation of the Makefile's targets.
//!
//! It builds and runs. It changes no tracked file but the table of unsafe code, on request.
#![forbid(unsafe_code)]

mod builds;
mod cargo;
mod deb;
mod deb_check;
mod failures;
mod fuzz;
mod image_check;
mod leftovers;
mod page;
mod plan;
mod progress;
mod release;
mod repository;
mod rest_pages;
mod sbom;
mod site;
mod stress;
mod stuck;
mod suites;
mod tasks;
mod tidy;
mod times;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
usage: cargo xtask TASK
  tidy            check the rules of STYLE.md and ARCHITECTURE.md that a machine can check
  circles [CRATE] print the circles between the modules of crates, with the uses that close them
  unsafe-report   rewrite docs/unsafe.md, the table of unsafe code
  check           format, lints, tidy, unit tests
  page            build the console's page, for a console that is built afterwards
  docs            the site of docs/ by mdBook in target/docs/book
  test [FILTER]   everything; with FILTER only the suites whose name contains it
  stress FILTER   ten times the suites whose names contain FILTER, beside four busy processes
  bench           measure everything quickly and leave a report in target/bench
  performance     measure what docs/performance.md shows and write it; two hours, and resumable
  soak            the long runs: 10,000 kills, 20 power cuts, suites of Kafka clients
  kubernetes      a cluster of one node whose pods use volumes; Kubernetes is built the first time
  deb [--programs FOLDER]
                  Debian packages in target/deb, of release programs or of those in FOLDER
  release [--programs FOLDER]
                  the files of a release in target/release-files, of the tagged commit; with FOLDER
                  of programs that were built before, without a look at the tag
  deb-check FOLDER
                  install, upgrade and purge packages of the programs in FOLDER, in a container
  fuzz TARGET SECONDS
                  one target of proof/fuzz, with the compiler that is there
  demo            PostgreSQL on a volume whose daemon is killed
  demo-log        a topic whose broker and daemon are killed under kcat
  demo-sql        topics and views that SQL defines, whose broker is killed";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result<()> {
    match arguments {
        // Not a filter.
        [_, option] if option.starts_with('-') => bail!("{USAGE}"),
        ["tidy"] => tasks::tidy(),
        ["circles"] => tasks::print_circles(""),
        ["circles", name] => tasks::print_circles(name),
        ["unsafe-report"] => tasks::write_unsafe_report(),
        ["check"] => tasks::check(),
        ["page"] => tasks::page(),
        ["docs"] => tasks::docs(),
        ["test"] => tasks::test(""),
        ["test", filter] => tasks::test(filter),
        ["stress", filter] => tasks::stress(filter),
        ["bench"] => tasks::bench(),
        ["performance"] => tasks::performance(),
        ["soak"] => tasks::soak(),
        ["kubernetes"] => tasks::kubernetes(),
        ["deb"] => tasks::deb(),
        ["deb-check", folder] => tasks::deb_check(Path::new(folder)),
        ["deb", "--programs", folder] => tasks::deb_of(Path::new(folder)),
        ["release"] => tasks::release(),
        ["release", "--programs", folder] => tasks::release_of(Path::new(folder)),
        ["fuzz", target, seconds] => fuzz::fuzz(target, seconds),
        ["demo"] => tasks::demo(),
        ["demo-log"] => tasks::demo_log(),
        ["demo-sql"] => tasks::demo_sql(),
        _ => bail!("{USAGE}"),
    }
}
