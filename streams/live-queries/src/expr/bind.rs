//! Binding of SQL expressions: resolves names and types against tables, and compiles expressions.

use std::sync::Arc;

use sqlparser::ast::{self, BinaryOperator, UnaryOperator};

use crate::error::{SqlError, SqlState};
use crate::expr::access::{Access, access};
use crate::expr::aggregates::{Aggregate, AggregateKind, Groups, aggregate_over, is_aggregate};
use crate::expr::functions::bind_call;
use crate::expr::like::Pattern;
use crate::expr::literal::bind_literal;
use crate::expr::names::{folded, type_of, undefined_column};
use crate::expr::operators::{
    arithmetic, bind_interval, boolean, compare, comparison, concatenation, escape_character,
    negate_if,
};
use crate::expr::sources::{Sources, TakenCounts};
use crate::expr::syntax::{Call, Comparison, Expr, LiteralSet};
use crate::expr::typing::{Bound, bind_arithmetic, no_operator, unify, unify_compared};
use crate::limits::{EXPRESSION_DEPTH_MAX, IN_LIST_MAX, PATTERN_BYTES_MAX};
use crate::scalar::{Value, date_part};
use crate::table::TableColumn;
use crate::types::Type;

/// Binder for the expressions of one query.
pub(crate) struct Binder<'t> {
    pub(crate) sources: Sources<'t>,
    /// Set while expressions above the grouping are bound.
    pub(crate) groups: Option<Groups>,
    depth: usize,
}

impl<'t> Binder<'t> {
    pub(crate) fn new(sources: Sources<'t>) -> Self {
        Self { sources, groups: None, depth: 0 }
    }

    /// Releases the paths of a rejected query.
    pub(crate) fn abandon(mut self) {
        self.sources.give_back(&TakenCounts::default());
    }

    pub(crate) fn bind(&mut self, expr: &ast::Expr) -> Result<Bound, SqlError> {
        if self.depth == EXPRESSION_DEPTH_MAX {
            let message = format!("an expression has more than {EXPRESSION_DEPTH_MAX} levels");
            return Err(SqlError::new(SqlState::TOO_COMPLEX, message));
        }
        self.depth += 1;
        let bound = match self.bind_key(expr) {
            Some(bound) => Ok(bound),
            None => self.bind_node(expr),
        };
        self.depth -= 1;
        bound
    }

    /// Binds a boolean condition.
    pub(crate) fn bind_condition(
        &mut self,
        expr: &ast::Expr,
        clause: &str,
    ) -> Result<Expr, SqlError> {
        self.bind(expr)?.coerce(Type::Bool, &format!("argument of {clause}"))
    }

    /// Above the grouping: binds an expression that equals a grouping key as a reference to it.
    fn bind_key(&mut self, expr: &ast::Expr) -> Option<Bound> {
        let groups = self.groups.take()?;
        let before = self.sources.taken_counts();
        let bound = self.bind_node(expr).ok();
        self.sources.give_back(&before);
        let key = bound.and_then(|bound| {
            let index = groups.keys.iter().position(|it| it.expr == bound.expr)?;
            Some(Bound { expr: Expr::Result(index), data_type: bound.data_type })
        });
        self.groups = Some(groups);
        key
    }

    fn bind_node(&mut self, expr: &ast::Expr) -> Result<Bound, SqlError> {
        use ast::Expr as Ast;
        match expr {
            Ast::Identifier(name) => self.bind_name(None, name),
            Ast::CompoundIdentifier(names) => match names.as_slice() {
                [table, column] => self.bind_name(Some(table), column),
                _ => Err(undefined_column(&expr.to_string())),
            },
            Ast::Value(literal) => bind_literal(&literal.value),
            Ast::TypedString(typed) => {
                bind_literal(&typed.value.value)?.cast_to(type_of(&typed.data_type)?)
            }
            Ast::Interval(interval) => bind_interval(interval),
            Ast::Nested(inner) => self.bind(inner),
            Ast::UnaryOp { op, expr } => self.bind_unary(*op, expr),
            Ast::BinaryOp { left, op, right } => self.bind_binary(left, op, right, expr),
            Ast::Cast {
                kind: ast::CastKind::Cast | ast::CastKind::DoubleColon,
                expr,
                data_type,
                format: None,
                ..
            } => self.bind(expr)?.cast_to(type_of(data_type)?),
            Ast::IsNull(_)
            | Ast::IsNotNull(_)
            | Ast::IsTrue(_)
            | Ast::IsNotTrue(_)
            | Ast::IsFalse(_)
            | Ast::IsNotFalse(_)
            | Ast::IsUnknown(_)
            | Ast::IsNotUnknown(_)
            | Ast::IsDistinctFrom(..)
            | Ast::IsNotDistinctFrom(..) => self.bind_is(expr),
            Ast::InList { expr, list, negated } => self.bind_in(expr, list, *negated),
            Ast::Between { expr, negated, low, high } => {
                self.bind_between(expr, low, high, *negated)
            }
            Ast::Like { negated, any: false, expr, pattern, escape_char } => {
                let like = self.bind_like([expr, pattern], escape_char.as_ref(), false);
                negate_if(*negated, like?)
            }
            Ast::ILike { negated, any: false, expr, pattern, escape_char } => {
                let like = self.bind_like([expr, pattern], escape_char.as_ref(), true);
                negate_if(*negated, like?)
            }
            Ast::Case { operand, conditions, else_result, .. } => {
                self.bind_case(operand.as_deref(), conditions, else_result.as_deref())
            }
            Ast::Function(function) => self.bind_function(function),
            _ => self.bind_special(expr),
        }
    }

    /// Binds functions with special syntax in SQL.
    fn bind_special(&mut self, expr: &ast::Expr) -> Result<Bound, SqlError> {
        use ast::Expr as Ast;
        let unsupported = || SqlError::not_supported(format_args!("the expression {expr}"));
        match expr {
            Ast::Substring { expr, substring_from: Some(from), substring_for, .. } => {
                let parts = [Some(&**expr), Some(from), substring_for.as_deref()];
                self.bind_named("substring", parts.into_iter().flatten())
            }
            Ast::Substring { expr, substring_from: None, substring_for: Some(length), .. } => {
                let from = Bound::literal(Value::Int(1), Type::Int4);
                bind_call("substring", vec![self.bind(expr)?, from, self.bind(length)?])
            }
            Ast::Trim { trim_where, trim_what, expr, trim_characters: None } => {
                let name = match trim_where {
                    Some(ast::TrimWhereField::Leading) => "ltrim",
                    Some(ast::TrimWhereField::Trailing) => "rtrim",
                    _ => "btrim",
                };
                self.bind_named(name, [Some(&**expr), trim_what.as_deref()].into_iter().flatten())
            }
            Ast::Position { expr, r#in } => self.bind_named("strpos", [&**r#in, expr]),
            Ast::Ceil {
                expr,
                field: ast::CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime),
            } => self.bind_named("ceil", [&**expr]),
            Ast::Floor {
                expr,
                field: ast::CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime),
            } => self.bind_named("floor", [&**expr]),
            Ast::Extract { field, expr, .. } => {
                let field = field.to_string().to_ascii_lowercase();
                date_part(&field, 0).map_err(|_| unsupported())?;
                let time = self.bind(expr)?.coerce(Type::Timestamptz, "argument of EXTRACT")?;
                let field = Expr::Literal(Value::Text(field.into()));
                let call = Expr::Call { call: Call::DatePart, arguments: vec![field, time] };
                Bound::new(call, Type::Numeric)
            }
            _ => Err(unsupported()),
        }
    }

    fn bind_named<'a>(
        &mut self,
        name: &str,
        arguments: impl IntoIterator<Item = &'a ast::Expr>,
    ) -> Result<Bound, SqlError> {
        let arguments = arguments.into_iter().map(|it| self.bind(it));
        bind_call(name, arguments.collect::<Result<_, _>>()?)
    }

    fn bind_name(
        &mut self,
        table: Option<&ast::Ident>,
        name: &ast::Ident,
    ) -> Result<Bound, SqlError> {
        let found = self.sources.find(table, name)?;
        if self.groups.is_some() {
            let message = format!(
                "column \"{}\" must appear in the GROUP BY clause or in an aggregate function",
                found.column.name
            );
            return Err(SqlError::new(SqlState::GROUPING, message));
        }
        self.sources.column(&found)
    }

    /// Binds a column of `*`.
    pub(crate) fn bind_column(&mut self, column: &TableColumn) -> Result<Bound, SqlError> {
        self.sources.own_column(column)
    }

    fn bind_access(&mut self, access: Access<'_>, as_text: bool) -> Result<Bound, SqlError> {
        let found = match access.root {
            ast::Expr::Identifier(name) => self.sources.find(None, name)?,
            ast::Expr::CompoundIdentifier(names) if names.len() == 2 => {
                self.sources.find(Some(&names[0]), &names[1])?
            }
            other => return Err(SqlError::not_supported(format_args!("a JSON path from {other}"))),
        };
        if self.groups.is_some() {
            let name = &found.column.name;
            let message = format!("column \"{name}\" must appear in the GROUP BY clause");
            return Err(SqlError::new(SqlState::GROUPING, message));
        }
        self.sources.path(&found, access.steps, as_text)
    }

    fn bind_unary(
        &mut self,
        operator: UnaryOperator,
        operand: &ast::Expr,
    ) -> Result<Bound, SqlError> {
        match operator {
            UnaryOperator::Not => {
                let operand = Box::new(self.bind_condition(operand, "NOT")?);
                Bound::new(Expr::Not(operand), Type::Bool)
            }
            UnaryOperator::Plus | UnaryOperator::Minus => {
                let bound = self.bind(operand)?;
                let result = bound.data_type;
                if !result.is_number() && result != Type::Interval {
                    return Err(no_operator(Type::Unknown, "-", result));
                }
                if operator == UnaryOperator::Plus {
                    return Ok(bound);
                }
                Bound::new(Expr::Negate { result, operand: Box::new(bound.expr) }, result)
            }
            other => Err(SqlError::not_supported(format_args!("the operator {other}"))),
        }
    }

    fn bind_binary(
        &mut self,
        left: &ast::Expr,
        operator: &BinaryOperator,
        right: &ast::Expr,
        whole: &ast::Expr,
    ) -> Result<Bound, SqlError> {
        if let Some(comparison) = comparison(operator) {
            let (left, right) = (self.bind(left)?, self.bind(right)?);
            return compare(comparison, left, right);
        }
        if let Some(operator) = arithmetic(operator) {
            let (left, right) = (self.bind(left)?, self.bind(right)?);
            return bind_arithmetic(operator, left, right);
        }
        match operator {
            BinaryOperator::And => boolean(Expr::And(self.bind_chain(whole, operator, "AND")?)),
            BinaryOperator::Or => boolean(Expr::Or(self.bind_chain(whole, operator, "OR")?)),
            BinaryOperator::Arrow => self.bind_access(access(left, right)?, false),
            BinaryOperator::LongArrow => self.bind_access(access(left, right)?, true),
            BinaryOperator::StringConcat => {
                let (left, right) = (self.bind(left)?, self.bind(right)?);
                concatenation(left, right)
            }
            BinaryOperator::PGLikeMatch => self.bind_like([left, right], None, false),
            BinaryOperator::PGNotLikeMatch => {
                negate_if(true, self.bind_like([left, right], None, false)?)
            }
            BinaryOperator::PGILikeMatch => self.bind_like([left, right], None, true),
            BinaryOperator::PGNotILikeMatch => {
                negate_if(true, self.bind_like([left, right], None, true)?)
            }
            other => Err(SqlError::not_supported(format_args!("the operator {other}"))),
        }
    }

    /// Binds the operands of a chain of AND or OR of any length, as one level of nesting.
    fn bind_chain(
        &mut self,
        whole: &ast::Expr,
        operator: &BinaryOperator,
        name: &str,
    ) -> Result<Vec<Expr>, SqlError> {
        let mut operands = Vec::new();
        let mut rest = whole;
        while let ast::Expr::BinaryOp { left, op, right } = rest
            && op == operator
        {
            operands.push(self.bind_condition(right, name)?);
            rest = left;
        }
        operands.push(self.bind_condition(rest, name)?);
        operands.reverse();
        Ok(operands)
    }

    fn bind_is(&mut self, expr: &ast::Expr) -> Result<Bound, SqlError> {
        use ast::Expr as Ast;
        let (negated, expr) = match expr {
            Ast::IsNull(it) => (false, Expr::IsNull(Box::new(self.bind(it)?.expr))),
            Ast::IsNotNull(it) => (true, Expr::IsNull(Box::new(self.bind(it)?.expr))),
            Ast::IsTrue(it) | Ast::IsNotTrue(it) | Ast::IsFalse(it) | Ast::IsNotFalse(it) => {
                let value = matches!(expr, Ast::IsTrue(_) | Ast::IsNotTrue(_));
                let operand = Box::new(self.bind_condition(it, "IS")?);
                let negated = matches!(expr, Ast::IsNotTrue(_) | Ast::IsNotFalse(_));
                (negated, Expr::IsBool { value, operand })
            }
            Ast::IsUnknown(it) | Ast::IsNotUnknown(it) => {
                let negated = matches!(expr, Ast::IsNotUnknown(_));
                (negated, Expr::IsNull(Box::new(self.bind_condition(it, "IS UNKNOWN")?)))
            }
            Ast::IsDistinctFrom(left, right) | Ast::IsNotDistinctFrom(left, right) => {
                let (left, right) = (self.bind(left)?, self.bind(right)?);
                let (left, right) = unify_compared(left, right, "=")?;
                let negated = matches!(expr, Ast::IsDistinctFrom(..));
                (negated, Expr::Same(Box::new(left), Box::new(right)))
            }
            other => return Err(SqlError::not_supported(other)),
        };
        negate_if(negated, boolean(expr)?)
    }

    fn bind_in(
        &mut self,
        operand: &ast::Expr,
        list: &[ast::Expr],
        negated: bool,
    ) -> Result<Bound, SqlError> {
        if list.len() > IN_LIST_MAX {
            let message = format!("an IN list has more than {IN_LIST_MAX} items");
            return Err(SqlError::new(SqlState::TOO_LARGE, message));
        }
        let mut operands = vec![self.bind(operand)?];
        for item in list {
            operands.push(self.bind(item)?);
        }
        let first = operands[0].data_type;
        if first == Type::Json {
            return Err(no_operator(first, "=", first));
        }
        let (mut operands, _) = unify(operands, "IN").map_err(|error| match error.state {
            SqlState::DATATYPE => SqlError { state: SqlState::UNDEFINED_FUNCTION, ..error },
            _ => error,
        })?;
        let operand = Box::new(operands.remove(0));
        let is_literal = operands.iter().all(|it| matches!(it, Expr::Literal(_)));
        let contained = match is_literal {
            true => {
                let literals = operands.into_iter().filter_map(|it| match it {
                    Expr::Literal(value) => Some(value),
                    _ => None,
                });
                Expr::InSet { operand, set: Arc::new(LiteralSet::new(literals)) }
            }
            false => Expr::InList { operand, list: operands },
        };
        negate_if(negated, boolean(contained)?)
    }

    fn bind_between(
        &mut self,
        operand: &ast::Expr,
        low: &ast::Expr,
        high: &ast::Expr,
        negated: bool,
    ) -> Result<Bound, SqlError> {
        let operand = self.bind(operand)?;
        let (low, high) = (self.bind(low)?, self.bind(high)?);
        let above = compare(Comparison::GreaterOrEqual, operand.clone(), low)?;
        let below = compare(Comparison::LessOrEqual, operand, high)?;
        negate_if(negated, boolean(Expr::And(vec![above.expr, below.expr]))?)
    }

    fn bind_like(
        &mut self,
        sides: [&ast::Expr; 2],
        escape: Option<&ast::ValueWithSpan>,
        folds: bool,
    ) -> Result<Bound, SqlError> {
        let [operand, pattern] = [self.bind(sides[0])?, self.bind(sides[1])?];
        let is_text = |it: &Bound| matches!(it.data_type, Type::Text | Type::Unknown);
        if !is_text(&operand) || !is_text(&pattern) {
            return Err(no_operator(operand.data_type, "~~", pattern.data_type));
        }
        let escape = escape_character(escape)?;
        let operand = Box::new(operand.expr);
        let like = match pattern.expr {
            Expr::Literal(Value::Text(text)) => {
                if text.len() > PATTERN_BYTES_MAX {
                    let message = format!("a LIKE pattern has more than {PATTERN_BYTES_MAX} bytes");
                    return Err(SqlError::new(SqlState::TOO_LARGE, message));
                }
                let pattern = Arc::new(Pattern::new(&text, escape, folds)?);
                Expr::Like { operand, pattern }
            }
            made => Expr::LikeMade { operand, pattern: Box::new(made), escape, folds },
        };
        boolean(like)
    }

    fn bind_case(
        &mut self,
        operand: Option<&ast::Expr>,
        conditions: &[ast::CaseWhen],
        otherwise: Option<&ast::Expr>,
    ) -> Result<Bound, SqlError> {
        let operand = operand.map(|it| self.bind(it)).transpose()?;
        let mut tests = Vec::with_capacity(conditions.len());
        let mut results = Vec::with_capacity(conditions.len() + 1);
        for branch in conditions {
            tests.push(match &operand {
                Some(operand) => {
                    compare(Comparison::Equal, operand.clone(), self.bind(&branch.condition)?)?.expr
                }
                None => self.bind_condition(&branch.condition, "CASE WHEN")?,
            });
            results.push(self.bind(&branch.result)?);
        }
        results.push(match otherwise {
            Some(result) => self.bind(result)?,
            None => Bound::literal(Value::Null, Type::Unknown),
        });
        let (mut results, data_type) = unify(results, "CASE")?;
        let otherwise = Box::new(results.pop().expect("ELSE was added above"));
        let branches = tests.into_iter().zip(results).collect();
        Bound::new(Expr::Case { branches, otherwise }, data_type)
    }

    fn bind_function(&mut self, function: &ast::Function) -> Result<Bound, SqlError> {
        let [ast::ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else {
            return Err(SqlError::not_supported(format_args!("the function {}", function.name)));
        };
        let name = folded(name);
        let list = match &function.args {
            ast::FunctionArguments::List(list) => list,
            ast::FunctionArguments::None | ast::FunctionArguments::Subquery(_) => {
                return Err(SqlError::not_supported(format_args!("the function {name}")));
            }
        };
        let is_plain = function.over.is_none()
            && function.within_group.is_empty()
            && function.null_treatment.is_none()
            && list.clauses.is_empty()
            && matches!(function.parameters, ast::FunctionArguments::None);
        if !is_plain || matches!(list.duplicate_treatment, Some(ast::DuplicateTreatment::Distinct))
        {
            return Err(SqlError::not_supported(format_args!("{function}")));
        }
        if is_aggregate(&name) {
            return self.bind_aggregate(&name, &list.args, function.filter.as_deref());
        }
        if function.filter.is_some() {
            return Err(SqlError::not_supported(format_args!("FILTER of {name}")));
        }
        let mut arguments = Vec::with_capacity(list.args.len());
        for argument in &list.args {
            match argument {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(it)) => {
                    arguments.push(self.bind(it)?);
                }
                other => return Err(SqlError::not_supported(format_args!("the argument {other}"))),
            }
        }
        bind_call(&name, arguments)
    }

    fn bind_aggregate(
        &mut self,
        name: &str,
        arguments: &[ast::FunctionArg],
        filter: Option<&ast::Expr>,
    ) -> Result<Bound, SqlError> {
        use ast::{FunctionArg::Unnamed, FunctionArgExpr};
        let Some(mut groups) = self.groups.take() else {
            let message = format!("aggregate function {name} is not allowed here");
            return Err(SqlError::new(SqlState::GROUPING, message));
        };
        let aggregate = (|| {
            let argument = match arguments {
                [Unnamed(FunctionArgExpr::Wildcard)] if name == "count" => None,
                [Unnamed(FunctionArgExpr::Expr(argument))] => Some(self.bind(argument)?.decided()),
                _ => {
                    return Err(SqlError::not_supported(format_args!(
                        "{name} with these arguments"
                    )));
                }
            };
            let filter = filter.map(|it| self.bind_condition(it, "FILTER")).transpose()?;
            let data_type = argument.as_ref().map(|it| it.data_type);
            let (kind, result) = aggregate_over(name, data_type)?;
            let is_whole = kind == AggregateKind::SumExact && data_type == Some(Type::Int8);
            let argument = argument.map(|it| it.expr);
            Ok(Aggregate { kind, argument, filter, result, is_whole })
        })();
        let bound = aggregate.map(|aggregate| {
            let data_type = aggregate.result;
            let found = groups.aggregates.iter().position(|it| *it == aggregate);
            let index = found.unwrap_or_else(|| {
                groups.aggregates.push(aggregate);
                groups.aggregates.len() - 1
            });
            Bound { expr: Expr::Result(groups.keys.len() + index), data_type }
        });
        self.groups = Some(groups);
        bound
    }
}
