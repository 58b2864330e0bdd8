//! `generate_series`: integer rows for integer arguments, and timestamps. In FROM with literals the
//! engine generates the rows. Elsewhere the values are an array, which is unnested.

use std::sync::Arc;

use chrono::{DateTime, Months, TimeDelta};
use datafusion::arrow::array::{
    Array, ArrayRef, Decimal128Array, Int32Array, Int64Array, TimestampMicrosecondArray,
    new_null_array,
};
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, IntervalMonthDayNano, IntervalUnit, TimeUnit,
};
use datafusion::catalog::view::ViewTable;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result, ScalarValue};
use datafusion::datasource::provider_as_source;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, ScalarUDF, cast, col, lit};

use super::by_row::{RESULT_BYTES_MAX, Row, function, too_much};
use super::own::of_arrow;
use super::quoted_times::as_value;
use super::refusal::refused;
use super::untyped::as_type;
use crate::error::{SqlError, SqlState};

const NAME: &str = "generate_series";

/// Functions for unnesting: the values of a series as an array, and the numbers of the elements of
/// the longest of several arrays.
pub(super) const LISTED: &str = "series_of";
pub(super) const ORDINALS: &str = "ordinals_of";
const ONE_OR_MORE: &str = "one_or_more_of";

/// Maximum number of values of a series that is an array.
const VALUE_COUNT_MAX: usize = RESULT_BYTES_MAX / size_of::<i64>();

const MONTH_DAYS: i128 = 30;
const DAY_NS: i128 = 86_400_000_000_000;

/// The engine's bigint column.
const COLUMN: &str = "value";

/// Adds the integer variant to the function of a session.
pub(super) fn generate_integers(state: &mut SessionState) {
    if let Some(function) = state.table_functions().get(NAME) {
        let engine = Arc::clone(function.function());
        state.register_udtf(NAME, Arc::new(Generated { engine }));
    }
}

/// Returns the zone of a time. A date counts as a time in UTC.
fn zone_of(value: &ScalarValue) -> Option<Option<Arc<str>>> {
    match value.data_type() {
        DataType::Timestamp(_, zone) => Some(zone),
        DataType::Date32 => Some(Some("UTC".into())),
        _ => None,
    }
}

fn check_step(arguments: &[Expr]) -> Result<()> {
    let is_zero = match arguments.get(2) {
        Some(Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(step)), _)) => {
            *step == IntervalMonthDayNano::ZERO
        }
        Some(Expr::Literal(ScalarValue::Int32(Some(step)), _)) => *step == 0,
        Some(Expr::Literal(ScalarValue::Int64(Some(step)), _)) => *step == 0,
        _ => false,
    };
    match is_zero {
        true => Err(no_step().into_engine()),
        false => Ok(()),
    }
}

/// Types quoted literals as times if a bound is a time, and the step as an interval.
fn typed(exprs: &[Expr]) -> Result<Vec<Expr>> {
    let zone = exprs.iter().take(2).find_map(|it| match it {
        Expr::Literal(value, _) => zone_of(value),
        _ => None,
    });
    let Some(zone) = zone else { return Ok(exprs.to_vec()) };
    let time = DataType::Timestamp(TimeUnit::Microsecond, zone);
    let step = DataType::Interval(IntervalUnit::MonthDayNano);
    let typed = exprs.iter().enumerate().map(|(index, it)| match it {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => {
            as_value(text, if index < 2 { &time } else { &step })
        }
        other => Ok(other.clone()),
    });
    typed.collect()
}

impl Generated {
    /// Generates times, which the engine counts in nanoseconds.
    fn times(
        &self,
        args: &TableFunctionArgs<'_, '_>,
        zone: Option<Arc<str>>,
    ) -> Result<Arc<dyn TableProvider>> {
        let fine = DataType::Timestamp(TimeUnit::Nanosecond, zone.clone());
        let arguments = args.exprs().iter().map(|it| match it {
            Expr::Literal(value, _) if zone_of(value).is_some() => Ok(lit(value.cast_to(&fine)?)),
            other => Ok(other.clone()),
        });
        let arguments = arguments.collect::<Result<Vec<_>>>()?;
        let given = TableFunctionArgs::new(&arguments, args.session());
        let rows = self.engine.call_with_args(given)?;
        let plan = LogicalPlanBuilder::scan(NAME, provider_as_source(rows), None)?;
        let to = DataType::Timestamp(TimeUnit::Microsecond, zone);
        let plan = plan.project([cast(col(COLUMN), to).alias(COLUMN)])?.build()?;
        Ok(Arc::new(ViewTable::new(plan, None)))
    }
}

#[derive(Debug)]
struct Generated {
    engine: Arc<dyn TableFunctionImpl>,
}

impl TableFunctionImpl for Generated {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let wide = |it: &Expr| match it {
            Expr::Literal(ScalarValue::Int32(Some(number)), _) => lit(i64::from(*number)),
            Expr::Literal(value, _) if value.is_null() => lit(ScalarValue::Null),
            other => other.clone(),
        };
        if args.exprs().iter().any(|it| !matches!(it, Expr::Literal(..))) {
            let error = refused("generate_series in FROM with columns or parameters as arguments");
            return Err(error.into_engine());
        }
        let exprs = typed(args.exprs())?;
        let args = TableFunctionArgs::new(&exprs, args.session());
        check_step(args.exprs())?;
        if let [Expr::Literal(first, _), Expr::Literal(last, _), _] = args.exprs()
            && let Some(zone) = zone_of(first)
        {
            return match zone_of(last).is_some_and(|it| it == zone) {
                true => self.times(&args, zone),
                false => {
                    Err(refused("generate_series with a timestamp and another type").into_engine())
                }
            };
        }
        let arguments: Vec<_> = args.exprs().iter().map(wide).collect();
        let given = TableFunctionArgs::new(&arguments, args.session());
        let rows = self.engine.call_with_args(given)?;
        let is = |it: &Expr, of: &DataType| match it {
            Expr::Literal(value, _) => value.data_type() == *of,
            _ => false,
        };
        let has_only_integers = args.exprs().iter().any(|it| is(it, &DataType::Int32))
            && !args.exprs().iter().any(|it| is(it, &DataType::Int64));
        if !has_only_integers {
            return Ok(rows);
        }
        // All values between two bounds of type integer fit this type.
        let plan = LogicalPlanBuilder::scan(NAME, provider_as_source(rows), None)?;
        let plan = plan.project([cast(col(COLUMN), DataType::Int32).alias(COLUMN)])?.build()?;
        Ok(Arc::new(ViewTable::new(plan, None)))
    }
}

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![function(LISTED, series_field, series), ordinals(), one_or_more()]
}

/// Numbers the elements of the longest of several arrays.
pub(super) fn ordinals() -> Arc<ScalarUDF> {
    function(
        ORDINALS,
        |_| Ok(list_field(DataType::Int64)),
        |row| {
            let count = row.values.iter().filter_map(|it| match it {
                ScalarValue::List(list) if list.is_valid(0) => Some(list.value_length(0)),
                _ => None,
            });
            let numbers = 1..=i64::from(count.max().unwrap_or(0));
            Ok(list_of(Arc::new(Int64Array::from_iter_values(numbers))))
        },
    )
}

/// Adds NULL to an empty array, and replaces NULL by an array of it.
pub(super) fn one_or_more() -> Arc<ScalarUDF> {
    let returns = |fields: &[FieldRef]| match fields {
        [list] if matches!(list.data_type(), DataType::List(_)) => Ok(list.as_ref().clone()),
        _ => Err(String::new()),
    };
    function(ONE_OR_MORE, returns, |row| match &row.values[0] {
        ScalarValue::List(list) if list.is_null(0) || list.value_length(0) == 0 => {
            let DataType::List(element) = list.data_type() else { unreachable!("it is a list") };
            let null = new_null_array(element.data_type(), 1);
            let builder = SingleRowListArrayBuilder::new(null).with_field(element);
            Ok(ScalarValue::List(Arc::new(builder.build_list_array())))
        }
        list => Ok(list.clone()),
    })
}

fn list_field(of: DataType) -> Field {
    Field::new("", DataType::List(Arc::new(Field::new_list_field(of, true))), true)
}

fn list_of(values: ArrayRef) -> ScalarValue {
    ScalarValue::List(Arc::new(SingleRowListArrayBuilder::new(values).build_list_array()))
}

fn series_field(fields: &[FieldRef]) -> Result<Field, String> {
    let types: Vec<_> = fields.iter().map(|it| it.data_type()).collect();
    let is_open = |it: &DataType| it.is_null() || it.is_string();
    let (first, step) = match types.as_slice() {
        [_, _] | [_, _, _] => (types[0], types.get(2).copied()),
        _ => return Err(String::new()),
    };
    let bounds = &types[..2];
    let is_time = |it: &DataType| matches!(it, DataType::Timestamp(..) | DataType::Date32);
    if bounds.iter().any(|it| is_time(it)) {
        let is_step = |it: &DataType| is_open(it) || matches!(it, DataType::Interval(_));
        if !bounds.iter().all(|it| is_time(it) || is_open(it)) || !step.is_some_and(is_step) {
            return Err(String::new());
        }
        let is_zoned = |it: &&DataType| matches!(it, DataType::Timestamp(_, Some(_)));
        let is_plain = |it: &&DataType| matches!(it, DataType::Timestamp(_, None));
        let zone = match bounds.iter().any(is_zoned) || !bounds.iter().any(is_plain) {
            true => Some("UTC".into()),
            false => None,
        };
        return Ok(list_field(DataType::Timestamp(TimeUnit::Microsecond, zone)));
    }
    let is_number = |it: &DataType| it.is_signed_integer() || it.is_decimal();
    if !types.iter().all(|it| is_number(it) || is_open(it)) {
        return Err(String::new());
    }
    if types.iter().any(|it| it.is_string()) {
        return Err("generate_series with numbers in quotes".to_owned());
    }
    if types.iter().any(|it| it.is_decimal()) {
        let scale = |it: &DataType| match it {
            DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => *scale,
            _ => 0,
        };
        let scale = scale(first).max(step.map_or(0, scale));
        return Ok(list_field(DataType::Decimal128(38, scale)));
    }
    if types.contains(&&DataType::Int64) {
        return Ok(list_field(DataType::Int64));
    }
    match types.contains(&&DataType::Int32) {
        true => Ok(list_field(DataType::Int32)),
        false => Err("generate_series of smallint, or of literals without a type".to_owned()),
    }
}

/// Returns the values of a series as an array. It is empty if an argument is NULL.
fn series(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let field = series_field(row.fields).map_err(|it| refused(&it))?;
    let DataType::List(element) = field.data_type() else { unreachable!("it is a list") };
    let of = element.data_type();
    if row.values.iter().any(ScalarValue::is_null) {
        return Ok(ScalarValue::new_null_list(of.clone(), true, 1));
    }
    let typed = |index: usize, to: &DataType| typed_value(&row.values[index], to);
    if let DataType::Timestamp(_, zone) = of {
        let step = typed(2, &DataType::Interval(IntervalUnit::MonthDayNano))?;
        let (
            ScalarValue::TimestampMicrosecond(Some(first), _),
            ScalarValue::TimestampMicrosecond(Some(last), _),
            ScalarValue::IntervalMonthDayNano(Some(step)),
        ) = (typed(0, of)?, typed(1, of)?, step)
        else {
            return Err(refused("generate_series with these times"));
        };
        let times = TimestampMicrosecondArray::from(times_between(first, last, step)?);
        return Ok(list_of(Arc::new(times.with_timezone_opt(zone.clone()))));
    }
    let scale = if let DataType::Decimal128(_, scale) = of { *scale } else { 0 };
    let wide = DataType::Decimal128(38, scale);
    let number = |index: usize| match typed(index, &wide)? {
        ScalarValue::Decimal128(Some(value), ..) => Ok(value),
        _ => Err(refused("generate_series with these numbers")),
    };
    let step = match row.values.len() {
        3 => number(2)?,
        _ => 10_i128.pow(scale.unsigned_abs().into()),
    };
    let numbers = numbers_between(number(0)?, number(1)?, step)?;
    let whole = numbers.iter().map(|it| i64::try_from(*it).unwrap_or(i64::MAX));
    Ok(list_of(match of {
        DataType::Int32 => {
            Arc::new(whole.map(|it| i32::try_from(it).ok()).collect::<Int32Array>()) as ArrayRef
        }
        DataType::Int64 => Arc::new(Int64Array::from_iter_values(whole)),
        _ => {
            let array = Decimal128Array::from(numbers);
            Arc::new(array.with_precision_and_scale(38, scale).map_err(of_arrow)?)
        }
    }))
}

/// Converts an argument. A text is a time or an interval in quotes.
fn typed_value(value: &ScalarValue, to: &DataType) -> Result<ScalarValue, SqlError> {
    if let Some(Some(text)) = value.try_as_str() {
        let of = Field::new("", to.clone(), true);
        return match as_type(&ScalarValue::from(text), &of)? {
            Some(Expr::Literal(value, _)) => Ok(value),
            _ => Err(refused("generate_series with this literal in quotes")),
        };
    }
    Ok(value.cast_to(to)?)
}

fn no_step() -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER, "step size cannot equal zero")
}

fn numbers_between(first: i128, last: i128, step: i128) -> Result<Vec<i128>, SqlError> {
    let span = match step {
        0 => return Err(no_step()),
        1.. => last.checked_sub(first),
        _ => first.checked_sub(last),
    };
    let Some(span) = span.and_then(|it| u128::try_from(it).ok()) else { return Ok(Vec::new()) };
    let count = span / step.unsigned_abs();
    if count >= VALUE_COUNT_MAX as u128 {
        return Err(too_much(NAME));
    }
    Ok((0..=i128::try_from(count).unwrap_or(0)).map(|it| first + it * step).collect())
}

/// Adds the step to the last value again and again: months first, then days, then the rest.
fn times_between(first: i64, last: i64, step: IntervalMonthDayNano) -> Result<Vec<i64>, SqlError> {
    let days = i128::from(step.months) * MONTH_DAYS + i128::from(step.days);
    let length = days * DAY_NS + i128::from(step.nanoseconds);
    if length == 0 {
        return Err(no_step());
    }
    let out_of_range = || SqlError::new(SqlState("22008"), "timestamp out of range");
    let (mut found, mut time) = (Vec::new(), first);
    while if length > 0 { time <= last } else { time >= last } {
        if found.len() == VALUE_COUNT_MAX {
            return Err(too_much(NAME));
        }
        found.push(time);
        let start = DateTime::from_timestamp_micros(time).ok_or_else(out_of_range)?;
        let months = Months::new(step.months.unsigned_abs());
        let moved = match step.months {
            0.. => start.checked_add_months(months),
            _ => start.checked_sub_months(months),
        };
        let moved = moved.and_then(|it| it.checked_add_signed(TimeDelta::days(step.days.into())));
        let moved = moved.ok_or_else(out_of_range)?.timestamp_micros();
        time = moved.checked_add(step.nanoseconds / 1_000).ok_or_else(out_of_range)?;
    }
    Ok(found)
}
