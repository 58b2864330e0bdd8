//! Functions evaluated row by row, with a limit on the size of their results.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::new_empty_array;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility,
};

use super::refusal::refused;
use crate::error::{SqlError, SqlState};
use crate::wire::{PgType, output_texts};

/// Maximum bytes of the results of one call for a batch of rows.
pub(super) const RESULT_BYTES_MAX: usize = 32 << 20;

/// Arguments of a function in one row, and their fields.
pub(super) struct Row<'a> {
    pub(super) values: &'a [ScalarValue],
    pub(super) fields: &'a [FieldRef],
}

impl Row<'_> {
    /// Returns an argument in its text output format. `None` is NULL.
    pub(super) fn output(&self, index: usize) -> Result<Option<String>> {
        let Some(value) = self.values.get(index).filter(|it| !it.is_null()) else {
            return Ok(None);
        };
        match value.try_as_str() {
            Some(text) => Ok(text.map(str::to_owned)),
            None => {
                let texts = output_texts(&value.to_array()?)?;
                let text = ScalarValue::try_from_array(&texts, 0)?;
                Ok(text.try_as_str().flatten().map(str::to_owned))
            }
        }
    }

    pub(super) fn text(&self, index: usize) -> Option<&str> {
        self.values.get(index)?.try_as_str().flatten()
    }
}

pub(super) type Body = fn(&Row<'_>) -> Result<ScalarValue, SqlError>;

/// Result type by argument types. On error, the text is empty if no such function exists in
/// PostgreSQL, and otherwise names the unsupported construct.
pub(super) type Returns = fn(&[FieldRef]) -> Result<Field, String>;

#[derive(Debug)]
pub(super) struct ByRow {
    name: &'static str,
    returns: Returns,
    body: Body,
    signature: Signature,
}

/// Creates a function.
pub(super) fn function(name: &'static str, returns: Returns, body: Body) -> Arc<ScalarUDF> {
    let any = vec![TypeSignature::Nullary, TypeSignature::VariadicAny];
    let signature = Signature::one_of(any, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(ByRow { name, returns, body, signature }))
}

impl PartialEq for ByRow {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for ByRow {}

impl Hash for ByRow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for ByRow {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let fields = types.iter().map(|it| Arc::new(Field::new("", it.clone(), true)));
        let field = self.field(&fields.collect::<Vec<_>>())?;
        Ok(field.data_type().clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.field(args.arg_fields).map(Arc::new)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut made = 0_usize;
        let returns = args.return_type().clone();
        let call = |values: &[ScalarValue]| {
            let row = Row { values, fields: &args.arg_fields };
            let value = (self.body)(&row).map_err(SqlError::into_engine)?.cast_to(&returns)?;
            made = made.saturating_add(value.size());
            match made > RESULT_BYTES_MAX {
                true => Err(too_much(self.name).into_engine()),
                false => Ok(value),
            }
        };
        each_row(&args, &returns, call)
    }
}

/// Evaluates `call` for each row. Returns a scalar if all arguments are scalars.
pub(in crate::engine) fn each_row(
    args: &ScalarFunctionArgs,
    returns: &DataType,
    mut call: impl FnMut(&[ScalarValue]) -> Result<ScalarValue>,
) -> Result<ColumnarValue> {
    let scalars: Option<Vec<_>> = args
        .args
        .iter()
        .map(|it| match it {
            ColumnarValue::Scalar(value) => Some(value.clone()),
            ColumnarValue::Array(_) => None,
        })
        .collect();
    if let Some(values) = scalars {
        return Ok(ColumnarValue::Scalar(call(&values)?));
    }
    let columns = ColumnarValue::values_to_arrays(&args.args)?;
    let rows = (0..args.number_rows).map(|row| {
        let values = columns.iter().map(|column| ScalarValue::try_from_array(column, row));
        call(&values.collect::<Result<Vec<_>>>()?)
    });
    let rows: Vec<_> = rows.collect::<Result<_>>()?;
    Ok(ColumnarValue::Array(match rows.is_empty() {
        true => new_empty_array(returns),
        false => ScalarValue::iter_to_array(rows)?,
    }))
}

impl ByRow {
    fn field(&self, arguments: &[FieldRef]) -> Result<Field> {
        let field = (self.returns)(arguments).map_err(|what| {
            let error = match what.is_empty() {
                false => refused(&what),
                true => {
                    let types = arguments.iter().map(|it| PgType::of(it).name());
                    let types = types.collect::<Vec<_>>().join(", ");
                    let what = format!("function {}({types}) does not exist", self.name);
                    SqlError::new(SqlState::UNDEFINED_FUNCTION, what)
                }
            };
            error.into_engine()
        })?;
        Ok(field.with_name(self.name))
    }
}

/// Error: the result is too large.
pub(super) fn too_much(name: &str) -> SqlError {
    let what =
        format!("result of {name} exceeds {} MiB for a batch of rows", RESULT_BYTES_MAX >> 20);
    SqlError::new(SqlState::TOO_LARGE, what)
}

/// Returns whether an argument is a text or an untyped NULL.
pub(super) fn is_text(field: &FieldRef) -> bool {
    field.data_type().is_string() || field.data_type().is_null()
}

pub(super) fn text_field() -> Field {
    Field::new("", DataType::Utf8, true)
}

pub(super) fn text_value(text: impl Into<String>) -> ScalarValue {
    ScalarValue::Utf8(Some(text.into()))
}
