//! Dependency cycles among the modules of a crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::repository::{Package, Repository};
use crate::tidy::Complaint;
use crate::tidy::circles::tree::{ModuleId, Tree};
use crate::tidy::circles::types::{Types, offered_names};
use crate::tidy::circles::uses::uses;

/// Modules each of which depends on all others, directly or transitively.
pub(crate) struct Circle {
    pub crate_path: String,
    modules: Vec<String>,
    edges: Vec<Edge>,
}

struct Edge {
    user: String,
    used: String,
    count: usize,
    path: String,
    line: usize,
    what: String,
}

impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { crate_path, modules, edges } = self;
        writeln!(f, "{crate_path}: a circle of {}: {}", modules.len(), modules.join(", "))?;
        for edge in edges {
            let Edge { user, used, count, path, line, what } = edge;
            writeln!(f, "  {user} -> {used} ({count}, first {path}:{line}: {what})")?;
        }
        Ok(())
    }
}

pub(crate) fn modules_form_no_circle(repository: &Repository) -> Vec<Complaint> {
    let complaint = |circle: Circle| {
        let modules = circle.modules.join(", ");
        let text = format!("its modules form a circle: {modules}; see `cargo xtask circles`");
        Complaint::new(&circle.crate_path, 0, text)
    };
    circles(repository).into_iter().map(complaint).collect()
}

/// Finds the cycles of all libraries and programs.
pub(crate) fn circles(repository: &Repository) -> Vec<Circle> {
    let trees: Vec<Vec<Tree>> = repository
        .packages
        .iter()
        .map(|package| package.roots.iter().map(|root| Tree::read(repository, root)).collect())
        .collect();
    let offered: Vec<_> =
        trees.iter().map(|trees| trees.iter().flat_map(offered_names).collect()).collect();
    let mut circles = Vec::new();
    for (package, trees) in repository.packages.iter().zip(&trees) {
        let names = names_below(repository, package, &offered);
        for tree in trees {
            circles.extend(circles_in(&package.path, tree, &names));
        }
    }
    circles
}

/// Returns the method names offered by the crates below `package`; `offered` has those of each
/// package.
fn names_below(
    repository: &Repository,
    package: &Package,
    offered: &[BTreeSet<String>],
) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut waiting = vec![package];
    while let Some(package) = waiting.pop() {
        for dependency in &package.dependencies {
            let below = repository.packages.iter().position(|it| it.path == dependency.crate_path);
            if let Some(below) = below.filter(|below| seen.insert(*below)) {
                names.extend(offered[below].iter().cloned());
                waiting.push(&repository.packages[below]);
            }
        }
    }
    names
}

fn circles_in(crate_path: &str, tree: &Tree, names_below: &BTreeSet<String>) -> Vec<Circle> {
    let mut uses = uses(tree, &Types::read(tree, names_below.clone()));
    // A parent consists of its children.
    uses.retain(|(user, used), _| !tree.is_inside(*used, *user));
    let reached = reached_from_each(tree.modules.len(), uses.keys().copied());
    let name = |module: ModuleId| tree.modules[module].name.clone();
    let mut circles = Vec::new();
    let mut seen = BTreeSet::new();
    for (first, its_reached) in reached.iter().enumerate() {
        if !its_reached.contains(&first) || seen.contains(&first) {
            continue;
        }
        let members: BTreeSet<ModuleId> =
            its_reached.iter().copied().filter(|it| reached[*it].contains(&first)).collect();
        let inside = uses
            .iter()
            .filter(|((user, used), _)| members.contains(user) && members.contains(used));
        circles.push(Circle {
            crate_path: crate_path.to_owned(),
            modules: members.iter().map(|it| name(*it)).collect(),
            edges: inside
                .map(|((user, used), its_use)| Edge {
                    user: name(*user),
                    used: name(*used),
                    count: its_use.count,
                    path: tree.modules[*user].path.clone(),
                    line: its_use.line,
                    what: its_use.what.clone(),
                })
                .collect(),
        });
        seen.extend(members);
    }
    circles
}

/// Returns, for each of `count` modules, those that it depends on, directly or transitively.
fn reached_from_each(
    count: usize,
    edges: impl Iterator<Item = (ModuleId, ModuleId)>,
) -> Vec<BTreeSet<ModuleId>> {
    let mut used_by: BTreeMap<ModuleId, Vec<ModuleId>> = BTreeMap::new();
    for (user, used) in edges {
        used_by.entry(user).or_default().push(used);
    }
    let from = |start: ModuleId| {
        let mut reached = BTreeSet::new();
        let mut waiting = vec![start];
        while let Some(module) = waiting.pop() {
            let next = used_by.get(&module).into_iter().flatten().copied();
            waiting.extend(next.filter(|used| reached.insert(*used)));
        }
        reached
    };
    (0..count).map(from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture;

    #[track_caller]
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let files: Vec<_> =
            files.iter().map(|(name, text)| (format!("pool/a/src/{name}"), *text)).collect();
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let mut repository = fixture::repository(&files);
        repository.packages.push(fixture::package("pool/a", &[]));
        let circles = circles(&repository);
        let found: Vec<_> = circles.iter().map(|circle| circle.modules.join(" ")).collect();
        assert_eq!(found, expected);
    }

    const ROOT: &str = "mod a; mod b; mod c { pub(crate) use crate::b::B; }";

    #[test]
    fn modules_that_import_each_other_form_a_circle() {
        let one = ("a.rs", "use crate::b::B; pub struct A;");
        check(&[("lib.rs", ROOT), one, ("b.rs", "use super::a::A; pub struct B;")], &["a b"]);
        check(&[("lib.rs", ROOT), one, ("b.rs", "pub struct B;")], &[]);
    }

    #[test]
    fn a_path_is_followed_through_re_exports_and_out_of_macros() {
        let two = ("b.rs", "fn f() { x!(y, crate::a::A::new()); } pub struct B;");
        check(&[("lib.rs", ROOT), ("a.rs", "use crate::c::B; pub struct A;"), two], &["a b"]);
    }

    #[test]
    fn a_parent_and_its_children_may_use_each_other_and_siblings_not() {
        let files = |d| {
            [
                ("lib.rs", ROOT),
                ("a.rs", "mod d; mod e; use d::D; pub struct A;"),
                ("a/d.rs", d),
                ("a/e.rs", "use super::d::D; pub struct E;"),
            ]
        };
        check(&files("use crate::a::A; pub struct D;"), &[]);
        check(&files("use super::e::E; pub struct D;"), &["a::d a::e"]);
    }

    #[test]
    fn a_method_of_a_type_is_a_use_of_the_module_that_writes_it() {
        let one = "pub struct A; impl A { fn new(&self) { self.get() } }";
        let two = "use crate::a::A; impl A { fn get(&self) {} }";
        check(&[("lib.rs", ROOT), ("a.rs", one), ("b.rs", two)], &["a b"]);
    }

    #[test]
    fn a_call_on_an_unknown_value_counts_if_its_name_is_defined_once() {
        let two = ("b.rs", "use crate::a::A; pub struct B; impl B { fn unique(&self) {} }");
        let one = "pub struct A; fn f() { g().unique(); }";
        check(&[("lib.rs", ROOT), ("a.rs", one), two], &["a b"]);
        let twice = format!("{one} impl A {{ fn unique(&self) {{}} }}");
        check(&[("lib.rs", ROOT), ("a.rs", &twice), two], &[]);
        let foreign = "pub struct A; fn f(g: &Vec<u8>) { g.unique(); }";
        check(&[("lib.rs", ROOT), ("a.rs", foreign), two], &[]);
    }

    #[test]
    fn tests_are_left_out() {
        let one = "pub struct A; #[cfg(test)] mod tests { use crate::b::B; }";
        check(&[("lib.rs", ROOT), ("a.rs", one), ("b.rs", "use crate::a::A;")], &[]);
    }
}
