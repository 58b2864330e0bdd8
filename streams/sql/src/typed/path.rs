//! JSON paths in the syntax of `PATH`: `$.quote.bid`, `$."a name".list[0]`.

use live_queries::Step;

use crate::error::{SqlError, SqlState};

/// Maximum number of steps of a path.
const STEP_COUNT_MAX: usize = 20;

/// Parses a path. It has at least one step.
pub(super) fn read(text: &str) -> Result<Vec<Step>, SqlError> {
    let wrong = || {
        let what = format!("invalid JSON path {text:?}");
        SqlError::new(SqlState::SYNTAX, what)
            .with_hint("Use a path such as '$.quote.bid' or '$.\"a name\".list[0]'.")
    };
    let mut rest = text.strip_prefix('$').ok_or_else(wrong)?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let (step, after) = first(rest).ok_or_else(wrong)?;
        steps.push(step);
        rest = after;
    }
    match (1..=STEP_COUNT_MAX).contains(&steps.len()) {
        true => Ok(steps),
        false => Err(wrong()),
    }
}

fn first(text: &str) -> Option<(Step, &str)> {
    if let Some(inside) = text.strip_prefix('[') {
        let (number, rest) = inside.split_once(']')?;
        return Some((Step::Index(number.parse().ok()?), rest));
    }
    let name = text.strip_prefix('.')?;
    if let Some(quoted) = name.strip_prefix('"') {
        let (name, rest) = quoted.split_once('"')?;
        return Some((Step::Key(name.to_owned()), rest));
    }
    let end = name.find(['.', '[', ']', '"']).unwrap_or(name.len());
    let (name, rest) = name.split_at(end);
    (!name.is_empty()).then(|| (Step::Key(name.to_owned()), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_names_and_indexes() {
        let key = |name: &str| Step::Key(name.to_owned());
        let steps = read("$.quote.\"a.b c\"[3].bid").expect("a good path");
        assert_eq!(steps, [key("quote"), key("a.b c"), Step::Index(3), key("bid")]);
        for text in ["", "$", "a", "$a", "$.", "$..a", "$[x]", "$[1", "$.\"a", "$.a]"] {
            read(text).expect_err(text);
        }
        read(&format!("${}", ".a".repeat(STEP_COUNT_MAX + 1))).expect_err("too long");
    }
}
