//! Expressions that the engine understands in another way than PostgreSQL, written as it
//! understands them right.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, CharacterLength, DataType, ExactNumberInfo, Expr, Function,
    FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName,
    OrderByKind, Query, Select, SelectItem, SetExpr, Statement, UnaryOperator, Value,
    ValueWithSpan, VisitMut, VisitorMut, visit_expressions,
};

use super::casts::{INT2, INT4, INT8, NUMERIC};
use super::names::name_columns;
use super::patterns::similar_to_regex;
use crate::error::{SqlError, SqlState};

/// Items of a list after IN: plans are not cancelled while they are made.
const LITERAL_COUNT_MAX: usize = 20_000;
const OTHER_COUNT_MAX: usize = 500;

/// The size of what is sought, times the items that it is compared with.
const REPEATED_SIZE_MAX: usize = 20_000;

/// Has the parts of a statement mean what they mean in PostgreSQL, and their columns have the names
/// that they have there.
pub(in crate::engine) fn adapt(statement: &mut Statement) -> Result<(), SqlError> {
    match statement.visit(&mut Adapter) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Adapter;

impl VisitorMut for Adapter {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        order_by_place(query);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        name_columns(select);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        let changed = match expr {
            Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner } => negated(inner),
            Expr::UnaryOp { op: UnaryOperator::BitwiseNot, expr: inner } => {
                Some(binary(number("-1"), BinaryOperator::Minus, nested(inner.as_ref().clone())))
            }
            Expr::SimilarTo { negated, expr: text, pattern, escape_char } => {
                match similar(*negated, text, pattern, escape_char.as_ref()) {
                    Ok(found) => Some(found),
                    Err(error) => return ControlFlow::Break(error),
                }
            }
            Expr::InList { expr: sought, list, negated } => match in_list(sought, list, *negated) {
                Ok(found) => found,
                Err(error) => return ControlFlow::Break(error),
            },
            Expr::Cast {
                kind: CastKind::Cast | CastKind::DoubleColon,
                expr: inner,
                data_type,
                ..
            } => cast(inner, data_type),
            Expr::Interval(interval) => {
                if let Expr::Value(ValueWithSpan {
                    value: Value::SingleQuotedString(text), ..
                }) = interval.value.as_mut()
                {
                    *text = spelled(text);
                }
                None
            }
            Expr::TypedString(typed) => {
                if let (true, Value::SingleQuotedString(text)) =
                    (is_timestamp(&typed.data_type), &mut typed.value.value)
                {
                    add_seconds(text);
                }
                None
            }
            _ => None,
        };
        if let Some(changed) = changed {
            *expr = changed;
        }
        ControlFlow::Continue(())
    }
}

/// What DISTINCT rows are sorted by stands among their columns, and is told by its place there.
fn order_by_place(query: &mut Query) {
    let (SetExpr::Select(select), Some(order_by)) = (query.body.as_ref(), &mut query.order_by)
    else {
        return;
    };
    let (Some(_), OrderByKind::Expressions(list)) = (&select.distinct, &mut order_by.kind) else {
        return;
    };
    let is_one = |it: &SelectItem| {
        matches!(it, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
    };
    if !select.projection.iter().all(is_one) {
        return;
    }
    for sorted in list {
        let is_it = |it: &SelectItem| *it == SelectItem::UnnamedExpr(sorted.expr.clone());
        if let Some(index) = select.projection.iter().position(is_it) {
            sorted.expr = number(&(index + 1).to_string());
        }
    }
}

/// `-a ^ b` is `(-a) ^ b`.
fn negated(inner: &Expr) -> Option<Expr> {
    let Expr::BinaryOp { left, op: BinaryOperator::PGExp, right } = inner else { return None };
    let minus = |it: &Expr| Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(it.clone()) };
    let left = negated(left).unwrap_or_else(|| minus(left));
    Some(binary(left, BinaryOperator::PGExp, right.as_ref().clone()))
}

fn similar(
    is_negated: bool,
    text: &Expr,
    pattern: &Expr,
    escape: Option<&ValueWithSpan>,
) -> Result<Expr, SqlError> {
    let Some(pattern) = text_of(pattern) else {
        return Err(SqlError::unsupported("SIMILAR TO takes its pattern as a literal alone"));
    };
    let escape = match escape.map(|it| it.value.clone().into_string().unwrap_or_default()) {
        None => Some('\\'),
        Some(text) => text.chars().next(),
    };
    let operator =
        if is_negated { BinaryOperator::PGRegexNotMatch } else { BinaryOperator::PGRegexMatch };
    let regex = Value::SingleQuotedString(similar_to_regex(pattern, escape));
    Ok(nested(binary(text.clone(), operator, Expr::Value(regex.into()))))
}

/// The engine takes a list for one of literals when it puts two of them together, and NULL for a
/// value like others. What is no literal becomes a comparison.
fn in_list(sought: &Expr, list: &[Expr], is_negated: bool) -> Result<Option<Expr>, SqlError> {
    let (literals, others): (Vec<_>, Vec<_>) = list.iter().cloned().partition(is_literal);
    if literals.len() > LITERAL_COUNT_MAX || others.len() > OTHER_COUNT_MAX {
        let what = format!(
            "a list after IN has {LITERAL_COUNT_MAX} literals and {OTHER_COUNT_MAX} other items at \
             most"
        );
        return Err(SqlError::new(SqlState::TOO_COMPLEX, what));
    }
    if others.is_empty() {
        return Ok(None);
    }
    // What is sought is written once for each: lists in lists would multiply.
    if size_of(sought).saturating_mul(others.len()) > REPEATED_SIZE_MAX {
        let what = format!(
            "{} items after IN are too many for an expression of {} parts",
            others.len(),
            size_of(sought)
        );
        return Err(SqlError::new(SqlState::TOO_COMPLEX, what));
    }
    let equal = |it| binary(sought.clone(), BinaryOperator::Eq, it);
    let mut alternatives: Vec<_> = others.into_iter().map(equal).collect();
    if !literals.is_empty() {
        let expr = Box::new(sought.clone());
        alternatives.push(Expr::InList { expr, list: literals, negated: false });
    }
    // As a balanced tree: plans are walked as deep as they nest.
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

/// Expressions in an expression, with itself.
fn size_of(expr: &Expr) -> usize {
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

/// Casts that round, cut off or read more than the engine's.
fn cast(inner: &mut Expr, data_type: &DataType) -> Option<Expr> {
    if let (true, Expr::Value(value)) = (is_timestamp(data_type), &mut *inner) {
        if let Value::SingleQuotedString(text) = &mut value.value {
            add_seconds(text);
        }
        return None;
    }
    // Its type is known by the cast alone.
    if matches!(inner, Expr::Value(value) if matches!(value.value, Value::Placeholder(_))) {
        return None;
    }
    let name = match data_type {
        DataType::Int2(_) | DataType::SmallInt(_) => INT2,
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => INT4,
        DataType::Int8(_) | DataType::BigInt(_) => INT8,
        DataType::Numeric(ExactNumberInfo::None) | DataType::Decimal(ExactNumberInfo::None) => {
            NUMERIC
        }
        DataType::Varchar(Some(length))
        | DataType::CharacterVarying(Some(length))
        | DataType::Character(Some(length))
        | DataType::Char(Some(length)) => {
            let CharacterLength::IntegerLength { length, .. } = length else { return None };
            let text = Expr::Cast {
                kind: CastKind::Cast,
                expr: Box::new(inner.clone()),
                data_type: DataType::Text,
                array: false,
                format: None,
            };
            return Some(call("left", vec![text, number(&length.to_string())]));
        }
        _ => return None,
    };
    Some(call(name, vec![inner.clone()]))
}

fn is_timestamp(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(..) => true,
        DataType::Custom(name, _) => name.to_string().eq_ignore_ascii_case("timestamptz"),
        _ => false,
    }
}

/// A time of day without seconds has zero of them.
fn add_seconds(text: &mut String) {
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

/// The text of an interval with its time of day in words: `1 day 04:05:06` has four hours.
fn spelled(text: &str) -> String {
    let words = text.split_whitespace().map(|word| {
        let (sign, digits) = match word.strip_prefix('-') {
            Some(rest) => ("-", rest),
            None => ("", word.strip_prefix('+').unwrap_or(word)),
        };
        let parts: Vec<&str> = digits.split(':').collect();
        let is_time = parts.iter().all(|it| it.parse::<f64>().is_ok());
        match (parts.as_slice(), is_time) {
            ([hours, minutes], true) => format!("{sign}{hours} hours {sign}{minutes} minutes"),
            ([hours, minutes, seconds], true) => {
                format!("{sign}{hours} hours {sign}{minutes} minutes {sign}{seconds} seconds")
            }
            _ => word.to_owned(),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => Some(text),
        Expr::Nested(inner) => text_of(inner),
        _ => None,
    }
}

fn number(digits: &str) -> Expr {
    Expr::Value(Value::Number(digits.to_owned(), false).into())
}

fn nested(expr: Expr) -> Expr {
    Expr::Nested(Box::new(expr))
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

fn call(name: &str, arguments: Vec<Expr>) -> Expr {
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

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn expressions_are_written_as_the_engine_understands_them() {
        for (text, expected) in [
            ("-2 ^ 2", "-2 ^ 2"),
            ("-a ^ 2 ^ 3", "-a ^ 2 ^ 3"),
            ("~a", "-1 - (a)"),
            ("a SIMILAR TO 'x%'", "(a ~ '^(?s:x.*)$')"),
            ("a IN (1, -2)", "a IN (1, -2)"),
            ("a IN (1, b)", "(a = b OR a IN (1))"),
            ("a NOT IN (b, c, NULL)", "(NOT (a = b OR a = c OR a = NULL))"),
            ("a::varchar(3)", "left(CAST(a AS TEXT), 3)"),
            ("a::int", "int4(a)"),
            ("$1::int", "$1::INT"),
            ("timestamp '2026-01-01 12:00'", "TIMESTAMP '2026-01-01 12:00:00'"),
            ("'2026-01-01T12:00+01'::timestamptz", "'2026-01-01T12:00:00+01'::TIMESTAMPTZ"),
            ("timestamp '2026-01-01 12:00:05'", "TIMESTAMP '2026-01-01 12:00:05'"),
            ("timestamp '2026-01-01'", "TIMESTAMP '2026-01-01'"),
            (
                "interval '3 days -04:05:06.5'",
                "INTERVAL '3 days -04 hours -05 minutes -06.5 seconds'",
            ),
        ] {
            let dialect = PostgreSqlDialect {};
            let mut parsed = Parser::new(&dialect).try_with_sql(text).expect("words").parse_expr();
            let parsed = parsed.as_mut().expect("an expression");
            assert!(parsed.visit(&mut Adapter).is_continue());
            assert_eq!(parsed.to_string(), expected, "{text}");
        }
    }

    #[test]
    fn lists_in_lists_do_not_multiply() {
        let list = vec!["b"; OTHER_COUNT_MAX].join(", ");
        let text = (0..4).fold("a".to_owned(), |text, _| format!("({text} IN ({list}))"));
        let dialect = PostgreSqlDialect {};
        let parsed = Parser::new(&dialect).try_with_sql(&text).expect("words").parse_expr();
        let found = parsed.expect("an expression").visit(&mut Adapter);
        let ControlFlow::Break(error) = found else { panic!("it is too complex") };
        assert_eq!(error.state, SqlState::TOO_COMPLEX);
    }

    #[test]
    fn a_minus_before_a_power_binds_first() {
        let dialect = PostgreSqlDialect {};
        let mut power = Parser::new(&dialect).try_with_sql("-2 ^ 2").expect("words").parse_expr();
        let power = power.as_mut().expect("an expression");
        assert!(power.visit(&mut Adapter).is_continue());
        assert!(matches!(power, Expr::BinaryOp { op: BinaryOperator::PGExp, .. }), "{power:?}");
    }
}
