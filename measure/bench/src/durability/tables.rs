//! The suite's figures for people.

use results::Row;

use super::flush::{self, FLUSHES_PER_TRANSACTION};
use super::ground::{Ground, WRITERS_MAX};
use super::image::{self, BYTES_PER_S, FIRST_READ_NS, OF_FULL_IMAGE};
use super::snapshots::{self, SNAPSHOT_NS_MAX, Snapshots};
use crate::medians::{Medians, cell, thousands};
use crate::output;

pub(crate) fn describe(rows: &[&Row]) -> String {
    let medians = Medians::new(rows);
    let mut parts = Vec::new();
    let mut add = |title: &str, table: Vec<Vec<String>>| {
        if table.len() > 1 {
            parts.extend([title.to_owned(), output::table(&table), String::new()]);
        }
    };
    add("Writes of 4 KiB, each durable before its writer's next: medians", flushes(&medians));
    add("Images of what cannot be made smaller: medians", images(&medians));
    add("Random overwrites of 4 KiB, alone and with a snapshot each second", copies(&medians));
    parts.extend(medians.remarks());
    parts.join("\n")
}

fn flushes(medians: &Medians) -> Vec<Vec<String>> {
    let heading =
        ["target", "us", "of the disk's", "p99 us", "/s", "/s with 8", "times 1", "in one commit"];
    let mut table = vec![heading.map(str::to_owned).to_vec()];
    let [one, eight] = [1, WRITERS_MAX].map(flush::case_name);
    let of = |ground: Ground, case: &str, measure: &str| {
        medians.of(&ground.to_string(), case, measure).map(|it| it.median)
    };
    let over = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a / b);
    for ground in Ground::ALL {
        let mean = of(ground, &one, "latency_ns_mean");
        let rates = [&one, &eight].map(|case| of(ground, case, "iops"));
        if mean.is_none() && rates[1].is_none() {
            continue;
        }
        let micros = |ns: Option<f64>| cell(ns.map(|ns| ns / 1e3), 1);
        table.push(vec![
            ground.to_string(),
            micros(mean),
            cell(over(mean, of(Ground::Disk, &one, "latency_ns_mean")), 2),
            micros(of(ground, &one, "latency_ns_p99")),
            thousands(rates[0]),
            thousands(rates[1]),
            cell(over(rates[1], rates[0]), 2),
            cell(of(ground, &eight, FLUSHES_PER_TRANSACTION), 2),
        ]);
    }
    table
}

fn images(medians: &Medians) -> Vec<Vec<String>> {
    let heading = ["what", "figure", "of the disk's"];
    let mut table = vec![heading.map(str::to_owned).to_vec()];
    let of = |target, case, measure| medians.of(target, case, measure).map(|it| it.median);
    for case in [image::SAVE, image::RESTORE] {
        let rates = [image::VOLUME, image::DISK].map(|target| of(target, case, BYTES_PER_S));
        if let [Some(own), disk] = rates {
            let figure = format!("{:.0} MB/s", own / 1e6);
            table.push(vec![case.to_owned(), figure, cell(disk.map(|disk| own / disk), 2)]);
        }
    }
    if let Some(share) = of(image::VOLUME, image::SAVE_AGAIN, OF_FULL_IMAGE) {
        let figure = format!("{:.2} % of the full image", share * 100.0);
        table.push(vec![image::SAVE_AGAIN.to_owned(), figure, String::new()]);
    }
    if let Some(ns) = of(image::VOLUME, image::FIRST_READ, FIRST_READ_NS) {
        let figure = format!("{:.3} s", ns / 1e9);
        table.push(vec![image::FIRST_READ.to_owned(), figure, String::new()]);
    }
    table
}

fn copies(medians: &Medians) -> Vec<Vec<String>> {
    let heading = [
        "target",
        "p50 us",
        "p99.9 us",
        "p99.9 with snapshots",
        "times",
        "max ms",
        "with snapshots",
        "longest snapshot ms",
    ];
    let mut table = vec![heading.map(str::to_owned).to_vec()];
    let [alone, copied] = [Snapshots::None, Snapshots::EachSecond].map(snapshots::case_name);
    for target in medians.targets() {
        let of = |case: &str, measure| medians.of(target, case, measure).map(|it| it.median);
        let [Some(p999), Some(p999_copied)] =
            [&alone, &copied].map(|case| of(case, "latency_ns_p999"))
        else {
            continue;
        };
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
