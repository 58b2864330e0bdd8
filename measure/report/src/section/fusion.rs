//! Heat maps of transfer size and queue depth, one per pattern.

use maud::{Markup, html};
use results::Suite;

use super::jobs::{at, by_subject, size_text, steps};
use crate::book::Book;
use crate::chart::Heat;
use crate::figure::Format;
use crate::group::Group;
use crate::papers::FUSION_PATTERNS;
use crate::table::{Cell, Column, Table};

pub(crate) fn body(book: &Book) -> Option<Markup> {
    let groups = book.groups(Suite::Fusion);
    let subjects = by_subject(book, &groups);
    (!groups.is_empty()).then(|| {
        html! {
            p { "Each cell is one transfer size at one queue depth. The papers' peak tables above "
                "take the best depth of each row." }
            @for (name, groups) in &subjects {
                h3 { (name) }
                div.charts {
                    @for (pattern, title) in FUSION_PATTERNS {
                        (heat(book, groups, pattern, title).show())
                    }
                }
                (table(book, groups).show_behind())
            }
        }
    })
}

/// Returns the group of the queue depth with the highest throughput.
pub(crate) fn peak<'book>(
    book: &Book,
    groups: &[Group<'book>],
    pattern: &str,
    block_bytes: u64,
) -> Option<Group<'book>> {
    let throughput = |group: &&Group| {
        book.estimate(group, "app/bytes_per_s").map_or(0.0, |estimate| estimate.value())
    };
    groups
        .iter()
        .filter(|group| group.word("rw") == Some(pattern))
        .filter(|group| group.count("block_bytes") == Some(block_bytes))
        .max_by(|a, b| throughput(a).total_cmp(&throughput(b)))
        .cloned()
}

fn heat(book: &Book, groups: &[Group], pattern: &str, title: &str) -> Heat {
    let (sizes, depths) = (steps(groups, "block_bytes"), steps(groups, "queue_depth"));
    let cell = |block_bytes: u64, queue_depth: u64| {
        let counts = [("block_bytes", block_bytes), ("queue_depth", queue_depth)];
        book.estimate(at(groups, pattern, &counts)?, "app/bytes_per_s")
    };
    let row = |size: &u64| depths.iter().map(|&depth| cell(*size, depth)).collect();
    Heat {
        title: title.to_owned(),
        hint: "higher is better",
        format: Format::MegabytesPerSecond,
        columns: depths.iter().map(u64::to_string).collect(),
        rows: sizes.iter().map(|&size| size_text(size)).collect(),
        column_name: "queue depth",
        cells: sizes.iter().map(row).collect(),
    }
}

fn table(book: &Book, groups: &[Group]) -> Table {
    let row = |group: &Group| {
        let of = |path: &str, format| Cell::estimate(book.estimate(group, path), format);
        let own = |path: &str| Cell::number(group.first().figure(path), Format::Count);
        let requests = ["device/read_requests", "device/write_requests"];
        let requests_per_s: Vec<f64> = group
            .entries
            .iter()
            .filter_map(|entry| {
                let sum: Option<f64> = requests.iter().map(|path| entry.number(path)).sum();
                Some(sum? / entry.number("time/duration_s").filter(|it| *it > 0.0)?)
            })
            .collect();
        let device = book.derive(group.describe("device requests per second"), &requests_per_s);
        vec![
            Cell::text(group.word("rw").unwrap_or_default()),
            own("params/block_bytes"),
            own("params/queue_depth"),
            of("app/bytes_per_s", Format::MegabytesPerSecond),
            of("app/iops", Format::Count),
            Cell::estimate(device, Format::Count),
            of("latency/mean", Format::Micros),
            of("latency/p99", Format::Micros),
        ]
    };
    let mut columns = vec![Column::text("Pattern")];
    columns.extend(
        [
            "bytes",
            "depth",
            "MB/s",
            "application IOPS",
            "device IOPS",
            "mean latency, µs",
            "p99, µs",
        ]
        .map(Column::number),
    );
    let caption = "Application operations, and requests as the kernel's device saw them after \
                   splitting and merging."
        .to_owned();
    Table { caption, columns, rows: groups.iter().map(row).collect() }
}
