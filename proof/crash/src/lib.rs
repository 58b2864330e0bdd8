//! Kills the store after any store to memory and checks what recovery finds.
#![forbid(unsafe_code)]
