//! A measurement: one repeat of a case on a target.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Kind of question that a measurement answers.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Suite {
    /// The engine in this process, beside copies of bare memory.
    Engine,
    /// Each step of the write and read path by itself.
    Steps,
    /// The ForsaOS matrix: block size, pattern and number of jobs, by fio.
    Forsa,
    /// The Fusion ioMemory matrix: transfer size, queue depth and pattern, by fio.
    Fusion,
    /// The AMPS test: batches of messages appended and read.
    Log,
    /// How much smaller data gets.
    Reduction,
    /// The same jobs on volumes and on what others offer.
    Peers,
    /// What durability costs: flushes, images, snapshots.
    Durability,
    /// CPU cycles per I/O of applications.
    Cpio,
    /// Order processing derived from TPC-C.
    Tpcc,
    /// Which part of a database gains how much from fast storage.
    Placement,
    /// SQL and live queries over topics, beside PostgreSQL and a consumer.
    Sql,
}

impl Suite {
    /// Name on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Steps => "steps",
            Self::Forsa => "forsa",
            Self::Fusion => "fusion",
            Self::Log => "log",
            Self::Reduction => "reduction",
            Self::Peers => "peers",
            Self::Durability => "durability",
            Self::Cpio => "cpio",
            Self::Tpcc => "tpcc",
            Self::Placement => "placement",
            Self::Sql => "sql",
        }
    }
}

/// One measurement: a case on a target, once. Times are in nanoseconds, sizes in bytes, rates per
/// second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    pub suite: Suite,
    /// Names the case within the suite, the same in every run: `randread 4096 jobs=1 depth=1`.
    pub case: String,
    /// Target that was measured: `volume attached`, `zram lz4`, `floor`.
    pub target: String,
    /// Parameters that the case's name abbreviates: `rw`, `block_bytes`, `jobs`, `queue_depth`,
    /// `data` and others, by name.
    pub params: BTreeMap<String, Value>,
    /// Counted from 0.
    pub repeat: u32,
    pub validity: Validity,
    /// Remarks on a valid measurement: `generator bound`, `more jobs than cores`.
    pub flags: Vec<String>,
    pub time: Time,
    /// I/O of the application.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub app: Option<Io>,
    /// I/O that reached the block device below.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub device: Option<DeviceIo>,
    /// Memory and storage that the data took.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub store: Option<StoreUse>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu: Option<Cpu>,
    /// Course of latency over the time, one for each kind of operation.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub series: Vec<Series>,
    /// Course of the machine's activity, one for each column of vmstat and for the rate.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub strips: Vec<Strip>,
    /// Share of the time that the load generator spent outside its requests, 0 to 1: see
    /// [`crate::generator_share`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub generator_share: Option<f64>,
    /// The figure that names the case's result ([`Row::headline`]) in pieces of the measurement
    /// that took equally long, in order: whether it was steady shows there.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub rounds: Vec<f64>,
    /// Figures of this suite only, by name with unit: `floor_ns_mean`, `messages_per_s_total`.
    pub figures: BTreeMap<String, f64>,
}

impl Row {
    /// Creates a valid row without figures.
    pub fn new(suite: Suite, case: impl Into<String>, target: impl Into<String>) -> Self {
        Self {
            suite,
            case: case.into(),
            target: target.into(),
            params: BTreeMap::new(),
            repeat: 0,
            validity: Validity::Valid,
            flags: Vec::new(),
            time: Time::default(),
            app: None,
            device: None,
            store: None,
            latency: None,
            cpu: None,
            series: Vec::new(),
            strips: Vec::new(),
            generator_share: None,
            rounds: Vec::new(),
            figures: BTreeMap::new(),
        }
    }

    /// Removes histogram, rounds and time series.
    pub(crate) fn compact(mut self) -> Self {
        self.series.clear();
        self.strips.clear();
        self.rounds.clear();
        if let Some(latency) = &mut self.latency {
            latency.histogram.clear();
        }
        self
    }

    pub fn is_valid(&self) -> bool {
        self.validity == Validity::Valid
    }

    /// Returns whether the row is invalid because of other activity on the machine, not because of
    /// the subject.
    pub fn is_spoiled(&self) -> bool {
        let others = ["other guests", "other programs"];
        matches!(&self.validity, Validity::Invalid(reason)
            if others.iter().any(|it| reason.starts_with(it)))
    }

    /// Returns all figures that can be summarized and compared, by name with unit.
    pub fn measures(&self) -> BTreeMap<String, f64> {
        let mut measures = self.figures.clone();
        if let Some(app) = &self.app {
            measures.insert("iops".to_owned(), app.iops);
            measures.insert("bytes_per_s".to_owned(), app.bytes_per_s);
        }
        if let Some(latency) = &self.latency {
            measures.insert("latency_ns_mean".to_owned(), latency.mean);
            let whole = [
                ("latency_ns_p50", latency.p50),
                ("latency_ns_p99", latency.p99),
                ("latency_ns_p999", latency.p999),
                ("latency_ns_p9999", latency.p9999),
                ("latency_ns_max", latency.max),
            ];
            measures.extend(whole.map(|(name, ns)| (name.to_owned(), ns as f64)));
        }
        measures.retain(|_, figure| figure.is_finite());
        measures
    }

    /// Returns the headline measure: the first of [`HEADLINES`] that the row has.
    pub fn headline(&self) -> Option<(&'static str, f64)> {
        let measures = self.measures();
        HEADLINES.into_iter().find_map(|name| Some((name, *measures.get(name)?)))
    }

    /// Adds parameters, by name.
    pub fn add_params<'a>(&mut self, params: impl IntoIterator<Item = (&'a str, Value)>) {
        self.params.extend(params.into_iter().map(|(name, value)| (name.to_owned(), value)));
    }

    /// Adds figures, by name with unit.
    pub fn add_figures<'a>(&mut self, figures: impl IntoIterator<Item = (&'a str, f64)>) {
        self.figures.extend(figures.into_iter().map(|(name, value)| (name.to_owned(), value)));
    }

    /// Adds a flag unless it is present.
    pub fn flag(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.flags.contains(&text) {
            self.flags.push(text);
        }
    }
}

/// CPU cycles per I/O of 512 bytes: see [`crate::projection`].
pub const CPIO_CYCLES: &str = "cpio_cycles";

/// New orders per minute of the workload derived from TPC-C, as counted by the database.
pub const NOPM: &str = "nopm";

/// Reports per minute, which sort and join in temporary files and tables.
pub const REPORTS_PER_MINUTE: &str = "reports_per_minute";

/// Rate of key lookups by clients.
pub const LOOKUPS_PER_S: &str = "lookups_per_s";

/// Rate of records processed by a query, client or broker.
pub const RECORDS_PER_S: &str = "records_per_s";

/// Memory for current values per key, in addition to the log.
pub const INDEX_BYTES_PER_KEY: &str = "index_bytes_per_key";

/// Time from the start of a server to the first read from it.
pub const FIRST_READ_NS: &str = "first_read_ns";

/// Headline measures, in descending precedence.
pub const HEADLINES: [&str; 13] = [
    "ns_mean",
    NOPM,
    REPORTS_PER_MINUTE,
    LOOKUPS_PER_S,
    RECORDS_PER_S,
    INDEX_BYTES_PER_KEY,
    FIRST_READ_NS,
    "messages_per_s_total",
    "reduction",
    CPIO_CYCLES,
    "latency_ns_mean",
    "iops",
    "bytes_per_s",
];

/// Validity of a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Validity {
    Valid,
    /// It failed or broke a rule of measuring, for this reason. It stays on record.
    Invalid(String),
    /// It was not tried here, for this reason.
    Skipped(String),
}

/// When, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Time {
    pub started_unix_ms: u64,
    /// Before what counts.
    pub ramp_s: f64,
    pub duration_s: f64,
}

/// Requests of the application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Io {
    pub ops: u64,
    pub bytes: u64,
    pub iops: f64,
    pub bytes_per_s: f64,
}

/// Requests at a block device, as the kernel counts them. Sectors have 512 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceIo {
    pub read_requests: u64,
    pub read_sectors: u64,
    pub write_requests: u64,
    pub write_sectors: u64,
    pub flush_requests: u64,
    pub discard_requests: u64,
}

/// Memory and storage that stored data took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoreUse {
    pub written_bytes: u64,
    pub used_bytes: u64,
}

/// Start from which a latency is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LatencyKind {
    /// From the moment a request was sent (closed loop): hides the wait caused by a stall.
    Service,
    /// From the moment a request was due (open loop).
    Intended,
}

/// Durations of requests, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    pub kind: LatencyKind,
    pub mean: f64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p999: u64,
    pub p9999: u64,
    pub max: u64,
    /// Mean time until the kernel had the request, where the generator tells.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub submission_mean: Option<f64>,
    /// Mean time from there to the answer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub completion_mean: Option<f64>,
    /// Pairs of an upper bound and how many requests lie below it and above the previous one.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub histogram: Vec<(u64, u64)>,
}

/// The latency of one kind of operation over the time, slice by slice, in order. Of the kind that
/// the row's latency is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// The kind of operation: `reads`, `appends`.
    pub name: String,
    pub slice_ms: u64,
    pub slices: Vec<Slice>,
}

/// Requests that ended within a slice of the time. Latencies are 0 where nothing did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Slice {
    pub ops: u64,
    pub min: u64,
    pub p50: u64,
    pub max: u64,
}

/// A figure at equal intervals of the time, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Strip {
    /// The figure's name with its unit: `user_share`, `in_bytes_per_s`.
    pub name: String,
    pub interval_ms: u64,
    pub values: Vec<f64>,
}

/// Processor time in seconds, over all cores, while the measurement ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cpu {
    pub user_s: f64,
    pub system_s: f64,
    pub interrupts_s: f64,
    pub steal_s: f64,
    pub idle_s: f64,
    /// Part of it by the load generator's processes.
    pub generator_s: f64,
    /// Part of it by the processes that serve the target; kernel threads are in the rest.
    pub server_s: f64,
}

impl Cpu {
    /// Returns the time that was spent on work of this machine.
    pub fn busy_s(&self) -> f64 {
        self.user_s + self.system_s + self.interrupts_s
    }
}
