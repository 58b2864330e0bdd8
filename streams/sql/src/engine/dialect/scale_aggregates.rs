//! Aggregates of scales: that of the first row, and that of the smallest or largest value.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal256Array, Int32Array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Decimal256Type, FieldRef, Int32Type, i256};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, Expr, GroupsAccumulator, ScalarUDF,
    Signature, Volatility,
};

use super::own::{Own, numbers, of_arrow};
use crate::error::SqlError;

/// Number of scales that a packed value tells apart.
const SCALES: i128 = 128;

/// The smaller or the larger of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extreme {
    Min,
    Max,
}

impl Extreme {
    /// Returns the extreme that `min` or `max` selects.
    pub(super) fn of(function: &str) -> Self {
        if function == "min" { Self::Min } else { Self::Max }
    }

    /// Returns a number that is ordered as the value, and contains its scale. Of equal values, the
    /// one with the larger scale is selected.
    pub(super) fn packed(self, value: Expr, scale: Expr) -> Expr {
        let function = match self {
            Self::Min => Own::udf("packed_for_min", 2, packed_type, |it| packed(it, Self::Min)),
            Self::Max => Own::udf("packed_for_max", 2, packed_type, |it| packed(it, Self::Max)),
        };
        function.call(vec![value, scale])
    }

    /// Returns the scale in such a number.
    pub(super) fn scale(self, packed: Expr) -> Expr {
        let int = |_: &[DataType]| Some(DataType::Int32);
        let function: Arc<ScalarUDF> = match self {
            Self::Min => Own::udf("scale_of_min", 1, int, |it| Ok(unpacked(&it[0], Self::Min))),
            Self::Max => Own::udf("scale_of_max", 1, int, |it| Ok(unpacked(&it[0], Self::Max))),
        };
        function.call(vec![packed])
    }

    fn place(self, scale: i128) -> i128 {
        match self {
            Self::Min => SCALES - 1 - scale,
            Self::Max => scale,
        }
    }
}

fn packed_type(_: &[DataType]) -> Option<DataType> {
    Some(DataType::Decimal256(76, 0))
}

/// Values that are too large to contain a scale are NULL, and are shown without trailing zeros.
fn packed(arrays: &[ArrayRef], of: Extreme) -> Result<ArrayRef, SqlError> {
    let scale = match arrays[0].data_type() {
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => *scale,
        _ => 0,
    };
    let wide = cast(&arrays[0], &DataType::Decimal256(76, scale)).map_err(of_arrow)?;
    let count = i256::from_i128(SCALES);
    let pairs = wide.as_primitive::<Decimal256Type>().iter().zip(numbers(&arrays[1])?);
    let found = pairs.map(|(units, scale)| {
        let scale = scale.map(i128::from).filter(|it| (0..SCALES).contains(it))?;
        units?.checked_mul(count)?.checked_add(i256::from_i128(of.place(scale)))
    });
    let found: Decimal256Array = found.collect();
    Ok(Arc::new(found.with_data_type(DataType::Decimal256(76, 0))))
}

fn unpacked(array: &ArrayRef, of: Extreme) -> ArrayRef {
    let count = i256::from_i128(SCALES);
    let numbers = array.as_primitive::<Decimal256Type>();
    let scales = numbers.iter().map(|packed| {
        let rest = packed?.checked_rem(count)?.checked_add(count)?.checked_rem(count)?;
        i32::try_from(of.place(rest.to_i128()?)).ok()
    });
    Arc::new(scales.collect::<Int32Array>())
}

/// The scale of the first row.
pub(super) fn first_scale() -> Arc<AggregateUDF> {
    let signature = Signature::exact(vec![DataType::Int32], Volatility::Immutable);
    Arc::new(AggregateUDF::new_from_impl(FirstScale { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct FirstScale {
    signature: Signature,
}

impl AggregateUDFImpl for FirstScale {
    fn name(&self) -> &'static str {
        "first_scale"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int32)
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::<First>::default())
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(args.return_field.as_ref().clone().with_name(args.name))])
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(
        &self,
        _: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::<Firsts>::default())
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

#[derive(Debug, Default)]
struct First(Option<i32>);

impl Accumulator for First {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0 = self.0.or_else(|| values[0].as_primitive::<Int32Type>().iter().flatten().next());
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Int32(self.0))
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

#[derive(Debug, Default)]
struct Firsts(Vec<Option<i32>>);

impl GroupsAccumulator for Firsts {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        self.0.resize(group_count, None);
        let scales = values[0].as_primitive::<Int32Type>();
        for (row, group) in groups.iter().enumerate() {
            let first = &mut self.0[*group];
            let is_kept = filter.is_none_or(|it| it.is_valid(row) && it.value(row));
            if first.is_none() && is_kept && scales.is_valid(row) {
                *first = Some(scales.value(row));
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        Ok(Arc::new(Int32Array::from(emit_to.take_needed(&mut self.0))))
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
        let is_kept = |row: usize| filter.is_none_or(|it| it.is_valid(row) && it.value(row));
        let scales = values[0].as_primitive::<Int32Type>().iter().enumerate();
        let scales = scales.map(|(row, scale)| scale.filter(|_| is_kept(row)));
        Ok(vec![Arc::new(scales.collect::<Int32Array>())])
    }

    fn size(&self) -> usize {
        self.0.capacity() * size_of::<Option<i32>>()
    }
}
