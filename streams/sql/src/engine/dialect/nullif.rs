//! `nullif` of two integers: returns the type of the first as in PostgreSQL, while the engine
//! returns the wider one.

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::compute::kernels::cmp::eq;
use datafusion::arrow::compute::{cast, nullif};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::execution::context::SessionState;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// Makes the function of a session preserve the integer type.
pub(super) fn keep_integers(state: &mut SessionState) -> Result<()> {
    let signature = Signature::user_defined(Volatility::Immutable);
    let function = NullIf { inner: state.udf("nullif")?, signature };
    state.register_udf(Arc::new(ScalarUDF::new_from_impl(function)))?;
    Ok(())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NullIf {
    /// The engine's function.
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

fn are_integers(types: &[DataType]) -> bool {
    types.len() == 2 && types.iter().all(DataType::is_signed_integer)
}

impl ScalarUDFImpl for NullIf {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if are_integers(types) {
            return Ok(types.to_vec());
        }
        let field = |it: &DataType| -> FieldRef { Arc::new(Field::new("", it.clone(), true)) };
        let fields: Vec<_> = types.iter().map(field).collect();
        let fields = fields_with_udf(&fields, self.inner.as_ref())?;
        Ok(fields.iter().map(|it| it.data_type().clone()).collect())
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.inner().return_type(types)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let types: Vec<_> = args.args.iter().map(ColumnarValue::data_type).collect();
        if are_integers(&types) && types[0] != types[1] {
            return make_scalar_function(of_integers, Vec::new())(&args.args);
        }
        self.inner.invoke_with_args(args)
    }
}

fn of_integers(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let wide = |it: &ArrayRef| cast(it, &DataType::Int64);
    let are_equal = eq(&wide(&arrays[0])?, &wide(&arrays[1])?)?;
    Ok(nullif(&arrays[0], &are_equal)?)
}
