//! Fill detection, incompressibility gate and LZ4 for one block.
#![forbid(unsafe_code)]
