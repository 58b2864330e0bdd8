//! Client connections, and the two requests that carry records.

mod answer;
mod asked;
mod buffers;
mod client;
mod connection;
mod ending;
mod fetch;
mod listener;
mod login;
#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod place_tests;
mod produce;
mod recompression;
mod session;
mod session_cache;
#[cfg(test)]
mod test_broker;
mod transactional;
mod validation;

pub(crate) use asked::Asked;
pub(crate) use buffers::Buffers;
pub(crate) use client::Client;
pub(crate) use listener::listen;
pub(crate) use recompression::Recompression;
pub(crate) use session_cache::SessionCache;
