//! Jobs measured on both Memlane and its peers, by use case.

use results::Suite;

use super::{estimated, has_interval, table};
use crate::bars::{AWAKE_SUFFIX, newest};
use crate::book::Book;
use crate::chart::{Bar, Bars, OTHER_SERIES, OWN_SERIES};
use crate::figure::{Estimated, Format};
use crate::group::Group;

/// Figure by which a job is judged.
#[derive(Clone, Copy)]
pub(super) struct Measure {
    path: &'static str,
    format: Format,
    /// Unit of a count. Other formats have their own.
    unit: &'static str,
    is_more_better: bool,
    /// Words for better and worse.
    words: (&'static str, &'static str),
}

const SPEED: (&str, &str) = ("faster", "slower");

const LATENCY: Measure = Measure {
    path: "latency/mean",
    format: Format::Micros,
    unit: "",
    is_more_better: false,
    words: SPEED,
};
const IOPS: Measure = rate("app/iops", "IOPS");
const CYCLES: Measure = Measure {
    path: "figures/cpio_cycles",
    format: Format::Count,
    unit: "cycles per 512 bytes",
    is_more_better: false,
    words: ("fewer", "more"),
};
const MEMORY: Measure = Measure {
    path: "figures/used_bytes",
    format: Format::Mebibytes,
    unit: "",
    is_more_better: false,
    words: ("less", "more"),
};
const RECORDS: Measure = rate("figures/records_per_s", "records/s");
const LOOKUPS: Measure = rate("figures/lookups_per_s", "lookups/s");
const MESSAGES: Measure = rate("figures/messages_per_s_total", "records/s");
const TRANSACTIONS: Measure = rate("figures/transactions_per_s", "transactions/s");
const FIRST_READ: Measure =
    Measure { path: "figures/first_read_ns", format: Format::Millis, ..LATENCY };

const fn rate(path: &'static str, unit: &'static str) -> Measure {
    Measure { path, format: Format::Count, unit, is_more_better: true, words: SPEED }
}

impl Measure {
    fn text(self, estimate: &Estimated) -> String {
        let text = self.format.text_with_unit(estimate.value());
        if self.unit.is_empty() { text } else { format!("{text} {}", self.unit) }
    }

    fn hint(self) -> &'static str {
        if self.is_more_better { "higher is better" } else { "lower is better" }
    }
}

/// A job, and the alternatives to Memlane for it.
struct Use {
    place: &'static str,
    job: &'static str,
    suite: Suite,
    /// Cases of our target and of the peers. Empty if parameters select them.
    cases: (&'static str, &'static str),
    params: &'static [(&'static str, &'static str)],
    own: &'static str,
    peers: &'static [&'static str],
    measure: Measure,
    /// Advice if a peer is better.
    advice: &'static str,
    /// Weakest durability of acknowledged data with Memlane and its peers, for suites whose rows do
    /// not state it: `kill` or `power loss`.
    survive: (&'static str, &'static str),
}

const DEPTH_1: &str = "randread 4096 jobs=1 depth=1";
const DEPTH_16: &str = "randread 4096 jobs=1 depth=16";
const LONG: &str = "randread 131072 jobs=1 depth=1";
const WRITER: &str = "durable write 4096 writers=1";
const WRITERS: &str = "durable write 4096 writers=8";
const LOOKUP: &str = "current value by key";
const EQUALITY: &str = "scan, equality that 0.1 % pass";
const HALF: &str = "scan, range that 50 % pass";
const GROUPS: &str = "groups, count and sum by symbol";
const FOLLOW: &str = "follow over a filled log, all records";
const FOLLOW_1: &str = "follow over a filled log, 1 % pass";
const FOLLOW_100: &str = "follow over a filled log, 100 % pass";
const PROGRAMS: &str = "programs and libraries";

const ATTACHED: &str = "volume attached";
const EACH_FLUSHED: &str = "journal volume attached, each write flushed";
const RUN: &str = "volume, memlane run";
const VHOST: &str = "volume vhost-user-blk";
const NBD: &str = "volume NBD";
const BROKER: &str = "memlane-broker";
const POSTGRESQL: &[&str] = &["PostgreSQL"];
const CONSUMER: &[&str] = &["Kafka consumer of memlane-broker"];
const DEVICES: &[&str] = &["zram lz4", "loop over tmpfs"];
const QEMU_DISKS: &[&str] = &[
    "QEMU vhost-user-blk over tmpfs",
    "QEMU vhost-user-blk, iothread, over tmpfs",
    "QEMU vhost-user-blk, iothread, io_uring, over tmpfs",
];
const NBD_SERVERS: &[&str] =
    &["nbdkit memory", "qemu-nbd over tmpfs", "QEMU NBD export over tmpfs"];

const USES: [Use; 21] = [
    used("block device", "4 KiB random read, one in flight", Suite::Peers, DEPTH_1)
        .by(ATTACHED, DEVICES, LATENCY)
        .otherwise("Start the program with `memlane run`, or use a kernel with ublk."),
    used("block device", "4 KiB random read, 16 in flight", Suite::Peers, DEPTH_16)
        .by(ATTACHED, DEVICES, IOPS)
        .otherwise("Start the program with `memlane run`, or use a kernel with ublk."),
    used(
        "block device",
        "PostgreSQL on ext4, pgbench, 4 clients",
        Suite::Peers,
        "pgbench clients=4",
    )
    .by("volume attached + ext4", &["zram lz4 + ext4"], TRANSACTIONS)
    .surviving("kill", "–")
    .otherwise("zram loses its data with the machine, and has no snapshots and no journal."),
    used(
        "durable block device",
        "4 KiB written and flushed, one writer",
        Suite::Durability,
        WRITER,
    )
    .by("journal volume attached", &["files on the disk"], LATENCY)
    .surviving("power loss", "power loss")
    .otherwise("A journal adds to each flush of its disk; put it on a faster disk."),
    used(
        "durable block device",
        "4 KiB written and flushed, 8 writers",
        Suite::Durability,
        WRITERS,
    )
    .by(EACH_FLUSHED, &["files on the disk"], IOPS)
    .surviving("power loss", "power loss")
    .otherwise("A journal adds to each flush of its disk; put it on a faster disk."),
    used("unchanged program", "4 KiB random read, one in flight", Suite::Peers, DEPTH_1)
        .by(RUN, &["zram lz4", "tmpfs file", "loop over tmpfs"], LATENCY)
        .otherwise("Use tmpfs if its data need not survive a kill, shrink, or be shared."),
    used("unchanged program", "4 KiB random read, 16 in flight", Suite::Peers, DEPTH_16)
        .by(RUN, &["zram lz4", "tmpfs file", "loop over tmpfs"], IOPS)
        .otherwise("Use tmpfs if its data need not survive a kill, shrink, or be shared."),
    used("unchanged program", "128 KiB random read, one in flight", Suite::Peers, LONG)
        .by(RUN, &["tmpfs file"], LATENCY)
        .otherwise("Use tmpfs for long reads of data that need not survive or shrink."),
    used(
        "unchanged program",
        "CPU of 4 KiB reads and writes, one core",
        Suite::Cpio,
        "fio cores=1",
    )
    .by(RUN, &["zram lz4 + ext4", "loop over tmpfs + ext4"], CYCLES)
    .otherwise("zram works within the caller's system call."),
    used("disk of a virtual machine", "4 KiB random read, one in flight", Suite::Peers, DEPTH_1)
        .by(VHOST, QEMU_DISKS, LATENCY),
    used("disk of a virtual machine", "4 KiB random read, 16 in flight", Suite::Peers, DEPTH_16)
        .by(VHOST, QEMU_DISKS, IOPS),
    used("NBD", "4 KiB random read, one in flight", Suite::Peers, DEPTH_1).by(
        NBD,
        NBD_SERVERS,
        LATENCY,
    ),
    used("NBD", "4 KiB random read, 16 in flight", Suite::Peers, DEPTH_16).by(
        NBD,
        NBD_SERVERS,
        IOPS,
    ),
    used("message log", "records of 512 bytes, 128 a request", Suite::Log, "")
        .with(&[("mix", "100/0"), ("loop", "closed"), ("threads", "1"), ("sync", "false")])
        .by("memlane-broker embedded", &["apache kafka"], MESSAGES)
        .surviving("kill", "kill"),
    used("message log", "records of 512 bytes, each request flushed", Suite::Log, "")
        .with(&[("mix", "100/0"), ("loop", "closed"), ("threads", "1"), ("sync", "true")])
        .by("memlane-broker embedded", &["apache kafka"], MESSAGES)
        .surviving("power loss", "power loss"),
    used("SQL", "current value of a key, 4 clients", Suite::Sql, LOOKUP)
        .by(BROKER, POSTGRESQL, LOOKUPS)
        .surviving("kill", "power loss"),
    used("SQL", "JSON scan, equality that 0.1 % pass", Suite::Sql, EQUALITY)
        .by(BROKER, POSTGRESQL, RECORDS)
        .surviving("kill", "power loss")
        .otherwise("An index in PostgreSQL answers what is asked often."),
    used("SQL", "JSON scan, range that 50 % pass", Suite::Sql, HALF)
        .by(BROKER, POSTGRESQL, RECORDS)
        .surviving("kill", "power loss")
        .otherwise("PostgreSQL parsed the JSON when it was stored."),
    used("live query", "filled log, 1 % of the records pass", Suite::Sql, FOLLOW_1)
        .by("live query of memlane-broker", CONSUMER, RECORDS)
        .against(FOLLOW)
        .surviving("kill", "kill")
        .otherwise("A consumer gets batches unchanged; a live query parses each record's JSON."),
    used("memory", "programs and libraries of Debian", Suite::Reduction, PROGRAMS)
        .by(ATTACHED, &["zram lz4"], MEMORY)
        .surviving("kill", "–")
        .otherwise("zram stores each page by itself and has no index."),
    used("start", "first read after a loss of memory", Suite::Durability, LOSS)
        .by("volume of class image", &[], FIRST_READ)
        .surviving("power loss", "–"),
];

const LOSS: &str = "first read after the loss of memory";

const fn used(place: &'static str, job: &'static str, suite: Suite, case: &'static str) -> Use {
    let cases = (case, case);
    Use {
        place,
        job,
        suite,
        cases,
        own: "",
        params: &[],
        peers: &[],
        measure: LATENCY,
        advice: "",
        survive: ("–", "–"),
    }
}

impl Use {
    const fn by(self, own: &'static str, peers: &'static [&'static str], measure: Measure) -> Self {
        Self { own, peers, measure, ..self }
    }

    const fn with(self, params: &'static [(&'static str, &'static str)]) -> Self {
        Self { params, ..self }
    }

    const fn against(self, case: &'static str) -> Self {
        Self { cases: (self.cases.0, case), ..self }
    }

    const fn surviving(self, own: &'static str, peers: &'static str) -> Self {
        Self { survive: (own, peers), ..self }
    }

    const fn otherwise(self, advice: &'static str) -> Self {
        Self { advice, ..self }
    }
}

/// A measured job.
pub(super) struct Measured {
    used: &'static Use,
    own: Estimated,
    own_survives: String,
    peer: Option<Peer>,
}

struct Peer {
    name: String,
    figure: Estimated,
    survives: String,
    /// Ratio by which Memlane is better.
    gain: Estimated,
    /// Ratio by which the peer is better.
    loss: Estimated,
}

/// Returns all measured jobs in the order of the table.
pub(super) fn measured(book: &Book) -> Vec<Measured> {
    USES.iter().filter_map(|used| measure(book, used)).collect()
}

/// Returns use cases without a measured job, in the order of the table.
pub(super) fn missing(measured: &[Measured]) -> Vec<&'static str> {
    let is_missing = |place: &&str| measured.iter().all(|it| it.used.place != *place);
    let mut places: Vec<_> = USES.iter().map(|used| used.place).filter(is_missing).collect();
    places.dedup();
    places
}

fn measure(book: &Book, used: &'static Use) -> Option<Measured> {
    let groups = book.groups(used.suite);
    let is_case =
        |it: &Group, case: &str| (case.is_empty() || it.case() == case) && it.has(used.params);
    let own = newest(&groups, |it| is_case(it, used.cases.0) && it.target() == used.own)?;
    let figure = book.estimate(own, used.measure.path)?;
    // Volumes keep cores awake under load, so a peer may do so too if it helps.
    let is_peer = |group: &&Group| {
        let name = group.target().trim_end_matches(AWAKE_SUFFIX);
        group.run() == own.run() && is_case(group, used.cases.1) && used.peers.contains(&name)
    };
    let peers = groups.iter().filter(is_peer).filter_map(|group| {
        let figure = book.estimate(group, used.measure.path)?;
        Some((group, figure))
    });
    let best = peers.max_by(|(_, one), (_, other)| {
        let order = one.value().total_cmp(&other.value());
        if used.measure.is_more_better { order } else { order.reverse() }
    });
    let peer = best.and_then(|(group, figure)| peer(book, used, own, (group, figure)));
    let own_survives = survives(own, used.survive.0);
    Some(Measured { used, own: figure, own_survives, peer })
}

fn peer(
    book: &Book,
    used: &Use,
    own: &Group,
    (group, figure): (&Group, Estimated),
) -> Option<Peer> {
    let path = used.measure.path;
    let own_over = book.ratio((own, path), (group, path))?;
    let peer_over = book.ratio((group, path), (own, path))?;
    let (gain, loss) = match used.measure.is_more_better {
        true => (own_over, peer_over),
        false => (peer_over, own_over),
    };
    let survives = survives(group, used.survive.1);
    Some(Peer { name: group.target().to_owned(), figure, survives, gain, loss })
}

/// Returns the durability of acknowledged data according to the rows, or `otherwise`.
fn survives(group: &Group, otherwise: &str) -> String {
    let Some(words) = group.word("durability") else { return otherwise.to_owned() };
    let kill = match words {
        words if words.starts_with("survives kill -9") => "kill",
        words if words.starts_with("no server") => "–",
        _ => "nothing",
    };
    match words.ends_with("survives power loss") {
        true => "power loss".to_owned(),
        false => kill.to_owned(),
    }
}

impl Measured {
    /// Returns whether the peer is better.
    fn is_loss(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.gain.value() < 1.0)
    }

    fn verdict(&self) -> String {
        let Some(peer) = &self.peer else { return "–".to_owned() };
        let (better, worse) = self.used.measure.words;
        let (factor, words) =
            if peer.gain.value() >= 1.0 { (&peer.gain, better) } else { (&peer.loss, worse) };
        let text = format!("{} {words}", estimated(factor, Format::Ratio));
        match peer.gain.ends() {
            (low, high) if !has_interval(&peer.gain) || (low <= 1.0 && high >= 1.0) => {
                format!("{text}, not decided")
            }
            (low, _) if low > 1.0 => format!("**{text}**"),
            _ => text,
        }
    }

    fn line(&self) -> Vec<String> {
        let none = || "–".to_owned();
        let of_peer = |text: &dyn Fn(&Peer) -> String| self.peer.as_ref().map_or_else(none, text);
        vec![
            self.used.place.to_owned(),
            self.used.job.to_owned(),
            self.used.measure.text(&self.own),
            of_peer(&|peer| format!("{}: {}", peer.name, self.used.measure.text(&peer.figure))),
            self.verdict(),
            format!("{}; {}", self.own_survives, of_peer(&|it| it.survives.clone())),
        ]
    }
}

/// Returns the table by use case.
pub(super) fn compared(measured: &[Measured]) -> String {
    let columns = ["use", "job", "Memlane", "best peer", "Memlane is", "survives: Memlane; peer"];
    let lines: Vec<Vec<String>> = measured.iter().map(Measured::line).collect();
    table(&columns, &lines)
}

/// Returns a line for each job at which a peer is better.
pub(super) fn lost(measured: &[Measured]) -> Vec<String> {
    let line = |it: &Measured| {
        let peer = it.peer.as_ref()?;
        let factor = Format::Ratio.text_with_unit(peer.loss.value());
        let (better, _) = it.used.measure.words;
        let Use { place, job, advice, .. } = it.used;
        let line = format!("{place}, {job}: {}, {factor} {better}. {advice}", peer.name);
        Some(line.trim_end().to_owned())
    };
    measured.iter().filter(|it| it.is_loss()).filter_map(line).collect()
}

/// A picture: bars of one figure on several targets.
struct Chart {
    file: &'static str,
    title: &'static str,
    suite: Suite,
    /// Cases with their headings.
    cases: &'static [(&'static str, &'static str)],
    targets: &'static [&'static str],
    measure: Measure,
}

const CHARTS: [Chart; 8] = [
    Chart {
        file: "block-devices.svg",
        title: "4 KiB random read, one in flight, mean latency",
        suite: Suite::Peers,
        cases: &[(DEPTH_1, "")],
        targets: &[RUN, ATTACHED, "zram lz4", "tmpfs file", "loop over tmpfs"],
        measure: LATENCY,
    },
    Chart {
        file: "virtual-machines.svg",
        title: "Disk of a virtual machine, 4 KiB random read, mean latency",
        suite: Suite::Peers,
        cases: &[(DEPTH_1, "")],
        targets: &[VHOST, QEMU_DISKS[0], QEMU_DISKS[1], QEMU_DISKS[2]],
        measure: LATENCY,
    },
    Chart {
        file: "nbd.svg",
        title: "NBD over a Unix socket, 4 KiB random read",
        suite: Suite::Peers,
        cases: &[(DEPTH_16, "16 in flight")],
        targets: &[NBD, NBD_SERVERS[0], NBD_SERVERS[1], NBD_SERVERS[2]],
        measure: IOPS,
    },
    Chart {
        file: "cycles.svg",
        title: "CPU cycles per 512 bytes, 4 KiB reads and writes on one core",
        suite: Suite::Cpio,
        cases: &[("fio cores=1", "")],
        targets: &[RUN, "volume attached + ext4", "zram lz4 + ext4", "loop over tmpfs + ext4"],
        measure: CYCLES,
    },
    Chart {
        file: "durable-writes.svg",
        title: "4 KiB writes, each flushed to disk",
        suite: Suite::Durability,
        cases: &[(WRITER, "one writer"), (WRITERS, "8 writers")],
        targets: &[
            "journal volume attached",
            EACH_FLUSHED,
            "journal volume NBD",
            "files on the disk",
        ],
        measure: IOPS,
    },
    Chart {
        file: "sql.svg",
        title: "SQL over JSON records of 300 bytes, one core for each server",
        suite: Suite::Sql,
        cases: &[
            (EQUALITY, "equality that 0.1 % pass"),
            (HALF, "range that 50 % pass"),
            (GROUPS, "count and sum by symbol"),
        ],
        targets: &[BROKER, POSTGRESQL[0]],
        measure: RECORDS,
    },
    Chart {
        file: "live-queries.svg",
        title: "Live query and Kafka consumer over a filled log",
        suite: Suite::Sql,
        cases: &[
            (FOLLOW, "all records"),
            (FOLLOW_1, "1 % of the records pass"),
            (FOLLOW_100, "all records pass"),
        ],
        targets: &["live query of memlane-broker", CONSUMER[0]],
        measure: RECORDS,
    },
    Chart {
        file: "memory.svg",
        title: "Memory that stored data takes",
        suite: Suite::Reduction,
        cases: &[
            (PROGRAMS, PROGRAMS),
            ("made-up pages", "pages of databases, text, code and logs"),
        ],
        targets: &[ATTACHED, "zram lz4"],
        measure: MEMORY,
    },
];

/// Returns file names, titles and contents of the pictures of measured data.
pub(super) fn pictures(book: &Book) -> Vec<(&'static str, String, String)> {
    CHARTS.iter().filter_map(|chart| chart.picture(book)).collect()
}

impl Chart {
    fn picture(&self, book: &Book) -> Option<(&'static str, String, String)> {
        let groups = book.groups(self.suite);
        let bar = |(case, heading): &(&str, &str), target: &str| {
            let group = newest(&groups, |it| it.case() == *case && it.target() == target)?;
            let estimate = book.estimate(group, self.measure.path)?;
            let is_own = ["volume", "journal volume", "memlane", "live query"]
                .iter()
                .any(|name| target.starts_with(name));
            let bar = Bar::new(*heading, target, estimate);
            Some(Bar { series: if is_own { OWN_SERIES } else { OTHER_SERIES }, ..bar })
        };
        let bars: Vec<Bar> = self
            .cases
            .iter()
            .flat_map(|case| self.targets.iter().filter_map(move |target| bar(case, target)))
            .collect();
        let has_peer = bars.iter().any(|bar| bar.series == OTHER_SERIES);
        if !has_peer {
            return None;
        }
        let hint = self.measure.hint();
        let Measure { format, unit, .. } = self.measure;
        let scale = format.hint(hint);
        let caption = match unit {
            "" => format!("{}: {scale}", self.title),
            unit => format!("{}: {unit}, {scale}", self.title),
        };
        let picture = Bars::new(self.title, hint, format, bars).picture();
        Some((self.file, caption, picture))
    }
}
