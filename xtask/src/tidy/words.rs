//! Forbidden words: empty names, reminders, machine paths, atomics outside the facade, and
//! documentation that does not begin with its subject.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::repository::Repository;
use crate::tidy::Complaint;

/// Names without meaning. Joined at compile time so that this file passes its own rule.
const EMPTY_NAMES: &[&str] =
    &["utils", "util", "helpers", "helper", "common", "misc", "manager", "handler2"];

const REMINDERS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("to", "do!("),
    concat!("unimpl", "emented!("),
];

const MACHINE_FOLDERS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// Flags of `rustix` that equal another one on Linux, `O_SYNC`.
const FALSE_FLAGS: &[&str] =
    &[concat!("OFlags::", "DSYNC"), concat!("OFlags::", "RSYNC"), concat!("OFlags::", "FSYNC")];

/// Forbidden first words of documentation, which begins with a noun phrase or a verb.
const OPENINGS: &[&str] = &["What", "How", "Whether", "Of", "As", "Which"];

/// Layers that use atomics from `base/sync`, and the one crate that provides them. Integration
/// tests may use others, because they contain no protocols.
const LAYERS_ON_THE_FACADE: &[&str] = &["base/", "pool/", "engine/"];
const FACADE: &str = "base/sync";

/// Checks that no file, folder, module or type has an empty word as its name, or as its last part.
pub(crate) fn names_say_something(repository: &Repository) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in &repository.files {
        for part in file.path.split('/') {
            let stem = part.split('.').next().unwrap_or(part);
            if is_empty_name(stem) {
                let text = format!("`{part}` says nothing about what is inside");
                complaints.push(Complaint::new(&file.path, 0, text));
            }
        }
    }
    for file in repository.rust_files() {
        let Ok(syntax) = syn::parse_file(&file.text) else { continue };
        let mut finder = EmptyNames { path: &file.path, complaints: &mut complaints };
        finder.visit_file(&syntax);
    }
    complaints
}

pub(crate) fn nothing_is_left_to_do(repository: &Repository) -> Vec<Complaint> {
    lines_with(repository, |line| {
        let reminder = REMINDERS.iter().find(|word| line.contains(**word))?;
        Some(format!("{reminder} is left; finish it or open an issue"))
    })
}

pub(crate) fn no_path_of_one_machine(repository: &Repository) -> Vec<Complaint> {
    lines_with(repository, |line| {
        let folder = MACHINE_FOLDERS.iter().find(|folder| names_folder(line, folder))?;
        Some(format!("{folder} is a folder of one machine"))
    })
}

pub(crate) fn flags_are_what_they_are_called(repository: &Repository) -> Vec<Complaint> {
    lines_with(repository, |line| {
        let flag = FALSE_FLAGS.iter().find(|flag| line.contains(**flag))?;
        Some(format!("{flag} is all of O_SYNC; take the number of the kernel's headers"))
    })
}

pub(crate) fn atomics_come_from_the_facade(repository: &Repository) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in repository.rust_files() {
        let is_on_the_facade = LAYERS_ON_THE_FACADE.iter().any(|it| file.path.starts_with(it));
        let is_test_from_outside = file.path.split('/').nth(2) == Some("tests");
        if !is_on_the_facade || is_test_from_outside || file.crate_path() == Some(FACADE) {
            continue;
        }
        let Ok(syntax) = syn::parse_file(&file.text) else { continue };
        let mut finder = StandardAtomics { path: &file.path, complaints: &mut complaints };
        finder.visit_file(&syntax);
    }
    complaints
}

pub(crate) fn documentation_begins_with_its_subject(repository: &Repository) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in repository.rust_files() {
        let Ok(syntax) = syn::parse_file(&file.text) else { continue };
        let mut finder = Openings { path: &file.path, complaints: &mut complaints };
        finder.check(&syn::Visibility::Public(Default::default()), &syntax.attrs);
        finder.visit_file(&syntax);
    }
    complaints
}

fn lines_with(
    repository: &Repository,
    complaint_of: impl Fn(&str) -> Option<String>,
) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in &repository.files {
        for (index, line) in file.text.lines().enumerate() {
            if let Some(text) = complaint_of(line) {
                complaints.push(Complaint::new(&file.path, index + 1, text));
            }
        }
    }
    complaints
}

/// Returns whether `folder` occurs in `line` at the beginning of a path.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        !before.is_some_and(|it| it.is_ascii_alphanumeric() || "._-}/)*".contains(it))
    })
}

fn is_empty_name(name: &str) -> bool {
    EMPTY_NAMES.contains(&name)
}

/// Returns the last word of `SnakeOrCamel` names in lower case.
fn last_word(name: &str) -> String {
    let last_part = name.rsplit('_').next().unwrap_or(name);
    let start = last_part.rfind(|letter: char| letter.is_ascii_uppercase()).unwrap_or(0);
    let word =
        if last_part == last_part.to_ascii_uppercase() { last_part } else { &last_part[start..] };
    word.to_ascii_lowercase()
}

struct EmptyNames<'a> {
    path: &'a str,
    complaints: &'a mut Vec<Complaint>,
}

impl EmptyNames<'_> {
    fn check(&mut self, name: &syn::Ident) {
        if is_empty_name(&last_word(&name.to_string())) {
            let text = format!("`{name}` says nothing about what it is");
            self.complaints.push(Complaint::new(self.path, name.span().start().line, text));
        }
    }
}

impl<'ast> Visit<'ast> for EmptyNames<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.check(&item.ident);
        visit::visit_item_mod(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.check(&item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.check(&item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.check(&item.ident);
        visit::visit_item_trait(self, item);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.check(&signature.ident);
    }
}

struct Openings<'a> {
    path: &'a str,
    complaints: &'a mut Vec<Complaint>,
}

impl Openings<'_> {
    fn check(&mut self, visibility: &syn::Visibility, attributes: &[syn::Attribute]) {
        let is_public = !matches!(visibility, syn::Visibility::Inherited);
        let Some(first) = attributes.iter().find(|it| it.path().is_ident("doc")) else { return };
        let syn::Meta::NameValue(syn::MetaNameValue { value, .. }) = &first.meta else { return };
        let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = value else { return };
        let text = text.value();
        let opening = text.split_whitespace().next().filter(|it| OPENINGS.contains(it));
        if let Some(opening) = opening.filter(|_| is_public) {
            let text = format!("documentation begins with `{opening}`, not with its subject");
            self.complaints.push(Complaint::new(self.path, first.span().start().line, text));
        }
    }
}

impl<'ast> Visit<'ast> for Openings<'_> {
    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.check(&item.vis, &item.attrs);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.check(&item.vis, &item.attrs);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.check(&item.vis, &item.attrs);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.check(&item.vis, &item.attrs);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.check(&item.vis, &item.attrs);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.check(&item.vis, &item.attrs);
        visit::visit_item_mod(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.check(&item.vis, &item.attrs);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.check(&item.vis, &item.attrs);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        self.check(&field.vis, &field.attrs);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.check(&item.vis, &item.attrs);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.check(&item.vis, &item.attrs);
    }
}

struct StandardAtomics<'a> {
    path: &'a str,
    complaints: &'a mut Vec<Complaint>,
}

impl StandardAtomics<'_> {
    fn complain(&mut self, span: proc_macro2::Span) {
        let text = "takes atomics from the standard library instead of the crate `sync`";
        self.complaints.push(Complaint::new(self.path, span.start().line, text));
    }

    fn walk(&mut self, tree: &syn::UseTree, before: &[String]) {
        match tree {
            syn::UseTree::Path(path) => {
                let here = [before, &[path.ident.to_string()]].concat();
                if is_standard_atomic(&here) {
                    self.complain(path.ident.span());
                } else {
                    self.walk(&path.tree, &here);
                }
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.walk(item, before));
            }
            syn::UseTree::Name(syn::UseName { ident })
            | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
                if is_standard_atomic(&[before, &[ident.to_string()]].concat()) {
                    self.complain(ident.span());
                }
            }
            syn::UseTree::Glob(_) => {}
        }
    }
}

impl<'ast> Visit<'ast> for StandardAtomics<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.walk(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<_> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if is_standard_atomic(&names) {
            self.complain(path.segments[0].ident.span());
        }
        visit::visit_path(self, path);
    }
}

fn is_standard_atomic(names: &[String]) -> bool {
    matches!(names, [root, sync, atomic, ..]
        if matches!(root.as_str(), "std" | "core") && sync == "sync" && atomic == "atomic")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::Rule;
    use crate::tidy::fixture::repository;

    #[track_caller]
    fn check(rule: Rule, path: &str, text: &str, complaint_count: usize) {
        assert_eq!(rule(&repository(&[(path, text)])).len(), complaint_count, "{path}: {text}");
    }

    #[test]
    fn an_empty_name_is_refused_for_files_modules_types_and_functions() {
        check(names_say_something, "base/utils.rs", "", 1);
        check(names_say_something, "base/common/a.rs", "", 1);
        check(names_say_something, "a.rs", "mod helpers {}", 1);
        check(names_say_something, "a.rs", "struct SlabManager;", 1);
        check(names_say_something, "a.rs", "fn run_helper() {}", 1);
        check(names_say_something, "a.rs", "struct CommonPrefix; fn slab() {}", 0);
    }

    #[test]
    fn reminders_are_refused() {
        for reminder in REMINDERS {
            check(nothing_is_left_to_do, "a.md", &format!("x {reminder} y"), 1);
        }
        check(nothing_is_left_to_do, "a.md", "all done", 0);
    }

    #[test]
    fn folders_of_one_machine_are_refused() {
        for folder in MACHINE_FOLDERS {
            check(no_path_of_one_machine, "a.md", &format!("see `{folder}x`"), 1);
            check(no_path_of_one_machine, "a.md", &format!("https://host{folder}x"), 0);
        }
    }

    #[test]
    fn flags_that_mean_another_are_refused() {
        for flag in FALSE_FLAGS {
            check(flags_are_what_they_are_called, "a.rs", &format!("let it = {flag};"), 1);
        }
        check(flags_are_what_they_are_called, "a.rs", "let it = libc::O_DSYNC;", 0);
    }

    #[test]
    fn documentation_of_public_items_begins_with_its_subject() {
        let check = |text, count| check(documentation_begins_with_its_subject, "a.rs", text, count);
        check("/// What it holds.\npub struct Cup;", 1);
        check("//! How cups are made.", 1);
        check("pub struct Cup {\n    /// Of its contents.\n    pub(crate) bytes: u64,\n}", 1);
        check("impl Cup {\n    /// Whether it is full.\n    pub fn is_full() {}\n}", 1);
        check("/// What it holds.\nstruct Cup;", 0);
        check("/// Contents: what it holds.\npub struct Cup;", 0);
        check("/// Whatever it holds.\npub struct Cup;", 0);
    }

    #[track_caller]
    fn check_atomics(path: &str, text: &str, complaint_count: usize) {
        check(atomics_come_from_the_facade, path, text, complaint_count);
    }

    #[test]
    fn atomics_of_the_standard_library_are_refused_below_the_engine() {
        check_atomics("pool/codec/src/a.rs", "use std::sync::atomic::AtomicU64;", 1);
        check_atomics("pool/codec/src/a.rs", "use std::sync::{Arc, atomic};", 1);
        check_atomics("base/x/src/a.rs", "fn a() { core::sync::atomic::fence(x); }", 1);
        check_atomics("pool/codec/src/a.rs", "use sync::atomic::AtomicU64;", 0);
    }

    #[test]
    fn the_facade_itself_tests_from_outside_and_the_layers_above_may_name_them() {
        check_atomics("base/sync/src/lib.rs", "use std::sync::atomic::AtomicU64;", 0);
        check_atomics("pool/codec/tests/a.rs", "use std::sync::atomic::AtomicU64;", 0);
        check_atomics("control/daemon/src/a.rs", "use std::sync::atomic::AtomicU64;", 0);
    }
}
