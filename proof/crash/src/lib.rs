//! Kills the store after any store to memory and checks what recovery finds.
//!
//! The tests of this crate are all there is. A scenario runs with a region that ends the run
//! before its n-th store, for every n; what such an end leaves behind is what a kill leaves. Then
//! the pool is opened again and compared with the model: what was acknowledged is there, what was
//! under way is old or new, block by block; nothing is damaged, and nothing leaks.
//!
//! The region passes these points only with its feature `crash-points`, which this crate asks for
//! as a development dependency, so that no program has it.
#![forbid(unsafe_code)]
