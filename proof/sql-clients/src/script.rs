//! Many queries in one run of psql, and the answer to each.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use num_bigint::BigInt;
use system::Tool;

use crate::fixture::file_of;

/// Prefix of the line in which psql reports how a query ended. No row begins with it.
const MARK: &str = "@@";
const SUCCESS: &str = "00000";

/// Time limit for all queries of a script.
const TIME_LIMIT: Duration = Duration::from_secs(480);

/// Relative difference up to which numbers of double precision are equal: sums depend on the order
/// of rows.
const DEVIATION_MAX: f64 = 1e-12;

/// Fractional digits of the broker's numerics.
const FRACTION_DIGITS: usize = 10;

/// Queries in order, without trailing semicolons.
#[derive(Default)]
pub struct Script {
    queries: Vec<String>,
}

/// Answer to a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Rows, with `|` between columns.
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

    /// Runs all queries and continues after failed ones.
    pub fn run(&self, psql: Tool) -> Result<Vec<Answer>> {
        self.answers(psql, ";")
    }

    /// Returns each query's columns as `name|type`, or none if it fails. Does not run the queries.
    pub fn columns(&self, psql: Tool) -> Result<Vec<Vec<String>>> {
        let columns = |answer| match answer {
            Answer::Rows(columns) => columns,
            Answer::Error { .. } => Vec::new(),
        };
        Ok(self.answers(psql, " \\gdesc")?.into_iter().map(columns).collect())
    }

    /// Returns the column types of each query, or none if it fails. Does not run the queries.
    pub fn column_types(&self, psql: Tool) -> Result<Vec<Vec<String>>> {
        let type_of = |column: &String| {
            let (_, kind) = column.rsplit_once('|').unwrap_or_default();
            kind.to_owned()
        };
        let columns = self.columns(psql)?;
        Ok(columns.iter().map(|it| it.iter().map(type_of).collect()).collect())
    }

    /// Returns psql's answer to each query followed by `end`.
    fn answers(&self, psql: Tool, end: &str) -> Result<Vec<Answer>> {
        let mut lines = Vec::new();
        for query in &self.queries {
            lines.push(format!("{query}{end}"));
            lines.push(format!("\\echo {MARK} :SQLSTATE :LAST_ERROR_MESSAGE"));
        }
        let psql = psql.time_limit(TIME_LIMIT).args(["--file", "-"]);
        let printed = psql.input(file_of(&lines)?).check()?;
        let mut answers = Vec::new();
        let mut rows = Vec::new();
        for line in printed.lines() {
            let Some(ending) = line.strip_prefix(MARK) else {
                rows.push(line.to_owned());
                continue;
            };
            let rows = std::mem::take(&mut rows);
            let ending = ending.trim();
            let (state, message) = ending.split_once(' ').unwrap_or((ending, ""));
            let (sql_state, message) = (state.to_owned(), message.to_owned());
            answers.push(match state {
                SUCCESS => Answer::Rows(rows),
                _ => Answer::Error { sql_state, message },
            });
        }
        let (found, wanted) = (answers.len(), self.queries.len());
        ensure!(found == wanted, "psql answered {found} of {wanted} queries: {printed}");
        Ok(answers)
    }
}

impl Answer {
    /// Returns whether both answers agree: the same rows in order, with columns of these types, or
    /// the same SQLSTATE. Numbers of double precision may differ in their last digits. Numerics may
    /// differ in trailing zeros and in rounding beyond [`FRACTION_DIGITS`]. All else must be
    /// identical.
    pub fn agrees_with(&self, reference: &Self, types: &[String]) -> bool {
        match (self, reference) {
            (Self::Rows(ours), Self::Rows(theirs)) => {
                let mut pairs = ours.iter().zip(theirs);
                ours.len() == theirs.len()
                    && pairs.all(|(ours, theirs)| are_equal_rows(ours, theirs, types))
            }
            (Self::Error { sql_state: ours, .. }, Self::Error { sql_state: theirs, .. }) => {
                ours == theirs
            }
            _ => false,
        }
    }

    /// Returns the single value of the single row.
    pub fn value(&self) -> Result<&str> {
        match self {
            Self::Rows(rows) => rows.first().map(String::as_str).context("there is no row"),
            Self::Error { message, .. } => Ok(message),
        }
    }
}

fn are_equal_rows(ours: &str, theirs: &str, types: &[String]) -> bool {
    let (ours, theirs): (Vec<_>, Vec<_>) = (ours.split('|').collect(), theirs.split('|').collect());
    ours.len() == types.len()
        && theirs.len() == types.len()
        && ours.iter().zip(&theirs).zip(types).all(|((ours, theirs), kind)| {
            ours == theirs
                || match kind.as_str() {
                    "double precision" => are_near(ours, theirs),
                    "numeric" => are_equal_numerics(ours, theirs),
                    "numeric[]" => are_equal_arrays(ours, theirs),
                    _ => false,
                }
        })
}

fn are_near(one: &str, other: &str) -> bool {
    let (Ok(one), Ok(other)) = (one.parse::<f64>(), other.parse::<f64>()) else { return false };
    (one - other).abs() <= DEVIATION_MAX * one.abs().max(other.abs())
}

fn are_equal_numerics(one: &str, other: &str) -> bool {
    rounded(one).is_some_and(|it| Some(it) == rounded(other))
}

/// Compares arrays of numerics with one dimension.
fn are_equal_arrays(one: &str, other: &str) -> bool {
    let elements = |it: &str| {
        let inner = it.strip_prefix('{')?.strip_suffix('}')?;
        Some(inner.split(',').map(str::to_owned).collect::<Vec<_>>())
    };
    let (Some(one), Some(other)) = (elements(one), elements(other)) else { return false };
    one.len() == other.len()
        && one.iter().zip(&other).all(|(one, other)| one == other || are_equal_numerics(one, other))
}

/// Converts a numeric to units of its last kept digit, rounded as in PostgreSQL.
fn rounded(text: &str) -> Option<BigInt> {
    let (is_negative, digits) = text.strip_prefix('-').map_or((false, text), |it| (true, it));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let kept = format!("{whole}{fraction:0<width$.width$}", width = FRACTION_DIGITS);
    let rounds_up = fraction.as_bytes().get(FRACTION_DIGITS).is_some_and(|it| *it >= b'5');
    let size = kept.parse::<BigInt>().ok()? + i32::from(rounds_up);
    Some(if is_negative { -size } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: &[&str] = &["double precision", "numeric", "bigint", "text"];
    const ARRAY: &[&str] = &["numeric[]"];

    fn agree(ours: &str, theirs: &str) -> bool {
        agree_as(TYPES, ours, theirs)
    }

    fn agree_as(types: &[&str], ours: &str, theirs: &str) -> bool {
        let types: Vec<_> = types.iter().map(|&it| it.to_owned()).collect();
        let rows = |row: &str| Answer::Rows(vec![row.to_owned()]);
        rows(ours).agrees_with(&rows(theirs), &types)
    }

    fn error(sql_state: &str) -> Answer {
        Answer::Error { sql_state: sql_state.to_owned(), message: String::new() }
    }

    #[test]
    fn numbers_agree_by_their_types_and_all_else_by_letters() {
        let row = "0.3|-1.5|9007199254740993|1.0";
        for other in [
            row,
            "0.30000000000000004|-1.5|9007199254740993|1.0",
            "0.3|-1.50000000000|9007199254740993|1.0",
            "0.3|-1.49999999995|9007199254740993|1.0",
        ] {
            assert!(agree(row, other), "{other}");
        }
        for other in [
            "0.31|-1.5|9007199254740993|1.0",
            "<null>|-1.5|9007199254740993|1.0",
            "0.3|-1.4999999999|9007199254740993|1.0",
            "0.3|1.5|9007199254740993|1.0",
            "0.3|-1.5|9007199254740992|1.0",
            "0.3|-1.5|9007199254740993.0|1.0",
            "0.3|-1.5|9007199254740993|1",
            "0.3|-1.5|9007199254740993",
            "0.3|-1.5|9007199254740993|1.0|1",
        ] {
            assert!(!agree(row, other), "{other}");
        }
    }

    #[test]
    fn long_numerics_and_arrays_agree_by_value() {
        let (long, longer) = ("-39614081303249028976750886907", "-39614081303249028976750886907.0");
        assert!(agree_as(&["numeric"], long, longer));
        assert!(!agree_as(&["numeric"], long, "-39614081303249028976750886907.5"));
        for other in ["{3.00,8,NULL}", "{3,8.0,NULL}"] {
            assert!(agree_as(ARRAY, "{3,8,NULL}", other), "{other}");
        }
        for other in ["{3,8}", "{3,8,0}", "{3,8.1,NULL}", "{8,3,NULL}", "3,8,NULL", "<null>"] {
            assert!(!agree_as(ARRAY, "{3,8,NULL}", other), "{other}");
        }
    }

    #[test]
    fn errors_agree_by_their_states() {
        assert!(error("22012").agrees_with(&error("22012"), &[]));
        assert!(!error("22012").agrees_with(&error("22003"), &[]));
        assert!(!error("22012").agrees_with(&Answer::Rows(Vec::new()), &[]));
        assert!(!Answer::Rows(Vec::new()).agrees_with(&Answer::Rows(vec![String::new()]), &[]));
    }
}
