//! Search applications: sequences, full text, similarity.

use std::fs::File;

use anyhow::{Context, Result, ensure};

use super::application::{Application, ON_FOLDERS};
use super::data;
use super::workdir::{PYTHON, Workdir};

const SMALL_DOCUMENT_BYTES: usize = 4 << 10;
const LARGE_DOCUMENT_BYTES: usize = 256 << 10;
/// Number of names looked up in an index for verification.
const LOOKED_UP: u64 = 50;
const VECTOR_BYTES: u64 = 256;
/// Maximum percentage of queries that do not find their stored vector first, because the search
/// examines only some lists.
const LOST_PERCENT_MAX: u64 = 5;

const INDEX: &str = include_str!("programs/index.py");
const SIMILAR: &str = include_str!("programs/similar.py");

pub(super) const ALL: &[Application] = &[
    Application {
        name: "index-flat-large",
        stands_for: "I-HFDL",
        prepare: |workdir| documents(workdir, LARGE_DOCUMENT_BYTES, |_| String::new()),
        verify: |workdir| check_index(workdir, LARGE_DOCUMENT_BYTES),
        ..XAPIAN
    },
    Application {
        name: "index-flat-small",
        stands_for: "I-HFDS",
        prepare: |workdir| documents(workdir, SMALL_DOCUMENT_BYTES, |_| String::new()),
        verify: |workdir| check_index(workdir, SMALL_DOCUMENT_BYTES),
        ..XAPIAN
    },
    Application {
        name: "index-tree-large",
        stands_for: "I-HTDL",
        prepare: |workdir| documents(workdir, LARGE_DOCUMENT_BYTES, in_tree),
        verify: |workdir| check_index(workdir, LARGE_DOCUMENT_BYTES),
        ..XAPIAN
    },
    Application {
        name: "index-tree-small",
        stands_for: "I-HTDS",
        prepare: |workdir| documents(workdir, SMALL_DOCUMENT_BYTES, in_tree),
        verify: |workdir| check_index(workdir, SMALL_DOCUMENT_BYTES),
        ..XAPIAN
    },
    Application {
        name: "similar",
        stands_for: "Ferret",
        programs: &[PYTHON],
        modules: &["faiss", "numpy"],
        install_hint: "apt install python3-faiss",
        prepare: |workdir| {
            let numbers = [vectors(workdir), workdir.seed].map(|number| number.to_string());
            let words = ["build", "vectors", &numbers[0], &numbers[1]];
            workdir.python_tool(SIMILAR, &words).check().map(drop)
        },
        run: |workdir| {
            let found = searched(workdir)?;
            std::fs::write(workdir.path("found"), found).context("cannot store the search results")
        },
        verify: |workdir| {
            let found = std::fs::read_to_string(workdir.path("found"))
                .context("cannot read the search results")?;
            let numbers: Vec<u64> =
                found.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            let [asked, lost] = numbers[..] else {
                anyhow::bail!("unexpected output of the search: {found:?}")
            };
            let is_good = asked > 0 && lost * 100 <= asked * LOST_PERCENT_MAX;
            ensure!(is_good, "{lost} of {asked} vectors did not find themselves");
            Ok(())
        },
        ..ON_FOLDERS
    },
];

/// Template of four variants that differ in their documents.
const XAPIAN: Application = Application {
    name: "index",
    stands_for: "Psearchy",
    programs: &[PYTHON],
    modules: &["xapian"],
    install_hint: "apt install python3-xapian",
    run: |workdir| workdir.python(INDEX, &["build", "documents", "index"]).check().map(drop),
    ..ON_FOLDERS
};

/// Returns the number of documents. Indexing is expensive, so they are a quarter of the data, but
/// not too few.
fn document_count(workdir: &Workdir, document_bytes: usize) -> u64 {
    (workdir.bytes / 4 / document_bytes as u64).max(8)
}

fn documents(workdir: &Workdir, document_bytes: usize, place: fn(u64) -> String) -> Result<()> {
    let count = document_count(workdir, document_bytes);
    data::documents(&workdir.path("documents"), (workdir.seed, count), document_bytes, place)
}

/// Returns a path with 32 documents per folder and 32 folders per parent.
fn in_tree(number: u64) -> String {
    format!("{}/{}", number / 1024, number / 32 % 32)
}

fn check_index(workdir: &Workdir, document_bytes: usize) -> Result<()> {
    let count = document_count(workdir, document_bytes);
    let step = usize::try_from((count / LOOKED_UP).max(1))?;
    let names: Vec<String> = (0..count).step_by(step).map(data::document_name).collect();
    let path = workdir.path("names");
    std::fs::write(&path, names.join("\n")).context("cannot write names to look up")?;
    let input = File::open(&path).context("cannot read the names")?;
    let said = workdir.python_tool(INDEX, &["find", "index"]).input(input).check()?;
    let expected = format!("{count} documents, lost: none");
    ensure!(said.trim() == expected, "the index returned {said:?} instead of {expected:?}");
    Ok(())
}

fn vectors(workdir: &Workdir) -> u64 {
    (workdir.bytes / VECTOR_BYTES / 2).max(1000)
}

fn searched(workdir: &Workdir) -> Result<String> {
    let numbers =
        [vectors(workdir), workdir.seed, u64::from(workdir.cores)].map(|number| number.to_string());
    let words = ["search", "vectors", &numbers[0], &numbers[1], &numbers[2]];
    workdir.python(SIMILAR, &words).check()
}
