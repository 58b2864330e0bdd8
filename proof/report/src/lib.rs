//! One page that shows recorded measurements: no network, inline charts, light and dark.
#![forbid(unsafe_code)]
