//! Inspection and construction of parts of statements.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, UnaryOperator, Value, ValueWithSpan, visit_expressions,
};

use crate::error::{SqlError, SqlState};

/// Maximum number of literals and of other items in an IN list. Building the plan cannot be
/// cancelled.
const LITERAL_COUNT_MAX: usize = 20_000;
pub(super) const OTHER_COUNT_MAX: usize = 500;

/// Maximum product of the operand's size and the number of items that it is compared with.
pub(super) const REPEATED_SIZE_MAX: usize = 20_000;

/// Splits an IN list. When the engine merges lists, it assumes that they contain only literals, and
/// treats NULL as a value. Items that are not literals become comparisons.
pub(super) fn in_list(
    sought: &Expr,
    list: &[Expr],
    is_negated: bool,
) -> Result<Option<Expr>, SqlError> {
    let (literals, others): (Vec<_>, Vec<_>) = list.iter().cloned().partition(is_literal);
    if literals.len() > LITERAL_COUNT_MAX || others.len() > OTHER_COUNT_MAX {
        let what = format!(
            "IN list exceeds the limit of {LITERAL_COUNT_MAX} literals and {OTHER_COUNT_MAX} \
             other expressions"
        );
        return Err(SqlError::new(SqlState::TOO_COMPLEX, what));
    }
    if others.is_empty() {
        return Ok(None);
    }
    // The operand is duplicated for each item, so nested lists would grow exponentially.
    if size_of(sought).saturating_mul(others.len()) > REPEATED_SIZE_MAX {
        let what = format!(
            "IN list too complex: {} expressions are compared with an expression of {} parts",
            others.len(),
            size_of(sought)
        );
        return Err(SqlError::new(SqlState::TOO_COMPLEX, what));
    }
    let equal = |it: &Expr| binary(sought.clone(), BinaryOperator::Eq, it.clone());
    // Several literals are compared first, but a single one in its position, because others can
    // fail.
    let mut alternatives: Vec<_> = match literals.len() {
        0 | 1 => list.iter().map(equal).collect(),
        _ => {
            let (expr, list) = (Box::new(sought.clone()), literals);
            let literals = Expr::InList { expr, list, negated: false };
            std::iter::once(literals).chain(others.iter().map(equal)).collect()
        }
    };
    // As a balanced tree, because plans are walked recursively.
    while alternatives.len() > 1 {
        let pairs = alternatives.chunks(2).map(|pair| match pair {
            [one, other] => binary(one.clone(), BinaryOperator::Or, other.clone()),
            _ => pair[0].clone(),
        });
        alternatives = pairs.collect();
    }
    let Some(any) = alternatives.pop().map(nested) else { return Ok(None) };
    Ok(Some(match is_negated {
        true => nested(Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(any) }),
        false => any,
    }))
}

/// Returns the number of expressions in an expression, including itself.
pub(super) fn size_of(expr: &Expr) -> usize {
    let mut size = 0;
    let _: ControlFlow<()> = visit_expressions(expr, |_| {
        size += 1;
        ControlFlow::Continue(())
    });
    size
}

fn is_literal(expr: &Expr) -> bool {
    match expr {
        Expr::Value(value) => !matches!(value.value, Value::Null | Value::Placeholder(_)),
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => is_literal(expr),
        Expr::Nested(expr) => is_literal(expr),
        Expr::TypedString(_) => true,
        _ => false,
    }
}

pub(super) fn is_timestamp(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(..) => true,
        DataType::Custom(name, _) => name.to_string().eq_ignore_ascii_case("timestamptz"),
        _ => false,
    }
}

/// Returns the time that a word names: `now`, or midnight of a day near today.
pub(super) fn time_of_word(text: &str) -> Option<Expr> {
    let today = || call("current_date", Vec::new());
    let day = |operator| binary(today(), operator, number("1"));
    Some(match text.trim().to_ascii_lowercase().as_str() {
        "now" => call("now", Vec::new()),
        "today" => today(),
        "tomorrow" => nested(day(BinaryOperator::Plus)),
        "yesterday" => nested(day(BinaryOperator::Minus)),
        _ => return None,
    })
}

/// Adds the seconds to a time of day without them.
pub(super) fn add_seconds(text: &mut String) {
    let bytes = text.as_bytes();
    let is_minute = |at: usize| {
        let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
        bytes[at] == b':'
            && at >= 3
            && matches!(bytes[at - 3], b' ' | b'T')
            && is_digit(at + 1)
            && is_digit(at + 2)
    };
    let Some(at) = (0..bytes.len()).find(|at| is_minute(*at)) else { return };
    if bytes.get(at + 3) != Some(&b':') {
        text.insert_str(at + 3, ":00");
    }
}

pub(super) fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => quoted(value),
        Expr::Nested(inner) => text_of(inner),
        _ => None,
    }
}

/// Returns the text of a string literal of any of PostgreSQL's kinds.
pub(super) fn quoted(value: &ValueWithSpan) -> Option<&str> {
    match &value.value {
        Value::SingleQuotedString(text)
        | Value::EscapedStringLiteral(text)
        | Value::UnicodeStringLiteral(text) => Some(text),
        Value::DollarQuotedString(text) => Some(&text.value),
        _ => None,
    }
}

/// Returns whether `float(bits)` is double precision.
pub(super) fn is_double(bits: u64) -> bool {
    const FLOAT4_BITS_MAX: u64 = 24;
    bits > FLOAT4_BITS_MAX
}

/// Returns the value of a numeric literal, which may be negative.
pub(super) fn number_of(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => digits.parse().ok(),
            _ => None,
        },
        Expr::Nested(inner) => number_of(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => number_of(expr).map(|it| -it),
        _ => None,
    }
}

pub(super) fn number(digits: &str) -> Expr {
    Expr::Value(Value::Number(digits.to_owned(), false).into())
}

pub(super) fn nested(expr: Expr) -> Expr {
    Expr::Nested(Box::new(expr))
}

pub(super) fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

pub(super) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let arguments = arguments.into_iter().map(|it| FunctionArg::Unnamed(FunctionArgExpr::Expr(it)));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}
