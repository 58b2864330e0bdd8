//! C library `libmemlane`: implements `include/memlane.h` with the crate `sdk`.
//!
//! Functions return 0 or a negative error number. The message of the last error is stored per
//! thread. Callers must pass valid pointers; null pointers are refused.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::path::Path;
use std::time::Duration;

use sdk::{
    ByteRange, Client, ClientError, ClientOptions, Device, Lane, REQUESTS_MAX, RawKind, RawRequest,
    Target, Zeroes,
};

/// Value of `MEMLANE_KEEP_ALLOCATED`.
const KEEP_ALLOCATED: u32 = 1;

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
}

/// Completion of a request, laid out as `struct memlane_completion`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CCompletion {
    token: u64,
    result: c_int,
}

/// Opens a volume by name. A `patience_ms` of 0 selects the default of one minute.
///
/// # Safety
/// `socket` and `volume` must be null-terminated strings, and `device` must be writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memlane_open(
    socket: *const c_char,
    volume: *const c_char,
    patience_ms: u64,
    device: *mut *mut Device,
) -> c_int {
    if device.is_null() {
        return refused("memlane_open: the pointer to the device is null");
    }
    // SAFETY:
    // - alive, initialised: the caller's string, or null.
    let socket = unsafe { text(socket) };
    // SAFETY:
    // - alive, initialised: the caller's string, or null.
    let volume = unsafe { text(volume) };
    let (Some(socket), Some(volume)) = (socket, volume) else {
        return refused("memlane_open: the socket or the volume is null or not UTF-8");
    };
    let options = match patience_ms {
        0 => ClientOptions::default(),
        _ => ClientOptions {
            patience: Duration::from_millis(patience_ms),
            ..ClientOptions::default()
        },
    };
    let opened = Client::connect_with(Path::new(&socket), options)
        .and_then(|client| client.open(&Target::Name(volume)));
    match opened {
        Ok(opened) => {
            // SAFETY:
            // - in bounds, alive: the caller's place, which is not null.
            unsafe { device.write(Box::into_raw(Box::new(opened))) };
            0
        }
        Err(error) => failed(&error),
    }
}

/// Closes a device. Null is ignored.
///
/// # Safety
/// The device must be open, and no thread may use it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memlane_close(device: *mut Device) {
    if !device.is_null() {
        // SAFETY:
        // - one caller: the caller closes each device of `memlane_open` once.
        drop(unsafe { Box::from_raw(device) });
    }
}

/// Reads the bytes from `offset` on into `into`.
///
/// # Safety
/// The device must be open, and `into` must have room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memlane_read(
    device: *const Device,
    offset: u64,
    into: *mut u8,
    length: usize,
) -> c_int {
    if into.is_null() && length > 0 {
        return refused("memlane_read: the buffer is null");
    }
    let into = match length {
        0 => &mut [],
        // SAFETY:
        // - in bounds, alive, exclusive: the caller's memory.
        // - initialised: every pattern is a byte, and nothing is read from it before it is written.
        _ => unsafe { std::slice::from_raw_parts_mut(into, length) },
    };
    // SAFETY:
    // - alive: the caller's device, or null.
    outcome(unsafe { device.as_ref() }, |device| device.read(offset, into))
}

/// Writes bytes at `offset`.
///
/// # Safety
/// The device must be open, and `from` must have `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memlane_write(
    device: *const Device,
    offset: u64,
    from: *const u8,
    length: usize,
) -> c_int {
    if from.is_null() && length > 0 {
        return refused("memlane_write: the buffer is null");
    }
    let from = match length {
        0 => &[],
        // SAFETY:
        // - in bounds, alive, initialised: the caller's memory.
        _ => unsafe { std::slice::from_raw_parts(from, length) },
    };
    // SAFETY:
    // - alive: the caller's device, or null.
    outcome(unsafe { device.as_ref() }, |device| device.write(offset, from))
}

/// Makes a range read as zeros.
///
/// # Safety
/// The device must be open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memlane_write_zeroes(
    device: *const Device,
    offset: u64,
    length: u64,
    flags: u32,
) -> c_int {
    let zeroes = if flags & KEEP_ALLOCATED != 0 { Zeroes::KeepAllocated } else { Zeroes::Unmap };
    let range = ByteRange::new(offset, length);
    // SAFETY:
    // - alive: the caller's device, or null.
    outcome(unsafe { device.as_ref() }, |device| device.write_zeroes(range, zeroes))
}

/// Discards the whole blocks of a range.
///
/// # Safety
/// The device must be open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memlane_discard(device: *const Device, offset: u64, length: u64) -> c_int {
    let range = ByteRange::new(offset, length);
    // SAFETY:
    // - alive: the caller's device, or null.
    outcome(unsafe { device.as_ref() }, |device| device.discard(range))
}

/// Flushes: all acknowledged writes become as durable as the volume's class guarantees.
///
/// # Safety
/// The device must be open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memlane_flush(device: *const Device) -> c_int {
    // SAFETY:
    // - alive: the caller's device, or null.
    outcome(unsafe { device.as_ref() }, Device::flush)
}

/// Current size in bytes, or 0 if it is unknown.
///
/// # Safety
/// The device must be open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memlane_size(device: *const Device) -> u64 {
    let mut size_bytes = 0;
    // SAFETY:
    // - alive: the caller's device, or null.
    let _code = outcome(unsafe { device.as_ref() }, |device| {
        size_bytes = device.geometry()?.size_bytes;
        Ok(())
    });
    size_bytes
}

/// Returns 1 if the device refuses all writes.
///
/// # Safety
/// The device must be open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memlane_is_read_only(device: *const Device) -> c_int {
    // SAFETY:
    // - alive: the caller's device, or null.
    unsafe { device.as_ref() }.map_or(0, |device| c_int::from(device.is_read_only()))
}

/// Message of the calling thread's last error, valid until its next error.
#[unsafe(no_mangle)]
pub extern "C" fn memlane_last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ptr())
}

/// Opens a lane of the device for many requests in flight.
///
/// # Safety
/// The device must be open, and `lane` must be writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memlane_lane_open(device: *const Device, lane: *mut *mut Lane) -> c_int {
    if lane.is_null() {
        return refused("memlane_lane_open: the pointer to the lane is null");
    }
    // SAFETY:
    // - alive: the caller's device, or null.
    outcome(unsafe { device.as_ref() }, |device| {
        let opened = Box::into_raw(Box::new(device.lane()?));
        // SAFETY:
        // - in bounds, alive: the caller's place, which is not null.
        unsafe { lane.write(opened) };
        Ok(())
    })
}

/// Closes a lane. Requests in flight may or may not take effect.
///
/// # Safety
/// The lane must be open, and no thread may use it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memlane_lane_close(lane: *mut Lane) {
    if !lane.is_null() {
        // SAFETY:
        // - one caller: the caller closes each lane of `memlane_lane_open` once.
        drop(unsafe { Box::from_raw(lane) });
    }
}

/// Starts a read.
///
/// # Safety
/// The lane must be open and used only by this thread, and `into` must have room for `length` bytes
/// until the request has completed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memlane_submit_read(
    lane: *mut Lane,
    offset: u64,
    into: *mut u8,
    length: usize,
    token: u64,
) -> c_int {
    let request = raw(RawKind::Read, offset, length, into, token);
    // SAFETY:
    // - alive, exclusive: the caller's lane and memory.
    unsafe { submit(lane, request) }
}

/// Starts a write.
///
/// # Safety
/// The lane must be open and used only by this thread, and `from` must have `length` bytes until
/// the request has completed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memlane_submit_write(
    lane: *mut Lane,
    offset: u64,
    from: *const u8,
    length: usize,
    token: u64,
) -> c_int {
    let request = raw(RawKind::Write, offset, length, from.cast_mut(), token);
    // SAFETY:
    // - alive, exclusive: the caller's lane and memory, which a write does not change.
    unsafe { submit(lane, request) }
}

/// Starts a flush of all writes acknowledged before.
///
/// # Safety
/// The lane must be open and used only by this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memlane_submit_flush(lane: *mut Lane, token: u64) -> c_int {
    let request = raw(RawKind::Flush, 0, 0, std::ptr::null_mut(), token);
    // SAFETY:
    // - alive, exclusive: the caller's lane; no memory goes with it.
    unsafe { submit(lane, request) }
}

/// Waits at most `timeout_ms` until a request has completed; 0 does not wait. Returns the number of
/// stored completions, or a negative error number.
///
/// # Safety
/// The lane must be open and used only by this thread, and `completions` must have room for
/// `count_max`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memlane_wait(
    lane: *mut Lane,
    completions: *mut CCompletion,
    count_max: usize,
    timeout_ms: u64,
) -> c_int {
    // SAFETY:
    // - alive, exclusive: the caller's lane, or null.
    let Some(lane) = (unsafe { lane.as_mut() }) else {
        return refused("the lane is null");
    };
    if completions.is_null() || count_max == 0 {
        return refused("memlane_wait: the array of completions is null or empty");
    }
    let mut found = Vec::with_capacity(count_max.min(REQUESTS_MAX));
    lane.wait(&mut found, Duration::from_millis(timeout_ms));
    for (index, completion) in found.iter().enumerate().take(count_max) {
        // SAFETY:
        // - in bounds: fewer than the caller's `count_max`.
        let place = unsafe { completions.add(index) };
        let value = CCompletion { token: completion.token.0, result: -completion.errno };
        // SAFETY:
        // - in bounds, alive, exclusive: the caller's memory.
        unsafe { place.write(value) };
    }
    c_int::try_from(found.len()).unwrap_or(c_int::MAX)
}

fn raw(kind: RawKind, offset: u64, length: usize, memory: *mut u8, token: u64) -> RawRequest {
    RawRequest { kind, offset, length, memory, token }
}

/// # Safety
/// As for [`memlane_submit_read`].
unsafe fn submit(lane: *mut Lane, request: RawRequest) -> c_int {
    // SAFETY:
    // - alive, exclusive: the caller's lane, or null.
    let Some(lane) = (unsafe { lane.as_mut() }) else {
        return refused("the lane is null");
    };
    if request.memory.is_null() && request.length > 0 {
        return refused("the buffer of the request is null");
    }
    // SAFETY:
    // - alive, exclusive: the caller keeps the memory until the request has ended.
    match unsafe { lane.submit_raw(request) } {
        Ok(()) => 0,
        Err(error) => failed(&error),
    }
}

/// Copies a string of the caller, if it is valid UTF-8.
///
/// # Safety
/// The pointer must be null or refer to a null-terminated string.
unsafe fn text(string: *const c_char) -> Option<String> {
    if string.is_null() {
        return None;
    }
    // SAFETY:
    // - alive, initialised: the caller's string.
    let string = unsafe { CStr::from_ptr(string) };
    string.to_str().ok().map(str::to_owned)
}

fn outcome(device: Option<&Device>, act: impl FnOnce(&Device) -> Result<(), ClientError>) -> c_int {
    match device.map(act) {
        Some(Ok(())) => 0,
        Some(Err(error)) => failed(&error),
        None => refused("the device is null"),
    }
}

fn refused(message: &str) -> c_int {
    keep_text(message);
    -libc::EINVAL
}

fn failed(error: &ClientError) -> c_int {
    keep_text(&error.to_string());
    -error.errno()
}

fn keep_text(text: &str) {
    let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
    LAST_ERROR.with(|last| *last.borrow_mut() = text);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    const HEADER: &str = include_str!("../include/memlane.h");
    const MANUAL: &str = include_str!("../memlane.h.3");

    /// Names of functions in the header: identifiers before an opening parenthesis.
    fn declared() -> BTreeSet<&'static str> {
        let code = HEADER.split("*/").filter_map(|part| part.split("/*").next());
        let before = code.flat_map(|part| part.match_indices('(').map(|(at, _)| &part[..at]));
        let names = before.filter_map(|text| text.split([' ', '*', '\n']).next_back());
        names.filter(|name| name.starts_with("memlane_")).collect()
    }

    #[test]
    fn the_manual_has_every_function_of_the_header() {
        let synopsis = MANUAL.lines().filter_map(|line| line.strip_prefix(".Fn memlane_"));
        let synopsis = synopsis.filter(|rest| rest.contains('"'));
        let names = synopsis.filter_map(|rest| rest.split(' ').next());
        let documented: BTreeSet<_> = names.map(|name| format!("memlane_{name}")).collect();
        let declared = declared();
        assert!(declared.len() > 10, "{declared:?}");
        assert!(documented.iter().eq(declared), "{documented:?}");
    }
}
