//! Comments that name the partner of an atomic ordering come at least twice: once at each end.
//!
//! Such a comment reads `// PAIRS-WITH: partner, "what becomes visible"` and may run over lines.

use std::collections::BTreeMap;

use crate::repository::Repository;
use crate::tidy::Complaint;

const MARK: &str = "PAIRS-WITH:";

/// Checks that each mark of a pair has a partner with the same quoted text, the pair's name.
pub(crate) fn orderings_name_their_partners(repository: &Repository) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let mut places: BTreeMap<String, Vec<(String, usize)>> = BTreeMap::new();
    for file in repository.rust_files() {
        for (line, name) in pairs(&file.text) {
            match name {
                Some(name) => places.entry(name).or_default().push((file.path.clone(), line)),
                None => complaints.push(Complaint::new(&file.path, line, "quotes no text")),
            }
        }
    }
    for (name, places) in places {
        if let [(path, line)] = &places[..] {
            let text = format!("the pair {name:?} has no second end");
            complaints.push(Complaint::new(path, *line, text));
        }
    }
    complaints
}

/// Returns the line of each mark, and the first quoted text after it in the comment, if any.
fn pairs(text: &str) -> Vec<(usize, Option<String>)> {
    let mut pairs = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        let comment = line.trim_start().strip_prefix("// ");
        let begins = comment.and_then(|comment| comment.strip_prefix(MARK));
        if begins.is_some() || comment.is_none() {
            pairs.extend(open.take().map(|(line, text)| (line, quoted(&text))));
        }
        if let Some(rest) = begins {
            open = Some((index + 1, rest.to_owned()));
        } else if let (Some((_, text)), Some(comment)) = (&mut open, comment) {
            text.push(' ');
            text.push_str(comment.trim());
        }
    }
    pairs.extend(open.map(|(line, text)| (line, quoted(&text))));
    pairs
}

fn quoted(text: &str) -> Option<String> {
    text.split('"').nth(1).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture::repository;

    #[track_caller]
    fn check(texts: [&str; 2], complaint_count: usize) {
        let repository = repository(&[("a.rs", texts[0]), ("b.rs", texts[1])]);
        assert_eq!(orderings_name_their_partners(&repository).len(), complaint_count);
    }

    #[test]
    fn a_pair_has_two_ends() {
        check([r#"// PAIRS-WITH: pop, "slot full""#, r#"// PAIRS-WITH: push, "slot full""#], 0);
        check([r#"// PAIRS-WITH: pop, "slot full""#, r#"// PAIRS-WITH: push, "slot fill""#], 2);
        check([r#"// PAIRS-WITH: pop, "slot full""#, ""], 1);
    }

    #[test]
    fn a_pair_may_run_over_lines() {
        let long = "    // PAIRS-WITH: push,\n    // \"slot\n    // full\"\n    a.load(Acquire)";
        check([r#"// PAIRS-WITH: pop, "slot full""#, long], 0);
    }

    #[test]
    fn a_pair_quotes_what_becomes_visible() {
        check(["// PAIRS-WITH: pop\n", ""], 1);
    }
}
