//! Meaning of table names when a statement is prepared, to detect changes that invalidate the
//! prepared statement.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::sql::sqlparser::ast::{ObjectName, ObjectNamePart, Statement, visit_relations};

use crate::definition::table_of;
use crate::engine::{AS_OF, BYTES_SUFFIX};
use crate::error::{SqlError, SqlState};
use crate::host::Host;
use crate::wire::PgType;

/// A table name and its meaning when it was resolved.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Named {
    name: String,
    meaning: Meaning,
}

#[derive(Debug, PartialEq, Eq)]
struct Meaning {
    /// Versions of the definitions of the name and of its topic.
    versions: [Option<u64>; 2],
    is_topic: bool,
    keeps_values: bool,
    values_topic: Arc<str>,
}

impl Named {
    pub(super) fn new(host: &dyn Host, name: &str) -> Self {
        let name = name.split_once(AS_OF).map_or(name, |(name, _)| name);
        let name = name.strip_suffix(BYTES_SUFFIX).unwrap_or(name).to_owned();
        Self { meaning: Meaning::of(host, &name), name }
    }

    /// Returns the table names in a query.
    pub(super) fn all(host: &dyn Host, query: &Statement) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        let walked = visit_relations(query, |name| {
            let named = Self::new(host, &last_part(name));
            if !all.contains(&named) {
                all.push(named);
            }
            ControlFlow::<()>::Continue(())
        });
        assert!(walked.is_continue(), "nothing ends it");
        all
    }

    pub(super) fn is_same(&self, host: &dyn Host) -> bool {
        self.meaning == Meaning::of(host, &self.name)
    }
}

impl Meaning {
    fn of(host: &dyn Host, name: &str) -> Self {
        let topic = table_of(name).0;
        let version = |name: &str| host.definition(name).map(|it| it.version);
        let own = version(name);
        let of_topic = if topic == name { own } else { version(topic) };
        let is_topic = host.topic(topic).is_some();
        let keeps_values = is_topic && host.keeps_values(topic);
        let values_topic = host.values_topic(topic);
        Self { versions: [own, of_topic], is_topic, keeps_values, values_topic }
    }
}

fn last_part(name: &ObjectName) -> String {
    match name.0.last() {
        Some(ObjectNamePart::Identifier(ident)) => match ident.quote_style {
            Some(_) => ident.value.clone(),
            None => ident.value.to_ascii_lowercase(),
        },
        _ => String::new(),
    }
}

pub(super) fn changed_columns() -> SqlError {
    SqlError::new(SqlState::NOT_SUPPORTED, "cached plan must not change result type")
}

/// Returns whether rows of both schemas look the same to a client.
pub(super) fn are_same_columns(one: &SchemaRef, other: &SchemaRef) -> bool {
    let described = |schema: &SchemaRef| -> Vec<(String, u32)> {
        schema.fields().iter().map(|it| (it.name().clone(), PgType::of(it).oid)).collect()
    };
    Arc::ptr_eq(one, other) || described(one) == described(other)
}
