//! The papers' tables with their hardware in grey and ours beside it.

use maud::{Markup, html};
use results::Suite;
use results::papers::{AMPS, forsa_tables, fusion_sizes_kib};

use super::jobs::{at, by_subject, size_text};
use super::{forsa, fusion};
use crate::book::Book;
use crate::figure::Format;
use crate::group::Group;
use crate::papers::{FORSA_PATTERNS, FUSION_PATTERNS, amps_row, forsa_row, fusion_figures};
use crate::table::{Cell, Column, Table};

pub(crate) fn body(book: &Book) -> Option<Markup> {
    let tables: Vec<Markup> =
        [forsa_part(book), fusion_part(book), amps_part(book)].into_iter().flatten().collect();
    (!tables.is_empty()).then(|| {
        html! {
            p { "Grey columns are what the papers state about their own hardware, years apart from "
                "ours. They show the layout and the order of magnitude; no ratio is drawn between "
                "machines." }
            @for table in tables { (table) }
        }
    })
}

fn forsa_part(book: &Book) -> Option<Markup> {
    let groups = book.groups(Suite::Forsa);
    if groups.is_empty() {
        return None;
    }
    let subjects = by_subject(book, &groups);
    let tables = forsa_tables().enumerate().filter_map(|(index, lines)| {
        let (block_bytes, jobs) = (u64::from(lines[0].block_bytes), u64::from(lines[0].jobs));
        let counts = [("block_bytes", block_bytes), ("jobs", jobs)];
        let here = |pattern: &str| {
            subjects.iter().map(|(_, groups)| at(groups, pattern, &counts)).collect::<Vec<_>>()
        };
        let is_measured =
            FORSA_PATTERNS.iter().any(|(pattern, _)| here(pattern).iter().any(Option::is_some));
        is_measured.then(|| {
            let names = subjects.iter().map(|(name, _)| name.clone()).collect();
            let rows = FORSA_PATTERNS.iter().enumerate().map(|(row, (pattern, name))| {
                forsa_line(book, (name, &forsa_row(index, row, &lines[row])), &here(pattern))
            });
            let caption = format!(
                "{} blocks, queue depth 1, jobs = {jobs}. ForsaOS 2.0 on two Xeon Platinum 8160M; \
                 the MB/s of its write rows, printed in KiB over 1000, are in 10^6 bytes here.",
                size_text(block_bytes)
            );
            Table { caption, columns: forsa_columns(names), rows: rows.collect() }
        })
    });
    let tables: Vec<Table> = tables.collect();
    Some(html! {
        h3 { "ForsaOS: four patterns at queue depth 1" }
        @for table in &tables { (table.show()) }
        (forsa::footnote(book, &subjects))
    })
}

fn forsa_columns(names: Vec<String>) -> Vec<Column> {
    let three = ["MB/s", "IOPS", "mean latency, µs"];
    let paper = three.map(|name| Column::number(name).below("ForsaOS paper").paper());
    let ours = |target: String| three.map(|name| Column::number(name).below(target.clone()));
    let mut columns = vec![Column::text("I/O task")];
    columns.extend(paper);
    columns.extend(names.into_iter().flat_map(ours));
    columns
}

fn forsa_line(
    book: &Book,
    (name, paper): (&str, &[crate::figure::Figure; 3]),
    ours: &[Option<&Group>],
) -> Vec<Cell> {
    const FORMATS: [Format; 3] = [Format::MegabytesPerSecond, Format::Count, Format::Micros];
    const PATHS: [&str; 3] = ["app/bytes_per_s", "app/iops", "latency/mean"];
    let mut cells = vec![Cell::text(name)];
    cells.extend(paper.iter().zip(FORMATS).map(|(it, format)| Cell::Paper(it.clone(), format)));
    for group in ours {
        cells.extend(PATHS.iter().zip(FORMATS).map(|(path, format)| {
            Cell::estimate(group.and_then(|group| book.estimate(group, path)), format)
        }));
    }
    cells
}

fn fusion_part(book: &Book) -> Option<Markup> {
    let groups = book.groups(Suite::Fusion);
    if groups.is_empty() {
        return None;
    }
    let tables = by_subject(book, &groups).into_iter().flat_map(|(name, groups)| {
        let table = |unit: usize| {
            let (what, path, format) = [
                ("Peak MB/s", "app/bytes_per_s", Format::MegabytesPerSecond),
                ("Application operations per second at that peak", "app/iops", Format::Count),
            ][unit];
            let mut columns = vec![Column::text("Transfer size")];
            for (_, pattern) in FUSION_PATTERNS {
                columns.push(Column::number("paper").below(pattern).paper());
                columns.push(Column::number("ours").below(pattern));
                columns.push(Column::number("depth").below(pattern));
            }
            let rows = fusion_sizes_kib().enumerate().map(|(size, kib)| {
                let block_bytes = u64::from(kib) << 10;
                let mut cells = vec![Cell::text(size_text(block_bytes))];
                for (index, (pattern, _)) in FUSION_PATTERNS.iter().enumerate() {
                    let paper = fusion_figures(size, kib, index)[unit].clone();
                    cells.push(Cell::Paper(paper, format));
                    let peak = fusion::peak(book, &groups, pattern, block_bytes);
                    let estimate = peak.as_ref().and_then(|it| book.estimate(it, path));
                    cells.push(Cell::estimate(estimate, format));
                    let depth = peak.and_then(|it| it.first().figure("params/queue_depth"));
                    cells.push(Cell::number(depth, Format::Count));
                }
                cells
            });
            let caption = format!(
                "{what} on {name}. Fusion ioMemory: eight ioDrives in a 4-socket Xeon X7650; its \
                 operations from 256K on are device requests split at 128K, and its 64K sequential \
                 reads are printed at twice what their throughput allows."
            );
            Table { caption, columns, rows: rows.collect() }
        };
        [table(0), table(1)]
    });
    let tables: Vec<Table> = tables.collect();
    Some(html! {
        h3 { "Fusion ioMemory: peak over queue depths" }
        @for table in &tables { (table.show()) }
    })
}

fn amps_part(book: &Book) -> Option<Markup> {
    let groups = book.groups(Suite::Log);
    let of = |target: &str, mix: &str| {
        groups.iter().find(|group| {
            book.target_name(group) == target && group.has(&[("mix", mix), ("loop", "closed")])
        })
    };
    let mut targets: Vec<String> = groups.iter().map(|group| book.target_name(group)).collect();
    targets.dedup();
    targets.sort();
    targets.dedup();
    if targets.is_empty() {
        return None;
    }
    let mut rows: Vec<Vec<Cell>> = AMPS
        .iter()
        .enumerate()
        .map(|(index, device)| {
            let [appends, mixed, ratio] = amps_row(index);
            vec![
                Cell::text(format!("{} (paper)", device.name)),
                Cell::Paper(appends, Format::Count),
                Cell::Paper(mixed, Format::Count),
                Cell::Paper(ratio, Format::Ratio),
            ]
        })
        .collect();
    let total = "figures/messages_per_s_total";
    for target in &targets {
        let (appends, mixed) = (of(target, "100/0"), of(target, "80/20"));
        let total_of = |group: Option<&Group>| book.estimate(group?, total);
        let ratio = appends.zip(mixed).and_then(|(to, of)| book.ratio((of, total), (to, total)));
        rows.push(vec![
            Cell::text(target.clone()),
            Cell::estimate(total_of(appends), Format::Count),
            Cell::estimate(total_of(mixed), Format::Count),
            Cell::estimate(ratio, Format::Ratio),
        ]);
    }
    let columns = ["Appends alone", "80 % reads", "kept with reads"].map(Column::number);
    let caption = "512-byte messages per second, reads and appends together, closed loop. The \
                   paper does not say which of them it counts. Higher is better."
        .to_owned();
    let columns = [Column::text("Device")].into_iter().chain(columns).collect();
    Some(html! {
        h3 { "AMPS: appends, and appends with readers" }
        (Table { caption, columns, rows }.show())
    })
}
