//! Measurements on record: the form in which they are written, read, judged and compared.
//!
//! A run is a folder with `manifest.json` (what was measured where) and `results.json` (an array of
//! [`Row`]s). The form is versioned and published as a JSON Schema.
#![forbid(unsafe_code)]

mod row;

pub use row::{Cpu, DeviceIo, Io, Latency, LatencyKind, Row, StoreUse, Suite, Time, Validity};
