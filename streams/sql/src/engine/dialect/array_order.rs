//! Order of arrays as in PostgreSQL: NULL elements are equal to each other and greater than all
//! others. The engine takes them for the smallest.

use std::cmp::Ordering;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Array, make_comparator};
use datafusion::arrow::compute::{SortOptions, cast};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, ScalarUDF, lit};

use super::own::{Own, no_operator, of_arrow};
use super::refusal::refused;
use crate::error::SqlError;

static ORDER: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| Own::udf("array_order", 2, |_| Some(DataType::Int32), order));

/// Functions that compare arrays by the engine's order.
const COMPARING: &[&str] = &["greatest", "least"];

/// Rewrites a comparison of arrays.
pub(super) fn compared(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let element = |it: &Expr| element_of(&it.get_type(schema).ok()?);
    match expr {
        Expr::BinaryExpr(it) if is_order(it.op) => {
            let (Some(left), Some(right)) = (element(&it.left), element(&it.right)) else {
                return Ok(Transformed::no(Expr::BinaryExpr(it)));
            };
            check(&left, &right, it.op)?;
            let order = ORDER.call(vec![*it.left, *it.right]);
            let compared = BinaryExpr::new(Box::new(order), it.op, Box::new(lit(0_i32)));
            Ok(Transformed::yes(Expr::BinaryExpr(compared)))
        }
        Expr::Between(it) if element(&it.expr).is_some() => {
            Err(refused("BETWEEN of arrays").with_hint("Write >= and <=.").into_engine())
        }
        Expr::ScalarFunction(call)
            if COMPARING.contains(&call.func.name())
                && call.args.iter().any(|it| element(it).is_some()) =>
        {
            Err(refused(&format!("{} of arrays", call.func.name())).into_engine())
        }
        other => Ok(Transformed::no(other)),
    }
}

fn is_order(op: Operator) -> bool {
    matches!(op, Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq)
}

fn element_of(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::List(element) => Some(element.data_type().clone()),
        _ => None,
    }
}

fn check(left: &DataType, right: &DataType, op: Operator) -> Result<()> {
    match (left, right) {
        _ if !are_same(left, right) => Err(no_operator(&op).into_engine()),
        (DataType::Interval(_) | DataType::List(_) | DataType::Float32 | DataType::Float64, _)
        | (_, DataType::List(_)) => Err(refused("the order of arrays of this type").into_engine()),
        _ => Ok(()),
    }
}

/// Returns whether arrays of these elements have the same type in PostgreSQL, which compares no
/// others.
pub(super) fn are_same(left: &DataType, right: &DataType) -> bool {
    let is_kind = |asks: fn(&DataType) -> bool| asks(left) && asks(right);
    match (left, right) {
        (DataType::List(element), other) | (other, DataType::List(element)) => {
            are_same(element.data_type(), other)
        }
        (DataType::Timestamp(_, one), DataType::Timestamp(_, other)) => {
            one.is_some() == other.is_some()
        }
        _ => {
            left == right
                || left.is_null()
                || right.is_null()
                || is_kind(DataType::is_string)
                || is_kind(DataType::is_decimal)
        }
    }
}

fn order(arrays: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let (left, right) = (&arrays[0], &arrays[1]);
    let right = cast(right, left.data_type()).map_err(of_arrow)?;
    let options = SortOptions { descending: false, nulls_first: false };
    let compare = make_comparator(left.as_list::<i32>(), right.as_list::<i32>(), options);
    let compare = compare.map_err(of_arrow)?;
    let order = |row: usize| match compare(row, row) {
        _ if left.is_null(row) || right.is_null(row) => None,
        Ordering::Less => Some(-1),
        Ordering::Equal => Some(0),
        Ordering::Greater => Some(1),
    };
    Ok(Arc::new((0..left.len()).map(order).collect::<Int32Array>()))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::ListArray;
    use datafusion::arrow::datatypes::Int32Type;

    use super::*;

    #[test]
    fn null_elements_are_the_greatest() {
        let list = |elements: Vec<Option<i32>>| -> ArrayRef {
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([Some(elements)]))
        };
        for (left, right, expected) in [
            (vec![None], vec![Some(5)], 1),
            (vec![Some(5)], vec![None], -1),
            (vec![None], vec![None], 0),
            (vec![Some(1)], vec![Some(1), None], -1),
            (vec![], vec![None], -1),
        ] {
            let found = order(&[list(left), list(right)]).expect("arrays");
            assert_eq!(found.as_primitive::<Int32Type>().value(0), expected);
        }
    }
}
