//! The engine is ended before any of its stores to memory, and what recovery finds is checked.
//!
//! A scenario runs with a region that ends the run before its n-th store, for every n; what such
//! an end leaves is what a kill leaves. Then the pool is opened again and compared with the model:
//! what was acknowledged is there, what was under way is old or new, block by block; nothing is
//! damaged, and nothing leaks.
//!
//! The region passes these points only with the feature `crash-points`, which no crate asks for,
//! so that no program has it: `cargo test -p volumes --features crash-points --test crash`.

mod capacity;
mod frozen;
mod resize;
mod scenarios;
mod schedules;
mod support;
mod table;
