//! Thread that scrubs the pool's memory: verifies pages and reports damage.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use volumes::{CopyPlace, DamageReport, Engine};

use crate::config::ScrubConfig;
use crate::events::EventLog;
use crate::ticker::Ticker;

/// Number of scrub steps per second.
const TURNS_A_SECOND: u32 = 4;

/// Minimum interval between the starts of two passes. A small pool need not be scrubbed
/// continuously.
const ROUND_TIME_MIN: Duration = Duration::from_secs(3600);

/// The running thread. Dropping it ends the thread after the current step.
pub(crate) struct Scrubber {
    _ticker: Ticker,
}

impl Scrubber {
    pub(crate) fn start(
        config: &ScrubConfig,
        engine: Arc<Engine>,
        events: Arc<EventLog>,
    ) -> anyhow::Result<Self> {
        engine.set_verify_reads(config.verifies_reads);
        let mut walk = Walk {
            engine,
            events,
            bytes_a_turn: config.bytes_per_second / u64::from(TURNS_A_SECOND),
            is_resting: false,
            round_began: Instant::now(),
        };
        let interval = Duration::from_secs(1) / TURNS_A_SECOND;
        let turn = move || {
            walk.go_on();
            interval
        };
        let ticker =
            Ticker::start("scrub", interval, turn).context("cannot start the scrubber thread")?;
        Ok(Self { _ticker: ticker })
    }
}

struct Walk {
    engine: Arc<Engine>,
    events: Arc<EventLog>,
    /// Zero: no background scrub. Only damage found by readers is reported.
    bytes_a_turn: u64,
    is_resting: bool,
    round_began: Instant,
}

impl Walk {
    fn go_on(&mut self) {
        self.verify_some();
        for report in self.engine.take_damage_reports() {
            tell(&self.events, &report);
        }
    }

    fn verify_some(&mut self) {
        if self.is_resting && self.round_began.elapsed() < ROUND_TIME_MIN {
            return;
        }
        if self.is_resting {
            (self.is_resting, self.round_began) = (false, Instant::now());
        }
        let mut verified_bytes = 0;
        while verified_bytes < self.bytes_a_turn && !self.is_resting {
            let scrubbed = self.engine.scrub();
            // A step without pages also counts, so that the turn ends.
            verified_bytes += scrubbed.bytes.max(4096);
            self.is_resting = scrubbed.is_round;
        }
    }
}

fn tell(events: &EventLog, report: &DamageReport) {
    let DamageReport { volume, block, healed_from } = report;
    if let Some(place) = healed_from {
        let place = match place {
            CopyPlace::Journal => "the journal",
            CopyPlace::Image => "its image",
        };
        let message = format!(
            "memory corruption: repaired block {block} of {volume} from {place}; no data is \
             lost. Check this host's memory (EDAC, memtest)"
        );
        events.warning("memory_healed", Some(volume), message);
    } else {
        let message = format!(
            "memory corruption: block {block} of {volume} is lost; reads of it fail until it is \
             overwritten. Check this host's memory (EDAC, memtest)"
        );
        events.error("memory_damaged", Some(volume), message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_told_by_volume_and_block() {
        let events = EventLog::default();
        for healed_from in [Some(CopyPlace::Journal), Some(CopyPlace::Image), None] {
            tell(&events, &DamageReport { volume: "db".to_owned(), block: 7, healed_from });
        }
        let told = events.after(0);
        let kinds: Vec<_> = told.iter().map(|event| &event.kind[..]).collect();
        assert_eq!(kinds, ["memory_healed", "memory_healed", "memory_damaged"]);
        let causes = ["from the journal", "from its image", "is lost"];
        let is_told = told.iter().zip(causes).all(|(event, cause)| event.message.contains(cause));
        assert!(is_told, "{told:?}");
        assert!(told.iter().all(|event| event.message.contains("block 7 of db")), "{told:?}");
        assert!(told.iter().all(|event| event.volume.as_deref() == Some("db")), "{told:?}");
    }
}
