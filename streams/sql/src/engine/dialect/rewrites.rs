//! Rewrites of expressions to calls with PostgreSQL's semantics: casts, lists, averages, patterns.

use datafusion::sql::sqlparser::ast::{
    Array, ArrayElemTypeDef, BinaryOperator, CastKind, CharacterLength, DataType, ExactNumberInfo,
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, TimezoneInfo,
    UnaryOperator, Value, ValueWithSpan,
};

use super::calls::Call;
use super::casts::{INT2, INT4, INT8, NUMERIC};
use super::conversions::{
    SPECIAL_TIMES, To, check_time, is_of_other_signs, other_form, special_time,
};
use super::interval_functions::{MAKE_INTERVAL, OF_INTERVAL, interval_of_parts};
use super::interval_texts;
use super::jsonb;
use super::refusal::refused;
use super::regex_functions::Flags;
use super::rows::{Quantifier, spelled_list, unless_all};
use super::text_functions::UUID;
use super::time_functions::{DATE_BY_PATTERN, TIME_BY_PATTERN};
use super::truncated::ROUNDED;
use super::written::{
    binary, call, in_list, is_double, is_timestamp, nested, number, size_of, text_of, time_of_word,
};
use crate::engine::errors::is_of_other_form;
use crate::engine::names::AVERAGED;
use crate::error::{SqlError, SqlState};
use crate::wire::array_elements;

/// Maximum digits of the engine's numeric literals.
const LITERAL_DIGITS_MAX: usize = 38;

/// Maximum precision of a numeric.
const NUMERIC_DIGITS: i64 = 38;

/// Rewrites a cast whose semantics or formats differ from the engine's.
pub(super) fn cast(inner: &mut Expr, data_type: &DataType) -> Result<Option<Expr>, SqlError> {
    if is_parameter(inner) && !is_read_here(data_type) {
        return Ok(None);
    }
    if matches!(data_type, DataType::JSON | DataType::JSONB) {
        return json(inner, data_type);
    }
    if is_timestamp(data_type) {
        let to = if has_zone(data_type) { To::Timestamptz } else { To::Timestamp };
        let word = text_of(inner).and_then(time_of_word);
        let time = call(to.name(), vec![word.unwrap_or_else(|| inner.clone())]);
        return Ok(Some(match data_type {
            DataType::Timestamp(Some(digits), _) => {
                call(ROUNDED, vec![time, number(&digits.to_string())])
            }
            _ => time,
        }));
    }
    if let Some(changed) = literal_time(inner, data_type)? {
        return Ok(Some(changed));
    }
    if let DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) = data_type {
        return array(inner, element);
    }
    let name = match data_type {
        DataType::Int2(_) | DataType::SmallInt(_) => INT2,
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => INT4,
        DataType::Int8(_) | DataType::BigInt(_) => INT8,
        DataType::Numeric(ExactNumberInfo::None) | DataType::Decimal(ExactNumberInfo::None) => {
            match literal_number(inner) {
                Some(literal) => return Ok(Some(literal)),
                None => NUMERIC,
            }
        }
        DataType::DoublePrecision
        | DataType::Float8
        | DataType::Double(ExactNumberInfo::None)
        | DataType::Float(ExactNumberInfo::None) => {
            return Ok(Some(call(To::Float8.name(), vec![as_text(inner)])));
        }
        DataType::Float(ExactNumberInfo::Precision(bits)) if is_double(*bits) => {
            return Ok(Some(call(To::Float8.name(), vec![as_text(inner)])));
        }
        DataType::Real | DataType::Float4 | DataType::Float(ExactNumberInfo::Precision(_)) => {
            return Ok(Some(call(To::Float4.name(), vec![as_text(inner)])));
        }
        DataType::Text | DataType::Varchar(None) | DataType::CharacterVarying(None) => {
            match text_of(inner) {
                Some(_) => return Ok(None),
                None => To::Text.name(),
            }
        }
        DataType::Bytea => To::Bytea.name(),
        DataType::Uuid => UUID,
        DataType::Varchar(Some(length))
        | DataType::CharacterVarying(Some(length))
        | DataType::Character(Some(length))
        | DataType::Char(Some(length)) => {
            let CharacterLength::IntegerLength { length, .. } = length else { return Ok(None) };
            let text = call(To::Text.name(), vec![inner.clone()]);
            return Ok(Some(call("left", vec![text, number(&length.to_string())])));
        }
        _ => return Ok(None),
    };
    Ok(Some(call(name, vec![inner.clone()])))
}

fn is_parameter(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(it) if matches!(it.value, Value::Placeholder(_)))
}

/// Returns whether the engine's cast of a parameter would have another length, scale or unit.
fn is_read_here(data_type: &DataType) -> bool {
    is_timestamp(data_type)
        || matches!(
            data_type,
            DataType::Varchar(Some(_))
                | DataType::CharacterVarying(Some(_))
                | DataType::Numeric(ExactNumberInfo::None)
                | DataType::Decimal(ExactNumberInfo::None)
                | DataType::Uuid
        )
}

fn has_zone(timestamp: &DataType) -> bool {
    match timestamp {
        DataType::Timestamp(_, zone) => {
            matches!(zone, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz)
        }
        _ => true,
    }
}

/// Rewrites a text literal cast to date, time or interval.
fn literal_time(inner: &Expr, data_type: &DataType) -> Result<Option<Expr>, SqlError> {
    match (data_type, text_of(inner)) {
        (DataType::Date, Some(text)) => date(text),
        (DataType::Time(..), Some(text)) => check_time(text).map(|()| None),
        (DataType::Interval { .. }, Some(text)) => interval(text, data_type),
        _ => Ok(None),
    }
}

/// Rewrites special words for dates.
pub(super) fn date(text: &str) -> Result<Option<Expr>, SqlError> {
    let word = text.trim().to_ascii_lowercase();
    match word.as_str() {
        "epoch" => {
            let first = Value::SingleQuotedString("1970-01-01".to_owned());
            Ok(Some(cast_to(Expr::Value(first.into()), DataType::Date)))
        }
        it if time_of_word(it).is_some() => {
            let time = call(To::Timestamp.name(), time_of_word(it).into_iter().collect());
            Ok(Some(cast_to(time, DataType::Date)))
        }
        it if SPECIAL_TIMES.contains(&it) => Err(special_time(it)),
        it if it.len() < text.len() => {
            let trimmed = Value::SingleQuotedString(it.to_owned());
            date(it).map(|found| {
                found.or_else(|| Some(cast_to(Expr::Value(trimmed.into()), DataType::Date)))
            })
        }
        it if it.contains('/') || is_of_other_form(it) || is_of_other_signs(it) => {
            Err(other_form("date", text))
        }
        _ => Ok(None),
    }
}

/// Rewrites an interval to a format that the engine supports.
fn interval(text: &str, data_type: &DataType) -> Result<Option<Expr>, SqlError> {
    let literal = |text| Expr::Value(Value::SingleQuotedString(text).into());
    let spelled = interval_texts::spelled(text)?;
    Ok(spelled.map(|text| cast_to(literal(text), data_type.clone())))
}

/// Casts to JSON. Literals are validated at once.
fn json(inner: &Expr, data_type: &DataType) -> Result<Option<Expr>, SqlError> {
    let is_binary = *data_type == DataType::JSONB;
    // A literal with an explicit cast to text is still a literal.
    let mut literal = inner;
    while let Expr::Cast { expr, data_type: DataType::Text | DataType::Varchar(None), .. } = literal
    {
        literal = expr;
    }
    let Some(text) = text_of(literal) else {
        return Ok(is_binary.then(|| call(To::Jsonb.name(), vec![inner.clone()])));
    };
    if !is_binary {
        return jsonb::check(text).map(|()| None);
    }
    let literal = Expr::Value(Value::SingleQuotedString(jsonb::canonical(text)?).into());
    Ok(Some(cast_to(literal, DataType::JSONB)))
}

pub(super) fn cast_to(inner: Expr, data_type: DataType) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(inner),
        data_type,
        array: false,
        format: None,
    }
}

/// Returns a numeric literal as text, because a float parsed from the engine's decimal would
/// differ.
fn as_text(inner: &Expr) -> Expr {
    match written(inner) {
        Some(digits) => {
            // Only floats have a negative zero.
            let is_zero = !digits.bytes().any(|it| matches!(it, b'1'..=b'9'));
            let digits = if is_zero { "0".to_owned() } else { digits };
            Expr::Value(Value::SingleQuotedString(digits).into())
        }
        None => inner.clone(),
    }
}

fn written(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => Some(digits.clone()),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            written(expr).filter(|it| !it.starts_with('-')).map(|it| format!("-{it}"))
        }
        Expr::Nested(inner) => written(inner),
        _ => None,
    }
}

/// Expands the exponent of an integer literal. Otherwise the engine would store it with a negative
/// scale.
pub(super) fn with_exponent(digits: &str) -> Option<Expr> {
    let (mantissa, exponent) = digits.split_once(['e', 'E'])?;
    let exponent: usize = exponent.trim_start_matches('+').parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let zeros = exponent.checked_sub(fraction.len())?;
    if whole.len() + exponent > LITERAL_DIGITS_MAX {
        return None;
    }
    let digits = format!("{whole}{fraction}{}", "0".repeat(zeros));
    let digits = digits.trim_start_matches('0');
    let digits = if digits.is_empty() { "0" } else { digits };
    Some(call(NUMERIC, vec![number(digits)]))
}

/// Converts a literal to a numeric with the digits as written.
fn literal_number(inner: &Expr) -> Option<Expr> {
    let text = match text_of(inner) {
        Some(text) => text.trim().to_owned(),
        None => written(inner)?,
    };
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(&text)),
    };
    let (whole, fraction) = digits.split_once('.')?;
    let is_plain = !whole.is_empty()
        && !fraction.is_empty()
        && whole.len() + fraction.len() <= LITERAL_DIGITS_MAX
        && whole.bytes().chain(fraction.bytes()).all(|it| it.is_ascii_digit());
    let literal = is_plain.then(|| number(digits))?;
    Some(match is_negative {
        true => nested(Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(literal) }),
        false => literal,
    })
}

/// Converts an array literal to an array constructor.
fn array(inner: &Expr, element: &DataType) -> Result<Option<Expr>, SqlError> {
    let Some(text) = text_of(inner) else { return array_of(inner, element) };
    let elements = array_elements(text)?;
    if elements.is_empty() {
        return Ok(None);
    }
    let elements = elements.into_iter().map(|text| element_of(text, element));
    let elem = elements.collect::<Result<_, _>>()?;
    Ok(Some(Expr::Array(Array { elem, named: true })))
}

/// Casts the elements of an array expression. The engine would truncate where PostgreSQL rounds.
fn array_of(inner: &Expr, element: &DataType) -> Result<Option<Expr>, SqlError> {
    const OF_TEXTS: &[&str] = &["string_to_array", "regexp_match", "regexp_split_to_array"];
    match inner {
        Expr::Array(array) if !array.elem.is_empty() => {
            let is_list = |it: &Expr| matches!(it, Expr::Array(_));
            if array.elem.iter().any(is_list) {
                return Err(refused("casting a multidimensional array"));
            }
            let elem = array.elem.iter().map(|it| {
                let mut it = it.clone();
                let changed = cast(&mut it, element)?;
                Ok(changed.unwrap_or_else(|| cast_to(it, element.clone())))
            });
            let elem = elem.collect::<Result<_, SqlError>>()?;
            Ok(Some(Expr::Array(Array { elem, named: true })))
        }
        Expr::Nested(inner) => array_of(inner, element),
        Expr::Function(call)
            if !OF_TEXTS.contains(&call.name.to_string().to_lowercase().as_str())
                && !matches!(element, DataType::Text | DataType::Varchar(None)) =>
        {
            Err(refused("casting an array returned by a function"))
        }
        _ => Ok(None),
    }
}

fn element_of(text: Option<String>, element: &DataType) -> Result<Expr, SqlError> {
    let Some(text) = text else { return Ok(Expr::Value(Value::Null.into())) };
    let is_integer = matches!(element, DataType::Int(_) | DataType::Integer(_));
    if is_integer && text.trim().parse::<i32>().is_ok() {
        return Ok(number(text.trim()));
    }
    let mut literal = Expr::Value(Value::SingleQuotedString(text).into());
    if matches!(element, DataType::Text | DataType::Varchar(_)) {
        return Ok(literal);
    }
    Ok(match cast(&mut literal, element)? {
        Some(changed) => changed,
        None => cast_to(literal, element.clone()),
    })
}

/// Types an array constructor of quoted literals as text, by its first element.
fn as_texts(mut elements: Vec<Expr>) -> Vec<Expr> {
    if elements.iter().all(|it| text_of(it).is_some())
        && let Some(first) = elements.first_mut()
    {
        *first = call(To::Text.name(), vec![first.clone()]);
    }
    elements
}

/// Rewrites `= ANY (…)` of an array constructor or literal to an IN list. For other operators, each
/// element is compared.
pub(super) fn quantified(
    left: &Expr,
    operator: &BinaryOperator,
    right: &Expr,
    quantifier: Quantifier,
) -> Result<Option<Expr>, SqlError> {
    let is_equal = (operator, quantifier) == (&BinaryOperator::Eq, Quantifier::Any);
    let is_unequal = (operator, quantifier) == (&BinaryOperator::NotEq, Quantifier::All);
    let list = match right {
        Expr::Array(array) => as_texts(array.elem.clone()),
        Expr::Nested(inner) => return quantified(left, operator, inner, quantifier),
        // A subquery is compared with its rows.
        Expr::Subquery(_) => return Ok(None),
        other => {
            let Some(text) = text_of(other) else {
                if let (Quantifier::Any, Some(it)) = (quantifier, unless_all(left, operator, other))
                {
                    return Ok(Some(it));
                }
                let call = || call(super::any::NAME, vec![left.clone(), other.clone()]);
                return match (is_equal, quantifier) {
                    (true, _) => Ok(Some(call())),
                    // The engine would treat a NULL element as an unequal value.
                    (false, Quantifier::Any) => Err(SqlError::unsupported(
                        "operators other than = with ANY of an array expression are not supported",
                    )),
                    (false, Quantifier::All) => Ok(None),
                };
            };
            let value = |it: Option<String>| it.map_or(Value::Null, Value::SingleQuotedString);
            array_elements(text)?.into_iter().map(|it| Expr::Value(value(it).into())).collect()
        }
    };
    if list.iter().any(|it| matches!(it, Expr::Array(_))) {
        return Err(SqlError::unsupported(
            "ANY and ALL with multidimensional arrays are not supported",
        ));
    }
    if list.is_empty() || !is_equal && !is_unequal {
        return spelled_list(left, operator, list, quantifier).map(Some);
    }
    let changed = in_list(left, &list, is_unequal)?;
    let plain = || Expr::InList { expr: Box::new(left.clone()), list, negated: is_unequal };
    Ok(Some(changed.unwrap_or_else(plain)))
}

/// Names in PostgreSQL of functions that the engine has under another name.
const SYNONYMS: &[(&str, &str)] = &[
    ("every", "bool_and"),
    ("variance", "var_samp"),
    ("transaction_timestamp", "now"),
    ("statement_timestamp", "now"),
];

/// Functions with a different numeric result type in the engine, and the casts to PostgreSQL's
/// types.
const COUNTS: &[(&str, &str)] = &[
    ("row_number", INT8),
    ("rank", INT8),
    ("dense_rank", INT8),
    ("ntile", INT4),
    ("factorial", NUMERIC),
];

/// Rewrites a call, with PostgreSQL's result type.
pub(super) fn function(call: &mut Function) -> Result<Option<Expr>, SqlError> {
    let name = call.name.to_string().to_ascii_lowercase();
    let changed = changed_function(call)?;
    Ok(match COUNTS.iter().find(|(it, _)| *it == name) {
        Some((_, to)) => {
            let counted = changed.unwrap_or_else(|| Expr::Function(call.clone()));
            Some(super::written::call(to, vec![counted]))
        }
        None => changed,
    })
}

/// Types a quoted literal as an interval.
fn interval_of(literal: &Expr) -> Result<Expr, SqlError> {
    let mut literal = literal.clone();
    let interval = DataType::Interval { fields: None, precision: None };
    let changed = cast(&mut literal, &interval)?;
    Ok(changed.unwrap_or_else(|| cast_to(literal, interval)))
}

/// Rewrites functions that have another name or meaning in PostgreSQL.
fn changed_function(function: &mut Function) -> Result<Option<Expr>, SqlError> {
    let [part] = function.name.0.as_slice() else { return Ok(None) };
    let Some(name) = part.as_ident().map(|it| it.value.to_ascii_lowercase()) else {
        return Ok(None);
    };
    if let Some((_, own)) = SYNONYMS.iter().find(|(synonym, _)| *synonym == name) {
        function.name = vec![Ident::new(*own)].into();
    }
    if name == "avg" {
        return average(function).map(Some);
    }
    let formed = of_form(&name, &function.args)?;
    if formed.is_some() {
        return Ok(formed);
    }
    let FunctionArguments::List(list) = &mut function.args else { return Ok(None) };
    let mut arguments: Vec<&mut Expr> = Vec::new();
    for argument in &mut list.args {
        match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => arguments.push(expr),
            _ => return Ok(None),
        }
    }
    let change = |expr: &mut Expr, name: &str| *expr = call(name, vec![expr.clone()]);
    match (name.as_str(), arguments.as_mut_slice()) {
        ("mod", [left, right]) => {
            let (left, right) = (nested(left.clone()), nested(right.clone()));
            return Ok(Some(nested(binary(left, BinaryOperator::Modulo, right))));
        }
        ("date_bin", [stride, time, origin]) => {
            if text_of(stride).is_some() {
                **stride = interval_of(stride)?;
            }
            // A quoted origin takes the type of the time.
            if text_of(origin).is_some() && text_of(time).is_none() {
                **origin = call("coalesce", vec![origin.clone(), time.clone()]);
            }
        }
        ("date_trunc", [unit, time, zone]) => return truncated_in_zone(unit, time, zone).map(Some),
        (it, [one]) if OF_INTERVAL.contains(&it) && text_of(one).is_some() => {
            **one = interval_of(one)?;
        }
        ("round" | "trunc" | "left" | "right" | "repeat" | "lpad" | "rpad", [_, count, ..]) => {
            if let Some(text) = text_of(count) {
                **count = number(&integer(text)?.to_string());
            }
        }
        ("age" | "to_timestamp" | "to_date", given) => return Ok(of_times(&name, given)),
        ("encode", [bytes, _]) if text_of(bytes).is_some() => change(bytes, To::Bytea.name()),
        ("ceiling", [one]) => {
            keep_whole(one);
            return Ok(Some(call("ceil", vec![one.clone()])));
        }
        ("concat", all) | ("concat_ws", [_, all @ ..]) => {
            all.iter_mut()
                .filter(|it| text_of(it).is_none())
                .for_each(|it| change(it, To::Output.name()));
        }
        ("regexp_like", [text, pattern, flags @ ..]) if flags.len() < 2 => {
            let (text, pattern) = (nested(text.clone()), nested(pattern.clone()));
            return Ok(Some(nested(binary(text, test_with(flags.first())?, pattern))));
        }
        _ => {}
    }
    Ok(None)
}

/// Widens a numeric literal to allow integer digits: the engine's type has only the digits written.
pub(super) fn keep_whole(one: &mut Expr) {
    let fraction = written(one).and_then(|it| it.split_once('.').map(|(_, it)| it.len()));
    let scale = fraction.and_then(|it| i64::try_from(it).ok()).filter(|it| *it < NUMERIC_DIGITS);
    if let Some(scale) = scale {
        let info = ExactNumberInfo::PrecisionAndScale(NUMERIC_DIGITS.unsigned_abs(), scale);
        *one = cast_to(one.clone(), DataType::Numeric(info));
    }
}

/// Units that start at midnight of a zone.
const DAYS: &[&str] =
    &["day", "week", "month", "quarter", "year", "decade", "century", "millennium"];

/// Truncates a timestamp to days or longer in a zone. Hours are not supported: of an hour that
/// occurs twice, the result would have to be the occurrence that contains the time.
fn truncated_in_zone(unit: &Expr, time: &Expr, zone: &Expr) -> Result<Expr, SqlError> {
    let is_day =
        text_of(unit).is_some_and(|it| DAYS.iter().any(|day| it.eq_ignore_ascii_case(day)));
    if !is_day {
        return Err(refused("date_trunc in a time zone with a unit shorter than 'day'"));
    }
    // PostgreSQL has this function only for timestamptz.
    let time = call(To::Timestamptz.name(), vec![time.clone()]);
    let local = call(Call::TimeZone.name(), vec![zone.clone(), time]);
    let day = call("date_trunc", vec![unit.clone(), local]);
    Ok(call(Call::TimeZone.name(), vec![zone.clone(), day]))
}

/// Rewrites calls without parentheses or with named arguments.
fn of_form(name: &str, arguments: &FunctionArguments) -> Result<Option<Expr>, SqlError> {
    match (name, arguments) {
        ("localtimestamp", FunctionArguments::None) => {
            Ok(Some(call(To::Timestamp.name(), vec![call("now", Vec::new())])))
        }
        ("localtimestamp" | "localtime", _) => Err(refused(name)),
        ("current_time", _) => Err(refused("current_time").with_hint("Use localtime.")),
        (MAKE_INTERVAL, given) => interval_of_parts(given).map(Some),
        _ => Ok(None),
    }
}

/// Rewrites date/time functions that the engine lacks, or has with different patterns.
fn of_times(name: &str, arguments: &[&mut Expr]) -> Option<Expr> {
    let time = |it: &Expr| match text_of(it) {
        Some(_) => call(To::Timestamptz.name(), vec![it.clone()]),
        None => it.clone(),
    };
    match (name, arguments) {
        ("age", [one]) => {
            let today = call(To::Timestamp.name(), vec![call("current_date", Vec::new())]);
            Some(call("age", vec![today, time(one)]))
        }
        ("age", [one, other]) => Some(call("age", vec![time(one), time(other)])),
        ("to_timestamp", [text, pattern]) => {
            Some(call(TIME_BY_PATTERN, vec![(*text).clone(), (*pattern).clone()]))
        }
        ("to_date", [text, pattern]) => {
            Some(call(DATE_BY_PATTERN, vec![(*text).clone(), (*pattern).clone()]))
        }
        _ => None,
    }
}

/// Parses a quoted integer argument.
fn integer(text: &str) -> Result<i32, SqlError> {
    text.trim().parse().map_err(|_| {
        let what = format!("invalid input syntax for type integer: {text:?}");
        SqlError::new(SqlState::INVALID_TEXT, what)
    })
}

/// Returns the match operator for regular expression flags.
fn test_with(flags: Option<&&mut Expr>) -> Result<BinaryOperator, SqlError> {
    let Some(given) = flags else { return Ok(BinaryOperator::PGRegexMatch) };
    let Some(text) = text_of(given) else {
        return Err(refused("regexp_like with flags that are not a literal"));
    };
    match Flags::of(text)? {
        Flags { is_global: true, .. } => Err(Flags::no_global("regexp_like")),
        Flags { is_folded: true, .. } => Ok(BinaryOperator::PGRegexIMatch),
        _ => Ok(BinaryOperator::PGRegexMatch),
    }
}

/// Size limit for the argument of a call in which it is duplicated, so that nested calls would grow
/// exponentially.
pub(super) const DUPLICATED_SIZE_MAX: usize = 500;

/// Rewrites avg to sum and count. The engine's average of numerics has too few digits.
fn average(function: &Function) -> Result<Expr, SqlError> {
    if size_of(&Expr::Function(function.clone())) > DUPLICATED_SIZE_MAX {
        return Err(refused("avg of such a complex expression"));
    }
    let renamed = |name: &str| {
        let mut function = function.clone();
        function.name = vec![Ident::new(name)].into();
        Expr::Function(function)
    };
    Ok(call(Call::Average.name(), vec![renamed(AVERAGED), renamed("count")]))
}
