//! `sum`, `min` and `max` of intervals as in PostgreSQL: months, days and hours are added apart,
//! and a month has 30 days in comparisons.

use std::cmp::Ordering;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, PrimitiveArray};
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};

use super::interval_functions::{Parts, interval, length_of, range};
use super::refusal::refused;
use crate::error::SqlError;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

fn intervals(array: &ArrayRef) -> Result<&PrimitiveArray<IntervalMonthDayNanoType>> {
    match array.as_primitive_opt() {
        Some(array) => Ok(array),
        None => internal_err!("{} is no interval", array.data_type()),
    }
}

/// Sum of the parts of intervals.
#[derive(Debug, Default)]
pub(in crate::engine) struct IntervalSum {
    count: i64,
    sum: Parts,
}

impl IntervalSum {
    fn add(&mut self, values: &[ArrayRef], times: i64) -> Result<()> {
        for it in intervals(&values[0])?.iter().flatten() {
            self.count += times;
            self.sum.months += times * i64::from(it.months);
            self.sum.days += times * i64::from(it.days);
            let us = self.sum.us.checked_add(times * (it.nanoseconds / 1_000));
            self.sum.us = us.ok_or_else(|| range().into_engine())?;
        }
        Ok(())
    }
}

impl Accumulator for IntervalSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(values, 1)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(values, -1)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.add(states, 1)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        match self.count {
            0 => Ok(ScalarValue::IntervalMonthDayNano(None)),
            _ => interval(self.sum).map_err(SqlError::into_engine),
        }
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// Returns `min` or `max` of intervals.
pub(super) fn extreme(name: &str) -> Option<Arc<AggregateUDF>> {
    let (name, wanted) = match name {
        "min" => ("min", Ordering::Less),
        "max" => ("max", Ordering::Greater),
        _ => return None,
    };
    let signature = Signature::any(1, Volatility::Immutable);
    Some(Arc::new(AggregateUDF::new_from_impl(Extreme { name, wanted, signature })))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Extreme {
    name: &'static str,
    /// Order of a value that replaces another one.
    wanted: Ordering,
    signature: Signature,
}

impl AggregateUDFImpl for Extreme {
    fn name(&self) -> &'static str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(INTERVAL)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let field = |part: &str, data_type| {
            Arc::new(Field::new(format!("{}[{part}]", args.name), data_type, true))
        };
        Ok(vec![field("value", INTERVAL), field("is_tied", DataType::Boolean)])
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Most { name: self.name, wanted: self.wanted, value: None, is_tied: false }))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// The least or the greatest value.
#[derive(Debug)]
struct Most {
    name: &'static str,
    wanted: Ordering,
    value: Option<IntervalMonthDayNano>,
    /// Another value has the same length and other parts.
    is_tied: bool,
}

impl Most {
    fn take(&mut self, value: IntervalMonthDayNano, is_tied: bool) {
        let order = self.value.map(|it| length_of(value).cmp(&length_of(it)));
        match order {
            Some(Ordering::Equal) => self.is_tied |= is_tied || self.value != Some(value),
            Some(order) if order != self.wanted => {}
            _ => (self.value, self.is_tied) = (Some(value), is_tied),
        }
    }
}

impl Accumulator for Most {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        intervals(&values[0])?.iter().flatten().for_each(|it| self.take(it, false));
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for (value, is_tied) in intervals(&states[0])?.iter().zip(states[1].as_boolean()) {
            if let Some(value) = value {
                self.take(value, is_tied == Some(true));
            }
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let value = ScalarValue::IntervalMonthDayNano(self.value);
        Ok(vec![value, ScalarValue::Boolean(Some(self.is_tied))])
    }

    /// Among several of the same length, PostgreSQL's result depends on the order of rows.
    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.is_tied {
            let what = format!("{} of intervals of one length with different parts", self.name);
            let error = refused(&what).with_hint("Use justify_interval of the intervals.");
            return Err(error.into_engine());
        }
        Ok(ScalarValue::IntervalMonthDayNano(self.value))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}
