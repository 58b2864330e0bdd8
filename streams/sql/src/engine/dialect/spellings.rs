//! Forms of PostgreSQL that are rewritten to others with the same meaning.

use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Interval, Subscript, TimezoneInfo, Value, ValueWithSpan,
};

use super::byte_functions::{ESCAPED, OF_HEX, UNESCAPED};
use super::conversions::To;
use super::number_functions::SCALE;
use super::refusal::refused;
use super::rewrites::{DUPLICATED_SIZE_MAX, cast, cast_to};
use super::written::{binary, call, nested, number, size_of, text_of};
use crate::error::SqlError;

/// Upper bound of an array slice without one.
const LAST_ELEMENT: &str = "2147483647";

/// Units of intervals that may follow a literal with an integer.
const UNITS: &[&str] = &["YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"];

/// Rewrites an expression that is not a call.
pub(super) fn spelled(expr: &mut Expr) -> Result<Option<Expr>, SqlError> {
    Ok(match expr {
        Expr::Substring { expr, substring_from: Some(pattern), substring_for: None, .. }
            if text_of(pattern).is_some() =>
        {
            Some(first_match(expr, pattern))
        }
        Expr::CompoundFieldAccess { root, access_chain } => member(root, access_chain),
        Expr::Interval(interval) => {
            with_unit(interval);
            None
        }
        _ => None,
    })
}

/// Rewrites a call.
pub(super) fn spelled_call(function: &Function) -> Result<Option<Expr>, SqlError> {
    let name = function.name.to_string().to_ascii_lowercase();
    let arguments = match &function.args {
        FunctionArguments::None if name == "localtime" => {
            let now = call(To::Timestamp.name(), vec![call("now", Vec::new())]);
            let time = DataType::Time(None, TimezoneInfo::None);
            return Ok(Some(cast_to(now, time)));
        }
        FunctionArguments::List(list) if function.over.is_none() => &list.args,
        _ => return Ok(None),
    };
    let plain = |it| match it {
        &FunctionArg::Unnamed(FunctionArgExpr::Expr(ref expr)) => Some(expr),
        _ => None,
    };
    let arguments: Option<Vec<&Expr>> = arguments.iter().map(plain).collect();
    Ok(match (name.as_str(), arguments.as_deref()) {
        ("substring", Some([text, pattern])) if text_of(pattern).is_some() => {
            Some(first_match(text, pattern))
        }
        ("encode" | "decode", Some([value, format])) if text_of(format).is_some() => {
            recoded(&name, value, text_of(format).unwrap_or_default())
        }
        (
            "bit_count" | "get_byte" | "get_bit" | "set_byte" | "set_bit" | "convert_from"
            | "sha256" | "sha384" | "sha512",
            Some([value, rest @ ..]),
        ) if text_of(value).is_some() => {
            let bytes = call(To::Bytea.name(), vec![(*value).clone()]);
            let rest = rest.iter().map(|it| (*it).clone());
            Some(call(&name, std::iter::once(bytes).chain(rest).collect()))
        }
        ("date", Some([one])) => {
            let mut one = (*one).clone();
            let changed = cast(&mut one, &DataType::Date)?;
            Some(changed.unwrap_or_else(|| cast_to(one, DataType::Date)))
        }
        ("scale", Some([one])) if size_of(one) > DUPLICATED_SIZE_MAX => {
            return Err(refused("scale of such a complex expression"));
        }
        ("scale", Some([one])) => {
            let text = call(To::Text.name(), vec![(*one).clone()]);
            Some(call(SCALE, vec![(*one).clone(), text]))
        }
        ("array_upper", Some([array, dimension])) => {
            Some(call("array_length", vec![(*array).clone(), (*dimension).clone()]))
        }
        (
            "json_extract_path"
            | "json_extract_path_text"
            | "jsonb_extract_path"
            | "jsonb_extract_path_text",
            Some([json, path @ ..]),
        ) if !path.is_empty() && path.iter().all(|it| text_of(it).is_some()) => {
            at_path(&name, json, path)?
        }
        _ => None,
    })
}

/// Rewrites `encode` and `decode` with formats that the engine lacks.
fn recoded(name: &str, value: &Expr, format: &str) -> Option<Expr> {
    let function = match (name, format.to_ascii_lowercase().as_str()) {
        ("encode", "escape") if text_of(value).is_some() => {
            return Some(call(ESCAPED, vec![call(To::Bytea.name(), vec![value.clone()])]));
        }
        ("encode", "escape") => ESCAPED,
        ("decode", "escape") => UNESCAPED,
        ("decode", "hex") => OF_HEX,
        _ => return None,
    };
    Some(call(function, vec![value.clone()]))
}

/// The first group of a match, or all of it if the pattern has none.
fn first_match(text: &Expr, pattern: &Expr) -> Expr {
    let found = call("regexp_match", vec![text.clone(), pattern.clone()]);
    let first = AccessExpr::Subscript(Subscript::Index { index: number("1") });
    Expr::CompoundFieldAccess { root: Box::new(nested(found)), access_chain: vec![first] }
}

fn at_path(name: &str, json: &Expr, path: &[&Expr]) -> Result<Option<Expr>, SqlError> {
    let data_type = if name.starts_with("jsonb") { DataType::JSONB } else { DataType::JSON };
    let mut json = json.clone();
    if text_of(&json).is_some() {
        let changed = cast(&mut json, &data_type)?;
        json = changed.unwrap_or_else(|| cast_to(json, data_type));
    }
    let keys = path
        .iter()
        .filter_map(|it| text_of(it))
        .map(|key| format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\"")));
    let path = format!("{{{}}}", keys.collect::<Vec<_>>().join(","));
    let operator = match name.ends_with("_text") {
        true => BinaryOperator::HashLongArrow,
        false => BinaryOperator::HashArrow,
    };
    let path = Expr::Value(Value::SingleQuotedString(path).into());
    Ok(Some(nested(binary(nested(json), operator, path))))
}

/// Completes the bounds of slices. Rewrites `jsonb['a'][0]` to `jsonb -> 'a' -> 0`: only jsonb has
/// texts as subscripts.
fn member(root: &Expr, chain: &mut [AccessExpr]) -> Option<Expr> {
    for access in &mut *chain {
        if let AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, stride: None }) =
            access
        {
            lower_bound.get_or_insert_with(|| number("1"));
            upper_bound.get_or_insert_with(|| number(LAST_ELEMENT));
        }
    }
    let index = |it: &AccessExpr| match it {
        AccessExpr::Subscript(Subscript::Index { index }) => Some(index.clone()),
        _ => None,
    };
    let keys: Vec<_> = chain.iter().map(index).collect::<Option<_>>()?;
    let is_key = |it: &Expr| {
        let is_number = matches!(it, Expr::Value(ValueWithSpan { value: Value::Number(..), .. }));
        text_of(it).is_some() || is_number
    };
    if text_of(keys.first()?).is_none() || !keys.iter().all(is_key) {
        return None;
    }
    let found =
        keys.into_iter().fold(root.clone(), |json, key| binary(json, BinaryOperator::Arrow, key));
    Some(nested(found))
}

/// Moves the unit of `interval '1' day` into the text.
fn with_unit(interval: &mut Interval) {
    let Some(unit) = interval.leading_field.as_ref().map(ToString::to_string) else { return };
    let is_plain = interval.last_field.is_none()
        && interval.leading_precision.is_none()
        && interval.fractional_seconds_precision.is_none()
        && UNITS.contains(&unit.to_ascii_uppercase().as_str());
    let Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) =
        interval.value.as_mut()
    else {
        return;
    };
    if is_plain && text.trim().parse::<i32>().is_ok() {
        *text = format!("{} {unit}", text.trim());
        interval.leading_field = None;
    }
}
