//! Metrics in Prometheus' text format, in base units. The number of series is limited.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use metrics_text::{Histogram, Kind, Page};
use tls::CertificateFile;

use super::counters::{BOUNDS_SECONDS, Counters, Distribution, Flow, name_of};
use super::state::Operation;
use super::views::{LagView, Totals, ValuesTotals, lags, memory_bytes, open_connections};
use crate::broker::Broker;
use crate::deriving::State;
use crate::live::LiveTotals;
use crate::topics::OpenTopic;

/// Maximum number of partitions with individual series of offsets. Beyond it, sums per topic are
/// exported.
const PARTITION_SERIES_MAX: usize = 1_000;

/// Maximum number of series of lag by group and topic. The rest is exported as one total.
const LAG_SERIES_MAX: usize = 10_000;

/// Writes all metrics.
pub(super) async fn write(operation: &Operation) -> String {
    let mut page = Page::default();
    let version = env!("CARGO_PKG_VERSION");
    let name = "memlane_broker_build_info";
    page.family(name, Kind::Gauge, "Always 1; the version is in the label.");
    page.sample(&[("version", version)], 1);
    let uptime = operation.started.elapsed().as_secs();
    page.gauge("memlane_broker_uptime_seconds", "Time since the broker started.", uptime);
    let is_ready = u8::from(operation.unready().is_none());
    page.gauge("memlane_broker_ready", "1 while /readyz answers 200.", is_ready);
    let is_reached = u8::from(operation.storage_failure().is_none());
    page.gauge(
        "memlane_broker_storage_reachable",
        "1 while the daemon answers and has all volumes.",
        is_reached,
    );
    write_memory(&mut page);
    if let Some(broker) = operation.broker() {
        write_certificates(&mut page, &broker.rules.certificates());
        write_clients(&mut page, &broker);
        write_throttles(&mut page, &broker.counters);
        write_requests(&mut page, &broker.counters);
        let topics = broker.topics.all();
        write_topics(&mut page, &topics);
        write_offsets(&mut page, &topics);
        write_values(&mut page, &topics);
        write_derived(&mut page, &broker.deriving.states());
        write_lags(&mut page, lags(&broker).await.as_deref());
    }
    if let Some(write_sql) = operation.sql() {
        write_sql(&mut page);
        if let Some(broker) = operation.broker() {
            write_live(&mut page, &broker.live.totals());
        }
    }
    page.into_text()
}

/// Expiry of the certificates, if the broker uses TLS.
fn write_certificates(page: &mut Page, certificates: &[CertificateFile]) {
    if certificates.is_empty() {
        return;
    }
    let help = "Time at which a certificate that the broker uses expires, in seconds since 1970.";
    page.family("memlane_broker_certificate_expiry_timestamp_seconds", Kind::Gauge, help);
    for file in certificates {
        let path = file.path.display().to_string();
        if let Some(seconds) = file.expires_unix_seconds() {
            page.sample(&[("used_for", file.used_for), ("file", &path)], seconds);
        }
    }
}

fn write_live(page: &mut Page, totals: &LiveTotals) {
    let help = "Open live queries.";
    page.gauge("memlane_broker_live_queries", help, totals.subscriptions);
    let help = "Rows of live queries waiting to be sent.";
    page.gauge("memlane_broker_live_queued_rows", help, totals.queued_rows);
    let help = "Records read for live queries, each counted once per table.";
    page.counter("memlane_broker_live_records_total", help, totals.records);
    let help = "Rows sent to clients of live queries.";
    page.counter("memlane_broker_live_rows_total", help, totals.rows);
    let help = "Records omitted from a live query because it failed on them.";
    page.counter("memlane_broker_live_failed_records_total", help, totals.failed_records);
    let help = "Waiting changes of live queries replaced by newer ones.";
    page.counter("memlane_broker_live_conflated_total", help, totals.conflated);
}

fn write_memory(page: &mut Page) {
    page.family("memlane_broker_memory_bytes", Kind::Gauge, "Resident memory, by kind.");
    for (kind, field) in [("private", "RssAnon:"), ("shared", "RssShmem:"), ("file", "RssFile:")] {
        if let Some(bytes) = memory_bytes(field) {
            page.sample(&[("kind", kind)], bytes);
        }
    }
}

fn write_clients(page: &mut Page, broker: &Broker) {
    let counters = &broker.counters;
    let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    page.gauge("memlane_broker_connections", "Open connections.", open_connections(broker));
    page.counter(
        "memlane_broker_connections_accepted_total",
        "Connections accepted.",
        read(&counters.connections_accepted),
    );
    page.counter(
        "memlane_broker_connections_refused_total",
        "Connections refused because there were too many.",
        read(&counters.connections_refused),
    );
    page.counter(
        "memlane_broker_throttles_total",
        "Requests that waited because their principal had too many bytes in flight.",
        read(&counters.throttles),
    );
    page.counter(
        "memlane_broker_memory_throttles_total",
        "Requests that waited because all principals together had too many bytes in flight.",
        read(&counters.memory_throttles),
    );
    let (bytes, limit) = broker.rules.quotas.bytes_in_flight();
    let help = "Bytes of requests in flight, of all principals.";
    page.gauge("memlane_broker_requests_in_flight_bytes", help, bytes);
    let help = "Limit of memlane_broker_requests_in_flight_bytes (--request-memory).";
    page.gauge("memlane_broker_requests_in_flight_limit_bytes", help, limit);
    page.counter(
        "memlane_broker_full_pool_refusals_total",
        "Batches refused because the pool was full.",
        read(&counters.full_pool_refusals),
    );
}

fn write_throttles(page: &mut Page, counters: &Counters) {
    let flows = [("produce", Flow::Produce), ("fetch", Flow::Fetch)];
    page.family(
        "memlane_broker_rate_throttles_total",
        Kind::Counter,
        "Responses that throttled a client because its principal exceeded a byte rate.",
    );
    for (request, flow) in flows {
        page.sample(&[("request", request)], counters.throttles(flow).0);
    }
    page.family(
        "memlane_broker_rate_throttle_seconds_total",
        Kind::Counter,
        "Sum of throttle times sent to clients.",
    );
    for (request, flow) in flows {
        page.sample(&[("request", request)], counters.throttles(flow).1);
    }
}

fn write_requests(page: &mut Page, counters: &Counters) {
    page.family("memlane_broker_requests_total", Kind::Counter, "Requests, by kind.");
    for (key, count) in counters.requests() {
        page.sample(&[("request", &format!("{key:?}"))], count);
    }
    page.family(
        "memlane_broker_errors_total",
        Kind::Counter,
        "Errors in responses: one per partition of Produce and Fetch, otherwise one per response.",
    );
    for error in counters.errors() {
        let (request, name) = (format!("{:?}", error.key), name_of(error.code));
        page.sample(&[("request", &request), ("error", &name)], error.count);
    }
    page.family(
        "memlane_broker_request_seconds",
        Kind::Histogram,
        "Time from a request's arrival to its response; for Fetch, including the wait for records.",
    );
    for (request, read) in [("produce", counters.produce()), ("fetch", counters.fetch())] {
        let Distribution { counts, sum_seconds: sum } = read;
        let histogram = Histogram { bounds: &BOUNDS_SECONDS, counts: &counts, sum };
        page.histogram(&[("request", request)], &histogram);
    }
}

fn write_topics(page: &mut Page, topics: &[Arc<OpenTopic>]) {
    type Value = fn(&Totals) -> u64;
    let totals: Vec<_> = topics.iter().map(|topic| (&topic.name, Totals::of(topic))).collect();
    page.gauge("memlane_broker_topics", "Topics.", topics.len());
    let partition_count: usize = topics.iter().map(|topic| topic.partitions().len()).sum();
    page.gauge("memlane_broker_partitions", "Partitions.", partition_count);
    let families: [(&str, Kind, &str, Value); 5] = [
        ("size_bytes", Kind::Gauge, "Size of all record batches.", |it| it.size_bytes),
        ("records_in_total", Kind::Counter, "Records appended.", |it| it.records_in),
        ("bytes_in_total", Kind::Counter, "Bytes of batches appended.", |it| it.bytes_in),
        ("records_out_total", Kind::Counter, "Records fetched.", |it| it.records_out),
        ("bytes_out_total", Kind::Counter, "Bytes of batches fetched.", |it| it.bytes_out),
    ];
    for (name, kind, help, value) in families {
        page.family(&format!("memlane_broker_topic_{name}"), kind, help);
        for (topic, totals) in &totals {
            page.sample(&[("topic", topic)], value(totals));
        }
    }
}

fn write_offsets(page: &mut Page, topics: &[Arc<OpenTopic>]) {
    type Value = fn(&record_log::Partition) -> i64;
    let partition_count: usize = topics.iter().map(|topic| topic.partitions().len()).sum();
    let is_each_shown = partition_count <= PARTITION_SERIES_MAX;
    let families: [(&str, &str, Value); 2] = [
        (
            "start_offset",
            "First offset of a partition; without the label partition, their sum in the topic.",
            |it| it.start_offset(),
        ),
        (
            "end_offset",
            "High watermark of a partition; without the label partition, their sum in the topic.",
            |it| it.stable_offset(),
        ),
    ];
    for (name, help, value) in families {
        page.family(&format!("memlane_broker_topic_{name}"), Kind::Gauge, help);
        for topic in topics {
            let partitions = Arc::clone(&topic.partitions());
            if is_each_shown {
                for it in partitions.iter() {
                    let number = it.log.number().to_string();
                    page.sample(&[("topic", &topic.name), ("partition", &number)], value(&it.log));
                }
            } else {
                let sum: i64 = partitions.iter().map(|it| value(&it.log)).sum();
                page.sample(&[("topic", &topic.name)], sum);
            }
        }
    }
}

/// Writes metrics of current values, as sums over the partitions of a topic.
fn write_values(page: &mut Page, topics: &[Arc<OpenTopic>]) {
    type Value = fn(&ValuesTotals) -> u64;
    let kept = topics.iter().filter(|topic| topic.settings().keeps_values);
    let totals: Vec<_> = kept.map(|topic| (&topic.name, ValuesTotals::of(topic))).collect();
    let families: [(&str, &str, Value); 4] = [
        ("keys", "Keys with a current value.", |it| it.key_count),
        ("index_bytes", "Memory of the index of current values.", |it| it.index_bytes),
        ("lag_offsets", "Committed offsets that are not in the current values yet.", |it| it.lag),
        ("unready_partitions", "Partitions whose current values cannot be read yet.", |it| {
            it.unready
        }),
    ];
    for (name, help, value) in families {
        page.family(&format!("memlane_broker_topic_values_{name}"), Kind::Gauge, help);
        for (topic, totals) in &totals {
            page.sample(&[("topic", topic)], value(totals));
        }
    }
}

/// Writes metrics of derived topics.
fn write_derived(page: &mut Page, states: &[Arc<State>]) {
    type Value = fn(&State) -> u64;
    let families: [(&str, Kind, &str, Value); 5] = [
        (
            "lag_offsets",
            Kind::Gauge,
            "Committed offsets of the source that are not processed yet.",
            |it| it.lag.load(Ordering::Relaxed),
        ),
        ("waits", Kind::Gauge, "1 while the derived topic is blocked.", |it| {
            u64::from(it.waits().is_some())
        }),
        ("records_total", Kind::Counter, "Records appended.", |it| {
            it.records_out.load(Ordering::Relaxed)
        }),
        (
            "skipped_total",
            Kind::Counter,
            "Records omitted because the query failed on them.",
            |it| it.skipped.load(Ordering::Relaxed),
        ),
        (
            "missed_offsets_total",
            Kind::Counter,
            "Offsets deleted before they were processed.",
            |it| it.missed.load(Ordering::Relaxed),
        ),
    ];
    for (name, kind, help, value) in families {
        page.family(&format!("memlane_broker_derived_{name}"), kind, help);
        for state in states {
            let labels =
                [("topic", &*state.name), ("source", &*state.source), ("kind", state.kind)];
            page.sample(&labels, value(state));
        }
    }
}

/// Writes metrics of groups, unless the coordinator does not respond.
fn write_lags(page: &mut Page, groups: Option<&[LagView]>) {
    let name = "memlane_broker_coordinator_answers";
    page.gauge(name, "1 while the group coordinator responds.", u8::from(groups.is_some()));
    let Some(groups) = groups else { return };
    page.gauge("memlane_broker_groups", "Consumer groups.", groups.len());
    let members: usize = groups.iter().map(|group| group.member_count).sum();
    page.gauge("memlane_broker_group_members", "Members of all groups.", members);
    let lags = || {
        groups.iter().flat_map(|group| group.topics.iter().map(move |topic| (&group.group, topic)))
    };
    page.family(
        "memlane_broker_group_lag",
        Kind::Gauge,
        "Difference between the high watermarks of a topic and the committed offsets of a group.",
    );
    for (group, topic) in lags().take(LAG_SERIES_MAX) {
        page.sample(&[("group", group), ("topic", &topic.topic)], topic.lag);
    }
    let total: u64 = lags().map(|(_, topic)| topic.lag).sum();
    page.gauge("memlane_broker_groups_lag", "Sum of the lag of all groups.", total);
}
