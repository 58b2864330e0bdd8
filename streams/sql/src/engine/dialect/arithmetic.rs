//! Arithmetic that fails where PostgreSQL's does: integers that are out of range, and floats that
//! are divided by zero.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Datum};
use datafusion::arrow::compute::kernels::numeric;
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion::physical_expr_common::datum::apply;
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::extract::extract;
use crate::error::{SqlError, SqlState};

/// Turns operators on integers and floats into calls of functions that look for such errors.
#[derive(Debug)]
pub(in crate::engine) struct Operators;

impl ExprPlanner for Operators {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let operator = match expr.op {
            BinaryOperator::Plus => Operator::Plus,
            BinaryOperator::Minus => Operator::Minus,
            BinaryOperator::Multiply => Operator::Multiply,
            BinaryOperator::Divide => Operator::Divide,
            BinaryOperator::Modulo => Operator::Modulo,
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let is_counted =
            |it: &Expr| it.get_type(schema).is_ok_and(|it| it.is_integer() || it.is_floating());
        if !(is_counted(&expr.left) && is_counted(&expr.right)) {
            return Ok(PlannerResult::Original(expr));
        }
        let signature = Signature::user_defined(Volatility::Immutable);
        let function = Arc::new(ScalarUDF::new_from_impl(Arithmetic { operator, signature }));
        let call = ScalarFunction::new_udf(function, vec![expr.left, expr.right]);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }

    fn plan_extract(&self, arguments: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(extract(arguments))
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Arithmetic {
    operator: Operator,
    signature: Signature,
}

impl Arithmetic {
    fn written(&self, arguments: &[Expr]) -> String {
        let texts: Vec<_> = arguments.iter().map(|it| it.schema_name().to_string()).collect();
        texts.join(&format!(" {} ", self.operator))
    }
}

impl ScalarUDFImpl for Arithmetic {
    fn name(&self) -> &str {
        match self.operator {
            Operator::Plus => "plus",
            Operator::Minus => "minus",
            Operator::Multiply => "times",
            Operator::Divide => "divided_by",
            _ => "modulo",
        }
    }

    fn display_name(&self, arguments: &[Expr]) -> Result<String> {
        Ok(self.written(arguments))
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        Ok(self.written(arguments))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let (left, right) =
            BinaryTypeCoercer::new(&types[0], &self.operator, &types[1]).get_input_types()?;
        Ok(vec![left, right])
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        BinaryTypeCoercer::new(&types[0], &self.operator, &types[1]).get_result_type()
    }

    /// The engine's default is of no type, which nothing can be computed with.
    fn evaluate_bounds(&self, operands: &[&Interval]) -> Result<Interval> {
        let types: Vec<_> = operands.iter().map(|it| it.data_type()).collect();
        Interval::make_unbounded(&self.return_type(&types)?)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = args.args.as_slice() else {
            unreachable!("an operator has two operands");
        };
        let is_float = args.return_type().is_floating();
        let found = match self.operator {
            Operator::Plus => apply(left, right, checked(numeric::add, is_float)),
            Operator::Minus => apply(left, right, checked(numeric::sub, is_float)),
            Operator::Multiply => apply(left, right, checked(numeric::mul, is_float)),
            Operator::Divide => apply(left, right, checked(divide, is_float)),
            _ => apply(left, right, checked(numeric::rem, is_float)),
        };
        found.map_err(|error| match &error.find_root() {
            datafusion::common::DataFusionError::ArrowError(arrow, _)
                if matches!(**arrow, ArrowError::ArithmeticOverflow(_)) =>
            {
                out_of_range(args.return_type()).into_engine()
            }
            _ => error,
        })
    }
}

fn divide(left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef, ArrowError> {
    let (divisors, _) = right.get();
    let has_zero = match divisors.data_type() {
        DataType::Float64 => {
            divisors.as_primitive::<Float64Type>().iter().any(|it| it == Some(0.0))
        }
        DataType::Float32 => {
            divisors.as_primitive::<Float32Type>().iter().any(|it| it == Some(0.0))
        }
        _ => false,
    };
    if has_zero {
        return Err(ArrowError::DivideByZero);
    }
    numeric::div(left, right)
}

/// The same operation; of finite floats the result must be finite too.
fn checked(
    operation: impl Fn(&dyn Datum, &dyn Datum) -> Result<ArrayRef, ArrowError>,
    is_float: bool,
) -> impl Fn(&dyn Datum, &dyn Datum) -> Result<ArrayRef, ArrowError> {
    move |left, right| {
        let found = operation(left, right)?;
        let is_over = is_float
            && has_infinity(&*found)
            && !has_infinity(left.get().0)
            && !has_infinity(right.get().0);
        match is_over {
            true => Err(ArrowError::ArithmeticOverflow("of floats".to_owned())),
            false => Ok(found),
        }
    }
}

fn has_infinity(array: &dyn Array) -> bool {
    match array.data_type() {
        DataType::Float64 => {
            array.as_primitive::<Float64Type>().iter().flatten().any(f64::is_infinite)
        }
        DataType::Float32 => {
            array.as_primitive::<Float32Type>().iter().flatten().any(f32::is_infinite)
        }
        _ => false,
    }
}

fn out_of_range(data_type: &DataType) -> SqlError {
    let what = match data_type {
        DataType::Int16 => "smallint out of range",
        DataType::Int32 => "integer out of range",
        DataType::Float32 | DataType::Float64 => "value out of range: overflow",
        _ => "bigint out of range",
    };
    SqlError::new(SqlState::OUT_OF_RANGE, what)
}
