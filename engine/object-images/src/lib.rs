//! Images in an object store: S3 and compatible stores.
//!
//! [`open_store`] opens a store, including one in a folder. Objects have the same names as files in
//! a folder, below a prefix. A manifest is created with a conditional put (`If-None-Match: *`),
//! which decides between two writers.
//!
//! Requests run on the store's own threads, so its calls may block, but must not be made from a
//! task of an asynchronous runtime. They are retried for a bounded time if the network or the
//! server fails.
#![forbid(unsafe_code)]

mod client;
mod credentials;
mod failure;
mod found_credentials;

mod object_pack;

mod object_images;

mod place;

pub use object_images::ObjectImages;
pub use place::{Access, open_store};
