//! `sum` with PostgreSQL's result types: bigint for integers and numeric for bigint, so that sums
//! do not overflow. For real it is real.

use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, FieldRef, Float32Type, Float64Type, IntervalUnit,
};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::functions_aggregate::sum::Sum as EngineSum;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF,
    Signature, Volatility,
};

use super::dialect::IntervalSum;
use super::float_sums::{FloatSum, FloatSums, Moving};
use super::names::AVERAGED;

/// Adds 64-bit integers as decimals, floats in sequence, and other types by the engine's own sum.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Sum {
    engine: EngineSum,
    signature: Signature,
    /// Name other than `sum`: the engine rewrites `sum` into sums of partial sums, whose type would
    /// differ here.
    name: &'static str,
    /// Name in statements, in lower case.
    called: [String; 1],
    reals: Reals,
}

/// Accumulator type for real.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reals {
    Real,
    /// For an average.
    Double,
}

/// Returns the aggregates `sum` and its variant for averages.
pub(super) fn sums() -> [AggregateUDF; 2] {
    let sum = |name, called: &str, reals| {
        AggregateUDF::new_from_impl(Sum {
            engine: EngineSum::new(),
            signature: Signature::user_defined(Volatility::Immutable),
            name,
            called: [called.to_owned()],
            reals,
        })
    };
    [sum("SUM", "sum", Reals::Real), sum("AVERAGED_SUM", AVERAGED, Reals::Double)]
}

/// Returns whether an integer type is widened to 64 bits during accumulation. The argument is not
/// cast beforehand, because it would then look like bigint.
fn is_narrow(argument: &DataType) -> bool {
    argument.is_integer() && !matches!(argument, DataType::Int64 | DataType::UInt64)
}

impl AggregateUDFImpl for Sum {
    fn name(&self) -> &'static str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.called
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [argument] = types else { return plan_err!("sum takes one argument") };
        let added = match argument {
            DataType::Int64 | DataType::UInt64 | DataType::Null => {
                DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0)
            }
            it if is_narrow(it) => it.clone(),
            DataType::Float32 if self.reals == Reals::Real => DataType::Float32,
            it if it.is_floating() => DataType::Float64,
            it if is_interval(it) => it.clone(),
            it if it.is_decimal() => it.clone(),
            other => return plan_err!("Invalid function 'sum' of {other}"),
        };
        Ok(vec![added])
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [argument] if is_narrow(argument) => Ok(DataType::Int64),
            [DataType::Float32] => Ok(DataType::Float32),
            [argument] if is_interval(argument) => {
                Ok(DataType::Interval(IntervalUnit::MonthDayNano))
            }
            _ => self.engine.return_type(types),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if takes_intervals(&args) {
            return Ok(Box::new(IntervalSum::default()));
        }
        match float_of(&args) {
            Some(DataType::Float32) => return Ok(Box::new(FloatSum::<Float32Type>::default())),
            Some(_) => return Ok(Box::new(FloatSum::<Float64Type>::default())),
            None => {}
        }
        let is_narrow = takes_narrow(&args);
        let engine = self.engine.accumulator(args)?;
        Ok(if is_narrow { Box::new(Widened(engine)) } else { engine })
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.engine.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !takes_intervals(&args) && self.engine.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        match float_of(&args) {
            Some(DataType::Float32) => return Ok(Box::new(FloatSums::<Float32Type>::default())),
            Some(_) => return Ok(Box::new(FloatSums::<Float64Type>::default())),
            None => {}
        }
        let is_narrow = takes_narrow(&args);
        let engine = self.engine.create_groups_accumulator(args)?;
        Ok(if is_narrow { Box::new(Widened(engine)) } else { engine })
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        if takes_intervals(&args) {
            return Ok(Box::new(IntervalSum::default()));
        }
        match float_of(&args) {
            Some(DataType::Float32) => return Ok(Box::new(Moving::<Float32Type>::sum())),
            Some(_) => return Ok(Box::new(Moving::<Float64Type>::sum())),
            None => {}
        }
        let is_narrow = takes_narrow(&args);
        let engine = self.engine.create_sliding_accumulator(args)?;
        Ok(if is_narrow { Box::new(Widened(engine)) } else { engine })
    }

    /// Sums of floats depend on the order of rows, so they are not reversed.
    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::NotSupported
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

fn is_interval(argument: &DataType) -> bool {
    matches!(argument, DataType::Duration(_) | DataType::Interval(_))
}

fn takes_intervals(args: &AccumulatorArgs<'_>) -> bool {
    args.expr_fields.first().is_some_and(|it| is_interval(it.data_type()))
}

fn takes_narrow(args: &AccumulatorArgs<'_>) -> bool {
    args.expr_fields.first().is_some_and(|it| is_narrow(it.data_type()))
}

/// Returns the float type, if the values of all rows are added and not distinct ones.
fn float_of<'a>(args: &'a AccumulatorArgs<'_>) -> Option<&'a DataType> {
    let of = args.expr_fields.first().map(|it| it.data_type());
    of.filter(|it| matches!(it, DataType::Float32 | DataType::Float64) && !args.is_distinct)
}

/// Adapter that widens narrow integers for an accumulator of 64-bit integers.
#[derive(Debug)]
struct Widened<T>(T);

fn widened(values: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
    values.iter().map(|it| Ok(cast(it, &DataType::Int64)?)).collect()
}

impl Accumulator for Widened<Box<dyn Accumulator>> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(&widened(values)?)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.0.evaluate()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.retract_batch(&widened(values)?)
    }

    fn supports_retract_batch(&self) -> bool {
        self.0.supports_retract_batch()
    }
}

impl GroupsAccumulator for Widened<Box<dyn GroupsAccumulator>> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        self.0.update_batch(&widened(values)?, groups, filter, group_count)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.0.evaluate(emit_to)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.0.state(emit_to)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        group_count: usize,
    ) -> Result<()> {
        self.0.merge_batch(values, groups, group_count)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.0.convert_to_state(&widened(values)?, filter)
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}
