//! Expressions marked as JSON for the engine, and texts converted to JSON.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, StringViewArray};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};

use super::json_text::valid;
use super::jsonb::check;
use super::own::texts;
use crate::error::SqlError;
use crate::wire::json_field;

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

/// Function that returns its text, with the metadata of JSON.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SameJson {
    invalid: Invalid,
    signature: Signature,
}

fn called(of: Expr, invalid: Invalid) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    let function = ScalarUDF::new_from_impl(SameJson { invalid, signature });
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), vec![of]))
}

/// Marks an expression that returns JSON.
pub(super) fn same_json(of: Expr) -> Expr {
    called(of, Invalid::Absent)
}

/// Marks an untyped parameter used with JSON. Invalid values fail.
pub(super) fn parameter_as_json(of: Expr) -> Expr {
    called(of, Invalid::Error)
}

/// Marks a text column as JSON, with the semantics of `->`: invalid values are NULL.
pub(super) fn column_as_json(of: Expr) -> Expr {
    called(of, Invalid::Null)
}

/// Returns the names of parameters used with JSON, such as `$1`.
pub(crate) fn json_parameters(plan: &LogicalPlan) -> Result<HashSet<String>> {
    let mut names = HashSet::new();
    plan.apply_with_subqueries(|plan| {
        plan.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::ScalarFunction(call) = expr
                    && call.func.name() == CHECKED
                    && let [Expr::Placeholder(it)] = call.args.as_slice()
                {
                    names.insert(it.id.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(names)
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
        Ok(Arc::new(json_field(self.name(), DataType::Utf8View)))
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
        if self.invalid == Invalid::Error {
            texts.iter().flatten().try_for_each(check).map_err(SqlError::into_engine)?;
        }
        let kept = texts.iter().map(|it| it.filter(|it| valid(it).is_some()));
        let kept: ArrayRef = Arc::new(kept.collect::<StringViewArray>());
        Ok(match is_scalar && !kept.is_empty() {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&kept, 0)?),
            false => ColumnarValue::Array(kept),
        })
    }
}
