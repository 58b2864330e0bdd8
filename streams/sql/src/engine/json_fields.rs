//! Fields of JSON values, extracted while records are read, in a single pass per record.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, StringViewBuilder};
use datafusion::common::ScalarValue;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use live_queries::{Fields, PathId, Paths, Step, scalar_text};

use super::json::{Wanted, wanted_of};

/// Maximum length of a path that is extracted.
const STEPS_MAX: usize = 16;

/// A path to extract from each record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonField {
    steps: Vec<Step>,
    wanted: Wanted,
}

impl JsonField {
    /// Returns the column and field of a lookup with a constant path, or `None` for other
    /// expressions.
    pub(crate) fn of(expr: &dyn PhysicalExpr) -> Option<(usize, Self)> {
        let call = expr.downcast_ref::<ScalarFunctionExpr>()?;
        let wanted = wanted_of(call.fun())?;
        let (input, path) = call.args().split_first()?;
        let input = input.downcast_ref::<Column>()?.index();
        // The presence operator also matches strings in arrays, which this pass does not search.
        if path.is_empty() || path.len() > STEPS_MAX || wanted == Wanted::Presence {
            return None;
        }
        let steps = path.iter().map(|it| step_of(it.downcast_ref::<Literal>()?.value()));
        Some((input, Self { steps: steps.collect::<Option<_>>()?, wanted }))
    }
}

fn step_of(value: &ScalarValue) -> Option<Step> {
    match value {
        ScalarValue::Utf8(Some(name)) | ScalarValue::Utf8View(Some(name)) => {
            Some(Step::Key(name.clone()))
        }
        // Negative indexes are left to the engine.
        ScalarValue::Int32(Some(index)) => u32::try_from(*index).ok().map(Step::Index),
        ScalarValue::Int64(Some(index)) => u32::try_from(*index).ok().map(Step::Index),
        _ => None,
    }
}

impl std::fmt::Display for JsonField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.wanted {
            Wanted::Json => "value#>{",
            Wanted::Text => "value#>>{",
            Wanted::Presence => "value?{",
        })?;
        for (index, step) in self.steps.iter().enumerate() {
            f.write_str(if index > 0 { "," } else { "" })?;
            match step {
                Step::Key(name) => f.write_str(name)?,
                Step::Index(index) => write!(f, "{index}")?,
            }
        }
        f.write_str("}")
    }
}

/// Fields that a scan extracts from values.
#[derive(Debug, Default)]
pub(crate) struct JsonFields {
    fields: Vec<JsonField>,
    paths: Paths,
    ids: Vec<PathId>,
}

impl JsonFields {
    /// Returns `None` if there are too many fields.
    pub(crate) fn new(fields: Vec<JsonField>) -> Option<Self> {
        let mut paths = Paths::new();
        let ids = fields.iter().map(|it| paths.take(&it.steps)).collect::<Option<_>>()?;
        Some(Self { fields, paths, ids })
    }

    pub(crate) fn all(&self) -> &[JsonField] {
        &self.fields
    }
}

/// Columns of extracted fields for a batch.
pub(super) struct FieldColumns {
    builders: Vec<StringViewBuilder>,
    found: Fields,
}

impl FieldColumns {
    pub(super) fn new(fields: &JsonFields) -> Self {
        let builders = fields.fields.iter().map(|_| StringViewBuilder::new()).collect();
        Self { builders, found: Fields::default() }
    }

    /// Adds the fields of a record's value. Returns the bytes that the columns store, or `None` if
    /// the value is not UTF-8.
    pub(super) fn add(&mut self, fields: &JsonFields, value: Option<&[u8]>) -> Option<usize> {
        let text = value.and_then(|it| fields.paths.read(it, &mut self.found));
        if text.is_none() && value.is_some_and(|it| std::str::from_utf8(it).is_err()) {
            return None;
        }
        let mut bytes = 0;
        for ((builder, field), id) in self.builders.iter_mut().zip(&fields.fields).zip(&fields.ids)
        {
            let found = text.and_then(|text| self.found.get(*id, text));
            if field.wanted == Wanted::Text {
                // An invalid string becomes NULL: one record must not fail the whole query.
                let text = found.and_then(|it| scalar_text(it).ok().flatten());
                bytes += text.as_ref().map_or(0, |it| it.len());
                builder.append_option(text);
            } else {
                bytes += found.map_or(0, str::len);
                builder.append_option(found);
            }
        }
        Some(bytes)
    }

    pub(super) fn finish(&mut self, field: usize) -> ArrayRef {
        Arc::new(self.builders[field].finish())
    }
}
