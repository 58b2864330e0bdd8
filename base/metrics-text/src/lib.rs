//! Metrics in Prometheus text format.
#![forbid(unsafe_code)]

mod page;

pub use page::{CONTENT_TYPE, Histogram, Kind, Page};
