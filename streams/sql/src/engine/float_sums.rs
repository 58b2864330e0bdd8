//! Sums and spreads of floats with PostgreSQL's semantics: values are added one after the other,
//! and an overflow of finite values to infinity is an error. In a moving frame they are recomputed
//! for each row, because a float's addition cannot be undone exactly.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, PrimitiveArray};
use datafusion::arrow::datatypes::{
    ArrowNativeTypeOp, ArrowPrimitiveType, Float32Type, Float64Type,
};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

use super::dialect::Spread;
use crate::error::{SqlError, SqlState};

/// Maximum size of a moving frame: a batch takes time proportional to the product of frame size and
/// batch rows.
const FRAME_VALUES_MAX: usize = 8192;

pub(super) trait Real: ArrowPrimitiveType + Debug {
    fn is_infinite(value: Self::Native) -> bool;
}

impl Real for Float32Type {
    fn is_infinite(value: f32) -> bool {
        value.is_infinite()
    }
}

impl Real for Float64Type {
    fn is_infinite(value: f64) -> bool {
        value.is_infinite()
    }
}

pub(super) fn overflow() -> SqlError {
    SqlError::new(SqlState::OUT_OF_RANGE, "value out of range: overflow")
}

/// Sum of the values so far; `None` without any.
#[derive(Clone, Copy, Debug, Default)]
struct Total<N> {
    sum: Option<N>,
    /// True if a value was infinite.
    has_infinite: bool,
}

impl<N: ArrowNativeTypeOp> Total<N> {
    fn add<T: Real<Native = N>>(&mut self, value: N) -> Result<()> {
        let sum = self.sum.map_or(value, |sum| sum.add_wrapping(value));
        self.has_infinite |= T::is_infinite(value);
        self.sum = Some(sum);
        match T::is_infinite(sum) && !self.has_infinite {
            true => Err(overflow().into_engine()),
            false => Ok(()),
        }
    }
}

/// Sum over all rows.
#[derive(Debug)]
pub(super) struct FloatSum<T: Real>(Total<T::Native>);

impl<T: Real> Default for FloatSum<T> {
    fn default() -> Self {
        Self(Total::default())
    }
}

impl<T: Real> Accumulator for FloatSum<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let mut values = values[0].as_primitive::<T>().iter().flatten();
        values.try_for_each(|value| self.0.add::<T>(value))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::new_primitive::<T>(self.0.sum, &T::DATA_TYPE)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }
}

/// Sums by group.
#[derive(Debug)]
pub(super) struct FloatSums<T: Real>(Vec<Total<T::Native>>);

impl<T: Real> Default for FloatSums<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Real> GroupsAccumulator for FloatSums<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        self.0.resize_with(group_count, Total::default);
        let values = values[0].as_primitive::<T>();
        for (row, group) in groups.iter().enumerate() {
            if values.is_valid(row) && passes(filter, row) {
                self.0[*group].add::<T>(values.value(row))?;
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let totals = emit_to.take_needed(&mut self.0);
        let sums: PrimitiveArray<T> = totals.into_iter().map(|it| it.sum).collect();
        Ok(Arc::new(sums))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit_to)?])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        group_count: usize,
    ) -> Result<()> {
        self.update_batch(values, groups, None, group_count)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = values[0].as_primitive::<T>().iter().enumerate();
        let kept: PrimitiveArray<T> =
            values.map(|(row, value)| value.filter(|_| passes(filter, row))).collect();
        Ok(vec![Arc::new(kept)])
    }

    fn size(&self) -> usize {
        self.0.capacity() * size_of::<Total<T::Native>>()
    }
}

fn passes(filter: Option<&BooleanArray>, row: usize) -> bool {
    filter.is_none_or(|it| it.is_valid(row) && it.value(row))
}

/// Count, sum, and sum of squared deviations from the mean.
#[derive(Clone, Copy, Debug)]
pub(super) struct FloatSpread {
    of: Spread,
    count: f64,
    sum: f64,
    squares: f64,
}

impl FloatSpread {
    pub(super) const fn new(of: Spread) -> Self {
        Self { of, count: 0.0, sum: 0.0, squares: 0.0 }
    }

    fn add(&mut self, value: f64) -> Result<()> {
        let (before, is_first) = (self.sum, self.count == 0.0);
        self.count += 1.0;
        self.sum += value;
        if is_first {
            // For infinities and NaN the deviation is undefined.
            self.squares = if value.is_finite() { 0.0 } else { f64::NAN };
            return Ok(());
        }
        let apart = value * self.count - self.sum;
        self.squares += apart * apart / (self.count * (self.count - 1.0));
        if self.sum.is_infinite() || self.squares.is_infinite() {
            if before.is_finite() && value.is_finite() {
                return Err(overflow().into_engine());
            }
            self.squares = f64::NAN;
        }
        Ok(())
    }

    fn merge(&mut self, other: &Self) -> Result<()> {
        if other.count == 0.0 {
            return Ok(());
        }
        if self.count == 0.0 {
            *self = Self { of: self.of, ..*other };
            return Ok(());
        }
        let count = self.count + other.count;
        let apart = self.sum / self.count - other.sum / other.count;
        let squares =
            self.squares + other.squares + self.count * other.count * apart * apart / count;
        let sum = self.sum + other.sum;
        let is_over =
            |it: f64, parts: [f64; 2]| it.is_infinite() && !parts.iter().any(|it| it.is_infinite());
        if is_over(sum, [self.sum, other.sum]) || is_over(squares, [self.squares, other.squares]) {
            return Err(overflow().into_engine());
        }
        *self = Self { of: self.of, count, sum, squares };
        Ok(())
    }

    fn found(&self) -> Option<f64> {
        let (is_sample, is_root) = match self.of {
            Spread::VariancePopulation => (false, false),
            Spread::VarianceSample => (true, false),
            Spread::DeviationPopulation => (false, true),
            Spread::DeviationSample => (true, true),
        };
        let count = if is_sample { self.count - 1.0 } else { self.count };
        let variance = (count > 0.0).then(|| self.squares / count)?;
        Some(if is_root { variance.sqrt() } else { variance })
    }
}

impl Accumulator for FloatSpread {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let mut values = values[0].as_primitive::<Float64Type>().iter().flatten();
        values.try_for_each(|value| self.add(value))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.found()))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let parts = [self.count, self.sum, self.squares];
        Ok(parts.map(|it| ScalarValue::Float64(Some(it))).to_vec())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [counts, sums, squares] = states else {
            return internal_err!("a variance has three parts");
        };
        let floats = |it: &ArrayRef| it.as_primitive::<Float64Type>().clone();
        let (counts, sums, squares) = (floats(counts), floats(sums), floats(squares));
        for row in 0..counts.len() {
            let (count, sum) = (counts.value(row), sums.value(row));
            self.merge(&Self { of: self.of, count, sum, squares: squares.value(row) })?;
        }
        Ok(())
    }
}

/// Checks the size of a moving frame.
pub(super) fn check_frame(count: usize) -> Result<()> {
    if count <= FRAME_VALUES_MAX {
        return Ok(());
    }
    let what = format!(
        "aggregates of floating-point values over a moving window frame of more than \
         {FRAME_VALUES_MAX} rows are not supported"
    );
    Err(SqlError::unsupported(what).with_hint("Cast to numeric.").into_engine())
}

/// Creates the accumulator for the values of a frame.
type Make = fn(Option<Spread>) -> Box<dyn Accumulator>;

/// Values of a moving frame, and the aggregate to compute.
#[derive(Debug)]
pub(super) struct Moving<T: Real> {
    values: VecDeque<T::Native>,
    of: Option<Spread>,
    make: Make,
}

impl<T: Real> Moving<T> {
    pub(super) fn sum() -> Self {
        Self { values: VecDeque::new(), of: None, make: |_| Box::new(FloatSum::<T>::default()) }
    }
}

impl Moving<Float64Type> {
    pub(super) fn spread(of: Spread) -> Self {
        let make: Make = |of| {
            Box::new(FloatSpread::new(of.unwrap_or(Spread::VarianceSample))) as Box<dyn Accumulator>
        };
        Self { values: VecDeque::new(), of: Some(of), make }
    }
}

impl<T: Real> Accumulator for Moving<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.extend(values[0].as_primitive::<T>().iter().flatten());
        check_frame(self.values.len())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let count = values[0].len() - values[0].null_count();
        self.values.drain(..count.min(self.values.len()));
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut made = (self.make)(self.of);
        let values: PrimitiveArray<T> = self.values.iter().copied().map(Some).collect();
        made.update_batch(&[Arc::new(values)])?;
        made.evaluate()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<T::Native>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("a frame has no parts")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        internal_err!("a frame has no parts")
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Float64Array;

    use super::*;

    fn floats(values: &[f64]) -> [ArrayRef; 1] {
        [Arc::new(Float64Array::from(values.to_vec()))]
    }

    #[test]
    fn nothing_is_left_of_what_went_out_of_a_frame() -> Result<()> {
        let mut moving = Moving::<Float64Type>::sum();
        moving.update_batch(&floats(&[1e20, 1.0]))?;
        moving.update_batch(&floats(&[2.0]))?;
        moving.retract_batch(&floats(&[1e20]))?;
        assert_eq!(moving.evaluate()?, ScalarValue::Float64(Some(3.0)));
        moving.retract_batch(&floats(&[1.0, 2.0]))?;
        assert_eq!(moving.evaluate()?, ScalarValue::Float64(None));
        let long = moving.update_batch(&floats(&vec![0.5; FRAME_VALUES_MAX + 1]));
        assert!(long.is_err(), "each row would add them all");
        Ok(())
    }

    #[test]
    fn finite_values_have_no_infinite_sum_but_infinite_ones_have() -> Result<()> {
        let mut sum = FloatSum::<Float64Type>::default();
        assert!(sum.update_batch(&floats(&[1e308, 1e308])).is_err());
        let mut sum = FloatSum::<Float64Type>::default();
        sum.update_batch(&floats(&[f64::INFINITY, 1e308, 1e308]))?;
        assert_eq!(sum.evaluate()?, ScalarValue::Float64(Some(f64::INFINITY)));
        Ok(())
    }

    #[test]
    fn a_spread_of_parts_is_that_of_all() -> Result<()> {
        let mut whole = FloatSpread::new(Spread::VariancePopulation);
        whole.update_batch(&floats(&[2.0, 4.0, 9.0]))?;
        assert_eq!(whole.evaluate()?, ScalarValue::Float64(Some(26.0 / 3.0)));
        let mut merged = FloatSpread::new(Spread::VariancePopulation);
        for part in [&[2.0][..], &[], &[4.0, 9.0]] {
            let mut one = FloatSpread::new(Spread::VariancePopulation);
            one.update_batch(&floats(part))?;
            merged.merge(&one)?;
        }
        assert!(merged.found().is_some_and(|it| (it - 26.0 / 3.0).abs() < 1e-12), "{merged:?}");
        Ok(())
    }
}
