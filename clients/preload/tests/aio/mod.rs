//! Tests of programs that use libaio, and read the event ring themselves.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use system::{Ability, Tool};

use crate::fixture::{Fixture, program};

const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Scenarios of `aio.c`, with the minimum number of requests through the ring.
const SCENARIOS: [(&str, u64); 13] = [
    ("setups", 0),
    ("polled", 2560),
    ("mixed", 300),
    ("filled", 300),
    ("eventfd", 1280),
    ("odd", 50),
    ("collected", 8),
    // It ends with a request on another file, which is left to the kernel.
    ("waited-for", 1000),
    ("by-number", 24),
    ("children", 24),
    ("deep", 3900),
    ("meanwhile", 600),
    ("threads", 20_000),
];

/// Goal: programs that use libaio, and read events by any means, see the same as with the kernel
/// alone. Method: compare the transcripts of the same calls with and without the library.
#[test]
fn programs_of_libaio_see_the_events_that_the_kernel_gives() -> Result<()> {
    let Some(fixture) = Fixture::new(&[Ability::Program("cc")])? else { return Ok(()) };
    let asks = fixture.daemon.folder().join("aio");
    let words = "cc -O1 -Wall -Wextra -Werror -pthread -o";
    Tool::new(words).arg(&asks).arg(program("aio.c")).check()?;
    let other = fixture.daemon.folder().join("other");
    let transcript = |tool: Tool, path: &Path, scenario: &str| {
        std::fs::write(&other, vec![0; 1 << 20])?;
        Tool::new("blkdiscard").arg(&fixture.device).check()?;
        let tool = tool.arg(&asks).arg(path).arg(&other).arg(scenario).time_limit(TIME_LIMIT);
        tool.check().with_context(|| format!("{scenario} on {}", path.display()))
    };
    for path in [&fixture.file, &fixture.device] {
        for (scenario, least) in SCENARIOS {
            let by_kernel = transcript(Tool::new("env"), path, scenario)?;
            let served =
                fixture.through_the_ring(least, || transcript(fixture.run(), path, scenario))?;
            let difference =
                by_kernel.lines().zip(served.lines()).find(|(one, other)| one != other);
            ensure!(difference.is_none(), "{scenario} on {path:?}: {difference:?}");
            ensure!(by_kernel == served, "{scenario} on {path:?}: one says more");
        }
    }
    fixture.daemon.finish()
}

#[test]
fn qemu_finds_the_events_of_its_requests() -> Result<()> {
    let Some(fixture) = Fixture::new(&[Ability::Program("qemu-img")])? else { return Ok(()) };
    for path in [&fixture.file, &fixture.device] {
        for words in ["-w -c 2000 -d 16 -s 4096", "-w -c 2000 -d 8 --flush-interval 50", "-c 2000"]
        {
            let tool = fixture.run().args("qemu-img bench -f raw -t none -n".split_whitespace());
            let tool = tool.args(words.split_whitespace()).arg(path).time_limit(TIME_LIMIT);
            fixture.through_the_ring(2000, || tool.check())?;
        }
    }
    fixture.daemon.finish()
}
