//! Rewrites of expressions that the engine would interpret differently from PostgreSQL.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Ident, Interval, OrderByKind, Query, Select, SelectItem, SetExpr, Statement,
    Subscript, TableAlias, TableAliasColumnDef, TableFactor, TypedString, UnaryOperator, Value,
    ValueWithSpan, VisitMut, VisitorMut,
};
use live_queries::letters::lowercase;

use super::arrays::array_of;
use super::beside_wildcards;
use super::calls::Call;
use super::constants::{group_by_having, is_aggregating, round_limits};
use super::conversions::To;
use super::described::describe;
use super::inexact::{check_call, check_query, check_select, sort_values};
use super::integers::type_integers;
use super::interval_texts;
use super::merged::name_merged;
use super::named_windows::{spell_selected, spell_windows};
use super::names::{name_apart, name_columns};
use super::numbers::UNARY_PLUS;
use super::ordered_sets::of_values;
use super::patterns::{escape_sign, similar_to_regex, with_backslashes};
use super::quoted_arguments::{type_arguments, type_operands};
use super::recursion::type_recursion;
use super::refusal::refused;
use super::rewrites;
use super::rows::{Quantifier, spelled_rows, together};
use super::series::{check_conditional, json_of_rows, rows_of_call, rows_of_tables};
use super::set_operations::{names, number_rows};
use super::short_names::shorten_names;
use super::spellings::{spelled, spelled_call};
use super::text_functions::LIKE_ESCAPE;
use super::untyped::type_values;
use super::using::{Known, columns_of_with, spell_joins, spell_using};
use super::whole_rows::spell_rows;
use super::written::{
    REPEATED_SIZE_MAX, binary, call, in_list, nested, number, quoted, size_of, text_of,
};
use crate::error::{SqlError, SqlState};
use crate::wire::array_elements;

/// Rewrites a statement to PostgreSQL's semantics and column names.
pub(in crate::engine) fn adapt(statement: &mut Statement) -> Result<(), SqlError> {
    describe(statement);
    match statement.visit(&mut Adapter::default()) {
        ControlFlow::Continue(()) => {
            shorten_names(statement);
            type_integers(statement);
            Ok(())
        }
        ControlFlow::Break(error) => Err(error),
    }
}

#[derive(Default)]
struct Adapter {
    /// Columns of the queries of WITH of the enclosing queries.
    known: Known,
}

impl VisitorMut for Adapter {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        beside_wildcards::rename(query);
        for table in query.with.iter_mut().flat_map(|it| &mut it.cte_tables) {
            name_apart(&mut table.query);
            name_rest(&mut table.alias, &table.query);
        }
        self.known.push(columns_of_with(query));
        spell_joins(query, &self.known);
        let checked = spell_windows(query).and_then(|()| check_query(query));
        let checked = checked.and_then(|()| number_rows(&mut query.body));
        if let Err(error) = checked {
            return ControlFlow::Break(error);
        }
        if let Err(error) = round_limits(query) {
            return ControlFlow::Break(error);
        }
        order_by_place(query);
        type_values(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        type_recursion(query);
        self.known.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<SqlError> {
        if let TableFactor::Derived { subquery, alias, .. } = factor {
            name_apart(subquery);
            if let Some(alias) = alias {
                name_rest(alias, subquery);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        // In a subquery it may be one of the outer query.
        if self.known.len() > 1 && select.selection.as_ref().is_some_and(is_aggregating) {
            return ControlFlow::Break(refused("an aggregate in WHERE of a subquery"));
        }
        spell_using(select, None, &self.known);
        let checked = spell_selected(select).and_then(|()| check_select(select));
        if let Err(error) = checked {
            return ControlFlow::Break(error);
        }
        group_by_having(select);
        name_merged(select);
        name_columns(select);
        spell_rows(select);
        match rows_of_tables(select) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        let checked = check_conditional(expr).and_then(|()| spelled_rows(expr));
        match checked.and_then(|spelled| match spelled {
            None => changed(expr),
            spelled => Ok(spelled),
        }) {
            Ok(None) => ControlFlow::Continue(()),
            Ok(Some(changed)) => {
                *expr = changed;
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// Returns the rewritten expression, if it differs.
fn changed(expr: &mut Expr) -> Result<Option<Expr>, SqlError> {
    type_operands(expr)?;
    if let Some(spelled) = spelled(expr)? {
        return Ok(Some(spelled));
    }
    Ok(match expr {
        Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => {
            rewrites::with_exponent(digits)
        }
        Expr::UnaryOp { op, expr: inner } => of_one(op, inner),
        Expr::Floor { expr: inner, .. } | Expr::Ceil { expr: inner, .. } => {
            rewrites::keep_whole(inner);
            None
        }
        Expr::BinaryOp { left, op: BinaryOperator::PGStartsWith, right } => {
            Some(call("starts_with", vec![left.as_ref().clone(), right.as_ref().clone()]))
        }
        Expr::SimilarTo { negated, expr: text, pattern, escape_char } => {
            Some(similar(*negated, text, pattern, escape_char.as_ref())?)
        }
        Expr::Like { any, pattern, .. } | Expr::ILike { any, pattern, .. }
            if *any || patterns_of_all(pattern).is_some() =>
        {
            Some(like_each(expr)?)
        }
        Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } => {
            if let Some(escape) = escape_char.take() {
                escaped_by(pattern, &escape)?;
            }
            of_small_letters(expr)
        }
        Expr::BinaryOp {
            left,
            op: op @ (BinaryOperator::PGILikeMatch | BinaryOperator::PGNotILikeMatch),
            right,
        } => {
            let plain = match op {
                BinaryOperator::PGILikeMatch => BinaryOperator::PGLikeMatch,
                _ => BinaryOperator::PGNotLikeMatch,
            };
            Some(nested(binary(small(left), plain, small(right))))
        }
        Expr::InList { expr: sought, list, negated } => in_list(sought, list, *negated)?,
        Expr::Cast {
            kind: CastKind::Cast | CastKind::DoubleColon, expr: inner, data_type, ..
        } => rewrites::cast(inner, data_type)?,
        Expr::Function(function) => called(function)?,
        Expr::AnyOp { left, compare_op, right, .. } => {
            rewrites::quantified(left, compare_op, right, Quantifier::Any)?
        }
        Expr::AllOp { left, compare_op, right } => {
            rewrites::quantified(left, compare_op, right, Quantifier::All)?
        }
        Expr::CompoundFieldAccess { root, access_chain } => {
            access_chain.iter_mut().try_for_each(subscript)?;
            hide_aggregate(root)?;
            None
        }
        Expr::AtTimeZone { timestamp, time_zone } => {
            let arguments = vec![time_zone.as_ref().clone(), timestamp.as_ref().clone()];
            Some(call(Call::TimeZone.name(), arguments))
        }
        Expr::Interval(interval) => {
            spell(interval)?;
            None
        }
        Expr::TypedString(typed) => time(typed)?,
        _ => None,
    })
}

/// Rewrites a unary operator.
fn of_one(op: &UnaryOperator, operand: &mut Expr) -> Option<Expr> {
    match op {
        // The engine would apply the minus to the first part of the interval only.
        UnaryOperator::Minus if matches!(operand, Expr::Interval(_)) => {
            *operand = nested(operand.clone());
            None
        }
        UnaryOperator::Minus => negated(operand),
        UnaryOperator::Plus if !matches!(operand, Expr::Value(_)) => {
            Some(call(UNARY_PLUS, vec![operand.clone()]))
        }
        UnaryOperator::BitwiseNot => {
            Some(binary(number("-1"), BinaryOperator::PGBitwiseXor, nested(operand.clone())))
        }
        UnaryOperator::PGSquareRoot => {
            Some(call("sqrt", vec![call(To::Float8.name(), vec![operand.clone()])]))
        }
        UnaryOperator::PGCubeRoot => {
            Some(call("cbrt", vec![call(To::Float8.name(), vec![operand.clone()])]))
        }
        UnaryOperator::PGAbs => Some(call("abs", vec![operand.clone()])),
        _ => None,
    }
}

/// Rewrites an interval literal to the engine's format.
fn spell(interval: &mut Interval) -> Result<(), SqlError> {
    let value = interval.value.as_mut();
    if let Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) = value {
        *text = match interval.leading_field {
            None => interval_texts::spelled(text)?.unwrap_or_else(|| with_units(text)),
            Some(_) => with_units(text),
        };
    }
    Ok(())
}

/// Rewrites a call.
fn called(function: &mut Function) -> Result<Option<Expr>, SqlError> {
    check_call(function)?;
    type_arguments(function)?;
    sort_values(function);
    match &function.args {
        FunctionArguments::Subquery(query)
            if function.name.to_string().eq_ignore_ascii_case("array") =>
        {
            Ok(Some(array_of(query.as_ref().clone())?))
        }
        _ => {
            if let Some(spelled) = spelled_call(function)? {
                return Ok(Some(spelled));
            }
            match json_of_rows(function)?.map_or_else(|| of_values(function), |it| Ok(Some(it)))? {
                Some(list) => Ok(Some(list)),
                None => match rows_of_call(function)? {
                    Some(rows) => Ok(Some(rows)),
                    None => rewrites::function(function),
                },
            }
        }
    }
}

/// Completes an alias's column names, because the engine requires a name for each column.
fn name_rest(alias: &mut TableAlias, query: &Query) {
    let Some(names) = names(&query.body).filter(|_| !alias.columns.is_empty()) else { return };
    for name in names.into_iter().skip(alias.columns.len()) {
        let name = Ident::with_quote('"', name);
        alias.columns.push(TableAliasColumnDef { name, data_type: None });
    }
}

/// Wraps `array_agg` below a subscript in another call. The engine would take its element for
/// another aggregate.
fn hide_aggregate(root: &mut Expr) -> Result<(), SqlError> {
    let is_call = |it: &Expr| {
        matches!(it, Expr::Function(call)
            if call.name.to_string().eq_ignore_ascii_case("array_agg"))
    };
    match &*root {
        call if is_call(call) => {
            let what = "syntax error at or near \"[\"";
            Err(SqlError::new(SqlState::SYNTAX, what)
                .with_hint("Write parentheses around the call."))
        }
        nested => {
            let mut inner = nested;
            while let Expr::Nested(it) = inner {
                inner = it;
            }
            if is_call(inner) {
                *root = call("coalesce", vec![inner.clone()]);
            }
            Ok(())
        }
    }
}

/// Checks subscripts: they start at 1, with no elements before, while the engine counts negative
/// ones from the end.
fn subscript(access: &mut AccessExpr) -> Result<(), SqlError> {
    let is_count = |it: &Expr| {
        matches!(it, Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. })
            if digits.bytes().any(|it| it != b'0'))
    };
    match access {
        AccessExpr::Subscript(Subscript::Index { index }) if !is_count(index) => {
            let counted = call("greatest", vec![index.clone(), number("0")]);
            *index = call("nullif", vec![counted, number("0")]);
            Ok(())
        }
        AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, stride }) => {
            let mut bounds = lower_bound.iter().chain(&*upper_bound);
            match stride.is_none() && bounds.all(is_count) {
                true => Ok(()),
                false => {
                    Err(refused("an array slice whose bounds are not positive integer literals"))
                }
            }
        }
        _ => Ok(()),
    }
}

/// Rewrites a literal with a type prefix.
fn time(typed: &TypedString) -> Result<Option<Expr>, SqlError> {
    let mut literal = Expr::Value(typed.value.clone());
    match (&typed.data_type, text_of(&literal).is_some()) {
        (DataType::Date, true) => rewrites::date(text_of(&literal).unwrap_or_default()),
        (_, false) => Ok(None),
        (data_type, true) => rewrites::cast(&mut literal, data_type),
    }
}

/// Replaces sort keys of SELECT DISTINCT by column positions.
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

/// Returns the patterns of `LIKE ALL (ARRAY[…])`, which is parsed as a call.
fn patterns_of_all(pattern: &Expr) -> Option<&Expr> {
    let Expr::Function(function) = pattern else { return None };
    let FunctionArguments::List(list) = &function.args else { return None };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(patterns))]
            if function.name.to_string().eq_ignore_ascii_case("all") =>
        {
            Some(patterns)
        }
        _ => None,
    }
}

/// Expands `LIKE ANY` and `LIKE ALL` to a comparison per pattern.
fn like_each(expr: &Expr) -> Result<Expr, SqlError> {
    let (Expr::Like { expr: text, pattern, escape_char, .. }
    | Expr::ILike { expr: text, pattern, escape_char, .. }) = expr
    else {
        return Err(refused("LIKE of this form"));
    };
    let (patterns, quantifier) = match patterns_of_all(pattern) {
        Some(patterns) => (patterns, Quantifier::All),
        None => (pattern.as_ref(), Quantifier::Any),
    };
    let mut patterns = patterns;
    while let Expr::Nested(inner) = patterns {
        patterns = inner;
    }
    let patterns = match (patterns, text_of(patterns)) {
        (Expr::Array(array), _) => array.elem.clone(),
        (_, Some(text)) => {
            let text_or_null = |it: Option<String>| {
                Expr::Value(it.map_or(Value::Null, Value::SingleQuotedString).into())
            };
            array_elements(text)?.into_iter().map(text_or_null).collect()
        }
        _ => return Err(refused("LIKE ANY or ALL with an array that is not a literal")),
    };
    if escape_char.is_some() || size_of(text).saturating_mul(patterns.len()) > REPEATED_SIZE_MAX {
        return Err(refused("LIKE ANY or ALL with ESCAPE or with so many patterns"));
    }
    let each = patterns.into_iter().map(|one| {
        let mut compared = expr.clone();
        if let Expr::Like { any, pattern, .. } | Expr::ILike { any, pattern, .. } = &mut compared {
            (*any, **pattern) = (false, one);
        }
        of_small_letters(&compared).unwrap_or_else(|| nested(compared))
    });
    Ok(together(each.collect(), quantifier))
}

/// Rewrites ILIKE to LIKE on lower-case texts, because the engine folds more characters than
/// PostgreSQL.
fn of_small_letters(expr: &Expr) -> Option<Expr> {
    let Expr::ILike { negated, expr: text, pattern, .. } = expr else { return None };
    Some(nested(Expr::Like {
        negated: *negated,
        any: false,
        expr: Box::new(small(text)),
        pattern: Box::new(small(pattern)),
        escape_char: None,
    }))
}

fn small(text: &Expr) -> Expr {
    match text_of(text) {
        Some(literal) => Expr::Value(Value::SingleQuotedString(lowercase(literal)).into()),
        None => call("lower", vec![text.clone()]),
    }
}

/// Unary minus binds more tightly than `^`: `-a ^ b` is `(-a) ^ b`.
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
        return Err(SqlError::unsupported(
            "SIMILAR TO with a pattern that is not a literal is not supported",
        ));
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

/// Converts the escape character of a pattern to backslash, the only one that the engine supports.
fn escaped_by(pattern: &mut Expr, escape: &ValueWithSpan) -> Result<(), SqlError> {
    let sign =
        quoted(escape).ok_or_else(|| refused("ESCAPE with anything but a string literal"))?;
    let sign = escape_sign(sign)?;
    if sign == Some('\\') {
        return Ok(());
    }
    let text = |it: String| Expr::Value(Value::SingleQuotedString(it).into());
    *pattern = match text_of(pattern) {
        Some(literal) => text(with_backslashes(literal, sign)),
        None => {
            let sign = sign.map(String::from).unwrap_or_default();
            call(LIKE_ESCAPE, vec![pattern.clone(), text(sign)])
        }
    };
    Ok(())
}

/// Rewrites the time of day in an interval to units, so that `1 day 04:05:06` has four hours.
fn with_units(text: &str) -> String {
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

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::super::written::OTHER_COUNT_MAX;
    use super::*;
    use crate::error::SqlState;

    #[test]
    fn expressions_are_written_as_the_engine_understands_them() {
        for (text, expected) in [
            ("-2 ^ 2", "-2 ^ 2"),
            ("-a ^ 2 ^ 3", "-a ^ 2 ^ 3"),
            ("~a", "-1 # (a)"),
            ("a SIMILAR TO 'x%'", "(a ~ '^(?:x.*)$')"),
            ("a IN (1, -2)", "a IN (1, -2)"),
            ("a IN (1, b)", "(a = 1 OR a = b)"),
            ("a NOT IN (b, c, NULL)", "(NOT (a = b OR a = c OR a = NULL))"),
            ("a::varchar(3)", "left(text(a), 3)"),
            ("a::int", "int4(a)"),
            ("$1::int", "$1::INT"),
            ("timestamp '2026-01-01 12:00'", "timestamp('2026-01-01 12:00')"),
            ("a::timestamptz", "timestamptz(a)"),
            ("'1.10'::numeric", "1.10"),
            ("1e15::float8", "float8(numeric(1000000000000000))"),
            ("a = ANY('{x,\"y z\"}')", "a IN ('x', 'y z')"),
            ("a = ANY($1)", "equals_any(a, $1)"),
            ("a <> ALL('{1,NULL}')", "(NOT (a = '1' OR a = NULL))"),
            ("a < ANY(ARRAY[1, NULL])", "((((a) < (1)) OR ((a) < (NULL))))"),
            ("'{1,NULL}'::int[]", "ARRAY[1, NULL]"),
            ("avg(a)", "average(averaged_sum(a), count(a))"),
            ("a AT TIME ZONE 'UTC'", "timezone('UTC', a)"),
            (
                "interval '3 days -04:05:06.5'",
                "INTERVAL '0 months 3 days -14706500000 microseconds'",
            ),
            ("a LIKE '1!%%' ESCAPE '!'", "a LIKE '1\\%%'"),
            ("a NOT ILIKE 'A!%' ESCAPE '!'", "(lower(a) NOT LIKE 'a\\%')"),
            ("a ~~* b", "(lower(a) ~~ lower(b))"),
            ("regexp_like(a, b, 'ic')", "((a) ~ (b))"),
            ("regexp_like(a, b, 'si')", "((a) ~* (b))"),
            ("row_number() OVER ()", "int8(row_number() OVER ())"),
        ] {
            let dialect = PostgreSqlDialect {};
            let mut parsed = Parser::new(&dialect).try_with_sql(text).expect("words").parse_expr();
            let parsed = parsed.as_mut().expect("an expression");
            assert!(parsed.visit(&mut Adapter::default()).is_continue());
            assert_eq!(parsed.to_string(), expected, "{text}");
        }
    }

    #[test]
    fn lists_in_lists_do_not_multiply() {
        let list = vec!["b"; OTHER_COUNT_MAX].join(", ");
        let text = (0..4).fold("a".to_owned(), |text, _| format!("({text} IN ({list}))"));
        let dialect = PostgreSqlDialect {};
        let parsed = Parser::new(&dialect).try_with_sql(&text).expect("words").parse_expr();
        let found = parsed.expect("an expression").visit(&mut Adapter::default());
        let ControlFlow::Break(error) = found else { panic!("it is too complex") };
        assert_eq!(error.state, SqlState::TOO_COMPLEX);
    }

    #[test]
    fn a_minus_before_a_power_binds_first() {
        let dialect = PostgreSqlDialect {};
        let mut power = Parser::new(&dialect).try_with_sql("-2 ^ 2").expect("words").parse_expr();
        let power = power.as_mut().expect("an expression");
        assert!(power.visit(&mut Adapter::default()).is_continue());
        assert!(matches!(power, Expr::BinaryOp { op: BinaryOperator::PGExp, .. }), "{power:?}");
    }
}
