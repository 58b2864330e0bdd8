//! Results of a case: for programs, people and records.

use anyhow::Result;
use results::{Io, LatencyKind, Row, StoreUse, Suite};
use serde::Serialize;
use serde_json::{Value, json};

use super::meter::{Meter, Spent, latencies};
use super::setup::Idling;
use crate::case::{Case, Op, Pattern};
use crate::clock;
use crate::latency::Latencies;
use crate::pace::Paced;

/// A case's figures, as printed with `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) op: Op,
    pub(crate) block_bytes: usize,
    pub(crate) pattern: Pattern,
    pub(crate) data: &'static str,
    pub(crate) threads: usize,
    /// Mean duration of a request, as seen by its thread.
    pub(crate) ns_mean: f64,
    pub(crate) ns_p50: u64,
    pub(crate) ns_p99: u64,
    pub(crate) ns_p999: u64,
    pub(crate) ns_p9999: u64,
    pub(crate) ns_max: u64,
    /// Combined rate of all threads.
    pub(crate) bytes_per_s: f64,
    /// Floor: a copy of the same size and order on bare memory by one thread.
    pub(crate) floor_ns_mean: f64,
    /// The same with as many concurrent threads as the case, if several.
    pub(crate) floor_threads_ns_mean: Option<f64>,
    /// The same with decoding of one page per 4 KiB, for reads of compressible data.
    pub(crate) floor_decode_ns_mean: Option<f64>,
    /// Ratio to the floor with the same number of threads.
    pub(crate) ratio_to_floor: f64,
    pub(crate) ratio_to_decode_floor: Option<f64>,
    /// Mean of a single thread in the same run, if the case has several.
    pub(crate) alone_ns_mean: Option<f64>,
    /// Scaling of the engine relative to that of the floor. 1 means equal.
    pub(crate) scaling_to_floor: Option<f64>,
    /// Cycles of the time stamp counter, if available.
    pub(crate) cycles_per_4kib: Option<f64>,
    /// Background work of the engine between rounds, per request.
    pub(crate) background_ns_mean: f64,
    /// Ratio of written bytes to memory used, after at most ten idle seconds.
    pub(crate) reduction: f64,
    /// Reduction of the same pages by LZ4 level 1, individually and without deduplication.
    pub(crate) lz4_reduction: Option<f64>,
    /// Duration of the engine's background work after the volume was filled.
    pub(crate) idle_s_to_reduction: f64,
    /// Load of the open loop as a share of the maximum rate, and latencies measured from when
    /// requests were due.
    pub(crate) load: Option<f64>,
    pub(crate) load_rate_per_s: Option<f64>,
    pub(crate) intended_ns_p50: Option<u64>,
    pub(crate) intended_ns_p99: Option<u64>,
    pub(crate) intended_ns_p999: Option<u64>,
    pub(crate) intended_ns_max: Option<u64>,
    /// Latencies of the same requests measured from when they were sent.
    pub(crate) load_service_ns_p50: Option<u64>,
    pub(crate) load_service_ns_p999: Option<u64>,
    pub(crate) load_kept_up: Option<bool>,
    #[serde(skip)]
    rounds: Vec<f64>,
    #[serde(skip)]
    latencies: Latencies,
}

/// Results of an open loop.
#[derive(Clone, Debug)]
pub(crate) struct LoadFigures {
    pub(crate) load: f64,
    /// Combined rate of all threads.
    pub(crate) rate_per_s: f64,
    pub(crate) paced: Paced,
}

impl Figures {
    pub(crate) fn new(
        case: &Case,
        meters: &[Meter],
        idling: Idling,
        lz4_reduction: Option<f64>,
    ) -> Self {
        let mean = |part: fn(&Meter) -> Spent| Spent::sum(meters.iter().map(part)).mean();
        let ns_mean = mean(|meter| meter.engine).unwrap_or(f64::NAN);
        let floor_ns_mean = mean(|meter| meter.floor).unwrap_or(f64::NAN);
        let floor_threads_ns_mean = mean(|meter| meter.floor_together);
        let alone_ns_mean = mean(|meter| meter.engine_alone);
        let scaling = alone_ns_mean.zip(floor_threads_ns_mean);
        let scaling_to_floor = scaling
            .map(|(alone, floor_threads)| (alone / ns_mean) / (floor_ns_mean / floor_threads));
        let floor_decode_ns_mean = mean(|meter| meter.floor_decode);
        let latencies = latencies(meters);
        let pages = case.block_bytes as f64 / 4096.0;
        let cycles = |hz: u64| ns_mean * hz as f64 / 1e9 / pages;
        Self {
            op: case.op,
            block_bytes: case.block_bytes,
            pattern: case.pattern,
            data: case.data.name(),
            threads: case.threads,
            ns_mean,
            ns_p50: latencies.quantile(0.5),
            ns_p99: latencies.quantile(0.99),
            ns_p999: latencies.quantile(0.999),
            ns_p9999: latencies.quantile(0.9999),
            ns_max: latencies.max(),
            bytes_per_s: case.block_bytes as f64 * 1e9 / ns_mean * case.threads as f64,
            floor_ns_mean,
            floor_threads_ns_mean,
            floor_decode_ns_mean,
            ratio_to_floor: ns_mean / floor_threads_ns_mean.unwrap_or(floor_ns_mean),
            ratio_to_decode_floor: floor_decode_ns_mean.map(|floor| ns_mean / floor),
            alone_ns_mean,
            scaling_to_floor,
            cycles_per_4kib: clock::tsc_hz().map(cycles),
            background_ns_mean: 0.0,
            reduction: idling.reduction,
            lz4_reduction,
            idle_s_to_reduction: idling.seconds,
            load: None,
            load_rate_per_s: None,
            intended_ns_p50: None,
            intended_ns_p99: None,
            intended_ns_p999: None,
            intended_ns_max: None,
            load_service_ns_p50: None,
            load_service_ns_p999: None,
            load_kept_up: None,
            rounds: Vec::new(),
            latencies,
        }
    }

    /// Adds measurements made between and after the rounds.
    pub(crate) fn with(
        mut self,
        background: Spent,
        rounds: Vec<f64>,
        load: Option<LoadFigures>,
    ) -> Self {
        self.background_ns_mean = background.mean().unwrap_or(0.0);
        self.rounds = rounds;
        if let Some(LoadFigures { load, rate_per_s, paced }) = load {
            self.load = Some(load);
            self.load_rate_per_s = Some(rate_per_s);
            self.intended_ns_p50 = Some(paced.intended.quantile(0.5));
            self.intended_ns_p99 = Some(paced.intended.quantile(0.99));
            self.intended_ns_p999 = Some(paced.intended.quantile(0.999));
            self.intended_ns_max = Some(paced.intended.max());
            self.load_service_ns_p50 = Some(paced.service.quantile(0.5));
            self.load_service_ns_p999 = Some(paced.service.quantile(0.999));
            self.load_kept_up = Some(paced.kept_up);
        }
        self
    }

    /// Returns the row for the record.
    pub(crate) fn recorded(&self, case: &Case, working_bytes: u64, repeat: u32) -> Result<Row> {
        let mut row = Row::new(Suite::Engine, case.name(), "engine");
        row.repeat = repeat;
        let params = json!({
            "op": self.op,
            "block_bytes": self.block_bytes,
            "pattern": self.pattern,
            "data": self.data,
            "threads": self.threads,
            "working_bytes": working_bytes,
            "preconditioned": self.op != Op::Write,
        });
        if let Value::Object(params) = params {
            row.params = params.into_iter().collect();
        }
        let ops = self.latencies.count();
        let (block_bytes, iops) =
            (self.block_bytes as u64, self.threads as f64 * 1e9 / self.ns_mean);
        let bytes_per_s = self.bytes_per_s;
        row.app = Some(Io { ops, bytes: ops * block_bytes, iops, bytes_per_s });
        row.store = (self.op != Op::Discard).then(|| StoreUse {
            written_bytes: working_bytes,
            used_bytes: whole(working_bytes as f64 / self.reduction),
        });
        row.latency = Some(self.latencies.recorded(LatencyKind::Service)?);
        row.rounds.clone_from(&self.rounds);
        if self.load_kept_up == Some(false) {
            row.flag("the open loop could not keep up");
        }
        // Every printed number that is not a parameter.
        let Value::Object(printed) = serde_json::to_value(self)? else { return Ok(row) };
        let figures = printed.into_iter().filter(|(name, _)| !row.params.contains_key(name));
        row.figures = figures.filter_map(|(name, it)| Some((name, it.as_f64()?))).collect();
        Ok(row)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes are positive")]
fn whole(bytes: f64) -> u64 {
    bytes as u64
}
