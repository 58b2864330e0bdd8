//! Conversion of log measurements to rows.

use results::{Io, Latency, Row, Series, Suite};
use serde_json::json;

use super::delivery::Delivery;
use super::drive::{Load, Loop, Measured, Sync};
use super::fan_out::{Consumed, FanOut};
use super::message::{BATCH_BYTES, BATCH_MESSAGES, MESSAGE_BYTES};
use super::meter::{Meter, SLICE};

/// Minimum share of the requested rate for the medium to keep up.
const RATE_SHARE_MIN: f64 = 0.95;

/// Figure used by the bars on the papers.
pub(crate) const MESSAGES_TOTAL: &str = "messages_per_s_total";
pub(crate) const MESSAGES_READ: &str = "messages_per_s_read";
pub(crate) const MESSAGES_WRITE: &str = "messages_per_s_write";
pub(crate) const DELIVERY_NS: &str = "delivery_ns_";
pub(crate) const CONSUMED: &str = "consumed_bytes_per_s";
pub(crate) const CONSUMED_LEAST: &str = "consumed_bytes_per_s_least";
pub(crate) const CONSUMED_MOST: &str = "consumed_bytes_per_s_most";
pub(crate) const RATIO_TO_APPENDS: &str = "total_ratio_to_100_0";

/// Parameters of a row besides the load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About<'a> {
    pub(crate) target: &'a str,
    pub(crate) log_bytes: u64,
    pub(crate) repeat: u32,
    /// Percentage of the maximum rate, if the rate is given.
    pub(crate) rate_percent: Option<u32>,
}

/// Creates a row. Its latency is that of all operations, from when they were due if the load is
/// paced. Latencies per kind and service times are figures.
pub(crate) fn row(about: About<'_>, load: &Load, measured: &Measured) -> Row {
    let pace = about.rate_percent.map_or("closed".to_owned(), |it| format!("open {it}%"));
    let case = format!("{} threads={} {pace}", load.mix, load.thread_count());
    let mut row = Row::new(Suite::Log, case, about.target);
    row.repeat = about.repeat;
    let all = measured.all();
    let (operations, operations_per_s) = (all.operations(), all.operations_per_s());
    row.app = Some(Io {
        ops: operations,
        bytes: operations * BATCH_BYTES as u64,
        iops: operations_per_s,
        bytes_per_s: operations_per_s * BATCH_BYTES as f64,
    });
    row.time.ramp_s = load.ramp.as_secs_f64();
    row.time.duration_s = load.duration.as_secs_f64();
    row.latency = all.intended().or(all.service());
    row.generator_share = Some(match measured.in_flight {
        1 => all.generator_share(),
        _ => all.generator_share_of(load.thread_count()),
    });
    let pieces = all.operations_per_s_in_pieces();
    row.rounds = pieces.into_iter().map(|it| it * BATCH_MESSAGES as f64).collect();
    for (name, meter) in [("reads", &measured.reads), ("appends", &measured.appends)] {
        if meter.operations() > 0 {
            let slice_ms = u64::try_from(SLICE.as_millis()).expect("a short time");
            row.series.push(Series { name: name.to_owned(), slice_ms, slices: meter.slices() });
        }
    }
    add_params(&mut row, about, load);
    row.params.insert("in_flight".to_owned(), json!(measured.in_flight));
    add_figures(&mut row, measured, &all);
    add_flags(&mut row, load, &all);
    row
}

/// Creates a row for the latency of messages to a consumer.
pub(crate) fn delivery_row(target: &str, delivery: Delivery, meter: &Meter) -> Row {
    let Delivery { messages_per_s, ramp, duration } = delivery;
    let case = format!("delivery {messages_per_s}/s");
    let mut row = Row::new(Suite::Log, case, target);
    let (operations, operations_per_s) = (meter.operations(), meter.operations_per_s());
    row.app = Some(Io {
        ops: operations,
        bytes: operations * MESSAGE_BYTES as u64,
        iops: operations_per_s,
        bytes_per_s: operations_per_s * MESSAGE_BYTES as f64,
    });
    row.time.ramp_s = ramp.as_secs_f64();
    row.time.duration_s = duration.as_secs_f64();
    row.latency = meter.intended();
    if let Some(latency) = &row.latency {
        for (percentile, ns) in percentiles(latency) {
            row.figures.insert(format!("{DELIVERY_NS}{percentile}"), ns);
        }
    }
    row.add_params([
        ("op", json!("delivery")),
        ("messages_per_s", json!(messages_per_s)),
        ("message_bytes", json!(MESSAGE_BYTES)),
    ]);
    if operations_per_s < f64::from(messages_per_s) * RATE_SHARE_MIN {
        row.flag("the target did not keep up with the rate");
    }
    row
}

/// Creates a row for concurrent consumers.
pub(crate) fn fan_out_row(target: &str, fan_out: FanOut, consumed: Consumed) -> Row {
    let FanOut { consumers, ramp, duration } = fan_out;
    let mut row = Row::new(Suite::Log, format!("consumers={consumers}"), target);
    let per_s = |bytes: u64| bytes as f64 / duration.as_secs_f64();
    let ops = consumed.bytes / MESSAGE_BYTES as u64;
    row.app = Some(Io {
        ops,
        bytes: consumed.bytes,
        iops: per_s(ops),
        bytes_per_s: per_s(consumed.bytes),
    });
    row.time.ramp_s = ramp.as_secs_f64();
    row.time.duration_s = duration.as_secs_f64();
    let figures = [
        (CONSUMED, consumed.bytes),
        (CONSUMED_LEAST, consumed.least_bytes),
        (CONSUMED_MOST, consumed.most_bytes),
    ];
    row.figures.extend(figures.map(|(name, bytes)| (name.to_owned(), per_s(bytes))));
    row.add_params([("op", json!("consume")), ("consumers", json!(consumers))]);
    row
}

fn add_params(row: &mut Row, about: About<'_>, load: &Load) {
    row.add_params([
        ("mix", json!(load.mix.to_string())),
        ("reads_percent", json!(load.mix.reads_percent())),
        ("threads", json!(load.thread_count())),
        ("loop", json!(if about.rate_percent.is_some() { "open" } else { "closed" })),
        ("rate_percent", json!(about.rate_percent)),
        ("message_bytes", json!(MESSAGE_BYTES)),
        ("block_bytes", json!(BATCH_BYTES)),
        ("op", json!(if load.mix.has_reads() { "read and append" } else { "append" })),
        ("working_bytes", json!(about.log_bytes)),
        // A log is filled before it is measured.
        ("preconditioned", json!(true)),
        ("data", json!(load.data.name())),
        ("sync", json!(load.sync == Sync::EachAppend)),
    ]);
}

fn add_figures(row: &mut Row, measured: &Measured, all: &Meter) {
    let messages = |meter: &Meter| meter.operations_per_s() * BATCH_MESSAGES as f64;
    let mut add = |name: &str, value: f64| row.figures.insert(name.to_owned(), value);
    add(MESSAGES_READ, messages(&measured.reads));
    add(MESSAGES_WRITE, messages(&measured.appends));
    add(MESSAGES_TOTAL, messages(all));
    add("reads_share", measured.reads.operations() as f64 / (all.operations() as f64).max(1.0));
    add("waiting_share", all.waiting_share());
    for (name, meter) in [("all", all), ("read", &measured.reads), ("append", &measured.appends)] {
        let kinds = [("service", meter.service()), ("intended", meter.intended())];
        for (kind, latency) in kinds {
            let Some(latency) = latency else { continue };
            for (percentile, ns) in percentiles(&latency) {
                add(&format!("{name}_{kind}_ns_{percentile}"), ns);
            }
            let ratio = latency.p999 as f64 / (latency.p50 as f64).max(1.0);
            add(&format!("{name}_{kind}_p999_to_p50"), ratio);
        }
    }
}

fn percentiles(latency: &Latency) -> [(&'static str, f64); 7] {
    [
        ("mean", latency.mean),
        ("p50", latency.p50 as f64),
        ("p90", latency.p90 as f64),
        ("p99", latency.p99 as f64),
        ("p999", latency.p999 as f64),
        ("p9999", latency.p9999 as f64),
        ("max", latency.max as f64),
    ]
}

fn add_flags(row: &mut Row, load: &Load, all: &Meter) {
    if let Loop::Open { operations_per_s } = load.pacing {
        row.figures.insert("asked_operations_per_s".to_owned(), operations_per_s);
        if all.operations_per_s() < operations_per_s * RATE_SHARE_MIN {
            row.flag("the target did not keep up with the rate");
        }
    }
}
