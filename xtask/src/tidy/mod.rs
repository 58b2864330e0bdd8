//! Rules of the repository that a machine can check. `STYLE.md` and `ARCHITECTURE.md` explain them.
//!
//! Each rule is a function from the repository to complaints, in a module with its tests. Rules
//! never change files: only `cargo xtask unsafe-report` rewrites its table.

mod architecture;
mod circles;
mod layers;
mod links;
mod pairs;
mod paths;
mod promises;
mod shape;
mod supply;
mod unsafety;
mod words;

#[cfg(test)]
mod fixture;

use std::fmt;

use crate::repository::Repository;

pub(crate) use circles::circles;
pub(crate) use links::{DECISIONS, SUMMARY, name_of_heading, resolved};
pub(crate) use unsafety::{REPORT_PATH, report};

/// A violation of a rule at one place.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Complaint {
    pub path: String,
    /// Line number from 1, or 0 for the whole file.
    pub line: usize,
    pub text: String,
}

impl Complaint {
    fn new(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, text: text.into() }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.text),
            line => write!(f, "{}:{line}: {}", self.path, self.text),
        }
    }
}

type Rule = fn(&Repository) -> Vec<Complaint>;

const RULES: &[Rule] = &[
    layers::dependencies_follow_the_table,
    layers::crates_are_named_as_their_folders,
    layers::no_crate_asks_for_crash_points,
    circles::modules_form_no_circle,
    shape::files_are_short,
    shape::functions_are_short,
    shape::lines_are_short,
    shape::shell_scripts_are_short,
    shape::modules_open_with_their_purpose,
    words::names_say_something,
    words::nothing_is_left_to_do,
    words::no_path_of_one_machine,
    words::flags_are_what_they_are_called,
    words::atomics_come_from_the_facade,
    words::documentation_begins_with_its_subject,
    unsafety::crates_forbid_unsafe_code,
    unsafety::unsafe_code_is_in_listed_crates,
    unsafety::the_report_is_fresh,
    unsafety::safety_comments_name_obligations,
    pairs::orderings_name_their_partners,
    paths::documents_name_what_is_there,
    links::links_lead_somewhere,
    links::the_site_has_every_page,
    promises::promises_have_their_tests,
    supply::packages_come_from_the_registry,
    supply::no_package_is_there_twice,
    supply::licences_are_known,
];

/// Returns the complaints of all rules, by place.
pub(crate) fn complaints(repository: &Repository) -> Vec<Complaint> {
    let mut complaints: Vec<_> = RULES.iter().flat_map(|rule| rule(repository)).collect();
    complaints.sort();
    complaints
}

pub(crate) fn rule_count() -> usize {
    RULES.len()
}
