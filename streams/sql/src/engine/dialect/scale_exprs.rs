//! Scales of the values of expressions, as in PostgreSQL: a quotient's from its digits, that of a
//! CASE from the branch taken. A scale is a constant, or an expression over the same columns. The
//! scale of an array is the array of its elements' scales, or a constant for all of them.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, lit};

use super::array_functions::FLAT;
use super::casts::NUMERIC;
use super::numerics::is_unknown;
use super::scale_functions::{
    PACKED_FIELD, PACKED_SCALE, QUOTIENT, is_packed, larger, of_call, of_digits, of_quotient,
    of_text, packed_field, sum,
};
use super::scales::is_given_scale;
use super::{chains, short_names};

/// Maximum depth of expressions between a result and its operands.
const DEPTH_MAX: usize = 32;

/// Maximum number of parts of an expression whose scale is computed, since they are repeated.
const PARTS_MAX: usize = 200;

/// Functions on arrays whose elements are values of their arguments.
const OF_ARRAYS: &[&str] =
    &["array_append", "array_concat", "array_element", "array_prepend", FLAT, "make_array"];

/// The scale of the values of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scale {
    Of(i32),
    Computed(Expr),
}

impl Scale {
    pub(super) fn expr(self) -> Expr {
        match self {
            Self::Of(scale) => lit(scale),
            Self::Computed(expr) => expr,
        }
    }

    fn or_larger(self, other: Self) -> Self {
        match (self, other) {
            (Self::Of(one), Self::Of(other)) => Self::Of(one.max(other)),
            (one, other) => Self::Computed(larger().call(vec![one.expr(), other.expr()])),
        }
    }

    fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Of(one), Self::Of(other)) => Self::Of(one + other),
            (one, other) => Self::Computed(sum().call(vec![one.expr(), other.expr()])),
        }
    }
}

/// Returns the scale of the type of a number, or of the elements of an array.
pub(super) fn own_scale(data_type: &DataType) -> Option<i32> {
    match data_type {
        DataType::List(element) => own_scale(element.data_type()),
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => Some(i32::from(*scale)),
        it if it.is_integer() => Some(0),
        _ => None,
    }
}

/// The columns of expressions.
pub(super) trait Columns {
    fn schema(&self) -> &DFSchema;

    /// Returns the scale of the values of a column, or `None` if it cannot be derived.
    fn scale_of(&mut self, index: usize) -> Result<Option<Scale>>;
}

/// No columns.
pub(super) struct NoColumns(pub(super) DFSchema);

impl Columns for NoColumns {
    fn schema(&self) -> &DFSchema {
        &self.0
    }

    fn scale_of(&mut self, _: usize) -> Result<Option<Scale>> {
        Ok(None)
    }
}

/// Derives the scales of expressions over columns.
pub(super) struct Scales<'a> {
    pub(super) columns: &'a mut dyn Columns,
}

impl Scales<'_> {
    /// Returns the scale of an expression, or `None` if it cannot be derived.
    pub(super) fn of_expr(&mut self, expr: &Expr) -> Result<Option<Scale>> {
        self.of(expr, 0)
    }

    fn of(&mut self, expr: &Expr, depth: usize) -> Result<Option<Scale>> {
        if depth > DEPTH_MAX {
            return Ok(None);
        }
        let data_type = expr.get_type(self.columns.schema())?;
        let known = own_scale(&data_type).map(Scale::Of);
        Ok(match expr {
            Expr::Literal(value, _) if value.is_null() => Some(Scale::Of(0)),
            Expr::Literal(ScalarValue::List(list), _) => match list.value(0).is_empty() {
                true => Some(no_scales()),
                false => known.filter(|_| !is_unknown(&data_type)),
            },
            Expr::Literal(..) => known,
            _ if data_type.is_integer() => known,
            Expr::Alias(alias) => self.of(&alias.expr, depth + 1)?,
            Expr::Negative(inner) => self.of(inner, depth + 1)?,
            Expr::Column(column) => match self.columns.schema().maybe_index_of_column(column) {
                Some(index) => self.columns.scale_of(index)?,
                None => None,
            },
            Expr::Case(case) => self.of_case(case, depth)?,
            Expr::Cast(_) => self.of_cast(expr, depth)?,
            Expr::ScalarFunction(call)
                if short_names::is_mark(&call.func) || call.func.name() == "may_be_null" =>
            {
                self.of(&call.args[0], depth + 1)?
            }
            Expr::ScalarFunction(call) => self.of_call(call, &data_type, depth)?,
            _ if !is_unknown(&data_type) => known,
            _ => None,
        })
    }

    /// Returns the scale of a value that the engine may have cast to a common type with others.
    fn of_cast(&mut self, expr: &Expr, depth: usize) -> Result<Option<Scale>> {
        let Expr::Cast(cast) = expr else { return self.of(expr, depth) };
        let own = own_scale(cast.field.data_type());
        let from = cast.expr.get_type(self.columns.schema())?;
        Ok(match is_given_scale(cast) {
            true => own.map(Scale::Of),
            false if from.is_null() => Some(Scale::Of(0)),
            false if own_scale(&from) <= own => self.of(&cast.expr, depth + 1)?,
            false => None,
        })
    }

    fn of_case(&mut self, case: &Case, depth: usize) -> Result<Option<Scale>> {
        if is_costly(&Expr::Case(case.clone())) {
            return Ok(None);
        }
        let mut branches = Vec::new();
        for (when, then) in &case.when_then_expr {
            let Some(scale) = self.of(then, depth + 1)? else { return Ok(None) };
            branches.push((when.clone(), Box::new(scale.expr())));
        }
        let last = match &case.else_expr {
            Some(last) => self.of(last, depth + 1)?,
            None => Some(Scale::Of(0)),
        };
        let Some(last) = last.map(|it| Box::new(it.expr())) else { return Ok(None) };
        let scale = Case::new(case.expr.clone(), branches, Some(last));
        Ok(of_branches(scale, &Expr::Case(case.clone()).get_type(self.columns.schema())?))
    }

    /// Returns the scale of the first of several values that passes a test.
    fn of_first(
        &mut self,
        values: &[Expr],
        test: impl Fn(&Expr) -> Expr,
        depth: usize,
    ) -> Result<Option<Scale>> {
        let mut branches = Vec::new();
        for value in values {
            let Some(scale) = self.of(value, depth + 1)? else { return Ok(None) };
            branches.push((Box::new(test(value)), Box::new(scale.expr())));
        }
        let Some(first) = values.first() else { return Ok(None) };
        let data_type = first.get_type(self.columns.schema())?;
        Ok(of_branches(Case::new(None, branches, None), &data_type))
    }

    fn of_call(
        &mut self,
        call: &ScalarFunction,
        data_type: &DataType,
        depth: usize,
    ) -> Result<Option<Scale>> {
        let whole = Expr::ScalarFunction(call.clone());
        if is_costly(&whole) {
            return Ok(None);
        }
        let args = call.args.as_slice();
        Ok(match (call.func.name(), args) {
            ("coalesce", _) => self.of_first(args, |it| it.clone().is_not_null(), depth)?,
            ("greatest" | "least", _) => {
                let is_it = |it: &Expr| {
                    let pair = (Box::new(it.clone()), Box::new(whole.clone()));
                    Expr::BinaryExpr(BinaryExpr::new(pair.0, Operator::Eq, pair.1))
                };
                self.of_first(args, is_it, depth)?
            }
            ("nullif", [first, _]) => self.of(first, depth + 1)?,
            ("abs", [one]) => self.of(one, depth + 1)?,
            (QUOTIENT, _) => Some(Scale::Computed(of_quotient().call(args.to_vec()))),
            (PACKED_FIELD, [packed, _]) if is_packed(packed) => {
                Some(Scale::Computed(packed_field(packed.clone(), PACKED_SCALE)))
            }
            (name, _) if OF_ARRAYS.contains(&name) => self.of_array(call, depth)?,
            (NUMERIC, [one]) => match one.get_type(self.columns.schema())? {
                it if it.is_string() => Some(Scale::Computed(of_text().call(vec![one.clone()]))),
                it if it.is_floating() => Some(Scale::Computed(of_digits().call(vec![whole]))),
                it if it.is_numeric() => self.of(one, depth + 1)?,
                _ => None,
            },
            ("average", [total, count]) => {
                let of_total = self.of(total, depth + 1)?;
                let operands = vec![total.clone(), count.clone()];
                of_total.map(|it| quotient(operands, it, Scale::Of(0)))
            }
            ("exp" | "ln" | "log" | "log10" | "power" | "sqrt", args) if data_type.is_decimal() => {
                of_call(call.func.name(), args.len())
                    .map(|it| Scale::Computed(it.call(args.to_vec())))
            }
            _ if chains::is_arithmetic(&call.func) => self.of_chain(call, depth)?,
            _ if data_type.is_decimal() && !is_unknown(data_type) => {
                own_scale(data_type).map(Scale::Of)
            }
            _ => None,
        })
    }

    /// Returns the scales of an array, or of an element of one: the same call on scales.
    fn of_array(&mut self, call: &ScalarFunction, depth: usize) -> Result<Option<Scale>> {
        let (mut scales, mut has_constant_array) = (Vec::new(), false);
        // Subscripts are no values of the array.
        let is_element = call.func.name() == "array_element";
        let count = if is_element { 1 } else { call.args.len() };
        for arg in &call.args[..count] {
            let Some(scale) = self.of(arg, depth + 1)? else { return Ok(None) };
            let data_type = arg.get_type(self.columns.schema())?;
            let is_array = matches!(data_type, DataType::List(_));
            has_constant_array |= is_array && matches!(scale, Scale::Of(_));
            scales.push(scale);
        }
        Ok(match scales.first() {
            Some(Scale::Of(first)) if scales.iter().all(|it| *it == Scale::Of(*first)) => {
                Some(Scale::Of(*first))
            }
            None => Some(no_scales()),
            _ if has_constant_array => None,
            _ => {
                let subscripts = call.args[count..].iter().cloned();
                let args = scales.into_iter().map(Scale::expr).chain(subscripts);
                Some(Scale::Computed(call.func.call(args.collect())))
            }
        })
    }

    /// Returns the scale of operators that are evaluated from left to right.
    fn of_chain(&mut self, call: &ScalarFunction, depth: usize) -> Result<Option<Scale>> {
        let Some((first, rest)) = call.args.split_first() else { return Ok(None) };
        let Some(mut scale) = self.of(first, depth + 1)? else { return Ok(None) };
        let mut left = first.clone();
        for (operator, right) in chains::operators(&call.func).iter().zip(rest) {
            let Some(other) = self.of(right, depth + 1)? else { return Ok(None) };
            let schema = self.columns.schema();
            let (one_type, other_type) = (left.get_type(schema)?, right.get_type(schema)?);
            scale = match operator {
                Operator::Plus | Operator::Minus | Operator::Modulo => scale.or_larger(other),
                Operator::Multiply => scale.plus(other),
                Operator::Divide if one_type.is_integer() && other_type.is_integer() => {
                    Scale::Of(0)
                }
                Operator::Divide => quotient(vec![left.clone(), right.clone()], scale, other),
                _ => return Ok(None),
            };
            left = chains::call((left, &one_type), *operator, (right.clone(), &other_type))?;
        }
        Ok(Some(scale))
    }
}

/// The scales of an empty array.
fn no_scales() -> Scale {
    let empty = ScalarValue::new_list(&[], &DataType::Int32, true);
    Scale::Computed(Expr::Literal(ScalarValue::List(empty), None))
}

/// Returns the scale of a CASE from those of its branches. Arrays with one scale for all elements
/// have no array of scales.
fn of_branches(scales: Case, data_type: &DataType) -> Option<Scale> {
    let branches = || scales.when_then_expr.iter().map(|(_, then)| then).chain(&scales.else_expr);
    let constant = |it: &Expr| match it {
        Expr::Literal(ScalarValue::Int32(Some(scale)), _) => Some(*scale),
        _ => None,
    };
    let first = branches().next().and_then(|it| constant(it));
    if let Some(first) = first
        && branches().all(|it| constant(it) == Some(first))
    {
        return Some(Scale::Of(first));
    }
    let is_list = matches!(data_type, DataType::List(_));
    let has_constants = branches().any(|it| constant(it).is_some());
    (!is_list || !has_constants).then_some(Scale::Computed(Expr::Case(scales)))
}

fn quotient(mut operands: Vec<Expr>, left: Scale, right: Scale) -> Scale {
    operands.extend([left.expr(), right.expr()]);
    Scale::Computed(of_quotient().call(operands))
}

/// Returns whether an expression cannot be evaluated twice.
fn is_costly(expr: &Expr) -> bool {
    let mut parts = 0;
    let is_other = expr.exists(|it| {
        parts += 1;
        Ok(matches!(it, Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_)))
    });
    is_other.unwrap_or(true) || parts > PARTS_MAX || expr.is_volatile()
}
