//! PostgreSQL's text format of arrays.

use crate::error::{SqlError, SqlState};

/// Parses a one-dimensional array literal: `{a,"b c",NULL}`.
pub(crate) fn array_elements(text: &str) -> Result<Vec<Option<String>>, SqlError> {
    let malformed = || {
        let what = format!("malformed array literal: {text:?}");
        SqlError::new(SqlState::INVALID_TEXT, what)
    };
    if text.trim_start().starts_with('[') && text.contains("={") {
        return Err(SqlError::unsupported("array literals with bounds are not supported"));
    }
    let inner = text.trim().strip_prefix('{').and_then(|it| it.strip_suffix('}'));
    let inner = inner.ok_or_else(malformed)?;
    if inner.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut elements = Vec::new();
    let mut signs = inner.chars().peekable();
    loop {
        while signs.next_if(|it| it.is_ascii_whitespace()).is_some() {}
        let is_quoted = signs.next_if_eq(&'"').is_some();
        let (mut element, mut kept) = (String::new(), 0);
        loop {
            match signs.peek().copied() {
                Some('"') if is_quoted => {
                    signs.next();
                    break;
                }
                Some(',') | None if !is_quoted => break,
                Some('{') if !is_quoted && element.is_empty() => {
                    return Err(SqlError::unsupported(
                        "multidimensional array literals are not supported",
                    ));
                }
                None | Some('{' | '}') if !is_quoted || signs.peek().is_none() => {
                    return Err(malformed());
                }
                Some('"') => return Err(malformed()),
                Some('\\') => {
                    signs.next();
                    element.push(signs.next().ok_or_else(malformed)?);
                    kept = element.len();
                }
                Some(sign) => {
                    signs.next();
                    element.push(sign);
                    if is_quoted || !sign.is_ascii_whitespace() {
                        kept = element.len();
                    }
                }
                None => return Err(malformed()),
            }
        }
        while signs.next_if(|it| it.is_ascii_whitespace()).is_some() {}
        if !is_quoted {
            element.truncate(kept);
        }
        match (is_quoted, element.as_str()) {
            (false, "") => return Err(malformed()),
            (false, null) if null.eq_ignore_ascii_case("null") => elements.push(None),
            _ => elements.push(Some(element)),
        }
        match signs.next() {
            Some(',') => {}
            None => return Ok(elements),
            Some(_) => return Err(malformed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_have_the_elements_that_are_written() {
        let texts =
            |list: &[&str]| -> Vec<_> { list.iter().map(|it| Some((*it).to_owned())).collect() };
        let found = |text: &str| array_elements(text).ok();
        assert_eq!(found("{a, b c ,\"d,\\\"\"}"), Some(texts(&["a", "b c", "d,\""])));
        assert_eq!(found(" {} "), Some(Vec::new()));
        assert_eq!(found("{null,\"null\"}"), Some(vec![None, Some("null".to_owned())]));
        for text in ["a", "{a", "{a,}", "{,a}", "{{a}}", "{\"a}", "{a\"b}", "{\"a\"b}"] {
            assert_eq!(found(text), None, "{text}");
        }
    }
}
