//! Pages of `docs/reference` that list the options of programs, for the programs' tests.

use std::path::Path;

use clap::CommandFactory;
use clap_markdown::MarkdownOptions;

/// Directory of the pages, relative to the root of the project.
const FOLDER: &str = "docs/reference";

/// Fails unless the page of a program with options `O` agrees with its help text. If the
/// environment variable `UPDATE_REFERENCE` is set, the page is written instead. `root` is the root
/// of the project.
///
/// # Panics
/// The page is out of date, or an argument or an option has no help text.
pub fn check_reference<O: CommandFactory>(root: &Path) {
    let command = O::command().disable_help_subcommand(true);
    assert_eq!(unexplained(&command), Vec::<String>::new(), "these have no help text");
    let name = command.get_name().to_owned();
    let page = page(&command);
    let path = root.join(FOLDER).join(format!("{name}.md"));
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&path, &page).expect("the page can be written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == page,
        "{} is stale: run this test with UPDATE_REFERENCE=1",
        path.display()
    );
}

/// Returns the arguments and options without a help text, of all subcommands too.
fn unexplained(command: &clap::Command) -> Vec<String> {
    let of_command = command.get_arguments().filter(|it| !it.is_hide_set());
    let mut found: Vec<_> = of_command
        .filter(|it| it.get_help().is_none())
        .map(|it| format!("{}: {it}", command.get_name()))
        .collect();
    found.extend(command.get_subcommands().flat_map(unexplained));
    found
}

fn page(command: &clap::Command) -> String {
    let name = command.get_name();
    let options = MarkdownOptions::new().title(format!("`{name}`")).show_footer(false);
    let page = clap_markdown::help_markdown_command_custom(command, &options);
    let about =
        format!("This document contains the help content for the `{name}` command-line program.");
    let page = page.replace(&about, &format!("`{name} --help` prints the same."));
    let page = with_optional_values(page, command);
    let page = page.replace("  Default value: ``\n", "");
    page.replace("**Command Overview:**", "**Commands:**").trim_end().replace("\n\n\n", "\n") + "\n"
}

/// Writes options whose value may be left out as `--help` does: `--NAME[=<VALUE>]`.
fn with_optional_values(page: String, command: &clap::Command) -> String {
    let is_optional = |it: &&clap::Arg| {
        let range = it.get_num_args();
        it.is_require_equals_set() && range.is_some_and(|range| range.min_values() == 0)
    };
    let found = command.get_arguments().filter(is_optional).fold(page, |page, option| {
        let (Some(long), Some([value, ..])) = (option.get_long(), option.get_value_names()) else {
            return page;
        };
        page.replace(&format!("`--{long} <{value}>`"), &format!("`--{long}[=<{value}>]`"))
    });
    command.get_subcommands().fold(found, with_optional_values)
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::*;

    #[test]
    fn values_that_may_be_left_out_are_shown_as_such() {
        let on = Arg::new("on").long("on").help("On").value_name("BOOL");
        let on = on.num_args(0..=1).require_equals(true).default_missing_value("true");
        let size = Arg::new("size").long("size").help("Size").value_name("SIZE");
        let page = page(&Command::new("program").arg(on).arg(size));
        assert!(page.contains("* `--on[=<BOOL>]` — On"), "{page}");
        assert!(page.contains("* `--size <SIZE>` — Size"), "{page}");
    }

    #[test]
    fn arguments_without_a_help_text_are_found_in_subcommands_too() {
        let set = Command::new("set")
            .arg(Arg::new("name").required(true))
            .arg(Arg::new("force").long("force").help("Force it"))
            .arg(Arg::new("hidden").long("hidden").hide(true));
        assert_eq!(unexplained(&Command::new("program").subcommand(set)), ["set: <name>"]);
    }
}
