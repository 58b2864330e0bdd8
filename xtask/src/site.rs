//! The documentation site: the documents of the repository, rendered by mdBook with its search.
//!
//! Documents link to each other by their paths in the repository. Therefore the book is built from
//! a copy of all documents at the same paths, below `target`, and a table of contents at its root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::repository::Repository;
use crate::rest_pages;
use crate::tidy::{DECISIONS, SUMMARY, resolved};

/// Must be changed together with `docs/book.toml`.
const MDBOOK_VERSION: &str = "0.5.4";

/// Folder of the copy, the site and mdBook, relative to the root.
const FOLDER: &str = "target/docs";
const TOOLS: &str = "target/docs/tools";

const DECISIONS_PAGE: &str = "docs/decisions/README.md";

/// Parent of the pages of the REST interfaces.
const REFERENCE: &str = "docs/reference/README.md";

const SETTINGS: &str = "docs/book.toml";

/// Builds the site and returns its first page.
pub(crate) fn build(root: &Path) -> Result<PathBuf> {
    let repository = Repository::read(root)?;
    let folder = root.join(FOLDER);
    let source = folder.join("src");
    if source.exists() {
        fs::remove_dir_all(&source).context("cannot remove the copy of an earlier site")?;
    }
    let is_shown = |path: &str| path.ends_with(".md") || path.starts_with("docs/");
    for file in repository.files.iter().filter(|file| is_shown(&file.path)) {
        let copy = source.join(&file.path);
        let parent = copy.parent().unwrap_or(&source);
        fs::create_dir_all(parent)
            .with_context(|| format!("cannot create {}", parent.display()))?;
        fs::copy(root.join(&file.path), &copy)
            .with_context(|| format!("cannot copy {} into the site", file.path))?;
    }
    let contents = repository.file(SUMMARY).with_context(|| format!("there is no {SUMMARY}"))?;
    let rest = rest_pages::pages(&repository)?;
    for page in &rest {
        fs::write(source.join(&page.path), &page.text)
            .with_context(|| format!("cannot write {}", page.path))?;
    }
    let rest = rest.iter().map(|page| (page.path.as_str(), page.title)).collect();
    let below = [(DECISIONS_PAGE, decisions(&repository)), (REFERENCE, rest)];
    let contents = contents_at_root(&contents.text, &below);
    fs::write(source.join("SUMMARY.md"), contents).context("cannot write the contents")?;
    fs::copy(root.join(SETTINGS), folder.join("book.toml"))
        .with_context(|| format!("cannot copy {SETTINGS}"))?;
    run(Command::new(mdbook(root)?).arg("build").arg(&folder))?;
    Ok(folder.join("book/index.html"))
}

/// Returns the path of mdBook: the installed one if it has this version, else one that cargo
/// installs.
fn mdbook(root: &Path) -> Result<PathBuf> {
    let is_right = |program: &Path| {
        let output = Command::new(program).arg("--version").output();
        output.is_ok_and(|it| {
            String::from_utf8_lossy(&it.stdout).trim() == format!("mdbook v{MDBOOK_VERSION}")
        })
    };
    let installed = root.join(TOOLS).join("bin/mdbook");
    for program in [PathBuf::from("mdbook"), installed.clone()] {
        if is_right(&program) {
            return Ok(program);
        }
    }
    eprintln!("docs: installing mdBook {MDBOOK_VERSION} into {TOOLS} (some minutes, once)");
    let mut cargo = Command::new("cargo");
    cargo.args(["install", "mdbook", "--locked", "--no-default-features", "--features", "search"]);
    cargo.args(["--version", MDBOOK_VERSION, "--root"]).arg(root.join(TOOLS));
    run(cargo.env_remove("RUSTC_WORKSPACE_WRAPPER"))?;
    Ok(installed)
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot run {name}"))?;
    ensure!(status.success(), "{name} failed: {status}");
    Ok(())
}

/// Returns paths and titles of all decisions, by number.
fn decisions(repository: &Repository) -> Vec<(&str, &str)> {
    let is_decision = |path: &str| {
        path.starts_with(DECISIONS) && path.ends_with(".md") && !path.ends_with("README.md")
    };
    let decisions = repository.files.iter().filter(|file| is_decision(&file.path));
    decisions.map(|file| (file.path.as_str(), title(&file.text))).collect()
}

fn title(document: &str) -> &str {
    document.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or("untitled")
}

/// Returns the table of contents with paths from the root, and with additional pages below their
/// parents.
fn contents_at_root(contents: &str, below: &[(&str, Vec<(&str, &str)>)]) -> String {
    let mut text = String::new();
    for line in contents.lines() {
        let link = line.split_once("](").filter(|(_, target)| *target != ")");
        let Some((words, target)) = link else {
            text = text + line + "\n";
            continue;
        };
        let path = resolved(SUMMARY, target.trim_end_matches(')'));
        text += &format!("{words}]({path})\n");
        let indent = " ".repeat(words.len() - words.trim_start().len() + 2);
        let pages = below.iter().filter(|(page, _)| *page == path).flat_map(|(_, pages)| pages);
        text.extend(pages.map(|(path, title)| format!("{indent}- [{title}]({path})\n")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_name_pages_from_the_root_and_list_the_decisions() {
        let contents = "# Book\n\n[Read](../README.md)\n- [Part]()\n  - [One](guides/one.md)\n\
                        - [Decisions](decisions/README.md)\n";
        let decisions = vec![("docs/decisions/0001-a.md", "A"), ("docs/decisions/0002-b.md", "B")];
        let expected = "# Book\n\n[Read](README.md)\n- [Part]()\n  - [One](docs/guides/one.md)\n\
                        - [Decisions](docs/decisions/README.md)\n\
                        \x20 - [A](docs/decisions/0001-a.md)\n\
                        \x20 - [B](docs/decisions/0002-b.md)\n";
        assert_eq!(contents_at_root(contents, &[(DECISIONS_PAGE, decisions)]), expected);
    }
}
