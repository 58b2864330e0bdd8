//! A float that meets a `numeric` keeps being one, as in PostgreSQL: the engine would make both
//! numbers of few digits, which large and small floats do not fit.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{Between, InList, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

/// Functions whose arguments become one type.
const OF_ONE_TYPE: &[&str] = &["coalesce", "greatest", "least", "nullif"];

/// To be the first of the rules, before types are made equal.
#[derive(Debug)]
pub(in crate::engine) struct KeepFloats;

impl AnalyzerRule for KeepFloats {
    fn name(&self) -> &'static str {
        "keep_floats"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|plan| {
            let schema = merge_schema(&plan.inputs());
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expr| {
                let name = names.save(&expr);
                let changed = expr.transform_up(|expr| keep_floats(expr, &schema))?;
                Ok(changed.update_data(|expr| name.restore(expr)))
            })
        });
        Ok(changed?.data)
    }
}

fn keep_floats(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let operands: Vec<&Expr> = match &expr {
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => vec![left, right],
        Expr::Between(Between { expr, low, high, .. }) => vec![expr, low, high],
        Expr::InList(InList { expr, list, .. }) => {
            std::iter::once(&**expr).chain(list.iter()).collect()
        }
        Expr::ScalarFunction(ScalarFunction { func, args })
            if OF_ONE_TYPE.contains(&func.name()) =>
        {
            args.iter().collect()
        }
        _ => return Ok(Transformed::no(expr)),
    };
    // Columns of an outer query are not in the schema: their types stay as they are.
    let types: Vec<_> = operands.iter().filter_map(|it| it.get_type(schema).ok()).collect();
    let is_mixed =
        types.iter().any(DataType::is_floating) && types.iter().any(DataType::is_decimal);
    if !is_mixed {
        return Ok(Transformed::no(expr));
    }
    let as_float = |expr: Expr| match expr.get_type(schema) {
        Ok(it) if it.is_decimal() => expr.cast_to(&DataType::Float64, schema),
        _ => Ok(expr),
    };
    let boxed = |expr: Box<Expr>| as_float(*expr).map(Box::new);
    Ok(Transformed::yes(match expr {
        Expr::BinaryExpr(it) => Expr::BinaryExpr(BinaryExpr {
            left: boxed(it.left)?,
            op: it.op,
            right: boxed(it.right)?,
        }),
        Expr::Between(it) => Expr::Between(Between {
            expr: boxed(it.expr)?,
            negated: it.negated,
            low: boxed(it.low)?,
            high: boxed(it.high)?,
        }),
        Expr::InList(it) => Expr::InList(InList {
            expr: boxed(it.expr)?,
            list: it.list.into_iter().map(as_float).collect::<Result<_>>()?,
            negated: it.negated,
        }),
        Expr::ScalarFunction(it) => Expr::ScalarFunction(ScalarFunction {
            args: it.args.into_iter().map(as_float).collect::<Result<_>>()?,
            func: it.func,
        }),
        other => other,
    }))
}
