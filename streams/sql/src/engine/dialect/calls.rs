//! Functions that replace parts of statements: patterns, time zones and averages. Also checks of
//! floating-point functions whose result is undefined.

use std::any::Any;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, FieldRef, Float64Type, IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::execution::context::SessionState;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::quotients::{averages, quotient_type};
use super::regex::regex_of;
use super::zones::{Zone, out_of_range};
use crate::error::{SqlError, SqlState};

/// Kind of such a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Call {
    /// Converts a regular expression to the engine's syntax.
    Pattern,
    /// Same as [`Self::Pattern`], for a case-insensitive one.
    FoldedPattern,
    /// `AT TIME ZONE`.
    TimeZone,
    /// Average from a sum and a count.
    Average,
}

impl Call {
    const ALL: [Self; 4] = [Self::Pattern, Self::FoldedPattern, Self::TimeZone, Self::Average];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Pattern => "pattern",
            Self::FoldedPattern => "pattern_of_both_cases",
            Self::TimeZone => "timezone",
            Self::Average => "average",
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Function {
    call: Call,
    signature: Signature,
}

pub(super) fn udf(call: Call) -> Arc<ScalarUDF> {
    let count = if matches!(call, Call::TimeZone | Call::Average) { 2 } else { 1 };
    let signature = Signature::any(count, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Function { call, signature }))
}

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    Call::ALL.map(udf).to_vec()
}

/// Returns whether a function is one of these.
pub(super) fn is_call(function: &ScalarUDF) -> bool {
    let inner: &dyn Any = function.inner().as_ref();
    inner.is::<Function>()
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.call.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(match (self.call, types) {
            (Call::Pattern | Call::FoldedPattern, _) => DataType::Utf8,
            (Call::TimeZone, [_, DataType::Timestamp(_, None)]) => {
                DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
            }
            (Call::TimeZone, [_, DataType::Timestamp(_, Some(_))]) => {
                DataType::Timestamp(TimeUnit::Microsecond, None)
            }
            // Replaced by a division when the types of all operands are known.
            (Call::Average, [DataType::Interval(_) | DataType::Duration(_), _]) => {
                DataType::Interval(IntervalUnit::MonthDayNano)
            }
            (Call::Average, [sum, _]) if sum.is_floating() => DataType::Float64,
            (Call::Average, [sum, _]) if sum.is_numeric() || sum.is_null() => quotient_type(),
            _ => {
                let (name, last) = (self.name(), types.last().unwrap_or(&DataType::Null));
                return plan_err!("Function '{name}' does not support type {last}");
            }
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let compute = |arrays: &[ArrayRef]| match self.call {
            Call::Pattern => texts(&arrays[0], &|text| regex_of(text, false)),
            Call::FoldedPattern => texts(&arrays[0], &|text| regex_of(text, true)),
            Call::TimeZone => shifted(&arrays[0], &arrays[1]),
            Call::Average => averages(&arrays[0], &arrays[1]),
        };
        make_scalar_function(compute, Vec::new())(&args.args)
    }
}

fn texts(array: &ArrayRef, change: &dyn Fn(&str) -> Result<String, SqlError>) -> Result<ArrayRef> {
    let texts = cast(array, &DataType::Utf8View)?;
    let changed = texts.as_string_view().iter().map(|it| it.map(change).transpose());
    let changed = changed.collect::<Result<StringArray, SqlError>>();
    Ok(Arc::new(changed.map_err(SqlError::into_engine)?))
}

/// Converts local times of a zone to UTC, or the other way round.
fn shifted(zones: &ArrayRef, times: &ArrayRef) -> Result<ArrayRef> {
    let zones = cast(zones, &DataType::Utf8View)?;
    let DataType::Timestamp(_, of) = times.data_type() else {
        return plan_err!("a time zone is for times");
    };
    let is_local = of.is_none();
    let times = cast(times, &DataType::Timestamp(TimeUnit::Microsecond, of.clone()))?;
    let times = times.as_primitive::<TimestampMicrosecondType>();
    let mut last: Option<(&str, Zone)> = None;
    let zones = zones.as_string_view();
    let shifted = zones.iter().zip(times).map(|(name, time)| {
        let (Some(name), Some(time)) = (name, time) else { return Ok(None) };
        let zone = match last {
            Some((before, zone)) if before == name => zone,
            _ => Zone::of(name).map_err(SqlError::into_engine)?,
        };
        last = Some((name, zone));
        let east = if is_local { zone.at_local(time) } else { zone.at(time) };
        let east = east.map_err(SqlError::into_engine)?;
        let shifted = if is_local { time.checked_sub(east) } else { time.checked_add(east) };
        shifted.map(Some).ok_or_else(|| out_of_range().into_engine())
    });
    let shifted = shifted.collect::<Result<TimestampMicrosecondArray>>()?;
    Ok(match is_local {
        true => Arc::new(shifted.with_timezone("UTC")),
        false => Arc::new(shifted),
    })
}

/// Functions on floats that fail in PostgreSQL where the engine returns NaN or infinity.
const CHECKED: &[&str] = &[
    "acos", "acosh", "asin", "atanh", "cos", "cot", "exp", "ln", "log", "log10", "log2", "power",
    "round", "sin", "tan",
];

/// Makes such functions of a session fail as in PostgreSQL.
pub(in crate::engine) fn check(state: &mut SessionState) -> Result<()> {
    for name in CHECKED {
        let inner = state.udf(name)?;
        state.register_udf(Arc::new(ScalarUDF::new_from_impl(Checked { inner })))?;
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.inner().return_type(arguments)
    }

    /// The engine's type of a rounded quotient has room for more digits before the point than there
    /// are, so that no type holds them and more digits after the point.
    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let of = args.arg_fields.first().map(|it| it.data_type().clone());
        let field = self.inner.inner().return_field_from_args(args)?;
        Ok(match (of, field.data_type().clone()) {
            (Some(DataType::Decimal256(precision, scale)), DataType::Decimal256(_, to))
                if to < scale =>
            {
                let whole = i16::from(precision) - i16::from(scale) + 1;
                let precision = u8::try_from(whole + i16::from(to)).unwrap_or(precision);
                let narrow = DataType::Decimal256(precision, to);
                Arc::new(field.as_ref().clone().with_data_type(narrow))
            }
            _ => field,
        })
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.inner().coerce_types(arguments)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|it| matches!(it, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        if *args.return_type() != DataType::Float64 {
            return self.inner.invoke_with_args(args);
        }
        let operands = args.args.iter().map(|it| {
            let floats = cast(&it.to_array(rows)?, &DataType::Float64)?;
            Ok(floats.as_primitive::<Float64Type>().clone())
        });
        let operands = operands.collect::<Result<Vec<Float64Array>>>()?;
        // The engine rounds half away from zero.
        let found: ArrayRef = match (self.name(), operands.as_slice()) {
            ("round", [floats]) => Arc::new(floats.unary::<_, Float64Type>(f64::round_ties_even)),
            ("power", [base, _]) => {
                let is_pole = |row: usize| {
                    !operands.iter().any(|it| it.is_null(row))
                        && base.value(row) == 0.0
                        && operands[1].value(row) < 0.0
                };
                if (0..rows).any(is_pole) {
                    let what = "zero raised to a negative power is undefined";
                    return Err(SqlError::new(SqlState::POWER, what).into_engine());
                }
                self.inner.invoke_with_args(args)?.to_array(rows)?
            }
            _ => self.inner.invoke_with_args(args)?.to_array(rows)?,
        };
        let results = found.as_primitive::<Float64Type>();
        for row in (0..rows).filter(|row| !results.is_null(*row)) {
            let values: Vec<f64> = operands.iter().map(|it| it.value(row)).collect();
            self.check(&values, results.value(row)).map_err(SqlError::into_engine)?;
        }
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?),
            false => ColumnarValue::Array(found),
        })
    }
}

impl Checked {
    fn check(&self, operands: &[f64], result: f64) -> Result<(), SqlError> {
        let is_logarithm = matches!(self.name(), "ln" | "log" | "log10" | "log2");
        if operands.iter().any(|it| it.is_nan()) {
            return Ok(());
        }
        if is_logarithm && operands.contains(&0.0) {
            return Err(SqlError::new(SqlState::LOGARITHM, "cannot take logarithm of zero"));
        }
        if is_logarithm && operands.iter().any(|it| *it < 0.0) {
            let what = "cannot take logarithm of a negative number";
            return Err(SqlError::new(SqlState::LOGARITHM, what));
        }
        let range = |what: &str| Err(SqlError::new(SqlState::OUT_OF_RANGE, what));
        let is_complex = matches!(
            (self.name(), operands),
            ("power", [base, power])
                if *base < 0.0 && power.is_finite() && power.fract() != 0.0
        );
        if operands.iter().any(|it| it.is_infinite()) && !is_complex {
            return match result.is_nan() && self.name() != "power" {
                true => range("input is out of range"),
                false => Ok(()),
            };
        }
        let may_vanish = match self.name() {
            "exp" => true,
            "power" => operands.first().is_some_and(|it| *it != 0.0),
            _ => false,
        };
        match (self.name(), result) {
            ("power", it) if it.is_nan() || is_complex => {
                let what = "a negative number raised to a non-integer power yields a complex \
                            result";
                Err(SqlError::new(SqlState::POWER, what))
            }
            (_, it) if it.is_nan() => range("input is out of range"),
            ("atanh", _) => Ok(()),
            (_, it) if it.is_infinite() => range("value out of range: overflow"),
            (_, 0.0) if may_vanish => range("value out of range: underflow"),
            _ => Ok(()),
        }
    }
}
