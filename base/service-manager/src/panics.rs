//! The death of a program in which a thread panics.

use std::panic;
use std::process;

/// Ends the process when a thread panics, once the panic was told, in builds that unwind: programs
/// that ship are compiled to abort, and those that tests attack are to die of what kills those.
pub fn die_of_panics() {
    if cfg!(panic = "unwind") {
        let tell = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            tell(panic);
            process::abort();
        }));
    }
}
