//! `= ANY (…)` of an array that is not an array constructor: an IN list, once the array is known.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Scalar, new_null_array};
use datafusion::arrow::compute::kernels::cmp::eq;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::expr::{InList, Placeholder};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility, lit,
};
use std::sync::Arc;

use super::own::sql_name;
use crate::error::{SqlError, SqlState};

pub(super) const NAME: &str = "equals_any";

/// Maximum number of elements of the array.
const ELEMENT_COUNT_MAX: usize = 20_000;

#[derive(Debug, PartialEq, Eq, Hash)]
struct EqualsAny {
    signature: Signature,
}

pub(super) fn function() -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(EqualsAny { signature }))
}

/// Types an untyped array parameter by the operand that it is compared with.
pub(in crate::engine) fn with_array_parameters(plan: LogicalPlan) -> Result<LogicalPlan> {
    let changed = plan.transform_up_with_subqueries(|plan| {
        let schema = merge_schema(&plan.inputs());
        plan.map_expressions(|expr| expr.transform_up(|expr| typed(expr, &schema)))
    });
    Ok(changed?.data)
}

fn typed(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::ScalarFunction(call) = &mut expr else { return Ok(Transformed::no(expr)) };
    let ([left, Expr::Placeholder(Placeholder { field: field @ None, .. })], NAME) =
        (call.args.as_mut_slice(), call.func.name())
    else {
        return Ok(Transformed::no(expr));
    };
    let element = match left.get_type(schema) {
        Ok(DataType::Utf8View | DataType::LargeUtf8 | DataType::Null) | Err(_) => DataType::Utf8,
        Ok(other) => other,
    };
    *field = Some(Arc::new(Field::new("", list_of(&element), true)));
    Ok(Transformed::yes(expr))
}

fn list_of(element: &DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(element.clone(), true)))
}

impl ScalarUDFImpl for EqualsAny {
    fn name(&self) -> &'static str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let element = match &types[1] {
            DataType::List(of) | DataType::LargeList(of) => of.data_type(),
            // The type is not known yet.
            DataType::Null => return Ok(types.to_vec()),
            other => {
                let of = sql_name(other);
                let what = format!("op ANY/ALL (array) requires array on right side, not {of}");
                return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, what).into_engine());
            }
        };
        // The type of a parameter is not known yet.
        let is_apart = types[0].is_string() != element.is_string() && !types[0].is_null();
        match comparison_coercion(&types[0], element).filter(|_| !is_apart || element.is_null()) {
            Some(both) => Ok(vec![both.clone(), list_of(&both)]),
            None => {
                let (left, right) = (sql_name(&types[0]), sql_name(element));
                let what = format!("operator does not exist: {left} = {right}");
                Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, what).into_engine())
            }
        }
    }

    fn simplify(&self, mut args: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let Expr::Literal(list, _) = &args[1] else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        let null = || Expr::Literal(ScalarValue::Boolean(None), None);
        let ScalarValue::List(array) = list else {
            return Ok(match list.is_null() {
                true => ExprSimplifyResult::Simplified(null()),
                false => ExprSimplifyResult::Original(args),
            });
        };
        if list.is_null() {
            return Ok(ExprSimplifyResult::Simplified(null()));
        }
        let elements = array.value(0);
        if elements.len() > ELEMENT_COUNT_MAX {
            let what = format!("array in ANY exceeds the limit of {ELEMENT_COUNT_MAX} elements");
            return Err(SqlError::new(SqlState::TOO_COMPLEX, what).into_engine());
        }
        let all = (0..elements.len()).map(|row| ScalarValue::try_from_array(&elements, row));
        let all = all.collect::<Result<Vec<_>>>()?;
        let has_null = all.iter().any(ScalarValue::is_null);
        let list: Vec<_> = all.into_iter().filter(|it| !it.is_null()).map(lit).collect();
        let expr = Box::new(args.swap_remove(0));
        let found = match list.is_empty() {
            true => lit(false),
            false => Expr::InList(InList { expr, list, negated: false }),
        };
        Ok(ExprSimplifyResult::Simplified(if has_null { found.or(null()) } else { found }))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        make_scalar_function(of_rows, Vec::new())(&args.args)
    }
}

/// Compares the value of each row with the elements of its array.
fn of_rows(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let of = arrays[0].data_type();
    if of.is_floating() || of.is_nested() || matches!(of, DataType::Interval(_)) {
        let what = "ANY with an array of floats, intervals or arrays that depends on the row is \
                    not supported";
        return Err(SqlError::unsupported(what).into_engine());
    }
    let Some(lists) = arrays[1].as_list_opt::<i32>() else {
        return Ok(new_null_array(&DataType::Boolean, arrays[0].len()));
    };
    let found = (0..lists.len()).map(|row| {
        if lists.is_null(row) {
            return Ok(None);
        }
        let elements = lists.value(row);
        if elements.is_empty() {
            return Ok(Some(false));
        }
        if arrays[0].is_null(row) {
            return Ok(None);
        }
        let equal = eq(&Scalar::new(arrays[0].slice(row, 1)), &elements)?;
        Ok(match equal.true_count() > 0 {
            true => Some(true),
            false => (equal.null_count() == 0).then_some(false),
        })
    });
    Ok(Arc::new(found.collect::<Result<BooleanArray>>()?))
}
