//! Measurements of database placement, with each part's share of the whole gain.

use results::Suite;
use results::placement::{FAST_USED_BYTES, Placement, Workload, gain_share, memory_share};
use serde_json::json;

use crate::book::Book;
use crate::figure::Estimated;
use crate::group::Group;

/// The measurement with the best number of users, for a workload and placement on a target.
pub(crate) struct Placed<'book> {
    pub(crate) workload: Workload,
    pub(crate) placement: Placement,
    pub(crate) group: Group<'book>,
}

impl Placed<'_> {
    pub(crate) fn rate_path(&self) -> String {
        format!("figures/{}", self.workload.rate())
    }
}

/// All placement measurements of a page.
pub(crate) struct PlacedAll<'book> {
    all: Vec<Placed<'book>>,
}

impl<'book> PlacedAll<'book> {
    pub(crate) fn new(book: &'book Book) -> Self {
        let placed = |group: Group<'book>| {
            let is_best = group.case().ends_with("saturated");
            let (workload, placement) = kinds(&group).filter(|_| is_best)?;
            Some(Placed { workload, placement, group })
        };
        Self { all: book.groups(Suite::Placement).into_iter().filter_map(placed).collect() }
    }

    pub(crate) fn of(&self, workload: Workload) -> impl Iterator<Item = &Placed<'book>> {
        self.all.iter().filter(move |placed| placed.workload == workload)
    }

    /// Returns the measurement of the same run and workload with nothing on fast storage.
    pub(crate) fn slow(&self, of: &Placed<'book>) -> Option<&Placed<'book>> {
        self.of(of.workload)
            .find(|it| it.placement == Placement::None && it.group.run() == of.group.run())
    }

    /// Returns the measurement of the same run, workload and target with everything on fast
    /// storage.
    pub(crate) fn whole(&self, of: &Placed<'book>) -> Option<&Placed<'book>> {
        self.of(of.workload).find(|it| {
            it.placement == Placement::Whole
                && it.group.run() == of.group.run()
                && it.group.target() == of.group.target()
        })
    }

    /// Returns the share of the whole gain, paired by repeat.
    pub(crate) fn gain(&self, book: &Book, part: &Placed<'book>) -> Option<Estimated> {
        let (none, whole) = (self.slow(part)?, self.whole(part)?);
        let path = part.rate_path();
        let values: Vec<f64> = part
            .group
            .entries
            .iter()
            .filter_map(|entry| {
                let of =
                    |placed: &Placed<'_>| placed.group.of_repeat(entry.row.repeat)?.number(&path);
                gain_share(of(none)?, of(whole)?, entry.number(&path)?)
            })
            .collect();
        let description = json!({
            "gain_share": part.group.describe(&path),
            "of": whole.group.describe(&path),
            "above": none.group.describe(&path),
        });
        book.derive(description, &values)
    }

    /// Returns the share of the memory that the whole database uses on fast storage.
    pub(crate) fn memory(&self, book: &Book, part: &Placed<'book>) -> Option<Estimated> {
        let whole = self.whole(part)?;
        let path = memory_path();
        let values: Vec<f64> = part
            .group
            .entries
            .iter()
            .filter_map(|entry| {
                let other = whole.group.of_repeat(entry.row.repeat)?;
                memory_share(other.number(&path)?, entry.number(&path)?)
            })
            .collect();
        let description = json!({
            "memory_share": part.group.describe(&path),
            "of": whole.group.describe(&path),
        });
        book.derive(description, &values)
    }

    /// Returns the ratio to the rate with nothing on fast storage.
    pub(crate) fn times(&self, book: &Book, part: &Placed<'book>) -> Option<Estimated> {
        let path = part.rate_path();
        book.ratio((&part.group, &path), (&self.slow(part)?.group, &path))
    }
}

pub(crate) fn memory_path() -> String {
    format!("figures/{FAST_USED_BYTES}")
}

/// Returns workload and placement of a row of the suite.
pub(crate) fn kinds(group: &Group<'_>) -> Option<(Workload, Placement)> {
    let (workload, placement) = (group.word("workload_kind")?, group.word("placement")?);
    let workload = Workload::ALL.into_iter().find(|it| it.name() == workload)?;
    Some((workload, Placement::ALL.into_iter().find(|it| it.name() == placement)?))
}
