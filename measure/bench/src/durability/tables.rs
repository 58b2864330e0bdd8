//! Result tables of the suite.

use results::Row;

use super::backend::{Backend, WRITERS_MAX};
use super::flush::{self, FLUSHES_PER_TRANSACTION};
use super::image::{self, BYTES_PER_S, FIRST_READ_NS, OF_FULL_IMAGE};
use super::snapshots::{self, SNAPSHOT_NS_MAX, Snapshots};
use crate::medians::{Medians, cell, thousands};
use crate::output::{Table, heading};

pub(crate) fn describe(rows: &[&Row]) -> String {
    let medians = Medians::new(rows);
    medians.page([
        ("Writes of 4 KiB, each durable before its writer's next: medians", flushes(&medians)),
        ("Images of incompressible data: medians", images(&medians)),
        ("Random overwrites of 4 KiB, alone and with a snapshot each second", copies(&medians)),
    ])
}

fn flushes(medians: &Medians) -> Table {
    let mut table =
        heading("target | us | of the disk's | p99 us | /s | /s with 8 | times 1 | in one commit");
    let [one, eight] = [1, WRITERS_MAX].map(flush::case_name);
    let of = |backend: Backend, case: &str, measure: &str| {
        medians.median(&backend.to_string(), case, measure)
    };
    let over = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a / b);
    for backend in Backend::ALL {
        let mean = of(backend, &one, "latency_ns_mean");
        let rates = [&one, &eight].map(|case| of(backend, case, "iops"));
        if mean.is_none() && rates[1].is_none() {
            continue;
        }
        let micros = |ns: Option<f64>| cell(ns.map(|ns| ns / 1e3), 1);
        table.push(vec![
            backend.to_string(),
            micros(mean),
            cell(over(mean, of(Backend::Disk, &one, "latency_ns_mean")), 2),
            micros(of(backend, &one, "latency_ns_p99")),
            thousands(rates[0]),
            thousands(rates[1]),
            cell(over(rates[1], rates[0]), 2),
            cell(of(backend, &eight, FLUSHES_PER_TRANSACTION), 2),
        ]);
    }
    table
}

fn images(medians: &Medians) -> Table {
    let mut table = heading("what | figure | of the disk's");
    let mut add = |case: &str, figure: Option<String>, of_disk: String| {
        table.extend(figure.map(|figure| vec![case.to_owned(), figure, of_disk]));
    };
    let of = |target, case, measure| medians.median(target, case, measure);
    for case in [image::SAVE, image::RESTORE] {
        let [own, disk] = [image::VOLUME, image::DISK].map(|it| of(it, case, BYTES_PER_S));
        let of_disk = cell(own.zip(disk).map(|(own, disk)| own / disk), 2);
        add(case, own.map(|own| format!("{:.0} MB/s", own / 1e6)), of_disk);
    }
    let share = of(image::VOLUME, image::SAVE_AGAIN, OF_FULL_IMAGE);
    let share = share.map(|share| format!("{:.2} % of the full image", share * 100.0));
    add(image::SAVE_AGAIN, share, String::new());
    let read = of(image::VOLUME, image::FIRST_READ, FIRST_READ_NS);
    add(image::FIRST_READ, read.map(|ns| format!("{:.3} s", ns / 1e9)), String::new());
    table
}

fn copies(medians: &Medians) -> Table {
    let mut table = heading(
        "target | p50 us | p99.9 us | p99.9 with snapshots | times | max ms | with snapshots | \
         longest snapshot ms",
    );
    let [alone, copied] = [Snapshots::None, Snapshots::EachSecond].map(snapshots::case_name);
    for target in medians.targets() {
        let of = |case: &str, measure| medians.median(target, case, measure);
        let p999 = [&alone, &copied].map(|case| of(case, "latency_ns_p999"));
        let [Some(p999), Some(p999_copied)] = p999 else { continue };
        let scaled = |ns: Option<f64>, unit: f64| cell(ns.map(|ns| ns / unit), 2);
        table.push(vec![
            target.to_owned(),
            scaled(of(&alone, "latency_ns_p50"), 1e3),
            scaled(Some(p999), 1e3),
            scaled(Some(p999_copied), 1e3),
            cell(Some(p999_copied / p999), 2),
            scaled(of(&alone, "latency_ns_max"), 1e6),
            scaled(of(&copied, "latency_ns_max"), 1e6),
            scaled(of(&copied, SNAPSHOT_NS_MAX), 1e6),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use results::Suite;

    use super::*;

    fn row(case: &str, target: &str, figure: &str, value: f64) -> Row {
        let mut row = Row::new(Suite::Durability, case, target);
        row.figures.insert(figure.to_owned(), value);
        row
    }

    #[test]
    fn images_stand_beside_the_disk() {
        let rows = [
            row(image::SAVE, image::VOLUME, BYTES_PER_S, 800e6),
            row(image::SAVE, image::DISK, BYTES_PER_S, 1000e6),
            row(image::FIRST_READ, image::VOLUME, FIRST_READ_NS, 250e6),
        ];
        let text = describe(&rows.each_ref());
        assert!(text.contains("800 MB/s") && text.contains("0.80"), "{text}");
        assert!(text.contains("0.250 s"), "{text}");
    }

    #[test]
    fn a_volume_stands_beside_the_disk_and_itself_with_more_writers() {
        let [one, eight] = [1, WRITERS_MAX].map(flush::case_name);
        let rows = [
            row(&one, "files on the disk", "latency_ns_mean", 100e3),
            row(&one, "journal volume NBD", "latency_ns_mean", 140e3),
            row(&one, "journal volume NBD", "iops", 7000.0),
            row(&eight, "journal volume NBD", "iops", 28_000.0),
        ];
        let text = describe(&rows.each_ref());
        let line = text.lines().find(|line| line.contains("NBD")).expect("it has a line");
        assert!(line.contains("1.40") && line.contains("4.00"), "{text}");
    }
}
