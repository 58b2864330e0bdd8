//! Filters of many live queries, and the rows that each must return.
//!
//! Queries return the offsets of their records. Received rows are compared with the expected ones
//! by number, order and a digest of the offsets, so that millions of rows need no memory. Missing,
//! duplicate or foreign rows change the digest.

use std::collections::HashMap;

use anyhow::{Result, ensure};
use system::Random;

use super::records::{ACCOUNTS, Fields, LOTS, PRICES, Records, SYMBOLS};

/// Share of records that each query matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// One in a thousand.
    Often,
    /// One in a hundred thousand: almost nothing is delivered, so only the filters cost.
    Seldom,
}

impl Share {
    pub(super) const ALL: [Self; 2] = [Self::Often, Self::Seldom];

    /// Returns the share of all records.
    pub(super) fn percent_text(self) -> &'static str {
        match self {
            Self::Often => "0.1",
            Self::Seldom => "0.001",
        }
    }
}

/// Every fifth query has a range filter. The others have an equality.
const RANGE_EACH: u64 = 5;

/// A field with the value that is queried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Filter {
    Symbol(u64),
    Price(u64),
    Account(u64),
    Lot(u64),
}

impl Filter {
    /// Returns the filter of the query with this number.
    pub(super) fn of(share: Share, number: u64) -> Self {
        let is_range = number % RANGE_EACH == RANGE_EACH - 1;
        // Values cover the field's whole range, even with few queries.
        let spread = Random::new(number).number();
        match (share, is_range) {
            (Share::Often, false) => Self::Symbol(spread % SYMBOLS),
            (Share::Often, true) => Self::Price(spread % PRICES),
            (Share::Seldom, false) => Self::Account(spread % ACCOUNTS),
            (Share::Seldom, true) => Self::Lot(spread % LOTS),
        }
    }

    pub(super) fn text(self) -> String {
        let range = |field: &str, from: u64| {
            let field = format!("(value->>'{field}')::bigint");
            format!("{field} >= {from} AND {field} < {}", from + 1)
        };
        match self {
            Self::Symbol(symbol) => format!("value->>'symbol' = 'S{symbol}'"),
            Self::Account(account) => format!("value->>'account' = 'A{account}'"),
            Self::Price(price) => range("price", price),
            Self::Lot(lot) => range("lot", lot),
        }
    }

    /// Returns the filters that a record passes.
    fn passed_by(share: Share, fields: &Fields) -> [Self; 2] {
        match share {
            Share::Often => [Self::Symbol(fields.symbol), Self::Price(fields.price)],
            Share::Seldom => [Self::Account(fields.account), Self::Lot(fields.lot)],
        }
    }
}

/// Offsets received, or expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rows {
    pub(super) count: u64,
    digest: u64,
    last: Option<u64>,
}

impl Rows {
    /// Adds the next offset, which must be larger than the previous one.
    pub(super) fn take(&mut self, offset: u64) -> Result<()> {
        let is_next = self.last.is_none_or(|last| last < offset);
        ensure!(is_next, "received offset {offset} after offset {:?}", self.last);
        self.last = Some(offset);
        self.count += 1;
        self.digest = self.digest.wrapping_add(Random::new(offset).number());
        Ok(())
    }
}

/// Returns the expected rows of each filter for records that are produced `passes` times.
pub(super) fn expected(
    share: Share,
    records: &Records,
    (count, passes): (u64, u64),
) -> Result<HashMap<Filter, Rows>> {
    let mut all: HashMap<Filter, Rows> = HashMap::new();
    let fields: Vec<[Filter; 2]> =
        (0..count).map(|it| Filter::passed_by(share, &records.fields(it))).collect();
    for pass in 0..passes {
        for (number, filters) in (0..).zip(&fields) {
            for filter in filters {
                all.entry(*filter).or_default().take(pass * count + number)?;
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_filter_takes_its_share_and_says_so() {
        let records = Records::new(3);
        let all = expected(Share::Often, &records, (50_000, 2)).expect("offsets rise");
        for number in 0..50 {
            let filter = Filter::of(Share::Often, number);
            let count = all[&filter].count;
            assert!((60..150).contains(&count), "{filter:?}: {count}");
        }
        assert_eq!(Filter::Symbol(4).text(), "value->>'symbol' = 'S4'");
        let range = Filter::Lot(7).text();
        assert_eq!(range, "(value->>'lot')::bigint >= 7 AND (value->>'lot')::bigint < 8");
        let ranges = (0..100).filter(|&it| matches!(Filter::of(Share::Seldom, it), Filter::Lot(_)));
        assert_eq!(ranges.count(), 20);
    }

    #[test]
    fn a_gap_a_repetition_and_another_row_are_noticed() {
        let rows = |offsets: &[u64]| -> Result<Rows> {
            let mut rows = Rows::default();
            offsets.iter().try_for_each(|&offset| rows.take(offset))?;
            Ok(rows)
        };
        let all = rows(&[1, 5, 9]).expect("they rise");
        assert_ne!(rows(&[1, 9]).expect("they rise"), all);
        assert_ne!(rows(&[1, 6, 9]).expect("they rise"), all);
        rows(&[1, 5, 5, 9]).expect_err("one comes twice");
        rows(&[5, 1]).expect_err("they fall");
    }
}
