//! Aggregates of pairs of floats: correlation, covariances and linear regression. They have the
//! sums of PostgreSQL (Youngs and Cramer), in its order of operations, and are NULL and NaN in the
//! same cases. Pairs with a NULL do not count.

use std::collections::VecDeque;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Float64Array};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};

use super::float_sums::{check_frame, overflow};
use crate::error::SqlError;

const AGGREGATES: &[(&str, Of)] = &[
    ("corr", Of::Correlation),
    ("covar_pop", Of::CovariancePopulation),
    ("covar_samp", Of::CovarianceSample),
    ("regr_avgx", Of::AverageX),
    ("regr_avgy", Of::AverageY),
    ("regr_count", Of::Count),
    ("regr_intercept", Of::Intercept),
    ("regr_r2", Of::Determination),
    ("regr_slope", Of::Slope),
    ("regr_sxx", Of::SquaresX),
    ("regr_sxy", Of::Products),
    ("regr_syy", Of::SquaresY),
];

/// Result of an aggregate of pairs (y, x).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Of {
    AverageX,
    AverageY,
    Correlation,
    Count,
    CovariancePopulation,
    CovarianceSample,
    Determination,
    Intercept,
    Products,
    Slope,
    SquaresX,
    SquaresY,
}

/// Replaces the engine's aggregates of a session.
pub(super) fn register(state: &mut SessionState) -> Result<()> {
    for &(name, of) in AGGREGATES {
        let arguments = vec![DataType::Float64, DataType::Float64];
        let signature = Signature::exact(arguments, Volatility::Immutable);
        let own = Regression { name, of, signature };
        state.register_udaf(Arc::new(AggregateUDF::new_from_impl(own)))?;
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Regression {
    name: &'static str,
    of: Of,
    signature: Signature,
}

impl AggregateUDFImpl for Regression {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(if self.of == Of::Count { DataType::Int64 } else { DataType::Float64 })
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            let what = format!("{} with DISTINCT is not supported", self.name);
            let hint = "Select the distinct pairs in a subquery.";
            return Err(SqlError::unsupported(what).with_hint(hint).into_engine());
        }
        Ok(Box::new(All { of: self.of, sums: Sums::default() }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let field = |part: &str| {
            let name = format!("{}[{part}]", args.name);
            Arc::new(Field::new(name, DataType::Float64, true))
        };
        Ok(["count", "x", "xx", "y", "yy", "xy"].map(field).to_vec())
    }

    fn create_sliding_accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Moving { of: self.of, pairs: VecDeque::new() }))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// Count, sums, and sums of products of deviations from the means.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: f64,
    x: f64,
    xx: f64,
    y: f64,
    yy: f64,
    xy: f64,
}

impl Sums {
    fn add(&mut self, (y, x): (f64, f64)) -> Result<()> {
        let before = *self;
        self.count += 1.0;
        self.x += x;
        self.y += y;
        if before.count == 0.0 {
            // For infinities and NaN the deviations are undefined.
            if !x.is_finite() {
                (self.xx, self.xy) = (f64::NAN, f64::NAN);
            }
            if !y.is_finite() {
                (self.yy, self.xy) = (f64::NAN, f64::NAN);
            }
            return Ok(());
        }
        let (apart_x, apart_y) = (x * self.count - self.x, y * self.count - self.y);
        let scale = 1.0 / (self.count * before.count);
        self.xx += apart_x * apart_x * scale;
        self.yy += apart_y * apart_y * scale;
        self.xy += apart_x * apart_y * scale;
        let is_x_finite = !before.x.is_infinite() && !x.is_infinite();
        let is_y_finite = !before.y.is_infinite() && !y.is_infinite();
        let is_over = (self.x.is_infinite() || self.xx.is_infinite()) && is_x_finite
            || (self.y.is_infinite() || self.yy.is_infinite()) && is_y_finite
            || self.xy.is_infinite() && is_x_finite && is_y_finite;
        for squares in [&mut self.xx, &mut self.yy, &mut self.xy] {
            if squares.is_infinite() {
                *squares = f64::NAN;
            }
        }
        if is_over { Err(overflow().into_engine()) } else { Ok(()) }
    }

    fn merge(&mut self, other: &Self) -> Result<()> {
        if other.count == 0.0 {
            return Ok(());
        }
        if self.count == 0.0 {
            *self = *other;
            return Ok(());
        }
        let count = self.count + other.count;
        let apart_x = self.x / self.count - other.x / other.count;
        let apart_y = self.y / self.count - other.y / other.count;
        let weight = self.count * other.count;
        let merged = Self {
            count,
            x: self.x + other.x,
            xx: self.xx + other.xx + weight * apart_x * apart_x / count,
            y: self.y + other.y,
            yy: self.yy + other.yy + weight * apart_y * apart_y / count,
            xy: self.xy + other.xy + weight * apart_x * apart_y / count,
        };
        let parts = self.parts().into_iter().zip(other.parts()).zip(merged.parts());
        let mut over = parts.filter(|((one, two), all)| {
            all.is_infinite() && !one.is_infinite() && !two.is_infinite()
        });
        if over.next().is_some() {
            return Err(overflow().into_engine());
        }
        *self = merged;
        Ok(())
    }

    fn parts(&self) -> [f64; 6] {
        [self.count, self.x, self.xx, self.y, self.yy, self.xy]
    }

    fn result(&self, of: Of) -> ScalarValue {
        match of {
            #[expect(clippy::cast_possible_truncation, reason = "a count of rows is an integer")]
            Of::Count => ScalarValue::Int64(Some(self.count as i64)),
            _ => ScalarValue::Float64(self.found(of)),
        }
    }

    fn found(&self, of: Of) -> Option<f64> {
        let Self { count, x, xx, y, yy, xy } = *self;
        let count_min = if of == Of::CovarianceSample { 2.0 } else { 1.0 };
        if count < count_min {
            return None;
        }
        let is_vertical = xx == 0.0;
        Some(match of {
            Of::AverageX => x / count,
            Of::AverageY => y / count,
            Of::Count => count,
            Of::CovariancePopulation => xy / count,
            Of::CovarianceSample => xy / (count - 1.0),
            Of::Products => xy,
            Of::SquaresX => xx,
            Of::SquaresY => yy,
            _ if is_vertical => return None,
            Of::Correlation if yy == 0.0 => return None,
            Of::Correlation => xy / (xx * yy).sqrt(),
            Of::Determination if yy == 0.0 => 1.0,
            Of::Determination => xy * xy / (xx * yy),
            Of::Intercept => (y - x * xy / xx) / count,
            Of::Slope => xy / xx,
        })
    }
}

/// Returns the pairs without NULL.
fn pairs(values: &[ArrayRef]) -> Result<impl Iterator<Item = (f64, f64)>> {
    let [ys, xs] = values else { return internal_err!("a regression is of two columns") };
    let (ys, xs) = (ys.as_primitive::<Float64Type>(), xs.as_primitive::<Float64Type>());
    Ok(ys.iter().zip(xs).filter_map(|(y, x)| Some((y?, x?))))
}

/// Aggregate of all rows.
#[derive(Debug)]
struct All {
    of: Of,
    sums: Sums,
}

impl Accumulator for All {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        pairs(values)?.try_for_each(|pair| self.sums.add(pair))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.sums.result(self.of))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(self.sums.parts().map(|it| ScalarValue::Float64(Some(it))).to_vec())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let columns: Vec<&Float64Array> = states.iter().map(|it| it.as_primitive()).collect();
        let [count, x, xx, y, yy, xy] = columns[..] else {
            return internal_err!("a regression has six parts");
        };
        (0..count.len()).try_for_each(|row| {
            let at = |column: &Float64Array| column.value(row);
            let (xx, yy, xy) = (at(xx), at(yy), at(xy));
            self.sums.merge(&Sums { count: at(count), x: at(x), xx, y: at(y), yy, xy })
        })
    }
}

/// Pairs of a moving frame. As in PostgreSQL, the aggregate is computed anew for each row.
#[derive(Debug)]
struct Moving {
    of: Of,
    pairs: VecDeque<(f64, f64)>,
}

impl Accumulator for Moving {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.pairs.extend(pairs(values)?);
        check_frame(self.pairs.len())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let count = pairs(values)?.count();
        self.pairs.drain(..count.min(self.pairs.len()));
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut sums = Sums::default();
        self.pairs.iter().try_for_each(|pair| sums.add(*pair))?;
        Ok(sums.result(self.of))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.pairs.capacity() * size_of::<(f64, f64)>()
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
    use super::*;

    const PAIRS: &[(f64, f64)] = &[(2.0, 1.0), (5.0, 2.0), (4.0, 4.0), (8.5, 3.0)];

    fn sums(pairs: &[(f64, f64)]) -> Result<Sums> {
        let mut sums = Sums::default();
        pairs.iter().try_for_each(|it| sums.add(*it))?;
        Ok(sums)
    }

    #[test]
    fn sums_of_parts_are_those_of_all() -> Result<()> {
        let whole = sums(PAIRS)?;
        for at in 0..=PAIRS.len() {
            let mut merged = sums(&PAIRS[..at])?;
            merged.merge(&sums(&PAIRS[at..])?)?;
            for (one, other) in merged.parts().into_iter().zip(whole.parts()) {
                assert!((one - other).abs() < 1e-12, "{merged:?} instead of {whole:?}");
            }
        }
        Ok(())
    }

    #[test]
    fn overflows_of_finite_values_fail_and_infinite_values_have_no_line() -> Result<()> {
        assert!(sums(&[(0.0, 1e308), (0.0, 1e308)]).is_err());
        assert!(sums(&[(1e200, 1e200), (-1e200, 0.0)]).is_err());
        let infinite = sums(&[(1.0, 1.0), (2.0, f64::INFINITY)])?;
        assert!(infinite.found(Of::Slope).is_some_and(f64::is_nan), "{infinite:?}");
        assert_eq!(infinite.found(Of::SquaresY), Some(0.5));
        Ok(())
    }
}
