//! Types of result columns that the engine does not have: `varchar` and `name` are texts, and
//! numerics have no precision. Casts in the select list of the whole statement are wrapped in a
//! call that returns its operand, and whose field has the type.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType as Arrow, FieldRef};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::sql::sqlparser::ast::{
    CharacterLength, DataType, DateTimeField, ExactNumberInfo, Expr, Ident, Interval, SelectItem,
    SetExpr, Statement, TimezoneInfo,
};

use super::names::figure;
use super::written::{call, number};
use crate::wire::{PgType, described_field};

const NAME: &str = "described_as";

/// Bytes that PostgreSQL adds to a length or precision in a type modifier.
const MODIFIER_BASE: i64 = 4;

/// Functions that return a value of type `name`.
const OF_NAMES: &[&str] = &[
    "current_catalog",
    "current_database",
    "current_role",
    "current_schema",
    "current_user",
    "pg_client_encoding",
    "session_user",
    "user",
];

/// Marks the columns of a statement's result whose type only clients see.
pub(super) fn describe(statement: &mut Statement) {
    let Statement::Query(query) = statement else { return };
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    // The keys of DISTINCT and ORDER BY are compared with the columns.
    if select.distinct.is_some() {
        return;
    }
    for item in &mut select.projection {
        let (expr, alias) = match &*item {
            SelectItem::UnnamedExpr(expr) => (expr, Ident::with_quote('"', figure(expr).0)),
            SelectItem::ExprWithAlias { expr, alias } => (expr, alias.clone()),
            _ => continue,
        };
        if let Some((oid, modifier)) = shown(expr) {
            let arguments = [i64::from(oid), modifier].map(|it| number(&it.to_string()));
            let [oid, modifier] = arguments;
            let expr = call(NAME, vec![expr.clone(), oid, modifier]);
            *item = SelectItem::ExprWithAlias { expr, alias };
        }
    }
}

/// Returns the object id and modifier of a type that the engine does not have.
fn shown(expr: &Expr) -> Option<(u32, i64)> {
    let data_type = match expr {
        Expr::Nested(inner) => return shown(inner),
        Expr::Cast { data_type, .. } => data_type,
        Expr::TypedString(typed) => &typed.data_type,
        Expr::Interval(interval) => return of_interval(interval),
        Expr::Function(call) => {
            let name = call.name.to_string().to_ascii_lowercase();
            if name == "pg_typeof" {
                return Some((PgType::REGTYPE, -1));
            }
            return OF_NAMES.contains(&name.as_str()).then_some((PgType::NAME, -1));
        }
        _ => return None,
    };
    let (oid, modifier) = match data_type {
        DataType::Varchar(length) | DataType::CharacterVarying(length) => {
            let modifier = match length {
                Some(CharacterLength::IntegerLength { length, .. }) => {
                    i64::try_from(*length).ok()? + MODIFIER_BASE
                }
                _ => -1,
            };
            (PgType::VARCHAR, modifier)
        }
        DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => {
            let (precision, scale) = match info {
                ExactNumberInfo::None => return None,
                ExactNumberInfo::Precision(precision) => (*precision, 0),
                ExactNumberInfo::PrecisionAndScale(precision, scale) => (*precision, *scale),
            };
            let precision = i64::try_from(precision).ok()?;
            (PgType::NUMERIC.oid, ((precision << 16) | scale) + MODIFIER_BASE)
        }
        DataType::Timestamp(Some(digits), zone) => {
            let of_zone = matches!(zone, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz);
            let of = if of_zone { PgType::TIMESTAMPTZ } else { PgType::TIMESTAMP };
            (of.oid, i64::try_from((*digits).min(6)).ok()?)
        }
        _ => return None,
    };
    i32::try_from(modifier).is_ok().then_some((oid, modifier))
}

/// Returns the modifier of `interval '1' day`: a bit for its unit, and no precision.
fn of_interval(interval: &Interval) -> Option<(u32, i64)> {
    const NO_PRECISION: i64 = 0xFFFF;
    let bit = match interval.leading_field.as_ref().filter(|_| interval.last_field.is_none())? {
        DateTimeField::Year => 2,
        DateTimeField::Month => 1,
        DateTimeField::Day => 3,
        DateTimeField::Hour => 10,
        DateTimeField::Minute => 11,
        DateTimeField::Second => 12,
        _ => return None,
    };
    Some((PgType::INTERVAL.oid, (1_i64 << bit) << 16 | NO_PRECISION))
}

/// The call that marks a column.
pub(super) fn function() -> Arc<ScalarUDF> {
    let signature = Signature::any(3, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Described { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Described {
    signature: Signature,
}

impl ScalarUDFImpl for Described {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[Arrow]) -> Result<Arrow> {
        internal_err!("the type depends on the field")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let field = args.arg_fields[0].as_ref();
        let of = |index: usize| match args.scalar_arguments[index] {
            Some(ScalarValue::Int64(Some(it))) => Some(*it),
            Some(ScalarValue::Int32(Some(it))) => Some(i64::from(*it)),
            _ => None,
        };
        let (Some(oid), Some(modifier)) = (of(1), of(2)) else { return Ok(field.clone().into()) };
        Ok(match (u32::try_from(oid), i32::try_from(modifier)) {
            (Ok(oid), Ok(modifier)) => described_field(field, oid, modifier).into(),
            _ => field.clone().into(),
        })
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(args.args.swap_remove(0))
    }
}
