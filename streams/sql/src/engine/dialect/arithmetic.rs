//! Arithmetic that fails where PostgreSQL's does: integers that are out of range, and floats that
//! are divided by zero.

use std::any::Any;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Datum};
use datafusion::arrow::compute::kernels::numeric;
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type, TimeUnit};
use datafusion::arrow::error::ArrowError;
use datafusion::common::utils::list_ndims;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::functions::utils::make_scalar_function;
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

use super::calls::{self, Call};
use super::conversions::{self, To};
use super::extract::extract;
use super::inexact::refused;
use super::quotients::{quotient_type, quotients};
use super::regex::Use;
use super::shifts::{Towards, shifted};
use crate::error::{SqlError, SqlState};
use crate::wire::PgType;

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
            BinaryOperator::PGRegexMatch
            | BinaryOperator::PGRegexIMatch
            | BinaryOperator::PGRegexNotMatch
            | BinaryOperator::PGRegexNotIMatch => {
                let pattern = calls::udf(Call::Pattern(Use::Test));
                let right =
                    Expr::ScalarFunction(ScalarFunction::new_udf(pattern, vec![expr.right]));
                return Ok(PlannerResult::Original(RawBinaryExpr { right, ..expr }));
            }
            BinaryOperator::StringConcat => return joined(expr, schema),
            BinaryOperator::PGBitwiseShiftLeft => {
                let shifted = shifted(expr.left, expr.right, Towards::Left);
                return Ok(PlannerResult::Planned(shifted));
            }
            BinaryOperator::PGBitwiseShiftRight => {
                let shifted = shifted(expr.left, expr.right, Towards::Right);
                return Ok(PlannerResult::Planned(shifted));
            }
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let (Ok(left), Ok(right)) = (expr.left.get_type(schema), expr.right.get_type(schema))
        else {
            return Ok(PlannerResult::Original(expr));
        };
        let mut expr = expr;
        if matches!(left, DataType::Date32) && matches!(right, DataType::Interval(_)) {
            expr.left =
                expr.left.cast_to(&DataType::Timestamp(TimeUnit::Microsecond, None), schema)?;
            return Ok(PlannerResult::Original(expr));
        }
        let is_counted = |it: &DataType| it.is_integer() || it.is_floating();
        let is_number = |it: &DataType| is_counted(it) || it.is_decimal();
        let both = is_number(&left) && is_number(&right);
        if both && (left.is_floating() || right.is_floating()) {
            // Floats of 32 bits are that among themselves alone.
            let is_mixed = left != right;
            let float = |it: Expr, of: &DataType| match of {
                of if of.is_decimal() => Ok(conversions::call(To::Float8, it)),
                DataType::Float32 if is_mixed => it.cast_to(&DataType::Float64, schema),
                _ => Ok(it),
            };
            expr.left = float(expr.left, &left)?;
            expr.right = float(expr.right, &right)?;
        } else if !(both
            && (operator == Operator::Divide || is_counted(&left) && is_counted(&right)))
        {
            return Ok(PlannerResult::Original(expr));
        }
        let signature = Signature::user_defined(Volatility::Immutable);
        let function = Arc::new(ScalarUDF::new_from_impl(Arithmetic { operator, signature }));
        let call = ScalarFunction::new_udf(function, vec![expr.left, expr.right]);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }

    fn plan_extract(&self, arguments: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        extract(arguments)
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Arithmetic {
    operator: Operator,
    signature: Signature,
}

/// Returns whether a function is an operator of these.
pub(super) fn is_arithmetic(function: &ScalarUDF) -> bool {
    let inner: &dyn Any = function.inner().as_ref();
    inner.is::<Arithmetic>()
}

impl Arithmetic {
    /// Whether it divides numerics.
    fn is_quotient(&self, types: &[DataType]) -> bool {
        self.operator == Operator::Divide
            && types.iter().any(DataType::is_decimal)
            && !types.iter().any(DataType::is_floating)
    }

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
        if self.is_quotient(types) {
            let operand = |it: &DataType| match it.is_integer() {
                true => DataType::Decimal128(20, 0),
                false => it.clone(),
            };
            return Ok(types.iter().map(operand).collect());
        }
        let (left, right) =
            BinaryTypeCoercer::new(&types[0], &self.operator, &types[1]).get_input_types()?;
        Ok(vec![left, right])
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        if self.is_quotient(types) {
            return Ok(quotient_type());
        }
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
        if *args.return_type() == quotient_type() {
            let compute = |arrays: &[ArrayRef]| quotients(&arrays[0], &arrays[1]);
            return make_scalar_function(compute, Vec::new())(&args.args);
        }
        let is_float = args.return_type().is_floating();
        let found = match self.operator {
            Operator::Plus => apply(left, right, checked(numeric::add, is_float)),
            Operator::Minus => apply(left, right, checked(numeric::sub, is_float)),
            Operator::Multiply => apply(left, right, checked(multiply, is_float)),
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

/// A product that is not lost: of two numbers it is zero where one of them is.
fn multiply(left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef, ArrowError> {
    let found = numeric::mul(left, right)?;
    if *found.data_type() == DataType::Float64 {
        let at = |it: &dyn Datum, row: usize| {
            let (array, is_scalar) = it.get();
            let floats = array.as_primitive::<Float64Type>();
            floats.value(if is_scalar { 0 } else { row })
        };
        let products = found.as_primitive::<Float64Type>();
        let is_lost = |row: &usize| {
            !products.is_null(*row)
                && products.value(*row) == 0.0
                && at(left, *row) != 0.0
                && at(right, *row) != 0.0
        };
        if (0..products.len()).any(|row| is_lost(&row)) {
            return Err(ArrowError::ArithmeticOverflow("of floats".to_owned()));
        }
    }
    Ok(found)
}

/// `||`: NULL adds nothing to an array, and JSON is no text.
fn joined(expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
    let is_json =
        |it: &Expr| it.to_field(schema).is_ok_and(|(_, field)| PgType::of(&field) == PgType::JSON);
    if is_json(&expr.left) || is_json(&expr.right) {
        return Err(refused("|| of JSON").into_engine());
    }
    let bytes = |it: &Expr| conversions::call(To::Bytea, it.clone());
    let type_of = |it: &Expr| it.get_type(schema).unwrap_or(DataType::Null);
    let is_quoted = |it: &Expr| type_of(it).is_string() && matches!(it, Expr::Literal(..));
    let mut expr = expr;
    if type_of(&expr.left) == DataType::Binary && is_quoted(&expr.right) {
        expr.right = bytes(&expr.right);
    } else if type_of(&expr.right) == DataType::Binary && is_quoted(&expr.left) {
        expr.left = bytes(&expr.left);
    }
    let is_list = |it: &Expr| it.get_type(schema).is_ok_and(|it| list_ndims(&it) > 0);
    let (left_is_list, right_is_list) = (is_list(&expr.left), is_list(&expr.right));
    if left_is_list != right_is_list {
        let (list, other) = match left_is_list {
            true => (&expr.left, &expr.right),
            false => (&expr.right, &expr.left),
        };
        match other {
            Expr::Literal(value, _) if value.is_null() => {
                return Ok(PlannerResult::Planned(list.clone()));
            }
            Expr::Literal(ScalarValue::Utf8(_), _) => {
                let error = refused("|| of an array and a quoted literal");
                return Err(error.with_hint("Write ::text behind it.").into_engine());
            }
            _ => {}
        }
    }
    Ok(PlannerResult::Original(texts(expr, schema)))
}

/// What is joined to a text is written as a text.
fn texts(expr: RawBinaryExpr, schema: &DFSchema) -> RawBinaryExpr {
    let type_of = |it: &Expr| it.get_type(schema).unwrap_or(DataType::Null);
    let (left, right) = (type_of(&expr.left), type_of(&expr.right));
    let is_plain = |it: &DataType| it.is_numeric() || it.is_temporal() || *it == DataType::Boolean;
    let text = |it: Expr| conversions::call(To::Text, it);
    match (left.is_string(), right.is_string()) {
        (true, false) if is_plain(&right) => RawBinaryExpr { right: text(expr.right), ..expr },
        (false, true) if is_plain(&left) => RawBinaryExpr { left: text(expr.left), ..expr },
        _ => expr,
    }
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
