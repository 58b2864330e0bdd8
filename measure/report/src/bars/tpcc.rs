//! Bars on the workload derived from TPC-C.

use results::Suite;

use super::{Bar, Bound, at_most, bar, newest};
use crate::book::Book;
use crate::figure::Format;

/// Maximum difference between pgbench and our driver, and the size to which it applies.
const CHECK: (f64, &str, &str) = (0.05, "10", "4");
const CLONES: (f64, &str) = (1.2, "4");

pub(super) fn bars(book: &Book) -> Vec<Bar> {
    let groups = book.groups(Suite::Tpcc);
    let (difference_max, warehouses, users) = CHECK;
    let size = [("driver", "pgbench"), ("warehouses", warehouses), ("users", users)];
    let checked = newest(&groups, |group| group.has(&size));
    let (ratio_max, databases) = CLONES;
    let of_clones = |group: &crate::group::Group| {
        let is_of_them = group.first().number("figures/clones_ram_ratio").is_some();
        is_of_them && group.has(&[("databases", databases)])
    };
    let cloned = newest(&groups, of_clones);
    vec![
        bar(
            Bound::Within(difference_max),
            checked.and_then(|it| book.estimate(it, "figures/pgbench_difference_share")),
        )
        .named(
            "TPC-C-derived, 10 warehouses, 4 users: NOPM by pgbench, difference from ours",
            "NOPM by pgbench",
        )
        .shown_as(Format::Percent),
        at_most(ratio_max, cloned.and_then(|it| book.estimate(it, "figures/clones_ram_ratio")))
            .named("4 databases cloned from one load, memory over that of one", "memory of clones"),
    ]
}
