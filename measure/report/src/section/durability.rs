//! Cost of durability: durable writes, images, and overwrites after snapshots.

use maud::{Markup, html};
use results::Suite;

use super::layout::{GroupTable, Named, OTHER_SERIES, OWN_SERIES, bars, listing, strips};
use crate::book::Book;
use crate::chart::Bars;
use crate::figure::Format;
use crate::group::Group;
use crate::table::{Cell, Table};

pub(crate) fn body(book: &Book) -> Option<Markup> {
    let timed = |group: &Group| group.first().row.latency.is_some();
    let (requests, images): (Vec<Group>, Vec<Group>) =
        book.groups(Suite::Durability).into_iter().partition(timed);
    let name = |group: &Group| format!("{}: {}", book.target_name(group), group.case());
    (!requests.is_empty() || !images.is_empty()).then(|| {
        html! {
            p { "The journal and the images lie on the disk that volumes are compared with. A "
                "durable write is a write of 4 KiB and the flush behind it." }
            @if !requests.is_empty() {
                (rates(book, &requests).show())
                (strips(book, &requests, "Latency of a request", (name, series)).show())
                (latencies(book, &requests).show())
            }
            @if !images.is_empty() {
                (copies(book, &images).show())
                (other_figures(book, &images).show())
            }
        }
    })
}

fn series(group: &Group) -> usize {
    if group.target().contains("volume") { OWN_SERIES } else { OTHER_SERIES }
}

fn rates(book: &Book, groups: &[Group]) -> Bars {
    let writes = groups.iter().filter(|group| group.word("op") == Some("durable write"));
    let bars = bars(book, writes, "app/iops", series);
    Bars::higher_is_better("Durable writes per second", Format::Count, bars)
}

fn latencies(book: &Book, groups: &[Group]) -> Table {
    const FIGURES: [Named; 8] = [
        ("mean, µs", "latency/mean", Format::Micros),
        ("p50, µs", "latency/p50", Format::Micros),
        ("p99, µs", "latency/p99", Format::Micros),
        ("p99.9, µs", "latency/p999", Format::Micros),
        ("max, µs", "latency/max", Format::Micros),
        ("per second", "app/iops", Format::Count),
        ("flushes in a commit", "figures/flushes_per_transaction", Format::Ratio),
        ("longest snapshot, µs", "figures/snapshot_ns_max", Format::Micros),
    ];
    let caption = "From when a request was sent. A commit of the journal serves all flushes that \
                   waited for it.";
    GroupTable::new(book).target("Target").case("Load").figures(&FIGURES).rows(groups, caption)
}

/// Compares images with plain copies to and from the disk.
fn copies(book: &Book, groups: &[Group]) -> Bars {
    let bars = bars(book, groups, "figures/bytes_per_s", series);
    let title = "Bytes of data saved and restored per second";
    Bars::higher_is_better(title, Format::MegabytesPerSecond, bars)
}

fn other_figures(book: &Book, groups: &[Group]) -> Table {
    const FIGURES: [Named; 3] = [
        ("MB/s", "figures/bytes_per_s", Format::MegabytesPerSecond),
        ("bytes of the full image", "figures/bytes_of_full_image_share", Format::Percent),
        ("from the start of the daemon, µs", "figures/first_read_ns", Format::Micros),
    ];
    let rows = groups.iter().flat_map(|group| {
        FIGURES.into_iter().filter_map(move |(words, path, format)| {
            let estimate = book.estimate(group, path)?;
            let texts = [group.case(), &book.target_name(group), words].map(Cell::text);
            let [case, target, words] = texts;
            Some([case, target, words, Cell::Estimate(estimate, format)])
        })
    });
    listing("What", "Incompressible data.", rows)
}
