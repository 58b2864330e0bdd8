//! Uses between modules: the paths and method calls of each.

use std::collections::BTreeMap;

use proc_macro2::{Spacing, Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};

use crate::tidy::circles::tree::{Item, ModuleId, Named, Tree, leaves};
use crate::tidy::circles::types::{Types, ValueType, segments, value_type};

/// Methods of the standard library, to which a call on a value of an unknown type most likely
/// refers.
const STANDARD_METHODS: &[&str] = &[
    "abs",
    "accept",
    "add",
    "all",
    "and_then",
    "any",
    "append",
    "as_bytes",
    "as_deref",
    "as_fd",
    "as_mut",
    "as_mut_ptr",
    "as_mut_slice",
    "as_path",
    "as_ptr",
    "as_raw_fd",
    "as_ref",
    "as_secs",
    "as_slice",
    "as_str",
    "by_ref",
    "bytes",
    "cancel",
    "capacity",
    "ceil",
    "chain",
    "chars",
    "checked_add",
    "checked_sub",
    "chunks",
    "clear",
    "clone",
    "cloned",
    "close",
    "cmp",
    "collect",
    "connect",
    "contains",
    "contains_key",
    "copied",
    "copy_from_slice",
    "count",
    "create",
    "dec",
    "dedup",
    "deref",
    "difference",
    "display",
    "downcast",
    "drain",
    "drop",
    "elapsed",
    "end",
    "ends_with",
    "entry",
    "enumerate",
    "eq",
    "err",
    "exists",
    "expect",
    "extend",
    "fill",
    "filter",
    "find",
    "finish",
    "first",
    "flags",
    "flat_map",
    "flatten",
    "floor",
    "flush",
    "fmt",
    "fold",
    "for_each",
    "get",
    "get_mut",
    "get_or_insert_with",
    "hash",
    "id",
    "index",
    "insert",
    "inspect",
    "into_inner",
    "into_iter",
    "into_raw_fd",
    "is_block_device",
    "is_dir",
    "is_empty",
    "is_file",
    "is_finished",
    "is_none",
    "is_ok",
    "is_some",
    "iter",
    "iter_mut",
    "join",
    "keys",
    "kill",
    "kind",
    "last",
    "leak",
    "len",
    "lines",
    "listen",
    "load",
    "local_addr",
    "lock",
    "map",
    "map_or",
    "max",
    "metadata",
    "min",
    "name",
    "next",
    "next_back",
    "notify_all",
    "notify_one",
    "now",
    "offset",
    "ok",
    "open",
    "or_else",
    "output",
    "parent",
    "park",
    "parse",
    "partition",
    "path",
    "peek",
    "permits",
    "poll",
    "pop",
    "position",
    "pow",
    "product",
    "ptr",
    "push",
    "range",
    "read",
    "read_at",
    "recv",
    "remove",
    "rename",
    "replace",
    "report",
    "reserve",
    "reset",
    "resize",
    "retain",
    "rev",
    "round",
    "seek",
    "send",
    "set",
    "set_len",
    "shutdown",
    "size",
    "skip",
    "sort",
    "spawn",
    "split",
    "split_off",
    "start",
    "starts_with",
    "status",
    "stop",
    "store",
    "sum",
    "swap",
    "sync",
    "sync_all",
    "take",
    "then",
    "to_bytes",
    "to_owned",
    "to_string",
    "total",
    "trim",
    "truncate",
    "try_clone",
    "try_lock",
    "try_recv",
    "try_send",
    "try_wait",
    "unlock",
    "unpark",
    "update",
    "upgrade",
    "values",
    "values_mut",
    "wait",
    "wait_timeout",
    "wait_while",
    "wake",
    "windows",
    "with",
    "write",
    "write_all",
    "write_at",
    "write_fmt",
    "write_str",
    "zip",
];

/// Uses of one module by another.
#[derive(Debug)]
pub(super) struct Use {
    pub count: usize,
    /// The first use: its target, and its line.
    pub what: String,
    pub line: usize,
}

/// All uses between the files of a crate, by user and used module.
pub(super) type Uses = BTreeMap<(ModuleId, ModuleId), Use>;

pub(super) fn uses(tree: &Tree, types: &Types) -> Uses {
    let mut uses = Uses::new();
    for (module, content) in tree.modules.iter().enumerate() {
        let mut visitor = Visitor {
            tree,
            types,
            module,
            self_type: ValueType::Unknown,
            parameters: BTreeMap::new(),
            uses: &mut uses,
        };
        content.items.iter().for_each(|item| visitor.visit_item(item));
    }
    uses
}

struct Visitor<'a> {
    tree: &'a Tree,
    types: &'a Types,
    module: ModuleId,
    self_type: ValueType,
    /// Parameters of the current function.
    parameters: BTreeMap<String, ValueType>,
    uses: &'a mut Uses,
}

impl Visitor<'_> {
    fn note(&mut self, used: ModuleId, what: &str, place: Span) {
        let file_of = |module: ModuleId| self.tree.modules[module].file;
        let (user, used) = (file_of(self.module), file_of(used));
        if user == used {
            return;
        }
        let line = place.start().line;
        let first = || Use { count: 0, what: what.to_owned(), line };
        self.uses.entry((user, used)).or_insert_with(first).count += 1;
    }

    fn note_path(&mut self, segments: &[String], place: Span) {
        let what = segments.join("::");
        if let [first, inside, ..] = segments
            && first == "Self"
        {
            if let ValueType::Own(item) = self.self_type.clone() {
                self.note_method(&item, inside, place);
            }
            return;
        }
        if let Some(Named::Item(item, inside)) = self.tree.resolve(self.module, segments) {
            self.note(item.module, &what, place);
            if let Some(inside) = inside {
                self.note_method(&item, &inside, place);
            }
        }
    }

    fn note_method(&mut self, of_type: &Item, name: &str, place: Span) {
        if let Some(owner) = self.types.method(of_type, name) {
            self.note(owner, &format!("{}::{name}", of_type.name), place);
        }
    }

    /// Records a call of a method whose receiver may have any type.
    fn note_call(&mut self, name: &str, place: Span) {
        if !STANDARD_METHODS.contains(&name)
            && let Some(owner) = self.types.only_owner(name)
        {
            self.note(owner, &format!(".{name}()"), place);
        }
    }

    fn type_of(&self, value: &syn::Expr) -> ValueType {
        match value {
            syn::Expr::Path(path) if path.path.is_ident("self") => self.self_type.clone(),
            syn::Expr::Path(path) => {
                let name = path.path.get_ident().map(ToString::to_string);
                let parameter = name.and_then(|name| self.parameters.get(&name));
                parameter.cloned().unwrap_or(ValueType::Unknown)
            }
            syn::Expr::Field(field) => match (self.type_of(&field.base), &field.member) {
                (ValueType::Own(item), syn::Member::Named(name)) => {
                    self.types.field(&item, &name.to_string())
                }
                (ValueType::Own(item), syn::Member::Unnamed(index)) => {
                    self.types.field(&item, &index.index.to_string())
                }
                _ => ValueType::Unknown,
            },
            syn::Expr::Reference(inner) => self.type_of(&inner.expr),
            syn::Expr::Paren(inner) => self.type_of(&inner.expr),
            _ => ValueType::Unknown,
        }
    }

    /// Reads the types of a function's parameters, then its body through `read`.
    fn within(&mut self, signature: &syn::Signature, read: impl FnOnce(&mut Self)) {
        let typed = signature.inputs.iter().filter_map(|input| match input {
            syn::FnArg::Typed(typed) => match &*typed.pat {
                syn::Pat::Ident(name) => {
                    let its_type = value_type(self.tree, self.module, &typed.ty);
                    Some((name.ident.to_string(), its_type))
                }
                _ => None,
            },
            syn::FnArg::Receiver(_) => None,
        });
        let typed = typed.collect();
        let outside = std::mem::replace(&mut self.parameters, typed);
        read(self);
        self.parameters = outside;
    }

    /// Records the paths and calls in the tokens of a macro, whose syntax is unknown.
    fn note_tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut path: Vec<String> = Vec::new();
        for (index, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.note_tokens(group.stream()),
                TokenTree::Ident(name) => {
                    path.push(name.to_string());
                    let next = &tokens[index + 1..];
                    if joins(next) {
                        continue;
                    }
                    let is_of_a_value = index > 0 && is_point(&tokens[index - 1], '.');
                    let path = std::mem::take(&mut path);
                    match next.first() {
                        Some(TokenTree::Group(_)) if is_of_a_value => {
                            self.note_call(&path[0], name.span());
                        }
                        _ if is_of_a_value => {}
                        _ => self.note_path(&path, name.span()),
                    }
                }
                _ => {}
            }
        }
    }
}

fn is_point(token: &TokenTree, point: char) -> bool {
    matches!(token, TokenTree::Punct(it) if it.as_char() == point)
}

/// Returns whether `::` and a name follow.
fn joins(tokens: &[TokenTree]) -> bool {
    match tokens {
        [TokenTree::Punct(first), second, TokenTree::Ident(_), ..] => {
            first.as_char() == ':' && first.spacing() == Spacing::Joint && is_point(second, ':')
        }
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    /// Inline modules are read separately.
    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !matches!(item.vis, syn::Visibility::Inherited) {
            return;
        }
        for leaf in leaves(&item.tree) {
            self.note_path(&leaf.path, item.use_token.span);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.self_type = value_type(self.tree, self.module, &item.self_ty);
        visit::visit_item_impl(self, item);
        self.self_type = ValueType::Unknown;
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.within(&item.sig, |visitor| visit::visit_item_fn(visitor, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.within(&item.sig, |visitor| visit::visit_impl_item_fn(visitor, item));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let Some(first) = path.segments.first() {
            self.note_path(&segments(path), first.ident.span());
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let (name, place) = (call.method.to_string(), call.method.span());
        match self.type_of(&call.receiver) {
            ValueType::Own(item) if self.types.method(&item, &name).is_some() => {
                self.note_method(&item, &name, place);
            }
            ValueType::Foreign => {}
            _ => self.note_call(&name, place),
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, used: &'ast syn::Macro) {
        self.note_tokens(used.tokens.clone());
        visit::visit_macro(self, used);
    }
}
