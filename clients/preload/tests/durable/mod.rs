//! Tests of durable writes, with a power loss.

use anyhow::{Context, Result, ensure};
use system::Ability;

use crate::fixture::{Fixture, SIZE_MIB};

/// Number of bytes that each way writes, each at its own offset.
const BYTES: usize = 64 << 10;

/// Python takes the values of the flags from the C library's headers.
const WRITE: &str = "
import mmap, os, sys
path, start, letter, flags, wish = sys.argv[1:]
fd = os.open(path, os.O_RDWR | sum(getattr(os, flag) for flag in flags.split(',') if flag))
room = mmap.mmap(-1, 65536)
room[:] = letter.encode() * 65536
wish = getattr(os, wish) if wish else 0
assert os.pwritev(fd, [room], int(start), wish) == 65536
";

/// Interface by which a program requests durable writes.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Flags of `open`, and of the write.
    Flags(&'static str, &'static str),
    /// Options of dd.
    Dd(&'static str),
    /// Options of fio.
    Fio(&'static str),
}

/// Each is used on the file and on the device.
const WAYS: [Way; 10] = [
    Way::Flags("O_DIRECT,O_DSYNC", ""),
    Way::Flags("O_DIRECT,O_SYNC", ""),
    Way::Flags("O_DIRECT", "RWF_DSYNC"),
    Way::Flags("O_DIRECT", "RWF_SYNC"),
    Way::Dd("direct,dsync"),
    Way::Dd("direct,sync"),
    Way::Fio("--ioengine=psync --sync=dsync"),
    Way::Fio("--ioengine=libaio --iodepth=4 --sync=dsync"),
    Way::Fio("--ioengine=libaio --iodepth=4 --sync=sync"),
    Way::Fio("--ioengine=pvsync2 --sync=dsync"),
];

impl Way {
    fn write(self, fixture: &Fixture, path: &str, at: usize, letter: u8) -> Result<()> {
        let letter = char::from(letter).to_string();
        let start = at * BYTES;
        match self {
            Self::Flags(flags, wish) => {
                let start = start.to_string();
                let words = ["python3", "-c", WRITE, path, &start, &letter, flags, wish];
                fixture.run().args(words).check()?;
            }
            Self::Dd(flags) => {
                let script = format!(
                    "yes {letter} | tr -d '\\n' | head -c {BYTES} | dd of={path} bs=64k \
                     iflag=fullblock oflag={flags} seek={at} conv=notrunc status=none"
                );
                let output = fixture.shell(&script)?;
                ensure!(output.exit_code == Some(0), "{output:?}");
            }
            Self::Fio(words) => {
                let job = format!(
                    "fio --name=w --rw=write --bs=4k --direct=1 --size=64k --offset={start} \
                     --filename={path} --buffer_pattern=\"{letter}\" {words}"
                );
                fixture.check(&job)?;
            }
        }
        Ok(())
    }
}

/// Goal: a write with requested durability survives a power loss. Method: nothing else is flushed,
/// then memory is lost.
#[test]
fn writes_that_are_asked_to_be_durable_outlast_a_loss_of_power() -> Result<()> {
    let needed = [Ability::Program("fio"), Ability::Program("python3")];
    let Some(mut fixture) = Fixture::with_class("journal", &needed)? else { return Ok(()) };
    let paths = [fixture.file.clone(), fixture.device.clone()];
    let mut expected = Vec::new();
    for path in &paths {
        for way in WAYS {
            let (at, letter) = (expected.len(), b'a' + u8::try_from(expected.len())?);
            let (count, flushes) = (fixture.requests()?, fixture.flushes()?);
            way.write(&fixture, &path.to_string_lossy(), at, letter)?;
            ensure!(fixture.requests()? > count, "{way:?} on {path:?} did not use the ring");
            ensure!(fixture.flushes()? > flushes, "{way:?} on {path:?} flushed nothing");
            expected.push((way, letter));
        }
    }
    ensure!(expected.len() * BYTES <= usize::try_from(SIZE_MIB)? << 20, "they have no room");
    fixture.daemon.lose_memory()?;
    fixture.daemon.start_again()?;
    let found = std::fs::read(&fixture.file).context("the volume is served again")?;
    for ((way, letter), found) in expected.into_iter().zip(found.chunks(BYTES)) {
        let is_there = found.iter().all(|&byte| byte == letter);
        ensure!(is_there, "{way:?} is lost: {:?} where {letter} was written", &found[..4]);
    }
    fixture.daemon.finish()
}
