//! Images in an object store: S3, and stores that use its protocol.
//!
//! [`open_store`] opens a store, also in a folder. Objects have the names that files have in a
//! folder, below a prefix. A manifest is put only if there is none (`If-None-Match: *`): that
//! request decides between two writers.
//!
//! Requests run on threads of the store's own, so that its calls may block, but must not be made
//! from a task of an asynchronous runtime. They are repeated for a bounded time when the network
//! or the server fails.
#![forbid(unsafe_code)]

mod client;
mod credentials;
mod failure;

mod object_pack;

mod object_images;

mod place;

pub use object_images::ObjectImages;
pub use place::{Access, open_store};
