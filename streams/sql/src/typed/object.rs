//! Conversion of rows of typed tables to JSON objects.

use std::fmt;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use live_queries::{Step, Type};

use super::assigned::Assigned;
use super::table::TypedColumn;
use crate::error::{SqlError, SqlState};

/// Value of a column: as JSON, and as the text that `->>` returns for it.
pub(crate) struct Field {
    pub(crate) json: String,
    pub(crate) text: String,
}

/// A JSON object whose members keep their insertion order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Object(Vec<(String, Member)>);

#[derive(Clone, Debug)]
enum Member {
    Json(String),
    Object(Object),
}

impl Object {
    /// Sets the value at the end of a path of names. Within a table, no path is a prefix of
    /// another.
    pub(crate) fn put(&mut self, path: &[Step], json: String) {
        let Some((Step::Key(name), rest)) = path.split_first() else { return };
        let known = self.0.iter().position(|it| it.0 == *name);
        if rest.is_empty() {
            return self.0.push((name.clone(), Member::Json(json)));
        }
        let index = known.unwrap_or_else(|| {
            self.0.push((name.clone(), Member::Object(Self::default())));
            self.0.len() - 1
        });
        if let Member::Object(inner) = &mut self.0[index].1 {
            inner.put(rest, json);
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (index, (name, member)) in self.0.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{}: ", quoted(name))?;
            match member {
                Member::Json(text) => f.write_str(text)?,
                Member::Object(inner) => inner.fmt(f)?,
            }
        }
        f.write_str("}")
    }
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("texts are JSON")
}

impl TypedColumn {
    /// Converts the values of a column of the source query. `None` is NULL.
    pub(crate) fn fields(&self, array: &ArrayRef) -> Result<Vec<Option<Field>>, SqlError> {
        let invalid = |why: String| {
            let what = format!("invalid value for column {:?}: {why}", self.name);
            SqlError::new(SqlState::INVALID_TEXT, what)
        };
        let array = Assigned { name: &self.name, data_type: self.data_type }.of(array)?;
        if let Some(numbers) = array.as_primitive_opt::<Float64Type>()
            && let Some(number) = numbers.iter().flatten().find(|it| !it.is_finite())
        {
            return Err(invalid(format!("{number} cannot be represented in JSON")));
        }
        let texts = cast(&array, &DataType::Utf8View).map_err(|it| invalid(it.to_string()))?;
        let texts = texts.as_string_view();
        let fields = (0..texts.len()).map(|row| {
            if texts.is_null(row) {
                return Ok(None);
            }
            let text = texts.value(row).to_owned();
            let json = match self.data_type {
                Type::Text | Type::Timestamptz => quoted(&text),
                Type::Numeric if serde_json::from_str::<serde_json::Number>(&text).is_err() => {
                    return Err(invalid(format!("{text:?} is not a number")));
                }
                // Includes numbers given as text.
                _ => match serde_json::from_str::<serde::de::IgnoredAny>(&text) {
                    Ok(_) => text.clone(),
                    Err(error) => {
                        return Err(invalid(format!("{text:?} is not valid JSON: {error}")));
                    }
                },
            };
            Ok(Some(Field { json, text }))
        });
        fields.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{Float64Array, StringArray};

    use super::*;

    fn column(data_type: Type) -> TypedColumn {
        TypedColumn { name: "c".to_owned(), path: Vec::new(), data_type, is_jsonb: false }
    }

    fn json(data_type: Type, array: ArrayRef) -> Result<Vec<Option<String>>, SqlError> {
        let fields = column(data_type).fields(&array)?;
        Ok(fields.into_iter().map(|it| it.map(|field| field.json)).collect())
    }

    #[test]
    fn members_lie_where_their_paths_lead() {
        let step = |name: &str| Step::Key(name.to_owned());
        let mut object = Object::default();
        object.put(&[step("a\"b")], "1".to_owned());
        object.put(&[step("q"), step("bid")], "2.5".to_owned());
        object.put(&[step("q"), step("ask")], "null".to_owned());
        assert_eq!(object.to_string(), r#"{"a\"b": 1, "q": {"bid": 2.5, "ask": null}}"#);
        assert_eq!(Object::default().to_string(), "{}");
    }

    #[test]
    fn values_become_json_of_their_types() {
        let texts = |text: &str| Arc::new(StringArray::from(vec![Some(text), None])) as ArrayRef;
        for (data_type, text, expected) in [
            (Type::Text, "it is \"so\"", r#""it is \"so\"""#),
            (Type::Int8, "12", "12"),
            (Type::Bool, "true", "true"),
            (Type::Json, r#"{"a": [1]}"#, r#"{"a": [1]}"#),
            (Type::Numeric, "12.50", "12.50"),
        ] {
            let found = json(data_type, texts(text)).expect("a good value");
            assert_eq!(found, [Some(expected.to_owned()), None], "{text}");
        }
        json(Type::Int8, texts("x")).expect_err("no number");
        json(Type::Json, texts("{")).expect_err("no JSON");
        json(Type::Numeric, texts("x")).expect_err("no number");
        json(Type::Float8, Arc::new(Float64Array::from(vec![f64::NAN]))).expect_err("no JSON");
    }
}
