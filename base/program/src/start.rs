//! Start of a program, from the command line to its work, and its end.

use std::path::Path;
use std::process::ExitCode;
use std::{fs, io};

use anyhow::{Context, ensure};
use clap::{Command, CommandFactory, Parser};
use clap_mangen::Man;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::signals::Signals;

/// Starts a program with the options of its command line and option file, and reports its error. A
/// panic ends the program.
pub fn run<O: Parser>(start: impl FnOnce(O) -> anyhow::Result<()>) -> ExitCode {
    service_manager::die_of_panics();
    let options = option_file::read_options().map_err(anyhow::Error::from);
    match options.and_then(start) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error:#}", O::command().get_name());
            ExitCode::FAILURE
        }
    }
}

/// Section of the manual for daemons and the administration of a system.
const MANUAL_SECTION: &str = "8";

/// Writes the manual pages of a server with options `O` to the folder `man8` in `folder`.
///
/// # Errors
/// `folder` does not exist, or cannot be written to.
pub fn write_manual<O: CommandFactory>(folder: &Path) -> anyhow::Result<()> {
    let folder = folder.join(format!("man{MANUAL_SECTION}"));
    let mut command = O::command().disable_help_subcommand(true);
    command.build();
    let made = match fs::create_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    };
    let written = made.and_then(|()| write_pages(command, &folder));
    written.with_context(|| format!("cannot write to {}", folder.display()))
}

/// Writes the page of a command, and of each command below it.
fn write_pages(command: Command, folder: &Path) -> io::Result<()> {
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        write_pages(command.clone(), folder)?;
    }
    Man::new(command).section(MANUAL_SECTION).generate_to(folder).map(drop)
}

/// Directive beside the level `info`, unless the filter has another one for the same target: the
/// client of object stores logs each attempt at that level, without the name of the store.
const BESIDE_INFO: &str = "object_store=warn";

/// Parses a filter of log lines: levels, and targets with levels. A word that is neither would be
/// taken for a target, and nothing would be logged.
///
/// # Errors
/// The filter is invalid.
pub fn log_filter(filter: &str) -> anyhow::Result<EnvFilter> {
    let refusal = || {
        format!(
            "invalid log filter {filter:?} (--log); use error, warn, info, debug, trace or \
             off, or TARGET=LEVEL such as nbd=debug"
        )
    };
    let has_unknown_word = filter.split(',').map(str::trim).any(|directive| {
        !directive.is_empty()
            && !directive.contains(['=', '[', ']', '{', '}'])
            && directive.parse::<LevelFilter>().is_err()
    });
    ensure!(!has_unknown_word, refusal());
    let is_info = |directive: &str| directive.trim().eq_ignore_ascii_case("info");
    match filter.split(',').any(is_info) {
        // The last directive of a target counts.
        true => EnvFilter::try_new(format!("{BESIDE_INFO},{filter}")),
        false => EnvFilter::try_new(filter),
    }
    .with_context(refusal)
}

/// Starts logging to standard error, with the filter of the option `--log`. Must be called once.
///
/// # Errors
/// The filter is invalid.
pub fn start_log(filter: &str) -> anyhow::Result<()> {
    let filter = log_filter(filter)?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_target(false)
        .with_writer(std::io::stderr)
        .init();
    Ok(())
}

/// Runs `work` on a runtime with one thread, and at most `blocking_thread_count_max` threads for
/// blocking operations. Operations that still block at the end are abandoned.
///
/// # Errors
/// The error of `work`, or no thread can be started.
pub fn block_on(
    blocking_thread_count_max: usize,
    work: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(blocking_thread_count_max)
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result
}

/// Serves until the program is asked to stop, and notifies the service manager at both moments.
pub async fn serve_until_stopped(mut signals: Signals, serving: impl Future<Output = ()>) {
    service_manager::ready();
    tokio::select! {
        () = serving => {}
        () = signals.stop() => {}
    }
    service_manager::stopping();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_is_none_is_refused_by_name() {
        let error = start_log("info=what=").expect_err("it is no filter");
        assert!(error.to_string().contains("\"info=what=\" (--log)"), "{error}");
    }

    #[test]
    fn a_misspelt_level_is_refused() {
        for good in ["info", "INFO", "off", "info,nbd=debug", "nbd=debug, warn", "", "nbd[request]"]
        {
            assert!(log_filter(good).is_ok(), "{good:?}");
        }
        for bad in ["dbug", "info,nbd", "nbd=verbose", "nbd.debug"] {
            let refused = log_filter(bad).expect_err(bad);
            assert!(refused.to_string().contains("use error, warn, info"), "{refused}");
        }
    }

    #[test]
    fn the_client_of_object_stores_is_quiet_unless_it_is_named() {
        for (filter, expected) in [
            ("info", "object_store=warn"),
            ("nbd=debug, info", "object_store=warn"),
            ("info,object_store=debug", "object_store=debug"),
        ] {
            let parsed = log_filter(filter).expect("a filter").to_string();
            let found: Vec<_> = parsed.split(',').filter(|it| it.contains("object")).collect();
            assert_eq!(found, [expected], "{parsed}");
        }
        for filter in ["debug", "warn", "off"] {
            let parsed = log_filter(filter).expect("a filter").to_string();
            assert!(!parsed.contains("object_store"), "{parsed}");
        }
    }

    #[test]
    fn a_manual_is_written_to_a_folder_that_is_there() {
        #[derive(Parser)]
        #[command(name = "memlane-nothing")]
        struct Options {
            #[command(subcommand)]
            _command: Option<Below>,
        }
        #[derive(clap::Subcommand)]
        enum Below {
            User,
        }
        let dir = tempfile::tempdir().expect("a directory");
        for _ in 0..2 {
            write_manual::<Options>(dir.path()).expect("there is room");
        }
        for page in ["memlane-nothing", "memlane-nothing-user"] {
            let text = fs::read_to_string(dir.path().join(format!("man8/{page}.8")));
            let text = text.expect("it was written");
            assert!(text.contains(&format!(".TH {page} 8")), "{text}");
        }
        let folder = dir.path().join("none");
        let error = write_manual::<Options>(&folder).expect_err("it is not there");
        let folder = folder.join("man8");
        assert_eq!(error.to_string(), format!("cannot write to {}", folder.display()));
    }
}
