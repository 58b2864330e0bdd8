//! Latencies of requests to volumes, in types of the API.

use api::{Latency, Problem, VolumeLatencies};
use volumes::Volume;

use crate::exports::{BOUNDS_US, Timed, TimesSeen};
use crate::service::Service;

impl Service {
    /// Lists the volumes with timed requests, by name.
    pub(crate) fn list_latencies(&self) -> Vec<VolumeLatencies> {
        let volumes = self.engine.volumes();
        let timed = volumes.iter().filter_map(|volume| {
            let times = self.catalog.metered(volume.id())?.times()?;
            Some(of_volume(volume, &times))
        });
        timed.collect()
    }

    pub(crate) fn show_latencies(&self, name: &str) -> Result<VolumeLatencies, Problem> {
        let volume = self.volume(name)?;
        let times = self.catalog.metered(volume.id()).and_then(|metered| metered.times());
        Ok(of_volume(&volume, &times.unwrap_or_default()))
    }
}

fn of_volume(volume: &Volume, times: &[TimesSeen; Timed::ALL.len()]) -> VolumeLatencies {
    let of = |timed: Timed| {
        let TimesSeen { counts, sum_ns, max_ns } = &times[timed as usize];
        Latency::of(&BOUNDS_US, counts, *sum_ns, *max_ns)
    };
    VolumeLatencies {
        volume: volume.name(),
        id: volume.id(),
        bounds_us: BOUNDS_US.to_vec(),
        reads: of(Timed::Read),
        writes: of(Timed::Write),
        flushes: of(Timed::Flush),
    }
}
