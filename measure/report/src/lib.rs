//! One page that shows recorded measurements: no network, inline charts, light and dark.
//!
//! A page holds the measurements themselves as JSON. Every number that is shown carries, beside the
//! rounded text, its exact value and the place in that JSON where it stands, so that a reader, or a
//! program, can follow each one to its source. Nothing is shown that is not there.
#![forbid(unsafe_code)]

mod bars;
mod book;
mod chart;
mod export;
mod figure;
mod group;
mod markdown;
mod page;
mod papers;
mod placed;
mod report;
mod section;
mod table;

pub use report::Report;
