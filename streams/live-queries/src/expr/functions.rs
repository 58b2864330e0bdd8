//! Resolution of functions by name and argument types.

use crate::error::{SqlError, SqlState};
use crate::expr::syntax::{Call, Expr};
use crate::expr::typing::{Bound, common_type, unify, unify_compared};
use crate::scalar::{Value, truncate_time};
use crate::types::Type;

/// Binds a call of `name` with these arguments.
pub(super) fn bind_call(name: &str, arguments: Vec<Bound>) -> Result<Bound, SqlError> {
    match (name, arguments.len()) {
        ("coalesce", 1..) => {
            let (operands, data_type) = unify(arguments, "COALESCE")?;
            Bound::new(Expr::Coalesce(operands), data_type)
        }
        ("greatest" | "least", 1..) => {
            let (arguments, data_type) = unify(arguments, name)?;
            let call = if name == "greatest" { Call::Greatest } else { Call::Least };
            Bound::new(Expr::Call { call, arguments }, data_type)
        }
        ("nullif", 2) => bind_nullif(arguments),
        ("concat", 1..) => {
            let arguments = arguments.into_iter().map(|it| it.decided().expr).collect();
            Bound::new(Expr::Call { call: Call::Concat, arguments }, Type::Text)
        }
        ("date_trunc", 2) => bind_date_trunc(arguments),
        _ => bind_typed(name, arguments),
    }
}

fn bind_nullif(arguments: Vec<Bound>) -> Result<Bound, SqlError> {
    let [left, right] =
        <[Bound; 2]>::try_from(arguments).map_err(|_| no_function("nullif", &[]))?;
    let common = common_type(left.data_type, right.data_type).unwrap_or(Type::Text);
    let (left, right) = unify_compared(left, right, "=")?;
    let call = Expr::Call { call: Call::NullIf, arguments: vec![left, right] };
    Ok(Bound::new(call, common)?.decided())
}

/// Binds `date_trunc`, and validates a literal unit.
fn bind_date_trunc(mut arguments: Vec<Bound>) -> Result<Bound, SqlError> {
    if let Expr::Literal(Value::Text(unit)) = &arguments[0].expr {
        let unit = unit.to_ascii_lowercase();
        truncate_time(&unit, 0).map_err(|error| {
            SqlError::new(error.state(), format!("unit \"{unit}\" not recognized for date_trunc"))
        })?;
        arguments[0] = Bound::literal(Value::Text(unit.into()), Type::Text);
    }
    bind_typed("date_trunc", arguments)
}

fn bind_typed(name: &str, arguments: Vec<Bound>) -> Result<Bound, SqlError> {
    let types: Vec<Type> = arguments.iter().map(|it| it.data_type).collect();
    let (call, wanted, result) =
        signature(name, &types).ok_or_else(|| no_function(name, &types))?;
    let arguments = arguments.into_iter().zip(wanted).map(|(it, to)| it.coerce(to, name));
    Bound::new(Expr::Call { call, arguments: arguments.collect::<Result<_, _>>()? }, result)
}

/// Resolves a function for arguments of `types`. Returns its parameter types and result type.
fn signature(name: &str, types: &[Type]) -> Option<(Call, Vec<Type>, Type)> {
    let is = |index: usize, wanted: Type| {
        let from = types[index];
        from == wanted || from == Type::Unknown || (wanted == Type::Int8 && from == Type::Int4)
    };
    let takes = |wanted: &[Type]| {
        types.len() == wanted.len() && (0..types.len()).all(|at| is(at, wanted[at]))
    };
    const TEXTS: [Type; 3] = [Type::Text; 3];
    let texts = |call, count: usize, result| {
        takes(&TEXTS[..count]).then(|| (call, TEXTS[..count].to_vec(), result))
    };
    let with =
        |call, wanted: &[Type], result| takes(wanted).then(|| (call, wanted.to_vec(), result));
    match name {
        "lower" => texts(Call::Lower, 1, Type::Text),
        "upper" => texts(Call::Upper, 1, Type::Text),
        "length" | "octet_length" if types == [Type::Bytea] => {
            Some((Call::OctetLength, vec![Type::Bytea], Type::Int4))
        }
        "length" | "char_length" | "character_length" => texts(Call::Length, 1, Type::Int4),
        "octet_length" => texts(Call::OctetLength, 1, Type::Int4),
        "btrim" | "trim" => texts(Call::Trim, types.len().clamp(1, 2), Type::Text),
        "ltrim" => texts(Call::TrimStart, types.len().clamp(1, 2), Type::Text),
        "rtrim" => texts(Call::TrimEnd, types.len().clamp(1, 2), Type::Text),
        "replace" => texts(Call::Replace, 3, Type::Text),
        "strpos" => texts(Call::Position, 2, Type::Int4),
        "starts_with" => texts(Call::StartsWith, 2, Type::Bool),
        "left" => with(Call::Left, &[Type::Text, Type::Int4], Type::Text),
        "right" => with(Call::Right, &[Type::Text, Type::Int4], Type::Text),
        "substring" | "substr" if types.len() == 2 => {
            with(Call::Substring, &[Type::Text, Type::Int4], Type::Text)
        }
        "substring" | "substr" => {
            with(Call::Substring, &[Type::Text, Type::Int4, Type::Int4], Type::Text)
        }
        "date_trunc" => with(Call::DateTrunc, &[Type::Text, Type::Timestamptz], Type::Timestamptz),
        "abs" | "floor" | "ceil" | "ceiling" | "round" | "to_timestamp" => numeric(name, types),
        _ => None,
    }
}

fn numeric(name: &str, types: &[Type]) -> Option<(Call, Vec<Type>, Type)> {
    let call = match name {
        "abs" => Call::Abs,
        "floor" => Call::Floor,
        "round" => Call::Round,
        "to_timestamp" => Call::ToTimestamp,
        _ => Call::Ceil,
    };
    let first = *types.first()?;
    if !(first.is_number() || first == Type::Unknown) {
        return None;
    }
    // Integers are rounded as double precision, which is how PostgreSQL resolves these functions.
    let to = match call {
        Call::Abs if first != Type::Unknown => first,
        Call::Round if types.len() == 2 && first != Type::Float8 => Type::Numeric,
        Call::ToTimestamp => Type::Float8,
        _ if first == Type::Numeric => Type::Numeric,
        _ => Type::Float8,
    };
    let result = if call == Call::ToTimestamp { Type::Timestamptz } else { to };
    match types {
        [_] => Some((call, vec![to], result)),
        [_, Type::Int4] if call == Call::Round && to == Type::Numeric => {
            Some((call, vec![to, Type::Int4], result))
        }
        _ => None,
    }
}

pub(super) fn no_function(name: &str, types: &[Type]) -> SqlError {
    let hint = match types {
        [] => "see the supported functions in the guide to live queries",
        _ => "add an explicit cast, or see the supported functions in the guide to live queries",
    };
    let types: Vec<&str> = types.iter().map(|it| it.name()).collect();
    let message = format!("function {name}({}) does not exist", types.join(", "));
    SqlError::new(SqlState::UNDEFINED_FUNCTION, message).with_hint(hint)
}
