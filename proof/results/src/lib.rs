//! Measurements on record: the form in which they are written, read, judged and compared.
//!
//! A run is a folder with `manifest.json` (what was measured where), `steps.jsonl` (each step with
//! its rows, appended as soon as the step is over) and `results.json` (an array of all [`Row`]s,
//! derived from the steps). The form is versioned and published as a JSON Schema.
#![forbid(unsafe_code)]

mod folder;
mod manifest;
mod row;

pub use folder::{RunFolder, StepKey, StepRecord};
pub use manifest::{Manifest, SCHEMA, Tool};
pub use row::{
    Cpu, DeviceIo, Io, Latency, LatencyKind, Row, Series, Slice, StoreUse, Suite, Time, Validity,
};
