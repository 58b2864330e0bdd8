//! Recorded measurements: formats for writing, reading, judging and comparing them.
//!
//! A run is a folder with `manifest.json` (subject and environment), `steps.jsonl` (each step with
//! its rows, appended when the step ends), and files derived from the steps: `results.json` (an
//! array of all [`Row`]s) and `summary.json` (an array of [`Summary`]s). The format is versioned
//! and published as a JSON Schema, `docs/formats/bench-1.schema.json`.
#![forbid(unsafe_code)]

mod compare;
mod folder;
mod manifest;
pub mod papers;
pub mod placement;
pub mod projection;
mod row;
mod rules;
mod schema;
mod statistics;
mod summary;

pub use compare::{CaseComparison, Comparison, Verdict, compare};
pub use folder::{RunFolder, StepKey, StepRecord};
pub use manifest::{Host, Manifest, Probe, SCHEMA, Tool};
pub use row::{
    CPIO_CYCLES, Cpu, DeviceIo, FIRST_READ_NS, HEADLINES, INDEX_BYTES_PER_KEY, Io, LOOKUPS_PER_S,
    Latency, LatencyKind, NOPM, RECORDS_PER_S, REPORTS_PER_MINUTE, Row, Series, Slice, StoreUse,
    Strip, Suite, Time, Validity,
};
pub use rules::{CPU_FOR_EACH_IO, Circumstances, apply, generator_share};
pub use schema::schema;
pub use statistics::{Estimate, SteadyState, median};
pub use summary::{Summary, summarise};
