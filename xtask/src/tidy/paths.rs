//! Documents name only existing files and folders.
//!
//! It checks the text in backticks of all Markdown files except decisions, which describe their
//! time: text that begins with a folder at the root, and text that ends like Rust files. The latter
//! may be the end of a path, without `src`: `page-store/lane.rs`.

use std::collections::HashSet;

use crate::repository::Repository;
use crate::tidy::Complaint;
use crate::tidy::architecture::in_backticks;

const DECISIONS: &str = "docs/decisions/";

pub(crate) fn documents_name_what_is_there(repository: &Repository) -> Vec<Complaint> {
    let places: HashSet<&str> =
        repository.files.iter().flat_map(|file| prefixes(&file.path)).collect();
    let short: Vec<String> = repository.rust_files().map(|file| without_src(&file.path)).collect();
    let short: HashSet<&str> = short.iter().flat_map(|path| suffixes(path)).collect();
    let documents = repository.files.iter().filter(|file| file.path.ends_with(".md"));
    let mut complaints = Vec::new();
    for file in documents.filter(|file| !file.path.starts_with(DECISIONS)) {
        for (number, line) in (1..).zip(file.text.lines()) {
            for name in in_backticks(line).iter().filter(|name| is_path(name)) {
                let first = name.split('/').next().unwrap_or(name);
                let is_there = if name.contains('/') && places.contains(first) {
                    places.contains(name.trim_end_matches('/'))
                } else {
                    !name.ends_with(".rs") || short.contains(&*without_src(name))
                };
                if !is_there {
                    let text = format!("`{name}` is not there");
                    complaints.push(Complaint::new(&file.path, number, text));
                }
            }
        }
    }
    complaints
}

/// Returns whether a name is a path. Names in capitals are placeholders.
fn is_path(name: &str) -> bool {
    let stem = name.strip_suffix(".rs").unwrap_or(name);
    name.chars().all(|one| one.is_ascii_alphanumeric() || "/._-".contains(one))
        && stem.chars().any(|one| one.is_ascii_lowercase())
}

fn without_src(path: &str) -> String {
    path.replace("/src/", "/")
}

/// Returns the path of a file and of its parent folders.
fn prefixes(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at]).chain([path])
}

/// Returns the path of a file, as a whole and from each of its folders on.
fn suffixes(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[at + 1..]).chain([path])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture::repository;

    #[track_caller]
    fn check(document: &str, complaint_count: usize) {
        let files = [("ARCHITECTURE.md", document), ("exports/nbd/src/wire.rs", "")];
        let complaints = documents_name_what_is_there(&repository(&files));
        assert_eq!(complaints.len(), complaint_count, "{complaints:?}");
    }

    #[test]
    fn files_and_folders_that_are_there_may_be_named() {
        check("| `exports/nbd/src/wire.rs` | `exports/` | `exports/nbd` |", 0);
        check("`wire.rs` and `nbd/wire.rs`", 0);
    }

    #[test]
    fn files_and_folders_that_are_not_there_are_found() {
        check("`exports/nbd/src/gone.rs`\n\n`exports/nfs`", 2);
        check("`gone.rs`, `volumes/wire.rs` and `re.rs`", 3);
    }

    #[test]
    fn what_is_no_path_is_left_alone() {
        check("`PATH/exports`, `/v1/tasks/{id}`, `cargo xtask tidy`, `--state-dir`", 0);
        check("`ring.sock`, `exports/nbd: serve`, `NAME.rs`", 0);
    }

    #[test]
    fn decisions_tell_of_their_time() {
        let file = ("docs/decisions/0001-one.md", "`exports/gone.rs`");
        let files = [file, ("exports/nbd/src/wire.rs", "")];
        assert!(documents_name_what_is_there(&repository(&files)).is_empty());
    }
}
