//! The applications: Debian's packages in the places of the paper's.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::application::{Application, Part, WorksOn};
use super::data;
use super::site::{Ground, Site};
use super::{orders, search, stores, streams};
use crate::targets::fio::{FileEngine, access_arguments};

const SMALL_FILE_BYTES: u64 = 16 << 10;
const LARGE_FILE_BYTES: u64 = 4 << 20;
const RECORD_BYTES: u64 = 400;
const FS_MARK_THREADS: u64 = 2;

/// Every application, in the order of plans.
pub(super) fn all() -> impl Iterator<Item = &'static Application> + Clone {
    FILES.iter().chain(stores::ALL).chain(search::ALL).chain(orders::ALL).chain(streams::ALL)
}

const FILES: &[Application] = &[
    Application {
        name: "fio",
        stands_for: "zmIO",
        part: Part::Driver,
        programs: &["fio"],
        modules: &[],
        works_on: WorksOn::WholeVolumes,
        install_hint: "apt install fio",
        prepare: |site| fio(site, false, "--rw=write --bs=1m --iodepth=8 --name=fill"),
        run: |site| {
            let words = "--rw=randrw --bs=4k --iodepth=32 --norandommap --time_based --name=zmio";
            fio(site, true, &format!("{words} --runtime={}", site.seconds))
        },
        verify: |site| {
            fio(
                site,
                false,
                "--rw=write --bs=64k --verify=crc32c --do_verify=1 \
                   --verify_state_save=0 --name=check",
            )
        },
    },
    Application {
        name: "fio-ior",
        stands_for: "IOR",
        part: Part::Driver,
        programs: &["fio"],
        modules: &[],
        works_on: WorksOn::Folders,
        install_hint: "apt install fio",
        prepare: |_| Ok(()),
        run: |site| {
            let words = "fio --ioengine=psync --bs=1m --numjobs=2 --name=ior";
            let size = format!("--size={}", site.bytes / 2);
            for turn in ["--rw=write --fsync_on_close=1", "--rw=read --invalidate=1"] {
                let seed = format!("--randseed={}", site.seed);
                let turn = turn.split_whitespace();
                site.program(words).args(turn).args([&size, &seed]).check()?;
            }
            Ok(())
        },
        verify: |site| {
            for job in 0..2 {
                let path = site.path(&format!("ior.{job}.0"));
                ensure!(bytes_of(&path)? == site.bytes / 2, "{} was cut", path.display());
            }
            Ok(())
        },
    },
    Application {
        name: "fs_mark",
        stands_for: "fsmark",
        part: Part::Application,
        programs: &["fs_mark"],
        modules: &[],
        works_on: WorksOn::Folders,
        install_hint: "apt install fsmark",
        prepare: |site| fs::create_dir(site.path("marks")).context("cannot make a folder"),
        run: |site| {
            let words = "fs_mark -d marks -s 4096 -S 1 -k -L 1";
            let count = format!("-n {} -t {FS_MARK_THREADS}", marks(site));
            site.program(words).args(count.split(' ')).check()?;
            Ok(())
        },
        verify: |site| {
            let found = site.tool("find marks -type f -size 8b").check()?.lines().count() as u64;
            let expected = marks(site) * FS_MARK_THREADS;
            ensure!(found == expected, "{found} files of 4096 bytes instead of {expected}");
            Ok(())
        },
    },
    Application {
        name: "db_bench",
        stands_for: "HBase",
        part: Part::Application,
        programs: &["db_bench"],
        modules: &[],
        works_on: WorksOn::Folders,
        install_hint: "apt install rocksdb-tools",
        prepare: |_| Ok(()),
        run: |site| {
            let words = "db_bench --db=rocks --benchmarks=fillrandom,readrandom --threads=2 \
                         --use_direct_reads --use_direct_io_for_flush_and_compaction \
                         --compression_type=none --value_size=400";
            let num = format!("--num={}", site.bytes / RECORD_BYTES / 2);
            site.program(words).arg(num).arg(format!("--seed={}", site.seed)).check()?;
            Ok(())
        },
        verify: |site| {
            let words = "db_bench --db=rocks --use_existing_db --benchmarks=verifychecksum";
            site.tool(words).check()?;
            Ok(())
        },
    },
    Application {
        name: "sqlite",
        stands_for: "BDB",
        part: Part::Application,
        programs: &["sqlite3"],
        modules: &[],
        works_on: WorksOn::Folders,
        install_hint: "apt install sqlite3",
        prepare: |site| {
            let (setup, work) = statements(site);
            fs::write(site.path("work.sql"), work).context("cannot write statements")?;
            site.tool("sqlite3 tree.db").arg(setup).check()?;
            Ok(())
        },
        run: |site| {
            site.program("sqlite3 tree.db").arg(".read work.sql").check()?;
            Ok(())
        },
        verify: |site| {
            let checks = "PRAGMA integrity_check; SELECT sum(version) FROM record;";
            let said = site.tool("sqlite3 tree.db").arg(checks).check()?;
            let expected = format!("ok\n{}", updates(site));
            ensure!(said.trim() == expected, "the tree says {said:?} instead of {expected:?}");
            Ok(())
        },
    },
    Application {
        name: "blastn",
        stands_for: "BLAST",
        part: Part::Application,
        programs: &["blastn", "makeblastdb"],
        modules: &[],
        works_on: WorksOn::Folders,
        install_hint: "apt install ncbi-blast+",
        prepare: |site| {
            let (subjects, queries) = (site.path("subjects.fa"), site.path("queries.fa"));
            data::sequences(&subjects, &queries, site.seed, site.bytes)?;
            site.tool("makeblastdb -in subjects.fa -dbtype nucl -out sequences").check()?;
            Ok(())
        },
        run: |site| {
            let words = "blastn -db sequences -query queries.fa -outfmt 6 -out hits";
            site.program(words).arg("-num_threads").arg(site.cores.to_string()).check()?;
            Ok(())
        },
        verify: |site| {
            let (hits, queries) = (read(&site.path("hits"))?, read(&site.path("queries.fa"))?);
            for query in queries.lines().filter_map(|line| line.strip_prefix(">q")) {
                let found = format!("q{query}\ts{query}\t100.000");
                ensure!(hits.contains(&found), "q{query} did not find what it was cut from");
            }
            Ok(())
        },
    },
    Application {
        name: "borg-small",
        stands_for: "DedupS",
        part: Part::Application,
        programs: &["borg"],
        modules: &[],
        works_on: WorksOn::Folders,
        install_hint: "apt install borgbackup",
        prepare: |site| borg_tree(site, SMALL_FILE_BYTES),
        run: borg,
        verify: borg_check,
    },
    Application {
        name: "borg-large",
        stands_for: "DedupL",
        part: Part::Application,
        programs: &["borg"],
        modules: &[],
        works_on: WorksOn::Folders,
        install_hint: "apt install borgbackup",
        prepare: |site| borg_tree(site, LARGE_FILE_BYTES),
        run: borg,
        verify: borg_check,
    },
    Application {
        name: "sort",
        stands_for: "Metis",
        part: Part::Application,
        programs: &["sort"],
        modules: &[],
        works_on: WorksOn::Folders,
        install_hint: "apt install coreutils",
        prepare: |site| {
            fs::create_dir(site.path("spill")).context("cannot make a folder")?;
            data::lines(&site.path("lines"), site.seed, site.bytes)
        },
        run: |site| {
            // A quarter of the data fits: the rest is spilled and merged.
            let memory = format!("--buffer-size={}K", (site.bytes >> 12).max(1024));
            let parallel = format!("--parallel={}", site.cores);
            site.program("sort -T spill -o sorted lines").args([memory, parallel]).check()?;
            Ok(())
        },
        verify: |site| {
            site.tool("sort --check sorted").check()?;
            let (before, after) = (bytes_of(&site.path("lines"))?, bytes_of(&site.path("sorted"))?);
            ensure!(before == after, "{before} bytes became {after}");
            Ok(())
        },
    },
];

fn fio(site: &Site, is_counted: bool, words: &str) -> Result<()> {
    let common = "fio --refill_buffers";
    let tool = if is_counted { site.program(common) } else { site.tool(common) };
    let place = match &site.ground {
        Ground::Folder => {
            ["--filename=zmio", "--direct=1", "--ioengine=libaio"].map(str::to_owned).to_vec()
        }
        Ground::Whole(access) => access_arguments(access, FileEngine::Libaio),
    };
    let more = [format!("--size={}", site.bytes), format!("--randseed={}", site.seed)];
    tool.args(words.split_whitespace()).args(place).args(more).check()?;
    Ok(())
}

/// Files of each thread of fs_mark.
fn marks(site: &Site) -> u64 {
    (site.bytes / 4096 / 4 / FS_MARK_THREADS).max(16)
}

fn updates(site: &Site) -> u64 {
    (site.bytes >> 14).clamp(100, 20_000)
}

/// Rows of 400 bytes, and as many reads as updates of a random one, each its own transaction.
fn statements(site: &Site) -> (String, String) {
    let rows = site.bytes / 2 / RECORD_BYTES;
    let setup = format!(
        "PRAGMA journal_mode=WAL; CREATE TABLE record(id INTEGER PRIMARY KEY, version INTEGER, \
         value BLOB); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<{rows}) \
         INSERT INTO record SELECT i, 0, randomblob({RECORD_BYTES}) FROM n;"
    );
    let mut random = crate::clock::Random::new(site.seed);
    let mut work = String::from("PRAGMA synchronous=FULL; PRAGMA cache_size=-4096;\n");
    for _ in 0..updates(site) {
        let (read, update) = (random.below(rows) + 1, random.below(rows) + 1);
        work += &format!(
            "SELECT length(value) FROM record WHERE id={read};\n\
             UPDATE record SET version=version+1, value=randomblob({RECORD_BYTES}) \
             WHERE id={update};\n"
        );
    }
    (setup, work)
}

/// Each second file is the same.
fn borg_tree(site: &Site, file_bytes: u64) -> Result<()> {
    fs::create_dir(site.path("tree")).context("cannot make a folder")?;
    for index in 0..(site.bytes / file_bytes).max(2) {
        let path = site.path(&format!("tree/{index}"));
        let seed = if index % 2 == 0 { site.seed.wrapping_add(index) } else { !site.seed };
        data::noise(&path, seed, file_bytes)?;
    }
    site.tool("borg init --encryption none store").check()?;
    Ok(())
}

fn borg(site: &Site) -> Result<()> {
    site.program("borg create --compression none store::all tree").check()?;
    Ok(())
}

fn borg_check(site: &Site) -> Result<()> {
    site.tool("borg check --verify-data store").check()?;
    let listed = site.tool("borg list --short store::all").check()?;
    let expected = fs::read_dir(site.path("tree")).context("cannot list the tree")?.count() + 1;
    let found = listed.lines().count();
    ensure!(found == expected, "the archive lists {found} paths instead of {expected}");
    Ok(())
}

fn bytes_of(path: &Path) -> Result<u64> {
    let data = fs::metadata(path).with_context(|| format!("there is no {}", path.display()))?;
    Ok(data.len())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
