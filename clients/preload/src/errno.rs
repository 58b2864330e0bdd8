//! Preservation of the calling thread's `errno` over successful calls.

use std::ffi::c_int;

/// Restores `errno` when it goes out of scope.
pub(crate) struct Kept {
    value: c_int,
}

impl Kept {
    pub(crate) fn now() -> Self {
        Self { value: get() }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        set(self.value);
    }
}

pub(crate) fn get() -> c_int {
    let place = place();
    // SAFETY:
    // - alive, aligned, exclusive: the C library keeps one for each thread, for this thread alone.
    unsafe { *place }
}

pub(crate) fn set(value: c_int) {
    let place = place();
    // SAFETY:
    // - alive, aligned, exclusive: the C library keeps one for each thread, for this thread alone.
    unsafe { *place = value };
}

fn place() -> *mut c_int {
    // SAFETY:
    // - The function takes nothing and may be called at any time.
    unsafe { libc::__errno_location() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_is_what_it_was_when_the_scope_ends() {
        set(libc::EXDEV);
        {
            let _errno = Kept::now();
            set(libc::EIO);
        }
        assert_eq!(get(), libc::EXDEV);
    }
}
