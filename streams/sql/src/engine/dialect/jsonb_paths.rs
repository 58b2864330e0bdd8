//! `jsonb_path_exists`, `jsonb_path_query_first` and `jsonb_path_query_array` with paths of names
//! and elements: `$.a."b c"[0][*].*`. As in PostgreSQL's lax mode, names look into the elements of
//! an array, and a value that is no array is its own element.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ScalarUDF;

use super::by_row::{Body, Returns, Row, function, is_text, text_value};
use super::json_text::{elements, kind, sorted_members, valid};
use super::jsonb::written;
use super::refusal::refused;
use crate::error::SqlError;
use crate::wire::jsonb_field;

pub(super) const FUNCTIONS: &[&str] =
    &["jsonb_path_exists", "jsonb_path_query_array", "jsonb_path_query_first"];

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    const ALL: &[(&str, Returns, Body)] = &[
        (
            FUNCTIONS[0],
            |fields| of(fields, Field::new("", DataType::Boolean, true)),
            |row| Ok(ScalarValue::Boolean(found(row)?.map(|it| !it.is_empty()))),
        ),
        (
            FUNCTIONS[1],
            |fields| of(fields, jsonb_field("", DataType::Utf8)),
            |row| {
                let list = found(row)?.map(|it| format!("[{}]", it.join(", ")));
                Ok(list.map_or(ScalarValue::Utf8(None), text_value))
            },
        ),
        (
            FUNCTIONS[2],
            |fields| of(fields, jsonb_field("", DataType::Utf8)),
            |row| {
                let first = found(row)?.and_then(|it| it.into_iter().next());
                Ok(first.map_or(ScalarValue::Utf8(None), text_value))
            },
        ),
    ];
    ALL.iter().map(|(name, returns, body)| function(name, *returns, *body)).collect()
}

fn of(fields: &[FieldRef], result: Field) -> Result<Field, String> {
    match fields {
        [one, path] if is_text(one) && is_text(path) => Ok(result),
        _ => Err(String::new()),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Member(String),
    Members,
    Element(usize),
    Elements,
}

/// Rejects a path that is not supported, or invalid.
pub(super) fn check(path: &str) -> Result<(), SqlError> {
    steps(path).map(drop).ok_or_else(|| {
        refused("a jsonpath other than of names, [n], [*] and .*")
            .with_hint("Use the operators -> and ->>, and jsonb_array_elements.")
    })
}

fn steps(path: &str) -> Option<Vec<Step>> {
    let path = path.trim();
    let mut rest = path.strip_prefix("lax ").unwrap_or(path).trim_start().strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let (step, behind) = if let Some(behind) = rest.strip_prefix("[*]") {
            (Step::Elements, behind)
        } else if let Some(behind) = rest.strip_prefix(".*") {
            // `**` is another accessor.
            (Step::Members, behind.strip_prefix('*').is_none().then_some(behind)?)
        } else if let Some(behind) = rest.strip_prefix(".\"") {
            let (name, behind) = behind.split_once('"')?;
            (Step::Member((!name.contains('\\')).then(|| name.to_owned())?), behind)
        } else if let Some(behind) = rest.strip_prefix('.') {
            let is_letter = |it: char| it.is_ascii_alphanumeric() || it == '_';
            let end = behind.find(|it| !is_letter(it)).unwrap_or(behind.len());
            let (name, behind) = behind.split_at(end);
            let is_name = name.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_');
            (Step::Member(is_name.then(|| name.to_owned())?), behind)
        } else {
            let (index, behind) = rest.strip_prefix('[')?.split_once(']')?;
            let is_index = index.bytes().all(|it| it.is_ascii_digit());
            (Step::Element(is_index.then(|| index.parse::<u16>().ok())??.into()), behind)
        };
        steps.push(step);
        rest = behind;
    }
    Some(steps)
}

/// Returns the values at a path, or `None` if an argument is NULL or no JSON.
fn found(row: &Row<'_>) -> Result<Option<Vec<String>>, SqlError> {
    let (Some(json), Some(path)) = (row.text(0).and_then(valid), row.text(1)) else {
        return Ok(None);
    };
    check(path)?;
    let mut values = vec![json];
    for step in steps(path).into_iter().flatten() {
        let mut next = Vec::new();
        for value in values {
            step.follow(value, &mut next)?;
        }
        values = next;
    }
    values.into_iter().map(written).collect::<Result<_, _>>().map(Some)
}

impl Step {
    fn follow<'a>(&self, value: &'a str, found: &mut Vec<&'a str>) -> Result<(), SqlError> {
        match (self, kind(value)) {
            (Self::Member(_) | Self::Members, "array") => {
                for element in elements(value).filter(|it| kind(it) == "object") {
                    self.follow(element, found)?;
                }
            }
            (Self::Member(_) | Self::Members, "object") => {
                let members = sorted_members(value)?.into_iter();
                let is_it = |name: &String| match self {
                    Self::Member(wanted) => name == wanted,
                    _ => true,
                };
                found.extend(members.filter(|(name, _)| is_it(name)).map(|(_, value)| value));
            }
            (Self::Member(_) | Self::Members, _) => {}
            (Self::Element(index), "array") => found.extend(elements(value).nth(*index)),
            (Self::Elements, "array") => found.extend(elements(value)),
            (Self::Element(0) | Self::Elements, _) => found.push(value),
            (Self::Element(_), _) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_paths_are_refused() {
        for path in ["$", "lax $.a", " $.a_1.\"b c\"[0][*].*"] {
            check(path).expect(path);
        }
        for path in [
            "",
            "a",
            "$.",
            "$.1",
            "$a",
            "$..a",
            "$.**",
            "$.a[-1]",
            "$[last]",
            "$[0 to 1]",
            "$[0,1]",
            "$.a.type()",
            "$.a ? (@ > 1)",
            "$.\"a\\n\"",
            "strict $.a",
            "$.a + 1",
            "$[99999]",
        ] {
            check(path).expect_err(path);
        }
    }
}
