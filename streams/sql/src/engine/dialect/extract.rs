//! `extract` and `date_part`: the fields that PostgreSQL defines for each date/time type, as
//! numerics.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::planner::PlannerResult;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::own::{Own, does_not_exist, texts};
use super::units::{Span, Unit};
use crate::error::{SqlError, SqlState};
use crate::wire::{DAY_US, civil};

const SECOND_US: i64 = 1_000_000;
const MINUTE_US: i64 = 60 * SECOND_US;
const HOUR_US: i64 = 60 * MINUTE_US;

/// Lengths for the epoch of an interval: a year has 365.25 days, and a month beyond whole years has
/// 30.
const MONTH_DAYS: i64 = 30;
const YEAR_US: i64 = DAY_US * 1_461 / 4;

/// Precision of the result.
const PRECISION: u8 = 30;

/// Plans `extract(field FROM time)` if the field is a literal.
pub(super) fn extract(mut arguments: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
    let name = match arguments.first() {
        Some(Expr::Literal(ScalarValue::Utf8(Some(name)), _)) => name.clone(),
        _ => return Ok(PlannerResult::Original(arguments)),
    };
    let (Some(time), 1) = (arguments.pop(), arguments.len()) else {
        return Ok(PlannerResult::Original(arguments));
    };
    let unit = Unit::of(&name).map_err(SqlError::into_engine)?;
    let signature = Signature::any(1, Volatility::Immutable);
    let function = Arc::new(ScalarUDF::new_from_impl(Extract { unit, signature }));
    let call = ScalarFunction::new_udf(function, vec![time]);
    Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
}

/// Returns `date_part`, whose result is double precision.
pub(super) fn date_part() -> Arc<ScalarUDF> {
    let type_of = |types: &[DataType]| {
        let is_name = types[0].is_string() || types[0].is_null();
        (is_name && kind_of(&types[1]).is_some()).then_some(DataType::Float64)
    };
    Own::udf("date_part", 2, type_of, |arrays| {
        let names = texts(&arrays[0])?;
        let mut found = Vec::with_capacity(names.len());
        for (row, name) in names.iter().enumerate() {
            let Some(name) = name else {
                found.push(None);
                continue;
            };
            let unit = Unit::of(name)?;
            check(unit, arrays[1].data_type())?;
            let part = parts(unit, &arrays[1].slice(row, 1))?;
            let scale = scale_of(unit, arrays[1].data_type()).unsigned_abs();
            let digits = f64::from(10_i32.pow(u32::from(scale)));
            #[expect(clippy::cast_precision_loss, reason = "a float has so many digits")]
            found.push(part[0].map(|it| it as f64 / digits));
        }
        Ok(Arc::new(Float64Array::from(found)))
    })
}

/// Fractional digits of a field of a type. All fields are computed in microseconds, except the
/// epoch of a date.
fn scale_of(unit: Unit, of: &DataType) -> i8 {
    match unit {
        Unit::Epoch if kind_of(of) == Some(Kind::Date) => 0,
        Unit::Second | Unit::Epoch => 6,
        Unit::Millisecond => 3,
        _ => 0,
    }
}

/// Kind of a date/time type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Null,
    Date,
    Time,
    Timestamp,
    Timestamptz,
    Interval,
}

fn kind_of(data_type: &DataType) -> Option<Kind> {
    Some(match data_type {
        DataType::Null => Kind::Null,
        DataType::Date32 | DataType::Date64 => Kind::Date,
        DataType::Time32(_) | DataType::Time64(_) => Kind::Time,
        DataType::Timestamp(_, None) => Kind::Timestamp,
        DataType::Timestamp(_, Some(_)) => Kind::Timestamptz,
        DataType::Interval(_) | DataType::Duration(_) => Kind::Interval,
        _ => return None,
    })
}

/// Rejects fields that a type does not have.
fn check(unit: Unit, data_type: &DataType) -> Result<(), SqlError> {
    let Some(kind) = kind_of(data_type) else {
        return Err(does_not_exist("extract", std::slice::from_ref(data_type)));
    };
    let (has_it, name) = match (kind, unit.span()) {
        (Kind::Null, _) => (true, ""),
        (Kind::Date, span) => (matches!(span, Span::Date | Span::Calendar | Span::All), "date"),
        (Kind::Time, span) => (matches!(span, Span::Time | Span::All), "time without time zone"),
        (Kind::Timestamp, span) => (span != Span::Zone, "timestamp without time zone"),
        (Kind::Timestamptz, _) => (true, "timestamp with time zone"),
        (Kind::Interval, span) => (matches!(span, Span::Date | Span::Time | Span::All), "interval"),
    };
    match has_it {
        true => Ok(()),
        false => {
            let what = format!("unit {:?} not supported for type {name}", unit.name());
            Err(SqlError::new(SqlState::NOT_SUPPORTED, what))
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Extract {
    unit: Unit,
    signature: Signature,
}

impl ScalarUDFImpl for Extract {
    fn name(&self) -> &'static str {
        "extract"
    }

    fn display_name(&self, arguments: &[Expr]) -> Result<String> {
        self.schema_name(arguments)
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        let of = arguments.iter().map(|it| it.schema_name().to_string()).collect::<String>();
        Ok(format!("extract({} FROM {of})", self.unit.name()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        check(self.unit, &types[0]).map_err(SqlError::into_engine)?;
        Ok(DataType::Decimal128(PRECISION, scale_of(self.unit, &types[0])))
    }

    /// The engine's default has no data type, so nothing can be computed from it.
    fn evaluate_bounds(&self, operands: &[&Interval]) -> Result<Interval> {
        let types: Vec<_> = operands.iter().map(|it| it.data_type()).collect();
        Interval::make_unbounded(&self.return_type(&types)?)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let numbers = |array: &ArrayRef| -> Result<ArrayRef> {
            let found: Decimal128Array =
                parts(self.unit, array).map_err(SqlError::into_engine)?.into_iter().collect();
            let scale = scale_of(self.unit, array.data_type());
            Ok(Arc::new(found.with_precision_and_scale(PRECISION, scale)?))
        };
        match &args.args[0] {
            ColumnarValue::Array(array) => numbers(array).map(ColumnarValue::Array),
            ColumnarValue::Scalar(scalar) => {
                let array = numbers(&scalar.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?))
            }
        }
    }
}

/// Extracts a field, in units of its last digit.
fn parts(unit: Unit, array: &ArrayRef) -> Result<Vec<Option<i128>>, SqlError> {
    let as_type = |to: &DataType| cast(array, to).map_err(super::own::of_arrow);
    Ok(match array.data_type() {
        DataType::Null => vec![None; array.len()],
        DataType::Interval(_) => {
            let array = as_type(&DataType::Interval(IntervalUnit::MonthDayNano))?;
            let array = array.as_primitive::<IntervalMonthDayNanoType>();
            let part = |months, days, ns: i64| of_interval(unit, months, days, ns / 1_000);
            array.iter().map(|it| it.map(|it| part(it.months, it.days, it.nanoseconds))).collect()
        }
        DataType::Time32(_) | DataType::Time64(_) => {
            let array = as_type(&DataType::Time64(TimeUnit::Microsecond))?;
            let array = array.as_primitive::<Time64MicrosecondType>();
            array.iter().map(|it| it.map(|us| i128::from(of_time(unit, us)))).collect()
        }
        other => {
            let zone = match other {
                DataType::Timestamp(_, zone) => zone.clone(),
                _ => None,
            };
            let is_date = matches!(other, DataType::Date32 | DataType::Date64);
            let unit_us = if is_date && unit == Unit::Epoch { SECOND_US } else { 1 };
            let array = as_type(&DataType::Timestamp(TimeUnit::Microsecond, zone))?;
            let array = array.as_primitive::<TimestampMicrosecondType>();
            let part = |us| i128::from(of_moment(unit, us) / unit_us);
            array.iter().map(|it| it.map(part)).collect()
        }
    })
}

fn of_time(unit: Unit, us: i64) -> i64 {
    match unit {
        Unit::Hour => us / HOUR_US,
        Unit::Minute => us / MINUTE_US % 60,
        Unit::Epoch => us,
        _ => us % MINUTE_US,
    }
}

fn of_moment(unit: Unit, us: i64) -> i64 {
    if matches!(unit.span(), Span::Time) {
        return of_time(unit, us.rem_euclid(DAY_US));
    }
    let days = us.div_euclid(DAY_US);
    let (year, month, day) = civil(days);
    let weekday = (days + 4).rem_euclid(7);
    // An ISO week belongs to the year that contains its Thursday.
    let thursday = days - (weekday + 6) % 7 + 3;
    let first_of = |year: i64| first_day(year);
    let from_one = |it: i64| if it > 0 { it } else { it - 1 };
    let grouped = |count: i64| match year > 0 {
        true => (year + count - 1) / count,
        false => -((count - year) / count),
    };
    match unit {
        Unit::Epoch => us,
        Unit::Day => day,
        Unit::Month => month,
        Unit::Quarter => (month - 1) / 3 + 1,
        Unit::Year => from_one(year),
        Unit::Decade => year.div_euclid(10),
        Unit::Century => grouped(100),
        Unit::Millennium => grouped(1_000),
        Unit::Dow => weekday,
        Unit::Isodow => (weekday + 6) % 7 + 1,
        Unit::Doy => days - first_of(year) + 1,
        Unit::Week => (thursday - first_of(civil(thursday).0)) / 7 + 1,
        Unit::Isoyear => from_one(civil(thursday).0),
        // The time zone is always UTC.
        _ => 0,
    }
}

/// Returns the first day of a year, counted from 1970-01-01.
pub(super) fn first_day(year: i64) -> i64 {
    let before = year - 1;
    365 * (year - 1970) + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400)
        - 477
}

fn of_interval(unit: Unit, months: i32, days: i32, us: i64) -> i128 {
    let (years, months) = (i64::from(months / 12), i64::from(months % 12));
    let part = match unit {
        Unit::Epoch => {
            return i128::from(years) * i128::from(YEAR_US)
                + (i128::from(months) * i128::from(MONTH_DAYS) + i128::from(days))
                    * i128::from(DAY_US)
                + i128::from(us);
        }
        Unit::Day => i64::from(days),
        Unit::Month => months,
        Unit::Quarter => months / 3 + 1,
        Unit::Year => years,
        Unit::Decade => years / 10,
        Unit::Century => years / 100,
        Unit::Millennium => years / 1_000,
        _ => of_time(unit, us),
    };
    i128::from(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn years_before_the_first_count_backwards() {
        let of_year = |unit, year| of_moment(unit, first_day(year) * DAY_US);
        for (year, expected) in [
            (2001, [2001, 200, 21, 3]),
            (2000, [2000, 200, 20, 2]),
            (1, [1, 0, 1, 1]),
            (0, [-1, 0, -1, -1]),
            (-99, [-100, -10, -1, -1]),
            (-100, [-101, -10, -2, -1]),
        ] {
            let units = [Unit::Year, Unit::Decade, Unit::Century, Unit::Millennium];
            assert_eq!(units.map(|it| of_year(it, year)), expected, "{year}");
        }
    }
}
