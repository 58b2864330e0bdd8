//! Aggregate functions in the SELECT list of a grouped query.

use crate::error::SqlError;
use crate::expr::functions::no_function;
use crate::expr::syntax::Expr;
use crate::expr::typing::Bound;
use crate::types::Type;

/// Grouping keys and aggregates of a query. Expressions above the grouping refer to them by index,
/// keys first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    pub(crate) keys: Vec<Bound>,
    pub(crate) aggregates: Vec<Aggregate>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Aggregate {
    pub(crate) kind: AggregateKind,
    /// `None` for `count(*)`.
    pub(crate) argument: Option<Expr>,
    /// FILTER (WHERE …): condition for rows to aggregate.
    pub(crate) filter: Option<Expr>,
    pub(crate) result: Type,
    /// True if a numeric result has no fractional digits.
    pub(crate) is_whole: bool,
}

/// Aggregate functions. Sums and means differ by the type of their argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AggregateKind {
    Count,
    /// Exact sum of integers and numerics.
    SumExact,
    SumFloat,
    MeanExact,
    MeanFloat,
    Min,
    Max,
}

/// Returns whether `name` is an aggregate function of PostgreSQL, supported or not.
pub(super) fn is_aggregate(name: &str) -> bool {
    const NAMES: [&str; 17] = [
        "count",
        "sum",
        "avg",
        "min",
        "max",
        "array_agg",
        "string_agg",
        "json_agg",
        "jsonb_agg",
        "json_object_agg",
        "bool_and",
        "bool_or",
        "every",
        "stddev",
        "variance",
        "bit_and",
        "bit_or",
    ];
    NAMES.contains(&name)
}

/// Returns the aggregate `name` over an argument of `data_type`, and its result type.
pub(super) fn aggregate_over(
    name: &str,
    data_type: Option<Type>,
) -> Result<(AggregateKind, Type), SqlError> {
    use AggregateKind::{Count, Max, MeanExact, MeanFloat, Min, SumExact, SumFloat};
    let Some(data_type) = data_type else {
        return if name == "count" { Ok((Count, Type::Int8)) } else { Err(no_function(name, &[])) };
    };
    let is_ordered = data_type != Type::Json && data_type != Type::Bool && data_type != Type::Bytea;
    Ok(match (name, data_type) {
        ("count", _) => (Count, Type::Int8),
        ("sum", Type::Int4) => (SumExact, Type::Int8),
        ("sum", Type::Int8 | Type::Numeric) => (SumExact, Type::Numeric),
        ("sum", Type::Float8) => (SumFloat, Type::Float8),
        ("avg", Type::Int4 | Type::Int8 | Type::Numeric) => (MeanExact, Type::Numeric),
        ("avg", Type::Float8) => (MeanFloat, Type::Float8),
        ("min", _) if is_ordered => (Min, data_type),
        ("max", _) if is_ordered => (Max, data_type),
        ("sum" | "avg" | "min" | "max", _) => return Err(no_function(name, &[data_type])),
        _ => return Err(SqlError::not_supported(format_args!("the aggregate {name}"))),
    })
}
