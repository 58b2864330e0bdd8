//! Functions whose results can be much larger than their arguments. The engine does not account for
//! memory allocated by functions, so these reserve it beforehand.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringViewArray, StringViewBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::utils::list_ndims;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr, RawWindowExpr};
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::dialect::{CONCAT_TEXTS, joins_texts, type_of, unmarked};
use super::memory::CallMemory;
use crate::error::{SqlError, SqlState};
use crate::giving_up::{check, is_planning};

/// Maximum size of the results of one call for a batch of rows.
const RESULT_BYTES_MAX: u64 = 32 << 20;

/// Maximum size of a constant that becomes part of a plan.
const FOLDED_BYTES_MAX: u64 = 64 << 10;

/// Functions that create lists of arbitrary length. PostgreSQL's clients do not need them, so they
/// are removed.
const LEFT_OUT: &[&str] = &["array_repeat", "array_resize", "generate_series", "range"];

/// Upper bound of a result's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Growth {
    /// A text and a repeat count.
    Repeat,
    /// A text, the length of the result in characters, and the fill text.
    Pad,
    /// A text, the search text, and the replacement.
    Replace,
    /// Numeric functions.
    None,
    /// Sum of all arguments.
    Sum,
    /// A text that is split into parts.
    Split,
}

/// Overhead per element of a list.
const PIECE_BYTES: u64 = 16;

const GROWING: &[(&str, Growth)] = &[
    ("repeat", Growth::Repeat),
    ("lpad", Growth::Pad),
    ("rpad", Growth::Pad),
    ("replace", Growth::Replace),
    ("concat", Growth::Sum),
    ("concat_ws", Growth::Sum),
    ("make_array", Growth::Sum),
    ("array_append", Growth::Sum),
    ("array_prepend", Growth::Sum),
    ("array_concat", Growth::Sum),
    ("string_to_array", Growth::Split),
];

/// Functions that derive from the range of their argument whether they preserve an order. For
/// nested calls the engine cannot compare the ranges, and rejects a plan that sorts by such a call.
/// Therefore these report no order.
const UNORDERED: &[&str] = &[
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "atan2", "cos", "cosh", "ln", "log",
    "log2", "log10", "sin", "sinh", "sqrt", "tanh",
];

/// Replaces the functions of a session by bounded ones.
pub(super) fn bound(state: &mut SessionState) -> Result<()> {
    for name in LEFT_OUT {
        state.deregister_udf(name)?;
    }
    let unordered = UNORDERED.iter().map(|name| (name, &Growth::None));
    for (name, growth) in GROWING.iter().map(|(name, growth)| (name, growth)).chain(unordered) {
        let inner = state.udf(name)?;
        state
            .register_udf(Arc::new(ScalarUDF::new_from_impl(Bounded { inner, growth: *growth })))?;
    }
    Ok(())
}

/// Operators implemented by such functions.
#[derive(Debug)]
pub(super) struct Operators {
    concat_texts: Arc<ScalarUDF>,
    concat_lists: Arc<ScalarUDF>,
    append: Arc<ScalarUDF>,
    prepend: Arc<ScalarUDF>,
    make_list: Arc<ScalarUDF>,
}

impl Operators {
    /// Creates the rule for a session with bounded functions.
    pub(super) fn new(state: &SessionState) -> Result<Self> {
        let inner = Arc::new(ScalarUDF::new_from_impl(ConcatTexts::default()));
        let bounded = Bounded { inner, growth: Growth::Sum };
        Ok(Self {
            concat_texts: Arc::new(ScalarUDF::new_from_impl(bounded)),
            concat_lists: state.udf("array_concat")?,
            append: state.udf("array_append")?,
            prepend: state.udf("array_prepend")?,
            make_list: state.udf("make_array")?,
        })
    }
}

impl ExprPlanner for Operators {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        if expr.op != BinaryOperator::StringConcat {
            return Ok(PlannerResult::Original(expr));
        }
        let (Ok(left), Ok(right)) = (type_of(&expr.left, schema), type_of(&expr.right, schema))
        else {
            return Ok(PlannerResult::Original(expr));
        };
        let function = match (list_ndims(&left), list_ndims(&right)) {
            (0, 0) if left.is_string() && right.is_string() => &self.concat_texts,
            (0, 0) => return Ok(PlannerResult::Original(expr)),
            (left, right) if left == right => &self.concat_lists,
            (left, right) if left > right => &self.append,
            _ => &self.prepend,
        };
        // A chain of concatenated texts becomes one call.
        let is_longer = joins_texts(function);
        let mut arguments = match unmarked(expr.left, |it| is_longer && joins_texts(&it.func)) {
            Ok(call) => call.args,
            Err(other) => vec![other],
        };
        arguments.push(expr.right);
        let call = ScalarFunction::new_udf(Arc::clone(function), arguments);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }

    /// Each row would hold its own list as long as the frame.
    fn plan_window(&self, window: RawWindowExpr) -> Result<PlannerResult<RawWindowExpr>> {
        let name = window.func_def.name().to_owned();
        if matches!(name.as_str(), "array_agg" | "string_agg") {
            let what = format!("{name} is not supported as a window function");
            return Err(SqlError::unsupported(what).into_engine());
        }
        Ok(PlannerResult::Original(window))
    }

    fn plan_array_literal(
        &self,
        elements: Vec<Expr>,
        _: &DFSchema,
    ) -> Result<PlannerResult<Vec<Expr>>> {
        let call = ScalarFunction::new_udf(Arc::clone(&self.make_list), elements);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }
}

/// Function that implements `||` of texts.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ConcatTexts {
    signature: Signature,
}

impl Default for ConcatTexts {
    fn default() -> Self {
        Self { signature: Signature::variadic(vec![DataType::Utf8View], Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for ConcatTexts {
    fn name(&self) -> &'static str {
        CONCAT_TEXTS
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|it| matches!(it, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let columns = args.args.iter().map(|it| it.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let columns: Vec<_> = columns.iter().map(|it| it.as_string_view()).collect();
        let mut found = StringViewBuilder::with_capacity(rows);
        let mut joined = String::new();
        for row in 0..rows {
            if columns.iter().any(|it| it.is_null(row)) {
                found.append_null();
                continue;
            }
            joined.clear();
            columns.iter().for_each(|it| joined.push_str(it.value(row)));
            found.append_value(&joined);
        }
        let found: ArrayRef = Arc::new(found.finish());
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?),
            false => ColumnarValue::Array(found),
        })
    }
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

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|it| matches!(it, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        // A negative length would make the engine allocate a huge buffer.
        if self.growth == Growth::Pad
            && let Some(ColumnarValue::Scalar(ScalarValue::Int64(Some(length)))) =
                args.args.get_mut(1)
        {
            *length = (*length).max(0);
        }
        if self.growth == Growth::None {
            return self.inner.invoke_with_args(args);
        }
        check().map_err(SqlError::into_engine)?;
        let bytes = self.growth.bytes(&args.args, rows)?;
        // Plans are copied often, so a large value remains a call.
        let folds = is_planning() && !CallMemory::counts(&args);
        let bytes_max = if folds { FOLDED_BYTES_MAX } else { RESULT_BYTES_MAX };
        if bytes > bytes_max {
            let what = format!(
                "result of {} is too large: {bytes} bytes for {rows} rows exceed the limit of \
                 {bytes_max}",
                self.name()
            );
            return Err(SqlError::new(SqlState::TOO_LARGE, what).into_engine());
        }
        // A scalar result may be expanded to one value per row.
        let times = if is_scalar && bytes > FOLDED_BYTES_MAX { args.number_rows as u64 } else { 1 };
        CallMemory::take(&args, bytes.saturating_mul(times))?;
        self.inner.invoke_with_args(args)
    }
}

impl Growth {
    /// Returns the maximum size of the results for `rows` rows.
    fn bytes(self, arguments: &[ColumnarValue], rows: usize) -> Result<u64> {
        if self == Self::Sum {
            let bytes = |it: &ColumnarValue| bytes_of(it, rows);
            return arguments.iter().try_fold(0_u64, |sum, it| Ok(sum.saturating_add(bytes(it)?)));
        }
        let text = |index: usize| texts(arguments, index, rows);
        let length = |column: &Option<StringViewArray>, row: usize| {
            let column = column.as_ref().filter(|it| !it.is_null(row));
            column.map_or(0, |it| it.value(row).len() as u64)
        };
        let source = text(0)?;
        let counts = match self {
            Self::Repeat | Self::Pad => numbers(arguments, 1, rows)?,
            Self::Replace | Self::Split | Self::Sum | Self::None => {
                vec![0; rows]
            }
        };
        let second = if self == Self::Replace { text(1)? } else { None };
        let third = if matches!(self, Self::Repeat | Self::Split) { None } else { text(2)? };
        let mut sum = 0_u64;
        for (row, count) in counts.into_iter().enumerate() {
            let (source, third) = (length(&source, row), length(&third, row));
            let bytes = match self {
                Self::Repeat => source.saturating_mul(count),
                // A fill character takes at most the bytes of the whole fill text.
                Self::Pad => source.saturating_add(count.saturating_mul(third.clamp(1, 4))),
                Self::Replace => {
                    let matches = source.checked_div(length(&second, row)).unwrap_or(0);
                    source.saturating_add(matches.saturating_mul(third))
                }
                Self::Split => (source + 1).saturating_mul(1 + PIECE_BYTES),
                Self::Sum | Self::None => 0,
            };
            sum = sum.saturating_add(bytes);
        }
        Ok(sum)
    }
}

/// Returns the bytes of an argument's values in all rows.
fn bytes_of(argument: &ColumnarValue, rows: usize) -> Result<u64> {
    let (array, times) = match argument {
        ColumnarValue::Array(array) => (Arc::clone(array), 1),
        ColumnarValue::Scalar(scalar) => (scalar.to_array()?, rows as u64),
    };
    Ok((array_bytes(&array)? as u64).saturating_mul(times))
}

/// Returns the bytes of an array's values, excluding other data in shared buffers.
pub(super) fn array_bytes(array: &ArrayRef) -> Result<usize> {
    let view_bytes = array.len() * size_of::<u128>();
    Ok(match array.data_type() {
        DataType::Utf8View => view_bytes + array.as_string_view().total_bytes_len(),
        DataType::BinaryView => view_bytes + array.as_binary_view().total_bytes_len(),
        _ => array.to_data().get_slice_memory_size()?,
    })
}

/// Returns an argument as texts, or `None` if it is missing.
fn texts(
    arguments: &[ColumnarValue],
    index: usize,
    rows: usize,
) -> Result<Option<StringViewArray>> {
    let Some(argument) = arguments.get(index) else { return Ok(None) };
    let array = cast(&argument.to_array(rows)?, &DataType::Utf8View)?;
    Ok(Some(array.as_string_view().clone()))
}

/// Returns an argument as numbers, with 0 for negative values and NULL.
fn numbers(arguments: &[ColumnarValue], index: usize, rows: usize) -> Result<Vec<u64>> {
    let Some(argument) = arguments.get(index) else { return Ok(vec![0; rows]) };
    let array = cast(&argument.to_array(rows)?, &DataType::Int64)?;
    let array = array.as_primitive::<Int64Type>();
    Ok(array.iter().map(|it| it.and_then(|it| u64::try_from(it).ok()).unwrap_or(0)).collect())
}
