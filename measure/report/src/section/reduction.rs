//! Data reduction: estimated, and measured beside zram.

use maud::{Markup, html};
use results::Suite;

use super::layout::{GroupTable, Named};
use crate::book::Book;
use crate::chart::{Bar, Bars};
use crate::figure::Format;
use crate::group::Group;
use crate::table::Table;

pub(crate) fn body(book: &Book) -> Option<Markup> {
    let groups = book.groups(Suite::Reduction);
    (!groups.is_empty()).then(|| {
        html! {
            p { "The same bytes on each target, memory counted once it has stopped falling. "
                "Estimates read the data and store nothing." }
            (bars(book, &groups).show())
            (table(book, &groups).show())
        }
    })
}

fn data<'book>(group: &Group<'book>) -> &'book str {
    group.word("data").unwrap_or(group.case())
}

fn name(book: &Book, group: &Group) -> String {
    let target = book.target_name(group);
    match group.word("reduction") {
        Some(reduction) => format!("{target}, {reduction}"),
        None => target,
    }
}

fn bars(book: &Book, groups: &[Group]) -> Bars {
    let bar = |group: &Group| {
        let used = book.estimate(group, "store/used_bytes")?;
        let series = match group.target() {
            target if target.contains("estimate") => 5,
            target if target.starts_with("volume") => 0,
            _ => 1,
        };
        Some(Bar { series, ..Bar::new(data(group), name(book, group), used) })
    };
    let mut bars: Vec<Bar> = groups.iter().filter_map(bar).collect();
    bars.sort_by(|a, b| a.group.cmp(&b.group));
    Bars::new("Memory that the data takes", "lower is better", Format::Mebibytes, bars)
}

fn table(book: &Book, groups: &[Group]) -> Table {
    const FIGURES: [Named; 8] = [
        ("data, MiB", "store/written_bytes", Format::Mebibytes),
        ("used, MiB", "store/used_bytes", Format::Mebibytes),
        ("reduction", "figures/reduction", Format::Ratio),
        ("fill", "figures/fill_share", Format::Percent),
        ("duplicates", "figures/duplicate_share", Format::Percent),
        ("compression", "figures/compression", Format::Ratio),
        ("maps, MiB", "figures/map_bytes", Format::Mebibytes),
        ("error of duplicates", "figures/duplicate_share_error", Format::Percent),
    ];
    let caption = "Shares are of all blocks of 4 KiB; compression is of the blocks that are \
                   neither fill nor duplicate.";
    GroupTable::new(book)
        .text("Data", |group| data(group).to_owned())
        .text("Target", |group| name(book, group))
        .known_figures(groups, &FIGURES)
        .rows(groups, caption)
}
