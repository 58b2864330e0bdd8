//! Limits on files, functions, lines and shell scripts, and the opening of every module.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::repository::{Repository, TextFile};
use crate::tidy::Complaint;

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const LINE_COLUMNS_MAX: usize = 100;
const SHELL_LINES_MAX: usize = 20;

/// Counts the lines before the first `#[cfg(test)]`, outside of folders of tests.
pub(crate) fn files_are_short(repository: &Repository) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in repository.rust_files().filter(|file| !is_in_tests_folder(file)) {
        let line_count = file.text.lines().take_while(|line| line.trim() != "#[cfg(test)]").count();
        if line_count > FILE_LINES_MAX {
            let text = format!("{line_count} lines without tests; at most {FILE_LINES_MAX}");
            complaints.push(Complaint::new(&file.path, 0, text));
        }
    }
    complaints
}

pub(crate) fn functions_are_short(repository: &Repository) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in repository.rust_files() {
        match syn::parse_file(&file.text) {
            Ok(syntax) => {
                let mut finder = LongFunctions { path: &file.path, complaints: &mut complaints };
                finder.visit_file(&syntax);
            }
            Err(error) => {
                let line = error.span().start().line;
                complaints.push(Complaint::new(&file.path, line, format!("not Rust: {error}")));
            }
        }
    }
    complaints
}

pub(crate) fn lines_are_short(repository: &Repository) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in repository.rust_files() {
        for (index, line) in file.text.lines().enumerate() {
            let column_count = line.chars().count();
            if column_count > LINE_COLUMNS_MAX {
                let text = format!("{column_count} columns; at most {LINE_COLUMNS_MAX}");
                complaints.push(Complaint::new(&file.path, index + 1, text));
            }
        }
    }
    complaints
}

pub(crate) fn shell_scripts_are_short(repository: &Repository) -> Vec<Complaint> {
    let is_shell = |file: &&TextFile| {
        let first_line = file.text.lines().next().unwrap_or("");
        file.path.ends_with(".sh") || (first_line.starts_with("#!") && first_line.ends_with("sh"))
    };
    let mut complaints = Vec::new();
    for file in repository.files.iter().filter(is_shell) {
        let line_count = file.text.lines().count();
        if line_count > SHELL_LINES_MAX {
            let text = format!("{line_count} lines of shell; at most {SHELL_LINES_MAX}, use xtask");
            complaints.push(Complaint::new(&file.path, 0, text));
        }
    }
    complaints
}

pub(crate) fn modules_open_with_their_purpose(repository: &Repository) -> Vec<Complaint> {
    repository
        .rust_files()
        .filter(|file| !file.text.starts_with("//! "))
        .map(|file| Complaint::new(&file.path, 1, "opens without `//!` and its purpose"))
        .collect()
}

fn is_in_tests_folder(file: &TextFile) -> bool {
    file.path.split('/').any(|folder| matches!(folder, "tests" | "benches" | "fuzz"))
}

struct LongFunctions<'a> {
    path: &'a str,
    complaints: &'a mut Vec<Complaint>,
}

impl LongFunctions<'_> {
    fn check(&mut self, signature: &syn::Signature, body: Span) {
        let first_line = signature.span().start().line;
        let line_count = body.end().line + 1 - first_line;
        if line_count > FUNCTION_LINES_MAX {
            let name = &signature.ident;
            let text = format!("`{name}` has {line_count} lines; at most {FUNCTION_LINES_MAX}");
            self.complaints.push(Complaint::new(self.path, first_line, text));
        }
    }
}

impl<'ast> Visit<'ast> for LongFunctions<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.check(&item.sig, item.block.span());
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.check(&item.sig, item.block.span());
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.check(&item.sig, body.span());
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::Rule;
    use crate::tidy::fixture::repository;

    #[track_caller]
    fn check(rule: Rule, path: &str, text: &str, complaint_count: usize) {
        assert_eq!(rule(&repository(&[(path, text)])).len(), complaint_count);
    }

    #[test]
    fn a_file_may_have_600_lines_before_its_tests() {
        let lines = "//\n".repeat(FILE_LINES_MAX);
        check(files_are_short, "a/b/src/c.rs", &lines, 0);
        check(files_are_short, "a/b/src/c.rs", &format!("{lines}#[cfg(test)]\n//\n"), 0);
        check(files_are_short, "a/b/src/c.rs", &format!("{lines}//\n"), 1);
        check(files_are_short, "a/b/tests/c.rs", &format!("{lines}//\n"), 0);
    }

    #[test]
    fn a_function_may_have_70_lines() {
        let body = "\n".repeat(FUNCTION_LINES_MAX - 1);
        check(functions_are_short, "a.rs", &format!("fn a() {{{body}}}"), 0);
        check(functions_are_short, "a.rs", &format!("fn a() {{\n{body}}}"), 1);
        check(functions_are_short, "a.rs", &format!("impl A {{ fn a() {{\n{body}}} }}"), 1);
        check(functions_are_short, "a.rs", &format!("trait A {{ fn a() {{\n{body}}} }}"), 1);
    }

    #[test]
    fn a_file_that_is_not_rust_is_named() {
        check(functions_are_short, "a.rs", "fn fn", 1);
    }

    #[test]
    fn a_line_may_have_100_columns() {
        check(lines_are_short, "a.rs", &"é".repeat(LINE_COLUMNS_MAX), 0);
        check(lines_are_short, "a.rs", &"é".repeat(LINE_COLUMNS_MAX + 1), 1);
    }

    #[test]
    fn a_shell_script_may_have_20_lines() {
        let lines = "\n".repeat(SHELL_LINES_MAX - 1);
        check(shell_scripts_are_short, "run", &format!("#!/bin/sh{lines}\n"), 0);
        check(shell_scripts_are_short, "run", &format!("#!/bin/sh\n{lines}:\n"), 1);
        check(shell_scripts_are_short, "run.py", &format!("#!/bin/python3\n{lines}:\n"), 0);
    }

    #[test]
    fn a_module_opens_with_its_purpose() {
        check(modules_open_with_their_purpose, "a.rs", "//! Why.\n", 0);
        check(modules_open_with_their_purpose, "a.rs", "use std::io;\n", 1);
    }
}
