//! Kills the engine before each of its stores to memory, and checks what recovery finds.
//!
//! A scenario runs with a region that ends the run before its n-th store, for every n, which leaves
//! the same state as a kill. Then the pool is opened again and compared with the model:
//! acknowledged changes are present, changes in progress are old or new, block by block; nothing is
//! damaged, and nothing leaks.
//!
//! The region has these crash points only with the feature `crash-points`, which no crate enables,
//! so no program contains it: `cargo test -p volumes --features crash-points --test crash`.

mod capacity;
mod frozen;
mod resize;
mod scenarios;
mod schedules;
mod support;
mod table;
