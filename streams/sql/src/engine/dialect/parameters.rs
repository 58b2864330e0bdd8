//! Types of parameters that the context determines and the engine does not infer.

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{Cast, InList, Placeholder};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Case, Expr, ExprSchemable, LogicalPlan};
use std::collections::BTreeMap;
use std::sync::Arc;

use super::casts::cast_target;
use super::planned::is_json;
use crate::wire::PgType;

/// Functions whose arguments and results are of one type.
const OF_ONE_TYPE: &[&str] = &["coalesce", "greatest", "least", "nullif"];

/// Types untyped parameters: a LIMIT and an OFFSET is a bigint, the operand of a cast has the type
/// of the cast, and a value beside others that must have its type has theirs.
pub(in crate::engine) fn with_parameter_types(plan: LogicalPlan) -> Result<LogicalPlan> {
    let changed = plan.transform_up_with_subqueries(|plan| {
        let is_limit = matches!(plan, LogicalPlan::Limit(_));
        let schema = merge_schema(&plan.inputs());
        plan.map_expressions(|expr| match is_limit {
            true => Ok(counted(expr)),
            false => expr.transform_up(|expr| Ok(beside(of_cast(expr), &schema))),
        })
    });
    Ok(changed?.data)
}

/// Casts the parameter of a LIMIT to bigint, because clients may declare other types of numbers.
fn counted(mut expr: Expr) -> Transformed<Expr> {
    let Expr::Placeholder(parameter) = &mut expr else { return Transformed::no(expr) };
    typed(parameter, &DataType::Int64);
    Transformed::yes(Expr::Cast(Cast::new(Box::new(expr), DataType::Int64)))
}

fn of_cast(mut expr: Expr) -> Transformed<Expr> {
    let (operand, to) = match &mut expr {
        Expr::Cast(cast) if matches!(cast.field.data_type(), DataType::List(_)) => {
            let to = cast.field.data_type().clone();
            (Some(&mut *cast.expr), Some(to))
        }
        Expr::ScalarFunction(call) => (call.args.first_mut(), cast_target(&call.func)),
        _ => (None, None),
    };
    if let (Some(Expr::Placeholder(parameter @ Placeholder { field: None, .. })), Some(to)) =
        (operand, to)
    {
        typed(parameter, &to);
        return Transformed::yes(expr);
    }
    Transformed::no(expr)
}

/// Types parameters beside values with which they share a type.
fn beside(mut expr: Transformed<Expr>, schema: &DFSchema) -> Transformed<Expr> {
    let groups: Vec<Vec<&mut Expr>> = match &mut expr.data {
        Expr::ScalarFunction(call) if OF_ONE_TYPE.contains(&call.func.name()) => {
            vec![call.args.iter_mut().collect()]
        }
        Expr::InList(InList { expr, list, .. }) => {
            vec![std::iter::once(expr.as_mut()).chain(list).collect()]
        }
        Expr::Case(Case { expr, when_then_expr, else_expr }) => {
            let (whens, thens): (Vec<_>, Vec<_>) = when_then_expr
                .iter_mut()
                .map(|(when, then)| (when.as_mut(), then.as_mut()))
                .unzip();
            let results = thens.into_iter().chain(else_expr.as_deref_mut()).collect();
            match expr {
                Some(operand) => {
                    vec![results, std::iter::once(operand.as_mut()).chain(whens).collect()]
                }
                None => vec![results],
            }
        }
        _ => Vec::new(),
    };
    for group in groups {
        let Some(common) = common_type(&group, schema) else { continue };
        for value in group {
            if let Expr::Placeholder(parameter @ Placeholder { field: None, .. }) = value {
                typed(parameter, &common);
                expr.transformed = true;
            }
        }
    }
    expr
}

/// Returns the type of the values beside an untyped parameter, or `None` if there is no such
/// parameter, or they have no type in common. The types of numbers have the widest one in common.
fn common_type(values: &[&mut Expr], schema: &DFSchema) -> Option<DataType> {
    let is_untyped = |it: &Expr| matches!(it, Expr::Placeholder(Placeholder { field: None, .. }));
    // A parameter beside JSON is read as JSON, which is a text here.
    if !values.iter().any(|it| is_untyped(it)) || values.iter().any(|it| is_json(it, schema)) {
        return None;
    }
    let is_quoted =
        |it: &Expr| matches!(it, Expr::Literal(value, _) if value.data_type().is_string());
    let typed = values.iter().filter(|it| !is_untyped(it) && !is_quoted(it));
    let types: Vec<_> = typed.map(|it| it.get_type(schema).ok()).collect::<Option<_>>()?;
    let types = types.into_iter().filter(|it| !it.is_null());
    types.map(Some).reduce(|one, other| wider(one?, other?))?
}

fn wider(one: DataType, other: DataType) -> Option<DataType> {
    let rank = |it: &DataType| match it {
        DataType::Int16 => Some(0),
        DataType::Int32 => Some(1),
        DataType::Int64 => Some(2),
        it if it.is_decimal() => Some(3),
        DataType::Float32 => Some(4),
        DataType::Float64 => Some(5),
        _ => None,
    };
    match (rank(&one), rank(&other)) {
        _ if one == other => Some(one),
        (Some(first), Some(second)) => Some(if first < second { other } else { one }),
        _ => None,
    }
}

/// Type that the uses of a parameter determine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Inferred {
    Unknown,
    One(DataType),
    /// The uses have no type in common, and their order in the statement is not known.
    Several,
}

impl Inferred {
    fn and(self, other: &DataType, clause: Clause) -> Self {
        match self {
            Self::Unknown => Self::One(other.clone()),
            Self::One(one) if PgType::of_data(&one) == PgType::of_data(other) => Self::One(one),
            // The first use decides. The others convert the value.
            Self::One(one) if clause == Clause::Same && is_time(&one) && is_time(other) => {
                Self::One(one)
            }
            Self::One(one) => wider(one, other.clone()).map_or(Self::Several, Self::One),
            Self::Several => Self::Several,
        }
    }
}

/// Place of a use of a parameter: the clause of its first use, in which uses have the order of the
/// statement, or another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clause {
    Same,
    Other,
}

fn is_time(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Date32 | DataType::Timestamp(..))
}

/// Returns the types of a plan's parameters by their names, such as `$1`.
pub(crate) fn inferred_types(plan: &LogicalPlan) -> Result<BTreeMap<String, Inferred>> {
    let mut found: BTreeMap<String, (Inferred, usize)> = BTreeMap::new();
    let mut node = 0;
    plan.apply_with_subqueries(|plan| {
        node += 1;
        plan.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::Placeholder(Placeholder { id, field }) = expr {
                    let (types, first) = found.remove(id).unwrap_or((Inferred::Unknown, node));
                    let clause = if first == node { Clause::Same } else { Clause::Other };
                    let is_first = types == Inferred::Unknown;
                    let types = match field {
                        Some(field) => types.and(field.data_type(), clause),
                        None => types,
                    };
                    found.insert(id.clone(), (types, if is_first { node } else { first }));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(found.into_iter().map(|(name, (types, _))| (name, types)).collect())
}

fn typed(parameter: &mut Placeholder, data_type: &DataType) {
    let data_type = match data_type {
        // As clients' texts are read.
        DataType::List(of) if of.data_type().is_string() => {
            DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)))
        }
        other => other.clone(),
    };
    let field = || Arc::new(Field::new("", data_type.clone(), true));
    parameter.field.get_or_insert_with(field);
}
