//! JSON in texts: PostgreSQL's operators `->`, `->>`, `#>`, `#>>` and `?`, which parse only what
//! precedes the requested field.
//!
//! Invalid JSON and missing fields result in NULL.

use std::any::Any;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, StringViewArray, StringViewBuilder,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{DFSchema, Result, ScalarValue, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ExpressionPlacement, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, binary_expr, lit,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use live_queries::{InvalidEscape, JsonStep, find_json, scalar_text};
use record_batch::Headers;

use super::dialect::{To, conversion_call};
use crate::error::{SqlError, SqlState};
use crate::wire::{PgType, array_elements, json_field, jsonb_field};

/// Result type of a path lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Wanted {
    /// JSON.
    Json,
    /// Text: a string without its quotes. JSON's null is NULL.
    Text,
    /// Boolean: the field exists.
    Presence,
}

/// `json_get(json, path…)` and its variants. The steps of the path are field names or array
/// indexes.
#[derive(Debug, PartialEq, Eq, Hash)]
struct JsonGet {
    wanted: Wanted,
    signature: Signature,
}

impl JsonGet {
    fn udf(wanted: Wanted) -> Arc<ScalarUDF> {
        let signature = Signature::variadic_any(Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(Self { wanted, signature }))
    }
}

/// Returns a lookup of a path of names and indexes, as JSON or as text.
pub(crate) fn field(json: Expr, path: Vec<Expr>, as_json: bool) -> Expr {
    let wanted = if as_json { Wanted::Json } else { Wanted::Text };
    let arguments = std::iter::once(json).chain(path).collect();
    Expr::ScalarFunction(ScalarFunction::new_udf(JsonGet::udf(wanted), arguments))
}

/// Returns all JSON functions.
pub(crate) fn functions() -> Vec<Arc<ScalarUDF>> {
    [Wanted::Json, Wanted::Text, Wanted::Presence].map(JsonGet::udf).to_vec()
}

impl ScalarUDFImpl for JsonGet {
    fn name(&self) -> &str {
        match self.wanted {
            Wanted::Json => "json_get",
            Wanted::Text => "json_get_text",
            Wanted::Presence => "json_exists",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        if arguments.is_empty() {
            return plan_err!("{} takes JSON and a path", self.name());
        }
        Ok(match self.wanted {
            Wanted::Json | Wanted::Text => DataType::Utf8View,
            Wanted::Presence => DataType::Boolean,
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<_> = args.arg_fields.iter().map(|it| it.data_type().clone()).collect();
        let data_type = self.return_type(&types)?;
        Ok(Arc::new(match self.wanted {
            Wanted::Json if args.arg_fields.first().is_some_and(is_jsonb) => {
                jsonb_field(self.name(), data_type)
            }
            Wanted::Json => json_field(self.name(), data_type),
            Wanted::Text | Wanted::Presence => Field::new(self.name(), data_type, true),
        }))
    }

    /// Lookups with a constant path are pushed down to the scan, which parses each record once for
    /// all of them.
    fn placement(&self, arguments: &[ExpressionPlacement]) -> ExpressionPlacement {
        match arguments.split_first() {
            Some((ExpressionPlacement::Column, path))
                if path.iter().all(|it| *it == ExpressionPlacement::Literal) =>
            {
                ExpressionPlacement::MoveTowardsLeafNodes
            }
            _ => ExpressionPlacement::KeepInPlace,
        }
    }

    /// The engine's default has no data type, so nothing can be computed from it.
    fn evaluate_bounds(&self, _: &[&Interval]) -> Result<Interval> {
        Interval::make_unbounded(&match self.wanted {
            Wanted::Json | Wanted::Text => DataType::Utf8View,
            Wanted::Presence => DataType::Boolean,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|it| matches!(it, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let Some((input, path)) = args.args.split_first() else {
            return plan_err!("{} takes JSON and a path", self.name());
        };
        let input = cast(&input.to_array(rows)?, &DataType::Utf8View)?;
        let path = Path::of(path, rows)?;
        let found = self.find(input.as_string_view(), &path, is_scalar)?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?),
            false => ColumnarValue::Array(found),
        })
    }
}

impl JsonGet {
    fn find(&self, input: &StringViewArray, path: &Path, is_scalar: bool) -> Result<ArrayRef> {
        let rows = (0..input.len()).map(|row| {
            let text = (!input.is_null(row)).then(|| input.value(row))?;
            path.at(row).map(|path| (text, path))
        });
        if self.wanted == Wanted::Presence {
            let found = rows.map(|it| it.map(|(text, path)| has(text, &path)));
            return Ok(Arc::new(BooleanArray::from_iter(found)));
        }
        let mut builder = StringViewBuilder::with_capacity(input.len());
        for row in rows {
            let found = row.and_then(|(text, path)| get(text, &path));
            match (found, self.wanted) {
                (None, _) => builder.append_null(),
                (Some(value), Wanted::Json) => builder.append_value(value),
                (Some(value), _) => match scalar_text(value) {
                    Ok(text) => builder.append_option(text),
                    Err(InvalidEscape) if is_scalar => {
                        return Err(SqlError::untranslatable().into_engine());
                    }
                    // One invalid record must not fail the whole query.
                    Err(InvalidEscape) => builder.append_null(),
                },
            }
        }
        Ok(Arc::new(builder.finish()))
    }
}

/// A step of a path.
#[derive(Clone, Debug)]
enum Step {
    Name(String),
    /// Array index. Negative ones count from the end.
    Index(i64),
    /// An integer in a path: array index, or name of an object's field.
    Either(String, i64),
}

/// The path in each row.
enum Path {
    /// Constant path; `None` if a step is NULL.
    Fixed(Option<Vec<Step>>),
    Columns(Vec<ArrayRef>),
}

impl Path {
    fn of(steps: &[ColumnarValue], rows: usize) -> Result<Self> {
        let scalars: Option<Vec<_>> = steps
            .iter()
            .map(|it| match it {
                ColumnarValue::Scalar(scalar) => Some(scalar),
                ColumnarValue::Array(_) => None,
            })
            .collect();
        if let Some(scalars) = scalars {
            return Ok(Self::Fixed(scalars.into_iter().map(step_of).collect()));
        }
        let columns = steps.iter().map(|it| {
            let array = it.to_array(rows)?;
            let to =
                if array.data_type().is_integer() { DataType::Int64 } else { DataType::Utf8View };
            Ok(cast(&array, &to)?)
        });
        Ok(Self::Columns(columns.collect::<Result<_>>()?))
    }

    fn at(&self, row: usize) -> Option<std::borrow::Cow<'_, [Step]>> {
        match self {
            Self::Fixed(steps) => steps.as_deref().map(Into::into),
            Self::Columns(columns) => {
                let steps = columns.iter().map(|column| {
                    if column.is_null(row) {
                        return None;
                    }
                    Some(match column.data_type() {
                        DataType::Int64 => {
                            Step::Index(column.as_primitive::<Int64Type>().value(row))
                        }
                        _ => Step::Name(column.as_string_view().value(row).to_owned()),
                    })
                });
                steps.collect::<Option<Vec<_>>>().map(Into::into)
            }
        }
    }
}

fn step_of(scalar: &ScalarValue) -> Option<Step> {
    match scalar {
        ScalarValue::Utf8(text) | ScalarValue::Utf8View(text) => text.clone().map(Step::Name),
        ScalarValue::LargeUtf8(text) => {
            let index = text.as_deref()?.trim().parse().ok()?;
            text.clone().map(|name| Step::Either(name, index))
        }
        other => match other.cast_to(&DataType::Int64) {
            Ok(ScalarValue::Int64(number)) => number.map(Step::Index),
            _ => None,
        },
    }
}

/// Returns the value at the end of a path.
fn get<'a>(text: &'a str, path: &[Step]) -> Option<&'a str> {
    let numbered = path.iter().position(|it| matches!(it, Step::Either(..)));
    if let Some((at, Step::Either(name, index))) = numbered.map(|at| (at, &path[at])) {
        let container = get(text, &path[..at])?;
        let step = match container.trim_start().starts_with('[') {
            true => Step::Index(*index),
            false => Step::Name(name.clone()),
        };
        let found = get(container, &[step])?;
        return get(found, &path[at + 1..]);
    }
    if path.is_empty() {
        return Some(text);
    }
    let steps: Vec<JsonStep<'_>> = path
        .iter()
        .map(|step| match step {
            Step::Name(name) => JsonStep::Key(name),
            Step::Index(index) => JsonStep::Index(*index),
            Step::Either(..) => unreachable!("it was split off"),
        })
        .collect();
    find_json(text, &steps)
}

/// Returns whether a name is a field of an object, or a string in an array.
fn has(text: &str, path: &[Step]) -> bool {
    let Some((Step::Name(name), before)) = path.split_last() else {
        return get(text, path).is_some();
    };
    let Some(container) = get(text, before) else { return false };
    let is_it = |it: &str| {
        it.starts_with('"') && scalar_text(it).is_ok_and(|it| it.as_deref() == Some(name))
    };
    match container.trim_start().as_bytes().first() {
        Some(b'{') => get(text, path).is_some(),
        Some(b'[') => {
            let element = |at| find_json(container, &[JsonStep::Index(at)]);
            (0..).map_while(element).any(is_it)
        }
        _ => is_it(container.trim()),
    }
}

/// Converts operators to calls, and separates texts from numbers as PostgreSQL does: an untyped
/// literal takes the type of the other operand, and a text is comparable with a number only after a
/// cast.
#[derive(Debug)]
pub(crate) struct Operators;

impl ExprPlanner for Operators {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let wanted = match expr.op {
            BinaryOperator::Arrow | BinaryOperator::HashArrow => Wanted::Json,
            BinaryOperator::LongArrow | BinaryOperator::HashLongArrow => Wanted::Text,
            BinaryOperator::Question => Wanted::Presence,
            _ => return compare(expr, schema),
        };
        let steps = match expr.op {
            BinaryOperator::HashArrow | BinaryOperator::HashLongArrow => path_of(&expr.right)?,
            _ => vec![expr.right],
        };
        // A jsonb operand stays unparsed in between: only the result is converted to jsonb.
        let (left, is_jsonb) = match expr.left {
            Expr::ScalarFunction(mut call) if call.func.name() == To::Jsonb.name() => {
                match call.args.pop() {
                    Some(inner) => (inner, true),
                    None => return plan_err!("jsonb takes one argument"),
                }
            }
            other => (other, false),
        };
        // A chain of operators becomes one call.
        let mut arguments = match left {
            Expr::ScalarFunction(inner) if is_json_get(&inner) => inner.args,
            other => vec![other],
        };
        arguments.extend(steps);
        let get = |wanted, arguments| {
            Expr::ScalarFunction(ScalarFunction::new_udf(JsonGet::udf(wanted), arguments))
        };
        Ok(PlannerResult::Planned(match (wanted, is_jsonb) {
            (Wanted::Json, true) => conversion_call(To::Jsonb, get(wanted, arguments)),
            (Wanted::Text, true) => {
                let found = conversion_call(To::Jsonb, get(Wanted::Json, arguments));
                get(wanted, vec![found])
            }
            _ => get(wanted, arguments),
        }))
    }
}

/// Returns whether a field is jsonb. Parts of a jsonb are jsonb too.
fn is_jsonb(field: &FieldRef) -> bool {
    PgType::of(field) == PgType::JSONB
}

fn is_json_get(call: &ScalarFunction) -> bool {
    wanted_of(&call.func) == Some(Wanted::Json)
}

/// Returns the result type of a path lookup, if the function is one.
pub(super) fn wanted_of(function: &ScalarUDF) -> Option<Wanted> {
    let inner: &dyn Any = function.inner().as_ref();
    inner.downcast_ref::<JsonGet>().map(|it| it.wanted)
}

/// Parses a path in PostgreSQL's notation: `{a,0,"b c"}`.
fn path_of(expr: &Expr) -> Result<Vec<Expr>> {
    let (Expr::Literal(ScalarValue::Utf8(Some(text)), _)
    | Expr::Literal(ScalarValue::Utf8View(Some(text)), _)) = expr
    else {
        let what = "operators #> and #>> are supported only with a literal path, such as '{a,b}'";
        return Err(SqlError::unsupported(what).into_engine());
    };
    let steps = array_elements(text).map_err(SqlError::into_engine)?;
    let step = |it: Option<String>| match it {
        None => lit(ScalarValue::Utf8(None)),
        // LargeUtf8 marks a step that can be a name or an index.
        Some(number) if number.trim().parse::<i64>().is_ok() => {
            lit(ScalarValue::LargeUtf8(Some(number)))
        }
        Some(name) => lit(name),
    };
    Ok(steps.into_iter().map(step).collect())
}

fn compare(expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
    let operator = match expr.op {
        BinaryOperator::Eq => Operator::Eq,
        BinaryOperator::NotEq => Operator::NotEq,
        BinaryOperator::Lt => Operator::Lt,
        BinaryOperator::LtEq => Operator::LtEq,
        BinaryOperator::Gt => Operator::Gt,
        BinaryOperator::GtEq => Operator::GtEq,
        _ => return Ok(PlannerResult::Original(expr)),
    };
    let (Ok(left), Ok(right)) = (expr.left.get_type(schema), expr.right.get_type(schema)) else {
        return Ok(PlannerResult::Original(expr));
    };
    if let Some(planned) = of_bytes(&expr, (&left, &right), operator) {
        return Ok(PlannerResult::Planned(planned));
    }
    let (left_is_text, right_is_text) = (left.is_string(), right.is_string());
    if left_is_text == right_is_text || !(is_apart(&left) || is_apart(&right)) {
        return Ok(PlannerResult::Original(expr));
    }
    let is_literal = |it: &Expr| matches!(it, Expr::Literal(..));
    let (left_expr, right_expr) = match (is_literal(&expr.left), is_literal(&expr.right)) {
        (true, _) if left_is_text => (expr.left.cast_to(&right, schema)?, expr.right),
        (_, true) if right_is_text => (expr.left, expr.right.cast_to(&left, schema)?),
        _ => {
            let name = |data_type| PgType::of_data(data_type).name();
            let (left, right) = (name(&left), name(&right));
            let what = format!("operator does not exist: {left} {operator} {right}");
            let error = SqlError::new(SqlState::UNDEFINED_FUNCTION, what).with_hint(
                "You might need to add explicit type casts, as in (value->>'price')::numeric.",
            );
            return Err(error.into_engine());
        }
    };
    Ok(PlannerResult::Planned(binary_expr(left_expr, operator, right_expr)))
}

/// Converts an untyped literal to bytea if the other operand is.
fn of_bytes(
    expr: &RawBinaryExpr,
    (left, right): (&DataType, &DataType),
    operator: Operator,
) -> Option<Expr> {
    let is_quoted = |it: &Expr, of: &DataType| of.is_string() && matches!(it, Expr::Literal(..));
    let bytes = |it: &Expr| conversion_call(To::Bytea, it.clone());
    match (left, right) {
        (DataType::Binary, of) if is_quoted(&expr.right, of) => {
            Some(binary_expr(expr.left.clone(), operator, bytes(&expr.right)))
        }
        (of, DataType::Binary) if is_quoted(&expr.left, of) => {
            Some(binary_expr(bytes(&expr.left), operator, expr.right.clone()))
        }
        _ => None,
    }
}

/// Returns whether texts need a cast to be compared with this type.
fn is_apart(data_type: &DataType) -> bool {
    data_type.is_numeric() || data_type.is_temporal() || *data_type == DataType::Boolean
}

/// Formats the headers of a record as a JSON object. A repeated name has an array of values. Bytes
/// that are not UTF-8 are formatted like PostgreSQL's bytea: `\x…`.
pub(crate) fn headers_text(headers: &Headers<'_>) -> String {
    let text = |bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("\\x{digits}")
        }
    };
    let quoted = |text: &str| serde_json::to_string(text).expect("texts are JSON");
    let mut names: Vec<String> = Vec::new();
    let mut values: Vec<Vec<String>> = Vec::new();
    for (name, value) in headers.iter() {
        let name = text(name);
        let value = value.map_or_else(|| "null".to_owned(), |it| quoted(&text(it)));
        match names.iter().position(|known| *known == name) {
            Some(index) => values[index].push(value),
            None => {
                names.push(name);
                values.push(vec![value]);
            }
        }
    }
    let fields: Vec<String> = names
        .iter()
        .zip(values)
        .map(|(name, values)| match values.as_slice() {
            [one] => format!("{}: {one}", quoted(name)),
            many => format!("{}: [{}]", quoted(name), many.join(", ")),
        })
        .collect();
    format!("{{{}}}", fields.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str, path: &[Step]) -> Option<String> {
        get(text, path).map(str::to_owned)
    }

    #[test]
    fn text_of_many_brackets_is_no_json() {
        for text in ["[".repeat(2_000_000), "{\"a\":".repeat(500_000)] {
            assert_eq!(find(&text, &[Step::Name("a".to_owned())]), None);
            assert_eq!(find(&text, &[Step::Index(0)]), None);
            assert_eq!(find(&format!("{{\"a\": {text}"), &[Step::Name("a".to_owned())]), None);
        }
    }

    #[test]
    fn a_value_is_found_by_names_and_numbers() {
        let text = r#"{"a": {"b": [1, "two", {"c": null}]}, "d": "x"}"#;
        let name = |name: &str| Step::Name(name.to_owned());
        assert_eq!(find(text, &[name("d")]).as_deref(), Some("\"x\""));
        let list = [name("a"), name("b")];
        let at = |index| [&list[..], &[Step::Index(index)]].concat();
        assert_eq!(find(text, &at(1)).as_deref(), Some("\"two\""));
        assert_eq!(find(text, &at(-3)).as_deref(), Some("1"));
        for index in [3, -4, i64::MIN, i64::MAX] {
            assert_eq!(find(text, &at(index)), None);
        }
        assert_eq!(find(text, &[name("e")]), None);
        assert_eq!(find(text, &[Step::Index(0)]), None);
        assert_eq!(find("no JSON", &[name("a")]), None);
        assert_eq!(find("", &[name("a")]), None);
        assert_eq!(find(r#"{"a": 1, "a": 2}"#, &[name("a")]).as_deref(), Some("2"));
    }
}
