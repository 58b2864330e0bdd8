//! Syntax checks before planning. Statements that PostgreSQL rejects although the parser accepts
//! them get PostgreSQL's errors. Syntax that the engine interprets differently is rejected.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, DataType, ExactNumberInfo, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArguments, JoinConstraint, JoinOperator, ObjectName, Query, Select,
    SelectItem, Statement, TableFactor, TableWithJoins, Value, Visit, Visitor, WindowFrame,
    WindowFrameBound, WindowType, With,
};

use super::constants::{check_groups, check_subquery};
use super::names::folded;
use super::refusal::refused;
use super::written::{number_of, text_of};
use crate::error::{SqlError, SqlState};

/// Non-associative operators: `a < b < c` is a syntax error.
const COMPARISONS: &[BinaryOperator] = &[
    BinaryOperator::Eq,
    BinaryOperator::NotEq,
    BinaryOperator::Lt,
    BinaryOperator::LtEq,
    BinaryOperator::Gt,
    BinaryOperator::GtEq,
];

/// Operators that are ambiguous if both operands are untyped.
const OF_SEVERAL_TYPES: &[BinaryOperator] = &[
    BinaryOperator::Plus,
    BinaryOperator::Minus,
    BinaryOperator::Multiply,
    BinaryOperator::Divide,
    BinaryOperator::Modulo,
];

/// Functions for the start time of the statement, which take a precision in PostgreSQL.
const CURRENT_TIMES: &[&str] =
    &["current_time", "current_timestamp", "localtime", "localtimestamp"];

const FLOAT8_BITS_MAX: u64 = 53;
const NUMERIC_DIGITS_MAX: u64 = 1_000;

/// Checks the syntax of a statement.
pub(in crate::engine) fn check(statement: &Statement) -> Result<(), SqlError> {
    let mut forms = Forms::default();
    match statement.visit(&mut forms) {
        ControlFlow::Continue(()) if forms.typeof_count > forms.shown_count => {
            Err(refused("pg_typeof other than as a column, or cast to text")
                .with_hint("Write ::text behind it."))
        }
        ControlFlow::Continue(()) if forms.typeof_count > 0 && forms.has_other_texts => {
            Err(refused("pg_typeof beside types such as varchar, name and regclass"))
        }
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// Visitor that checks each part of a statement.
#[derive(Default)]
struct Forms {
    /// Names of WITH queries, for each enclosing query of the visited part.
    queries: Vec<HashSet<String>>,
    /// Number of calls of `pg_typeof`, and of those that are columns or cast to text.
    typeof_count: usize,
    shown_count: usize,
    /// The statement has types that the engine treats as texts, or relations or functions that may
    /// have such.
    has_other_texts: bool,
}

impl Visitor for Forms {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        let mut names = HashSet::new();
        if let Some(with) = &query.with {
            flow(self.check_names(with, &mut names))?;
        }
        self.queries.push(names);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<SqlError> {
        self.queries.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<SqlError> {
        for from in &select.from {
            flow(check_joins(from))?;
        }
        self.shown_count += select
            .projection
            .iter()
            .filter(|it| match it {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                    is_typeof(expr)
                }
                _ => false,
            })
            .count();
        for condition in select.selection.iter().chain(&select.having) {
            flow(check_condition(condition))?;
        }
        flow(check_groups(select))?;
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<SqlError> {
        let name = name.to_string().to_ascii_lowercase();
        self.has_other_texts |= name.starts_with("pg_") || name.starts_with("information_schema");
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        self.look_at_types(expr);
        flow(match expr {
            Expr::BinaryOp { left, op, right } => check_operator(left, op, right),
            Expr::Function(function) => check_call(function),
            Expr::Subquery(query) => check_subquery(query),
            Expr::CompoundIdentifier(names) if names.len() > 4 => {
                let what = format!("improper qualified name (too many dotted names): {expr}");
                Err(SqlError::new(SqlState::SYNTAX, what))
            }
            Expr::Cast { data_type, .. } => check_type(data_type),
            Expr::TypedString(typed) => match &typed.data_type {
                DataType::Interval { precision: Some(_), .. } => {
                    Err(refused("an interval with a number of digits"))
                }
                data_type => check_type(data_type),
            },
            Expr::AnyOp { left, right, .. } | Expr::AllOp { left, right, .. } => {
                check_row(left, right)
            }
            _ => Ok(()),
        })
    }
}

fn is_typeof(expr: &Expr) -> bool {
    let Expr::Function(call) = expr else { return false };
    let name = call.name.to_string().to_ascii_lowercase();
    matches!(name.as_str(), "pg_typeof" | "pg_catalog.pg_typeof")
}

/// Functions that return `name`.
const OF_OTHER_TEXTS: &[&str] = &[
    "current_catalog",
    "current_database",
    "current_role",
    "current_schema",
    "current_schemas",
    "current_user",
    "session_user",
    "user",
];

/// Returns whether PostgreSQL has a type of its own that the engine treats as text.
fn is_other_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) => is_other_text(element),
        DataType::Varchar(_)
        | DataType::CharVarying(_)
        | DataType::CharacterVarying(_)
        | DataType::Nvarchar(_)
        | DataType::Char(_)
        | DataType::Character(_)
        | DataType::Uuid
        | DataType::Regclass
        | DataType::Custom(..) => true,
        _ => false,
    }
}

fn flow(checked: Result<(), SqlError>) -> ControlFlow<SqlError> {
    match checked {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

fn syntax(near: &str) -> SqlError {
    SqlError::new(SqlState::SYNTAX, format!("syntax error at or near {near:?}"))
}

impl Forms {
    fn look_at_types(&mut self, expr: &Expr) {
        match expr {
            Expr::Function(call) => {
                let name = call.name.to_string().to_ascii_lowercase();
                self.typeof_count += usize::from(is_typeof(expr));
                self.has_other_texts |= OF_OTHER_TEXTS.contains(&name.as_str());
            }
            Expr::Cast { data_type, expr, .. } => {
                self.shown_count += usize::from(*data_type == DataType::Text && is_typeof(expr));
                self.has_other_texts |= is_other_text(data_type);
            }
            Expr::TypedString(typed) => self.has_other_texts |= is_other_text(&typed.data_type),
            _ => {}
        }
    }

    /// Checks names of WITH queries. The engine does not support equal names in nested queries.
    fn check_names(&self, with: &With, names: &mut HashSet<String>) -> Result<(), SqlError> {
        for table in &with.cte_tables {
            let name = folded(&table.alias.name);
            if self.queries.iter().any(|it| it.contains(&name)) {
                let what = format!("WITH query {name:?} in another one of this name");
                return Err(refused(&what).with_hint("Give it a name of its own."));
            }
            if !names.insert(name.clone()) {
                let what = format!("WITH query name {name:?} specified more than once");
                return Err(SqlError::new(SqlState::DUPLICATE_ALIAS, what));
            }
        }
        Ok(())
    }
}

fn check_joins(from: &TableWithJoins) -> Result<(), SqlError> {
    let factors = std::iter::once(&from.relation).chain(from.joins.iter().map(|it| &it.relation));
    for factor in factors {
        if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
            check_joins(table_with_joins)?;
        }
    }
    for join in &from.joins {
        let (JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint)) = &join.join_operator
        else {
            continue;
        };
        match constraint {
            JoinConstraint::None => {
                let what = "syntax error: JOIN without ON, USING or NATURAL";
                return Err(SqlError::new(SqlState::SYNTAX, what));
            }
            JoinConstraint::On(condition) => check_condition(condition)?,
            _ => {}
        }
    }
    Ok(())
}

/// Rejects a quoted literal as a condition, which PostgreSQL reads as a boolean.
fn check_condition(condition: &Expr) -> Result<(), SqlError> {
    let Some(text) = text_of(condition) else { return Ok(()) };
    let word = text.trim().to_ascii_lowercase();
    let begins = |whole: &str| !word.is_empty() && whole.starts_with(&word);
    let is_boolean = ["true", "false", "yes", "no"].into_iter().any(begins)
        || ["on", "of", "off", "0", "1"].contains(&word.as_str());
    match is_boolean {
        true => Err(refused("a quoted literal as a condition").with_hint("Write true or false.")),
        false => {
            let what = format!("invalid input syntax for type boolean: {text:?}");
            Err(SqlError::new(SqlState::INVALID_TEXT, what))
        }
    }
}

/// Returns whether an expression is NULL or a quoted literal.
fn is_untyped(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_untyped(inner),
        Expr::Value(value) => matches!(value.value, Value::Null) || text_of(expr).is_some(),
        _ => false,
    }
}

fn check_operator(left: &Expr, op: &BinaryOperator, right: &Expr) -> Result<(), SqlError> {
    let is_comparison =
        |it: &Expr| matches!(it, Expr::BinaryOp { op, .. } if COMPARISONS.contains(op));
    if COMPARISONS.contains(op) {
        if is_comparison(left) || is_comparison(right) {
            return Err(syntax(&op.to_string()));
        }
        return check_row(left, right);
    }
    if OF_SEVERAL_TYPES.contains(op) && is_untyped(left) && is_untyped(right) {
        let what = format!("operator is not unique: unknown {op} unknown");
        return Err(SqlError::new(SqlState("42725"), what).with_hint("Write their types."));
    }
    Ok(())
}

/// Rejects comparisons of a row with a subquery. The engine supports only one column there.
fn check_row(left: &Expr, right: &Expr) -> Result<(), SqlError> {
    let is_row = |it: &Expr| matches!(it, Expr::Tuple(_));
    let is_query = |it: &Expr| match it {
        Expr::Subquery(_) => true,
        Expr::Nested(inner) => matches!(inner.as_ref(), Expr::Subquery(_)),
        _ => false,
    };
    match is_row(left) && is_query(right) || is_query(left) && is_row(right) {
        true => Err(refused("comparing a row with a subquery")),
        false => Ok(()),
    }
}

fn check_type(data_type: &DataType) -> Result<(), SqlError> {
    let invalid = |what: String| Err(SqlError::new(SqlState::INVALID_PARAMETER, what));
    match data_type {
        DataType::Float(ExactNumberInfo::Precision(0)) => {
            invalid("precision for type float must be at least 1 bit".to_owned())
        }
        DataType::Float(ExactNumberInfo::Precision(bits)) if *bits > FLOAT8_BITS_MAX => {
            let limit = FLOAT8_BITS_MAX + 1;
            invalid(format!("precision for type float must be less than {limit} bits"))
        }
        DataType::Numeric(ExactNumberInfo::Precision(digits))
        | DataType::Decimal(ExactNumberInfo::Precision(digits))
        | DataType::Numeric(ExactNumberInfo::PrecisionAndScale(digits, _))
        | DataType::Decimal(ExactNumberInfo::PrecisionAndScale(digits, _))
            if !(1..=NUMERIC_DIGITS_MAX).contains(digits) =>
        {
            invalid(format!("NUMERIC precision {digits} must be between 1 and 1000"))
        }
        DataType::Varchar(Some(length)) | DataType::CharacterVarying(Some(length))
            if length.to_string() == "0" =>
        {
            invalid("length for type varchar must be at least 1".to_owned())
        }
        _ => Ok(()),
    }
}

fn check_call(function: &Function) -> Result<(), SqlError> {
    if let Some(WindowType::WindowSpec(spec)) = &function.over
        && let Some(frame) = &spec.window_frame
    {
        check_frame(frame)?;
    }
    let name = function.name.to_string().to_ascii_lowercase();
    if let [schema, _] = function.name.0.as_slice() {
        let schema = schema.as_ident().map(folded).unwrap_or_default();
        if !["pg_catalog", "public", "information_schema"].contains(&schema.as_str()) {
            let what = format!("schema {schema:?} does not exist");
            return Err(SqlError::new(SqlState("3F000"), what));
        }
    }
    let FunctionArguments::List(list) = &function.args else { return Ok(()) };
    let first = match list.args.first() {
        Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))) => Some(expr),
        _ => None,
    };
    match (name.as_str(), first) {
        ("sum" | "avg", Some(value)) if is_untyped(value) => {
            let what = format!("function {name}(unknown) is not unique");
            Err(SqlError::new(SqlState("42725"), what).with_hint("Write the type of the value."))
        }
        ("pg_typeof" | "pg_catalog.pg_typeof", _) if list.args.len() != 1 => {
            let what = "function pg_typeof with other than one argument does not exist";
            Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, what))
        }
        ("ntile", Some(Expr::Value(value))) if value.value == Value::Null => {
            Err(refused("ntile of NULL"))
        }
        ("ntile", Some(count)) if number_of(count).is_some_and(|it| it <= 0.0) => {
            let what = "argument of ntile must be greater than zero";
            Err(SqlError::new(SqlState("22014"), what))
        }
        (name, Some(_)) if CURRENT_TIMES.contains(&name) => {
            Err(refused(&format!("{name} with a number of digits")))
        }
        _ => Ok(()),
    }
}

/// Rejects a window frame that ends before it starts, or has a negative offset.
fn check_frame(frame: &WindowFrame) -> Result<(), SqlError> {
    use WindowFrameBound as Bound;
    let wrong = |what: &str| Err(SqlError::new(SqlState("42P20"), what));
    let (start, end) = (&frame.start_bound, frame.end_bound.as_ref());
    match (start, end.unwrap_or(&Bound::CurrentRow)) {
        (Bound::Following(None), _) => wrong("frame start cannot be UNBOUNDED FOLLOWING"),
        (_, Bound::Preceding(None)) => wrong("frame end cannot be UNBOUNDED PRECEDING"),
        (Bound::CurrentRow, Bound::Preceding(_)) => {
            wrong("frame starting from current row cannot have preceding rows")
        }
        (Bound::Following(_), Bound::Preceding(_)) => {
            wrong("frame starting from following row cannot have preceding rows")
        }
        (Bound::Following(_), Bound::CurrentRow) => {
            wrong("frame starting from following row cannot end with current row")
        }
        (start, end) => {
            let negative = |it: &Bound| match it {
                Bound::Preceding(Some(count)) | Bound::Following(Some(count)) => {
                    number_of(count).is_some_and(|it| it < 0.0)
                }
                _ => false,
            };
            match negative(start) || negative(end) {
                true => {
                    let what = "frame starting or ending offset must not be negative";
                    Err(SqlError::new(SqlState("22013"), what))
                }
                false => Ok(()),
            }
        }
    }
}
