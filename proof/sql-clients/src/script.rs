//! Many queries in one run of psql, and what each of them gave.

use anyhow::{Context, Result, ensure};
use system::Tool;

use crate::site::{NULL, file_of};

/// Stands before what psql says of how a query ended; no row begins so.
const MARK: &str = "@@";
const SUCCESS: &str = "00000";

/// Numbers that differ by no more than this part of them are equal: sums of floats depend on the
/// order of their rows.
const DEVIATION_MAX: f64 = 1e-9;

/// Queries in order, without semicolons at their ends.
#[derive(Default)]
pub struct Script {
    queries: Vec<String>,
}

/// What a query gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Each row with `|` between its columns.
    Rows(Vec<String>),
    Error {
        sql_state: String,
        message: String,
    },
}

impl Script {
    pub fn add(&mut self, query: impl Into<String>) {
        self.queries.push(query.into());
    }

    pub fn queries(&self) -> &[String] {
        &self.queries
    }

    /// Runs all queries, also behind one that fails.
    pub fn run(&self, psql: Tool) -> Result<Vec<Answer>> {
        let mut lines = Vec::new();
        for query in &self.queries {
            lines.push(format!("{query};"));
            lines.push(format!("\\echo {MARK} :SQLSTATE :LAST_ERROR_MESSAGE"));
        }
        let printed = psql.args(["--file", "-"]).input(file_of(&lines)?).check()?;
        let mut answers = Vec::new();
        let mut rows = Vec::new();
        for line in printed.lines() {
            match line.strip_prefix(MARK) {
                None => rows.push(line.to_owned()),
                Some(ending) => {
                    let rows = std::mem::take(&mut rows);
                    let (state, message) = ending.trim().split_once(' ').unwrap_or((ending, ""));
                    answers.push(match state.trim() {
                        SUCCESS => Answer::Rows(rows),
                        state => Answer::Error {
                            sql_state: state.to_owned(),
                            message: message.to_owned(),
                        },
                    });
                }
            }
        }
        let (found, wanted) = (answers.len(), self.queries.len());
        ensure!(found == wanted, "psql answered {found} of {wanted} queries: {printed}");
        Ok(answers)
    }
}

impl Answer {
    /// Whether both say the same: rows in order, numbers compared as numbers, or an error each.
    pub fn agrees_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Rows(one), Self::Rows(other)) => {
                let mut pairs = one.iter().zip(other);
                one.len() == other.len() && pairs.all(|(one, other)| are_equal_rows(one, other))
            }
            (Self::Error { .. }, Self::Error { .. }) => true,
            _ => false,
        }
    }

    /// The single value of the single row.
    pub fn value(&self) -> Result<&str> {
        match self {
            Self::Rows(rows) => rows.first().map(String::as_str).context("there is no row"),
            Self::Error { message, .. } => Ok(message),
        }
    }
}

fn are_equal_rows(one: &str, other: &str) -> bool {
    let (one, other): (Vec<_>, Vec<_>) = (one.split('|').collect(), other.split('|').collect());
    one.len() == other.len()
        && one.iter().zip(&other).all(|(one, other)| one == other || are_near(one, other))
}

fn are_near(one: &str, other: &str) -> bool {
    if one == NULL || other == NULL {
        return false;
    }
    let (Ok(one), Ok(other)) = (one.parse::<f64>(), other.parse::<f64>()) else { return false };
    (one - other).abs() <= DEVIATION_MAX * one.abs().max(other.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(row: &str) -> Answer {
        Answer::Rows(vec![row.to_owned()])
    }

    #[test]
    fn numbers_agree_by_value_and_all_else_by_letters() {
        assert!(rows("1.50|a|<null>").agrees_with(&rows("1.5|a|<null>")));
        assert!(rows("0.30000000000000004").agrees_with(&rows("0.3")));
        for other in ["1.51|a|<null>", "1.5|b|<null>", "1.5|a|0", "1.5|a", "1.5|a|<null>|1"] {
            assert!(!rows("1.50|a|<null>").agrees_with(&rows(other)), "{other}");
        }
        let failed = Answer::Error { sql_state: "22012".to_owned(), message: String::new() };
        assert!(failed.agrees_with(&failed));
        assert!(!failed.agrees_with(&rows("1")));
        assert!(!Answer::Rows(Vec::new()).agrees_with(&rows("1")));
    }
}
