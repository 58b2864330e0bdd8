//! Short names for long expressions. The engine names a column by the text of its expression, and
//! builds the name of each subexpression whenever it derives its type: a sum of some hundred terms
//! would take time proportional to the fourth power of their number. Large subexpressions are
//! therefore wrapped in a marker call, which is named by its second argument alone.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr as Planned, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Query, Statement, Value,
    VisitMut, VisitorMut,
};

use super::written::{call, size_of, text_of};

const NAME: &str = "part_of_expression";

/// Minimum size of a long expression. The engine finds GROUP BY expressions by their names, so with
/// markers they must match to the letter. Statements written by hand are shorter.
const LONG: usize = 100;

/// Minimum unmarked size of a subexpression to mark.
const PART: usize = 8;

/// Marks subexpressions of the long expressions in a statement.
pub(super) fn shorten_names(statement: &mut Statement) {
    let mut marker = Marker::default();
    let marked = statement.visit(&mut marker);
    debug_assert!(marked.is_continue(), "nothing ends it early");
    if !marker.parts.is_empty() {
        let restored = statement.visit(&mut Restorer { parts: marker.parts });
        debug_assert!(restored.is_continue(), "nothing ends it early");
    }
}

#[derive(Default)]
struct Marker {
    queries: Vec<Level>,
    /// Marked subexpressions by the name of the marker. They are removed while marking, so that the
    /// text of enclosing expressions stays short.
    parts: HashMap<String, Expr>,
}

/// Restores the subexpressions as arguments of their markers.
struct Restorer {
    parts: HashMap<String, Expr>,
}

impl VisitorMut for Restorer {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        let FunctionArguments::List(list) = &mut function.args else {
            return ControlFlow::Continue(());
        };
        let [FunctionArg::Unnamed(FunctionArgExpr::Expr(name))] = list.args.as_slice() else {
            return ControlFlow::Continue(());
        };
        // Equal texts have the same name, so each gets a copy.
        if let Some(part) = text_of(name).and_then(|name| self.parts.get(name))
            && function.name.to_string() == NAME
        {
            let part = FunctionArg::Unnamed(FunctionArgExpr::Expr(part.clone()));
            list.args.insert(0, part);
        }
        ControlFlow::Continue(())
    }
}

/// A query being visited, with the unmarked sizes of the operands of each enclosing expression,
/// outermost first.
#[derive(Default)]
struct Level {
    is_long: bool,
    sizes: Vec<Vec<usize>>,
}

impl VisitorMut for Marker {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries.push(Level::default());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Some(query) = self.queries.last_mut() {
            if query.sizes.is_empty() {
                query.is_long = size_of(expr) > LONG;
            }
            query.sizes.push(Vec::new());
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Some(query) = self.queries.last_mut()
            && let Some(mut sizes) = query.sizes.pop()
        {
            if query.is_long {
                self.parts.extend(mark(expr, &mut sizes));
            }
            if let Some(around) = query.sizes.last_mut() {
                around.push(1 + sizes.iter().sum::<usize>());
            }
        }
        ControlFlow::Continue(())
    }
}

/// Marks the large operands of an expression, and updates `sizes`. Returns the operands by marker
/// name.
fn mark(expr: &mut Expr, sizes: &mut [usize]) -> Vec<(String, Expr)> {
    let parts = parts(expr);
    if parts.len() != sizes.len() {
        return Vec::new();
    }
    let large = parts.into_iter().zip(sizes).filter(|(_, size)| **size >= PART);
    let marked = large.map(|(part, size)| {
        let mut hasher = DefaultHasher::new();
        part.to_string().hash(&mut hasher);
        let name = format!("({:x})", hasher.finish());
        let mark = call(NAME, vec![Expr::Value(Value::SingleQuotedString(name.clone()).into())]);
        *size = 1;
        (name, std::mem::replace(part, mark))
    });
    marked.collect()
}

/// Returns the operands of an expression that computes a value, not a condition.
fn parts(expr: &mut Expr) -> Vec<&mut Expr> {
    match expr {
        Expr::BinaryOp {
            left,
            op:
                BinaryOperator::Plus
                | BinaryOperator::Minus
                | BinaryOperator::Multiply
                | BinaryOperator::Divide
                | BinaryOperator::Modulo
                | BinaryOperator::StringConcat,
            right,
        } => vec![left, right],
        Expr::Cast { expr, .. } => vec![expr],
        Expr::Function(function) => {
            let FunctionArguments::List(list) = &mut function.args else { return Vec::new() };
            let parts = list.args.iter_mut().filter_map(|it| match it {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(part)) => Some(part),
                _ => None,
            });
            parts.collect()
        }
        _ => Vec::new(),
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Marked {
    signature: Signature,
}

/// Returns whether a function is the marker.
pub(super) fn is_mark(function: &ScalarUDF) -> bool {
    function.name() == NAME
}

/// Marker function: returns its first argument, and is named by its second.
pub(super) fn function() -> Arc<ScalarUDF> {
    let signature = Signature::any(2, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Marked { signature }))
}

impl ScalarUDFImpl for Marked {
    fn name(&self) -> &'static str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn schema_name(&self, arguments: &[Planned]) -> Result<String> {
        match arguments.get(1) {
            Some(name) => Ok(name.schema_name().to_string()),
            None => internal_err!("a mark has a name"),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::clone(&args.arg_fields[0]))
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(args.args.swap_remove(0))
    }
}

/// Unwraps a call that an operator will extend from its marker. Returns other expressions as
/// errors, unchanged.
pub(in crate::engine) fn unmarked(
    expr: Planned,
    is_it: impl Fn(&ScalarFunction) -> bool,
) -> Result<ScalarFunction, Planned> {
    let inner = match &expr {
        Planned::ScalarFunction(call) if is_mark(&call.func) => call.args.first(),
        other => Some(other),
    };
    let is_wanted = matches!(inner, Some(Planned::ScalarFunction(call)) if is_it(call));
    match expr {
        Planned::ScalarFunction(mut call) if is_wanted => match is_mark(&call.func) {
            true => match call.args.swap_remove(0) {
                Planned::ScalarFunction(inner) => Ok(inner),
                other => Err(other),
            },
            false => Ok(call),
        },
        other => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn marked(text: &str) -> String {
        let parsed = Parser::parse_sql(&PostgreSqlDialect {}, text);
        let mut statement = parsed.expect("a statement").remove(0);
        shorten_names(&mut statement);
        statement.to_string()
    }

    #[test]
    fn parts_of_long_expressions_alone_are_marked() {
        let sum = |count: usize| vec!["x"; count].join(" + ");
        let short = format!("SELECT {} FROM t WHERE x > 1", sum(LONG / 2));
        assert_eq!(marked(&short), short);
        let long = marked(&format!("SELECT {0}, {0}, x + 1 FROM t", sum(LONG)));
        assert!(long.ends_with(", x + 1 FROM t"), "{long}");
        // Equal texts have equal names: they are one group.
        let columns: Vec<_> = long.trim_start_matches("SELECT ").split(", x + ").collect();
        assert!(columns[0].contains(NAME));
        let count = long.matches(NAME).count();
        assert!(count.is_multiple_of(2) && count > 2 * LONG / PART / 2, "{count}");
    }
}
