//! The module tree of a crate, and the resolution of paths in its modules.
//!
//! Tests are excluded. Items of other crates do not resolve.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use crate::repository::Repository;

/// Maximum number of imports and re-exports through which a name is followed.
const STEPS_MAX: usize = 16;

/// Index in `Tree::modules`.
pub(super) type ModuleId = usize;

/// One module: a file, or an inline module.
pub(super) struct Module {
    /// Path without `crate::`. The root has the name of its file.
    pub name: String,
    pub path: String,
    /// Module of the file in which this is written: itself, unless it is inline.
    pub file: ModuleId,
    pub items: Vec<syn::Item>,
    parent: Option<ModuleId>,
    children: BTreeMap<String, ModuleId>,
    definitions: BTreeSet<String>,
    imports: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
}

/// An item that a module defines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Item {
    pub module: ModuleId,
    pub name: String,
}

/// Target of a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Named {
    Module(ModuleId),
    /// An item, and the rest of the path inside it, such as a method of a type.
    Item(Item, Option<String>),
}

pub(super) struct Tree {
    pub modules: Vec<Module>,
}

/// Location of a module's source.
struct Place<'a> {
    name: &'a str,
    path: &'a str,
    /// Folder of its children's files.
    folder: &'a str,
    parent: Option<ModuleId>,
}

impl Tree {
    /// Reads the modules below the root file of a library or program.
    pub(super) fn read(repository: &Repository, root: &str) -> Self {
        let (folder, file) = root.rsplit_once('/').unwrap_or(("", root));
        let name = file.strip_suffix(".rs").unwrap_or(file);
        let mut tree = Self { modules: Vec::new() };
        tree.add_file(repository, &Place { name, path: root, folder, parent: None });
        tree
    }

    /// Resolves `segments`, written in `module`, to an item of this crate.
    pub(super) fn resolve(&self, module: ModuleId, segments: &[String]) -> Option<Named> {
        self.resolve_within(module, segments, STEPS_MAX)
    }

    /// Returns whether `inner` is a descendant of `outer`.
    pub(super) fn is_inside(&self, inner: ModuleId, outer: ModuleId) -> bool {
        let parent = self.modules[inner].parent;
        parent.is_some_and(|parent| parent == outer || self.is_inside(parent, outer))
    }

    fn resolve_within(&self, from: ModuleId, segments: &[String], steps: usize) -> Option<Named> {
        let (first, rest) = segments.split_first()?;
        let mut named = match first.as_str() {
            "crate" => Named::Module(0),
            "self" => Named::Module(from),
            "super" => Named::Module(self.modules[from].parent?),
            name => self.look_up(from, name, steps)?,
        };
        for segment in rest {
            named = match named {
                Named::Module(module) if segment == "super" => {
                    Named::Module(self.modules[module].parent?)
                }
                Named::Module(module) => self.look_up(module, segment, steps)?,
                Named::Item(item, None) => Named::Item(item, Some(segment.clone())),
                whole => return Some(whole),
            };
        }
        Some(named)
    }

    fn look_up(&self, module: ModuleId, name: &str, steps: usize) -> Option<Named> {
        let here = &self.modules[module];
        if here.definitions.contains(name) {
            return Some(Named::Item(Item { module, name: name.to_owned() }, None));
        }
        if let Some(child) = here.children.get(name) {
            return Some(Named::Module(*child));
        }
        let steps = steps.checked_sub(1)?;
        if let Some(import) = here.imports.get(name) {
            return self.resolve_within(module, import, steps);
        }
        here.globs.iter().find_map(|glob| match self.resolve_within(module, glob, steps)? {
            Named::Module(other) if other != module => self.look_up(other, name, steps),
            _ => None,
        })
    }

    fn add_file(&mut self, repository: &Repository, place: &Place<'_>) -> Option<ModuleId> {
        let syntax = syn::parse_file(&repository.file(place.path)?.text).ok()?;
        let id = self.modules.len();
        Some(self.add(repository, place, id, syntax.items))
    }

    fn add(
        &mut self,
        repository: &Repository,
        place: &Place<'_>,
        file: ModuleId,
        mut items: Vec<syn::Item>,
    ) -> ModuleId {
        remove_tests(&mut items);
        let id = self.modules.len();
        let mut imports = Imports::default();
        items.iter().for_each(|item| imports.visit_item(item));
        self.modules.push(Module {
            name: place.name.to_owned(),
            path: place.path.to_owned(),
            file,
            items: Vec::new(),
            parent: place.parent,
            children: BTreeMap::new(),
            definitions: items.iter().filter_map(name_of).collect(),
            imports: imports.names,
            globs: imports.globs,
        });
        for item in &mut items {
            if let syn::Item::Mod(block) = item {
                let name = block.ident.to_string();
                if let Some(child) = self.add_child(repository, place, id, block) {
                    self.modules[id].children.insert(name, child);
                }
            }
        }
        self.modules[id].items = items;
        id
    }

    /// Reads the module that `declaration` in the module `parent` declares or contains.
    fn add_child(
        &mut self,
        repository: &Repository,
        place: &Place<'_>,
        parent: ModuleId,
        declaration: &mut syn::ItemMod,
    ) -> Option<ModuleId> {
        let word = declaration.ident.to_string();
        let name = match place.parent {
            Some(_) => format!("{}::{word}", place.name),
            None => word.clone(),
        };
        let folder = format!("{}/{word}", place.folder);
        let (name, folder, parent_id) = (name.as_str(), folder.as_str(), Some(parent));
        if let Some((_, items)) = declaration.content.take() {
            let place = Place { name, path: place.path, folder, parent: parent_id };
            return Some(self.add(repository, &place, self.modules[parent].file, items));
        }
        [format!("{folder}.rs"), format!("{folder}/mod.rs")].iter().find_map(|path| {
            self.add_file(repository, &Place { name, path, folder, parent: parent_id })
        })
    }
}

fn remove_tests(items: &mut Vec<syn::Item>) {
    items.retain(|item| !is_for_tests(attributes_of(item)));
    for item in items {
        if let syn::Item::Impl(block) = item {
            block.items.retain(|item| match item {
                syn::ImplItem::Fn(function) => !is_for_tests(&function.attrs),
                _ => true,
            });
        }
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string().replace(' ', "");
            condition == "test" || condition.starts_with("all(test,")
        }
        meta => meta.path().is_ident("test"),
    })
}

fn attributes_of(item: &syn::Item) -> &[syn::Attribute] {
    use syn::Item;
    match item {
        Item::Const(it) => &it.attrs,
        Item::Enum(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Macro(it) => &it.attrs,
        Item::Mod(it) => &it.attrs,
        Item::Static(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Trait(it) => &it.attrs,
        Item::Type(it) => &it.attrs,
        Item::Use(it) => &it.attrs,
        _ => &[],
    }
}

fn name_of(item: &syn::Item) -> Option<String> {
    use syn::Item;
    let name = match item {
        Item::Const(it) => &it.ident,
        Item::Enum(it) => &it.ident,
        Item::Fn(it) => &it.sig.ident,
        Item::Macro(it) => it.ident.as_ref()?,
        Item::Static(it) => &it.ident,
        Item::Struct(it) => &it.ident,
        Item::Trait(it) => &it.ident,
        Item::Type(it) => &it.ident,
        Item::Union(it) => &it.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// Imports of a module, including those inside its functions.
#[derive(Default)]
struct Imports {
    names: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
}

impl<'ast> Visit<'ast> for Imports {
    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        for leaf in leaves(&item.tree) {
            match leaf.name {
                Some(name) => drop(self.names.insert(name, leaf.path)),
                None => self.globs.push(leaf.path),
            }
        }
        visit::visit_item_use(self, item);
    }
}

/// One name that a `use` imports, or `None` for `*`.
pub(super) struct Leaf {
    pub path: Vec<String>,
    pub name: Option<String>,
}

/// Returns the individual names in the tree of a `use`.
pub(super) fn leaves(tree: &syn::UseTree) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    collect_leaves(tree, &[], &mut leaves);
    leaves
}

fn collect_leaves(tree: &syn::UseTree, before: &[String], leaves: &mut Vec<Leaf>) {
    let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
    let is_self = |name: &syn::Ident| name == "self" && !before.is_empty();
    match tree {
        syn::UseTree::Path(path) => collect_leaves(&path.tree, &with(&path.ident), leaves),
        syn::UseTree::Group(group) => {
            group.items.iter().for_each(|item| collect_leaves(item, before, leaves));
        }
        syn::UseTree::Glob(_) => leaves.push(Leaf { path: before.to_vec(), name: None }),
        syn::UseTree::Name(name) if is_self(&name.ident) => {
            leaves.push(Leaf { path: before.to_vec(), name: before.last().cloned() });
        }
        syn::UseTree::Name(name) => {
            leaves.push(Leaf { path: with(&name.ident), name: Some(name.ident.to_string()) });
        }
        syn::UseTree::Rename(name) => {
            let path = if is_self(&name.ident) { before.to_vec() } else { with(&name.ident) };
            leaves.push(Leaf { path, name: Some(name.rename.to_string()) });
        }
    }
}
