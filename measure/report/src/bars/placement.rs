//! Bars on the placement of database parts.

use results::placement::{Placement, Workload};

use super::{Bar, at_least};
use crate::book::Book;
use crate::figure::Format;
use crate::placed::{Placed, PlacedAll};

const JOURNAL: &str = "journal volume attached + ext4";
const DISK: &str = "disk file";

pub(super) fn bars(book: &Book) -> Vec<Bar> {
    let all = PlacedAll::new(book);
    let newest = |placement: Placement| {
        let is_asked = |placed: &&Placed<'_>| {
            let group = &placed.group;
            placed.placement == placement
                && group.target() == JOURNAL
                && group.word("slow") == Some(DISK)
        };
        all.of(Workload::Orders).filter(is_asked).last()
    };
    vec![
        at_least(2.0, newest(Placement::Whole).and_then(|placed| all.times(book, placed))).named(
            "orders, data and logs on a journal volume: NOPM over the disk's, memory limited",
            "NOPM on a journal volume, to disk",
        ),
        at_least(0.5, newest(Placement::Logs).and_then(|placed| all.gain(book, placed)))
            .named(
                "orders, logs only on a journal volume: share of the whole's gain",
                "gain of logs only",
            )
            .shown_as(Format::Percent),
    ]
}
