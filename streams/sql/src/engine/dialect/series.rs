//! Set-returning functions, implemented by list functions and the engine's `unnest`. Also
//! aggregates that build JSON arrays.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, Array, ArrayElemTypeDef, DataType, DuplicateTreatment, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName, Query, Select,
    SelectItem, SetExpr, TableAlias, TableAliasColumnDef, TableFactor, TableWithJoins, Value,
    VisitMut, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::array_functions::FLAT;
use super::conversions::To;
use super::generated::{LISTED, ORDINALS};
use super::json_functions::{
    ELEMENT_TEXTS, ELEMENTS, JSON_LINE, JSON_LIST, JSON_OF, JSONB_ELEMENT_TEXTS, JSONB_ELEMENTS,
    JSONB_KEYS, JSONB_LIST, JSONB_OF, JSONB_VALUE_TEXTS, JSONB_VALUES, KEYS, VALUE_TEXTS, VALUES,
};
use super::refusal::refused;
use super::regex_functions::{MATCHES, PIECES};
use super::rewrites::cast_to;
use super::written::{call, number, text_of};
use crate::error::{SqlError, SqlState};
use crate::wire::array_elements;

/// A set-returning function.
struct Series {
    /// List functions for each column; `None` if the argument itself is the list.
    lists: &'static [Option<&'static str>],
    /// Column names. If empty, the function's name or alias.
    columns: &'static [&'static str],
}

const SERIES: &[(&str, Series)] = &[
    ("json_array_elements", Series { lists: &[Some(ELEMENTS)], columns: &["value"] }),
    ("jsonb_array_elements", Series { lists: &[Some(JSONB_ELEMENTS)], columns: &["value"] }),
    ("json_array_elements_text", Series { lists: &[Some(ELEMENT_TEXTS)], columns: &["value"] }),
    (
        "jsonb_array_elements_text",
        Series { lists: &[Some(JSONB_ELEMENT_TEXTS)], columns: &["value"] },
    ),
    ("json_object_keys", Series { lists: &[Some(KEYS)], columns: &[] }),
    ("jsonb_object_keys", Series { lists: &[Some(JSONB_KEYS)], columns: &[] }),
    ("json_each", Series { lists: &[Some(KEYS), Some(VALUES)], columns: &["key", "value"] }),
    (
        "jsonb_each",
        Series { lists: &[Some(JSONB_KEYS), Some(JSONB_VALUES)], columns: &["key", "value"] },
    ),
    (
        "json_each_text",
        Series { lists: &[Some(KEYS), Some(VALUE_TEXTS)], columns: &["key", "value"] },
    ),
    (
        "jsonb_each_text",
        Series { lists: &[Some(JSONB_KEYS), Some(JSONB_VALUE_TEXTS)], columns: &["key", "value"] },
    ),
    ("regexp_matches", Series { lists: &[Some(MATCHES)], columns: &[] }),
    ("regexp_split_to_table", Series { lists: &[Some(PIECES)], columns: &[] }),
    ("string_to_table", Series { lists: &[Some("string_to_array")], columns: &[] }),
    (GENERATED, Series { lists: &[Some(LISTED)], columns: &[] }),
    (SUBSCRIPTS, Series { lists: &[Some(LISTED)], columns: &[] }),
    ("unnest", Series { lists: &[None], columns: &[] }),
];

/// The engine's set-returning function for numbers and times.
const GENERATED: &str = "generate_series";
const SUBSCRIPTS: &str = "generate_subscripts";

/// Marks an array of texts that are cast to jsonb.
const CAST: &str = "jsonb";

/// Column that numbers the rows of a function.
const ORDINALITY: &str = "ordinality";

fn series_of(name: &ObjectName) -> Option<(&'static str, &'static Series)> {
    let [part] = name.0.as_slice() else { return None };
    let name = &part.as_ident()?.value;
    let found = SERIES.iter().find(|(it, _)| it.eq_ignore_ascii_case(name));
    found.map(|(name, series)| (*name, series))
}

fn arguments(args: &[FunctionArg]) -> Option<Vec<Expr>> {
    let exprs = args.iter().map(|it| match it {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    });
    exprs.collect()
}

/// Rewrites a call in the select list to `unnest`.
pub(super) fn rows_of_call(function: &Function) -> Result<Option<Expr>, SqlError> {
    let Some((name, series)) = series_of(&function.name) else { return Ok(None) };
    let FunctionArguments::List(list) = &function.args else { return Ok(None) };
    match (series.lists, arguments(&list.args).map(|it| bounds_of(name, it))) {
        ([Some(of)], Some(given)) => Ok(Some(rows_of(of, call(of, given)))),
        ([None], Some(mut given)) if given.len() == 1 => match given.remove(0) {
            // Returns rows of arrays, which are not flattened.
            Expr::Function(of) if of.name.to_string() == MATCHES => Ok(None),
            list => Ok(Some(call("unnest", vec![call(FLAT, vec![list])]))),
        },
        ([None], _) => Ok(None),
        _ => Err(refused(&format!("{name} outside of FROM"))),
    }
}

/// Returns the arguments of the series of an array's subscripts, or other arguments as they are.
fn bounds_of(name: &str, given: Vec<Expr>) -> Vec<Expr> {
    match (name, given.as_slice()) {
        (SUBSCRIPTS, [_, _]) => vec![number("1"), call("array_length", given)],
        _ => given,
    }
}

/// Returns whether an expression is a constant from which the engine generates rows: no numeric.
fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => !digits.contains(['.', 'e', 'E']),
            Value::Placeholder(_) => false,
            _ => true,
        },
        Expr::Cast { expr, .. } | Expr::UnaryOp { expr, .. } | Expr::Nested(expr) => {
            is_constant(expr)
        }
        Expr::TypedString(_) | Expr::Interval(_) => true,
        _ => false,
    }
}

/// Rejects a call that returns rows within an expression that may not evaluate it.
pub(super) fn check_conditional(expr: &Expr) -> Result<(), SqlError> {
    let of = match expr {
        Expr::Case { .. } => "CASE",
        Expr::Function(call) if call.name.to_string().eq_ignore_ascii_case("coalesce") => {
            "COALESCE"
        }
        _ => return Ok(()),
    };
    match ast::Visit::visit(expr, &mut Rows::default()).is_break() {
        true => Err(refused(&format!("a set-returning function in {of}"))),
        false => Ok(()),
    }
}

/// Finds `unnest` in an expression outside of subqueries.
#[derive(Default)]
struct Rows {
    depth: usize,
}

impl Visitor for Rows {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(call) if self.depth == 0 && call.name.to_string() == "unnest" => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Returns the elements of an array as rows. `list` is the function that returned it.
fn rows_of(list: &str, of: Expr) -> Expr {
    let rows = call("unnest", vec![of]);
    match list {
        // A lookup with an empty path returns the value itself, marked as JSON.
        ELEMENTS | VALUES => call("json_get", vec![rows]),
        JSONB_ELEMENTS | JSONB_VALUES => call(To::Jsonb.name(), vec![rows]),
        CAST => cast_to(rows, DataType::JSONB),
        _ => rows,
    }
}

/// Rewrites calls in FROM to subqueries with `unnest`. References to such a table as a value are
/// replaced by its column.
pub(super) fn rows_of_tables(select: &mut Select) -> Result<(), SqlError> {
    let mut named = Vec::new();
    for from in &mut select.from {
        turn(from, &mut named)?;
    }
    if named.is_empty() {
        return Ok(());
    }
    let mut values = Values { named: &named };
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(Expr::Identifier(name)) = item
            && let Some(expr) = values.column(name)
        {
            *item = SelectItem::ExprWithAlias { expr, alias: name.clone() };
        }
    }
    // Names in subqueries refer to their own tables first.
    let _: ControlFlow<()> = select.projection.visit(&mut values);
    let _: ControlFlow<()> = select.selection.visit(&mut values);
    let _: ControlFlow<()> = select.group_by.visit(&mut values);
    let _: ControlFlow<()> = select.having.visit(&mut values);
    for from in &mut select.from {
        for join in &mut from.joins {
            let _: ControlFlow<()> = join.join_operator.visit(&mut values);
        }
    }
    Ok(())
}

fn turn(from: &mut TableWithJoins, named: &mut Vec<(Ident, Ident)>) -> Result<(), SqlError> {
    turn_factor(&mut from.relation, named)?;
    from.joins.iter_mut().try_for_each(|join| turn_factor(&mut join.relation, named))
}

/// A table that is a call.
struct Called<'a> {
    name: ObjectName,
    given: Vec<Expr>,
    alias: &'a mut Option<TableAlias>,
    with_ordinality: bool,
}

fn called(factor: &mut TableFactor) -> Option<Called<'_>> {
    let (name, given, alias, with_ordinality) = match factor {
        TableFactor::Table { name, args: Some(args), alias, with_ordinality, .. } => {
            (name.clone(), arguments(&args.args)?, alias, *with_ordinality)
        }
        TableFactor::Function { name, args, alias, with_ordinality, .. } => {
            (name.clone(), arguments(args)?, alias, *with_ordinality)
        }
        TableFactor::UNNEST {
            alias,
            array_exprs,
            with_offset: false,
            with_offset_alias: None,
            with_ordinality,
        } => {
            let name = ObjectName::from(vec![Ident::new("unnest")]);
            (name, array_exprs.clone(), alias, *with_ordinality)
        }
        _ => return None,
    };
    Some(Called { name, given, alias, with_ordinality })
}

/// Names the single column of generate_series in FROM after the table.
fn name_generated(factor: &mut TableFactor, named: &mut Vec<(Ident, Ident)>) {
    let Some(Called { name, given, alias, with_ordinality: false }) = called(factor) else {
        return;
    };
    if !name.to_string().eq_ignore_ascii_case(GENERATED) || !given.iter().all(is_constant) {
        return;
    }
    let table = alias.take().unwrap_or_else(|| TableAlias {
        explicit: true,
        name: Ident::new(GENERATED),
        columns: Vec::new(),
        at: None,
    });
    let mut columns = table.columns;
    if columns.is_empty() {
        columns.push(TableAliasColumnDef { name: table.name.clone(), data_type: None });
    }
    if let [column] = columns.as_slice() {
        named.push((table.name.clone(), column.name.clone()));
    }
    *alias = Some(TableAlias { columns, ..table });
}

/// Returns an array of jsonb, which the engine does not have, as an array of texts.
fn texts_of_json(list: &Expr) -> Option<Expr> {
    let element = |it: Expr| cast_to(cast_to(it, DataType::JSONB), DataType::Text);
    let is_json = |it: &DataType| matches!(it, DataType::JSONB);
    let elem = match list {
        Expr::Nested(inner) => return texts_of_json(inner),
        Expr::Cast { expr, data_type, .. } => {
            let is_array = matches!(data_type,
                DataType::Array(ArrayElemTypeDef::SquareBracket(of, _)) if is_json(of));
            let Some(text) = text_of(expr).filter(|_| is_array) else {
                return texts_of_json(expr).filter(|_| is_array);
            };
            let literal = |text: Option<String>| match text {
                Some(text) => Expr::Value(Value::SingleQuotedString(text).into()),
                None => Expr::Value(Value::Null.into()),
            };
            array_elements(text).ok()?.into_iter().map(|it| element(literal(it))).collect()
        }
        Expr::Array(array) => {
            let elem = array.elem.iter().map(|it| match it {
                Expr::Cast { expr, data_type, .. } if is_json(data_type) => {
                    Some(element((**expr).clone()))
                }
                _ => None,
            });
            elem.collect::<Option<Vec<_>>>()?
        }
        _ => return None,
    };
    (!elem.is_empty()).then_some(Expr::Array(Array { elem, named: true }))
}

/// Returns an array without its dimensions.
fn flat(list: &Expr) -> Expr {
    let list = match list {
        // The engine looks for columns of other tables in calls only.
        Expr::Array(array) if !array.elem.iter().all(is_constant) => {
            call("make_array", array.elem.clone())
        }
        other => other.clone(),
    };
    call(FLAT, vec![list])
}

/// Returns the columns of a table without names for them.
fn own_columns(series: &Series, alias: &Ident, count: usize) -> Vec<Ident> {
    if !series.columns.is_empty() {
        return series.columns.iter().map(|it| Ident::new(*it)).collect();
    }
    // PostgreSQL gives all columns the same name. The engine distinguishes them by name.
    let other = |index: usize| Ident::with_quote('"', format!("{} {index}", alias.value));
    std::iter::once(alias.clone()).chain((1..count).map(other)).collect()
}

fn turn_factor(factor: &mut TableFactor, named: &mut Vec<(Ident, Ident)>) -> Result<(), SqlError> {
    if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
        return turn(table_with_joins, named);
    }
    name_generated(factor, named);
    if let TableFactor::Table { args: None, with_ordinality: true, .. } = factor {
        let what = "syntax error at or near \"WITH ORDINALITY\"";
        return Err(SqlError::new(SqlState::SYNTAX, what));
    }
    let Some(Called { name, given, alias, with_ordinality }) = called(factor) else {
        return Ok(());
    };
    let Some((name, series)) = series_of(&name).filter(|_| !given.is_empty()) else {
        return match with_ordinality {
            true => Err(refused(&format!("WITH ORDINALITY of {name}"))),
            false => Ok(()),
        };
    };
    let is_several = series.lists == [None] && given.len() != 1;
    if !with_ordinality && name == GENERATED && given.iter().all(is_constant) {
        return Ok(());
    }
    let (alias, columns) = match alias.take() {
        Some(alias) => (alias.name, alias.columns),
        None => (Ident::new(name), Vec::new()),
    };
    let own = own_columns(series, &alias, if is_several { given.len() } else { 1 });
    let own = own.into_iter().chain(with_ordinality.then(|| Ident::new(ORDINALITY)));
    let mut columns: Vec<Ident> = columns.into_iter().map(|it| it.name).collect();
    let rest = own.skip(columns.len()).collect::<Vec<_>>();
    columns.extend(rest);
    if let [column] = columns.as_slice() {
        named.push((alias.clone(), column.clone()));
    }
    let given = bounds_of(name, given);
    let lists: Vec<_> = match series.lists {
        [None] => {
            let list = |it: &Expr| match texts_of_json(it) {
                Some(texts) => (CAST, flat(&texts)),
                None => ("", flat(it)),
            };
            given.iter().map(list).collect()
        }
        lists => {
            let lists = lists.iter().map(|it| it.unwrap_or_default());
            lists.map(|it| (it, call(it, given.clone()))).collect()
        }
    };
    let ordinals = with_ordinality.then(|| {
        let lists = lists.iter().map(|(_, list)| list.clone()).collect();
        call("unnest", vec![call(ORDINALS, lists)])
    });
    let rows = lists.into_iter().map(|(name, list)| rows_of(name, list)).chain(ordinals);
    let lists = rows.enumerate().map(|(index, expr)| {
        // Renamed by the alias. Until then, names must be unique.
        let alias = Ident::with_quote('"', format!("column {index}"));
        SelectItem::ExprWithAlias { expr, alias }
    });
    let Some(query) = query_of(lists.collect()) else { return Ok(()) };
    let columns = columns.into_iter().map(|name| TableAliasColumnDef { name, data_type: None });
    let alias = TableAlias { explicit: true, name: alias, columns: columns.collect(), at: None };
    *factor = TableFactor::Derived {
        lateral: true,
        subquery: Box::new(query),
        alias: Some(alias),
        sample: None,
    };
    Ok(())
}

/// Returns a `SELECT` of these items without FROM.
pub(super) fn query_of(items: Vec<SelectItem>) -> Option<Query> {
    let parser = Parser::new(&PostgreSqlDialect {}).try_with_sql("SELECT 1");
    let mut query = *parser.and_then(|mut it| it.parse_query()).ok()?;
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    select.projection = items;
    Some(query)
}

/// Replaces names of single-column tables by the column.
struct Values<'a> {
    named: &'a [(Ident, Ident)],
}

impl Values<'_> {
    fn column(&self, name: &Ident) -> Option<Expr> {
        let folded = |it: &Ident| match it.quote_style {
            Some(_) => it.value.clone(),
            None => it.value.to_ascii_lowercase(),
        };
        let (table, column) = self.named.iter().find(|(it, _)| folded(it) == folded(name))?;
        Some(Expr::CompoundIdentifier(vec![table.clone(), column.clone()]))
    }
}

impl VisitorMut for Values<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(name) = expr
            && let Some(column) = self.column(name)
        {
            *expr = column;
        }
        ControlFlow::Continue(())
    }
}

/// Rewrites an aggregate that builds a JSON array to a function of `array_agg`.
pub(super) fn json_of_rows(function: &Function) -> Result<Option<Expr>, SqlError> {
    let name = function.name.to_string().to_ascii_lowercase();
    let (of, list_of) = match name.as_str() {
        "json_agg" => (JSON_OF, JSON_LIST),
        "jsonb_agg" => (JSONB_OF, JSONB_LIST),
        _ => return Ok(None),
    };
    let FunctionArguments::List(list) = &function.args else { return Ok(None) };
    if function.over.is_some() {
        return Err(refused(&format!("{name} over a window")));
    }
    if list.duplicate_treatment == Some(DuplicateTreatment::Distinct) {
        return Err(refused(&format!("{name} with DISTINCT")));
    }
    let given = arguments(&list.args);
    let (Some([one]), true) = (given.as_deref(), function.within_group.is_empty()) else {
        return Ok(None);
    };
    let is_line = |it: &Function| it.name.to_string() == JSON_LINE;
    let value = match one {
        Expr::Function(row) if is_line(row) => one.clone(),
        _ => call(of, vec![one.clone()]),
    };
    let value = FunctionArg::Unnamed(FunctionArgExpr::Expr(value));
    let args = FunctionArgumentList { args: vec![value], ..list.clone() };
    let values = Function {
        name: ObjectName::from(vec![Ident::new("array_agg")]),
        args: FunctionArguments::List(args),
        ..function.clone()
    };
    Ok(Some(call(list_of, vec![Expr::Function(values)])))
}
