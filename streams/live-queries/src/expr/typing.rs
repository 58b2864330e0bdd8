//! Type resolution of operands, and implicit conversions.

use crate::error::{SqlError, SqlState};
use crate::expr::syntax::{Arithmetic, Expr};
use crate::json::Fields;
use crate::row::Row;
use crate::scalar::{Value, can_cast, cast};
use crate::types::Type;

/// An expression with its type.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) expr: Expr,
    pub(crate) data_type: Type,
}

impl Bound {
    pub(crate) fn literal(value: Value<'static>, data_type: Type) -> Self {
        Self { expr: Expr::Literal(value), data_type }
    }

    /// Creates an expression. Constant ones are evaluated now, so errors are reported early.
    pub(crate) fn new(expr: Expr, data_type: Type) -> Result<Self, SqlError> {
        if !expr.is_foldable() {
            return Ok(Self { expr, data_type });
        }
        let fields = Fields::default();
        let value = expr.evaluate(&Row::of_results(&[], &fields))?.into_owned();
        Ok(Self::literal(value, data_type))
    }

    /// Converts to `to` by an implicit cast. `place` names the context in an error.
    pub(crate) fn coerce(self, to: Type, place: &str) -> Result<Expr, SqlError> {
        let Self { expr, data_type: from } = self;
        match (from, to) {
            _ if from == to || (from == Type::Int4 && to == Type::Int8) => Ok(expr),
            (Type::Unknown, _) => parse_literal(expr, to),
            _ if rank(from).is_some_and(|it| rank(to).is_some_and(|other| it < other)) => {
                Ok(Self::new(Expr::Cast { to, operand: Box::new(expr) }, to)?.expr)
            }
            _ => Err(SqlError::new(
                SqlState::DATATYPE,
                format!("{place} must be type {to}, not type {from}"),
            )),
        }
    }

    /// Casts to `to` explicitly, as `::` does.
    pub(crate) fn cast_to(self, to: Type) -> Result<Self, SqlError> {
        if self.data_type == Type::Unknown {
            return Ok(Self { expr: parse_literal(self.expr, to)?, data_type: to });
        }
        if !can_cast(self.data_type, to) {
            let message = format!("cannot cast type {} to {to}", self.data_type);
            return Err(SqlError::new(SqlState::CANNOT_COERCE, message));
        }
        match self.data_type == to {
            true => Ok(self),
            false => Self::new(Expr::Cast { to, operand: Box::new(self.expr) }, to),
        }
    }

    /// Resolves a literal of unknown type to text if nothing else determined its type.
    pub(crate) fn decided(mut self) -> Self {
        if self.data_type == Type::Unknown {
            self.data_type = Type::Text;
        }
        self
    }
}

fn parse_literal(expr: Expr, to: Type) -> Result<Expr, SqlError> {
    let Expr::Literal(value) = expr else { return Ok(expr) };
    let described = value.to_string();
    let value = cast(value, to).map_err(|error| {
        SqlError::new(error.state(), format!("{error}: \"{}\"", shortened(&described)))
    })?;
    Ok(Expr::Literal(value.into_owned()))
}

fn shortened(text: &str) -> &str {
    text.char_indices().nth(80).map_or(text, |(at, _)| &text[..at])
}

/// Returns the position of a numeric type in the order of widening.
fn rank(data_type: Type) -> Option<u8> {
    match data_type {
        Type::Int4 => Some(0),
        Type::Int8 => Some(1),
        Type::Numeric => Some(2),
        Type::Float8 => Some(3),
        _ => None,
    }
}

/// Returns the common type of two operands, or `None` if they are incompatible.
pub(crate) fn common_type(left: Type, right: Type) -> Option<Type> {
    match (left, right) {
        (Type::Unknown, other) | (other, Type::Unknown) => Some(other),
        _ if left == right => Some(left),
        _ if rank(left)? > rank(right)? => Some(left),
        _ => Some(right),
    }
}

/// Converts the operands of `construct` (CASE, COALESCE, IN …) to a common type.
pub(crate) fn unify(operands: Vec<Bound>, construct: &str) -> Result<(Vec<Expr>, Type), SqlError> {
    let mut common = Type::Unknown;
    for operand in &operands {
        common = common_type(common, operand.data_type).ok_or_else(|| {
            let message =
                format!("{construct} types {common} and {} cannot be matched", operand.data_type);
            SqlError::new(SqlState::DATATYPE, message)
        })?;
    }
    if common == Type::Unknown {
        common = Type::Text;
    }
    let operands = operands.into_iter().map(|it| it.coerce(common, construct));
    Ok((operands.collect::<Result<_, _>>()?, common))
}

/// Converts the operands of a comparison to a common type.
pub(crate) fn unify_compared(
    left: Bound,
    right: Bound,
    symbol: &str,
) -> Result<(Expr, Expr), SqlError> {
    let (left_type, right_type) = (left.data_type, right.data_type);
    let common = common_type(left_type, right_type).filter(|it| *it != Type::Json);
    let Some(common) = common else { return Err(no_operator(left_type, symbol, right_type)) };
    let common = if common == Type::Unknown { Type::Text } else { common };
    Ok((left.coerce(common, "a comparison")?, right.coerce(common, "a comparison")?))
}

pub(crate) fn no_operator(left: Type, symbol: &str, right: Type) -> SqlError {
    let message = format!("operator does not exist: {left} {symbol} {right}");
    SqlError::new(SqlState::UNDEFINED_FUNCTION, message)
        .with_hint("add an explicit type cast, such as (value->>'quantity')::bigint")
}

pub(crate) fn bind_arithmetic(
    operator: Arithmetic,
    left: Bound,
    right: Bound,
) -> Result<Bound, SqlError> {
    use Arithmetic::{Add, Modulo, Subtract};
    let (left_type, right_type) = (left.data_type, right.data_type);
    let missing = || no_operator(left_type, &operator.symbol().to_string(), right_type);
    let (operands, result) = match (left_type, right_type, operator) {
        (Type::Timestamptz, Type::Interval | Type::Unknown, Add | Subtract) => {
            ((Type::Timestamptz, Type::Interval), Type::Timestamptz)
        }
        (Type::Interval | Type::Unknown, Type::Timestamptz, Add) => {
            ((Type::Interval, Type::Timestamptz), Type::Timestamptz)
        }
        (Type::Timestamptz, Type::Timestamptz, Subtract) => {
            ((Type::Timestamptz, Type::Timestamptz), Type::Interval)
        }
        (Type::Interval, Type::Interval, Add | Subtract) => {
            ((Type::Interval, Type::Interval), Type::Interval)
        }
        _ => {
            let common = common_type(left_type, right_type).filter(|it| it.is_number());
            let common = common.ok_or_else(missing)?;
            if common == Type::Float8 && operator == Modulo {
                return Err(missing());
            }
            ((common, common), common)
        }
    };
    let left = Box::new(left.coerce(operands.0, "an operand")?);
    let right = Box::new(right.coerce(operands.1, "an operand")?);
    Bound::new(Expr::Arithmetic { operator, result, left, right }, result)
}
