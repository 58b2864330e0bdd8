//! Log of the daemon on standard error, for the systemd journal or a terminal.

use std::fmt;
use std::os::linux::fs::MetadataExt;
use std::path::Path;

use anyhow::anyhow;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload::Handle;

use crate::config::{LogConfig, LogFormat};

/// Environment variable with the `DEVICE:INODE` of the stream connected to the systemd journal.
const JOURNAL_VARIABLE: &str = "JOURNAL_STREAM";

/// The running log. Its filter can be changed.
pub(crate) struct Log {
    set_filter: Box<dyn Fn(Filter) -> anyhow::Result<()> + Send>,
}

/// Filter of the log.
pub(crate) struct Filter(EnvFilter);

impl Filter {
    pub(crate) fn of(config: &LogConfig) -> anyhow::Result<Self> {
        program::log_filter(&config.filter).map(Self)
    }
}

impl Log {
    /// Starts logging. Called once.
    pub(crate) fn start(config: &LogConfig) -> anyhow::Result<Self> {
        let Filter(filter) = Filter::of(config)?;
        let is_for_journal = is_read_by_journal();
        let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        let log = match config.format {
            LogFormat::Text => {
                let lines = lines.with_ansi(false).with_target(false);
                let lines = lines
                    .map_event_format(|form| Line { form, is_for_journal })
                    .with_filter_reloading();
                let log = Self::changing(lines.reload_handle());
                lines.init();
                log
            }
            LogFormat::Json => {
                let lines = lines
                    .json()
                    .map_event_format(|form| Line { form, is_for_journal })
                    .with_filter_reloading();
                let log = Self::changing(lines.reload_handle());
                lines.init();
                log
            }
        };
        Ok(log)
    }

    /// Replaces the filter of the log.
    pub(crate) fn set_filter(&self, filter: Filter) -> anyhow::Result<()> {
        (self.set_filter)(filter)
    }

    fn changing<S: 'static>(handle: Handle<EnvFilter, S>) -> Self {
        let set = move |Filter(filter)| {
            handle
                .reload(filter)
                .map_err(|error| anyhow!("cannot change the log's filter: {error}"))
        };
        Self { set_filter: Box::new(set) }
    }
}

/// Prefix of a line of this level on standard error.
pub(crate) fn mark(level: Level) -> &'static str {
    if is_read_by_journal() { journal_mark(level) } else { "" }
}

/// Priority prefix of a line for the systemd journal (sd-daemon(3)).
fn journal_mark(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        Level::DEBUG | Level::TRACE => "<7>",
    }
}

/// Returns whether standard error is connected to the systemd journal.
fn is_read_by_journal() -> bool {
    let Some(named) = std::env::var_os(JOURNAL_VARIABLE) else { return false };
    let standard_error = std::fs::metadata(Path::new("/proc/self/fd/2"));
    standard_error.is_ok_and(|it| *named == *format!("{}:{}", it.st_dev(), it.st_ino()))
}

/// Formatter that adds the priority prefix for the systemd journal.
struct Line<F> {
    form: F,
    is_for_journal: bool,
}

impl<S, N, F> FormatEvent<S, N> for Line<F>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if self.is_for_journal {
            writer.write_str(journal_mark(*event.metadata().level()))?;
        }
        self.form.format_event(context, writer, event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_is_none_is_refused_by_name() {
        let config =
            |filter: &str| LogConfig { filter: filter.to_owned(), format: LogFormat::Text };
        Filter::of(&config("info,nbd=debug")).map(|_| ()).expect("a good filter");
        let error = Filter::of(&config("info=what=")).map(|_| ()).expect_err("no filter");
        assert!(error.to_string().contains("info=what="), "{error}");
    }
}
