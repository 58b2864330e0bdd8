//! Database placement on fast storage: rates, shares of gain and memory, and activity of the
//! machine.

use maud::{Markup, html};
use results::Suite;
use results::placement::{Placement, Workload};

use crate::book::Book;
use crate::chart::{Bar, Bars, Line, Lines, Second, Seconds, SecondsLane};
use crate::figure::Format;
use crate::group::Group;
use crate::placed::{Placed, PlacedAll, kinds, memory_path};
use crate::table::{Cell, Column, Table};

pub(crate) fn body(book: &Book) -> Option<Markup> {
    let all = PlacedAll::new(book);
    let groups = book.groups(Suite::Placement);
    (!groups.is_empty()).then(|| {
        html! {
            p { "One database, copied for each measurement, with all of it, its log, its temporary "
                "tables or nothing on fast storage. The server's memory is limited, the pages of "
                "its files included. Users double until that brings less than 5 %; the gain is "
                "what the rate is above that with nothing on fast storage. Orders are derived from "
                "TPC-C; reports sort and join through temporary files." }
            (sentences(book, &all))
            @for workload in Workload::ALL {
                @if all.of(workload).next().is_some() {
                    (rates(book, &all, workload).show())
                }
            }
            div.charts {
                @for workload in Workload::ALL {
                    @let lines = by_users(book, &groups, workload);
                    @if !lines.lines.is_empty() { (lines.show()) }
                }
            }
            @for workload in Workload::ALL {
                @let seconds = seconds(book, &all, workload);
                @if !seconds.lanes.is_empty() { (seconds.show()) }
            }
            @for workload in Workload::ALL {
                @if all.of(workload).next().is_some() { (table(book, &all, workload).show()) }
            }
        }
    })
}

fn title(workload: Workload) -> &'static str {
    match workload {
        Workload::Orders => "New orders a minute",
        Workload::Reports => "Reports a minute",
    }
}

fn series(placement: Placement) -> usize {
    match placement {
        Placement::None => 6,
        Placement::Whole => 0,
        Placement::Logs => 2,
        Placement::Temporary => 3,
    }
}

/// Returns sentences such as `logs only: 61 % of the gain for 3 % of the memory`.
fn sentences(book: &Book, all: &PlacedAll<'_>) -> Markup {
    let parts = Workload::ALL.into_iter().flat_map(|workload| all.of(workload));
    let parts = parts.filter(|it| matches!(it.placement, Placement::Logs | Placement::Temporary));
    html! {
        ul {
            @for part in parts {
                @if let Some((gain, memory)) =
                    all.gain(book, part).zip(all.memory(book, part)) {
                    li {
                        (part.workload.name()) " on " (book.target_name(&part.group)) ", "
                        (part.placement.words()) ": " (gain.median.show(Format::Percent))
                        " % of the gain for " (memory.median.show(Format::Percent))
                        " % of the memory"
                    }
                }
            }
        }
    }
}

fn rates(book: &Book, all: &PlacedAll<'_>, workload: Workload) -> Bars {
    let bar = |placed: &Placed<'_>| {
        let rate = book.estimate(&placed.group, &placed.rate_path())?;
        Some(Bar {
            series: series(placed.placement),
            beside: book.estimate(&placed.group, &memory_path()),
            ..Bar::new(placed.placement.words(), book.target_name(&placed.group), rate)
        })
    };
    let mut placed: Vec<&Placed<'_>> = all.of(workload).collect();
    placed.sort_by_key(|it| it.placement);
    let title = format!("{}, by what lies on fast storage", title(workload));
    let hint = "at the best number of users · higher is better";
    let bars = placed.into_iter().filter_map(bar).collect();
    let beside = Some(("memory", Format::Mebibytes));
    Bars { beside, ..Bars::new(title, hint, Format::Count, bars) }
}

fn by_users(book: &Book, groups: &[Group<'_>], workload: Workload) -> Lines {
    let mut lines: Vec<Line> = Vec::new();
    for group in groups {
        let Some((_, placement)) = kinds(group).filter(|(it, _)| *it == workload) else { continue };
        let path = format!("figures/{}", workload.rate());
        let point = group.count("users").zip(book.estimate(group, &path));
        let Some(point) = point else { continue };
        let name = match placement {
            Placement::None => placement.words().to_owned(),
            _ => format!("{}, {}", placement.words(), book.target_name(group)),
        };
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { name, points: vec![point] }),
        }
    }
    for line in &mut lines {
        line.points.sort_by_key(|(users, _)| *users);
    }
    Lines {
        title: format!("{}, by users", title(workload)),
        hint: "higher is better",
        level_name: "users",
        format: Format::Count,
        lines,
    }
}

/// Shows processor activity in the first repeat of each.
fn seconds(book: &Book, all: &PlacedAll<'_>, workload: Workload) -> Seconds {
    let lane = |placed: &Placed<'_>| {
        let row = &placed.group.first().row;
        let of = |name: &str| {
            let strip = row.strips.iter().find(|strip| strip.name == name);
            strip.map(|strip| strip.values.as_slice()).unwrap_or_default()
        };
        let at = |name: &str, index: usize| of(name).get(index).copied().unwrap_or(0.0);
        let second = |index: usize| Second {
            shares: ["user_share", "system_share", "io_wait_share", "steal_share"]
                .map(|name| at(name, index)),
            rate: of("rate_per_minute").get(index).copied(),
        };
        let seconds: Vec<Second> = (0..of("user_share").len()).map(second).collect();
        (!seconds.is_empty()).then(|| SecondsLane {
            name: placed.placement.words().to_owned(),
            detail: book.target_name(&placed.group),
            seconds,
        })
    };
    Seconds {
        title: format!("{}: what the processors did each second", title(workload)),
        part_names: ["user", "system", "waiting for I/O", "other guests"],
        lanes: all.of(workload).filter_map(lane).collect(),
    }
}

fn table(book: &Book, all: &PlacedAll<'_>, workload: Workload) -> Table {
    let row = |placed: &Placed<'_>| {
        let group = &placed.group;
        let of = |path: &str, format| Cell::estimate(book.estimate(group, path), format);
        vec![
            Cell::text(placed.placement.words()),
            Cell::text(book.target_name(group)),
            of(&placed.rate_path(), Format::Count),
            of("figures/users_at_best", Format::Count),
            Cell::estimate(all.times(book, placed), Format::Ratio),
            Cell::estimate(all.gain(book, placed), Format::Percent),
            of(&memory_path(), Format::Mebibytes),
            Cell::estimate(all.memory(book, placed), Format::Percent),
            of("figures/memory_limit_bytes", Format::Mebibytes),
            of("figures/database_bytes", Format::Mebibytes),
            Cell::text(group.word("durability").unwrap_or("–")),
        ]
    };
    let mut columns = ["On fast storage", "Target"].map(Column::text).to_vec();
    let numbers = [
        title(workload),
        "users",
        "of the slow rate",
        "share of the gain",
        "memory, MiB",
        "share of the memory",
        "server's limit, MiB",
        "database, MiB",
    ];
    columns.extend(numbers.map(Column::number));
    columns.push(Column::text("what survives"));
    let caption = format!("{} at the best number of users", title(workload));
    Table { caption, columns, rows: all.of(workload).map(row).collect() }
}
