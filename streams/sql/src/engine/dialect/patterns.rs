//! Patterns of SIMILAR TO as regular expressions, and of LIKE with another sign than a backslash.

use crate::error::{SqlError, SqlState};

/// The sign that ESCAPE names; none where its text is empty.
pub(super) fn escape_sign(text: &str) -> Result<Option<char>, SqlError> {
    let mut signs = text.chars();
    match (signs.next(), signs.next()) {
        (sign, None) => Ok(sign),
        _ => Err(SqlError::new(SqlState::INVALID_ESCAPE, "invalid escape string")
            .with_hint("Escape string must be empty or one character.")),
    }
}

/// A pattern of LIKE in which a backslash takes the meaning of the sign behind it, as `escape` did.
pub(super) fn with_backslashes(pattern: &str, escape: Option<char>) -> Result<String, SqlError> {
    let mut signs = pattern.chars();
    let mut written = String::with_capacity(pattern.len());
    while let Some(sign) = signs.next() {
        match sign {
            _ if Some(sign) == escape => {
                let Some(plain) = signs.next() else {
                    let what = "LIKE pattern must not end with escape character";
                    return Err(SqlError::new(SqlState::INVALID_ESCAPE, what));
                };
                written.extend(['\\', plain]);
            }
            '\\' => written.push_str("\\\\"),
            _ => written.push(sign),
        }
    }
    Ok(written)
}

/// The same pattern, anchored at both ends; `escape` takes a sign's meaning.
pub(super) fn similar_to_regex(pattern: &str, escape: Option<char>) -> String {
    let mut regex = String::from("^(?:");
    let mut signs = pattern.chars();
    let mut is_in_set = false;
    while let Some(sign) = signs.next() {
        if Some(sign) == escape {
            signs.next().iter().for_each(|it| push_literal(&mut regex, *it));
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
            ("10!%%", Some('!'), Some("10\\%%")),
            ("a%%b", Some('%'), Some("a\\%b")),
            ("a\\%", Some('!'), Some("a\\\\%")),
            ("a!\\", Some('!'), Some("a\\\\")),
            ("a\\%", None, Some("a\\\\%")),
            ("a!", Some('!'), None),
        ] {
            let found = with_backslashes(pattern, escape).ok();
            assert_eq!(found.as_deref(), expected, "{pattern}");
        }
    }

    #[test]
    fn signs_of_sql_and_of_regular_expressions_keep_their_own_meanings() {
        for (pattern, regex) in [
            ("a%", "^(?:a.*)$"),
            ("%(b|d)_", "^(?:.*(?:b|d).)$"),
            ("a.b^$", "^(?:a\\.b\\^\\$)$"),
            ("\\%[a-c%]+", "^(?:\\%[a-c\\%]+)$"),
            ("[^[&&]", "^(?:[^\\[\\&\\&])$"),
        ] {
            assert_eq!(similar_to_regex(pattern, Some('\\')), regex, "{pattern}");
        }
    }
}
