//! Patterns of SIMILAR TO, converted to regular expressions, and of LIKE, with escape characters
//! other than backslash and with a trailing escape character.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, StringViewArray};
use datafusion::arrow::compute::like;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::{Like, ScalarFunction};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, ScalarUDF};
use live_queries::is_like;

use super::own::{Own, of_arrow, texts};
use crate::error::{SqlError, SqlState};

/// Returns the escape character of ESCAPE, or `None` for an empty text.
pub(super) fn escape_sign(text: &str) -> Result<Option<char>, SqlError> {
    let mut signs = text.chars();
    match (signs.next(), signs.next()) {
        (sign, None) => Ok(sign),
        _ => Err(SqlError::new(SqlState::INVALID_ESCAPE, "invalid escape string")
            .with_hint("Escape string must be empty or one character.")),
    }
}

/// Function for LIKE with a computed pattern, or one that ends with a backslash.
pub(super) const IS_LIKE: &str = "is_like";

/// Escape character.
const ESCAPE: char = '\\';

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![Own::udf(IS_LIKE, 2, truth, compare)]
}

/// Replaces such a LIKE by a call, because the engine would take a trailing backslash literally.
pub(super) fn like_by_signs(expr: Expr) -> Expr {
    let (is_negated, text, pattern) = match expr {
        Expr::Like(it) if !it.case_insensitive && !is_whole(&it.pattern) => {
            let Like { negated, expr, pattern, .. } = it;
            (negated, expr, pattern)
        }
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (Operator::LikeMatch | Operator::NotLikeMatch),
            right,
        }) if !is_whole(&right) => (op == Operator::NotLikeMatch, left, right),
        other => return other,
    };
    let function = Own::udf(IS_LIKE, 2, truth, compare);
    let call = ScalarFunction::new_udf(function, vec![*text, *pattern]);
    let call = Expr::ScalarFunction(call);
    if is_negated { Expr::Not(Box::new(call)) } else { call }
}

/// Returns whether a pattern is a literal without a trailing escape character.
fn is_whole(pattern: &Expr) -> bool {
    let value = match pattern {
        Expr::Literal(value, _) => value,
        // Cast to the type of the text.
        Expr::Cast(cast) => return is_whole(&cast.expr),
        _ => return false,
    };
    match value.try_as_str() {
        Some(Some(text)) => !ends_with_escape(text),
        Some(None) => true,
        None => *value == ScalarValue::Null,
    }
}

fn ends_with_escape(pattern: &str) -> bool {
    pattern.chars().rev().take_while(|it| *it == ESCAPE).count() % 2 == 1
}

/// Maximum product of the bytes of texts and patterns in a batch, for patterns that end with the
/// escape character. Matching cannot be interrupted.
const STEPS_MAX: usize = 100_000_000;

fn truth(types: &[DataType]) -> Option<DataType> {
    let are_texts = types.iter().all(|it| it.is_string() || it.is_null());
    are_texts.then_some(DataType::Boolean)
}

fn compare(arrays: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let (texts, patterns): (StringViewArray, _) = (texts(&arrays[0])?, texts(&arrays[1])?);
    if !patterns.iter().flatten().any(ends_with_escape) {
        return Ok(Arc::new(like(&texts, &patterns).map_err(of_arrow)?));
    }
    // The engine matches all others in time independent of the pattern's length.
    let others = patterns.iter().map(|it| it.filter(|it| !ends_with_escape(it)));
    let others: StringViewArray = others.collect();
    let found = like(&texts, &others).map_err(of_arrow)?;
    let mut steps = 0_usize;
    let found = texts.iter().zip(&patterns).zip(&found).map(|it| match it {
        ((Some(text), Some(pattern)), None) => {
            steps = steps.saturating_add(text.len().saturating_mul(pattern.len()));
            if steps > STEPS_MAX {
                return Err(too_long());
            }
            is_like(text, pattern).map(Some).map_err(|_| dangling())
        }
        (_, found) => Ok(found),
    });
    Ok(Arc::new(found.collect::<Result<BooleanArray, SqlError>>()?))
}

fn too_long() -> SqlError {
    let what = "strings are too long for a LIKE pattern that ends with the escape character";
    SqlError::new(SqlState("54000"), what)
}

fn dangling() -> SqlError {
    let what = "LIKE pattern must not end with escape character";
    SqlError::new(SqlState::INVALID_ESCAPE, what)
}

/// Converts a LIKE pattern from the escape character `escape` to backslash.
pub(super) fn with_backslashes(pattern: &str, escape: Option<char>) -> String {
    let mut signs = pattern.chars();
    let mut written = String::with_capacity(pattern.len());
    while let Some(sign) = signs.next() {
        match sign {
            _ if Some(sign) == escape => {
                written.push(ESCAPE);
                written.extend(signs.next());
            }
            ESCAPE => written.push_str("\\\\"),
            _ => written.push(sign),
        }
    }
    written
}

/// Converts a SIMILAR TO pattern with the escape character `escape` to an anchored regular
/// expression.
pub(super) fn similar_to_regex(pattern: &str, escape: Option<char>) -> String {
    let mut regex = String::from("^(?:");
    let mut signs = pattern.chars();
    let mut is_in_set = false;
    while let Some(sign) = signs.next() {
        if Some(sign) == escape {
            match signs.next() {
                // A letter keeps its meaning in regular expressions, as in `\m`.
                Some(it) if it.is_ascii_alphanumeric() => regex.extend(['\\', it]),
                it => it.iter().for_each(|it| push_literal(&mut regex, *it)),
            }
            continue;
        }
        match sign {
            '[' if !is_in_set => {
                is_in_set = true;
                regex.push('[');
            }
            ']' if is_in_set => {
                is_in_set = false;
                regex.push(']');
            }
            '^' | '-' if is_in_set => regex.push(sign),
            _ if is_in_set => push_literal(&mut regex, sign),
            '%' => regex.push_str(".*"),
            '_' => regex.push('.'),
            '(' => regex.push_str("(?:"),
            ')' | '|' | '*' | '+' | '?' | '{' | '}' => regex.push(sign),
            other => push_literal(&mut regex, other),
        }
    }
    regex.push_str(")$");
    regex
}

fn push_literal(regex: &mut String, sign: char) {
    if sign.is_ascii_punctuation() {
        regex.push('\\');
    }
    regex.push(sign);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_sign_takes_the_meaning_of_the_next_one() {
        for (pattern, escape, expected) in [
            ("10!%%", Some('!'), "10\\%%"),
            ("a%%b", Some('%'), "a\\%b"),
            ("a\\%", Some('!'), "a\\\\%"),
            ("a!\\", Some('!'), "a\\\\"),
            ("a\\%", None, "a\\\\%"),
            ("a!", Some('!'), "a\\"),
        ] {
            assert_eq!(with_backslashes(pattern, escape), expected, "{pattern}");
        }
    }

    #[test]
    fn texts_times_patterns_that_end_with_the_escape_character_are_bounded() {
        let compared = |text: &str, pattern: &str| {
            let texts: ArrayRef = Arc::new(StringViewArray::from(vec![text, "ab"]));
            let patterns: ArrayRef = Arc::new(StringViewArray::from(vec![pattern, "a\\"]));
            compare(&[texts, patterns]).expect_err("the second one is wrong").state
        };
        let long = "a".repeat(100_000);
        assert_eq!(compared(&long, &format!("%{}b", &long[..50_000])), SqlState::INVALID_ESCAPE);
        assert_eq!(compared(&long, &format!("%{}b\\", &long[..50_000])), SqlState("54000"));
    }

    #[test]
    fn signs_of_sql_and_of_regular_expressions_keep_their_own_meanings() {
        for (pattern, regex) in [
            ("a%", "^(?:a.*)$"),
            ("%(b|d)_", "^(?:.*(?:b|d).)$"),
            ("a.b^$", "^(?:a\\.b\\^\\$)$"),
            ("\\%[a-c%]+", "^(?:\\%[a-c\\%]+)$"),
            ("\\ma\\d", "^(?:\\ma\\d)$"),
            ("[^[&&]", "^(?:[^\\[\\&\\&])$"),
        ] {
            assert_eq!(similar_to_regex(pattern, Some('\\')), regex, "{pattern}");
        }
    }
}
