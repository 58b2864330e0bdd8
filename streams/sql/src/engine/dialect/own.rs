//! Functions of PostgreSQL implemented in this crate, each as a plain function over columns.

use std::fmt::Display;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringViewArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::Result;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::strict;
use crate::error::{SqlError, SqlState};
use crate::wire::PgType;

/// A function, identified by its name.
#[derive(Debug)]
pub(super) struct Own {
    name: &'static str,
    signature: Signature,
    /// Result type, or `None` if the function is not defined for these types.
    type_of: fn(&[DataType]) -> Option<DataType>,
    compute: fn(&[ArrayRef]) -> Result<ArrayRef, SqlError>,
}

impl Own {
    pub(super) fn udf(
        name: &'static str,
        argument_count: usize,
        type_of: fn(&[DataType]) -> Option<DataType>,
        compute: fn(&[ArrayRef]) -> Result<ArrayRef, SqlError>,
    ) -> Arc<ScalarUDF> {
        let signature = Signature::any(argument_count, Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(Self { name, signature, type_of, compute }))
    }
}

impl PartialEq for Own {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Own {}

impl Hash for Own {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Own {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        (self.type_of)(types).ok_or_else(|| does_not_exist(self.name, types).into_engine())
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        strict::simplified(self, args, info)
    }

    /// The engine's default has no data type, so nothing can be computed from it.
    fn evaluate_bounds(&self, operands: &[&Interval]) -> Result<Interval> {
        let types: Vec<_> = operands.iter().map(|it| it.data_type()).collect();
        Interval::make_unbounded(&self.return_type(&types)?)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let compute = |arrays: &[_]| (self.compute)(arrays).map_err(SqlError::into_engine);
        make_scalar_function(compute, Vec::new())(&args.args)
    }
}

/// Error: a function is not defined for these types.
pub(super) fn does_not_exist(name: &str, types: &[DataType]) -> SqlError {
    let types: Vec<_> = types.iter().map(sql_name).collect();
    let what = format!("function {name}({}) does not exist", types.join(", "));
    SqlError::new(SqlState::UNDEFINED_FUNCTION, what)
        .with_hint("You might need to add explicit type casts.")
}

/// Returns the name of a type in messages.
pub(super) fn sql_name(data_type: &DataType) -> &'static str {
    match data_type.is_null() {
        true => "unknown",
        false => PgType::of_data(data_type).name(),
    }
}

/// Casts a column to text.
pub(super) fn texts(array: &ArrayRef) -> Result<StringViewArray, SqlError> {
    let array = cast(array, &DataType::Utf8View).map_err(of_arrow)?;
    Ok(array.as_string_view().clone())
}

/// Casts a column to 64-bit integers.
pub(super) fn numbers(array: &ArrayRef) -> Result<Vec<Option<i64>>, SqlError> {
    let array = cast(array, &DataType::Int64).map_err(of_arrow)?;
    Ok(array.as_primitive::<Int64Type>().iter().collect())
}

/// Converts an Arrow error.
pub(super) fn of_arrow(error: datafusion::arrow::error::ArrowError) -> SqlError {
    SqlError::from(datafusion::common::DataFusionError::from(error))
}

/// Maps each text.
pub(super) fn changed(
    array: &ArrayRef,
    change: impl Fn(&str) -> Result<Option<String>, SqlError>,
) -> Result<ArrayRef, SqlError> {
    let texts = texts(array)?;
    let mut found = datafusion::arrow::array::StringViewBuilder::with_capacity(texts.len());
    for text in &texts {
        match text {
            None => found.append_null(),
            Some(text) => found.append_option(change(text)?),
        }
    }
    Ok(Arc::new(found.finish()))
}

/// Error: an operator is not defined for the types of its operands.
pub(super) fn no_operator(operator: &dyn Display) -> SqlError {
    let what = format!("operator does not exist: {operator} for these operand types");
    SqlError::new(SqlState::UNDEFINED_FUNCTION, what)
        .with_hint("You might need to add explicit type casts.")
}
