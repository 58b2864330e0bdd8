//! Detection of dependency cycles between the modules of a crate, as far as the source shows them.
//!
//! A use is a path to an item of another module, through imports and re-exports, or a call of an
//! inherent method of a type. If the type of the receiver is not apparent from fields and
//! parameters, the method's name decides, provided that only one module of the crate and no crate
//! below it defines it. A re-export is no use. A parent consists of its children, so its uses of
//! them are in no cycle. Tests are excluded.

mod graph;
mod tree;
mod types;
mod uses;

pub(crate) use graph::{circles, modules_form_no_circle};
