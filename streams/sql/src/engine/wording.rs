//! PostgreSQL's messages for errors whose messages in the engine name its own types and parts.

use crate::error::{SqlError, SqlState};

/// Returns the error with PostgreSQL's message and SQLSTATE, if the engine's message has one of the
/// known forms. The names of types are PostgreSQL's already.
pub(super) fn worded(error: SqlError) -> SqlError {
    let text = error.message.as_str();
    let found = of_value(text, error.state)
        .or_else(|| of_operator(text))
        .or_else(|| of_place(text))
        .or_else(|| of_query(text))
        .or_else(|| of_name(text).map(|(state, what)| (state, what, None)));
    match found {
        Some((state, message, hint)) => {
            SqlError { state, message, hint: hint.or(error.hint), ..error }
        }
        None => error,
    }
}

/// Functions whose arguments have one type.
pub(super) const ONE_TYPE: [&str; 3] = ["coalesce", "greatest", "least"];

type Worded = (SqlState, String, Option<String>);

fn plain(state: SqlState, what: impl Into<String>) -> Option<Worded> {
    Some((state, what.into(), None))
}

/// Returns the part of a text between two others, the second of which may be empty.
fn between<'a>(text: &'a str, before: &str, behind: &str) -> Option<&'a str> {
    let rest = &text[text.find(before)? + before.len()..];
    match behind {
        "" => Some(rest),
        _ => rest.find(behind).map(|at| &rest[..at]),
    }
}

/// Returns a type without its precision.
fn of_type(text: &str) -> &str {
    let text = text.strip_suffix(" type").unwrap_or(text);
    let text = text.split('(').next().unwrap_or(text).trim();
    if text == "timestamp" { "timestamp without time zone" } else { text }
}

/// A text that is no value of a type.
fn of_value(text: &str, state: SqlState) -> Option<Worded> {
    if text.contains("too large to store in a numeric")
        || text.contains("too small to store in a numeric")
        || text.starts_with("Cannot cast to numeric") && text.contains("Overflowing on ")
    {
        return plain(SqlState::OUT_OF_RANGE, "numeric field overflow");
    }
    if text.starts_with("Cannot get result type for decimal operation ") {
        return plain(SqlState::NOT_SUPPORTED, "numerics with so many digits are not supported");
    }
    let rest = text.strip_prefix("Cannot cast string '");
    let (value, to) =
        rest.or_else(|| text.strip_prefix("Cannot cast value '"))?.rsplit_once("' to value of ")?;
    let to = of_type(to);
    let what = match state {
        SqlState::OUT_OF_RANGE => format!("value {value:?} is out of range for type {to}"),
        SqlState::DATETIME_OVERFLOW => format!("date/time field value out of range: {value:?}"),
        SqlState::NOT_SUPPORTED => format!("{to} format {value:?} is not supported"),
        _ => format!("invalid input syntax for type {to}: {value:?}"),
    };
    plain(state, what)
}

/// Operands for which PostgreSQL has no operator.
fn of_operator(text: &str) -> Option<Worded> {
    let none = |what: String| {
        let what = format!("operator does not exist: {what}");
        let hint = "You might need to add explicit type casts.".to_owned();
        Some((SqlState::UNDEFINED_FUNCTION, what, Some(hint)))
    };
    let pair = |text: &str, operator: &str| {
        let (left, right) = text.split_once(" and ")?;
        none(format!("{} {operator} {}", of_type(left), of_type(right)))
    };
    if let Some(operands) = between(text, "Cannot coerce arithmetic expression ", " to valid types")
    {
        return none(operands.to_owned());
    }
    if let Some(operands) =
        between(text, "Cannot infer common string type for string concat operation ", "")
    {
        return none(operands.to_owned());
    }
    let compared = "Cannot infer common argument type for comparison operation ";
    if let Some(operands) = between(text, compared, "") {
        let operands = operands.replace("IS NOT DISTINCT FROM", "=");
        return none(operands.replace("IS DISTINCT FROM", "="));
    }
    if text.contains("in LIKE expression") {
        return pair(between(text, "common type to coerce ", " in LIKE")?, "~~");
    }
    if text.contains("in BETWEEN expression") {
        return pair(between(text, "Failed to coerce types ", " in BETWEEN")?, ">=");
    }
    if let Some(operands) = between(text, "Cannot get result type for temporal operation ", ": ") {
        let is_moment = |it: &str| it.trim().starts_with("timestamp");
        if operands.split_once(" + ").is_some_and(|(one, other)| is_moment(one) && is_moment(other))
        {
            return none(operands.to_owned());
        }
        return plain(SqlState::NOT_SUPPORTED, format!("operator {operands} is not supported"));
    }
    if text.starts_with("Unary operator '-'") {
        return none("- for this operand type".to_owned());
    }
    let operand = between(text, "Unary operator 'NOT' requires a boolean expression, got ", "")?;
    plain(
        SqlState::DATATYPE,
        format!("argument of NOT must be type boolean, not type {}", of_type(operand)),
    )
}

/// Expressions in a clause in which they are not allowed.
fn of_place(text: &str) -> Option<Worded> {
    if text.starts_with("Cannot create filter with non-boolean predicate") {
        let of = of_type(text.rsplit_once("' returning ")?.1);
        let what = format!("argument of WHERE must be type boolean, not type {of}");
        return plain(SqlState::DATATYPE, what);
    }
    if text.starts_with("HAVING clause references: ") && text.contains("<subquery>") {
        let what = "a subquery in HAVING without GROUP BY is not supported";
        return plain(SqlState::NOT_SUPPORTED, what);
    }
    if text.contains("must appear in the GROUP BY clause") {
        let column = between(text, "While expanding wildcard, column \"", "\"")
            .or_else(|| between(text, "olumn \"", "\""));
        let Some(column) = column else {
            let what = "columns in HAVING must appear in the GROUP BY clause or be used in an \
                        aggregate function";
            return plain(SqlState::GROUPING, what);
        };
        let what = format!(
            "column {column:?} must appear in the GROUP BY clause or be used in an aggregate \
             function"
        );
        return plain(SqlState::GROUPING, what);
    }
    if text.starts_with("Aggregate function calls cannot be nested") {
        return plain(SqlState::GROUPING, "aggregate function calls cannot be nested");
    }
    if text.starts_with("Aggregate functions are not allowed in the WHERE clause") {
        return plain(SqlState::GROUPING, "aggregate functions are not allowed in WHERE");
    }
    if text.to_ascii_lowercase().starts_with("for select distinct, order by") {
        let what = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
        return plain(SqlState::INVALID_COLUMN_REFERENCE, what);
    }
    if text.starts_with("LIMIT must be >= 0") {
        return plain(SqlState("2201W"), "LIMIT must not be negative");
    }
    if text.starts_with("OFFSET must be >=") {
        return plain(SqlState("2201X"), "OFFSET must not be negative");
    }
    None
}

/// Subqueries and set operations with other columns than their place needs.
fn of_query(text: &str) -> Option<Worded> {
    if text.starts_with("Too many columns! The subquery should only return one column") {
        return plain(SqlState::SYNTAX, "subquery must return only one column");
    }
    if text.starts_with("UNION queries have different number of columns") {
        let what = "each UNION query must have the same number of columns";
        return plain(SqlState::SYNTAX, what);
    }
    if let Some(types) = between(text, "Previous inputs were of type ", " on column") {
        let (one, other) = types.split_once(", but got incompatible type ")?;
        let (one, other) = (of_type(one), of_type(other));
        let what = format!("UNION types {one} and {other} cannot be matched");
        return plain(SqlState::DATATYPE, what);
    }
    let counts = between(text, "Source table contains ", " names given as column alias")?;
    let (columns, names) = counts.split_once(" columns but only ")?;
    // With one name the alias may be of a function's result, which is read otherwise.
    if names == "1" {
        return None;
    }
    let what = format!("table has {columns} columns available but {names} columns specified");
    plain(SqlState::INVALID_COLUMN_REFERENCE, what)
}

/// Names that do not exist.
fn of_name(text: &str) -> Option<(SqlState, String)> {
    if let Some(name) = text.strip_prefix("table '").and_then(|it| it.split_once("' not found")) {
        let name = name.0.strip_prefix("memlane.").unwrap_or(name.0);
        let name = name.strip_prefix("public.").unwrap_or(name);
        return Some(match name.split('.').count() {
            3 => (
                SqlState::NOT_SUPPORTED,
                format!("cross-database references are not implemented: {name:?}"),
            ),
            _ => (SqlState::UNDEFINED_TABLE, format!("relation {name:?} does not exist")),
        });
    }
    if let Some(name) = text.strip_prefix("Invalid qualifier ") {
        let name = name.trim_matches(['\'', '"']);
        let what = format!("missing FROM-clause entry for table {name:?}");
        return Some((SqlState::UNDEFINED_TABLE, what));
    }
    if let Some(of) = between(text, "Cannot access field at argument 1: type ", " is not ") {
        let what = format!(
            "column notation applied to type {}, which is not a composite type",
            of_type(of)
        );
        return Some((SqlState::WRONG_OBJECT_TYPE, what));
    }
    if text.starts_with("function equals_any does not exist") {
        let what = "op ANY/ALL (array) requires array on right side";
        return Some((SqlState::WRONG_OBJECT_TYPE, what.to_owned()));
    }
    if text.starts_with("function make_array ") {
        return Some((SqlState::DATATYPE, "types of ARRAY cannot be matched".to_owned()));
    }
    let of_one_type =
        ONE_TYPE.into_iter().find(|it| text.starts_with(&format!("function {it} does not exist")));
    if let Some(name) = of_one_type {
        let what = format!("types of {} cannot be matched", name.to_ascii_uppercase());
        return Some((SqlState::DATATYPE, what));
    }
    if text.starts_with("unnest() can only be applied to") {
        let what = "function unnest does not exist for arguments of these types";
        return Some((SqlState::UNDEFINED_FUNCTION, what.to_owned()));
    }
    if text.starts_with("Argument #") && text.contains(", got ") {
        let what = "function generate_series does not exist for arguments of these types";
        return Some((SqlState::UNDEFINED_FUNCTION, what.to_owned()));
    }
    let name = text.strip_prefix("Unsupported SQL type ")?;
    let name = name.to_ascii_lowercase();
    let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
    let plain = name.split(['(', '[']).next().unwrap_or(name).trim();
    Some(match TYPES.contains(&plain) || plain.contains(' ') {
        true => (SqlState::NOT_SUPPORTED, format!("type {name} is not supported")),
        false => (SqlState::UNDEFINED_OBJECT, format!("type {name:?} does not exist")),
    })
}

/// PostgreSQL's types that this server does not have.
const TYPES: &[&str] = &[
    "anyarray",
    "anyelement",
    "bit",
    "box",
    "cid",
    "cidr",
    "circle",
    "cstring",
    "daterange",
    "inet",
    "int2vector",
    "int4range",
    "int8range",
    "jsonpath",
    "line",
    "lseg",
    "macaddr",
    "macaddr8",
    "money",
    "numrange",
    "oidvector",
    "path",
    "pg_lsn",
    "point",
    "polygon",
    "record",
    "refcursor",
    "regconfig",
    "regdictionary",
    "regnamespace",
    "regoper",
    "regoperator",
    "regproc",
    "regprocedure",
    "regrole",
    "regtype",
    "tid",
    "time",
    "timestamp",
    "timetz",
    "tsquery",
    "tsrange",
    "tstzrange",
    "tsvector",
    "varbit",
    "void",
    "xid",
    "xid8",
    "xml",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_words_of_postgresql() {
        use SqlState as S;
        for (state, engine, expected_state, expected) in [
            (
                S::INVALID_TEXT,
                "Cannot cast string 'a'b' to value of integer type",
                S::INVALID_TEXT,
                "invalid input syntax for type integer: \"a'b\"",
            ),
            (
                S::OUT_OF_RANGE,
                "Cannot cast string '99999' to value of smallint type",
                S::OUT_OF_RANGE,
                "value \"99999\" is out of range for type smallint",
            ),
            (
                S::UNDEFINED_TABLE,
                "table 'memlane.public.t' not found",
                S::UNDEFINED_TABLE,
                "relation \"t\" does not exist",
            ),
            (
                S::UNDEFINED_TABLE,
                "table 'memlane.s.t' not found",
                S::UNDEFINED_TABLE,
                "relation \"s.t\" does not exist",
            ),
            (
                S::UNDEFINED_TABLE,
                "table 'a.b.t' not found",
                S::NOT_SUPPORTED,
                "cross-database references are not implemented: \"a.b.t\"",
            ),
            (
                S::UNDEFINED_FUNCTION,
                "Cannot coerce arithmetic expression integer + text to valid types",
                S::UNDEFINED_FUNCTION,
                "operator does not exist: integer + text",
            ),
            (
                S::DATATYPE,
                "There isn't a common type to coerce text and integer in LIKE expression",
                S::UNDEFINED_FUNCTION,
                "operator does not exist: text ~~ integer",
            ),
            (
                S::NOT_SUPPORTED,
                "Unsupported SQL type nope",
                S::UNDEFINED_OBJECT,
                "type \"nope\" does not exist",
            ),
            (
                S::NOT_SUPPORTED,
                "Unsupported SQL type MONEY",
                S::NOT_SUPPORTED,
                "type money is not supported",
            ),
            (S::DATATYPE, "another error", S::DATATYPE, "another error"),
        ] {
            let found = worded(SqlError::new(state, engine));
            assert_eq!((found.state, found.message.as_str()), (expected_state, expected));
        }
    }

    #[test]
    fn columns_in_having_have_a_group() {
        let engine = "HAVING clause references: t.a > bigint(1) must appear in the GROUP BY clause \
                      or be used in an aggregate function";
        let found = worded(SqlError::new(SqlState::SYNTAX, engine));
        assert_eq!(found.state, SqlState::GROUPING);
        assert!(!found.message.contains("bigint"), "{found}");
    }
}
