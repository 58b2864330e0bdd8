//! Links in documents lead to existing files and headings, and the site contains every page.
//!
//! It checks the links `[words](target)` of all Markdown files outside code. Targets on other hosts
//! are not checked. Headings have the anchors of GitHub and mdBook.

use std::collections::HashMap;

use crate::repository::{Repository, TextFile};
use crate::tidy::Complaint;

/// The table of contents of the site.
pub(crate) const SUMMARY: &str = "docs/SUMMARY.md";

/// Decisions are listed by number when the site is built.
pub(crate) const DECISIONS: &str = "docs/decisions/";

/// Templates, which the site does not contain.
const TEMPLATES: &str = ".github/";

pub(crate) fn links_lead_somewhere(repository: &Repository) -> Vec<Complaint> {
    let documents: HashMap<&str, Vec<String>> =
        documents(repository).map(|file| (file.path.as_str(), headings(&file.text))).collect();
    let mut complaints = Vec::new();
    for file in documents_of_others(repository) {
        for (line, target) in links(&file.text) {
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = resolved(&file.path, path);
            let is_there = repository.files.iter().any(|it| it.path == path || is_below(it, &path));
            let has_heading = || match documents.get(&*path) {
                Some(headings) => headings.iter().any(|it| it == heading),
                None => false,
            };
            if !is_there {
                complaints.push(Complaint::new(&file.path, line, format!("no file: {target}")));
            } else if !heading.is_empty() && !has_heading() {
                complaints.push(Complaint::new(&file.path, line, format!("no heading: {target}")));
            }
        }
    }
    complaints
}

/// Checks that the table of contents lists every page, because the site shows no other.
pub(crate) fn the_site_has_every_page(repository: &Repository) -> Vec<Complaint> {
    let Some(summary) = repository.file(SUMMARY) else { return Vec::new() };
    let listed: Vec<_> =
        links(&summary.text).iter().map(|(_, target)| resolved(SUMMARY, target)).collect();
    let is_listed = |path: &str| path == SUMMARY || listed.iter().any(|it| it == path);
    documents(repository)
        .filter(|file| !is_listed(&file.path))
        .filter(|file| !file.path.starts_with(DECISIONS) && !file.path.starts_with(TEMPLATES))
        .map(|file| Complaint::new(&file.path, 0, format!("{SUMMARY} does not list this page")))
        .collect()
}

/// Resolves the target of a link in the document at `from` to a path from the root.
pub(crate) fn resolved(from: &str, target: &str) -> String {
    if target.is_empty() {
        return from.to_owned();
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." if parts.last().is_some_and(|it| *it != "..") => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn documents(repository: &Repository) -> impl Iterator<Item = &TextFile> {
    repository.files.iter().filter(|file| file.path.ends_with(".md"))
}

/// Returns all documents but the template of decisions, whose links are examples.
fn documents_of_others(repository: &Repository) -> impl Iterator<Item = &TextFile> {
    documents(repository).filter(|file| !file.path.ends_with("-template.md"))
}

fn is_below(file: &TextFile, folder: &str) -> bool {
    file.path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// Returns line numbers and targets of the links to files of this repository.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    for (number, line) in prose(text) {
        let code = code_in(line);
        for (at, _) in line.match_indices("](") {
            let target = line[at + 2..].split(')').next().unwrap_or_default();
            let is_elsewhere = target.contains("://") || target.starts_with("mailto:");
            if !is_elsewhere && !code.iter().any(|range| range.contains(&at)) {
                links.push((number, target));
            }
        }
    }
    links
}

/// Returns the numbered lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Returns the ranges of a line in backticks.
fn code_in(line: &str) -> Vec<std::ops::Range<usize>> {
    let ticks: Vec<usize> = line.match_indices('`').map(|(at, _)| at).collect();
    ticks.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect()
}

/// Returns the anchors of a document's headings. A repeated one has a number appended.
fn headings(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut counts: HashMap<String, usize> = HashMap::new();
    for (_, line) in prose(text) {
        let words = line.trim_start_matches('#');
        let Some(words) = words.strip_prefix(' ').filter(|_| line.starts_with('#')) else {
            continue;
        };
        let name = name_of_heading(words.trim());
        let count = counts.entry(name.clone()).or_default();
        names.push(if *count == 0 { name } else { format!("{name}-{count}") });
        *count += 1;
    }
    names
}

/// Returns the anchor of a heading.
pub(crate) fn name_of_heading(words: &str) -> String {
    let kept = words.chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
    kept.flat_map(char::to_lowercase).map(|it| if it == ' ' { '-' } else { it }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture::repository;

    #[track_caller]
    fn check(guide: &str, expected: &[&str]) {
        let other = "# Other: `x-y` & more\n## Same\n## Same\n```sh\n# no heading\n```\n";
        let files = [
            ("docs/guides/one.md", guide),
            ("docs/other.md", other),
            ("docs/pictures/a.png", ""),
            ("README.md", "# Read"),
        ];
        let complaints = links_lead_somewhere(&repository(&files));
        let texts: Vec<_> = complaints.iter().map(|it| it.text.as_str()).collect();
        assert_eq!(texts, expected);
    }

    #[test]
    fn links_to_files_and_headings_that_are_there_are_fine() {
        check("[a](../other.md) ![b](../pictures/a.png) [c](../../README.md#read) [d](./)", &[]);
        check("# Own name\n[a](#own-name) [b](../other.md#other-x-y--more)", &[]);
        check("[a](../other.md#same) [b](../other.md#same-1) [c](https://example.org/x.md)", &[]);
    }

    #[test]
    fn dead_links_and_anchors_are_found() {
        check(
            "[a](other.md)\n[b](../pictures/b.png)",
            &["no file: other.md", "no file: ../pictures/b.png"],
        );
        check(
            "[a](#own)\n[b](../other.md#same-2)\n[c](../other.md#no-heading)",
            &[
                "no heading: #own",
                "no heading: ../other.md#same-2",
                "no heading: ../other.md#no-heading",
            ],
        );
        check(
            "[a](../../../README.md)\n[b](../pictures/a.png#part)",
            &["no file: ../../../README.md", "no heading: ../pictures/a.png#part"],
        );
    }

    #[test]
    fn code_holds_no_links() {
        check("`[a](gone.md)` and\n```text\n[b](gone.md)\n```", &[]);
    }

    #[test]
    fn pages_that_the_site_lacks_are_found() {
        let files = [
            ("docs/SUMMARY.md", "- [Read](../README.md)\n- [One](guides/one.md)"),
            ("README.md", ""),
            ("docs/guides/one.md", ""),
            ("docs/guides/two.md", ""),
            ("docs/decisions/0001-one.md", ""),
        ];
        let complaints = the_site_has_every_page(&repository(&files));
        let paths: Vec<_> = complaints.iter().map(|it| it.path.as_str()).collect();
        assert_eq!(paths, ["docs/guides/two.md"]);
    }
}
