//! `generate_series`: integer rows for integer arguments, and timestamps.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit, TimeUnit};
use datafusion::catalog::view::ViewTable;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, ScalarValue};
use datafusion::datasource::provider_as_source;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, cast, col, lit};

use super::inexact::refused;
use super::quoted_times::as_value;
use crate::error::{SqlError, SqlState};

const NAME: &str = "generate_series";

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
        true => {
            let what = "step size cannot equal zero";
            Err(SqlError::new(SqlState::INVALID_PARAMETER, what).into_engine())
        }
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
