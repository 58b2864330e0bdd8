//! Tests of child processes, created in every way that Linux has, of a program that uses a volume.

use std::time::Duration;

use anyhow::{Result, ensure};
use system::{Ability, Tool};

use crate::fixture::{Fixture, program};

const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Ways to create a child, with the minimum number of requests through the ring.
const WAYS: [(&str, u64); 7] = [
    ("fork", 3000),
    // These children run no fork handler, so only their parent's requests go through the ring.
    ("_Fork", 1200),
    ("clone", 1200),
    ("clone3", 1200),
    // These children share their parent's memory.
    ("vfork", 600),
    ("clone-vfork", 600),
    ("first-vfork", 600),
];

/// Goal: a child uses the volumes that its parent has open, and neither sees the other's blocks.
/// Method: both write and read back at the same time. In shared memory, the child also reuses
/// descriptor numbers for other files, which must not affect its parent.
#[test]
fn children_made_in_any_way_use_volumes_beside_their_parent() -> Result<()> {
    let Some(fixture) = Fixture::new(&[Ability::Program("cc")])? else { return Ok(()) };
    let children = fixture.daemon.folder().join("children");
    Tool::new("cc -O1 -Wall -Werror -o").arg(&children).arg(program("children.c")).check()?;
    let other = fixture.daemon.folder().join("other");
    for path in [&fixture.file, &fixture.device] {
        for (way, least) in WAYS {
            std::fs::write(&other, vec![0; 1 << 20])?;
            Tool::new("blkdiscard").arg(&fixture.device).check()?;
            let tool = fixture.run().arg(&children).arg(path).arg(&other).arg(way);
            let tool = tool.time_limit(TIME_LIMIT);
            let output = fixture.through_the_ring(least, || tool.run())?;
            ensure!(output.exit_code == Some(0), "{way} on {path:?}: {output:?}");
        }
    }
    fixture.daemon.finish()
}
