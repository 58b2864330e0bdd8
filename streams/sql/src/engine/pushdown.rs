//! Filter pushdown: selects records by partition, offset, time and key in the log itself.

use std::collections::BTreeSet;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::{Between, InList};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};

use super::columns::{KEY, OFFSET, PARTITION, TIME, bytes_of};
use super::contained::Contained;

/// Possible values of a column: from `low` to `high`, both inclusive, and in `among` if it is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    low: i64,
    high: i64,
    among: Option<BTreeSet<i64>>,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { low: i64::MIN, high: i64::MAX, among: None }
    }
}

impl Numbers {
    pub(crate) fn contains(&self, number: i64) -> bool {
        (self.low..=self.high).contains(&number)
            && self.among.as_ref().is_none_or(|among| among.contains(&number))
    }

    pub(crate) fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the smallest and largest possible value. The first exceeds the second if none is
    /// possible.
    pub(crate) fn ends(&self) -> (i64, i64) {
        let listed = self.among.as_ref();
        let first = listed.map_or(i64::MIN, |it| it.first().copied().unwrap_or(i64::MAX));
        let last = listed.map_or(i64::MAX, |it| it.last().copied().unwrap_or(i64::MIN));
        (self.low.max(first), self.high.min(last))
    }

    fn narrow(&mut self, operator: Operator, bound: Bound) -> bool {
        let Bound { floor, ceiling } = bound;
        match operator {
            // A bound between two integers equals no integer.
            Operator::Eq if floor != ceiling => self.keep_none(),
            Operator::Eq => {
                self.low = self.low.max(floor);
                self.high = self.high.min(floor);
            }
            Operator::GtEq => self.low = self.low.max(ceiling),
            Operator::LtEq => self.high = self.high.min(floor),
            Operator::Gt => match floor.checked_add(1) {
                Some(low) => self.low = self.low.max(low),
                None => self.keep_none(),
            },
            Operator::Lt => match ceiling.checked_sub(1) {
                Some(high) => self.high = self.high.min(high),
                None => self.keep_none(),
            },
            _ => return false,
        }
        true
    }

    fn keep_none(&mut self) {
        (self.low, self.high) = (i64::MAX, i64::MIN);
    }

    fn keep_among(&mut self, among: BTreeSet<i64>) {
        self.among = Some(match self.among.take() {
            Some(before) => before.intersection(&among).copied().collect(),
            None => among,
        });
    }
}

/// Integers around a literal: equal for an integer literal.
#[derive(Clone, Copy, Debug)]
struct Bound {
    floor: i64,
    ceiling: i64,
}

/// Conjunction of conditions that a record must meet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogFilter {
    pub(crate) partitions: Numbers,
    pub(crate) offsets: Numbers,
    /// Unix microseconds.
    pub(crate) times_us: Numbers,
    /// `None` matches all keys.
    pub(crate) keys: Option<BTreeSet<Vec<u8>>>,
    /// Bytes that values must contain, all of them. A necessary condition only: the engine applies
    /// the filter again.
    pub(crate) contained: Vec<Contained>,
}

impl LogFilter {
    /// Adds what a filter on fields of the values implies for the values' bytes, if anything. The
    /// engine still applies the filter.
    pub(crate) fn add_contained(&mut self, filter: &Expr) -> bool {
        let Some(found) = Contained::of(filter) else { return false };
        if !self.contained.iter_mut().any(|it| it.narrow(&found)) {
            self.contained.push(found);
        }
        true
    }

    /// Returns whether few of the records read are likely to match.
    pub(crate) fn is_sparse(&self) -> bool {
        self.keys.is_some() || !self.contained.is_empty()
    }

    /// Adds a filter if all of it can be expressed. Otherwise leaves it to the engine and returns
    /// `false`.
    pub(crate) fn add(&mut self, filter: &Expr) -> bool {
        match filter {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
                self.add_both(|it| it.add(left), |it| it.add(right))
            }
            // The engine rewrites short IN lists to this form.
            Expr::BinaryExpr(BinaryExpr { op: Operator::Or, .. }) => {
                let mut list = Vec::new();
                match alternatives(filter, &mut list) {
                    Some(column) => self.keep_among(column, &list),
                    None => false,
                }
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                match (column_of(left), literal_of(right), column_of(right), literal_of(left)) {
                    (Some(column), Some(literal), ..) => self.compare(column, *op, literal),
                    (.., Some(column), Some(literal)) => {
                        op.swap().is_some_and(|op| self.compare(column, op, literal))
                    }
                    _ => false,
                }
            }
            Expr::Between(Between { expr, negated: false, low, high }) => {
                match (column_of(expr), literal_of(low), literal_of(high)) {
                    (Some(column), Some(low), Some(high)) => self.add_both(
                        |it| it.compare(column, Operator::GtEq, low),
                        |it| it.compare(column, Operator::LtEq, high),
                    ),
                    _ => false,
                }
            }
            Expr::InList(InList { expr, list, negated: false }) => match column_of(expr) {
                Some(column) => self.keep_among(column, list),
                None => false,
            },
            _ => false,
        }
    }

    fn add_both(
        &mut self,
        first: impl FnOnce(&mut Self) -> bool,
        second: impl FnOnce(&mut Self) -> bool,
    ) -> bool {
        let mut both = self.clone();
        let is_taken = first(&mut both) && second(&mut both);
        if is_taken {
            *self = both;
        }
        is_taken
    }

    fn compare(&mut self, column: &str, operator: Operator, literal: &ScalarValue) -> bool {
        if column == KEY {
            let Some(key) = bytes_of(literal).filter(|_| operator == Operator::Eq) else {
                return false;
            };
            self.keep_keys(BTreeSet::from([key]));
            return true;
        }
        let (Some(numbers), Some(bound)) = (self.numbers(column), bound_of(column, literal)) else {
            return false;
        };
        numbers.narrow(operator, bound)
    }

    fn keep_among(&mut self, column: &str, list: &[Expr]) -> bool {
        if column == KEY {
            let keys: Option<BTreeSet<_>> =
                list.iter().map(|it| literal_of(it).and_then(bytes_of)).collect();
            let is_taken = keys.is_some();
            keys.into_iter().for_each(|keys| self.keep_keys(keys));
            return is_taken;
        }
        let bounds: Option<Vec<Bound>> =
            list.iter().map(|it| bound_of(column, literal_of(it)?)).collect();
        let (Some(numbers), Some(bounds)) = (self.numbers(column), bounds) else { return false };
        let whole = bounds.into_iter().filter(|it| it.floor == it.ceiling);
        numbers.keep_among(whole.map(|it| it.floor).collect());
        true
    }

    fn keep_keys(&mut self, keys: BTreeSet<Vec<u8>>) {
        self.keys = Some(match self.keys.take() {
            Some(before) => before.intersection(&keys).cloned().collect(),
            None => keys,
        });
    }

    fn numbers(&mut self, column: &str) -> Option<&mut Numbers> {
        match column {
            PARTITION => Some(&mut self.partitions),
            OFFSET => Some(&mut self.offsets),
            TIME => Some(&mut self.times_us),
            _ => None,
        }
    }
}

/// Format in EXPLAIN.
impl std::fmt::Display for LogFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = [
            (PARTITION, "", &self.partitions),
            (OFFSET, "", &self.offsets),
            (TIME, "us", &self.times_us),
        ];
        for (name, unit, numbers) in columns {
            let (low, high) = numbers.ends();
            if low > high {
                write!(f, " {name}=none")?;
            } else if low == high {
                write!(f, " {name}={low}{unit}")?;
            } else {
                if low > i64::MIN {
                    write!(f, " {name}>={low}{unit}")?;
                }
                if high < i64::MAX {
                    write!(f, " {name}<={high}{unit}")?;
                }
            }
        }
        if let Some(keys) = &self.keys {
            write!(f, " keys={}", keys.len())?;
        }
        self.contained.iter().try_for_each(|it| write!(f, " value contains {it}"))
    }
}

/// Returns the column of an operand, also below a cast that preserves the order.
fn column_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Column(column) => Some(column.name()),
        Expr::Cast(cast) if column_of(&cast.expr) == Some(TIME) => {
            matches!(cast.field.data_type(), DataType::Timestamp(_, Some(_))).then_some(TIME)
        }
        _ => None,
    }
}

/// Collects the literals of alternatives that all compare the same column for equality. Returns the
/// column.
fn alternatives<'a>(expr: &'a Expr, list: &mut Vec<Expr>) -> Option<&'a str> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let column = alternatives(left, list)?;
            (alternatives(right, list)? == column).then_some(column)
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            let (column, literal) = match column_of(left) {
                Some(column) => (column, right),
                None => (column_of(right)?, left),
            };
            list.push(literal.as_ref().clone());
            Some(column)
        }
        Expr::InList(InList { expr, list: more, negated: false }) => {
            list.extend_from_slice(more);
            column_of(expr)
        }
        _ => None,
    }
}

fn literal_of(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) if !value.is_null() => Some(value),
        _ => None,
    }
}

fn bound_of(column: &str, value: &ScalarValue) -> Option<Bound> {
    let whole = |number: i64| Some(Bound { floor: number, ceiling: number });
    if column == TIME {
        return match *value {
            ScalarValue::TimestampSecond(Some(it), Some(_)) => whole(it.checked_mul(1_000_000)?),
            ScalarValue::TimestampMillisecond(Some(it), Some(_)) => whole(it.checked_mul(1_000)?),
            ScalarValue::TimestampMicrosecond(Some(it), Some(_)) => whole(it),
            ScalarValue::TimestampNanosecond(Some(it), Some(_)) => {
                let floor = it.div_euclid(1_000);
                Some(Bound { floor, ceiling: floor + i64::from(it.rem_euclid(1_000) > 0) })
            }
            _ => None,
        };
    }
    match *value {
        ScalarValue::Int8(Some(it)) => whole(it.into()),
        ScalarValue::Int16(Some(it)) => whole(it.into()),
        ScalarValue::Int32(Some(it)) => whole(it.into()),
        ScalarValue::Int64(Some(it)) => whole(it),
        ScalarValue::UInt32(Some(it)) => whole(it.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{col, lit};

    use super::*;

    fn filter(expressions: &[Expr]) -> (LogFilter, Vec<bool>) {
        let mut filter = LogFilter::default();
        let taken = expressions.iter().map(|it| filter.add(it)).collect();
        (filter, taken)
    }

    #[test]
    fn comparisons_narrow_the_numbers_of_their_column() {
        let (found, taken) = filter(&[
            col("offset").gt(lit(5_i64)).and(col("offset").lt_eq(lit(9_i64))),
            lit(8_i64).gt(col("offset")),
            col("partition").in_list(vec![lit(3_i32), lit(1_i32)], false),
        ]);
        assert_eq!(taken, [true; 3]);
        assert_eq!(found.offsets.ends(), (6, 7));
        assert_eq!(found.partitions.ends(), (1, 3));
        assert!(!found.partitions.contains(2));
    }

    #[test]
    fn what_the_log_cannot_tell_is_left_to_the_engine() {
        let (found, taken) = filter(&[
            col("offset").eq(lit(5_i64)).or(col("partition").eq(lit(7_i64))),
            col("offset").eq(lit(5_i64)).or(col("offset").gt(lit(7_i64))),
            col("value").eq(lit("x")),
            col("key").gt(lit("x")),
            col("offset").not_eq(lit(5_i64)),
            col("offset").eq(lit(ScalarValue::Int64(None))),
            col("offset").gt(lit(5_i64)).and(col("value").eq(lit("x"))),
        ]);
        assert_eq!(taken, [false; 7]);
        assert_eq!(found, LogFilter::default());
    }

    #[test]
    fn alternatives_of_one_column_are_a_list() {
        let (found, taken) = filter(&[
            col("offset").eq(lit(5_i64)).or(lit(7_i64).eq(col("offset"))),
            col("key").eq(lit("a")).or(col("key").eq(lit("b"))),
        ]);
        assert_eq!(taken, [true; 2]);
        assert_eq!((found.offsets.ends(), found.offsets.contains(6)), ((5, 7), false));
        assert_eq!(found.keys.map(|keys| keys.len()), Some(2));
    }

    #[test]
    fn a_time_between_two_microseconds_is_none_of_them() {
        let at = |ns| lit(ScalarValue::TimestampNanosecond(Some(ns), Some("UTC".into())));
        assert_eq!(filter(&[col("time").gt_eq(at(1_500))]).0.times_us.ends(), (2, i64::MAX));
        assert_eq!(filter(&[col("time").lt(at(1_500))]).0.times_us.ends(), (i64::MIN, 1));
        let (low, high) = filter(&[col("time").eq(at(1_500))]).0.times_us.ends();
        assert!(low > high);
    }

    #[test]
    fn keys_that_are_asked_for_twice_must_be_in_both() {
        let (found, taken) =
            filter(&[col("key").in_list(vec![lit("a"), lit("b")], false), col("key").eq(lit("b"))]);
        assert_eq!(taken, [true; 2]);
        assert_eq!(found.keys, Some(BTreeSet::from([b"b".to_vec()])));
    }
}
