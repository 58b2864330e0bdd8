//! Each promise of `PROMISES.md` names the test that keeps it, or says "pending".

use crate::house::House;
use crate::tidy::Complaint;
use crate::tidy::architecture::in_backticks;

const PATH: &str = "PROMISES.md";
const PENDING: &str = "pending";

/// The last cell of each row holds `path` or `path::test` in backticks, or "pending".
pub(crate) fn promises_have_their_tests(house: &House) -> Vec<Complaint> {
    let Some(promises) = house.file(PATH) else {
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
        for test in tests.iter().filter(|test| !exists(house, test)) {
            complaints.push(Complaint::new(PATH, index + 1, format!("there is no `{test}`")));
        }
    }
    complaints
}

fn exists(house: &House, test: &str) -> bool {
    let (path, name) = test.split_once("::").unwrap_or((test, ""));
    house
        .file(path)
        .is_some_and(|file| name.is_empty() || file.text.contains(&format!("fn {name}(")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture::house;

    #[track_caller]
    fn check(kept_by: &str, complaint_count: usize) {
        let text = format!("| promise | kept by |\n|---|---|\n| It lives. | {kept_by} |\n");
        let house = house(&[(PATH, &text), ("proof/a.rs", "fn it_lives() {}")]);
        assert_eq!(promises_have_their_tests(&house).len(), complaint_count);
    }

    #[test]
    fn a_promise_names_an_existing_test_or_is_pending() {
        check("`proof/a.rs`", 0);
        check("`proof/a.rs::it_lives`", 0);
        check("pending", 0);
        check("`proof/b.rs`", 1);
        check("`proof/a.rs::it_dies`", 1);
        check("a person", 1);
    }

    #[test]
    fn a_house_without_promises_is_refused() {
        assert_eq!(promises_have_their_tests(&house(&[])).len(), 1);
    }
}
