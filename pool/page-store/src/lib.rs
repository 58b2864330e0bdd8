//! Contents in, page references out.
mod error;
pub use error::OpenError;
