//! Types of a crate: the modules of their methods, and the types of their fields.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::circles::tree::{Item, ModuleId, Named, Tree};

/// Pointers that dereference to their contents.
const POINTERS: &[&str] = &["Arc", "Box", "Rc"];

/// Type of a value, as far as it is apparent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ValueType {
    /// A type of this crate.
    Own(Item),
    /// A type of another crate, or a type parameter.
    Foreign,
    Unknown,
}

#[derive(Default)]
pub(super) struct Types {
    /// Inherent methods and associated functions, by type and name.
    methods: BTreeMap<Item, BTreeMap<String, ModuleId>>,
    fields: BTreeMap<Item, BTreeMap<String, ValueType>>,
    /// Modules that define an inherent method of a name.
    owners: BTreeMap<String, BTreeSet<ModuleId>>,
    /// Names that another crate or a trait also defines.
    ambiguous: BTreeSet<String>,
}

impl Types {
    /// Reads the types of `tree`. `names_elsewhere` are the method names of the crates below.
    pub(super) fn read(tree: &Tree, names_elsewhere: BTreeSet<String>) -> Self {
        let mut types = Self { ambiguous: names_elsewhere, ..Self::default() };
        for (module, content) in tree.modules.iter().enumerate() {
            for item in &content.items {
                match item {
                    syn::Item::Impl(block) => types.add_impl(tree, module, block),
                    syn::Item::Trait(block) => types.add_trait(block),
                    syn::Item::Struct(block) => types.add_fields(tree, module, block),
                    _ => {}
                }
            }
        }
        types
    }

    /// Returns the module that defines the method or associated function `name` of `of_type`.
    pub(super) fn method(&self, of_type: &Item, name: &str) -> Option<ModuleId> {
        self.methods.get(of_type)?.get(name).copied()
    }

    /// Returns the only module that a call of `name` on a value of an unknown type can refer to.
    pub(super) fn only_owner(&self, name: &str) -> Option<ModuleId> {
        let owners = self.owners.get(name).filter(|_| !self.ambiguous.contains(name))?;
        owners.first().copied().filter(|_| owners.len() == 1)
    }

    pub(super) fn field(&self, of_type: &Item, name: &str) -> ValueType {
        let field = self.fields.get(of_type).and_then(|fields| fields.get(name));
        field.cloned().unwrap_or(ValueType::Unknown)
    }

    fn add_impl(&mut self, tree: &Tree, module: ModuleId, block: &syn::ItemImpl) {
        let functions = block.items.iter().filter_map(|item| match item {
            syn::ImplItem::Fn(function) => Some(function),
            _ => None,
        });
        let names = functions.map(|function| function.sig.ident.to_string());
        if block.trait_.is_some() {
            self.ambiguous.extend(names);
            return;
        }
        let ValueType::Own(of_type) = value_type(tree, module, &block.self_ty) else { return };
        let methods = self.methods.entry(of_type).or_default();
        for name in names {
            self.owners.entry(name.clone()).or_default().insert(tree.modules[module].file);
            methods.insert(name, module);
        }
    }

    fn add_trait(&mut self, block: &syn::ItemTrait) {
        self.ambiguous.extend(trait_functions(block));
    }

    fn add_fields(&mut self, tree: &Tree, module: ModuleId, block: &syn::ItemStruct) {
        let fields = (0..).zip(&block.fields).map(|(index, field): (usize, _)| {
            let name = field.ident.as_ref().map_or_else(|| index.to_string(), ToString::to_string);
            (name, value_type(tree, module, &field.ty))
        });
        let fields = fields.collect();
        self.fields.insert(Item { module, name: block.ident.to_string() }, fields);
    }
}

/// Returns the method names that a crate offers to crates above it.
pub(super) fn offered_names(tree: &Tree) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for item in tree.modules.iter().flat_map(|module| &module.items) {
        match item {
            syn::Item::Trait(block) => names.extend(trait_functions(block)),
            syn::Item::Impl(block) => {
                names.extend(block.items.iter().filter_map(|item| match item {
                    syn::ImplItem::Fn(function)
                        if matches!(function.vis, syn::Visibility::Public(_)) =>
                    {
                        Some(function.sig.ident.to_string())
                    }
                    _ => None,
                }))
            }
            _ => {}
        }
    }
    names
}

fn trait_functions(block: &syn::ItemTrait) -> impl Iterator<Item = String> {
    block.items.iter().filter_map(|item| match item {
        syn::TraitItem::Fn(function) => Some(function.sig.ident.to_string()),
        _ => None,
    })
}

/// Returns the type of a value declared as `written` in `module`, without references and pointers.
pub(super) fn value_type(tree: &Tree, module: ModuleId, written: &syn::Type) -> ValueType {
    match written {
        syn::Type::Reference(reference) => value_type(tree, module, &reference.elem),
        syn::Type::Paren(paren) => value_type(tree, module, &paren.elem),
        syn::Type::Path(path) => match pointed_to(&path.path) {
            Some(inner) => value_type(tree, module, inner),
            None => match tree.resolve(module, &segments(&path.path)) {
                Some(Named::Item(item, None)) => ValueType::Own(item),
                _ => ValueType::Foreign,
            },
        },
        _ => ValueType::Foreign,
    }
}

fn pointed_to(path: &syn::Path) -> Option<&syn::Type> {
    let last = path.segments.last()?;
    let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    let is_pointer = POINTERS.iter().any(|pointer| last.ident == pointer);
    match arguments.args.first() {
        Some(syn::GenericArgument::Type(inner)) if is_pointer => Some(inner),
        _ => None,
    }
}

pub(super) fn segments(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}
