//! Variances and standard deviations. For integers and numerics they are numeric, computed from
//! exact sums as in PostgreSQL. For floats they are floats.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef, Int64Type,
};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};
use num_bigint::BigInt;

use super::dialect::{Spread, Sums, numeric_result_type, numerics_of, spread};
use super::float_sums::{FloatSpread, Moving};
use super::regressions;
use crate::error::SqlError;

/// The engine's aggregates by name.
const SPREADS: &[(&str, Spread)] = &[
    ("var_pop", Spread::VariancePopulation),
    ("var", Spread::VarianceSample),
    ("stddev_pop", Spread::DeviationPopulation),
    ("stddev", Spread::DeviationSample),
];

/// Makes the aggregates of a session exact for integers and numerics, and those of pairs of floats
/// as in PostgreSQL.
pub(super) fn keep_numerics(state: &mut SessionState) -> Result<()> {
    for (name, of) in SPREADS {
        let inner = state.udaf(name)?;
        let signature = Signature::user_defined(Volatility::Immutable);
        let own = SpreadOf { of: *of, inner, signature };
        state.register_udaf(Arc::new(AggregateUDF::new_from_impl(own)))?;
    }
    regressions::register(state)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SpreadOf {
    of: Spread,
    inner: Arc<AggregateUDF>,
    signature: Signature,
}

fn is_exact(argument: &DataType) -> bool {
    argument.is_decimal()
}

fn takes_exact(fields: &[FieldRef]) -> bool {
    fields.first().is_some_and(|it| is_exact(it.data_type()))
}

impl AggregateUDFImpl for SpreadOf {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [argument] = types else { return plan_err!("{} takes one argument", self.name()) };
        Ok(vec![match argument {
            it if it.is_integer() => DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0),
            it if is_exact(it) => it.clone(),
            it if it.is_floating() || it.is_null() => DataType::Float64,
            other => return plan_err!("Invalid function '{}' of {other}", self.name()),
        }])
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [argument] if is_exact(argument) => Ok(numeric_result_type()),
            _ => Ok(DataType::Float64),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if !takes_exact(args.expr_fields) {
            return match args.is_distinct {
                true => self.inner.accumulator(args),
                false => Ok(Box::new(FloatSpread::new(self.of))),
            };
        }
        if args.is_distinct {
            let what = format!("{} with DISTINCT next to other aggregates", self.name());
            let error = SqlError::unsupported(format!("{what} is not supported"));
            return Err(error.with_hint("Compute it in a separate query.").into_engine());
        }
        Ok(Box::new(Exact {
            of: self.of,
            sums: Sums::default(),
            scale: scale_of(args.expr_fields),
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let field = |part: &str, data_type| {
            Arc::new(Field::new(format!("{}[{part}]", args.name), data_type, true))
        };
        if !takes_exact(args.input_fields) {
            return match args.is_distinct {
                true => self.inner.state_fields(args),
                false => {
                    let parts = ["count", "sum", "squares"];
                    Ok(parts.map(|it| field(it, DataType::Float64)).to_vec())
                }
            };
        }
        Ok(vec![
            field("count", DataType::Int64),
            field("sum", DataType::Utf8),
            field("squares", DataType::Utf8),
        ])
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs<'_>) -> bool {
        false
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        match takes_exact(args.expr_fields) || args.is_distinct {
            true => self.accumulator(args),
            false => Ok(Box::new(Moving::spread(self.of))),
        }
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

fn scale_of(fields: &[FieldRef]) -> u32 {
    match fields.first().map(|it| it.data_type()) {
        Some(DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale)) => {
            u32::try_from(*scale).unwrap_or(0)
        }
        _ => 0,
    }
}

/// Exact sums of values with `scale` fractional digits.
#[derive(Debug)]
struct Exact {
    of: Spread,
    sums: Sums,
    scale: u32,
}

impl Exact {
    fn add(&mut self, values: &[ArrayRef], times: i64) -> Result<()> {
        let [values] = values else { return internal_err!("a variance is of one column") };
        for value in numerics_of(values)?.into_iter().flatten() {
            self.sums.count += times;
            self.sums.squares += &value.units * &value.units * times;
            self.sums.sum += value.units * times;
        }
        Ok(())
    }
}

impl Accumulator for Exact {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(values, 1)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(values, -1)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let found = spread(self.of, &self.sums, self.scale);
        let found = found.and_then(|it| it.map(|it| it.result()).transpose());
        let found = found.map_err(SqlError::into_engine)?;
        Ok(ScalarValue::Decimal256(found, 76, 30))
    }

    fn size(&self) -> usize {
        let bits = self.sums.sum.bits() + self.sums.squares.bits();
        size_of_val(self) + usize::try_from(bits / 8).unwrap_or(0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![
            ScalarValue::Int64(Some(self.sums.count)),
            ScalarValue::Utf8(Some(self.sums.sum.to_string())),
            ScalarValue::Utf8(Some(self.sums.squares.to_string())),
        ])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [counts, sums, squares] = states else {
            return internal_err!("a variance has three parts");
        };
        let counts = counts.as_primitive::<Int64Type>().iter();
        let (sums, squares) = (sums.as_string::<i32>().iter(), squares.as_string::<i32>().iter());
        let number = |it: Option<&str>| it.and_then(|it| it.parse().ok()).unwrap_or(BigInt::ZERO);
        for (count, (sum, square)) in counts.zip(sums.zip(squares)) {
            self.sums.count += count.unwrap_or(0);
            self.sums.sum += number(sum);
            self.sums.squares += number(square);
        }
        Ok(())
    }
}
