//! Samples the daemon's metrics every second, and records them for charts.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::MissedTickBehavior;

use crate::backend::Backend;
use crate::clock::unix_seconds;
use crate::exchange::Asked;
use crate::watch::busiest::Traffic;
use crate::watch::history::History;
use crate::watch::latencies::Latencies;
use crate::watch::told::Told;
use crate::watch::volumes::VolumeHistory;

const INTERVAL: Duration = Duration::from_secs(1);
/// Interval of storing the history, in seconds. A killed console loses that much. The file grows to
/// some megabytes.
const STORED_EVERY: u32 = 10 * 60;

/// Gauges and their series. All samples of a metric are added up.
const GAUGES: &[(&str, &str)] = &[
    ("memlane_pool_used_bytes", "pool_used_bytes"),
    ("memlane_pool_written_bytes", "pool_written_bytes"),
];

/// Counters whose rate becomes a series. Several counters may share a series.
const COUNTERS: &[(&str, &str)] = &[
    ("memlane_nbd_requests_total{kind=\"read\"}", "read_iops"),
    ("memlane_ring_requests_total{kind=\"read\"}", "read_iops"),
    ("memlane_vhost_user_requests_total{kind=\"read\"}", "read_iops"),
    ("memlane_device_requests_total{kind=\"read\"}", "read_iops"),
    ("memlane_nbd_requests_total{kind=\"write\"}", "write_iops"),
    ("memlane_ring_requests_total{kind=\"write\"}", "write_iops"),
    ("memlane_vhost_user_requests_total{kind=\"write\"}", "write_iops"),
    ("memlane_device_requests_total{kind=\"write\"}", "write_iops"),
    ("memlane_nbd_read_bytes_total", "read_bytes_per_second"),
    ("memlane_ring_read_bytes_total", "read_bytes_per_second"),
    ("memlane_vhost_user_read_bytes_total", "read_bytes_per_second"),
    ("memlane_device_read_bytes_total", "read_bytes_per_second"),
    ("memlane_nbd_written_bytes_total", "write_bytes_per_second"),
    ("memlane_ring_written_bytes_total", "write_bytes_per_second"),
    ("memlane_vhost_user_written_bytes_total", "write_bytes_per_second"),
    ("memlane_device_written_bytes_total", "write_bytes_per_second"),
];

/// State of the previous sample.
#[derive(Debug, Default)]
struct Before {
    at: Option<Instant>,
    counts: HashMap<&'static str, f64>,
    latencies: Latencies,
    traffic: Traffic,
}

/// Runs as long as the console.
pub(crate) async fn record(
    daemon: Arc<Backend>,
    history: Arc<History>,
    busiest: Arc<Told>,
    volumes: Arc<VolumeHistory>,
) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = Before::default();
    for count in 1_u32.. {
        ticks.tick().await;
        match daemon.ask(Asked::get(api::METRICS_PATH)).await {
            Ok(answer) if answer.status.is_success() => {
                let text = String::from_utf8_lossy(&answer.body);
                let (samples, now) = (samples_of(&text), Instant::now());
                history.add(unix_seconds(), &before.figures(&samples, now));
                busiest.tell(&before.traffic.busiest(&samples, now));
                if volumes.is_due(now) {
                    // Request and byte rates are recorded even if latencies are unavailable.
                    let latencies = daemon.get(api::LATENCIES_PATH).await.unwrap_or_default();
                    volumes.look(unix_seconds(), &samples, latencies, now);
                }
            }
            // After a restart of the daemon, counters start anew.
            _ => {
                before = Before::default();
                volumes.interrupt();
            }
        }
        if count % STORED_EVERY == 0 {
            let history = Arc::clone(&history);
            let stored = tokio::task::spawn_blocking(move || history.store()).await;
            if let Ok(Err(error)) = stored {
                tracing::warn!(%error, "cannot store the history");
            }
        }
    }
}

impl Before {
    fn figures(&mut self, found: &HashMap<&str, f64>, now: Instant) -> Vec<(String, f64)> {
        let family = |name: &str| name.split('{').next().map(str::to_owned);
        let mut figures = Vec::new();
        for (metric, series) in GAUGES {
            let samples = found.iter().filter(|(name, _)| family(name).as_deref() == Some(metric));
            let samples: Vec<f64> = samples.map(|(_, figure)| *figure).collect();
            if !samples.is_empty() {
                figures.push(((*series).to_owned(), samples.iter().sum()));
            }
        }
        figures.extend(reduction(&figures));
        figures.extend(self.latencies.figures(found));
        let seconds = self.at.map(|at| now.duration_since(at).as_secs_f64());
        self.at = Some(now);
        for (metric, series) in COUNTERS {
            let Some(&count) = found.get(metric) else { continue };
            let before = self.counts.insert(metric, count);
            let (Some(before), Some(seconds)) = (before, seconds.filter(|it| *it > 0.0)) else {
                continue;
            };
            let rate = (count - before).max(0.0) / seconds;
            match figures.iter_mut().find(|(name, _)| name == series) {
                Some((_, sum)) => *sum += rate,
                None => figures.push(((*series).to_owned(), rate)),
            }
        }
        figures
    }
}

/// Parses the daemon's metrics: values by name and labels.
fn samples_of(text: &str) -> HashMap<&str, f64> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '))
        .filter_map(|(name, figure)| Some((name, figure.parse().ok()?)))
        .collect()
}

/// Returns written bytes per used byte, if anything was written.
fn reduction(figures: &[(String, f64)]) -> Option<(String, f64)> {
    let of = |name: &str| figures.iter().find(|it| it.0 == name).map(|it| it.1);
    let (written, used) = (of("pool_written_bytes")?, of("pool_used_bytes")?);
    (written > 0.0 && used > 0.0).then(|| ("reduction_ratio".to_owned(), written / used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_become_rates_and_exports_are_added() {
        let mut before = Before::default();
        let text = |reads: u32| {
            format!(
                "# TYPE memlane_nbd_requests_total counter\n\
                 memlane_nbd_requests_total{{kind=\"read\"}} {reads}\n\
                 memlane_ring_requests_total{{kind=\"read\"}} {}\n\
                 memlane_pool_used_bytes{{what=\"pages\"}} 4000\n\
                 memlane_pool_used_bytes{{what=\"maps\"}} 96\n",
                reads * 2
            )
        };
        let start = Instant::now();
        let used = ("pool_used_bytes".to_owned(), 4096.0);
        assert_eq!(before.figures(&samples_of(&text(100)), start), std::slice::from_ref(&used));
        let later = before.figures(&samples_of(&text(150)), start + Duration::from_secs(2));
        assert_eq!(later, [used, ("read_iops".to_owned(), 75.0)]);
    }

    #[test]
    fn reduction_is_what_was_written_for_what_it_takes() {
        let text = |written: u32| {
            format!("memlane_pool_used_bytes 50\nmemlane_pool_written_bytes {written}\n")
        };
        let figures =
            |written| Before::default().figures(&samples_of(&text(written)), Instant::now());
        assert_eq!(figures(125).last(), Some(&("reduction_ratio".to_owned(), 2.5)));
        assert!(figures(0).iter().all(|(name, _)| name != "reduction_ratio"));
    }

    #[test]
    fn a_daemon_that_counts_anew_gives_no_negative_rate() {
        let mut before = Before::default();
        let start = Instant::now();
        before.figures(&samples_of("memlane_nbd_read_bytes_total 100"), start);
        let later = before.figures(&samples_of("memlane_nbd_read_bytes_total 5"), start + INTERVAL);
        assert_eq!(later, [("read_bytes_per_second".to_owned(), 0.0)]);
    }
}
