//! `extract` of what has a fraction: seconds, their parts, and the time since 1970.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Decimal128Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, DurationMicrosecondType, IntervalMonthDayNanoType, IntervalUnit,
    Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::PlannerResult;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

const SECOND_US: i64 = 1_000_000;
const MINUTE_US: i64 = 60 * SECOND_US;
const DAY_US: i64 = 1_440 * MINUTE_US;

/// Of each such part: a year of an interval has 365.25 days, and a month that is no part of one 30.
const MONTH_DAYS: i64 = 30;
const YEAR_US: i64 = DAY_US * 1_461 / 4;

/// Digits of such a number, all of which are shown.
const PRECISION: u8 = 30;

/// A part of a time whose number is a `numeric`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    Second,
    Millisecond,
    Microsecond,
    Epoch,
}

impl Part {
    fn of(expr: &Expr) -> Option<Self> {
        let Expr::Literal(ScalarValue::Utf8(Some(name)), _) = expr else { return None };
        match name.to_ascii_lowercase().as_str() {
            "second" | "seconds" => Some(Self::Second),
            "millisecond" | "milliseconds" => Some(Self::Millisecond),
            "microsecond" | "microseconds" => Some(Self::Microsecond),
            "epoch" => Some(Self::Epoch),
            _ => None,
        }
    }

    /// Digits after the point; all parts are counted in microseconds.
    const fn scale(self) -> i8 {
        match self {
            Self::Second | Self::Epoch => 6,
            Self::Millisecond => 3,
            Self::Microsecond => 0,
        }
    }
}

/// Plans `extract(part FROM time)`, if the part is one of these.
pub(super) fn extract(mut arguments: Vec<Expr>) -> PlannerResult<Vec<Expr>> {
    let part = arguments.first().and_then(Part::of);
    match (part, arguments.pop()) {
        (Some(part), Some(time)) if arguments.len() == 1 => {
            let signature = Signature::any(1, Volatility::Immutable);
            let function = Arc::new(ScalarUDF::new_from_impl(Extract { part, signature }));
            let call = ScalarFunction::new_udf(function, vec![time]);
            PlannerResult::Planned(Expr::ScalarFunction(call))
        }
        (_, last) => {
            arguments.extend(last);
            PlannerResult::Original(arguments)
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Extract {
    part: Part,
    signature: Signature,
}

impl ScalarUDFImpl for Extract {
    fn name(&self) -> &str {
        match self.part {
            Part::Second => "extract_second",
            Part::Millisecond => "extract_milliseconds",
            Part::Microsecond => "extract_microseconds",
            Part::Epoch => "extract_epoch",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match &types[0] {
            DataType::Timestamp(..)
            | DataType::Date32
            | DataType::Date64
            | DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Interval(_)
            | DataType::Duration(_)
            | DataType::Null => Ok(DataType::Decimal128(PRECISION, self.part.scale())),
            other => plan_err!("type {other} has no part of this name to extract"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match &args.args[0] {
            ColumnarValue::Array(array) => self.parts(array).map(ColumnarValue::Array),
            ColumnarValue::Scalar(scalar) => {
                let array = self.parts(&scalar.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?))
            }
        }
    }
}

impl Extract {
    fn parts(&self, array: &ArrayRef) -> Result<ArrayRef> {
        let of_time = |us: i64| match self.part {
            Part::Epoch => us,
            _ => us.rem_euclid(MINUTE_US),
        };
        let found: Decimal128Array = match array.data_type() {
            DataType::Interval(_) => {
                let array = cast(array, &DataType::Interval(IntervalUnit::MonthDayNano))?;
                let array = array.as_primitive::<IntervalMonthDayNanoType>();
                let parts = array.iter().map(|it| {
                    it.map(|it| self.of_interval(it.months, it.days, it.nanoseconds / 1_000))
                });
                parts.collect()
            }
            DataType::Duration(_) => {
                let array = cast(array, &DataType::Duration(TimeUnit::Microsecond))?;
                let array = array.as_primitive::<DurationMicrosecondType>();
                array.iter().map(|it| it.map(|us| self.of_interval(0, 0, us))).collect()
            }
            DataType::Time32(_) | DataType::Time64(_) => {
                let array = cast(array, &DataType::Time64(TimeUnit::Microsecond))?;
                let array = array.as_primitive::<Time64MicrosecondType>();
                array.iter().map(|it| it.map(|us| i128::from(of_time(us)))).collect()
            }
            other => {
                let zone = match other {
                    DataType::Timestamp(_, zone) => zone.clone(),
                    _ => None,
                };
                let array = cast(array, &DataType::Timestamp(TimeUnit::Microsecond, zone))?;
                let array = array.as_primitive::<TimestampMicrosecondType>();
                array.iter().map(|it| it.map(|us| i128::from(of_time(us)))).collect()
            }
        };
        Ok(Arc::new(found.with_precision_and_scale(PRECISION, self.part.scale())?))
    }

    fn of_interval(&self, months: i32, days: i32, us: i64) -> i128 {
        let (years, months) = (i128::from(months / 12), i128::from(months % 12));
        match self.part {
            Part::Epoch => {
                years * i128::from(YEAR_US)
                    + (months * i128::from(MONTH_DAYS) + i128::from(days)) * i128::from(DAY_US)
                    + i128::from(us)
            }
            _ => i128::from(us % MINUTE_US),
        }
    }
}
