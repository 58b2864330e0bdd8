//! No circle between the modules of a crate: which module uses which, as far as source shows it.
//!
//! A use is a path that names what another module defines, through imports and re-exports, or a
//! call of an inherent method of a type. Where the type of the receiver is not plain from the
//! fields and parameters nearby, the method's name decides if only one module of the crate and no
//! crate below it defines it. A re-export is no use, and a parent is made of its children: what it
//! uses of them counts for no circle. Tests are left out.

mod graph;
mod tree;
mod types;
mod uses;

pub(crate) use graph::{circles, modules_form_no_circle};
