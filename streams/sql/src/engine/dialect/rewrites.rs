//! Expressions that are written as calls of functions of PostgreSQL's meaning: casts, lists,
//! averages, patterns.

use datafusion::sql::sqlparser::ast::{
    Array, ArrayElemTypeDef, BinaryOperator, CastKind, CharacterLength, DataType, ExactNumberInfo,
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, TimezoneInfo,
    UnaryOperator, Value, ValueWithSpan,
};

use super::calls::Call;
use super::casts::{INT2, INT4, INT8, NUMERIC};
use super::conversions::{SPECIAL_TIMES, To, special_time};
use super::inexact::refused;
use super::interval_functions::{MAKE_INTERVAL, OF_INTERVAL, PARTS};
use super::interval_texts;
use super::jsonb;
use super::regex_functions::Flags;
use super::rows::{Quantifier, spelled_list};
use super::time_functions::{DATE_BY_PATTERN, TIME_BY_PATTERN};
use super::written::{
    binary, call, in_list, is_double, is_timestamp, nested, number, size_of, text_of,
};
use crate::engine::names::AVERAGED;
use crate::error::{SqlError, SqlState};
use crate::wire::array_elements;

/// Digits of a literal that is a number of the engine.
const LITERAL_DIGITS_MAX: usize = 38;

/// Digits of a numeric.
const NUMERIC_DIGITS: i64 = 38;

/// Digits behind the point of seconds.
const SECOND_DIGITS: usize = 6;

/// Casts that round, cut off, read or write more than the engine's.
pub(super) fn cast(inner: &mut Expr, data_type: &DataType) -> Result<Option<Expr>, SqlError> {
    // Its type is known by the cast alone.
    if matches!(inner, Expr::Value(value) if matches!(value.value, Value::Placeholder(_))) {
        return Ok(None);
    }
    if matches!(data_type, DataType::JSON | DataType::JSONB) {
        return json(inner, data_type);
    }
    if is_timestamp(data_type) {
        let has_zone = match data_type {
            DataType::Timestamp(_, zone) => {
                matches!(zone, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz)
            }
            _ => true,
        };
        if let DataType::Timestamp(Some(digits), _) = data_type {
            let what = format!("times of {digits} digits of seconds are not supported");
            return Err(SqlError::unsupported(what).with_hint("Use date_trunc."));
        }
        let to = if has_zone { To::Timestamptz } else { To::Timestamp };
        return Ok(Some(call(to.name(), vec![inner.clone()])));
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

/// A text that is written out as a date, a time of day or an interval.
fn literal_time(inner: &Expr, data_type: &DataType) -> Result<Option<Expr>, SqlError> {
    match (data_type, text_of(inner)) {
        (DataType::Date, Some(text)) => date(text),
        (DataType::Time(..), Some(text)) => check_time(text).map(|()| None),
        (DataType::Interval { .. }, Some(text)) => interval(text, data_type),
        _ => Ok(None),
    }
}

fn check_time(text: &str) -> Result<(), SqlError> {
    // The engine takes them for seconds.
    let is_end_of_day = text.trim_start().starts_with("24");
    if is_end_of_day || !text.contains(':') && text.bytes().any(|it| it.is_ascii_digit()) {
        let what = format!("the time of day {text:?} is not supported");
        return Err(SqlError::unsupported(what).with_hint("Write it as 10:20:30."));
    }
    let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
    match fraction.bytes().take_while(u8::is_ascii_digit).count() > SECOND_DIGITS {
        true => Err(SqlError::unsupported("times of day have six digits of seconds at most")),
        false => Ok(()),
    }
}

/// A word for a date.
pub(super) fn date(text: &str) -> Result<Option<Expr>, SqlError> {
    let word = text.trim().to_ascii_lowercase();
    match word.as_str() {
        "epoch" => {
            let first = Value::SingleQuotedString("1970-01-01".to_owned());
            Ok(Some(cast_to(Expr::Value(first.into()), DataType::Date)))
        }
        it if SPECIAL_TIMES.contains(&it) => Err(special_time(it)),
        it if it.contains('/') || MONTHS.iter().any(|month| it.contains(month)) => {
            let what = format!("the date {text:?} is not supported");
            Err(SqlError::unsupported(what).with_hint("Write it as 2026-01-31."))
        }
        _ => Ok(None),
    }
}

/// As months begin in dates that have their names.
const MONTHS: &[&str] =
    &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// The engine reads fewer texts of intervals.
fn interval(text: &str, data_type: &DataType) -> Result<Option<Expr>, SqlError> {
    let literal = |text| Expr::Value(Value::SingleQuotedString(text).into());
    let spelled = interval_texts::spelled(text)?;
    Ok(spelled.map(|text| cast_to(literal(text), data_type.clone())))
}

/// Literals are looked at before they are used.
fn json(inner: &Expr, data_type: &DataType) -> Result<Option<Expr>, SqlError> {
    let is_binary = *data_type == DataType::JSONB;
    // A text that is told to be one is a literal all the same.
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

/// A number as it is written, which a float is read from: the engine would read it as another.
fn as_text(inner: &Expr) -> Expr {
    match written(inner) {
        Some(digits) => {
            // Only floats have a zero below zero.
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

/// A number whose exponent moves its point behind its last digit, with all of its digits: the
/// engine would count in units of ten and more.
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

/// A literal numeric with the digits that it is written with.
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

/// A literal array with its elements as expressions.
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

/// The engine cuts off what PostgreSQL rounds.
fn array_of(inner: &Expr, element: &DataType) -> Result<Option<Expr>, SqlError> {
    const OF_TEXTS: &[&str] = &["string_to_array", "regexp_match", "regexp_split_to_array"];
    match inner {
        Expr::Array(array) if !array.elem.is_empty() => {
            let is_list = |it: &Expr| matches!(it, Expr::Array(_));
            if array.elem.iter().any(is_list) {
                return Err(refused("casting an array of arrays"));
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
            Err(refused("casting an array that a function gives"))
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

/// `= ANY (…)` of a list that is written there, as a list after IN; by other operators each
/// element is compared.
/// Literals of an array that has no other elements are texts, which one of them says for all.
fn as_texts(mut elements: Vec<Expr>) -> Vec<Expr> {
    if elements.iter().all(|it| text_of(it).is_some())
        && let Some(first) = elements.first_mut()
    {
        *first = call(To::Text.name(), vec![first.clone()]);
    }
    elements
}

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
        // It is compared with its rows.
        Expr::Subquery(_) => return Ok(None),
        other => {
            let Some(text) = text_of(other) else {
                let call = || call(super::any::NAME, vec![left.clone(), other.clone()]);
                return match (is_equal, quantifier) {
                    (true, _) => Ok(Some(call())),
                    // The engine takes NULL among the elements for a value that is not equal.
                    (false, Quantifier::Any) => Err(SqlError::unsupported(
                        "ANY of an array that is not written out takes = alone",
                    )),
                    (false, Quantifier::All) => Ok(None),
                };
            };
            let literal = |it: Option<String>| {
                let value = it.map_or(Value::Null, Value::SingleQuotedString);
                Expr::Value(value.into())
            };
            array_elements(text)?.into_iter().map(literal).collect()
        }
    };
    if list.iter().any(|it| matches!(it, Expr::Array(_))) {
        return Err(SqlError::unsupported("ANY and ALL take no arrays of arrays"));
    }
    if list.is_empty() || !is_equal && !is_unequal {
        return spelled_list(left, operator, list, quantifier).map(Some);
    }
    let changed = in_list(left, &list, is_unequal)?;
    let plain = || Expr::InList { expr: Box::new(left.clone()), list, negated: is_unequal };
    Ok(Some(changed.unwrap_or_else(plain)))
}

/// Functions that PostgreSQL has under several names, and the engine under one.
const SYNONYMS: &[(&str, &str)] = &[
    ("every", "bool_and"),
    ("variance", "var_samp"),
    ("transaction_timestamp", "now"),
    ("statement_timestamp", "now"),
];

/// Functions whose numbers the engine gives another type, and the casts to their own.
const COUNTS: &[(&str, &str)] = &[
    ("row_number", INT8),
    ("rank", INT8),
    ("dense_rank", INT8),
    ("ntile", INT4),
    ("regr_count", INT8),
    ("factorial", NUMERIC),
];

/// A call as it is written, with a result of the type that it has in PostgreSQL.
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

/// Functions that PostgreSQL has under these names, or means in another way.
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
        ("date_trunc", [unit, time, zone]) => return truncated_in_zone(unit, time, zone).map(Some),
        (it, [one]) if OF_INTERVAL.contains(&it) && text_of(one).is_some() => {
            let mut literal = one.clone();
            let interval = DataType::Interval { fields: None, precision: None };
            let changed = cast(&mut literal, &interval)?;
            **one = changed.unwrap_or_else(|| cast_to(literal, interval));
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

/// Has a literal have digits before the point: it has as many as are written, which may be none.
pub(super) fn keep_whole(one: &mut Expr) {
    let fraction = written(one).and_then(|it| it.split_once('.').map(|(_, it)| it.len()));
    let scale = fraction.and_then(|it| i64::try_from(it).ok()).filter(|it| *it < NUMERIC_DIGITS);
    if let Some(scale) = scale {
        let info = ExactNumberInfo::PrecisionAndScale(NUMERIC_DIGITS.unsigned_abs(), scale);
        *one = cast_to(one.clone(), DataType::Numeric(info));
    }
}

/// Units that begin with a day of a zone.
const DAYS: &[&str] =
    &["day", "week", "month", "quarter", "year", "decade", "century", "millennium"];

/// A time of UTC that is cut off at a day of a zone. Hours are not: of one that there is twice, it
/// is the one that the time lies in.
fn truncated_in_zone(unit: &Expr, time: &Expr, zone: &Expr) -> Result<Expr, SqlError> {
    let is_day =
        text_of(unit).is_some_and(|it| DAYS.iter().any(|day| it.eq_ignore_ascii_case(day)));
    if !is_day {
        return Err(refused(
            "date_trunc in a zone by other than 'day', 'week', 'month' and longer",
        ));
    }
    // Of a time without a zone there is no such function.
    let time = call(To::Timestamptz.name(), vec![time.clone()]);
    let local = call(Call::TimeZone.name(), vec![zone.clone(), time]);
    let day = call("date_trunc", vec![unit.clone(), local]);
    Ok(call(Call::TimeZone.name(), vec![zone.clone(), day]))
}

/// Calls without brackets, or whose arguments have names.
fn of_form(name: &str, arguments: &FunctionArguments) -> Result<Option<Expr>, SqlError> {
    match (name, arguments) {
        ("localtimestamp", FunctionArguments::None) => {
            Ok(Some(call(To::Timestamp.name(), vec![call("now", Vec::new())])))
        }
        ("localtimestamp" | "localtime", _) => Err(refused(name)),
        (MAKE_INTERVAL, given) => interval_of_parts(given).map(Some),
        _ => Ok(None),
    }
}

/// `make_interval` with all of its arguments, in their order.
fn interval_of_parts(given: &FunctionArguments) -> Result<Expr, SqlError> {
    let wrong = || {
        let what = "function make_interval with these arguments does not exist";
        SqlError::new(SqlState::UNDEFINED_FUNCTION, what)
    };
    let FunctionArguments::List(list) = given else { return Err(wrong()) };
    let mut parts: [Option<Expr>; PARTS.len()] = Default::default();
    for (index, argument) in list.args.iter().enumerate() {
        let (index, expr) = match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => (Some(index), expr),
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(expr), .. } => {
                let name = name.value.to_ascii_lowercase();
                (PARTS.iter().position(|it| *it == name), expr)
            }
            _ => return Err(wrong()),
        };
        let part = index.and_then(|it| parts.get_mut(it)).ok_or_else(wrong)?;
        if part.replace(expr.clone()).is_some() {
            return Err(wrong());
        }
    }
    let parts = parts.into_iter().map(|it| it.unwrap_or_else(|| number("0")));
    Ok(call(MAKE_INTERVAL, parts.collect()))
}

/// Functions on times that the engine has not, or has with other patterns.
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

/// A number in quotes that a function takes.
fn integer(text: &str) -> Result<i32, SqlError> {
    text.trim().parse().map_err(|_| {
        let what = format!("invalid input syntax for type integer: {text:?}");
        SqlError::new(SqlState::INVALID_TEXT, what)
    })
}

/// The operator that tests a pattern with such flags.
fn test_with(flags: Option<&&mut Expr>) -> Result<BinaryOperator, SqlError> {
    let Some(given) = flags else { return Ok(BinaryOperator::PGRegexMatch) };
    let Some(text) = text_of(given) else {
        return Err(refused("regexp_like with flags that are not written out"));
    };
    match Flags::of(text)? {
        Flags { is_global: true, .. } => Err(Flags::no_global("regexp_like")),
        Flags { is_folded: true, .. } => Ok(BinaryOperator::PGRegexIMatch),
        _ => Ok(BinaryOperator::PGRegexMatch),
    }
}

/// What an average is of is written twice: averages in averages would multiply.
const AVERAGED_SIZE_MAX: usize = 500;

/// The sum by the count: the engine's average of numerics has few digits.
fn average(function: &Function) -> Result<Expr, SqlError> {
    if size_of(&Expr::Function(function.clone())) > AVERAGED_SIZE_MAX {
        return Err(refused("avg of an expression as long as this"));
    }
    let renamed = |name: &str| {
        let mut function = function.clone();
        function.name = vec![Ident::new(name)].into();
        Expr::Function(function)
    };
    Ok(call(Call::Average.name(), vec![renamed(AVERAGED), renamed("count")]))
}
