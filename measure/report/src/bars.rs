//! Performance goals of the project ("bars"): a figure of one run with a bound.

mod cpio;
mod durability;
mod placement;
mod sql;
mod tpcc;

use results::{Estimate, Suite};

use crate::book::Book;
use crate::figure::{Estimated, Format};
use crate::group::Group;

/// Suffix of targets measured with the cores kept awake.
pub(crate) const AWAKE_SUFFIX: &str = " (cores kept awake)";

/// Bound of a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// Maximum absolute value of a difference.
    Within(f64),
}

/// A goal with its measurement.
pub(crate) struct Bar {
    pub(crate) what: &'static str,
    /// Short description for charts.
    pub(crate) short: &'static str,
    pub(crate) bound: Bound,
    pub(crate) format: Format,
    pub(crate) measured: Option<Estimated>,
}

/// Verdict of a measurement on its bar.
pub(crate) struct Verdict {
    /// `None` if undecided.
    pub(crate) is_met: Option<bool>,
    pub(crate) text: &'static str,
}

impl Bar {
    fn named(self, what: &'static str, short: &'static str) -> Self {
        Self { what, short, ..self }
    }

    fn shown_as(self, format: Format) -> Self {
        Self { format, ..self }
    }

    /// Returns the verdict. A bar is decided only if the whole interval is on one side of it, and
    /// never by a smoke test.
    pub(crate) fn verdict(&self, book: &Book) -> Option<Verdict> {
        let estimate = self.measured.as_ref()?;
        let (low, high) = estimate.ends();
        let holds = [low, estimate.value(), high].map(|value| self.bound.holds(value));
        let is_smoke_test = book.manifests.iter().any(|run| run.profile == "quick");
        let (is_met, text) = match holds {
            [_, true, _] if is_smoke_test => (None, "met, smoke test"),
            [_, false, _] if is_smoke_test => (None, "missed, smoke test"),
            [_, true, _] if estimate.interval.is_none() => (None, "met, one repeat or two"),
            [_, false, _] if estimate.interval.is_none() => (None, "missed, one repeat or two"),
            [true, true, true] => (Some(true), "met"),
            [false, false, false] => (Some(false), "missed"),
            [_, true, _] => (None, "met, not decided"),
            [_, false, _] => (None, "missed, not decided"),
        };
        Some(Verdict { is_met, text })
    }
}

impl Bound {
    pub(crate) fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::Within(limit) => value.abs() <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }

    pub(crate) fn words(self, format: Format) -> String {
        let limit = format.chosen_text(self.limit());
        match self {
            Self::AtMost(_) => format!("at most {limit}"),
            Self::Within(_) => format!("within ±{limit}"),
            Self::AtLeast(_) => format!("at least {limit}"),
        }
    }

    fn limit(self) -> f64 {
        match self {
            Self::AtMost(limit) | Self::AtLeast(limit) | Self::Within(limit) => limit,
        }
    }

    /// Returns the value relative to the bound. The bound holds up to 1.
    pub(crate) fn share_taken(self, value: f64) -> f64 {
        match self {
            Self::AtMost(limit) => value / limit,
            Self::Within(limit) => value.abs() / limit,
            Self::AtLeast(limit) => limit / value,
        }
    }
}

/// Returns all bars in the order of the layers, including unmeasured ones.
pub(crate) fn judge(book: &Book) -> Vec<Bar> {
    let mut bars = engine_bars(book);
    bars.extend(engine_pair_bars(book));
    bars.extend(export_bars(book));
    bars.extend(whole_bars(book));
    bars.extend(durability::bars(book));
    bars.extend(cpio::bars(book));
    bars.extend(tpcc::bars(book));
    bars.extend(placement::bars(book));
    bars.extend(sql::bars(book));
    bars
}

/// Bar on an engine operation's time relative to its floor: operation, block size and maximum
/// multiple. Bars on throughput are the inverse.
struct FloorBar {
    what: &'static str,
    short: &'static str,
    op: &'static str,
    block_bytes: &'static str,
    bound: Bound,
}

const FLOOR_BARS: [FloorBar; 4] = [
    floor_bar("read", "4096", Bound::AtMost(1.3))
        .named("4 KiB random read, time over the memcpy floor's", "engine 4K read"),
    floor_bar("read", "131072", Bound::AtLeast(0.75))
        .named("128 KiB read, bytes per second over memcpy's", "engine 128K read"),
    floor_bar("overwrite", "131072", Bound::AtLeast(0.35)).named(
        "128 KiB write of fresh random data, bytes per second over memcpy's",
        "engine 128K write",
    ),
    floor_bar("overwrite", "4096", Bound::AtMost(1.8)).named(
        "4 KiB random overwrite, fresh random data, time over the memcpy store floor's",
        "engine 4K overwrite",
    ),
];

const fn floor_bar(op: &'static str, block_bytes: &'static str, bound: Bound) -> FloorBar {
    FloorBar { what: "", short: "", op, block_bytes, bound }
}

impl FloorBar {
    const fn named(self, what: &'static str, short: &'static str) -> Self {
        Self { what, short, ..self }
    }

    fn is_of(&self, group: &Group) -> bool {
        group.has(&engine_case(self.op, self.block_bytes, "random", "1"))
    }

    /// Returns the maximum multiple of the floor.
    fn floors_max(&self) -> f64 {
        match self.bound {
            Bound::AtMost(limit) | Bound::Within(limit) => limit,
            Bound::AtLeast(limit) => 1.0 / limit,
        }
    }
}

const NS: &str = "figures/ns_mean";
const FLOOR_NS: &str = "figures/floor_ns_mean";

/// Returns the maximum multiple of its floor for an engine case, if a bar defines it.
pub(crate) fn floors_max(group: &Group) -> Option<f64> {
    FLOOR_BARS.iter().find(|bar| bar.is_of(group)).map(FloorBar::floors_max)
}

fn engine_case<'text>(
    op: &'text str,
    block_bytes: &'text str,
    data: &'text str,
    threads: &'text str,
) -> [(&'text str, &'text str); 5] {
    [
        ("op", op),
        ("block_bytes", block_bytes),
        ("pattern", "rand"),
        ("data", data),
        ("threads", threads),
    ]
}

fn engine_bars(book: &Book) -> Vec<Bar> {
    let groups = book.groups(Suite::Engine);
    let measured = |bar: &FloorBar| {
        let group = newest(&groups, |group| bar.is_of(group))?;
        match bar.bound {
            Bound::AtMost(_) | Bound::Within(_) => book.estimate(group, "figures/ratio_to_floor"),
            Bound::AtLeast(_) => book.ratio((group, FLOOR_NS), (group, NS)),
        }
    };
    let judged = |it: &FloorBar| bar(it.bound, measured(it)).named(it.what, it.short);
    FLOOR_BARS.iter().map(judged).collect()
}

/// Returns bars that compare engine cases with each other or with their own floors.
fn engine_pair_bars(book: &Book) -> Vec<Bar> {
    let groups = book.groups(Suite::Engine);
    let case = |op: &str, data: &str, threads: &str| {
        newest(&groups, |group| group.has(&engine_case(op, "4096", data, threads)))
    };
    let within = |group: Option<&Group>, of: &str, to: &str| {
        let group = group?;
        book.ratio((group, of), (group, to))
    };
    let over_random = |data: &str| {
        let (of, to) = (case("overwrite", data, "1")?, case("overwrite", "random", "1")?);
        book.ratio((of, NS), (to, NS))
    };
    let half_load = newest(&groups, |group| {
        group.has(&engine_case("overwrite", "4096", "random", "1"))
            && group.first().number("figures/load") == Some(0.5)
    });
    let scaling = |op: &str| book.estimate(case(op, "random", "2")?, "figures/scaling_to_floor");
    let compressible = case("overwrite", "compressible", "1");
    vec![
        at_most(1.3, over_random("compressible")).named(
            "overwrite of compressible data, over random data",
            "engine compressible to random",
        ),
        at_least(1.0, within(compressible, "figures/reduction", "figures/lz4_reduction")).named(
            "reduction of compressible data within 10 s of idling, over LZ4 level 1's",
            "engine reduction, to LZ4",
        ),
        at_most(1.3, over_random("duplicate"))
            .named("overwrite of duplicates, over random data", "engine duplicates to random"),
        at_most(
            1.15,
            within(case("read", "compressible", "1"), NS, "figures/floor_decode_ns_mean"),
        )
        .named(
            "4 KiB random read of compressed pages, over decoding and the memcpy floor",
            "engine read of compressed pages",
        ),
        at_least(0.9, scaling("read"))
            .named("two threads reading, of the floor's own scaling", "engine read, two threads"),
        at_least(0.9, scaling("overwrite")).named(
            "two threads writing, of the floor's own scaling",
            "engine overwrite, two threads",
        ),
        at_most(10.0, within(half_load, "figures/intended_ns_p999", "figures/intended_ns_p50"))
            .named(
                "p99.9 of a 4 KiB overwrite at 50 % load, over the median",
                "engine p99.9 at half load",
            ),
    ]
}

/// Bar relative to a peer: the same 4 KiB job on a volume and on the peer.
struct PeerBar {
    what: &'static str,
    short: &'static str,
    volume: &'static str,
    peer: &'static str,
    rw: &'static str,
    depth: &'static str,
    bound: Bound,
}

const LATENCY: &str = "latency/mean";
const ATTACHED: &str = "volume attached";
const FUSE_FILE: &str = "volume FUSE file";
const NBD: &str = "volume NBD";
const VHOST_USER: &str = "volume vhost-user-blk";

const PEER_BARS: [PeerBar; 7] = [
    peer_bar((ATTACHED, "loop over tmpfs"), ("randread", "1"), Bound::AtMost(0.5)).named(
        "attached device, 4 KiB random read at depth 1, mean latency over loop's",
        "attached 4K read, to loop",
    ),
    peer_bar((ATTACHED, "loop over tmpfs"), ("randwrite", "1"), Bound::AtMost(0.6)).named(
        "attached device, 4 KiB random write at depth 1, mean latency over loop's",
        "attached 4K write, to loop",
    ),
    peer_bar((FUSE_FILE, "QEMU FUSE export over tmpfs"), ("randread", "1"), Bound::AtMost(0.2))
        .named(
            "FUSE file, 4 KiB random read at depth 1, mean latency over QEMU's FUSE export",
            "FUSE file 4K read, to QEMU FUSE",
        ),
    peer_bar((NBD, "nbdkit memory"), ("randread", "1"), Bound::AtMost(0.4)).named(
        "NBD over a Unix socket at depth 1, mean latency over nbdkit's",
        "NBD depth 1, to nbdkit",
    ),
    peer_bar((NBD, "qemu-nbd over tmpfs"), ("randread", "1"), Bound::AtMost(0.4)).named(
        "NBD over a Unix socket at depth 1, mean latency over qemu-nbd's",
        "NBD depth 1, to qemu-nbd",
    ),
    peer_bar((NBD, "nbdkit memory"), ("randread", "16"), Bound::AtLeast(2.0))
        .named("NBD at depth 16, operations per second over nbdkit's", "NBD depth 16, to nbdkit"),
    peer_bar((NBD, "qemu-nbd over tmpfs"), ("randread", "16"), Bound::AtLeast(2.0)).named(
        "NBD at depth 16, operations per second over qemu-nbd's",
        "NBD depth 16, to qemu-nbd",
    ),
];

const fn peer_bar(
    (volume, peer): (&'static str, &'static str),
    (rw, depth): (&'static str, &'static str),
    bound: Bound,
) -> PeerBar {
    PeerBar { what: "", short: "", volume, peer, rw, depth, bound }
}

impl PeerBar {
    const fn named(self, what: &'static str, short: &'static str) -> Self {
        Self { what, short, ..self }
    }

    fn is_of(&self, target: &str, group: &Group) -> bool {
        let job = [("rw", self.rw), ("block_bytes", "4096"), ("queue_depth", self.depth)];
        group.target() == target && group.has(&job) && group.has(&[("jobs", "1")])
    }

    /// Returns a cost for comparing peers. Lower is better.
    fn cost(&self, group: &Group) -> f64 {
        let values: Vec<f64> =
            group.entries.iter().filter_map(|entry| entry.number(self.path())).collect();
        let median = Estimate::new(&values).map_or(f64::NAN, |estimate| estimate.median);
        match self.bound {
            Bound::AtMost(_) | Bound::Within(_) => median,
            Bound::AtLeast(_) => -median,
        }
    }

    /// Returns the path of the bounded figure.
    fn path(&self) -> &'static str {
        match self.bound {
            Bound::AtMost(_) | Bound::Within(_) => LATENCY,
            Bound::AtLeast(_) => "app/iops",
        }
    }
}

/// Returns the volume with the same access path as this target, which is the reference of ratios.
pub(crate) fn volume_like(target: &str) -> &'static str {
    match target {
        target if target.contains("FUSE") => FUSE_FILE,
        target if target.contains("vhost-user") => VHOST_USER,
        target if target.contains("NBD") || target.contains("nbd") => NBD,
        _ => ATTACHED,
    }
}

/// Returns the minimum ratio of a peer's latency to the volume's, if a bar defines it.
pub(crate) fn latency_times_min(peer: &Group) -> Option<f64> {
    PEER_BARS.iter().find(|bar| bar.is_of(bar.peer, peer)).and_then(|bar| match bar.bound {
        Bound::AtMost(limit) => Some(1.0 / limit),
        Bound::AtLeast(_) | Bound::Within(_) => None,
    })
}

fn export_bars(book: &Book) -> Vec<Bar> {
    let groups = book.groups(Suite::Peers);
    let measured = |bar: &PeerBar| {
        let of = newest(&groups, |group| bar.is_of(bar.volume, group))?;
        let peers = [bar.peer.to_owned(), format!("{}{AWAKE_SUFFIX}", bar.peer)].map(|peer| {
            newest(&groups, |group| group.run() == of.run() && bar.is_of(&peer, group))
        });
        // Volumes keep cores awake under load, so the peer may do so too if it helps.
        let to = peers.into_iter().flatten().min_by(|one, other| {
            let values = [one, other].map(|peer| bar.cost(peer));
            values[0].total_cmp(&values[1])
        })?;
        book.ratio((of, bar.path()), (to, bar.path()))
    };
    let judged = |it: &PeerBar| bar(it.bound, measured(it)).named(it.what, it.short);
    PEER_BARS.iter().map(judged).collect()
}

fn whole_bars(book: &Book) -> Vec<Bar> {
    let logs = book.groups(Suite::Log);
    let mixed = newest(&logs, |group| {
        group.target() == "volume embedded" && group.has(&[("mix", "80/20"), ("loop", "closed")])
    });
    let of_log = |path: &str| book.estimate(mixed?, path);
    let peers = book.groups(Suite::Peers);
    let transactions = || {
        let job = [("op", "pgbench"), ("clients", "4")];
        let on = |target: &str| {
            newest(&peers, |group| group.target().starts_with(target) && group.has(&job))
        };
        let path = "figures/transactions_per_s";
        book.ratio((on(ATTACHED)?, path), (on("zram")?, path))
    };
    let idle = newest(&peers, |group| group.case() == "idle with 8 volumes attached");
    vec![
        at_least(0.87, of_log("figures/total_ratio_to_100_0")).named(
            "log with 80 % reads, messages per second over appends alone",
            "log 80/20 to 100/0",
        ),
        at_most(5.0, of_log("figures/all_service_p999_to_p50"))
            .named("the same log, p99.9 over the median", "log p99.9 to median"),
        at_least(1.0, transactions())
            .named("pgbench with 4 clients, transactions over zram's", "pgbench, to zram + ext4"),
        at_most(0.92, memory(book))
            .named("programs and libraries, memory used over zram lz4's", "memory used, to zram"),
        at_most(0.5, idle.and_then(|group| book.estimate(group, "figures/idle_core_percent")))
            .named("processor time of 8 idle attached volumes, of one core", "8 idle volumes")
            .shown_as(Format::Points),
    ]
}

/// Returns the memory of a fully reduced volume relative to zram's, for the same data.
fn memory(book: &Book) -> Option<Estimated> {
    let groups = book.groups(Suite::Reduction);
    let data = [("data", "programs and libraries")];
    let volume = newest(&groups, |group| {
        group.target() == ATTACHED && group.has(&data) && group.has(&[("reduction", "full")])
    })?;
    let zram = newest(&groups, |group| {
        group.run() == volume.run() && group.target() == "zram lz4" && group.has(&data)
    })?;
    book.ratio((volume, "store/used_bytes"), (zram, "store/used_bytes"))
}

/// Creates an unnamed bar on a ratio.
fn bar(bound: Bound, measured: Option<Estimated>) -> Bar {
    Bar { what: "", short: "", bound, format: Format::Ratio, measured }
}

fn at_most(limit: f64, measured: Option<Estimated>) -> Bar {
    bar(Bound::AtMost(limit), measured)
}

fn at_least(limit: f64, measured: Option<Estimated>) -> Bar {
    bar(Bound::AtLeast(limit), measured)
}

/// Returns the matching group of the newest run.
pub(crate) fn newest<'groups, 'book>(
    groups: &'groups [Group<'book>],
    is_it: impl Fn(&Group<'book>) -> bool,
) -> Option<&'groups Group<'book>> {
    groups.iter().rev().find(|group| is_it(group))
}
