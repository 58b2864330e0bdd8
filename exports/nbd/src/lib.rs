//! The NBD protocol in, block-device calls out.
#![forbid(unsafe_code)]
