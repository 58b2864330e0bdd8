//! The applications: Debian packages in place of the paper's programs.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::application::{Application, ON_FOLDERS, Part, WorksOn};
use super::data;
use super::workdir::{DataLocation, Workdir};
use super::{orders, search, stores, streams};
use crate::targets::fio::{FileEngine, access_arguments};

const SMALL_FILE_BYTES: u64 = 16 << 10;
const LARGE_FILE_BYTES: u64 = 4 << 20;
const RECORD_BYTES: u64 = 400;
const FS_MARK_THREADS: u64 = 2;

/// Returns every application, in the order of plans.
pub(super) fn all() -> impl Iterator<Item = &'static Application> + Clone {
    FILES.iter().chain(stores::ALL).chain(search::ALL).chain(orders::ALL).chain(streams::ALL)
}

const FILES: &[Application] = &[
    Application {
        name: "fio",
        stands_for: "zmIO",
        part: Part::Driver,
        programs: &["fio"],
        works_on: WorksOn::WholeVolumes,
        install_hint: "apt install fio",
        prepare: |workdir| fio(workdir, false, "--rw=write --bs=1m --iodepth=8 --name=fill"),
        run: |workdir| {
            let words = "--rw=randrw --bs=4k --iodepth=32 --norandommap --time_based --name=zmio";
            fio(workdir, true, &format!("{words} --runtime={}", workdir.seconds))
        },
        verify: |workdir| {
            fio(
                workdir,
                false,
                "--rw=write --bs=64k --verify=crc32c --do_verify=1 \
                   --verify_state_save=0 --name=check",
            )
        },
        ..ON_FOLDERS
    },
    Application {
        name: "fio-ior",
        stands_for: "IOR",
        part: Part::Driver,
        programs: &["fio"],
        install_hint: "apt install fio",
        run: |workdir| {
            let words = "fio --ioengine=psync --bs=1m --numjobs=2 --name=ior";
            let size = format!("--size={}", workdir.bytes / 2);
            for turn in ["--rw=write --fsync_on_close=1", "--rw=read --invalidate=1"] {
                let seed = format!("--randseed={}", workdir.seed);
                let turn = turn.split_whitespace();
                workdir.program(words).args(turn).args([&size, &seed]).check()?;
            }
            Ok(())
        },
        verify: |workdir| {
            for job in 0..2 {
                let path = workdir.path(&format!("ior.{job}.0"));
                ensure!(bytes_of(&path)? == workdir.bytes / 2, "{} was cut", path.display());
            }
            Ok(())
        },
        ..ON_FOLDERS
    },
    Application {
        name: "fs_mark",
        stands_for: "fsmark",
        programs: &["fs_mark"],
        install_hint: "apt install fsmark",
        prepare: |workdir| {
            fs::create_dir(workdir.path("marks")).context("cannot create a directory")
        },
        run: |workdir| {
            let words = "fs_mark -d marks -s 4096 -S 1 -k -L 1";
            let count = format!("-n {} -t {FS_MARK_THREADS}", marks(workdir));
            workdir.program(words).args(count.split(' ')).check().map(drop)
        },
        verify: |workdir| {
            let found = workdir.tool("find marks -type f -size 8b").check()?.lines().count() as u64;
            let expected = marks(workdir) * FS_MARK_THREADS;
            ensure!(found == expected, "{found} files of 4096 bytes instead of {expected}");
            Ok(())
        },
        ..ON_FOLDERS
    },
    Application {
        name: "db_bench",
        stands_for: "HBase",
        programs: &["db_bench"],
        install_hint: "apt install rocksdb-tools",
        run: |workdir| {
            let words = "db_bench --db=rocks --benchmarks=fillrandom,readrandom --threads=2 \
                         --use_direct_reads --use_direct_io_for_flush_and_compaction \
                         --compression_type=none --value_size=400";
            let num = format!("--num={}", workdir.bytes / RECORD_BYTES / 2);
            workdir.program(words).arg(num).arg(format!("--seed={}", workdir.seed)).check()?;
            Ok(())
        },
        verify: |workdir| {
            let words = "db_bench --db=rocks --use_existing_db --benchmarks=verifychecksum";
            workdir.tool(words).check().map(drop)
        },
        ..ON_FOLDERS
    },
    Application {
        name: "sqlite",
        stands_for: "BDB",
        programs: &["sqlite3"],
        install_hint: "apt install sqlite3",
        prepare: |workdir| {
            let (setup, work) = statements(workdir);
            fs::write(workdir.path("work.sql"), work).context("cannot write statements")?;
            workdir.tool("sqlite3 tree.db").arg(setup).check().map(drop)
        },
        run: |workdir| workdir.program("sqlite3 tree.db").arg(".read work.sql").check().map(drop),
        verify: |workdir| {
            let checks = "PRAGMA integrity_check; SELECT sum(version) FROM record;";
            let said = workdir.tool("sqlite3 tree.db").arg(checks).check()?;
            let expected = format!("ok\n{}", updates(workdir));
            ensure!(
                said.trim() == expected,
                "the database returned {said:?} instead of {expected:?}"
            );
            Ok(())
        },
        ..ON_FOLDERS
    },
    Application {
        name: "blastn",
        stands_for: "BLAST",
        programs: &["blastn", "makeblastdb"],
        install_hint: "apt install ncbi-blast+",
        prepare: |workdir| {
            let (subjects, queries) = (workdir.path("subjects.fa"), workdir.path("queries.fa"));
            data::sequences(&subjects, &queries, workdir.seed, workdir.bytes)?;
            workdir.tool("makeblastdb -in subjects.fa -dbtype nucl -out sequences").check()?;
            Ok(())
        },
        run: |workdir| {
            let words = "blastn -db sequences -query queries.fa -outfmt 6 -out hits";
            workdir.program(words).arg("-num_threads").arg(workdir.cores.to_string()).check()?;
            Ok(())
        },
        verify: |workdir| {
            let (hits, queries) =
                (read(&workdir.path("hits"))?, read(&workdir.path("queries.fa"))?);
            for query in queries.lines().filter_map(|line| line.strip_prefix(">q")) {
                let found = format!("q{query}\ts{query}\t100.000");
                ensure!(hits.contains(&found), "q{query} did not find what it was cut from");
            }
            Ok(())
        },
        ..ON_FOLDERS
    },
    Application {
        name: "borg-small",
        stands_for: "DedupS",
        programs: &["borg"],
        install_hint: "apt install borgbackup",
        prepare: |workdir| borg_tree(workdir, SMALL_FILE_BYTES),
        run: borg,
        verify: borg_check,
        ..ON_FOLDERS
    },
    Application {
        name: "borg-large",
        stands_for: "DedupL",
        programs: &["borg"],
        install_hint: "apt install borgbackup",
        prepare: |workdir| borg_tree(workdir, LARGE_FILE_BYTES),
        run: borg,
        verify: borg_check,
        ..ON_FOLDERS
    },
    Application {
        name: "sort",
        stands_for: "Metis",
        programs: &["sort"],
        install_hint: "apt install coreutils",
        prepare: |workdir| {
            fs::create_dir(workdir.path("spill")).context("cannot create a directory")?;
            data::lines(&workdir.path("lines"), workdir.seed, workdir.bytes)
        },
        run: |workdir| {
            // Memory for a quarter of the data: the rest is spilled and merged.
            let memory = format!("--buffer-size={}K", (workdir.bytes >> 12).max(1024));
            let parallel = format!("--parallel={}", workdir.cores);
            workdir.program("sort -T spill -o sorted lines").args([memory, parallel]).check()?;
            Ok(())
        },
        verify: |workdir| {
            workdir.tool("sort --check sorted").check()?;
            let (before, after) =
                (bytes_of(&workdir.path("lines"))?, bytes_of(&workdir.path("sorted"))?);
            ensure!(before == after, "{before} bytes became {after}");
            Ok(())
        },
        ..ON_FOLDERS
    },
];

fn fio(workdir: &Workdir, is_counted: bool, words: &str) -> Result<()> {
    let common = "fio --refill_buffers";
    let tool = if is_counted { workdir.program(common) } else { workdir.tool(common) };
    let place = match &workdir.location {
        DataLocation::Folder => {
            ["--filename=zmio", "--direct=1", "--ioengine=libaio"].map(str::to_owned).to_vec()
        }
        DataLocation::Whole(access) => access_arguments(access, FileEngine::Libaio),
    };
    let more = [format!("--size={}", workdir.bytes), format!("--randseed={}", workdir.seed)];
    tool.args(words.split_whitespace()).args(place).args(more).check().map(drop)
}

/// Returns the number of files per fs_mark thread.
fn marks(workdir: &Workdir) -> u64 {
    (workdir.bytes / 4096 / 4 / FS_MARK_THREADS).max(16)
}

fn updates(workdir: &Workdir) -> u64 {
    (workdir.bytes >> 14).clamp(100, 20_000)
}

/// Returns SQL for rows of 400 bytes, and for equal numbers of reads and updates of random rows,
/// each a transaction.
fn statements(workdir: &Workdir) -> (String, String) {
    let rows = workdir.bytes / 2 / RECORD_BYTES;
    let setup = format!(
        "PRAGMA journal_mode=WAL; CREATE TABLE record(id INTEGER PRIMARY KEY, version INTEGER, \
         value BLOB); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<{rows}) \
         INSERT INTO record SELECT i, 0, randomblob({RECORD_BYTES}) FROM n;"
    );
    let mut random = crate::clock::Random::new(workdir.seed);
    let mut work = String::from("PRAGMA synchronous=FULL; PRAGMA cache_size=-4096;\n");
    for _ in 0..updates(workdir) {
        let (read, update) = (random.below(rows) + 1, random.below(rows) + 1);
        work += &format!(
            "SELECT length(value) FROM record WHERE id={read};\n\
             UPDATE record SET version=version+1, value=randomblob({RECORD_BYTES}) \
             WHERE id={update};\n"
        );
    }
    (setup, work)
}

/// Creates files, every second one identical.
fn borg_tree(workdir: &Workdir, file_bytes: u64) -> Result<()> {
    fs::create_dir(workdir.path("tree")).context("cannot create a directory")?;
    for index in 0..(workdir.bytes / file_bytes).max(2) {
        let path = workdir.path(&format!("tree/{index}"));
        let seed = if index % 2 == 0 { workdir.seed.wrapping_add(index) } else { !workdir.seed };
        data::noise(&path, seed, file_bytes)?;
    }
    workdir.tool("borg init --encryption none store").check().map(drop)
}

fn borg(workdir: &Workdir) -> Result<()> {
    workdir.program("borg create --compression none store::all tree").check().map(drop)
}

fn borg_check(workdir: &Workdir) -> Result<()> {
    workdir.tool("borg check --verify-data store").check()?;
    let listed = workdir.tool("borg list --short store::all").check()?;
    let expected = fs::read_dir(workdir.path("tree")).context("cannot list the tree")?.count() + 1;
    let found = listed.lines().count();
    ensure!(found == expected, "the archive lists {found} paths instead of {expected}");
    Ok(())
}

fn bytes_of(path: &Path) -> Result<u64> {
    let data = fs::metadata(path).with_context(|| format!("{} does not exist", path.display()))?;
    Ok(data.len())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
