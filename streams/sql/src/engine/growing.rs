//! Functions whose results may be far longer than their arguments. What functions allocate is not
//! counted as the query's memory, so these say beforehand what they would take.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, StringViewArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::Result;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

use crate::error::{SqlError, SqlState};

/// What one call may make for one batch of rows.
const RESULT_BYTES_MAX: u64 = 16 << 20;

/// Lists as long as a number says: nothing that PostgreSQL's clients need, and without a bound.
const LEFT_OUT: &[&str] = &["array_repeat", "array_resize", "generate_series", "range"];

/// How long a result may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Growth {
    /// A text, and how often it comes.
    Repeat,
    /// A text, how many characters the result has, and what fills it up.
    Pad,
    /// A text, what is looked for in it, and what takes its place.
    Replace,
    /// The same with a pattern, which may match anywhere.
    ReplacePattern,
}

const GROWING: &[(&str, Growth)] = &[
    ("repeat", Growth::Repeat),
    ("lpad", Growth::Pad),
    ("rpad", Growth::Pad),
    ("replace", Growth::Replace),
    ("regexp_replace", Growth::ReplacePattern),
];

/// Puts bounds on the functions of a session that need them.
pub(super) fn bound(state: &mut SessionState) -> Result<()> {
    for name in LEFT_OUT {
        state.deregister_udf(name)?;
    }
    for (name, growth) in GROWING {
        let inner = state.udf(name)?;
        state
            .register_udf(Arc::new(ScalarUDF::new_from_impl(Bounded { inner, growth: *growth })))?;
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    inner: Arc<ScalarUDF>,
    growth: Growth,
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.inner().return_type(arguments)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.inner().return_field_from_args(args)
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.inner().coerce_types(arguments)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|it| matches!(it, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let bytes = self.growth.bytes(&args.args, rows)?;
        if bytes > RESULT_BYTES_MAX {
            let what = format!(
                "{} would make {bytes} bytes of {rows} rows, and {RESULT_BYTES_MAX} are allowed",
                self.name()
            );
            return Err(SqlError::new(SqlState::TOO_LARGE, what).into_engine());
        }
        self.inner.invoke_with_args(args)
    }
}

impl Growth {
    /// The most that the results of so many rows take.
    fn bytes(self, arguments: &[ColumnarValue], rows: usize) -> Result<u64> {
        let text = |index: usize| texts(arguments, index, rows);
        let length = |column: &Option<StringViewArray>, row: usize| {
            let column = column.as_ref().filter(|it| !it.is_null(row));
            column.map_or(0, |it| it.value(row).len() as u64)
        };
        let source = text(0)?;
        let counts = match self {
            Self::Repeat | Self::Pad => numbers(arguments, 1, rows)?,
            Self::Replace | Self::ReplacePattern => vec![0; rows],
        };
        let second = if self == Self::Replace { text(1)? } else { None };
        let third = if self == Self::Repeat { None } else { text(2)? };
        let mut sum = 0_u64;
        for (row, count) in counts.into_iter().enumerate() {
            let (source, third) = (length(&source, row), length(&third, row));
            let bytes = match self {
                Self::Repeat => source.saturating_mul(count),
                // A character of what fills it up takes no more than all of that.
                Self::Pad => source.saturating_add(count.saturating_mul(third.clamp(1, 4))),
                Self::Replace => {
                    let matches = source.checked_div(length(&second, row)).unwrap_or(0);
                    source.saturating_add(matches.saturating_mul(third))
                }
                // What a pattern has matched may be put in as often as the replacement says.
                Self::ReplacePattern => {
                    let replaced = (source + 1).saturating_mul(third);
                    replaced.saturating_add(source.saturating_mul(third + 1))
                }
            };
            sum = sum.saturating_add(bytes);
        }
        Ok(sum)
    }
}

/// `None` where there is no such argument.
fn texts(
    arguments: &[ColumnarValue],
    index: usize,
    rows: usize,
) -> Result<Option<StringViewArray>> {
    let Some(argument) = arguments.get(index) else { return Ok(None) };
    let array = cast(&argument.to_array(rows)?, &DataType::Utf8View)?;
    Ok(Some(array.as_string_view().clone()))
}

/// Those below zero, and NULLs, are zero.
fn numbers(arguments: &[ColumnarValue], index: usize, rows: usize) -> Result<Vec<u64>> {
    let Some(argument) = arguments.get(index) else { return Ok(vec![0; rows]) };
    let array = cast(&argument.to_array(rows)?, &DataType::Int64)?;
    let array = array.as_primitive::<Int64Type>();
    Ok(array.iter().map(|it| it.and_then(|it| u64::try_from(it).ok()).unwrap_or(0)).collect())
}
