//! Bars on the cost of an I/O.

use results::Suite;

use super::{Bar, at_most, newest};
use crate::book::Book;

const CASE: &str = "fio cores=1";
const VOLUME: &str = "volume attached + ext4";
const CYCLES: &str = "figures/cpio_cycles";

/// Description, short name, peer, and maximum ratio of the volume's cycles to the peer's.
const BARS: [(&str, &str, &str, f64); 2] = [
    (
        "cycles per I/O, 4 KiB random reads and writes on one core, attached, over loop's",
        "cycles per I/O, to loop",
        "loop over tmpfs + ext4",
        1.0,
    ),
    (
        "cycles per I/O, 4 KiB random reads and writes on one core, attached, over zram's",
        "cycles per I/O, to zram",
        "zram lz4 + ext4",
        1.5,
    ),
];

pub(super) fn bars(book: &Book) -> Vec<Bar> {
    let groups = book.groups(Suite::Cpio);
    let bar = |(what, short, peer, limit): (&'static str, &'static str, &str, f64)| {
        let of = newest(&groups, |it| it.case() == CASE && it.target() == VOLUME);
        let to = of.and_then(|of| {
            newest(&groups, |it| it.run() == of.run() && it.case() == CASE && it.target() == peer)
        });
        let measured = of.zip(to).and_then(|(of, to)| book.ratio((of, CYCLES), (to, CYCLES)));
        at_most(limit, measured).named(what, short)
    };
    BARS.map(bar).into()
}
