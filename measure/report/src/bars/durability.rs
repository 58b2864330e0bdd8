//! Bars on the cost of durability, each within one run.

use results::Suite;

use super::{Bar, at_least, at_most, newest};
use crate::book::Book;
use crate::figure::Format;
use crate::group::Group;

const LATENCY: &str = "latency/mean";
const RATE: &str = "app/iops";
const BYTES_PER_S: &str = "figures/bytes_per_s";

const EXT4: &str = "journal volume attached + ext4";
const ATTACHED: &str = "journal volume attached";
const EACH_FLUSHED: &str = "journal volume attached, each write flushed";
const NBD: &str = "journal volume NBD";
const DISK_FILES: &str = "files on the disk";
const VOLUME: &str = "volume of class image";
const DISK: &str = "disk, direct I/O";

pub(super) fn bars(book: &Book) -> Vec<Bar> {
    let groups = book.groups(Suite::Durability);
    let mut bars = flush_bars(book, &groups);
    bars.extend(image_bars(book, &groups));
    bars.extend(snapshot_bars(book, &groups));
    bars
}

fn flush_bars(book: &Book, groups: &[Group]) -> Vec<Bar> {
    let writes = |target: &str, writers: &str| {
        newest(groups, |group| group.target() == target && group.has(&[("writers", writers)]))
    };
    let over_disk = |target: &str| {
        book.ratio((writes(target, "1")?, LATENCY), (writes(DISK_FILES, "1")?, LATENCY))
    };
    let gained =
        |target: &str| book.ratio((writes(target, "8")?, RATE), (writes(target, "1")?, RATE));
    vec![
        at_most(1.5, over_disk(EXT4)).named(
            "durable write of 4 KiB to ext4 on an attached journal volume, over the disk's",
            "journal, ext4, to disk",
        ),
        at_most(1.5, over_disk(ATTACHED)).named(
            "durable write of 4 KiB to an attached journal volume, over the disk's",
            "journal, attached, to disk",
        ),
        at_least(3.0, gained(ATTACHED)).named(
            "8 writers on an attached journal volume, durable writes over one's",
            "8 writers",
        ),
        at_least(3.0, gained(EACH_FLUSHED)).named(
            "8 writers on an attached journal volume that flushes each write, durable writes over \
             one's",
            "8 writers, each flushed",
        ),
        at_least(3.0, gained(NBD)).named(
            "8 writers on a journal volume over NBD, durable writes over one's",
            "8 over NBD",
        ),
    ]
}

fn image_bars(book: &Book, groups: &[Group]) -> Vec<Bar> {
    let of = |case: &str, target: &str| {
        newest(groups, |group| group.case() == case && group.target() == target)
    };
    let over_disk =
        |case: &str| book.ratio((of(case, VOLUME)?, BYTES_PER_S), (of(case, DISK)?, BYTES_PER_S));
    let estimate = |case: &str, figure: &str| book.estimate(of(case, VOLUME)?, figure);
    vec![
        at_least(0.7, over_disk("image save"))
            .named("an image saved, bytes per second over the disk's", "image save, to disk"),
        at_least(0.7, over_disk("image restore"))
            .named("an image restored, bytes per second over the disk's", "image restore, to disk"),
        at_most(
            0.03,
            estimate("image save after 1 % of blocks changed", "figures/bytes_of_full_image_share"),
        )
        .named("an image after 1 % of blocks changed, bytes of the full image", "image after 1 %")
        .shown_as(Format::Percent),
        at_most(1e9, estimate("first read after the loss of memory", "figures/first_read_ns"))
            .named(
                "first read after the loss of memory, from the start of the daemon",
                "first read after loss",
            )
            .shown_as(Format::Micros),
    ]
}

fn snapshot_bars(book: &Book, groups: &[Group]) -> Vec<Bar> {
    const P999: &str = "latency/p999";
    let over_none = |target: &str| {
        let of =
            |case: &str| newest(groups, |group| group.case() == case && group.target() == target);
        let with = of("overwrite 4096 rand, a snapshot each second")?;
        book.ratio((with, P999), (of("overwrite 4096 rand")?, P999))
    };
    let names = [
        (
            "volume embedded",
            "p99.9 of 4 KiB overwrites with a snapshot each second, over without, embedded",
            "snapshots, embedded",
        ),
        ("volume attached", "the same on an attached volume", "snapshots, attached"),
        ("volume NBD", "the same over NBD", "snapshots, NBD"),
    ];
    names.map(|(target, what, short)| at_most(3.0, over_none(target)).named(what, short)).into()
}
