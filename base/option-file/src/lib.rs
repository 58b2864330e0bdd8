//! Program options read from a TOML file. The keys are the names of the command-line options, so
//! options are defined once. An option on the command line overrides the file.
//!
//! The option `--config FILE` names the file. Options hidden from `--help` are not accepted in the
//! file. The file is read once, at start.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, Parser};
use toml::{Table, Value};

/// Options accepted only on the command line.
const FOR_THE_COMMAND_LINE: [&str; 3] = [CONFIG, "help", "version"];
const CONFIG: &str = "config";

/// Error in the configuration file.
#[derive(Debug, thiserror::Error)]
pub enum OptionFileError {
    #[error("cannot read the configuration file {}", .0.display())]
    Unreadable(PathBuf, #[source] std::io::Error),
    #[error("invalid TOML in the configuration file {}", .0.display())]
    NoToml(PathBuf, #[source] toml::de::Error),
    #[error("unknown key `{key}` in the configuration file {}", file.display())]
    UnknownKey { key: String, file: PathBuf },
    #[error(
        "invalid value of `{key}` in the configuration file {}: use a string, a number, true, \
         false, or an array of these", file.display()
    )]
    NoValue { key: String, file: PathBuf },
}

/// Returns the options of this process.
///
/// # Errors
/// The file cannot be read, or contains an unknown key. Errors of the command line, and invalid
/// values from either source, end the process as clap does.
pub fn read_options<O: Parser>() -> Result<O, OptionFileError> {
    let words: Vec<OsString> = std::env::args_os().collect();
    Ok(O::parse_from(with_file(O::command(), words)?))
}

/// Returns the arguments of the command line plus those of the file that `--config` names.
///
/// # Errors
/// The file cannot be read, or contains an unknown key.
pub fn with_file(
    mut command: Command,
    words: Vec<OsString>,
) -> Result<Vec<OsString>, OptionFileError> {
    command.build();
    // Errors are reported later, when the arguments from the file are there too.
    let given = command.clone().ignore_errors(true).try_get_matches_from(&words);
    let Some((given, file)) = given.ok().and_then(|given| {
        let file = given.get_one::<PathBuf>(CONFIG).cloned();
        file.map(|file| (given, file))
    }) else {
        return Ok(words);
    };
    let text = std::fs::read_to_string(&file)
        .map_err(|error| OptionFileError::Unreadable(file.clone(), error))?;
    let table: Table =
        toml::from_str(&text).map_err(|error| OptionFileError::NoToml(file.clone(), error))?;
    let mut words = words.into_iter();
    let mut all: Vec<OsString> = words.next().into_iter().collect();
    for (key, value) in &table {
        let option = keys(&command)
            .find(|option| option.get_long() == Some(key))
            .ok_or_else(|| OptionFileError::UnknownKey { key: key.clone(), file: file.clone() })?;
        if !is_overruled(&command, option, &given) {
            append(key, value, &file, &mut all)?;
        }
    }
    all.extend(words);
    Ok(all)
}

/// Options that the file may set.
fn keys(command: &Command) -> impl Iterator<Item = &Arg> {
    let is_key = |option: &&Arg| {
        let name = option.get_long();
        name.is_some_and(|name| !FOR_THE_COMMAND_LINE.contains(&name)) && !option.is_hide_set()
    };
    command.get_arguments().filter(is_key)
}

/// Returns whether the command line sets the option, or one that conflicts with it.
fn is_overruled(command: &Command, option: &Arg, given: &ArgMatches) -> bool {
    let is_given =
        |it: &Arg| given.value_source(it.get_id().as_str()) == Some(ValueSource::CommandLine);
    let excludes = |it: &Arg| {
        let conflicts = |a: &Arg, b: &Arg| {
            command.get_arg_conflicts_with(a).iter().any(|found| found.get_id() == b.get_id())
        };
        conflicts(it, option) || conflicts(option, it)
    };
    command
        .get_arguments()
        .any(|it| is_given(it) && (it.get_id() == option.get_id() || excludes(it)))
}

/// Appends the option to `words`. An array repeats the option, once for each element.
fn append(
    key: &str,
    value: &Value,
    file: &Path,
    words: &mut Vec<OsString>,
) -> Result<(), OptionFileError> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Boolean(is_so) => is_so.to_string(),
        Value::Array(values) if values.iter().all(|it| !it.is_array()) => {
            return values.iter().try_for_each(|it| append(key, it, file, words));
        }
        _ => {
            return Err(OptionFileError::NoValue { key: key.to_owned(), file: file.to_owned() });
        }
    };
    words.push(format!("--{key}={text}").into());
    Ok(())
}

/// Returns the lines of a sample file that set a key, with the `# ` of commented-out ones removed.
/// For tests that the sample shows every key.
///
/// # Errors
/// No line of the sample shows a key.
pub fn sample_lines(mut command: Command, sample: &str) -> Result<Vec<&str>, String> {
    command.build();
    let lines = sample.lines().map(|line| line.strip_prefix("# ").unwrap_or(line));
    let lines: Vec<&str> = lines.filter(|line| line.contains(" = ")).collect();
    for key in keys(&command).filter_map(Arg::get_long) {
        if !lines.iter().any(|line| line.starts_with(&format!("{key} ="))) {
            return Err(key.to_owned());
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[derive(Debug, Parser)]
    struct Options {
        #[arg(long)]
        config: Option<PathBuf>,
        #[arg(long, default_value_t = 1)]
        partitions: u32,
        #[arg(long, conflicts_with = "embedded")]
        daemon: Option<PathBuf>,
        #[arg(long)]
        embedded: Option<String>,
        #[arg(long)]
        user: Vec<String>,
        #[arg(long, action = clap::ArgAction::Set, default_value_t = true)]
        auto: bool,
        #[arg(long, hide = true)]
        man: Option<PathBuf>,
    }

    fn read(text: &str, words: &[&str]) -> Result<Options, Box<dyn std::error::Error>> {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(text.as_bytes()).expect("it is written");
        let config = format!("--config={}", file.path().display());
        let words = ["program", &config].into_iter().chain(words.iter().copied());
        let words = words.map(OsString::from).collect();
        Ok(Options::try_parse_from(with_file(
            <Options as clap::CommandFactory>::command(),
            words,
        )?)?)
    }

    #[test]
    fn keys_of_the_file_are_options_and_lists_repeat_them() {
        let text = "embedded = \"1G\"\npartitions = 4\nauto = false\nuser = [\"a\", \"b\"]";
        let options = read(text, &[]).expect("a good file");
        assert_eq!((options.embedded.as_deref(), options.partitions), (Some("1G"), 4));
        assert!(!options.auto && options.config.is_some() && options.man.is_none());
        assert_eq!(options.user, ["a", "b"]);
    }

    #[test]
    fn an_option_wins_over_the_file() {
        let options = read("partitions = 4\nauto = false", &["--partitions", "7"]);
        let options = options.expect("a good file");
        assert_eq!((options.partitions, options.auto), (7, false));
        let options = read("daemon = \"/run/x\"", &["--embedded", "1G"]).expect("one place");
        assert_eq!(options.daemon, None, "what an option excludes gives way");
    }

    #[test]
    fn what_is_no_option_is_refused_by_name() {
        for key in ["partitons", "config", "man", "help", "version"] {
            let error = read(&format!("{key} = \"1\""), &[]).expect_err("it is no key");
            assert!(error.to_string().contains(&format!("`{key}`")), "{error}");
        }
        let error = read("[tls]\ncertificate = 1", &[]).expect_err("there are no sections");
        assert!(error.to_string().contains("`tls`"), "{error}");
        assert!(read("partitions = \"many\"", &[]).is_err());
        assert!(read("partitions = { a = 1 }", &[]).is_err());
        assert!(
            read("partitions", &[]).expect_err("half a line").to_string().contains("invalid TOML")
        );
        let words = ["program", "--config=/nowhere"].map(OsString::from).into();
        let error = with_file(<Options as clap::CommandFactory>::command(), words);
        assert!(error.expect_err("there is no file").to_string().contains("/nowhere"));
    }

    #[test]
    fn a_sample_shows_each_key() {
        let sample = "# A sentence.\n# partitions = 4\n# daemon = \"x\"\n# embedded = \"1\"\n\
                      # user = [\"a\"]\n";
        let command = <Options as clap::CommandFactory>::command;
        assert_eq!(sample_lines(command(), sample), Err("auto".to_owned()));
        let lines = format!("{sample}# auto = true");
        assert_eq!(sample_lines(command(), &lines).map(|lines| lines.len()), Ok(5));
    }
}
