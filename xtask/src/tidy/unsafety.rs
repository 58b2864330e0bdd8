//! Unsafe code: only in listed crates, each site counted in a table, each comment with obligations.
//!
//! Sites are counted on tokens, so code inside macros counts as well.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};

use crate::repository::Repository;
use crate::tidy::Complaint;
use crate::tidy::architecture;

/// The table that `cargo xtask unsafe-report` writes.
pub(crate) const REPORT_PATH: &str = "docs/unsafe.md";

/// Tests that explore interleavings: the explorer's cells can only be used in unsafe blocks.
const EXPLORING_TESTS: &str = "/tests/loom.rs";

/// Words in a SAFETY comment that claim instead of naming an obligation and its keeper.
const EMPTY_CLAIMS: &[&str] = &["safe because", "caller ensures", "as above"];

pub(crate) fn crates_forbid_unsafe_code(repository: &Repository) -> Vec<Complaint> {
    let listed = architecture::crates_with_unsafe_code(repository);
    let mut complaints = Vec::new();
    for package in repository.packages.iter().filter(|package| !listed.contains(&package.path)) {
        for root in &package.roots {
            let text = repository.file(root).map_or("", |file| &file.text);
            if !text.lines().any(|line| line == "#![forbid(unsafe_code)]") {
                complaints.push(Complaint::new(root, 1, "lacks `#![forbid(unsafe_code)]`"));
            }
        }
    }
    complaints
}

pub(crate) fn unsafe_code_is_in_listed_crates(repository: &Repository) -> Vec<Complaint> {
    let listed = architecture::crates_with_unsafe_code(repository);
    let mut complaints = Vec::new();
    for file in repository.rust_files() {
        let crate_path = file.crate_path().unwrap_or("the root").to_owned();
        if listed.contains(&crate_path) || file.path.ends_with(EXPLORING_TESTS) {
            continue;
        }
        for site in sites(&file.text) {
            let text = format!("unsafe code; {crate_path} is not listed in {}", architecture::PATH);
            complaints.push(Complaint::new(&file.path, site.line, text));
        }
    }
    complaints
}

pub(crate) fn the_report_is_fresh(repository: &Repository) -> Vec<Complaint> {
    let written = repository.file(REPORT_PATH).map_or("", |file| &file.text);
    if written == report(repository) {
        return Vec::new();
    }
    vec![Complaint::new(REPORT_PATH, 0, "stale; run `cargo xtask unsafe-report`")]
}

pub(crate) fn safety_comments_name_obligations(repository: &Repository) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in repository.rust_files() {
        let mut is_in_comment = false;
        for (index, line) in file.text.lines().enumerate() {
            let line = line.trim_start();
            is_in_comment =
                line.starts_with("//") && (is_in_comment || line.starts_with("// SAFETY:"));
            let lower = line.to_ascii_lowercase();
            let claim = EMPTY_CLAIMS.iter().find(|claim| lower.contains(**claim));
            if let Some(claim) = claim.filter(|_| is_in_comment) {
                let text = format!("{claim:?} names neither an obligation nor its keeper");
                complaints.push(Complaint::new(&file.path, index + 1, text));
            }
        }
    }
    complaints
}

/// The text of the table: sites per crate, by kind.
pub(crate) fn report(repository: &Repository) -> String {
    let mut rows: BTreeMap<String, BTreeMap<SiteKind, usize>> = BTreeMap::new();
    for name in architecture::crates_with_unsafe_code(repository) {
        rows.entry(name).or_default();
    }
    for file in repository.rust_files() {
        for site in sites(&file.text) {
            let crate_path = file.crate_path().unwrap_or("the root").to_owned();
            *rows.entry(crate_path).or_default().entry(site.kind).or_default() += 1;
        }
    }
    let mut text = String::from(
        "# Unsafe code\n\nWritten by `cargo xtask unsafe-report`; `make check` fails when it is \
         stale, so that each new site shows in a change.\n\n\
         | crate | blocks | functions | impls | foreign |\n|---|---|---|---|---|\n",
    );
    for (name, counts) in rows {
        let count = |kind| counts.get(&kind).copied().unwrap_or(0);
        writeln!(
            text,
            "| `{name}` | {} | {} | {} | {} |",
            count(SiteKind::Block),
            count(SiteKind::Function),
            count(SiteKind::Impl),
            count(SiteKind::Foreign),
        )
        .expect("a string takes all that is written to it");
    }
    text
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SiteKind {
    Block,
    Function,
    Impl,
    Foreign,
}

struct Site {
    kind: SiteKind,
    line: usize,
}

fn sites(text: &str) -> Vec<Site> {
    let mut sites = Vec::new();
    // Syntax errors are reported by the rule on functions.
    if let Ok(tokens) = text.parse::<TokenStream>() {
        collect(tokens, &mut sites);
    }
    sites
}

fn collect(tokens: TokenStream, sites: &mut Vec<Site>) {
    let mut unsafe_before: Option<Span> = None;
    for token in tokens {
        if let Some(span) = unsafe_before.take() {
            sites.extend(kind_before(&token).map(|kind| Site { kind, line: span.start().line }));
        }
        match token {
            TokenTree::Ident(name) if name == "unsafe" => unsafe_before = Some(name.span()),
            TokenTree::Group(group) => collect(group.stream(), sites),
            _ => {}
        }
    }
}

/// Returns the kind of site that `unsafe` before `token` begins. `None` for `unsafe(…)` in an
/// attribute.
fn kind_before(token: &TokenTree) -> Option<SiteKind> {
    match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(SiteKind::Block),
        TokenTree::Ident(name) => match name.to_string().as_str() {
            "fn" => Some(SiteKind::Function),
            "impl" | "trait" => Some(SiteKind::Impl),
            "extern" => Some(SiteKind::Foreign),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture;
    use crate::tidy::fixture::repository;

    const LIST: &str = "## Unsafe code\n- `base/region`: maps\n";
    const SITES: &str = "unsafe impl Send for A {}\nmacro_rules! a { () => { unsafe { b() } } }\n\
                         unsafe extern \"C\" {}\nunsafe fn c() {}\n#[unsafe(no_mangle)] fn d() {}\n\
                         // unsafe { }\n";

    #[test]
    fn a_crate_that_is_not_listed_forbids_unsafe_code() {
        let mut repository = repository(&[
            (architecture::PATH, LIST),
            ("pool/codec/src/lib.rs", "//! A.\n"),
            ("pool/other/src/lib.rs", "//! A.\n#![forbid(unsafe_code)]\n"),
        ]);
        repository.packages.push(fixture::package("base/region", &[]));
        repository.packages.push(fixture::package("pool/codec", &[]));
        repository.packages.push(fixture::package("pool/other", &[]));
        let complaints = crates_forbid_unsafe_code(&repository);
        assert_eq!(complaints.len(), 1);
        assert_eq!(complaints[0].path, "pool/codec/src/lib.rs");
    }

    #[test]
    fn every_site_outside_the_listed_crates_is_named() {
        let repository = repository(&[
            (architecture::PATH, LIST),
            ("base/region/src/a.rs", SITES),
            ("pool/codec/tests/a.rs", SITES),
            ("base/sync/tests/loom.rs", SITES),
        ]);
        let lines: Vec<_> = unsafe_code_is_in_listed_crates(&repository)
            .into_iter()
            .map(|complaint| (complaint.path, complaint.line))
            .collect();
        assert_eq!(lines, [1, 2, 3, 4].map(|line| ("pool/codec/tests/a.rs".to_owned(), line)));
    }

    #[test]
    fn a_stale_report_is_refused_and_a_fresh_one_taken() {
        let sources = [(architecture::PATH, LIST), ("base/region/src/a.rs", SITES)];
        let report = report(&repository(&sources));
        assert!(report.contains("| `base/region` | 1 | 1 | 1 | 1 |"));
        let [list, source] = sources;
        assert_eq!(the_report_is_fresh(&repository(&[list, source])).len(), 1);
        assert_eq!(the_report_is_fresh(&repository(&[list, source, (REPORT_PATH, &report)])), []);
    }

    #[test]
    fn a_safety_comment_that_only_claims_is_refused() {
        let claim = format!("// SAFETY:\n// - This is {}.\na();\n", EMPTY_CLAIMS[2]);
        assert_eq!(safety_comments_name_obligations(&repository(&[("a.rs", &claim)])).len(), 1);
        let elsewhere = format!("// The same {}.\n", EMPTY_CLAIMS[2]);
        assert_eq!(safety_comments_name_obligations(&repository(&[("a.rs", &elsewhere)])), []);
    }
}
