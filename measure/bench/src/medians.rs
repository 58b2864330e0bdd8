//! Medians over repeats, for result tables.

use results::{Estimate, Row, Validity};

use crate::output::{self, Table};

/// Rows of one run, queried by target and case.
pub(crate) struct Medians<'row> {
    rows: Vec<&'row Row>,
}

impl<'row> Medians<'row> {
    pub(crate) fn new(rows: &[&'row Row]) -> Self {
        Self { rows: rows.to_vec() }
    }

    /// Returns the estimate of a measure ([`Row::measures`]) over all valid repeats.
    pub(crate) fn of(&self, target: &str, case: &str, measure: &str) -> Option<Estimate> {
        self.estimate((target, case), |row| row.measures().get(measure).copied())
    }

    /// Returns the estimate of another value over the same repeats.
    pub(crate) fn estimate(
        &self,
        (target, case): (&str, &str),
        value: impl Fn(&Row) -> Option<f64>,
    ) -> Option<Estimate> {
        let is_asked = |row: &&&Row| row.is_valid() && row.target == target && row.case == case;
        let values: Vec<f64> =
            self.rows.iter().filter(is_asked).filter_map(|row| value(row)).collect();
        Estimate::new(&values)
    }

    pub(crate) fn median(&self, target: &str, case: &str, measure: &str) -> Option<f64> {
        self.of(target, case, measure).map(|estimate| estimate.median)
    }

    /// Returns the first valid row of each case on each target, in order.
    pub(crate) fn firsts(&self) -> Vec<&'row Row> {
        let mut firsts: Vec<&Row> = Vec::new();
        for row in self.rows.iter().copied().filter(|row| row.is_valid()) {
            if !firsts.iter().any(|it| (&it.case, &it.target) == (&row.case, &row.target)) {
                firsts.push(row);
            }
        }
        firsts
    }

    /// Formats nonempty tables with their titles, then the remarks.
    pub(crate) fn page<const COUNT: usize>(&self, tables: [(&str, Table); COUNT]) -> String {
        let mut parts = Vec::new();
        for (title, table) in tables.into_iter().filter(|(_, table)| table.len() > 1) {
            parts.extend([title.to_owned(), output::table(&table), String::new()]);
        }
        parts.extend(self.remarks());
        parts.join("\n")
    }

    /// Returns targets in the order of their first valid rows.
    pub(crate) fn targets(&self) -> Vec<&'row str> {
        let mut targets = Vec::new();
        for row in self.rows.iter().filter(|row| row.is_valid()) {
            if !targets.contains(&&*row.target) {
                targets.push(&*row.target);
            }
        }
        targets
    }

    pub(crate) fn rows_of(&self, target: &str) -> impl Iterator<Item = &'row Row> {
        self.rows.iter().copied().filter(move |row| row.is_valid() && row.target == target)
    }

    /// Returns flags, failures and skips without repetition.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let mut remarks: Vec<String> = Vec::new();
        for row in &self.rows {
            let what = format!("{}, {}", row.target, row.case);
            let new = match &row.validity {
                Validity::Valid => continue,
                Validity::Invalid(reason) => format!("invalid: {what}: {reason}"),
                Validity::Skipped(reason) => format!("left out: {what}: {reason}"),
            };
            if !remarks.contains(&new) {
                remarks.push(new);
            }
        }
        remarks.extend(self.flags());
        remarks
    }

    /// Returns each flag with its number of rows.
    fn flags(&self) -> Vec<String> {
        let mut flags: Vec<(&str, usize)> = Vec::new();
        for flag in self.rows.iter().flat_map(|row| &row.flags) {
            match flags.iter_mut().find(|(known, _)| known == flag) {
                Some((_, count)) => *count += 1,
                None => flags.push((flag, 1)),
            }
        }
        let count = self.rows.len();
        let text = |(flag, flagged)| format!("flagged: {flag}: {flagged} of {count} rows");
        flags.into_iter().map(text).collect()
    }
}

/// Formats a number, or a dash.
pub(crate) fn cell(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

/// Formats `1234567.8` as `1,234,568`.
pub(crate) fn thousands(value: Option<f64>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use results::Suite;

    use super::*;

    fn row(validity: Validity, value: f64) -> Row {
        let mut row = Row::new(Suite::Peers, "case", "target");
        row.validity = validity;
        row.figures.insert("value".to_owned(), value);
        row.flag("noisy");
        row
    }

    #[test]
    fn what_does_not_count_is_in_no_median_but_among_the_remarks() {
        let rows = [
            row(Validity::Valid, 3.0),
            row(Validity::Invalid("on fire".to_owned()), 9.0),
            row(Validity::Valid, 5.0),
        ];
        let medians = Medians::new(&rows.each_ref());
        let found = medians.of("target", "case", "value").expect("two rows count");
        assert_eq!((found.n, found.median), (2, 4.0));
        let remarks = medians.remarks();
        assert!(remarks.contains(&"invalid: target, case: on fire".to_owned()), "{remarks:?}");
        assert!(remarks.contains(&"flagged: noisy: 3 of 3 rows".to_owned()), "{remarks:?}");
    }

    #[test]
    fn thousands_are_told_apart() {
        assert_eq!(thousands(Some(1_234_567.8)), "1,234,568");
        assert_eq!(thousands(Some(999.0)), "999");
        assert_eq!(thousands(None), "-");
    }
}
