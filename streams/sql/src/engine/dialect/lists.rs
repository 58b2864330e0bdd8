//! Array functions for which the engine returns another type, or another value for an empty array.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Int32Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

/// Counting functions, and their result for zero.
const COUNTING: &[(&str, Zero)] = &[
    ("array_length", Zero::Null),
    ("array_ndims", Zero::Null),
    ("array_position", Zero::Null),
    ("cardinality", Zero::Zero),
];

/// Result in place of zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Zero {
    Null,
    Zero,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Counting {
    inner: Arc<ScalarUDF>,
    zero: Zero,
}

/// Makes these functions of a session return integer.
pub(super) fn count(state: &mut SessionState) -> Result<()> {
    for (name, zero) in COUNTING {
        let inner = state.udf(name)?;
        let counting = Counting { inner, zero: *zero };
        state.register_udf(Arc::new(ScalarUDF::new_from_impl(counting)))?;
    }
    Ok(())
}

impl ScalarUDFImpl for Counting {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int32)
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.inner().coerce_types(arguments)
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let types: Vec<_> = args.arg_fields.iter().map(|it| it.data_type().clone()).collect();
        let is_empty = |array: &ArrayRef, row: usize| match array.data_type() {
            DataType::List(_) => array.as_list::<i32>().value_length(row) == 0,
            _ => false,
        };
        let lists = args.args[0].to_array(rows)?;
        let returned = self.inner.return_type(&types)?;
        args.return_field = Arc::new(args.return_field.as_ref().clone().with_data_type(returned));
        let is_scalar = args.args.iter().all(|it| matches!(it, ColumnarValue::Scalar(_)));
        let found = self.inner.invoke_with_args(args)?.to_array(rows)?;
        let found = cast(&found, &DataType::Int64)?;
        let counts = found.as_primitive::<Int64Type>().iter().enumerate();
        let counts = counts.map(|(row, count)| {
            let is_null = self.zero == Zero::Null && (count == Some(0) || is_empty(&lists, row));
            count.filter(|_| !is_null).and_then(|it| i32::try_from(it).ok())
        });
        let counts: ArrayRef = Arc::new(counts.collect::<Int32Array>());
        Ok(match is_scalar && rows > 0 {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&counts, 0)?),
            false => ColumnarValue::Array(counts),
        })
    }
}
