//! HTML page of recorded measurements: self-contained, with inline charts, light and dark.
//!
//! The page embeds the measurements as JSON. Every displayed number also has its exact value and a
//! pointer into that JSON, so that readers and programs can trace it to its source. Nothing else is
//! displayed.
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
