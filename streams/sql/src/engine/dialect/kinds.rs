//! Operators and casts defined by PostgreSQL in `pg_operator` and `pg_cast`, by kinds of operands.
//! Without these checks the engine would implicitly convert other operands to texts or numbers.

use std::cell::LazyCell;
use std::ops::Deref;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::own::no_operator;
use super::planned::with_field;
use crate::wire::PgType;

/// Kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// NULL, a quoted literal or a parameter: it adapts to the context.
    Unknown,
    Text,
    Smallint,
    Integer,
    Bigint,
    Numeric,
    Float,
    Boolean,
    Date,
    Timestamp,
    Time,
    Interval,
    Json,
    Bytes,
    Texts,
    /// An array other than of texts.
    Array,
    Other,
}

impl Kind {
    pub(super) fn of(expr: &Expr, schema: &DFSchema) -> Self {
        match expr {
            Expr::Literal(value, _) if value.data_type().is_string() => Self::Unknown,
            Expr::Placeholder(_) => Self::Unknown,
            other => with_field(other, schema, Self::of_field).unwrap_or(Self::Unknown),
        }
    }

    pub(super) fn of_field(field: &Field) -> Self {
        match field.data_type() {
            DataType::Null => Self::Unknown,
            _ if PgType::of(field).is_json() => Self::Json,
            it if it.is_string() => Self::Text,
            DataType::Int16 => Self::Smallint,
            DataType::Int32 => Self::Integer,
            it if it.is_integer() => Self::Bigint,
            it if it.is_decimal() => Self::Numeric,
            it if it.is_floating() => Self::Float,
            DataType::Boolean => Self::Boolean,
            DataType::Date32 => Self::Date,
            DataType::Timestamp(..) => Self::Timestamp,
            DataType::Time64(_) => Self::Time,
            DataType::Interval(_) => Self::Interval,
            DataType::Binary | DataType::BinaryView | DataType::LargeBinary => Self::Bytes,
            DataType::List(element) | DataType::LargeList(element) => {
                match element.data_type().is_string() {
                    true => Self::Texts,
                    false => Self::Array,
                }
            }
            _ => Self::Other,
        }
    }

    /// Returns whether a value has one of these kinds, or can adapt to one.
    fn is_of(self, kinds: &[Self]) -> bool {
        matches!(self, Self::Unknown | Self::Other) || kinds.contains(&self)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Unknown => "a literal",
            Self::Text => "a text",
            Self::Smallint => "a smallint",
            Self::Integer => "an integer",
            Self::Bigint => "a bigint",
            Self::Numeric => "a numeric",
            Self::Float => "a float",
            Self::Boolean => "a boolean",
            Self::Date => "a date",
            Self::Timestamp => "a timestamp",
            Self::Time => "a time",
            Self::Interval => "an interval",
            Self::Json => "JSON",
            Self::Bytes => "bytea",
            Self::Texts | Self::Array => "an array",
            Self::Other => "a value",
        }
    }

    fn is_number(self) -> bool {
        self.is_integer() || matches!(self, Self::Numeric | Self::Float)
    }

    fn is_integer(self) -> bool {
        matches!(self, Self::Smallint | Self::Integer | Self::Bigint)
    }
}

/// Returns whether a cast exists. Casts from text depend on the contents.
pub(super) fn has_cast(from: Kind, to: Kind) -> bool {
    use Kind as K;
    from == to
        || from.is_of(&[K::Text])
        || matches!(to, K::Text | K::Unknown | K::Other)
        || match from {
            K::Integer => to.is_number() || to == K::Boolean,
            K::Smallint | K::Bigint | K::Numeric | K::Float => to.is_number(),
            K::Boolean => to == K::Integer,
            K::Date => to == K::Timestamp,
            K::Timestamp => matches!(to, K::Date | K::Time),
            K::Time => to == K::Interval,
            K::Interval => to == K::Time,
            K::Json => to.is_number() || to == K::Boolean,
            K::Texts | K::Array => matches!(to, K::Texts | K::Array),
            _ => false,
        }
}

/// Returns whether an operator exists. The kinds are lazy, and determined only where an operator
/// depends on them. Arithmetic and comparison operators are checked elsewhere.
fn has_operator(
    operator: &BinaryOperator,
    left: &impl Deref<Target = Kind>,
    right: &impl Deref<Target = Kind>,
) -> bool {
    use BinaryOperator as Op;
    use Kind as K;
    let both = |kinds: &[K]| left.is_of(kinds) && right.is_of(kinds);
    match operator {
        // Texts are accepted as JSON, because values of topics are texts.
        Op::Arrow | Op::LongArrow => {
            left.is_of(&[K::Json, K::Text]) && right.is_of(&[K::Text, K::Smallint, K::Integer])
        }
        Op::HashArrow | Op::HashLongArrow => {
            left.is_of(&[K::Json, K::Text]) && right.is_of(&[K::Text, K::Texts])
        }
        Op::Question => left.is_of(&[K::Json, K::Text]) && right.is_of(&[K::Text]),
        Op::QuestionAnd | Op::QuestionPipe => {
            left.is_of(&[K::Json, K::Text]) && right.is_of(&[K::Texts])
        }
        Op::PGRegexMatch
        | Op::PGRegexIMatch
        | Op::PGRegexNotMatch
        | Op::PGRegexNotIMatch
        | Op::PGLikeMatch
        | Op::PGILikeMatch
        | Op::PGNotLikeMatch
        | Op::PGNotILikeMatch => both(&[K::Text]),
        Op::Modulo => both(&[K::Smallint, K::Integer, K::Bigint, K::Numeric]),
        Op::BitwiseAnd | Op::BitwiseOr | Op::PGBitwiseXor => {
            both(&[K::Smallint, K::Integer, K::Bigint])
        }
        Op::PGBitwiseShiftLeft | Op::PGBitwiseShiftRight => {
            left.is_of(&[K::Smallint, K::Integer, K::Bigint])
                && right.is_of(&[K::Smallint, K::Integer])
        }
        Op::StringConcat => match (**left, **right) {
            (K::Texts, other) | (other, K::Texts) => other.is_of(&[K::Text, K::Texts]),
            _ => true,
        },
        _ => true,
    }
}

/// Rejects undefined operators.
#[derive(Debug)]
pub(in crate::engine) struct KnownOperators;

impl ExprPlanner for KnownOperators {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let of = |operand| LazyCell::new(move || Kind::of(operand, schema));
        if has_operator(&expr.op, &of(&expr.left), &of(&expr.right)) {
            return Ok(PlannerResult::Original(expr));
        }
        Err(no_operator(&expr.op).into_engine())
    }
}
