//! Patterns of SIMILAR TO as regular expressions.

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
