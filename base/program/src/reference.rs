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
/// The page is out of date.
pub fn check_reference<O: CommandFactory>(root: &Path) {
    let command = O::command().disable_help_subcommand(true);
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

fn page(command: &clap::Command) -> String {
    let name = command.get_name();
    let options = MarkdownOptions::new().title(format!("`{name}`")).show_footer(false);
    let page = clap_markdown::help_markdown_command_custom(command, &options);
    let about =
        format!("This document contains the help content for the `{name}` command-line program.");
    let page = page.replace(&about, &format!("`{name} --help` prints the same."));
    let page = page.replace("  Default value: ``\n", "");
    page.replace("**Command Overview:**", "**Commands:**").trim_end().replace("\n\n\n", "\n") + "\n"
}
