//! Square roots, powers, exponentials and logarithms: numeric for numerics, otherwise the engine's.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal256Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Decimal256Type, Field, FieldRef, i256};
use datafusion::common::Result;
use datafusion::execution::context::SessionState;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use num_bigint::BigInt;

use super::numerics::{self, Numeric, result_type};
use super::own::does_not_exist;
use crate::error::SqlError;

/// Such functions of the engine.
const NAMES: &[&str] = &["exp", "ln", "log", "log10", "power", "sqrt"];

/// Makes these functions of a session exact for numerics.
pub(super) fn keep_numerics(state: &mut SessionState) -> Result<()> {
    for name in NAMES {
        let inner = state.udf(name)?;
        let signature = Signature::user_defined(Volatility::Immutable);
        state.register_udf(Arc::new(ScalarUDF::new_from_impl(Real { inner, signature })))?;
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Real {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

impl Real {
    /// Returns whether the result is numeric: an argument is numeric, and all are exact. `log` with
    /// a base is also numeric for integers.
    fn is_numeric(&self, types: &[DataType]) -> bool {
        let is_exact = |it: &DataType| it.is_decimal() || it.is_integer() || it.is_null();
        let is_wide = |it: &DataType| it.is_decimal() || *it == DataType::UInt64;
        types.iter().all(is_exact) && (types.iter().any(is_wide) || self.has_base(types))
    }

    fn has_base(&self, types: &[DataType]) -> bool {
        self.name() == "log" && types.len() == 2
    }
}

impl ScalarUDFImpl for Real {
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
        if self.is_numeric(types) {
            return Ok(types.to_vec());
        }
        if self.has_base(types) && types.iter().any(|it| it.is_floating()) {
            return Err(does_not_exist(self.name(), types).into_engine());
        }
        let field = |it: &DataType| -> FieldRef { Arc::new(Field::new("", it.clone(), true)) };
        let fields: Vec<_> = types.iter().map(field).collect();
        let fields = fields_with_udf(&fields, self.inner.as_ref())?;
        Ok(fields.iter().map(|it| it.data_type().clone()).collect())
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match self.is_numeric(types) {
            true => Ok(result_type()),
            false => self.inner.inner().return_type(types),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<_> = args.arg_fields.iter().map(|it| it.data_type().clone()).collect();
        match self.is_numeric(&types) {
            true => {
                let field = Field::new(self.name(), result_type(), true);
                Ok(Arc::new(field))
            }
            false => self.inner.inner().return_field_from_args(args),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if *args.return_type() == DataType::Float64 {
            return self.inner.invoke_with_args(args);
        }
        let name = self.name().to_owned();
        let compute = move |arrays: &[ArrayRef]| of_numerics(&name, arrays);
        make_scalar_function(compute, Vec::new())(&args.args)
    }
}

/// Converts a column of exact numbers to numerics.
pub(in crate::engine) fn numerics_of(array: &ArrayRef) -> Result<Vec<Option<Numeric>>> {
    let scale = match array.data_type() {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => u8::try_from(*scale).unwrap_or(0),
        _ => 0,
    };
    let wide = cast(array, &DataType::Decimal256(76, i8::try_from(scale).unwrap_or(0)))?;
    let numbers = wide.as_primitive::<Decimal256Type>().iter();
    let numeric = |units: i256| Numeric {
        units: BigInt::from_signed_bytes_le(&units.to_le_bytes()),
        scale: u32::from(scale),
    };
    Ok(numbers.map(|it| it.map(numeric)).collect())
}

fn of_numerics(name: &str, arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let found = computed(name, arrays).map_err(SqlError::into_engine)?.into_iter();
    let found = found.map(|it| it.map(|it| it.result()).transpose().map_err(SqlError::into_engine));
    let found = found.collect::<Result<Decimal256Array>>()?;
    Ok(Arc::new(found.with_data_type(result_type())))
}

/// Computes such a function of numerics.
pub(super) fn computed(name: &str, arrays: &[ArrayRef]) -> Result<Vec<Option<Numeric>>, SqlError> {
    let columns = arrays.iter().map(numerics_of).collect::<Result<Vec<_>>>()?;
    let rows = arrays.first().map_or(0, |it| it.len());
    let ten = Numeric { units: BigInt::from(10), scale: 0 };
    let compute = |row: usize| -> Result<Option<Numeric>, SqlError> {
        let Some(first) = &columns[0][row] else { return Ok(None) };
        let second = match columns.get(1).map(|it| &it[row]) {
            Some(None) => return Ok(None),
            Some(Some(second)) => Some(second),
            None => None,
        };
        Ok(Some(match (name, second) {
            ("sqrt", _) => numerics::root(first)?,
            ("exp", _) => numerics::exp(first)?,
            ("ln", _) => numerics::ln(first)?,
            ("power", Some(exponent)) => numerics::power(first, exponent)?,
            ("log", Some(number)) => numerics::log(first, number)?,
            _ => numerics::log(&ten, first)?,
        }))
    };
    (0..rows).map(compute).collect()
}
