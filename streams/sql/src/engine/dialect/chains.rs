//! Arithmetic on numbers with PostgreSQL's values and errors: integer overflow, division by zero,
//! numeric division. The operation depends on the operand types at type coercion, not on those
//! known earlier.
//!
//! `a + b - c` is a single call with three operands, evaluated from left to right: the engine
//! derives the type of each call from its operands, repeatedly so for nested calls.

use std::any::Any;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Datum};
use datafusion::arrow::compute::kernels::numeric;
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DECIMAL128_MAX_PRECISION, DataType, Float32Type, Float64Type,
};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{DFSchema, Result, internal_err};
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion::physical_expr_common::datum::apply;

use super::casts::NUMERIC_OF_INTEGER;
use super::conversions::{To, converted};
use super::numerics::is_unknown;
use super::own::no_operator;
use super::quotients::{quotient_type, quotients, too_many_digits};
use super::short_names::unmarked;
use super::strict;
use crate::error::{SqlError, SqlState};

/// Operators between the operands, from left to right.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Arithmetic {
    operators: Vec<Operator>,
    /// Result type, as known when the call was planned.
    result: DataType,
    signature: Signature,
}

/// Returns whether a function is such a chain of operators.
pub(super) fn is_arithmetic(function: &ScalarUDF) -> bool {
    arithmetic_of(function).is_some()
}

/// Returns the operators of a chain.
pub(super) fn operators(function: &ScalarUDF) -> &[Operator] {
    arithmetic_of(function).map_or(&[], |it| it.operators.as_slice())
}

fn arithmetic_of(function: &ScalarUDF) -> Option<&Arithmetic> {
    let inner: &dyn Any = function.inner().as_ref();
    inner.downcast_ref()
}

/// Returns the call of an operator on operands of these types. Extends the left operand if it is
/// such a call.
pub(super) fn call(
    (left, left_type): (Expr, &DataType),
    operator: Operator,
    (right, right_type): (Expr, &DataType),
) -> Result<Expr> {
    let result = Step::of(left_type, operator, right_type)?.result;
    let (mut operators, mut operands) = match unmarked(left, |it| is_arithmetic(&it.func)) {
        Ok(ScalarFunction { func, args }) => {
            (arithmetic_of(&func).map_or(Vec::new(), |it| it.operators.clone()), args)
        }
        Err(other) => (Vec::new(), vec![other]),
    };
    operators.push(operator);
    operands.push(right);
    let signature = Signature::user_defined(Volatility::Immutable);
    let function = ScalarUDF::new_from_impl(Arithmetic { operators, result, signature });
    Ok(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), operands)))
}

/// Rejects undefined operators. Done here, because the engine would replace the error if the
/// function itself returned it.
pub(super) fn check(call: &ScalarFunction, schema: &DFSchema) -> Result<()> {
    let Some(arithmetic) = arithmetic_of(&call.func) else { return Ok(()) };
    let types = call.args.iter().map(|it| it.get_type(schema)).collect::<Result<Vec<_>>>()?;
    arithmetic.steps(&types).map(|_| ())
}

/// Returns whether an operator is arithmetic.
pub(super) fn is_operator(operator: Operator) -> bool {
    use Operator::{Divide, Minus, Modulo, Multiply, Plus};
    matches!(operator, Plus | Minus | Multiply | Divide | Modulo)
}

/// Returns the result type of a call planned here, without evaluating the types of its operands.
pub(super) fn planned_type(function: &ScalarUDF) -> Option<&DataType> {
    Some(&arithmetic_of(function)?.result)
}

impl Arithmetic {
    fn written(&self, arguments: &[Expr]) -> String {
        let mut texts = arguments.iter().map(|it| it.schema_name().to_string());
        let mut written = texts.next().unwrap_or_default();
        for (operator, text) in self.operators.iter().zip(texts) {
            written.push_str(&format!(" {operator} {text}"));
        }
        written
    }

    /// Returns the operand and result types of each operation.
    fn steps(&self, types: &[DataType]) -> Result<Vec<Step>> {
        let [first, rest @ ..] = types else { return internal_err!("there is no operand") };
        let mut left = first.clone();
        let steps = self.operators.iter().zip(rest).map(|(operator, right)| {
            let step = Step::of(&left, *operator, right)?;
            left = step.result.clone();
            Ok(step)
        });
        steps.collect()
    }
}

/// Types of one operation.
struct Step {
    left: DataType,
    right: DataType,
    result: DataType,
}

impl ScalarUDFImpl for Arithmetic {
    fn name(&self) -> &str {
        match self.operators.as_slice() {
            [Operator::Plus] => "plus",
            [Operator::Minus] => "minus",
            [Operator::Multiply] => "times",
            [Operator::Divide] => "divided_by",
            [Operator::Modulo] => "modulo",
            _ => "arithmetic",
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

    /// Operands are not coerced here: each operation converts its own.
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.steps(types)?;
        Ok(types.to_vec())
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match self.steps(types)?.pop() {
            Some(last) => Ok(last.result),
            None => internal_err!("there is no operator"),
        }
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        strict::simplified(self, args, info)
    }

    /// The engine's default has no data type, so nothing can be computed from it.
    fn evaluate_bounds(&self, operands: &[&Interval]) -> Result<Interval> {
        let types: Vec<_> = operands.iter().map(|it| it.data_type()).collect();
        Interval::make_unbounded(&self.return_type(&types)?)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let types: Vec<_> = args.args.iter().map(ColumnarValue::data_type).collect();
        let steps = self.steps(&types)?;
        let mut operands = args.args.into_iter();
        let Some(mut found) = operands.next() else { return internal_err!("there is no operand") };
        for ((operator, step), right) in self.operators.iter().zip(steps).zip(operands) {
            found =
                step.apply(*operator, as_type(found, &step.left)?, as_type(right, &step.right)?)?;
        }
        Ok(found)
    }
}

fn as_type(value: ColumnarValue, data_type: &DataType) -> Result<ColumnarValue> {
    match value.data_type() {
        of if of == *data_type => Ok(value),
        of if of.is_decimal() && data_type.is_floating() => converted(To::Float8, &value),
        _ => value.cast_to(data_type, None),
    }
}

impl Step {
    /// Returns the types of an operation on operands of these types.
    fn of(left: &DataType, operator: Operator, right: &DataType) -> Result<Self> {
        let all = |asks: fn(&DataType) -> bool| asks(left) && asks(right);
        let any = |asks: fn(&DataType) -> bool| asks(left) || asks(right);
        let has_float = any(DataType::is_floating);
        if !all(|it| it.is_numeric() || it.is_null()) || has_float && operator == Operator::Modulo {
            return Err(no_operator(&operator).into_engine());
        }
        if has_float {
            // The result is real only if all operands are.
            let of = match all(|it| matches!(it, DataType::Float32 | DataType::Null)) {
                true => DataType::Float32,
                false => DataType::Float64,
            };
            return Ok(Self { left: of.clone(), right: of.clone(), result: of });
        }
        if operator == Operator::Divide && any(DataType::is_decimal) {
            let exact = |it: &DataType| match it.is_decimal() {
                true => it.clone(),
                false => NUMERIC_OF_INTEGER,
            };
            return Ok(Self { left: exact(left), right: exact(right), result: quotient_type() });
        }
        let coercer = BinaryTypeCoercer::new(left, &operator, right);
        let types = coercer.get_input_types().and_then(|it| Ok((it, coercer.get_result_type()?)));
        match types {
            // The engine's type has fewer digits, as if all had the scale of the type.
            Ok(((left, right), DataType::Decimal128(_, scale)))
                if operator == Operator::Modulo && (is_unknown(&left) || is_unknown(&right)) =>
            {
                let result = DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale);
                Ok(Self { left, right, result })
            }
            Ok(((left, right), result)) => Ok(Self { left, right, result }),
            Err(_) if any(DataType::is_decimal) => Err(too_many_digits().into_engine()),
            Err(error) => Err(error),
        }
    }

    fn apply(
        &self,
        operator: Operator,
        left: ColumnarValue,
        right: ColumnarValue,
    ) -> Result<ColumnarValue> {
        let is_float = self.result.is_floating();
        let found = match operator {
            Operator::Divide if self.result == quotient_type() => {
                let compute = |arrays: &[ArrayRef]| quotients(&arrays[0], &arrays[1]);
                return make_scalar_function(compute, Vec::new())(&[left, right]);
            }
            Operator::Plus => apply(&left, &right, checked(numeric::add, is_float)),
            Operator::Minus => apply(&left, &right, checked(numeric::sub, is_float)),
            Operator::Multiply => apply(&left, &right, checked(multiply, is_float)),
            Operator::Divide => apply(&left, &right, checked(divide, is_float)),
            _ => apply(&left, &right, checked(numeric::rem, is_float))
                .and_then(|it| it.cast_to(&self.result, None)),
        };
        found.map_err(|error| match &error.find_root() {
            datafusion::common::DataFusionError::ArrowError(arrow, _)
                if matches!(**arrow, ArrowError::ArithmeticOverflow(_)) =>
            {
                out_of_range(&self.result).into_engine()
            }
            _ => error,
        })
    }
}

fn divide(left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef, ArrowError> {
    let found = numeric::div(left, right)?;
    let (divisors, is_scalar) = right.get();
    let is_failed = match divisors.data_type() {
        DataType::Float64 => has_quotient_by_zero::<Float64Type>(&found, divisors, is_scalar),
        DataType::Float32 => has_quotient_by_zero::<Float32Type>(&found, divisors, is_scalar),
        _ => false,
    };
    if is_failed { Err(ArrowError::DivideByZero) } else { Ok(found) }
}

/// Returns whether a divisor is zero in a row with a quotient. A quotient with NULL is NULL.
fn has_quotient_by_zero<T: ArrowPrimitiveType>(
    quotients: &ArrayRef,
    divisors: &dyn Array,
    is_scalar: bool,
) -> bool {
    let divisors = divisors.as_primitive::<T>();
    let is_zero = |row: usize| divisors.value(row) == T::default_value();
    (0..quotients.len())
        .any(|row| !quotients.is_null(row) && is_zero(if is_scalar { 0 } else { row }))
}

/// Multiplies, and fails on underflow: a product of nonzero floats must not be zero.
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

/// Wraps an operation so that it fails if the result of finite floats is infinite.
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
        it if it.is_decimal() => return too_many_digits(),
        _ => "bigint out of range",
    };
    SqlError::new(SqlState::OUT_OF_RANGE, what)
}
