//! The REST API: types, errors and OpenAPI document.
#![forbid(unsafe_code)]
