//! Prevention of idle states, so that no request pays for waking a core.
//!
//! While a program holds `/dev/cpu_dma_latency` at 0, idle cores poll. A server that does so under
//! load responds faster, at the cost of power. Therefore peers are also measured with the cores
//! kept awake for them.

use std::fs::{File, OpenOptions};
use std::io::Write;

use anyhow::{Context, Result};

const PATH: &str = "/dev/cpu_dma_latency";

/// Guard that makes idle cores poll instead of sleeping.
pub struct CoresAwake {
    _request: File,
}

impl CoresAwake {
    pub fn hold() -> Result<Self> {
        let mut request = OpenOptions::new()
            .write(true)
            .open(PATH)
            .with_context(|| format!("cannot keep cores awake through {PATH}"))?;
        request
            .write_all(&0_i32.to_ne_bytes())
            .with_context(|| format!("cannot write to {PATH} to keep cores awake"))?;
        Ok(Self { _request: request })
    }

    /// Returns the reason why cores cannot be kept awake here, or `None`.
    pub fn missing() -> Option<String> {
        let opened = OpenOptions::new().write(true).open(PATH);
        opened.err().map(|error| format!("cores cannot be kept awake: {PATH}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn the_kernel_knows_of_the_wish_while_it_is_held() {
        if let Some(reason) = CoresAwake::missing() {
            eprintln!("skipped: {reason}");
            return;
        }
        let _held = CoresAwake::hold().expect("the device can be opened");
        let mut wanted = [0xff; 4];
        let mut file = File::open(PATH).expect("the device can be read");
        file.read_exact(&mut wanted).expect("it holds a number");
        assert_eq!(i32::from_ne_bytes(wanted), 0);
    }
}
