//! Queue attributes of a loop device in sysfs.

use std::fs;

use block_device::WriteCache;
use export_kit::{AttachError, AttachErrorKind};

/// Value of a block device's `queue/write_cache`, which determines whether the kernel sends
/// flushes.
pub(crate) fn cache_name(cache: WriteCache) -> &'static str {
    match cache {
        WriteCache::Volatile => "write back",
        WriteCache::Absent => "write through",
    }
}

/// Core on which a block device completes requests: `rq_affinity` in the kernel's
/// Documentation/ABI/stable/sysfs-block.
pub(crate) enum Completion {
    /// Any core that shares a cache with the requesting core: the kernel's default.
    NearTheCoreThatAsked,
    /// The requesting core. Otherwise the serving thread's core would wake the requesting thread on
    /// itself, and both would share this core while another one is idle.
    OnTheCoreThatAsked,
}

pub(crate) fn set_completion(number: u32, completion: Completion) {
    let value = match completion {
        Completion::NearTheCoreThatAsked => "1",
        Completion::OnTheCoreThatAsked => "2",
    };
    set_queue_attribute(number, "rq_affinity", value);
}

/// Tells the kernel whether it must send flushes (Documentation/block/writeback_cache_control),
/// from the next request on. Fails if the kernel would omit required flushes.
pub(crate) fn set_write_cache(number: u32, mode: WriteCache) -> Result<(), AttachError> {
    let path = queue_attribute(number, "write_cache");
    let is_set = || fs::read_to_string(&path).is_ok_and(|now| now.trim() == cache_name(mode));
    if is_set() {
        return Ok(());
    }
    set_queue_attribute(number, "write_cache", cache_name(mode));
    if mode == WriteCache::Absent || is_set() {
        return Ok(());
    }
    Err(AttachError::new(
        AttachErrorKind::Kernel,
        format!("enable the write cache (flushes) of /dev/loop{number}"),
    )
    .with_hint(format!("\"{}\" cannot be written to {path}", cache_name(mode))))
}

/// Sets a queue attribute for performance. An error, as with a read-only sysfs, is ignored: the
/// device is only slower.
pub(crate) fn set_queue_attribute(number: u32, attribute: &str, value: &str) {
    let _refused = fs::write(queue_attribute(number, attribute), value);
}

fn queue_attribute(number: u32, attribute: &str) -> String {
    format!("/sys/block/loop{number}/queue/{attribute}")
}
