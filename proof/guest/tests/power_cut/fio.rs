//! fio as a writer, which itself verifies its synced writes after the power failure.
//!
//! Each life uses a separate part of the volume, never written before, so that all data in it is of
//! this life. fio periodically reports the number of its synced writes. That many blocks must be
//! present from the beginning of the part on.

use anyhow::{Context, Result, ensure};
use guest::GuestProcess;

use crate::fixture::{Fixture, TIME_LIMIT};

const BLOCK_BYTES: u64 = block_device::BLOCK_BYTES as u64;
const PART_BYTES: u64 = 4 << 20;

/// Rate limit, so that other writers progress, and fio is not finished when the power fails.
const WRITES_PER_S_MAX: u64 = 100;

const JOB: &str = "--name=f --bs=4k --verify=crc32c --verify_state_save=0";

/// fio in all its lives.
pub(crate) struct Fio {
    volume: &'static str,
    /// Number of synced blocks of the part of each life.
    synced: Vec<u64>,
}

impl Fio {
    pub(crate) fn new(volume: &'static str) -> Self {
        Self { volume, synced: Vec::new() }
    }

    /// Returns the size of a volume for this many lives.
    pub(crate) fn volume_bytes(life_count: u64) -> u64 {
        life_count * PART_BYTES
    }

    /// Lets fio verify all writes that it has synced in all lives.
    pub(crate) fn verify(&self, fixture: &Fixture<'_>) -> Result<()> {
        for (life, block_count) in (0..).zip(&self.synced) {
            if *block_count > 0 {
                let part = self.part(fixture, life, block_count * BLOCK_BYTES)?;
                let line = format!("fio {JOB} {part} --rw=read --verify_fatal=1");
                let verified = fixture.guest.check(&line, TIME_LIMIT);
                verified
                    .with_context(|| format!("fio synced {block_count} blocks in life {life}"))?;
            }
        }
        Ok(())
    }

    /// Begins a new life.
    pub(crate) fn start(&self, fixture: &Fixture<'_>) -> Result<GuestProcess> {
        let life = self.synced.len() as u64;
        let part = self.part(fixture, life, PART_BYTES)?;
        fixture.guest.start(&format!(
            "exec fio {JOB} {part} --rw=write --fdatasync=1 --do_verify=0 \
             --rate_iops={WRITES_PER_S_MAX} \
             --status-interval=300ms --output-format=json"
        ))
    }

    /// Ends the life, after the guest has ended. Returns the number of synced blocks.
    pub(crate) fn end(&mut self, mut process: GuestProcess) -> Result<u64> {
        let said = process.take_output();
        let said = String::from_utf8_lossy(&said);
        let synced = synced_count(&said).with_context(|| format!("fio said {said}"))?;
        self.synced.push(synced);
        Ok(synced)
    }

    fn part(&self, fixture: &Fixture<'_>, life: u64, length: u64) -> Result<String> {
        let device = fixture.device(self.volume)?;
        let offset = life * PART_BYTES;
        Ok(format!("--filename={device} --offset={offset} --size={length}"))
    }
}

/// Returns the number of syncs in the last complete report of `text`, or zero before the first.
fn synced_count(text: &str) -> Result<u64> {
    let mut count = 0;
    let start = text.find('{').unwrap_or(text.len());
    for report in serde_json::Deserializer::from_str(&text[start..]).into_iter() {
        // The power fails in the middle of a report.
        let Ok(report): Result<serde_json::Value, _> = report else { break };
        // fio's own count of syncs stays zero, but that of their latencies does not.
        let syncs = &report["jobs"][0]["sync"]["lat_ns"]["N"];
        count = syncs.as_u64().with_context(|| format!("a report without syncs: {report}"))?;
    }
    ensure!(count <= PART_BYTES / BLOCK_BYTES, "{count} syncs are more than there are blocks");
    Ok(count)
}

#[test]
fn the_last_whole_report_counts() {
    let report =
        |count: u64| format!(r#"{{"jobs": [{{"sync": {{"lat_ns": {{"N": {count}}}}}}}]}}"#);
    let text = format!("fio says\n{}\n{}\n{{\"jobs\": [", report(3), report(5));
    assert_eq!(synced_count(&text).ok(), Some(5));
    assert_eq!(synced_count("").ok(), Some(0));
}
