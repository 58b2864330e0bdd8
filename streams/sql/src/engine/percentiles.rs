//! `percentile_cont` in double precision. The engine's version interpolates in steps of a
//! millionth, and returns `real` for `real`.

use std::mem::{size_of, take};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::expressions::Literal;

use crate::error::{SqlError, SqlState};

const NAME: &str = "percentile_cont";

/// Replaces the engine's version in a session.
pub(super) fn compute_exactly(state: &mut SessionState) -> Result<()> {
    let signature = Signature::user_defined(Volatility::Immutable);
    // Otherwise the engine's version remains under its alias.
    state.deregister_udaf(NAME)?;
    state.register_udaf(Arc::new(AggregateUDF::new_from_impl(Percentile { signature })))?;
    Ok(())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Percentile {
    signature: Signature,
}

fn list() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Float64, true)))
}

impl AggregateUDFImpl for Percentile {
    fn name(&self) -> &'static str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [DataType::Interval(_), _] => {
                let what = "percentile_cont of intervals is not supported";
                Err(SqlError::unsupported(what).into_engine())
            }
            [of, part] if [of, part].into_iter().all(|it| it.is_numeric() || it.is_null()) => {
                Ok(vec![DataType::Float64; 2])
            }
            _ => {
                let what = "function percentile_cont for these argument types does not exist";
                Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, what).into_engine())
            }
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format!("{}[values]", args.name), list(), true))])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let part = args.exprs[1].downcast_ref::<Literal>().ok_or_else(|| {
            let what = "percentile_cont with a fraction that depends on the row is not supported";
            SqlError::unsupported(what).into_engine()
        })?;
        let part = match part.value().cast_to(&DataType::Float64)? {
            ScalarValue::Float64(part) => part,
            _ => None,
        };
        if let Some(part) = part
            && !(0.0..=1.0).contains(&part)
        {
            let what = format!("percentile value {part} is not between 0 and 1");
            return Err(SqlError::new(SqlState::OUT_OF_RANGE, what).into_engine());
        }
        let is_descending = args.order_bys.first().is_some_and(|it| it.options.descending);
        Ok(Box::new(Values { values: Vec::new(), part, is_descending }))
    }

    fn supports_within_group_clause(&self) -> bool {
        true
    }
}

/// Values of a group, sorted at its end.
#[derive(Debug)]
struct Values {
    values: Vec<f64>,
    part: Option<f64>,
    is_descending: bool,
}

impl Values {
    fn take_all(&mut self, array: &ArrayRef) {
        self.values.extend(array.as_primitive::<Float64Type>().iter().flatten());
    }

    /// Interpolates linearly between the values around the fraction.
    fn between(&mut self) -> Option<f64> {
        let part = self.part.filter(|_| !self.values.is_empty())?;
        self.values.sort_unstable_by(f64::total_cmp);
        if self.is_descending {
            self.values.reverse();
        }
        let last = u32::try_from(self.values.len() - 1).map_or(f64::INFINITY, f64::from);
        let place = part * last;
        let at = |place: f64| self.values[index_of(place).min(self.values.len() - 1)];
        let (before, behind) = (place.floor(), place.ceil());
        Some(match before < behind {
            true => at(before) + (place - before) * (at(behind) - at(before)),
            false => at(before),
        })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "places are counted from zero, and fewer than 2^32"
)]
fn index_of(place: f64) -> usize {
    place as usize
}

impl Accumulator for Values {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.take_all(&values[0]);
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for list in states[0].as_list::<i32>().iter().flatten() {
            self.take_all(&list);
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values: Vec<_> = take(&mut self.values).into_iter().map(ScalarValue::from).collect();
        Ok(vec![ScalarValue::List(ScalarValue::new_list_nullable(&values, &DataType::Float64))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.between()))
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.values.capacity() * size_of::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_between_values() {
        let at = |part: f64, is_descending, values: &[f64]| {
            let (values, part) = (values.to_vec(), Some(part));
            Values { values, part, is_descending }.between()
        };
        assert_eq!(at(0.95, false, &[30.0, 10.0, 20.0]), Some(29.0));
        assert_eq!(at(0.25, true, &[1.0, 2.0, 3.0, 4.0]), Some(3.25));
        assert_eq!(at(1.0, false, &[1.0, 2.0]), Some(2.0));
        assert_eq!(at(0.5, false, &[7.0]), Some(7.0));
        assert_eq!(at(0.5, false, &[]), None);
    }
}
