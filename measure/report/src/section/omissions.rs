//! Flags of valid measurements, and all other measurements.

use std::collections::BTreeMap;

use maud::{Markup, html};
use results::Validity;

use crate::book::Book;
use crate::table::{Cell, Column, Table};

pub(crate) fn body(book: &Book) -> Option<Markup> {
    let (mut invalid, mut skipped) = (Vec::new(), Vec::new());
    let mut flags: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for entry in book.entries() {
        let row = &entry.row;
        let name = format!("{} {} on {}", row.suite.name(), row.case, row.target);
        match &row.validity {
            Validity::Invalid(reason) => invalid.push((name.clone(), reason.clone())),
            Validity::Skipped(reason) => skipped.push((name.clone(), reason.clone())),
            Validity::Valid => {}
        }
        for flag in &row.flags {
            flags.entry(flag).or_default().push(format!("{name}, repeat {}", row.repeat));
        }
    }
    Some(html! {
        h3 { "Invalid: " (invalid.len()) }
        (listed(invalid, "Measurements that failed or broke a rule. They are in no chart."))
        h3 { "Skipped: " (skipped.len()) }
        (listed(skipped, "What could not be tried on this machine."))
        h3 { "Flags: " (flags.len()) }
        @if flags.is_empty() { p.none { "None." } }
        @for (flag, rows) in &flags {
            details {
                summary { (flag) " (" (rows.len()) ")" }
                ul { @for row in rows { li { (row) } } }
            }
        }
    })
}

fn listed(rows: Vec<(String, String)>, caption: &str) -> Markup {
    if rows.is_empty() {
        return html! { p.none { "None." } };
    }
    let rows =
        rows.into_iter().map(|(name, reason)| vec![Cell::text(name), Cell::text(reason)]).collect();
    let columns = vec![Column::text("Measurement"), Column::text("Reason")];
    Table { caption: caption.to_owned(), columns, rows }.show()
}
