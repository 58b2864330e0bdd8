//! `orders.*` of a table that FROM names with its schema, which the engine finds only by its whole
//! name.

use datafusion::sql::sqlparser::ast::{
    ObjectName, ObjectNamePart, Select, SelectItem, SelectItemQualifiedWildcardKind, TableFactor,
};

use super::object_names::folded;

/// Adds the schema to such wildcards.
pub(super) fn qualify(select: &mut Select) {
    let factors = select.from.iter().flat_map(|from| {
        std::iter::once(&from.relation).chain(from.joins.iter().map(|it| &it.relation))
    });
    let tables: Vec<ObjectName> = factors
        .filter_map(|factor| match factor {
            TableFactor::Table { name, alias: None, args: None, .. } => Some(name.clone()),
            _ => None,
        })
        .filter(|name| name.0.len() > 1)
        .collect();
    for item in &mut select.projection {
        let SelectItem::QualifiedWildcard(kind, _) = item else { continue };
        let SelectItemQualifiedWildcardKind::ObjectName(name) = kind else { continue };
        if let [part] = name.0.as_slice()
            && let Some(table) =
                tables.iter().find(|it| it.0.last().is_some_and(|it| is_same(it, part)))
        {
            *name = table.clone();
        }
    }
}

fn is_same(one: &ObjectNamePart, other: &ObjectNamePart) -> bool {
    let name = |it: &ObjectNamePart| it.as_ident().map(folded);
    name(one) == name(other)
}
