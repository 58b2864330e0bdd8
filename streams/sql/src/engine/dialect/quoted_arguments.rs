//! Quoted literals as arguments of functions and as operands of some operators: they take the type
//! of PostgreSQL's function for them.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, ExactNumberInfo, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, UnaryOperator, Value,
};

use super::conversions::To;
use super::rewrites::{cast, cast_to};
use super::written::{call, number, text_of};
use crate::error::{SqlError, SqlState};

/// Functions, and a letter for the type of each argument: `f` double precision, `n` numeric, `i`
/// integer, `b` boolean; `-` stays.
const TYPES: &[(&str, &str)] = &[
    ("abs", "f"),
    ("acos", "f"),
    ("array_length", "-i"),
    ("asin", "f"),
    ("atan", "f"),
    ("atan2", "ff"),
    ("bool_and", "b"),
    ("bool_or", "b"),
    ("cbrt", "f"),
    ("ceil", "f"),
    ("ceiling", "f"),
    ("chr", "i"),
    ("cos", "f"),
    ("degrees", "f"),
    ("div", "nn"),
    ("every", "b"),
    ("exp", "f"),
    ("factorial", "i"),
    ("floor", "f"),
    ("lag", "-i"),
    ("lead", "-i"),
    ("ln", "f"),
    ("log", "f"),
    ("log", "nn"),
    ("log10", "f"),
    ("make_date", "iii"),
    ("make_time", "iif"),
    ("nth_value", "-i"),
    ("ntile", "i"),
    ("power", "ff"),
    ("radians", "f"),
    ("round", "f"),
    ("round", "ni"),
    ("sign", "f"),
    ("sin", "f"),
    ("split_part", "--i"),
    ("sqrt", "f"),
    ("substr", "-i"),
    ("substr", "-ii"),
    ("tan", "f"),
    ("to_timestamp", "f"),
    ("trunc", "ni"),
];

/// Functions of which there are several for arguments that are all quoted.
const OF_SEVERAL_TYPES: &[(&str, usize)] = &[
    ("age", 1),
    ("date_part", 2),
    ("gcd", 2),
    ("isfinite", 1),
    ("lcm", 2),
    ("mod", 2),
    ("to_hex", 1),
    ("trunc", 1),
];

/// Types the quoted arguments of a call.
pub(super) fn type_arguments(function: &mut Function) -> Result<(), SqlError> {
    let name = function.name.to_string().to_ascii_lowercase();
    let FunctionArguments::List(list) = &mut function.args else { return Ok(()) };
    let mut arguments: Vec<&mut Expr> = Vec::new();
    for argument in &mut list.args {
        match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => arguments.push(expr),
            _ => return Ok(()),
        }
    }
    let quoted_count = arguments.iter().filter(|it| text_of(it).is_some()).count();
    if quoted_count == 0 {
        return Ok(());
    }
    if quoted_count == arguments.len() && OF_SEVERAL_TYPES.contains(&(&*name, quoted_count)) {
        let unknown = vec!["unknown"; quoted_count].join(", ");
        return Err(not_unique(&format!("function {name}({unknown})")));
    }
    let is_it = |it: &&(&str, &str)| it.0 == name && it.1.len() == arguments.len();
    let Some((_, types)) = TYPES.iter().find(is_it) else { return Ok(()) };
    if arguments.iter().any(|it| has_fraction(it)) && name == "power" {
        return Ok(());
    }
    for (argument, letter) in arguments.into_iter().zip(types.chars()) {
        if let Some(typed) = typed(argument, letter)? {
            *argument = typed;
        }
    }
    Ok(())
}

fn not_unique(what: &str) -> SqlError {
    SqlError::new(SqlState("42725"), format!("{what} is not unique"))
        .with_hint("Write the type of the value.")
}

fn has_fraction(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value)
        if matches!(&value.value, Value::Number(digits, _) if digits.contains('.')))
}

fn typed(argument: &Expr, letter: char) -> Result<Option<Expr>, SqlError> {
    let Some(text) = text_of(argument) else { return Ok(None) };
    Ok(Some(match letter {
        'f' => call(To::Float8.name(), vec![argument.clone()]),
        'i' => number(&integer(text)?.to_string()),
        'b' => boolean(text)?,
        'n' => {
            let (mut literal, numeric) =
                (argument.clone(), DataType::Numeric(ExactNumberInfo::None));
            cast(&mut literal, &numeric)?.unwrap_or_else(|| cast_to(literal, numeric))
        }
        _ => return Ok(None),
    }))
}

fn integer(text: &str) -> Result<i32, SqlError> {
    text.trim().parse().map_err(|_| {
        let is_long = text.trim().parse::<i128>().is_ok();
        match is_long {
            true => {
                let what = format!("value {text:?} is out of range for type integer");
                SqlError::new(SqlState::OUT_OF_RANGE, what)
            }
            false => {
                let what = format!("invalid input syntax for type integer: {text:?}");
                SqlError::new(SqlState::INVALID_TEXT, what)
            }
        }
    })
}

fn boolean(text: &str) -> Result<Expr, SqlError> {
    let word = text.trim().to_ascii_lowercase();
    let begins = |whole: &str| !word.is_empty() && whole.starts_with(&word);
    let is_true = ["true", "yes"].into_iter().any(begins) || ["on", "1"].contains(&&*word);
    let is_false = ["false", "no"].into_iter().any(begins) || ["of", "off", "0"].contains(&&*word);
    match is_true || is_false {
        true => Ok(Expr::Value(Value::Boolean(is_true).into())),
        false => {
            let what = format!("invalid input syntax for type boolean: {text:?}");
            Err(SqlError::new(SqlState::INVALID_TEXT, what))
        }
    }
}

/// Types the quoted operands of an expression.
///
/// # Errors
/// They are no values of the type, or there are several operators for such an operand.
pub(super) fn type_operands(expr: &mut Expr) -> Result<(), SqlError> {
    let change = |operand: &mut Expr, letter: char| {
        if let Some(typed) = typed(operand, letter)? {
            *operand = typed;
        }
        Ok(())
    };
    match expr {
        Expr::Ceil { expr, .. } | Expr::Floor { expr, .. } => change(expr, 'f'),
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => change(expr, 'b'),
        Expr::UnaryOp { op: UnaryOperator::PGAbs, expr } => change(expr, 'f'),
        Expr::BinaryOp { left, op: BinaryOperator::PGExp, right } => {
            let is_whole = |it: &Expr| matches!(it, Expr::Value(_)) && !has_fraction(it);
            match (is_whole(left), is_whole(right)) {
                (true, true) => change(left, 'f').and_then(|()| change(right, 'f')),
                _ => Ok(()),
            }
        }
        Expr::BinaryOp {
            op: BinaryOperator::PGBitwiseShiftLeft | BinaryOperator::PGBitwiseShiftRight,
            right,
            ..
        } => change(right, 'i'),
        Expr::UnaryOp { op: op @ (UnaryOperator::Minus | UnaryOperator::BitwiseNot), expr }
            if text_of(expr).is_some() =>
        {
            Err(not_unique(&format!("operator: {op} unknown")))
        }
        Expr::BinaryOp { left, op: BinaryOperator::And | BinaryOperator::Or, right } => {
            change(left, 'b')?;
            change(right, 'b')
        }
        Expr::Case { operand: None, conditions, .. } => {
            conditions.iter_mut().try_for_each(|it| change(&mut it.condition, 'b'))
        }
        _ => Ok(()),
    }
}
