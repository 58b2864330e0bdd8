//! Volumes with the highest request rates, from the daemon's metrics.
//!
//! Keeps the previous counts of all volumes.

use std::collections::HashMap;
use std::time::Instant;

use serde::Serialize;

const REQUESTS: &str = "memlane_volume_requests_total{";
const BYTES: [&str; 2] = ["memlane_volume_read_bytes_total{", "memlane_volume_write_bytes_total{"];
const VOLUME: &str = "volume=\"";

/// Maximum length of the list.
const TOLD_MAX: usize = 10;

/// A volume with its rates since the previous sample.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct BusyVolume {
    volume: String,
    requests_per_second: f64,
    bytes_per_second: f64,
}

/// Requests and bytes of a volume since the daemon started.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    requests: f64,
    bytes: f64,
}

/// Counts of the previous sample.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    before: Option<(Instant, HashMap<String, Counts>)>,
}

impl Traffic {
    /// Returns the busiest volumes, busiest first. Empty for the first sample; new volumes are left
    /// out.
    pub(super) fn busiest(
        &mut self,
        samples: &HashMap<&str, f64>,
        now: Instant,
    ) -> Vec<BusyVolume> {
        let mut counts: HashMap<String, Counts> = HashMap::new();
        for (name, count) in samples {
            let Some((kind, volume)) = kind_and_volume(name) else { continue };
            let of = counts.entry(volume.to_owned()).or_default();
            match kind {
                REQUESTS => of.requests += count,
                _ => of.bytes += count,
            }
        }
        let before = self.before.replace((now, counts));
        let (Some((at, before)), Some((_, counts))) = (before, &self.before) else {
            return Vec::new();
        };
        let seconds = now.duration_since(at).as_secs_f64();
        let rates = counts.iter().filter_map(|(volume, now)| {
            let before = before.get(volume)?;
            let requests = now.requests - before.requests;
            let is_busy = seconds > 0.0 && requests > 0.0;
            is_busy.then(|| BusyVolume {
                volume: volume.clone(),
                requests_per_second: requests / seconds,
                bytes_per_second: (now.bytes - before.bytes).max(0.0) / seconds,
            })
        });
        let mut busiest: Vec<_> = rates.collect();
        busiest.sort_by(|a, b| {
            let by_rate = b.requests_per_second.total_cmp(&a.requests_per_second);
            by_rate.then_with(|| a.volume.cmp(&b.volume))
        });
        busiest.truncate(TOLD_MAX);
        busiest
    }
}

/// Returns metric family and volume of a sample. Names contain neither quotes nor commas.
fn kind_and_volume(sample: &str) -> Option<(&'static str, &str)> {
    let kind = [REQUESTS, BYTES[0], BYTES[1]].into_iter().find(|it| sample.starts_with(it))?;
    let labels = sample.strip_prefix(kind)?;
    let volume = labels.split_once(VOLUME)?.1.split_once('"')?.0;
    Some((kind, volume))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::watch::told::Told;

    fn samples(requests: &[(&'static str, f64)]) -> HashMap<&'static str, f64> {
        requests.iter().copied().collect()
    }

    const A_READ: &str = "memlane_volume_requests_total{volume=\"a\",kind=\"read\"}";
    const A_WRITE: &str = "memlane_volume_requests_total{volume=\"a\",kind=\"write\"}";
    const B_READ: &str = "memlane_volume_requests_total{volume=\"b.c-d\",kind=\"read\"}";
    const B_BYTES: &str = "memlane_volume_read_bytes_total{volume=\"b.c-d\"}";
    const QUIET: &str = "memlane_volume_requests_total{volume=\"quiet\",kind=\"read\"}";
    const OTHER: &str = "memlane_volume_size_bytes{volume=\"a\"}";

    #[test]
    fn the_busiest_volumes_come_first_and_quiet_and_new_ones_not_at_all() {
        let (mut traffic, start) = (Traffic::default(), Instant::now());
        let first = samples(&[(A_READ, 5.0), (A_WRITE, 5.0), (QUIET, 9.0), (OTHER, 1.0)]);
        assert!(traffic.busiest(&first, start).is_empty());
        let second = samples(&[(A_READ, 9.0), (A_WRITE, 11.0), (QUIET, 9.0), (B_READ, 70.0)]);
        let of_a =
            BusyVolume { volume: "a".to_owned(), requests_per_second: 5.0, bytes_per_second: 0.0 };
        let later = start + Duration::from_secs(2);
        assert_eq!(traffic.busiest(&second, later), [of_a]);
        let third = samples(&[(A_READ, 10.0), (A_WRITE, 11.0), (B_READ, 90.0), (B_BYTES, 4096.0)]);
        let third = traffic.busiest(&third, later + Duration::from_secs(1));
        let of_b = BusyVolume {
            volume: "b.c-d".to_owned(),
            requests_per_second: 20.0,
            bytes_per_second: 4096.0,
        };
        assert_eq!(third.first(), Some(&of_b));
        assert_eq!(third.get(1).map(|it| it.volume.as_str()), Some("a"));
    }

    #[test]
    fn a_daemon_that_counts_anew_tells_of_nobody_until_there_are_requests() {
        let (mut traffic, start) = (Traffic::default(), Instant::now());
        traffic.busiest(&samples(&[(A_READ, 100.0)]), start);
        let later = start + Duration::from_secs(1);
        assert!(traffic.busiest(&samples(&[(A_READ, 5.0)]), later).is_empty());
    }

    #[test]
    fn few_are_told_of_many_and_are_written_once_until_others_are() {
        let (mut traffic, start) = (Traffic::default(), Instant::now());
        let names: Vec<String> =
            (0..50).map(|it| format!("{REQUESTS}volume=\"v{it}\",kind=\"read\"}}")).collect();
        let at = |count: f64| names.iter().map(|it| (it.as_str(), count)).collect();
        traffic.busiest(&at(1.0), start);
        let busiest = traffic.busiest(&at(2.0), start + Duration::from_secs(1));
        assert_eq!(busiest.len(), TOLD_MAX);
        let told = Told::default();
        assert_eq!(told.written(), "[]");
        told.tell(&busiest[..1]);
        let one = "[{\"volume\":\"v0\",\"requests_per_second\":1.0,\"bytes_per_second\":0.0}]";
        assert_eq!(told.written(), one);
        let (first, second) = (told.written(), told.written());
        assert_eq!(first.as_ptr(), second.as_ptr(), "for all who ask");
    }
}
