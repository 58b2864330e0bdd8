//! `has_table_privilege` and similar functions, based on the access lists of topics.

use access::Operation;

use super::relations::Relation;
use super::viewer::Viewer;

/// Returns whether the client has one of the comma-separated privileges on a table.
pub(super) fn has(viewer: &Viewer, relation: &Relation, privileges: &str) -> bool {
    let mut wanted = privileges.split(',').map(|it| it.trim().to_ascii_uppercase());
    wanted.any(|privilege| {
        let Some(topic) = &relation.topic else { return privilege == "SELECT" };
        match privilege.as_str() {
            "SELECT" => viewer.may(Operation::Read, topic),
            "INSERT" => relation.kind == "r" && viewer.may(Operation::Write, topic),
            _ => false,
        }
    })
}
