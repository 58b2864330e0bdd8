//! Tests of unmodified programs on volumes through the ring.
//!
//! `MEMLANE_KILLS` is the number of kills, and `MEMLANE_SEED` replays a seed.

mod aio;
mod children;
mod durable;
mod fixture;

use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fixture::{Fixture, SIZE_MIB, VOLUME, program};
use rustix::process::Signal;
use system::{Ability, Background, Mounted, Tool, ToolOutput, seed, wait_for};

const KILLS: usize = 20;
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Minimum number of requests through the ring between two kills.
const REQUESTS_BETWEEN_KILLS: u64 = 2000;

const FIO: &str = "fio --name=v --rw=randrw --bs=4k --verify=crc32c --verify_fatal=1 \
                   --verify_state_save=0 --refill_buffers --output-format=terse";

fn fio(path: &Path, size_mib: u64) -> Vec<String> {
    let words = FIO.split_whitespace().map(str::to_owned);
    words.chain([format!("--filename={}", path.display()), format!("--size={size_mib}M")]).collect()
}

#[track_caller]
fn check_fio(fixture: &Fixture, path: &Path, words: &str) -> Result<()> {
    fixture.through_the_ring(1500, || {
        let tool = fixture.run().args(fio(path, 6)).args(words.split_whitespace());
        tool.check().with_context(|| format!("fio {words} on {}", path.display()))
    })?;
    Ok(())
}

#[test]
fn fio_verifies_what_it_wrote_by_every_engine() -> Result<()> {
    let Some(fixture) = Fixture::new(&[Ability::Program("fio")])? else { return Ok(()) };
    for words in [
        "--ioengine=psync",
        "--ioengine=sync",
        "--ioengine=pvsync2",
        "--ioengine=libaio --iodepth=1",
        "--ioengine=libaio --iodepth=32 --iodepth_batch=8",
        "--ioengine=libaio --iodepth=16 --iodepth_batch_complete_min=0 --userspace_reap",
    ] {
        check_fio(&fixture, &fixture.file, words)?;
        check_fio(&fixture, &fixture.device, &format!("{words} --direct=1"))?;
    }
    fixture.daemon.finish()
}

#[test]
fn several_processes_and_threads_verify_what_they_wrote() -> Result<()> {
    let Some(fixture) = Fixture::new(&[Ability::Program("fio")])? else { return Ok(()) };
    let apart = "--numjobs=2 --offset_increment=12M";
    for words in ["--ioengine=psync", "--ioengine=libaio --iodepth=8 --thread"] {
        check_fio(&fixture, &fixture.file, &format!("{apart} {words}"))?;
        check_fio(&fixture, &fixture.device, &format!("{apart} {words} --direct=1"))?;
    }
    fixture.daemon.finish()
}

#[test]
fn fio_verifies_what_it_wrote_while_the_daemon_was_killed() -> Result<()> {
    check_kills("--ioengine=psync")
}

#[test]
fn fio_with_requests_under_way_verifies_what_it_wrote_while_the_daemon_was_killed() -> Result<()> {
    check_kills("--ioengine=libaio --iodepth=32 --direct=1")
}

fn check_kills(engine: &str) -> Result<()> {
    let Some(mut fixture) = Fixture::new(&[Ability::Program("fio")])? else { return Ok(()) };
    let kill_count = match std::env::var("MEMLANE_KILLS") {
        Ok(text) => text.parse().context("MEMLANE_KILLS is a number")?,
        Err(_) => KILLS,
    };
    let start = |fixture: &Fixture| {
        let tool =
            fixture.run().args(fio(&fixture.file, SIZE_MIB - 4)).args(engine.split_whitespace());
        Background::start(tool.own_group())
    };
    let mut fio = start(&fixture)?;
    for _ in 0..kill_count {
        wait_for("fio to use the ring", TIME_LIMIT, || {
            if let Some(status) = fio.has_ended()? {
                ensure!(status.success(), "fio failed: {status}");
                fio = start(&fixture)?;
            }
            Ok(fixture.requests()? > REQUESTS_BETWEEN_KILLS)
        })?;
        fixture.daemon.kill()?;
        fixture.daemon.start_again()?;
    }
    fio.finish(TIME_LIMIT)?;
    fixture.daemon.finish()
}

/// Compares the same calls on two volumes, one of them with the kernel alone.
fn check_calls(on_device: bool) -> Result<()> {
    let Some(fixture) = Fixture::new(&[Ability::Program("python3")])? else { return Ok(()) };
    fixture.daemon.memlane(&format!("volume create other --size {SIZE_MIB}MiB"))?;
    let other_device = system::attach(&fixture.daemon, "other --share")?;
    let other_file = fixture.daemon.run_dir().join("volumes/other");
    let seed = seed()?;
    eprintln!("replay: MEMLANE_SEED={seed}");
    let (own, other) = match on_device {
        true => (fixture.device.clone(), other_device),
        false => (fixture.file.clone(), other_file.clone()),
    };
    let calls = |tool: Tool, path: &Path| {
        let tool = tool.arg("python3").arg(program("calls.py")).arg(path);
        tool.args([seed.to_string(), "3000".to_owned()]).check()
    };
    let by_kernel = calls(Tool::new("env"), &other)?;
    let by_ring = fixture.through_the_ring(300, || calls(fixture.run(), &own))?;
    let difference = by_kernel.lines().zip(by_ring.lines()).find(|(kernel, ring)| kernel != ring);
    ensure!(difference.is_none(), "the kernel and the ring: {difference:?}");
    ensure!(by_kernel == by_ring, "one made more calls");
    Tool::new("cmp").arg(&fixture.file).arg(&other_file).check()?;
    fixture.daemon.finish()
}

#[test]
fn calls_on_a_file_have_the_results_that_the_kernel_gives() -> Result<()> {
    check_calls(false)
}

#[test]
fn calls_on_a_device_have_the_results_that_the_kernel_gives() -> Result<()> {
    check_calls(true)
}

#[test]
fn dd_copies_what_it_was_given() -> Result<()> {
    let Some(fixture) = Fixture::new(&[])? else { return Ok(()) };
    let noise = fixture.daemon.folder().join("noise");
    let back = fixture.daemon.folder().join("back");
    let (noise, back, device) = (noise.display(), back.display(), fixture.device.display());
    Tool::new(&format!("dd if=/dev/urandom of={noise} bs=1M count=8 status=none")).check()?;
    fixture.through_the_ring(16, || {
        fixture.check(&format!(
            "dd if={noise} of={device} bs=512k oflag=direct conv=fsync status=none"
        ))?;
        fixture
            .check(&format!("dd if={device} of={back} bs=512k count=16 iflag=direct status=none"))
    })?;
    Tool::new(&format!("cmp {noise} {back}")).check()?;
    // The last part is shorter than a sector, so dd disables direct I/O for it.
    Tool::new(&format!("truncate -s 1000001 {noise}")).check()?;
    fixture
        .check(&format!("dd if={noise} of={device} bs=128k oflag=direct conv=fsync status=none"))?;
    Tool::new(&format!("cmp -n 1000001 {noise} {device}")).check()?;
    fixture.daemon.finish()
}

#[test]
fn a_database_with_a_journal_works_on_a_volume_file() -> Result<()> {
    let Some(fixture) = Fixture::new(&[Ability::Program("sqlite3")])? else { return Ok(()) };
    let folder = fixture.daemon.folder().join("db");
    std::fs::create_dir(&folder)?;
    // The volume's file is bind-mounted into a folder that has room for the database's journal.
    let database = folder.join("data");
    let first = folder.join("first");
    sqlite(Tool::new("env"), &first, "create table t (n integer, x text)")?;
    let copy = Tool::new("dd bs=1M conv=notrunc status=none");
    copy.arg(format!("if={}", first.display()))
        .arg(format!("of={}", fixture.file.display()))
        .check()?;
    std::fs::write(&database, "")?;
    Tool::new("mount --bind").arg(&fixture.file).arg(&database).check()?;
    let mounted = Mounted::existing(&database);
    for mode in ["delete", "truncate", "persist", "memory"] {
        let script = format!(
            "pragma journal_mode={mode}; begin; \
             with recursive c(n) as (values(1) union all select n+1 from c where n < 2000) \
             insert into t select n, hex(randomblob(40)) from c; commit; \
             begin; delete from t; rollback;"
        );
        fixture.through_the_ring(20, || sqlite(fixture.run(), &database, &script))?;
    }
    let count = sqlite(Tool::new("env"), &database, "select count(*), count(x) from t")?;
    ensure!(count.trim() == "8000|8000", "there are {count}");
    let verdict = sqlite(fixture.run(), &database, "pragma integrity_check")?;
    ensure!(verdict.trim() == "ok", "the database is damaged: {verdict}");
    mounted.unmount()?;
    fixture.daemon.finish()
}

fn sqlite(tool: Tool, database: &Path, script: &str) -> Result<String> {
    tool.args(["sqlite3", "-batch"]).arg(database).arg(script).check()
}

#[test]
fn children_share_the_offset_of_what_they_inherit() -> Result<()> {
    let Some(fixture) = Fixture::new(&[])? else { return Ok(()) };
    let file = fixture.file.display();
    // Three programs that use one open file one after another, one as a child of another.
    let script = format!(
        "exec 3<>{file}
         yes a | head -c 4096 | dd bs=4096 iflag=fullblock status=none >&3
         bash -c 'yes b | head -c 4096 | dd bs=4096 iflag=fullblock status=none 1<>/dev/fd/3 >&3'
         exec 4>&3 3>&-
         sh -c 'yes c | head -c 4096 | python3 -c \"
import os, sys
os.dup2(4, 9)
os.write(9, sys.stdin.buffer.read())
\"'"
    );
    let output = fixture.through_the_ring(3, || fixture.shell(&script))?;
    ensure!(output.exit_code == Some(0), "{output:?}");
    let bytes = std::fs::read(&fixture.file)?;
    for (letter, part) in [b'a', b'b', b'c'].into_iter().zip(bytes.chunks(4096)) {
        let is_as_written = part.chunks(2).all(|pair| pair == [letter, b'\n']);
        ensure!(is_as_written, "{:?} where {letter} was written", &part[..4]);
    }
    fixture.daemon.finish()
}

#[test]
fn a_volume_that_is_mapped_is_left_to_the_kernel_which_is_said_once() -> Result<()> {
    let Some(fixture) = Fixture::new(&[Ability::Program("python3")])? else { return Ok(()) };
    let script = "
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
room = mmap.mmap(-1, 4096)
room[:] = b'x' * 4096
os.pwritev(fd, [room], 8192)
view = mmap.mmap(fd, 1 << 20)
again = mmap.mmap(fd, 1 << 20)
assert view[8192:12288] == room[:], 'the map is not what was written'
room[:] = b'y' * 4096
os.pwritev(fd, [room], 8192)
assert view[8192:12288] == room[:], 'the map is not what was written then'
view[0:4096] = b'z' * 4096
view.flush()
os.preadv(fd, [room], 0)
assert room[:] == b'z' * 4096, 'what was mapped is not read'
";
    let tool = fixture.run().args(["python3", "-c", script]).arg(&fixture.device);
    let output = fixture.through_the_ring(1, || tool.run())?;
    ensure!(output.exit_code == Some(0), "{output:?}");
    let said = output.stderr.lines().filter(|line| line.contains("mapped")).count();
    ensure!(said == 1, "said {said} times: {}", output.stderr);
    fixture.daemon.finish()
}

#[test]
fn without_a_daemon_the_kernel_does_everything_which_is_said_once() -> Result<()> {
    let Some(fixture) = Fixture::new(&[])? else { return Ok(()) };
    let nowhere = fixture.daemon.folder().join("nowhere.sock");
    let noise = fixture.daemon.folder().join("noise");
    let (from, to) = (noise.display(), fixture.file.display());
    Tool::new(&format!("dd if=/dev/urandom of={from} bs=4k count=4 status=none")).check()?;
    let output = fixture
        .daemon
        .command_line(&format!("run -- dd if={from} of={to} bs=4k conv=notrunc status=none"))
        .env("MEMLANE_RING", &nowhere.to_string_lossy())
        .run()?;
    ensure!(output.exit_code == Some(0), "{output:?}");
    Tool::new(&format!("cmp -n 16384 {from} {to}")).check()?;
    let said = output.stderr.matches("through the kernel").count();
    ensure!(said == 1, "said {said} times: {}", output.stderr);
    ensure!(fixture.requests()? == 0, "a ring was used all the same");
    fixture.daemon.finish()
}

/// A program that cannot load the library works as without `memlane run`, which prints the reason.
#[test]
fn a_static_program_is_left_to_the_kernel_which_is_said_once() -> Result<()> {
    let Some(fixture) = Fixture::new(&[Ability::Program("busybox")])? else { return Ok(()) };
    let (file, device) = (fixture.file.display(), fixture.device.display());
    let copy = fixture.daemon.folder().join("copy");
    for script in [
        "true".to_owned(),
        "exit 7".to_owned(),
        format!("yes memlane | head -c 65536 | dd of={file} bs=4096 conv=notrunc,fsync"),
        format!("dd if={file} bs=4096 count=16 | md5sum"),
        format!("dd if={device} bs=512 count=128 | md5sum; dd if=/nosuch"),
        format!("dd if={file} of={} bs=4096 skip=8 count=8; cat {0}", copy.display()),
        "kill -TERM $$".to_owned(),
    ] {
        let shell = |tool: Tool| tool.args(["busybox", "sh", "-c", &script]).run();
        let (by_kernel, served) = (shell(Tool::new("env"))?, shell(fixture.run())?);
        let result = |output: &ToolOutput| (output.exit_code, output.stdout.clone());
        ensure!(result(&served) == result(&by_kernel), "{script}: {served:?}, not {by_kernel:?}");
        let said = served.stderr.matches("is statically linked").count();
        ensure!(said == 1, "{script}: said {said} times: {}", served.stderr);
    }
    ensure!(
        std::fs::read(&fixture.file)?.starts_with(b"memlane\nmemlane\n"),
        "nothing was written"
    );
    ensure!(fixture.requests()? == 0, "a ring was used all the same");
    fixture.daemon.finish()
}

#[test]
fn exit_codes_signals_and_refusals_are_clear() -> Result<()> {
    let Some(fixture) = Fixture::new(&[])? else { return Ok(()) };
    ensure!(fixture.shell("exit 42")?.exit_code == Some(42));
    let mut killed = Background::start(fixture.run().args(["sh", "-c", "kill -USR1 $$"]))?;
    wait_for("the program to end", TIME_LIMIT, || Ok(killed.has_ended()?.is_some()))?;
    let ended = killed.has_ended()?.and_then(|status| status.signal());
    ensure!(ended == Some(Signal::USR1.as_raw()), "it ended by the signal {ended:?}");
    let run = |words: &str| fixture.daemon.try_memlane(&format!("run {words}"));
    ensure!(run("--volume nosuch -- true")?.exit_code == Some(3));
    ensure!(run("-- /nosuch/program")?.exit_code == Some(127));
    ensure!(run("-- nosuchprogram")?.exit_code == Some(127));
    ensure!(run("-- /etc/passwd")?.exit_code == Some(126));
    ensure!(run("--volume v")?.exit_code == Some(2));
    let said = run("--volume v -- true")?.stderr;
    ensure!(said.contains(&*fixture.device.to_string_lossy()), "it says {said:?}");
    ensure!(run("--quiet --volume v -- true")?.stderr.is_empty());
    fixture.daemon.memlane("volume create other --size 4MiB")?;
    let link = fixture.daemon.folder().join("link");
    symlink(&fixture.file, &link)?;
    let only_other = format!("--volume other -- dd if={} of=/dev/null bs=4k", link.display());
    ensure!(run(&only_other)?.exit_code == Some(0));
    ensure!(fixture.requests()? == 0, "volume {VOLUME} was not named, and used");
    fixture.daemon.finish()
}
