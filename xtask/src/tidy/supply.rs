//! Third-party packages: their source, their licences, and their duplicates.
//!
//! Known vulnerabilities are not checked, which needs a database from the network (`cargo deny
//! check advisories` where available).

use std::collections::BTreeMap;

use crate::repository::{Repository, TextFile};
use crate::tidy::Complaint;

const LOCK: &str = "Cargo.lock";

/// The only permitted source of packages.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Permitted licences of packages linked into the programs, by their SPDX names.
const LICENCES: &[&str] = &[
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Packages permitted in several versions. Each costs build time and a second place for the same
/// fault, so a new one needs a decision.
const NEEDED_TWICE: &[&str] = &[
    "base64",
    "bit-vec",
    "bitflags",
    "block-buffer",
    "core-foundation",
    "cpufeatures",
    "crypto-common",
    "digest",
    "fallible-iterator",
    "foldhash",
    "getrandom",
    "hashbrown",
    "itertools",
    "linux-raw-sys",
    "num-bigint",
    "object_store",
    "phf",
    "phf_shared",
    "r-efi",
    "rand",
    "rand_core",
    "rustix",
    "syn",
    "synstructure",
    "wasi",
    "windows-sys",
];

pub(crate) fn packages_come_from_the_registry(repository: &Repository) -> Vec<Complaint> {
    let is_lock = |file: &&TextFile| file.path.rsplit('/').next() == Some(LOCK);
    let mut complaints = Vec::new();
    for file in repository.files.iter().filter(is_lock) {
        for (number, line) in (1..).zip(file.text.lines()) {
            if let Some(source) = value_of(line, "source")
                && source != REGISTRY
            {
                let text = format!("a package comes from {source}, not from crates.io");
                complaints.push(Complaint::new(&file.path, number, text));
            }
        }
    }
    complaints
}

pub(crate) fn no_package_is_there_twice(repository: &Repository) -> Vec<Complaint> {
    let Some(lock) = repository.file(LOCK) else { return Vec::new() };
    let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (number, line) in (1..).zip(lock.text.lines()) {
        if let Some(name) = value_of(line, "name") {
            places.entry(name).or_default().push(number);
        }
    }
    let twice = places
        .into_iter()
        .filter(|(name, places)| places.len() > 1 && !NEEDED_TWICE.contains(name));
    twice
        .map(|(name, places)| {
            let text = format!("{name:?} is there in {} versions", places.len());
            Complaint::new(LOCK, places[0], text)
        })
        .collect()
}

pub(crate) fn licences_are_known(repository: &Repository) -> Vec<Complaint> {
    let refused = repository.licences.iter().filter(|(_, licence)| !is_allowed(licence));
    refused
        .map(|(package, licence)| {
            let text = format!("{package:?} has the licence {licence:?}, which is not allowed");
            Complaint::new(LOCK, 0, text)
        })
        .collect()
}

/// Returns the value of `KEY = "VALUE"`.
fn value_of<'line>(line: &'line str, key: &str) -> Option<&'line str> {
    line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"')
}

/// Returns whether an SPDX expression can be satisfied with permitted licences. `/` is an old form
/// of OR.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    any_of(&mut words) && words.peek().is_none()
}

type Words<'text> = std::iter::Peekable<std::str::SplitWhitespace<'text>>;

fn any_of(words: &mut Words<'_>) -> bool {
    let mut is_met = all_of(words);
    while words.next_if_eq(&"OR").is_some() {
        is_met |= all_of(words);
    }
    is_met
}

fn all_of(words: &mut Words<'_>) -> bool {
    let mut is_met = one(words);
    while words.next_if_eq(&"AND").is_some() {
        is_met &= one(words);
    }
    is_met
}

fn one(words: &mut Words<'_>) -> bool {
    if words.next_if_eq(&"(").is_some() {
        let is_met = any_of(words);
        return words.next() == Some(")") && is_met;
    }
    let Some(name) = words.next() else { return false };
    match words.next_if_eq(&"WITH") {
        Some(with) => words.next().is_some_and(|exception| {
            LICENCES.contains(&format!("{name} {with} {exception}").as_str())
        }),
        None => LICENCES.contains(&name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture::repository;

    #[track_caller]
    fn check_lock(lock: &str, complaints: [usize; 2]) {
        let repository = repository(&[(LOCK, lock)]);
        let found =
            [packages_come_from_the_registry(&repository), no_package_is_there_twice(&repository)];
        assert_eq!(found.map(|it| it.len()), complaints);
    }

    #[test]
    fn packages_are_from_crates_io_and_there_once() {
        let package =
            |name: &str, source: &str| format!("name = \"{name}\"\nsource = \"{source}\"\n");
        let good = package("a", REGISTRY);
        check_lock(&good, [0, 0]);
        check_lock(&format!("{good}{}", package("b", "git+https://host/b")), [1, 0]);
        check_lock(&format!("{good}{good}"), [0, 1]);
        let syn = package("syn", REGISTRY);
        check_lock(&format!("{syn}{syn}"), [0, 0]);
    }

    #[test]
    fn one_allowed_licence_of_a_choice_is_enough_and_of_a_sum_all() {
        for good in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-2.0/MIT",
            "(GPL-2.0 OR MIT) AND ISC",
            "GPL-2.0 AND ISC OR MIT",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(is_allowed(good), "{good}");
        }
        for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "MIT WITH exception", "(MIT", "MIT MIT"] {
            assert!(!is_allowed(bad), "{bad}");
        }
    }

    #[test]
    fn a_package_without_an_allowed_licence_is_named() {
        let mut repository = repository(&[]);
        repository.licences =
            vec![("a".to_owned(), "MIT".to_owned()), ("b".to_owned(), String::new())];
        let complaints = licences_are_known(&repository);
        assert_eq!(complaints.len(), 1);
        assert!(complaints[0].text.contains("\"b\""), "{complaints:?}");
    }
}
