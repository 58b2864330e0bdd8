//! Expressions marked as JSON for the engine, and texts converted to JSON.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, StringViewArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};

use super::json_text::valid;
use super::jsonb::{canonical, check};
use super::own::texts;
use crate::error::{SqlError, SqlState};
use crate::wire::{PgType, json_field, jsonb_field};

/// Name of the marker function.
const CHECKED: &str = "checked_json";

/// Handling of invalid JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Invalid {
    /// The input is always valid.
    Absent,
    Null,
    Error,
}

/// The two types of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum JsonType {
    Json,
    Jsonb,
}

impl JsonType {
    /// Returns the JSON type of a field, if it has one.
    pub(super) fn of(field: &Field) -> Option<Self> {
        match PgType::of(field) {
            PgType::JSON => Some(Self::Json),
            PgType::JSONB => Some(Self::Jsonb),
            _ => None,
        }
    }

    fn pg_type(self) -> PgType {
        match self {
            Self::Json => PgType::JSON,
            Self::Jsonb => PgType::JSONB,
        }
    }

    pub(super) fn name(self) -> &'static str {
        self.pg_type().name()
    }

    pub(super) fn field(self, name: &str, data_type: DataType) -> Field {
        match self {
            Self::Json => json_field(name, data_type),
            Self::Jsonb => jsonb_field(name, data_type),
        }
    }

    /// Converts JSON text to the form of this type. Fails if it is invalid.
    pub(super) fn written(self, text: &str) -> Result<String, SqlError> {
        match self {
            Self::Json => check(text).map(|()| text.to_owned()),
            Self::Jsonb => canonical(text),
        }
    }
}

/// Function that marks a text as JSON for the engine.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SameJson {
    invalid: Invalid,
    json: JsonType,
    signature: Signature,
}

fn called(of: Expr, invalid: Invalid, json: JsonType) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    let function = ScalarUDF::new_from_impl(SameJson { invalid, json, signature });
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), vec![of]))
}

/// Marks an expression whose result is always JSON.
pub(super) fn same_json(of: Expr, json: JsonType) -> Expr {
    called(of, Invalid::Absent, json)
}

/// Marks an untyped parameter as JSON. Invalid values are errors.
pub(super) fn parameter_as_json(of: Expr, json: JsonType) -> Expr {
    called(of, Invalid::Error, json)
}

/// Reads a column of texts as JSON, as `->` does: invalid texts become NULL.
pub(super) fn column_as_json(of: Expr, json: JsonType) -> Expr {
    called(of, Invalid::Null, json)
}

/// Returns the names of parameters used with JSON, such as `$1`, and their types.
pub(crate) fn json_parameters(plan: &LogicalPlan) -> Result<BTreeMap<String, PgType>> {
    let mut names = BTreeMap::new();
    plan.apply_with_subqueries(|plan| {
        plan.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::ScalarFunction(call) = expr
                    && let Some(SameJson { invalid: Invalid::Error, json, .. }) =
                        of_function(&call.func)
                    && let [Expr::Placeholder(it)] = call.args.as_slice()
                {
                    names.insert(it.id.clone(), json.pg_type());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(names)
}

fn of_function(function: &ScalarUDF) -> Option<&SameJson> {
    let inner: &dyn Any = function.inner().as_ref();
    inner.downcast_ref()
}

impl SameJson {
    /// Converts a text to JSON, or to NULL if it is invalid and [`Invalid::Null`] is set.
    fn kept(&self, text: &str) -> Result<Option<String>, SqlError> {
        if self.invalid == Invalid::Null && valid(text).is_none() {
            return Ok(None);
        }
        match self.json.written(text) {
            Ok(text) => Ok(Some(text)),
            // One invalid record must not fail a query of all.
            Err(error)
                if self.invalid == Invalid::Null && error.state != SqlState::NOT_SUPPORTED =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl ScalarUDFImpl for SameJson {
    fn name(&self) -> &str {
        match self.invalid {
            Invalid::Absent => "same_json",
            Invalid::Null => "json_or_null",
            Invalid::Error => CHECKED,
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::new(self.json.field(self.name(), DataType::Utf8View)))
    }

    /// The engine's default has no data type, so nothing can be computed from it.
    fn evaluate_bounds(&self, _: &[&Interval]) -> Result<Interval> {
        Interval::make_unbounded(&DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let given = args.args[0].cast_to(&DataType::Utf8View, None)?;
        if self.invalid == Invalid::Absent {
            return Ok(given);
        }
        let is_scalar = matches!(given, ColumnarValue::Scalar(_));
        let texts = texts(&given.into_array(args.number_rows)?).map_err(SqlError::into_engine)?;
        let kept = texts.iter().map(|it| it.map_or(Ok(None), |it| self.kept(it)));
        let kept = kept.collect::<Result<StringViewArray, SqlError>>();
        let kept: ArrayRef = Arc::new(kept.map_err(SqlError::into_engine)?);
        Ok(match is_scalar && !kept.is_empty() {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&kept, 0)?),
            false => ColumnarValue::Array(kept),
        })
    }
}
