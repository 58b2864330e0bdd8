//! Writes the steps determined by a seed to a file or device, and reports each successful flush.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result};
use system::{BLOCK_BYTES, Step, Steps, StepsSpec};

/// Value in the kernel's headers (`asm-generic/fcntl.h`), missing in libraries.
const O_DSYNC: i32 = 0o10_000;
#[cfg(target_arch = "x86_64")]
const O_DIRECT: i32 = 0o40_000;
#[cfg(target_arch = "aarch64")]
const O_DIRECT: i32 = 0o200_000;

/// Method by which a step becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Writes go to the page cache. `fdatasync` makes them durable.
    Cached,
    /// Writes bypass the page cache. `fdatasync` makes them durable.
    Direct,
    /// Each write is durable by itself.
    Durable,
}

/// Returns the mode of a life. It changes from life to life, so that all are tested.
fn mode_of(spec: StepsSpec) -> Mode {
    [Mode::Cached, Mode::Direct, Mode::Durable]
        [usize::try_from((spec.life + spec.volume) % 3).expect("it is below three")]
}

/// Performs steps until the power or a write fails.
pub(crate) fn write(path: &Path, spec: StepsSpec) -> Result<()> {
    let mode = mode_of(spec);
    let flags = match mode {
        Mode::Cached => 0,
        Mode::Direct => O_DIRECT,
        Mode::Durable => O_DSYNC,
    };
    let file = File::options()
        .write(true)
        .custom_flags(flags)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    let mut steps = Steps::new(spec);
    let mut buffer = vec![0; 2 * BLOCK_BYTES];
    for number in 1_u64.. {
        take(&file, &steps.step(), &mut buffer)
            .and_then(|()| if mode == Mode::Durable { Ok(()) } else { file.sync_data() })
            .with_context(|| format!("step {number} of {spec:?} in {}", path.display()))?;
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{number}").and_then(|()| stdout.flush()).context("the host is gone")?;
    }
    Ok(())
}

fn take(file: &File, step: &Step, buffer: &mut [u8]) -> io::Result<()> {
    // Direct writes need an aligned buffer.
    let start = buffer.as_ptr().align_offset(BLOCK_BYTES);
    let aligned = &mut buffer[start..start + BLOCK_BYTES];
    for (block, contents) in &step.writes {
        aligned.copy_from_slice(&contents.block()[..]);
        file.write_all_at(aligned, block * BLOCK_BYTES as u64)?;
    }
    Ok(())
}
