//! Each promise of `PROMISES.md` names the test that verifies it, or says "pending".

use crate::repository::Repository;
use crate::tidy::Complaint;
use crate::tidy::architecture::in_backticks;

const PATH: &str = "PROMISES.md";
const PENDING: &str = "pending";

/// Checks the last cell of each row: `path` or `path::test` in backticks, or "pending".
pub(crate) fn promises_have_their_tests(repository: &Repository) -> Vec<Complaint> {
    let Some(promises) = repository.file(PATH) else {
        return vec![Complaint::new(PATH, 0, "is missing")];
    };
    let mut complaints = Vec::new();
    for (index, line) in promises.text.lines().enumerate() {
        let cells: Vec<_> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let is_row = line.starts_with("| ") && cells.len() > 1 && cells[0] != "promise";
        if !is_row {
            continue;
        }
        let kept_by = cells[cells.len() - 1];
        let tests = in_backticks(kept_by);
        if tests.is_empty() && kept_by != PENDING {
            complaints.push(Complaint::new(PATH, index + 1, "names no test and is not pending"));
        }
        for test in tests.iter().filter(|test| !exists(repository, test)) {
            let text = format!("there is no test `{test}`");
            complaints.push(Complaint::new(PATH, index + 1, text));
        }
    }
    complaints
}

/// Returns whether there is a test of this path and name, or a file with tests at or below the
/// path.
fn exists(repository: &Repository, test: &str) -> bool {
    let Some((path, name)) = test.split_once("::") else {
        let folder = test.strip_suffix("main.rs").unwrap_or(test);
        let mut files = repository.files.iter().filter(|file| file.path.starts_with(folder));
        return files.any(|file| file.text.lines().any(makes_a_test));
    };
    repository.file(path).is_some_and(|file| is_test(&file.text, name))
}

/// Returns whether the function of this name has an attribute above it that makes it a test.
fn is_test(text: &str, name: &str) -> bool {
    let lines: Vec<_> = text.lines().map(str::trim_start).collect();
    let head = format!("fn {name}(");
    let heads = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.strip_prefix("async ").unwrap_or(line).starts_with(&head));
    heads.into_iter().any(|(index, _)| {
        let above = lines[..index].iter().rev();
        above
            .take_while(|line| line.starts_with('#') || line.starts_with("//"))
            .any(|it| makes_a_test(it))
    })
}

fn makes_a_test(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("#[test]") || line.starts_with("#[tokio::test")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture::repository;

    #[track_caller]
    fn check(kept_by: &str, complaint_count: usize) {
        let text = format!("| promise | kept by |\n|---|---|\n| It lives. | {kept_by} |\n");
        let repository =
            repository(&[(PATH, &text), ("proof/a.rs", TESTS), ("proof/b/main.rs", "mod c;")]);
        assert_eq!(promises_have_their_tests(&repository).len(), complaint_count);
    }

    const TESTS: &str = "#[test]\n// Of a kind.\nfn it_lives() {}\n\nfn it_helps() {}\n";

    #[test]
    fn a_promise_names_an_existing_test_or_is_pending() {
        check("`proof/a.rs`", 0);
        check("`proof/a.rs::it_lives`", 0);
        check("pending", 0);
        check("`proof/b.rs`", 1);
        check("`proof/a.rs::it_dies`", 1);
        check("`proof/a.rs::it_helps`", 1);
        check("`proof/b/main.rs`", 1);
        check("a person", 1);
    }

    #[test]
    fn a_repository_without_promises_is_refused() {
        assert_eq!(promises_have_their_tests(&repository(&[])).len(), 1);
    }
}
