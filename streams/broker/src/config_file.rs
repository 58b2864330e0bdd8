//! Options from a TOML file: its keys are the names of options, so that there is one list of both.
//! An option that is given on the command line wins over the file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory, Parser};
use toml::{Table, Value};

use crate::options::Options;

/// Options that no file has.
const FOR_THE_COMMAND_LINE: [&str; 4] = ["config", "man", "help", "version"];

/// The options of this process.
///
/// # Errors
/// The file cannot be read, or has a key that is no option. Errors of the command line, and of
/// values wherever they come from, end the process as clap does.
pub(crate) fn read_options() -> anyhow::Result<Options> {
    let words: Vec<OsString> = std::env::args_os().collect();
    Ok(Options::parse_from(with_file(words)?))
}

/// The words of the command line, with those of the file that it names.
fn with_file(words: Vec<OsString>) -> anyhow::Result<Vec<OsString>> {
    let mut command = Options::command();
    command.build();
    // What is wrong is said when all words are there.
    let given = command.clone().ignore_errors(true).try_get_matches_from(&words);
    let Some((given, file)) = given.ok().and_then(|given| {
        let file = given.get_one::<PathBuf>("config").cloned();
        file.map(|file| (given, file))
    }) else {
        return Ok(words);
    };
    let doing = || format!("cannot read the configuration file {}", file.display());
    let text = std::fs::read_to_string(&file).with_context(doing)?;
    let table: Table = toml::from_str(&text).with_context(doing)?;
    let mut words = words.into_iter();
    let mut all: Vec<OsString> = words.next().into_iter().collect();
    for (key, value) in &table {
        let option = find(&command, key).with_context(|| {
            format!("unknown key `{key}` in the configuration file {}", file.display())
        })?;
        if !is_overruled(&command, option, &given) {
            append(key, value, &file, &mut all)?;
        }
    }
    all.extend(words);
    Ok(all)
}

fn find<'a>(command: &'a Command, key: &str) -> Option<&'a Arg> {
    let is_it = |option: &&Arg| option.get_long() == Some(key);
    command.get_arguments().find(is_it).filter(|_| !FOR_THE_COMMAND_LINE.contains(&key))
}

/// Whether the command line has the option, or one that excludes it.
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

/// A list gives an option several times.
fn append(key: &str, value: &Value, file: &Path, words: &mut Vec<OsString>) -> anyhow::Result<()> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Boolean(is_so) => is_so.to_string(),
        Value::Array(values) if values.iter().all(|it| !it.is_array()) => {
            return values.iter().try_for_each(|it| append(key, it, file, words));
        }
        _ => bail!(
            "`{key}` in the configuration file {} is to be a text, a number, true, false, or a \
             list of these",
            file.display()
        ),
    };
    words.push(format!("--{key}={text}").into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(text: &str, words: &[&str]) -> anyhow::Result<Options> {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(text.as_bytes()).expect("it is written");
        let config = format!("--config={}", file.path().display());
        let words = ["memlane-broker", &config].into_iter().chain(words.iter().copied());
        Ok(Options::try_parse_from(with_file(words.map(OsString::from).collect())?)?)
    }

    #[test]
    fn the_options_are_well_formed() {
        Options::command().debug_assert();
    }

    #[test]
    fn keys_of_the_file_are_options_and_lists_repeat_them() {
        let text = "embedded = \"1G\"\npartitions = 4\nauto-create-topics = false\n\
                    super-user = [\"User:a\", \"User:b\"]";
        let options = read(text, &[]).expect("a good file");
        assert_eq!((options.embedded, options.partitions), (Some(1 << 30), 4));
        assert!(!options.auto_create_topics);
        assert_eq!(options.super_user.len(), 2);
    }

    #[test]
    fn an_option_wins_over_the_file() {
        let options = read("partitions = 4\nlisten = \"127.0.0.1:1\"", &["--partitions", "7"]);
        let options = options.expect("a good file");
        assert_eq!((options.partitions, options.listen.as_str()), (7, "127.0.0.1:1"));
        let options = read("daemon = \"/run/x\"", &["--embedded", "1G"]).expect("one place");
        assert_eq!(options.embedded, Some(1 << 30), "the other place of topics gives way");
    }

    #[test]
    fn what_is_no_option_is_refused_by_name() {
        for key in ["partitons", "config", "man", "help", "user"] {
            let error = read(&format!("{key} = \"1\""), &[]).expect_err("it is no key");
            assert!(error.to_string().contains(&format!("`{key}`")), "{error}");
        }
        let error = read("[tls]\ncertificate = 1", &[]).expect_err("there are no sections");
        assert!(error.to_string().contains("`tls`"), "{error}");
        assert!(read("partitions = \"many\"", &[]).is_err());
        assert!(read("partitions = { a = 1 }", &[]).is_err());
    }

    #[test]
    fn every_key_is_in_the_sample_file_and_every_line_of_it_can_be_used() {
        let sample = include_str!("../memlane-broker.toml");
        let is_key = |line: &&str| line.starts_with("# ") && line.contains(" = ");
        let lines: Vec<&str> = sample.lines().filter(is_key).map(|line| &line[2..]).collect();
        let command = Options::command();
        for option in command.get_arguments().filter_map(Arg::get_long) {
            let is_there = lines.iter().any(|line| line.starts_with(&format!("{option} =")));
            assert!(is_there || FOR_THE_COMMAND_LINE.contains(&option), "{option}");
        }
        // Topics are in one place.
        let is_other_place = |line: &&&str| line.starts_with("daemon =");
        let usable: Vec<&str> = lines.iter().filter(|it| !is_other_place(it)).copied().collect();
        read(&usable.join("\n"), &[]).expect("the sample, uncommented");
    }
}
